#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""readstall.py FILE STOP [LOG]: reads 4 KiB blocks of FILE with O_DIRECT until the file STOP is there; prints how many
and the longest in milliseconds. LOG gets a line for each read of 5 ms or more: when it began and when it ended, in
microseconds of the clock that `date` has."""
import mmap
import os
import random
import sys
import time

fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
log = open(sys.argv[3], "w", buffering=1) if len(sys.argv) > 3 else None
blocks = os.fstat(fd).st_size // 4096
page = mmap.mmap(-1, 4096)
reads = worst = 0
while not os.path.exists(sys.argv[2]):
    begin = time.time_ns()
    start = time.monotonic()
    os.preadv(fd, [page], random.randrange(blocks) * 4096)
    took = time.monotonic() - start
    worst = max(worst, took)
    reads += 1
    if log and took >= 0.005:
        print(begin // 1000, begin // 1000 + round(took * 1e6), file=log)
    time.sleep(0.002 if log else 0.01)
print(reads, round(worst * 1000))
