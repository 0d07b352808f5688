#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measurements for lab/bench/commit.sh: each prints plain numbers.

measure.py median NUMBER...              their median
measure.py differ BEFORE AFTER MAP       4 KiB blocks that AFTER uses (by fsmap_dump's MAP) and that differ from BEFORE
measure.py fill FILE MIB SEED            writes MIB of incompressible bytes
measure.py logger DIR COUNT              COUNT times: one insert into a database, one line of a log, sync
measure.py packages DIR COUNT SEED       COUNT files of 16 KiB on average, each under a new name first, and their list
measure.py lag FILE                      rows of a table from the figures of lag.sh
measure.py resident PID...               KiB: own memory of all and their program text once; memory files; sum of VmRSS, of Pss
measure.py memory_files PID              bytes that the process' memory files (and files on its tmpfs) take
measure.py latency COWCTL NAME FILE COUNT   of `status --json` and of reading FILE, while commits run: calls, median and
                                         maximum in milliseconds of both, and how many fell into a commit
"""
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import time

BLOCK = 4096
MIB = 1 << 20


def median(*numbers):
    print(f"{statistics.median(map(float, numbers)):g}")


def differ(before, after, map_path):
    count = 0
    with open(before, "rb") as a, open(after, "rb") as b, open(map_path, encoding="ascii") as lines:
        for line in lines:
            first, blocks, use = line.split()
            if use != "used":
                continue
            a.seek(int(first) * BLOCK)
            b.seek(int(first) * BLOCK)
            left = int(blocks) * BLOCK
            while left:
                old, new = a.read(min(left, MIB)), b.read(min(left, MIB))
                if len(old) != len(new) or not new:
                    sys.exit("short read")
                left -= len(new)
                if old != new:
                    count += sum(old[i:i + BLOCK] != new[i:i + BLOCK] for i in range(0, len(new), BLOCK))
    print(count)


def fill(path, mib, seed):
    dice = random.Random(int(seed))
    pool = dice.randbytes(4 * MIB)
    with open(path, "wb") as out:
        for _ in range(int(mib)):
            at = dice.randrange(3 * MIB)
            out.write(pool[at:at + MIB])
        out.flush()
        os.fsync(out.fileno())


def logger(folder, count):
    db = sqlite3.connect(f"{folder}/readings.db")
    db.execute("CREATE TABLE IF NOT EXISTS reading(id INTEGER PRIMARY KEY, t TEXT, value REAL)")
    db.commit()
    with open(f"{folder}/sensor.log", "a", encoding="ascii") as log:
        for i in range(int(count)):
            db.execute("INSERT INTO reading(t, value) VALUES(datetime('now'), ?)", (i * 1.1,))
            db.commit()
            print(time.strftime("%F %T"), f"host sensor[1]: reading {i} stored", file=log, flush=True)
            subprocess.run(["sync", "-f", folder], check=True)
    db.close()


def packages(folder, count, seed):
    """The sizes do not depend on SEED: a second call replaces every file by one as large, as an upgrade would."""
    sizes, dice = random.Random(0), random.Random(seed)
    with open(f"{folder}/list.new", "w", encoding="ascii") as names:
        for i in range(int(count)):
            path = f"{folder}/{i % 40}/{i}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".new", "wb") as out:
                out.write(dice.randbytes(min(int(sizes.lognormvariate(8.6, 1.5)) + 1, 256 * 1024)))
            os.rename(path + ".new", path)
            print(path, dice.random(), file=names)
    os.rename(f"{folder}/list.new", f"{folder}/list")
    subprocess.run(["sync", "-f", folder], check=True)


def lag(path):
    """Each step with lag 0 and 1; times: medians; ratio: of each run with lag 1 by the one with lag 0 that belongs to it."""
    runs = {"0": {}, "1": {}}
    with open(path, encoding="ascii") as lines:
        for line in lines:
            which, step, *figures = line.split()
            runs[which].setdefault(step, []).append([float(f) for f in figures])
    print("| commit | seconds, lag 0 | lag 1 | ratio | written, lag 0 | lag 1 | ratio | flushes | blocks logged |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for step, zero in runs["0"].items():
        one = runs["1"][step]
        if len(one) != len(zero):
            sys.exit(f"{step}: {len(zero)} and {len(one)} runs")
        ratio = [[b[k] / a[k] for a, b in zip(zero, one)] for k in (0, 1)]
        a, b = ([statistics.median(r[k] for r in runs_) for k in range(4)] for runs_ in (zero, one))
        print(f"| {step} ({len(one)}) | {a[0]:.3f} | {b[0]:.3f} | {statistics.median(ratio[0]):.2f} "
              f"({min(ratio[0]):.2f} to {max(ratio[0]):.2f}) | {a[1] / MIB:.2f} MiB | {b[1] / MIB:.2f} MiB | "
              f"{statistics.median(ratio[1]):.2f} | {a[2]:g}, {b[2]:g} | {a[3]:g}, {b[3]:g} |")


def resident(*pids):
    anon = shmem = rss = pss = shared = 0
    for pid in pids:
        fields = {}
        for name in ("status", "smaps_rollup"):
            with open(f"/proc/{pid}/{name}", encoding="ascii") as lines:
                fields.update((w[0], w[1]) for w in (line.split() for line in lines) if len(w) > 1)
        rss += int(fields["VmRSS:"])
        pss += int(fields["Pss:"])
        anon += int(fields["RssAnon:"])
        shmem += int(fields["RssShmem:"])
        shared = max(shared, int(fields["RssFile:"]))
    print(anon + shared, shmem, rss, pss)


def memory_files(pid):
    seen = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        st = os.stat(path)
        # memory files, and files without a path: on the private tmpfs
        if st.st_dev and (os.readlink(path).startswith(("/memfd:", "/")) and os.major(st.st_dev) == 0 and
                          not os.readlink(path).startswith(("/proc", "/sys", "/dev", "/run", "/tmp")) and
                          (st.st_mode & 0o170000) == 0o100000):
            seen[(st.st_dev, st.st_ino)] = st.st_blocks * 512
    print(sum(seen.values()))


def timed(action):
    start = time.monotonic()
    result = action()
    return (time.monotonic() - start) * 1000, json.loads(result)


def latency(cowctl, name, path, count):
    calls, reads, busy, stamps = [], [], 0, set()
    while len(calls) < int(count):
        ms, answer = timed(lambda: subprocess.run([cowctl, "status", name, "--json"], stdout=subprocess.PIPE,
                                                  check=False).stdout)
        calls.append(ms)
        busy += "progress" in answer

        def read():
            with open(path, "rb") as f:
                return f.read()
        ms, answer = timed(read)
        reads.append(ms)
        stamps.add(answer.get("absorbed_bytes"))
        time.sleep(0.02)
    print(len(calls), f"{statistics.median(calls):.1f} {max(calls):.1f} {statistics.median(reads):.2f} {max(reads):.2f}",
          busy, len(stamps))


if __name__ == "__main__":
    commands = {f.__name__: f for f in (median, differ, fill, logger, packages, lag, resident, memory_files, latency)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
