#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A seeded mix of file operations in a folder, in the manner of fsx and fsstress: write, append, truncate, punch, zero, mmap,
rename, link, symlink, attribute, remove, with and without fsync.

usage: mix.py FOLDER SEED OPERATIONS
"""
import ctypes
import mmap
import os
import random
import sys

FILES, FILE_BYTES = 40, 96 << 10
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, off, length):
    if libc.fallocate(fd, mode, ctypes.c_int64(off), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def change(rnd, fd):
    off, length = rnd.randrange(FILE_BYTES), rnd.randrange(1, 16 << 10)
    what = rnd.choice(("write", "write", "append", "truncate", "punch", "zero", "map"))
    if what == "write":
        os.pwrite(fd, rnd.randbytes(length), off)
    elif what == "append":
        os.pwrite(fd, rnd.randbytes(length), os.fstat(fd).st_size % FILE_BYTES)
    elif what == "truncate":
        os.ftruncate(fd, off)
    elif what == "punch":
        fallocate(fd, PUNCH | KEEP_SIZE, off, length)
    elif what == "zero":
        fallocate(fd, ZERO, off, length)
    elif os.fstat(fd).st_size > 0:
        size = os.fstat(fd).st_size
        with mmap.mmap(fd, size) as m:
            off %= size
            m[off:off + length] = rnd.randbytes(min(length, size - off))
    if rnd.random() < 0.2:
        os.fsync(fd)


def step(rnd, name, other):
    what = rnd.random()
    if what < 0.75 or not os.path.lexists(name):
        if os.path.islink(name):
            os.unlink(name)
        fd = os.open(name, os.O_RDWR | os.O_CREAT, rnd.choice((0o600, 0o644, 0o755)))
        try:
            change(rnd, fd)
        finally:
            os.close(fd)
    elif what < 0.80:
        os.rename(name, other)
    elif what < 0.85:
        if os.path.lexists(other):
            os.unlink(other)
        os.link(name, other, follow_symlinks=False)
    elif what < 0.88:
        os.unlink(name)
        os.symlink("x" * rnd.choice((5, 59, 60, 700)), name)
    elif what < 0.93:
        if not os.path.islink(name):
            os.setxattr(name, "user.mix", rnd.randbytes(rnd.choice((10, 100, 3000))))
    else:
        os.unlink(name)


def main(folder, seed, operations):
    rnd = random.Random(int(seed))
    for d in range(4):
        os.makedirs(f"{folder}/{d}", exist_ok=True)
    for _ in range(int(operations)):
        name, other = (f"{folder}/{rnd.randrange(4)}/{rnd.randrange(FILES)}" for _ in range(2))
        if name != other:
            step(rnd, name, other)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
