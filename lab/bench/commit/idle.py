#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What checkpoints between commits cost (checkpoint = idle): a table in Markdown from traces that bench.py has recorded.

usage: idle.py FOLDER [PERCENT]

A rest after each commit is long enough for a checkpoint. With PERCENT only those that find this part of the log full, or more, count.
"""
import os
import sys

sys.dont_write_bytecode = True
from bench import EVERY, replay # noqa: E402

# trace, commits at each so many-th commit point, how often that is
RUNS = (("gps-day", 1, EVERY["gps-day"]), ("gps-day", 12, "every hour"), ("browser", 1, EVERY["browser"]),
        ("kernel30", 1, EVERY["kernel30"]))


def number(x):
    return f"{x:.0f}" if x >= 10 else f"{x:.1f}"


def rows(folder, workload, every, *idle):
    found = replay(folder, f"{workload}.freeze", "cowfs", "--verify", "--each", "--every", str(every), *idle)
    return {r["profile"]: r for r in found if not r["home"]}


def cell(off, on):
    return (f"{off['erases']} → {on['erases']}; {number(off['seconds'])} → {number(on['seconds'])} s; "
            f"{off['waiting_blks'] / max(off['rests'], 1) / 256:.1f} → {on['waiting_blks'] / max(on['rests'], 1) / 256:.1f}")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, percent = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "0"
    table, heads = {}, []
    for workload, every, name in RUNS:
        if not os.path.exists(f"{folder}/{workload}.freeze.done"):
            continue
        heads.append(f"{workload}, {name}")
        off, on = rows(folder, workload, every), rows(folder, workload, every, "--idle", percent)
        for p in off:
            table.setdefault(p, []).append(cell(off[p], on[p]))
    print("| card | " + " | ".join(heads) + " |")
    print("| --- " * (len(heads) + 1) + "|")
    for p in sorted(table):
        print(f"| {p} | " + " | ".join(table[p]) + " |")


if __name__ == "__main__":
    main()
