#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lets ext4 split extents at the end of writeback, on any block device; see "Threads" in docs/TESTING.md.

splitlate.py FOLDER COUNT      in FOLDER, of an ext4 with dioread_nolock (the default); prints nothing

Blocks of an allocated file are written back, and before that has ended more are allocated right behind them: the kernel
merges both into one unwritten extent and has to split it again when the writeback ends. Built with CONFIG_EXT4_DEBUG it
warns of that (ext4_convert_unwritten_extents_endio), at most ten times in a while. What was written is read back.
"""
import os
import sys

BLOCK = 4096
DATA = b"x" * (4 * BLOCK)


def main():
    folder, count = sys.argv[1:]
    for i in range(int(count)):
        fd = os.open(f"{folder}/split{i}", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.posix_fallocate(fd, 0, 16 * BLOCK)
        os.fsync(fd)
        os.pwrite(fd, DATA, 12 * BLOCK)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # begins the writeback and does not wait
        os.posix_fallocate(fd, 16 * BLOCK, 16 * BLOCK)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.pread(fd, len(DATA), 12 * BLOCK) != DATA:
            sys.exit(f"{folder}/split{i}: wrong content")
        os.close(fd)


main()
