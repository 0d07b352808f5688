#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Free space of xfs images that no freeze and no unmount has prepared: xfsfree.py [POINTS [SEED [CONFIGURATION]]].

A real xfs on a loop device under load. QEMU's driver blklogwrites records all writes. The recording is played up to many points. At half
of the points some of the writes since the last flush are missing, as after a power cut. At each point:
- cowfs reads which units are free (fsmap_dump);
- Linux mounts a copy, which replays the log, and unmounts it. What was free must be free, unless it is in a tree or in the free list of
  a group now: after the replay the mount carries out intents and frees unlinked inodes, and trees grow;
- in another copy all free units are overwritten. A mount of it must have the same files with the same content, and nothing to repair.
Prints counts for each configuration; exit 1 if a unit was wrong, or if more than 5 % of the images were refused. As root.
"""
import ctypes
import fcntl
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import blklog

HERE = os.path.dirname(os.path.abspath(__file__))
DUMP = os.path.join(os.environ.get("COWFS_BUILD", os.path.join(HERE, "../../build")), "tests/fsmap_dump")
UNIT = 4096
MIB = 1 << 20
FICLONE = 0x40049409
LOAD_S = 12
TREES = (b"AB3B", b"AB3C", b"IAB3", b"FIB3", b"RMB3", b"R3FC", b"BMA3")
# mkfs.xfs makes small logs and file systems for its own tests only
ENV = dict(os.environ, QA_CHECK_FS="1", TEST_DIR="x", TEST_DEV="x")
CONFIGURATIONS = (
    ("-m rmapbt=0,reflink=0,finobt=0 -d agcount=2 -l size=8m", "", 96),
    ("-b size=1024 -m rmapbt=1,reflink=1 -d agcount=4 -l size=6m", "logbsize=256k", 96),
    ("-m rmapbt=1,reflink=1 -d agcount=16 -l size=14m", "", 320),
    ("-b size=1024 -m rmapbt=0,reflink=1 -d agcount=3 -l size=5m", "", 80),
    ("-d agcount=2 -l size=20m,su=256k -m reflink=1", "logbsize=256k", 96),
    ("-b size=2048 -i sparse=0 -m rmapbt=1 -l size=16m -d agcount=4", "wsync", 128),
    ("", "", 400),
    ("-s size=4096 -m rmapbt=1 -d agcount=4 -l size=12m", "discard,logbsize=64k", 160),
)
libc = ctypes.CDLL(None, use_errno=True)


def sh(command, **more):
    return subprocess.run(command, shell=True, check=True, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more).stdout


# ---- the load ----


def punch(fd, off, length):
    libc.fallocate(fd, 3, ctypes.c_int64(off), ctypes.c_int64(length))


def change(rnd, top, names):
    """One operation on a random file, or on many small ones."""
    path = f"{top}/{rnd.randrange(8)}/{rnd.choice(names)}"
    what = rnd.choice(("write", "write", "allocate", "punch", "truncate", "clone", "remove", "remove", "many", "none", "sync"))
    if what == "many":
        folder = f"{top}/many{rnd.randrange(4)}"
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        for k in range(rnd.randrange(300)):
            with open(f"{folder}/{k}", "wb") as f:
                f.write(bytes(rnd.randrange(6000)))
        return
    if what == "remove":
        os.unlink(path)
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        off, length = rnd.randrange(1 << 20), rnd.randrange(1, 1 << rnd.randrange(8, 20))
        if what == "write":
            os.pwrite(fd, rnd.randbytes(min(length, 1 << 16)), off)
        elif what == "allocate":
            os.posix_fallocate(fd, off, length)
        elif what == "punch":
            for k in range(rnd.randrange(60)):
                punch(fd, k * 8192, 4096)
        elif what == "truncate":
            os.ftruncate(fd, off)
        elif what == "clone":
            with open(f"{top}/{rnd.randrange(8)}/{rnd.choice(names)}", "rb") as f:
                fcntl.ioctl(fd, FICLONE, f.fileno())
        elif what == "sync":
            os.fsync(fd)
    finally:
        if rnd.randrange(30) == 0:
            os.unlink(path) # and open
            os.pwrite(fd, bytes(1 << 16), 0)
        os.close(fd)


def load(top, seed, end):
    rnd = random.Random(seed)
    for k in range(8):
        os.makedirs(f"{top}/{k}", exist_ok=True)
    names = [f"{seed}-{k}" for k in range(40)]
    while time.monotonic() < end:
        try:
            change(rnd, top, names)
        except OSError:
            pass # no space, no such file, no reflink


# ---- the recording ----


def record(folder, mkfs, options, size, seed):
    """The image before the load in folder/before, and the writes of the load."""
    card, mnt = f"{folder}/card", f"{folder}/mnt"
    os.mkdir(mnt)
    for name, length in (("data", size), ("writes", 4 << 30), ("card", 0)):
        with open(f"{folder}/{name}", "wb") as f:
            f.truncate(length)
    sh(f"mkfs.xfs -q -f {mkfs} {folder}/data")
    sh(f"cp --sparse=always {folder}/data {folder}/before")
    node = "driver=file,node-name"
    with subprocess.Popen(
            ["qemu-storage-daemon", "--blockdev", f"{node}=card,filename={folder}/data,discard=unmap",
             "--blockdev", f"{node}=log,filename={folder}/writes",
             "--blockdev", "driver=blklogwrites,node-name=recorded,file=card,log=log,log-sector-size=512,discard=unmap",
             "--export", f"type=fuse,id=export,node-name=recorded,mountpoint={card},writable=on,growable=off"]) as daemon:
        loop = ""
        try:
            for _ in range(100):
                if os.path.ismount(card):
                    break
                time.sleep(0.1)
            loop = sh(f"losetup -f --show --direct-io=off {card}").decode().strip() # as in replay.sh
            sh(f"blockdev --setrw {loop}; mount -t xfs {'-o ' + options if options else ''} {loop} {mnt}")
            pids = []
            for k in range(3):
                pid = os.fork()
                if not pid:
                    load(mnt, seed * 10 + k, time.monotonic() + LOAD_S)
                    os._exit(0)
                pids.append(pid)
            for pid in pids:
                os.waitpid(pid, 0)
        finally:
            subprocess.run(f"umount {mnt}; losetup -d {loop}; umount {card}", shell=True, check=False)
            daemon.terminate()
    return blklog.read(f"{folder}/writes", size)


def play(f, log, entry):
    if entry.flags & blklog.DISCARD:
        f.seek(entry.off_bytes)
        f.write(bytes(entry.len_bytes))
    elif entry.is_write:
        f.seek(entry.off_bytes)
        f.write(os.pread(log.fileno(), entry.len_bytes, entry.data_bytes))


def image_at(folder, entries, rnd, point, played):
    """Makes folder/image. folder/base has all entries up to the last flush before point, of which `played` were there."""
    flush = max((k for k in range(point) if entries[k].flags & blklog.FLUSH), default=0)
    with open(f"{folder}/writes", "rb") as log:
        with open(f"{folder}/base", "r+b") as f:
            for e in entries[played:flush]:
                play(f, log, e)
        sh(f"cp --sparse=always {folder}/base {folder}/image")
        cut = rnd.randrange(2)
        with open(f"{folder}/image", "r+b") as f:
            for e in entries[flush:point]:
                if not cut or rnd.randrange(4) or e.flags & blklog.FUA:
                    play(f, log, e)
    return flush


# ---- the checks ----


def free_units(path):
    out = set()
    for line in subprocess.run([DUMP, path], check=True, stdout=subprocess.PIPE).stdout.decode().splitlines():
        first, count, use = line.split()
        if use == "free":
            out.update(range(int(first), int(first) + int(count)))
    return out


def mounted(path, mnt):
    """Replays; returns the digest of all files, or None if Linux refuses the image."""
    r = subprocess.run(f"l=$(losetup -f --show {path}) && blockdev --setrw $l && mount -t xfs -o nouuid $l {mnt}; r=$?; losetup -d $l; exit $r",
                       shell=True, check=False, stderr=subprocess.DEVNULL)
    if r.returncode:
        return None
    digest = sh("find . -type f | sort | xargs -d '\\n' -r cksum; find . | sort", cwd=mnt)
    sh(f"umount {mnt}")
    return digest


def in_use_by_trees(path, units):
    """Those that are not in a tree or a free list of the image at path."""
    left = set()
    with open(path, "rb") as f:
        sb = f.read(512)
        block, sector = int.from_bytes(sb[4:8], "big"), int.from_bytes(sb[102:104], "big")
        ag_bytes = int.from_bytes(sb[84:88], "big") * block
        lists = set()
        for ag in range(int.from_bytes(sb[88:92], "big")):
            f.seek(ag * ag_bytes + sector)
            agf = f.read(sector)
            f.seek(ag * ag_bytes + 3 * sector)
            agfl = f.read(sector)[36:]
            room = len(agfl) // 4
            for k in range(int.from_bytes(agf[48:52], "big")):
                at = (int.from_bytes(agf[40:44], "big") + k) % room
                lists.add((ag * ag_bytes + int.from_bytes(agfl[at * 4:at * 4 + 4], "big") * block) // UNIT)
        for u in units:
            f.seek(u * UNIT)
            content = f.read(UNIT)
            if u not in lists and not any(content[k:k + 4] in TREES for k in range(0, UNIT, min(block, UNIT))):
                left.add(u)
    return left


def check(folder, rnd):
    """Of folder/image: "refused", "no mount", "wrong" or "right", "clean" without anything to replay; and the number of units that are in
    trees now."""
    image, mnt = f"{folder}/image", f"{folder}/mnt"
    dirty = b"<DIRTY>" in subprocess.run(["xfs_logprint", "-t", image], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    free = free_units(image)
    sh(f"cp --sparse=always {image} {folder}/replayed; cp --sparse=always {image} {folder}/noise")
    digest = mounted(f"{folder}/replayed", mnt)
    if digest is None:
        return ("refused" if not free else "no mount"), 0
    if not free:
        return "refused", 0
    after = free_units(f"{folder}/replayed")
    gone = free - after
    wrong = in_use_by_trees(f"{folder}/replayed", gone)
    noise = rnd.randbytes(UNIT)
    with open(f"{folder}/noise", "r+b") as f:
        for u in free:
            f.seek(u * UNIT)
            f.write(noise)
    other = mounted(f"{folder}/noise", mnt)
    if other != digest:
        print("  other files after noise" if other else "  no mount after noise")
    elif subprocess.run(f"xfs_repair -n -f {folder}/noise", shell=True, check=False, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL).returncode:
        print("  xfs_repair after noise")
    elif wrong:
        print("  used after the replay:", sorted(wrong)[:10])
    else:
        return ("right" if dirty else "clean"), len(gone)
    return "wrong", len(gone)


def run(number, points, seed):
    mkfs, options, mib = CONFIGURATIONS[number]
    rnd = random.Random(seed * 100 + number)
    counts = {"right": 0, "clean": 0, "wrong": 0, "refused": 0, "no mount": 0}
    trees = played = 0
    with tempfile.TemporaryDirectory(prefix="cowfs-xfsfree-", dir="/dev/shm") as folder:
        entries = record(folder, mkfs, options, mib * MIB, seed)
        shutil.copy(f"{folder}/before", f"{folder}/base")
        for point in sorted(rnd.sample(range(len(entries) // 50, len(entries)), min(points, len(entries) // 2))):
            played = image_at(folder, entries, rnd, point, played)
            result, gone = check(folder, rnd)
            counts[result] += 1
            trees += gone
            keep = os.environ.get("COWFS_REPLAY_KEEP")
            if keep and result not in ("right", "clean"):
                sh(f"cp --sparse=always {folder}/image {keep}/{number}-{point}-{result.replace(' ', '-')}")
    print(f"{mkfs} {options}: {len(entries)} writes;", ", ".join(f"{v} {k}" for k, v in counts.items()), f"; {trees} units went to trees",
          flush=True)
    return counts


def main():
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 20)
    numbers = [int(sys.argv[3])] if len(sys.argv) > 3 else range(len(CONFIGURATIONS))
    print(f"seed {seed}")
    all_counts = [run(k, -(-points // len(numbers)), seed) for k in numbers]
    total = sum(sum(c.values()) for c in all_counts)
    wrong = sum(c["wrong"] for c in all_counts)
    refused = sum(c["refused"] for c in all_counts)
    print(f"{total} images, {wrong} wrong, {refused} refused")
    return wrong or refused * 20 > total


if __name__ == "__main__":
    if "XFSFREE_NAMESPACE" not in os.environ: # nothing mounted here is seen outside
        os.environ["XFSFREE_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    sys.exit(bool(main()))
