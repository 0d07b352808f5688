#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The same random changes in several folders: random_tree.py SEED CHANGES DIR... Each change stays in one of the
folders f0 ... f4, so that each of these is complete in itself. Content, names and times follow from the seed.
"""
import os
import random
import shutil
import subprocess
import sys

seed, changes, tops = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
rnd = random.Random(seed)


def files_below(folder):
    found = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.join(where, n) for n in sorted(names)]
    return found


def folders_below(folder):
    return sorted(w for w, _, _ in os.walk(folder))


def reshape(path, how, off, length):
    """What fallocate(1) does with a part, by writing where the file system or the size of its blocks does not allow it."""
    with open(path, "rb") as f:
        old = f.read()
    off, length = off % max(len(old), 512) // 512 * 512, length * 512
    part, end = old[off : off + length], old[off + length :]
    if not part:
        return
    keep = {"n": part, "p": bytes(len(part)), "z": bytes(len(part)), "c": b"", "i": bytes(length) + part}[how]
    if subprocess.run(["fallocate", f"-{how}n" if how in "nz" else f"-{how}", "-o", str(off), "-l", str(length), path], stderr=subprocess.DEVNULL).returncode:
        with open(path, "r+b") as f:
            f.write(old[:off] + keep + end)
            f.truncate()


def one(top, what, pick, at, size, data):
    folder = f"{top}/f{pick % 5}"
    os.makedirs(folder, exist_ok=True)
    files = [f for f in files_below(folder) if os.path.isfile(f) and not os.path.islink(f)]
    some = files[at % len(files)] if files else None
    folders = folders_below(folder)
    inside = folders[at % len(folders)]
    new = f"{inside}/n{at % 40}"
    if what in (0, 1, 2, 3, 4, 19, 20) or not some:
        if os.path.isdir(new) and not os.path.islink(new):
            shutil.rmtree(new)
        elif os.path.lexists(new):
            os.unlink(new)
        with open(new, "wb") as f:
            f.write(data * (size // len(data)))
    elif what < 8:
        with open(some, "r+b") as f:
            f.seek(at % (os.path.getsize(some) + 1))
            f.write(data[: size % 9000 + 1])
    elif what < 10:
        os.truncate(some, size)
    elif what < 12:
        os.unlink(some)
    elif what in (13, 21, 22):
        os.replace(some, new) if not os.path.isdir(new) else None
    elif what == 14 and not os.path.lexists(new):
        os.mkdir(new)
    elif what == 15 and inside != folder and at % 3 == 0:
        shutil.rmtree(inside)
    elif what == 16 and not os.path.lexists(new):
        os.link(some, new)
    elif what == 17 and not os.path.lexists(new):
        os.symlink(data[:20].hex(), new)
    elif what == 18:
        os.chmod(some, 0o600 + at % 64)
        os.setxattr(some, "user.x", data[: size % 300])
    elif what > 22:
        reshape(some, "npzci"[what - 23], at, 1 + size % 17)


for _ in range(changes):
    what, pick, at = rnd.randrange(28), rnd.randrange(5), rnd.randrange(1 << 20)
    size, data = rnd.choice([0, 5000, 70000, 250000, 600000]), rnd.randbytes(4096 + rnd.randrange(9000))
    for t in tops:
        one(t, what, pick, at, size, data)
for t in tops:
    for where, folders, names in os.walk(t, topdown=False):
        for n in names + folders:
            os.utime(os.path.join(where, n), ns=(seed * 10**9, seed * 10**9), follow_symlinks=False)
