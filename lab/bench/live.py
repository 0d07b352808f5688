#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two builds of cowfs side by side: the workloads of bench-commit, live, with the same commits. As root.

usage: live.py [--fs FS] [--rounds N] [--folder FOLDER] OLD_BUILD NEW_BUILD [WORKLOAD]...	default: ext4, 1, all nine workloads

For each workload and round the two builds take turns: a file system as "make bench-commit" has it (commit/record.py) on a loop device, a
log of 128 MiB, the workload on the mounted volume, the time of the kernel and of programs virtual (commit/card.py), a commit every 300 s of
it or where the workload asks for one, one at the end, and a detach. boot is a guest whose disk is the volume. Prints a table of ratios,
new by old, of the sums over all rounds: bytes that the kernel wrote to the card from the attach to the end of the detach, RAM that the
commits freed ("ram_used_bytes" before and after each), and time of syncfs and the command "cowctl commit" together.

FOLDER (default: in TMPDIR) keeps the trees that the workloads begin with; those of Debian are made with mmdebstrap.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
os.environ["COWFS_ON_CRASH"] = "stop"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "commit"))
import record # noqa: E402
from card import COMMIT_S, JOURNAL_S, LIBC, WRITEBACK_S, Loop, copy_sparse, mkfs, output, run, umount # noqa: E402

LOG_MIB, XFS_MIB = 128, 320


class Live:
    """The card of a workload (commit/card.py), on a volume of one build."""

    def __init__(self, build, base, folder, fs):
        self.build, self.folder, self.image = build, folder, f"{folder}/card.img"
        self.now_s, self.sums, self.root_fd, self.mnt = 0.0, {"bytes": 0, "freed": 0, "seconds": 0.0, "commits": 0, "frozen": 0}, -1, f"{folder}/mnt"
        os.environ["COWFS_RUNDIR"] = f"{folder}/run"
        copy_sparse(base, self.image)
        os.truncate(self.image, os.path.getsize(base) + ((LOG_MIB + 16) << 20))
        self.loop = Loop(self.image)
        self.cow("prepare", self.loop.device, "--log-size", f"{LOG_MIB}M")
        self.start = self.written()
        self.device = self.cow("attach", "--name", "live", self.loop.device)
        self.fs = fs

    def mount(self):
        os.makedirs(self.mnt, exist_ok=True)
        run("mount", "-t", self.fs, "-o", "noatime", self.device, self.mnt)
        self.root_fd = os.open(self.mnt, os.O_RDONLY | os.O_DIRECTORY)

    def cow(self, *arguments):
        return subprocess.run([f"{self.build}/cowctl", *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True).stdout.strip()

    def written(self):
        with open(f"/sys/block/{os.path.basename(self.loop.device)}/stat") as f:
            return int(f.read().split()[6]) * 512

    def ram(self):
        return json.loads(self.cow("status", "--json", "live"))["ram_used_bytes"]

    # ---- what a workload calls ----

    def commit(self):
        begin = time.monotonic()
        if self.root_fd >= 0: # as much has arrived in RAM of both
            LIBC.syncfs(self.root_fd)
        synced, ram = time.monotonic(), self.ram()
        begin += time.monotonic() - synced # status is no part of a commit
        bill = json.loads(self.cow("commit", "--json", "live"))
        self.sums["seconds"] += time.monotonic() - begin
        self.sums["frozen"] += bill["quiesce"]["frozen"]
        self.sums["freed"] += ram - self.ram()
        self.sums["commits"] += 1

    def tick(self, t):
        step = int(self.now_s // JOURNAL_S + 1) * JOURNAL_S
        while step <= t:
            self.now_s = step
            os.utime(self.root_fd)
            os.fsync(self.root_fd)
            if step % WRITEBACK_S == 0:
                LIBC.syncfs(self.root_fd)
            if step % COMMIT_S == 0:
                self.commit()
            step += JOURNAL_S
        self.now_s = t

    def idle(self, t):
        self.commit()
        self.now_s = t

    def fstrim(self):
        run("fstrim", self.mnt)

    # ---- the end ----

    def unmount(self):
        if self.root_fd >= 0:
            os.close(self.root_fd)
            self.root_fd = -1
            umount(self.mnt)

    def close(self):
        self.unmount()
        self.cow("detach", "live")
        self.sums["bytes"] = self.written() - self.start
        self.loop.close()
        os.unlink(self.image)

    def give_up(self):
        if self.root_fd >= 0:
            os.close(self.root_fd)
        for command in ["umount", "-l", self.mnt], [f"{self.build}/cowctl", "detach", "--discard", "live"], ["losetup", "-d", self.loop.device]:
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def base_of(studio, workload, fs):
    """The start of a workload, as an image."""
    path, tree = f"{studio.folder}/{workload}.{fs}.base", studio.start_tree(workload)
    mib = record.SIZES_MIB.get(workload, record.FS_MIB)
    if fs == "ext4":
        mkfs(path, mib, journal=True, stripe_mib=4, tree=tree)
        return path
    with open(path, "wb") as f:
        f.truncate(max(mib, XFS_MIB if fs == "xfs" else 0) << 20)
    run(f"mkfs.{fs}", "-q", "-f", path)
    if tree:
        loop = Loop(path)
        try:
            loop.mount(f"{path}.mnt", "noatime", fs)
            run("cp", "-a", f"{tree}/.", loop.mnt)
        finally:
            loop.close()
            os.rmdir(f"{path}.mnt")
    return path


def one(studio, workload, fs, build, base):
    folder = tempfile.mkdtemp(prefix="cowfs-live.")
    live = None
    try:
        live = Live(build, base, folder, fs)
        if workload == "boot":
            record.boot(studio.trees.guest(), live.device)
        else:
            live.mount()
            studio.do(workload, live)
        live.commit()
        live.close()
        return live.sums
    except BaseException:
        if live:
            live.give_up()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    p.add_argument("--fs", default="ext4", choices=("ext4", "xfs", "btrfs"))
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--folder")
    p.add_argument("build", nargs=2)
    p.add_argument("workload", nargs="*")
    a = p.parse_args()
    if not os.environ.get("BENCH_NAMESPACE"):
        os.environ["BENCH_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    studio = record.Studio(os.path.abspath(a.folder or f"{tempfile.gettempdir()}/cowfs-live-trees"))
    print(f"{time.strftime('%F')}, {a.fs}, Linux {os.uname().release}, load {os.getloadavg()[0]:.0f}, {a.rounds} rounds\n")
    print("| workload | commits | bytes to the card, new / old | MiB | RAM freed, new / old | MiB | time of the commits, new / old | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for workload in a.workload or record.WORKLOADS:
        base = base_of(studio, workload, a.fs)
        sums = [{"bytes": 0, "freed": 0, "seconds": 0.0, "commits": 0, "frozen": 0} for _ in range(2)]
        for n in range(a.rounds):
            for which in (0, 1) if n % 2 == 0 else (1, 0):
                got = one(studio, workload, a.fs, os.path.abspath(a.build[which]), base)
                print(f"live: {workload}: {('old', 'new')[which]}: {got}", file=sys.stderr, flush=True)
                for k, v in got.items():
                    sums[which][k] += v
        os.unlink(base)
        old, new = sums
        cells = [f"{new[k] / max(old[k], 1e-9):.3f} | {new[k] / u:.1f}, {old[k] / u:.1f}" for k, u in
                 (("bytes", 2**20), ("freed", 2**20), ("seconds", 1))]
        print(f"| {workload} | {new['commits']} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
