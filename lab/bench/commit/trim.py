#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The benchmark of trims: a year of updates, deletions, a browser and logs on cards that know discards. As root.

usage: trim.py FOLDER [--out DOCS]	the trace in FOLDER (made if it is not there), the table to DOCS/trim.md
       trim.py --short			three weeks on two cards: for make check; what must hold is asserted
"""
import argparse
import concurrent.futures
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
from bench import record, replay # noqa: E402
from record import WORKLOADS # noqa: E402

METHOD = """A year of a small system, compressed in time: each day packages are updated and logs rotated in the morning, and a browser runs for
two minutes in the evening; each month something is installed or removed (`workloads.py`, `year`; ext4 of 448 MiB, more than half full). A real
ext4 writes it (`record.py`), and a model of each card gets its writes, flushes and discards, with blocks of 4 KiB as the smallest discard. ext4
has no journal and stripes of 4 MiB, and runs on the plain card: without discards, with fstrim once a week, and mounted with `discard`.
cowfs commits twice a day: without a trim, and with `trim = weekly`; what it has at the end is written home. Its trimmed blocks read as noise,
and at the end all blocks in use are compared with what programs wrote. Write amplification: bytes programmed by the card for each byte that
it is sent. Copied: MiB that the card moves inside."""

SYSTEMS = {
    "ext4": ("ext4, no trim", "fstrim4", "plain", "--no-journal", "--no-discard"),
    "fstrim": ("ext4, fstrim each week", "fstrim4", "plain", "--no-journal"),
    "discard": ("ext4, discard", "discard4", "plain", "--no-journal"),
    "plain": ("cowfs, no trim", "freeze", "cowfs", "--each", "--home", "--verify"),
    "trim": ("cowfs, trim = weekly", "freeze", "cowfs", "--each", "--home", "--verify", "--trim"),
}
SHORT_PROFILES = ("lexar-300x-8g", "sandisk-ultra-4g")
AIM = 0.9 # of the write amplification without a trim, on page-mapped cards


def run(folder, workload, profile=None):
    """profile -> system -> row; two at a time."""
    table = {}

    def one(system):
        _, variant, how, *options = SYSTEMS[system]
        return replay(folder, f"{workload}.{variant}", how, *options, profile=profile)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for system, rows in zip(SYSTEMS, pool.map(one, SYSTEMS)):
            for row in rows:
                row["amplification"] = row["programmed_bytes"] / row["bytes"]
                table.setdefault(row["profile"], {})[system] = row
    return table


def is_page_mapped(row):
    return row["plain"]["absorb"] > 1


def aims(table):
    """Lines of (figure, aim, measured, kept)."""
    share = {p: r["trim"]["erases"] / r["fstrim"]["erases"] for p, r in table.items()}
    worst = max(share, key=share.get)
    yield ("erases of cowfs with a trim / of ext4 with fstrim each week, worst card", "< 1", f"{share[worst]:.3f} ({worst})",
           share[worst] < 1)
    gain = {p: r["trim"]["amplification"] / r["plain"]["amplification"] for p, r in table.items() if is_page_mapped(r)}
    worst = max(gain, key=gain.get)
    yield ("write amplification of cowfs with a trim / without one, worst page-mapped card", f"<= {AIM}", f"{gain[worst]:.3f} ({worst})",
           gain[worst] <= AIM)
    copied = {p: r["trim"]["copied_bytes"] / max(r["plain"]["copied_bytes"], 1) for p, r in table.items() if not is_page_mapped(r)}
    worst = max(copied, key=copied.get)
    yield ("bytes that the card copies, with a trim / without one, worst block-mapped card", "—", f"{copied[worst]:.3f} ({worst})", None)


def lines(table):
    kept = {True: "kept", False: "missed", None: "—"}
    yield from ("| figure | aim | measured | kept? |", "| --- " * 4 + "|")
    for figure, aim, measured, good in aims(table):
        yield f"| {figure} | {aim} | {measured} | {kept[good]} |"
    yield from ("", "Erases, and in brackets their ratio to those of ext4 with fstrim each week / write amplification / copied, MiB.", "")
    yield "| card | " + " | ".join(text for text, *_ in SYSTEMS.values()) + " |"
    yield "| --- " * (len(SYSTEMS) + 1) + "|"
    for page in False, True:
        for profile, row in sorted(table.items()):
            if is_page_mapped(row) == page:
                yield f"| {profile}{' (page-mapped)' if page else ''} | " + " | ".join(cell(row, s) for s in SYSTEMS) + " |"


def cell(row, system):
    r = row[system]
    return (f"{r['erases']} ({r['erases'] / row['fstrim']['erases']:.3f}) / {r['amplification']:.2f} / {r['copied_bytes'] / 2**20:.0f}")


def short():
    folder = tempfile.mkdtemp(prefix="cowfs-bench-trim.")
    try:
        record(folder, [f"weeks.{v}" for v in WORKLOADS["weeks"]])
        table = {}
        for p in SHORT_PROFILES:
            table.update(run(folder, "weeks", p))
    finally:
        shutil.rmtree(folder)
    print("\n".join(lines(table)))
    # three weeks on a block-mapped card empty hardly any unit, and each recording is another one
    bad = [p for p, r in table.items() if not r["trim"]["trims"] or
           r["trim"]["copied_bytes"] > r["plain"]["copied_bytes"] * (1 if is_page_mapped(r) else 1.02)]
    if bad:
        sys.exit(f"bench-trim: FAILED: {', '.join(bad)}: no trim, or more copied than without one")


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("folder", nargs="?")
    p.add_argument("--out")
    p.add_argument("--short", action="store_true")
    a = p.parse_args()
    if a.short:
        return short()
    if not a.folder:
        p.error("FOLDER is missing")
    print(METHOD)
    record(a.folder, [f"year.{v}" for v in WORKLOADS["year"]])
    table = list(lines(run(a.folder, "year")))
    print("\n".join(table))
    folder = a.out or f"{a.folder}/docs"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/trim.md", "w") as f:
        f.write("\n".join(["# A year with and without trims", "", "Made by `make bench-trim`.", "", METHOD, "", *table]) + "\n")


if __name__ == "__main__":
    main()
