#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables of lab/bench/path.sh from its single values (round, candidate, row, value; tab-separated).

path.py path|card FILE
path.py cached LIST ROOT DEVICE...     what of the devices and of the listed files (names end in NUL) below ROOT lies in page
                                       caches, by the size of the files

A ratio is the median of the rounds' ratios: both values of one round were measured within a minute or two. Behind it
in brackets: the ratio of the best of each, the values that other work on the machine disturbed least.
"""
import ctypes
import mmap
import os
import statistics
import sys

ROWS = {  # name: title, unit, factor, higher is better
    "walk": ("cold walk of the tree, 18,000 files", "s", 1, False),
    "read": ("cold read of 9,000 files", "s", 1, False),
    "warm": ("the same, warm", "s", 1, False),
    "copyin": ("copy 3,000 files in, sync", "s", 1, False),
    "remove": ("remove them, sync", "s", 1, False),
    "append": ("first append of 2 bytes to 300 MiB, fsync", "ms", 1000, False),
    "ram": ("RAM used / bytes changed (1,000 blocks of 4 KiB)", "", 1, False),
    "sqlite": ("200 sqlite inserts with fsync", "s", 1, False),
    "randread": ("random 4K read, O_DIRECT, depth 32", "kIOPS", 1e-3, True),
    "randread1": ("— depth 1", "kIOPS", 1e-3, True),
    "randwrite": ("random 4K write, O_DIRECT, depth 32", "kIOPS", 1e-3, True),
    "randwrite1": ("— depth 1", "kIOPS", 1e-3, True),
    "slow_read": ("cold read of 2,000 files", "s", 1, False),
    "slow_requests": ("— requests to the card", "", 1, False),
    "slow_memory": ("— page cache of files, both devices / bytes read", "", 1, False),
    "slow_big": ("cold read of 50 MiB of one file", "s", 1, False),
    "slow_walk": ("cold walk of the tree", "s", 1, False),
}
for r in "walk", "read", "warm", "copyin", "remove", "sqlite":
    ROWS[f"{r}_requests"] = ("— requests of ext4 to the device below it", "", 1, False)
CANDIDATES = ["plain", "overlay", "fuse-overlayfs", "qsd", "also", "cowfs"]
AIMS = {  # row: [(peer, factor)]: cowfs takes at most so much of the peer's time (or has 1/factor of its IOPS)
    "walk": [("overlay", 1.0), ("plain", 1.1)],
    "read": [("overlay", 1.0), ("plain", 1.1)],
    "warm": [("overlay", 1.0), ("plain", 1.1)],
    "copyin": [("overlay", 1.0), ("plain", 1.1)],
    "remove": [("overlay", 1.5), ("plain", 1.1)],
    "append": [("overlay", 0.1), ("plain", 1.1)],
    "sqlite": [("plain", 1.1)],
    "randread": [("plain", 1 / 0.6)],
    "randwrite": [("plain", 1 / 0.6)],
    "slow_read": [("plain", 1 / 0.9)],
    "slow_big": [("plain", 1 / 0.9)],
    "slow_walk": [("plain", 1 / 0.9)],
}
ENOUGH = {"randread": 100e3, "randwrite": 100e3}  # IOPS with which the aim is kept whatever the peers do
BEHIND = ["fuse-overlayfs", "qsd"]  # to be ahead of in every row


def load(path):
    values = {}
    with open(path, encoding="ascii") as lines:
        for line in lines:
            n, candidate, row, value = line.rstrip("\n").split("\t")
            values.setdefault(row, {}).setdefault(candidate, {})[n] = float(value)
    return values


def cost_ratio(row, ours, peers):
    """How much more cowfs costs than the peer, or None: median over the rounds."""
    higher = ROWS[row.split("_q")[0]][3]
    pairs = [(ours[n], peers[n]) for n in ours if n in peers]
    if not pairs or any(a == 0 or b == 0 for a, b in pairs):
        return None
    return statistics.median(b / a if higher else a / b for a, b in pairs)


def best_ratio(row, ours, peers):
    if ROWS[row.split("_q")[0]][3]:
        return max(peers.values()) / max(ours.values())
    return min(ours.values()) / min(peers.values())


def verdict(row, values):
    name, misses, seen = row.split("_q")[0], [], False
    ours = values[row].get("cowfs", {})
    enough = ours and statistics.median(ours.values()) >= ENOUGH.get(name, float("inf"))
    aims = ([] if enough else AIMS.get(name, [])) + ([(c, 1.0) for c in BEHIND] if name != "ram" and "requests" not in name else [])
    for peer, limit in aims:
        ratio = cost_ratio(row, ours, values[row].get(peer, {}))
        if ratio is None:
            continue
        seen = True
        if ratio > limit * 1.0001:
            better = best_ratio(row, ours, values[row][peer]) <= limit * 1.0001
            misses.append(f"{peer} {ratio:.2f} > {limit:.2f}" + (" (not the best)" if better else ""))
    return "missed: " + ", ".join(misses) if misses else "kept" if seen else "—"


def number(x):
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def resident(path):
    """Bytes of a file or device in the page cache, and its size in whole pages."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    fd = os.open(path, os.O_RDONLY)
    size = os.lseek(fd, 0, os.SEEK_END)
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    if not pages:
        os.close(fd)
        return 0, 0
    where = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    seen = (ctypes.c_ubyte * pages)()
    if where == ctypes.c_void_p(-1).value or libc.mincore(where, size, seen) < 0:
        sys.exit(f"{path}: {os.strerror(ctypes.get_errno())}")
    libc.munmap(where, size)
    os.close(fd)
    return sum(b & 1 for b in bytes(seen)) * mmap.PAGESIZE, pages * mmap.PAGESIZE


def cached(names, root, *devices):
    with open(names, "rb") as f:
        files = [resident(os.path.join(os.fsencode(root), n)) for n in f.read().split(b"\0") if n]
    above = sum(cache for cache, _ in files) + sum(resident(d)[0] for d in set(devices))
    print(above / sum(size for _, size in files))


def main():
    if sys.argv[1] == "cached":
        cached(*sys.argv[2:])
        return
    values = load(sys.argv[2])
    rows = [r for r in values if r.startswith("slow_") == (sys.argv[1] == "card")]
    seen = [c for c in CANDIDATES if any(c in values[r] for r in rows)]
    peers = [c for c in seen if c != "cowfs"]
    head = ["row"] + seen + [f"cowfs / {p}" for p in peers] + ["aims"]
    print("| " + " | ".join(head) + " |")
    print("| --- " * len(head) + "|")
    for row in rows:
        name, _, queue = row.partition("_q")
        title, unit, factor, _ = ROWS[name]
        title += f", queue {queue}" if queue else ""
        cells = [f"{title}{', ' + unit if unit else ''}"]
        for c in seen:
            v = values[row].get(c)
            cells.append(number(statistics.median(v.values()) * factor) if v else "")
        for p in peers:
            ratio = cost_ratio(row, values[row].get("cowfs", {}), values[row].get(p, {}))
            if ratio is None:
                cells.append("")
                continue
            best = best_ratio(row, values[row]["cowfs"], values[row][p])
            if ROWS[name][3]:  # of IOPS, as anybody would read it
                ratio, best = 1 / ratio, 1 / best
            cells.append(f"{ratio:.2f} ({best:.2f})")
        print("| " + " | ".join(cells + [verdict(row, values)]) + " |")


main()
