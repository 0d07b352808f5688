#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What an hour changes on a root, in several folders the same: root_hour.py SEED HOUR DIR... Hour 0 makes the tree.
Logs are appended and a journal is written in place, a state file is replaced with fsync. Now and then a database, a file of
/etc or a home changes. Once a day logs are rotated and the lists of packages are fetched; once a week packages are replaced.
"""
import os
import random
import sys

seed, hour, tops = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
JOURNAL, PAGE = 8 << 20, 4096


def append(name, data):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "ab") as f:
        f.write(data)


def write_at(name, *parts):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    for at, data in parts:
        os.pwrite(fd, data, at)
    os.fsync(fd)
    os.close(fd)


def replace(name, data):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name + ".new", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.rename(name + ".new", name)


def rotate(name, kept=4):
    for i in range(kept, 0, -1):
        old = name if i == 1 else f"{name}.{i - 1}"
        if os.path.exists(old):
            os.rename(old, f"{name}.{i}")


def first(top, rnd):
    for i in range(60):
        replace(f"{top}/etc/{i % 6}/conf{i}", rnd.randbytes(rnd.randrange(100, 9000)))
    for i in range(40):
        replace(f"{top}/usr/lib/{i % 8}/lib{i}", rnd.randbytes(rnd.randrange(9000, 150000)))
    os.makedirs(f"{top}/var/log/journal")
    with open(f"{top}/var/log/journal/system", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, JOURNAL)
    replace(f"{top}/var/lib/db", rnd.randbytes(64 * PAGE))


def one(top, rnd):
    log, lib = f"{top}/var/log", f"{top}/var/lib"
    for name in "syslog", "auth.log", "daemon.log":
        append(f"{log}/{name}", rnd.randbytes(rnd.randrange(300, 6000)))
    # as journald: header and hash table in place, entries behind the last ones
    size = rnd.randrange(4000, 30000)
    at = (64 + hour * 5) * PAGE % (JOURNAL - size)
    write_at(f"{log}/journal/system", (at, rnd.randbytes(size)),
             (rnd.randrange(1, 64) * PAGE, rnd.randbytes(64)), (0, rnd.randbytes(256)))
    replace(f"{lib}/timesync/clock", rnd.randbytes(64))
    if rnd.random() < 0.5:
        replace(f"{lib}/dhcp/lease", rnd.randbytes(700))
    if rnd.random() < 0.5:
        write_at(f"{lib}/db", *((rnd.randrange(64) * PAGE, rnd.randbytes(PAGE)) for _ in range(3)))
    if rnd.random() < 0.1:
        replace(f"{top}/etc/{rnd.randrange(6)}/conf{rnd.randrange(60)}", rnd.randbytes(rnd.randrange(100, 9000)))
    if rnd.random() < 0.3:
        replace(f"{top}/home/{rnd.randrange(30)}", rnd.randbytes(rnd.randrange(1, 60000)))
    if hour % 24 == 6:
        for name in "syslog", "auth.log", "daemon.log":
            rotate(f"{log}/{name}")
        for i in range(3):
            replace(f"{lib}/apt/lists/{i}", rnd.randbytes(200000))
    if hour % 168 == 100:
        for i in rnd.sample(range(40), 6):
            replace(f"{top}/usr/lib/{i % 8}/lib{i}", rnd.randbytes(rnd.randrange(9000, 150000)))


for top in tops:
    rnd = random.Random(f"{seed} {hour}")
    (one if hour else first)(top, rnd)
    fd = os.open(top, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
