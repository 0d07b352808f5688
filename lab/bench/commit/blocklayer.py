#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Commits through the kernel's block layer against the same in memory, on the flash model. As root.

usage: blocklayer.py FOLDER [--only TRACE,...]	traces of bench.py in FOLDER (recorded if they are not there); prints a table
       blocklayer.py --short			the small trace: for make check

bench.py runs the commit code on a model of the card in its own process. Here cowfs-cardsim shows the same card as a file, a loop device
with direct I/O lies on it, and the daemon serves a volume on that. The writes and discards of the trace go to the volume; cowctl commits at
the same points, and detaches. The card has its virtual clock, so nothing sleeps. The time of writes and flushes, and the erases, must be
within 5 % of those in memory: what merging and splitting of requests can change. Reads are shown: the daemon reads more than the bench.
"""
import argparse
import fcntl
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from bench import record, replay # noqa: E402
from card import BUILD, MAX_REQUEST_KIB, copy_sparse, output, run # noqa: E402

# block-mapped; with a shared log; page-mapped: a layer that appends everything, for which no commit is planned
PROFILES = ("lexar-300x-8g", "sandisk-ultra-4g", "sandisk-sata5000-32g-mft")
UNPLANNED = ("sandisk-sata5000-32g-mft",)
TRACES = ("apt-install.journal", "gps-day.freeze")
# A card with a shared log differs by more where commits are small: docs/BENCHMARKS.md, "Through the block layer"
SHORT, SHORT_PROFILES = ("small.freeze",), ("lexar-300x-8g", "transcend-ts8gcf266", "x-slow-4g")
WITHIN = 0.05
LIMIT_S = 300 # of one command
BLKDISCARD = 0x1277
WRITE, FLUSH, DISCARD, COMMIT = 1, 2, 3, 4
NO_DATA = 2**64 - 1
MIB = 1 << 20


def records(name):
    with open(f"{name}.trace", "rb") as f:
        head = f.read(64)
        if head[:8] != b"COWTRACE":
            sys.exit(f"{name}.trace: not a trace")
        while len(r := f.read(32)) == 32:
            _, off, data, length, op, _, _ = struct.unpack("<QQQIBBH", r)
            yield op, off, length, data


def volume_bytes(name):
    with open(f"{name}.trace", "rb") as f:
        return struct.unpack_from("<Q", f.read(64), 16)[0]


def up(n, unit):
    return -(-n // unit) * unit


class Disk:
    """The simulated card, and a volume on it."""

    def __init__(self, folder, base, size, profile, unit):
        self.dir, self.image, self.profile = f"{folder}/sim", f"{folder}/image", profile
        self.volume = "cowfs-bench"
        os.makedirs(self.dir)
        copy_sparse(base, self.image)
        os.truncate(self.image, size)
        self.env = dict(os.environ, COWFS_CONF=f"{folder}/cowfs.conf", COWFS_RUNDIR=f"{folder}/run")
        open(f"{folder}/cowfs.conf", "w").close()
        self.attached = None
        # the first commit of a log writes the heads of its segments: not the one that is measured
        self.ctl("prepare", "--erase-block", str(unit), self.image)
        run(f"{BUILD}/tests/usedlog", self.image)
        self.device = self.sim("--loop", "--image", self.image, profile, f"{size >> 20}M", self.dir)

        with open(f"/sys/block/{os.path.basename(self.device)}/queue/max_sectors_kb", "w") as f:
            f.write(str(MAX_REQUEST_KIB))

    def sim(self, *words):
        return output(f"{BUILD}/cowfs-cardsim", *words)

    def ctl(self, *words):
        return run(f"{BUILD}/cowctl", *words, env=self.env, timeout=LIMIT_S, stdout=subprocess.PIPE, text=True,
                   stderr=subprocess.DEVNULL).stdout.strip()

    def attach(self):
        """The clock starts when the log was read, as in memory."""
        self.attached = self.ctl("attach", "--name", self.volume, "--profile", "none" if self.profile in UNPLANNED else self.profile,
                                 self.device)
        self.sim("settle", self.dir)
        self.sim("reset", self.dir)
        return self.attached

    def commit(self):
        self.ctl("commit", self.volume)

    def detach(self):
        self.ctl("detach", self.volume)
        self.attached = None

    def stat(self):
        return json.loads(self.sim("stat", "--json", self.dir))

    def close(self):
        try:
            if self.attached:
                self.ctl("detach", "--discard", self.volume)
        finally:
            self.sim("stop", self.dir)


def write_trace(name, disk, each):
    """What the file system wrote, to the volume, and the commits."""
    dev = disk.attach()
    dirty = False
    last = sum(1 for _ in records(name)) - 1
    buf = mmap.mmap(-1, 16 * MIB)
    fd = os.open(dev, os.O_RDWR | os.O_DIRECT)
    try:
        with open(f"{name}.data", "rb") as data:
            for i, (op, off, length, at) in enumerate(records(name)):
                if op == WRITE:
                    if at != NO_DATA:
                        data.seek(at)
                    buf[:length] = bytes(length) if at == NO_DATA else data.read(length)
                    if os.pwritev(fd, [memoryview(buf)[:length]], off) != length:
                        sys.exit(f"blocklayer: {name}: short write")
                elif op == DISCARD:
                    fcntl.ioctl(fd, BLKDISCARD, struct.pack("<QQ", off, length))
                elif op == COMMIT and (each or i == last) and dirty:
                    disk.commit()
                    dirty = False
                dirty = dirty or op in (WRITE, DISCARD)
    finally:
        os.close(fd)
    disk.detach()


def compare(folder, trace, profile):
    name, each = f"{folder}/{trace}", trace.endswith(".freeze")
    memory = [r for r in replay(folder, trace, "cowfs", *(["--each"] if each else []),
                                  *(["--plan-by", "none"] if profile in UNPLANNED else []), profile=profile) if r["home"]][0]
    unit, volume = memory["unit_bytes"], volume_bytes(name)
    size = 1024 * MIB + up(volume, unit) + up(max(64 * MIB, 8 * unit), unit) + 2 * max(unit, 4 * MIB)  # cowfs_card_bytes
    temp = tempfile.mkdtemp(prefix="cowfs-blocklayer.")
    disk = None
    try:
        disk = Disk(temp, f"{name}.base", up(size, MIB), profile, unit)
        write_trace(name, disk, each)
        disk.sim("settle", disk.dir)
        s = disk.stat()
    finally:
        if disk:
            disk.close()
        shutil.rmtree(temp)
    read = memory["read_seconds"], s["read_ns"] / 1e9
    figures = {"s of writes and flushes": (memory["seconds"] - read[0], s["virtual_seconds"] - read[1]),
               "erases": (memory["erases"], s["erases"]), "s of reads": read}
    bad, slack = [], 1  # a unit is erased when it is full: where in it the clock started makes one of difference
    for what, (a, b) in figures.items():
        if abs(b - a) > WITHIN * a and not (what == "erases" and abs(b - a) <= slack) and what != "s of reads":
            bad.append(f"{trace}, {profile}: {what}: {a:g} in memory, {b:g} through the block layer")
        text = [f"{v:.0f}" if what == "erases" else f"{v:.3f}" for v in (a, b)]
        print(f"| {trace} | {profile} | {what} | {text[0]} | {text[1]} | {(b / a - 1) * 100 if a else 0:+.1f} % |", flush=True)
    print(f"blocklayer: {trace}, {profile}: memory {memory['writes']} writes of {memory['bytes']} bytes, {memory['reads']} reads of "
          f"{memory['read_bytes']}, {memory['flushes']} flushes; kernel {s['write_calls']} of {s['written_bytes']}, {s['read_calls']} of "
          f"{s['read_bytes']}, {s['flushes']}", file=sys.stderr)
    return bad


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("folder", nargs="?")
    p.add_argument("--only")
    p.add_argument("--short", action="store_true")
    a = p.parse_args()
    if not a.short and not a.folder:
        p.error("FOLDER is missing")
    folder = tempfile.mkdtemp(prefix="cowfs-blocklayer-traces.") if a.short else a.folder
    traces = SHORT if a.short else a.only.split(",") if a.only else TRACES
    try:
        record(folder, list(traces))
        print("| trace | card | figure | in memory | through the block layer | difference |\n" + "| --- " * 6 + "|", flush=True)
        bad = [b for t in traces for q in (SHORT_PROFILES if a.short else PROFILES) for b in compare(folder, t, q)]
    finally:
        if a.short:
            shutil.rmtree(folder)
    if bad:
        sys.exit("\n".join(["blocklayer: FAILED: more than 5 % off"] + bad))


if __name__ == "__main__":
    main()
