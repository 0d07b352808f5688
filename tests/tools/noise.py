#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the noise test needs: a load that knows its content, and noise over blocks that a commit skips.

noise.py load FOLDER SEED     until FOLDER.stop exists or the test has ended: writes files whose content follows from their names, reads them
                              back past the page cache, removes old ones; ends with the list in FOLDER.list
noise.py verify FOLDER SEED   compares what a load has left
noise.py over DEVICE MAP      random bytes over every free and journal block in the output of fsmap_dump
"""
import functools
import mmap
import os
import random
import sys
import time

BLOCK = 4096
RUN_BLOCKS = 256
SIZES = (300, 5000, 70000, 700000)
KEEP_FILES = 60


@functools.cache
def stream(seed):
    return random.Random(seed).randbytes(2 << 20)


# no two of a million numbers begin at one place of the stream
def content(seed, number, size):
    at = number * 7919 % ((2 << 20) - max(SIZES))
    return stream(seed)[at:at + size]


def read_uncached(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def load(folder, seed):
    dice = random.Random(seed)
    files, number, bad, reads = {}, 0, 0, 0
    parent = os.getppid()
    os.makedirs(folder, exist_ok=True)
    while not os.path.exists(folder + ".stop") and os.getppid() == parent:
        number += 1
        size = dice.choice(SIZES)
        fd = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT)
        os.write(fd, content(seed, number, size))
        files[number] = size
        if number % 3 == 0:
            os.fsync(fd)
        os.close(fd)
        old = dice.choice(list(files))
        reads += 1
        if read_uncached(f"{folder}/{old}") != content(seed, old, files[old]):
            print("mismatch in", old, flush=True)
            bad += 1
        if len(files) > KEEP_FILES:
            os.unlink(f"{folder}/{old}")
            del files[old]
        time.sleep(0.004)  # the commits are what is tested
    with open(folder + ".list", "w", encoding="ascii") as out:
        for number, size in files.items():
            out.write(f"{number} {size}\n")
    print(f"{folder}: {reads} files read back, {bad} mismatches")
    return bad


def verify(folder, seed):
    with open(folder + ".list", encoding="ascii") as lines:
        files = [tuple(map(int, line.split())) for line in lines]
    bad = 0
    for number, size in files:
        with open(f"{folder}/{number}", "rb") as f:
            bad += f.read() != content(seed, number, size)
    print(f"{folder}: {len(files)} files verified, {bad} mismatches")
    return bad or not files


def over(device, map_path):
    fd = os.open(device, os.O_WRONLY | os.O_DIRECT)
    pool = mmap.mmap(-1, 2 * RUN_BLOCKS * BLOCK)
    pool.write(os.urandom(len(pool)))
    noise, blocks = memoryview(pool), {"free": 0, "journal": 0}
    with open(map_path, encoding="ascii") as lines:
        for line in lines:
            first, count, use = line.split()
            if use == "used":
                continue
            block, end = int(first), int(first) + int(count)
            blocks[use] += int(count)
            while block < end:
                part = min(end - block, RUN_BLOCKS)
                at = random.randrange(RUN_BLOCKS) * BLOCK
                if os.pwrite(fd, noise[at:at + part * BLOCK], block * BLOCK) != part * BLOCK:
                    raise OSError("short write")
                block += part
    print(f"noise over {blocks['free']} free and {blocks['journal']} journal blocks")
    return not blocks["free"]


COMMANDS = {"load": load, "verify": verify, "over": over}

if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    sys.exit(1 if COMMANDS[sys.argv[1]](sys.argv[2], sys.argv[3]) else 0)
