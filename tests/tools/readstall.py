#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""readstall.py FILE STOP: reads 4 KiB blocks of FILE with O_DIRECT until the file STOP is there; prints how many
and the longest in milliseconds."""
import mmap
import os
import random
import sys
import time

fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
blocks = os.fstat(fd).st_size // 4096
page = mmap.mmap(-1, 4096)
reads = worst = 0
while not os.path.exists(sys.argv[2]):
    start = time.monotonic()
    os.preadv(fd, [page], random.randrange(blocks) * 4096)
    worst = max(worst, time.monotonic() - start)
    reads += 1
    time.sleep(0.01)
print(reads, round(worst * 1000))
