#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Power cuts from a recording: replays a log of writes to many points and looks at what cowfs makes of each.

usage: replay.py RECORDING SCRATCH [--points N] [--seed N] [--jobs N] [--point ID]

RECORDING	folder with base.img and data.img (the card before and after), writes.log, marks
SCRATCH		folder on a tmpfs for the images, one of the card's size per job
ID		ENTRY:KIND:SEED, as a failure prints it

A point is the power cut after the first ENTRY entries of the log were issued. All up to the newest flush among them is on
the card; of what came behind it
	all	everything is there
	none	nothing is there
	drop	each write is there or not
	torn	each block of 4 KiB is there, or not, or up to one of its sectors
	last	only the newest write is there
	late	the oldest half is not there
marks has a line "ID FROM TO DIGEST" for each commit: entries in the log before it was asked for and when it had returned (-: it
never did), and the digest of the tree that it commits. The generation found after the cut must be the newest one that had
returned, or one behind it that had been asked for.
"""
import argparse
import fcntl
import json
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import blklog
import tree

BLKFLSBUF = 0x1261
BLK_BYTES, SECTOR_BYTES = 4096, 512
KINDS = ("all", "none", "drop", "torn", "last", "late")
ATTACH_EVERY = 16 # so many points to one that is attached and mounted as well
LIMIT_S = 60


class Failed(Exception):
    pass


class Mark:
    def __init__(self, line):
        self.name, first, last, self.digest = line.split()
        self.first, self.last = int(first), float("inf") if last == "-" else int(last)


def marks_read(path):
    with open(path) as f:
        marks = [Mark(line) for line in f]
    if len({m.digest for m in marks}) < len(marks):
        sys.exit("replay: FAILED: two commits have the same tree: nothing can be told")
    return marks


def allowed(marks, entry):
    """Marks that the card may hold at this cut."""
    returned = max(i for i, m in enumerate(marks) if m.last <= entry)
    return [m for i, m in enumerate(marks) if i == returned or (i > returned and m.first < entry)]


def card_bytes(recording):
    return os.path.getsize(f"{recording}/base.img")


# ---- points ----

def choose(entries, marks, points, seed):
    """Cuts spread over the whole log: where each commit had returned, a third everywhere as issued, the others by turns in
    each flush epoch."""
    rnd = random.Random(seed)
    first = marks[0].last
    writes = [i + 1 for i in range(first, len(entries)) if entries[i].is_write]
    ends = [n for n in writes if n == len(entries) or not entries[n].is_write]
    if not writes:
        raise Failed("nothing was written")
    chosen = [(m.last, "none", 0) for m in marks[1:] if m.last != float("inf")]
    plain = points // 3
    chosen += [(writes[i * len(writes) // plain], "all", 0) for i in range(plain)]
    rnd.shuffle(ends)
    for i in range(points - len(chosen)):
        end = ends[i % len(ends)]
        start = end
        while entries[start - 1].is_write and start > first:
            start -= 1
        # all of the epoch was issued; or the cut is somewhere in it
        entry = end if i // len(ends) % 2 == 0 else rnd.randint(start + 1, end)
        chosen.append((entry, KINDS[2 + i % 4], rnd.randrange(1 << 30)))
    return sorted(chosen)


def records_alone(entries, log):
    """What no cut shows, because the checksums forgive it: a record shares its flush epoch with nothing but the head of the
    segment that it begins. Returns the number of records, and the entries of those that do share it."""
    epoch, bad, records = [], [], 0
    for i, e in enumerate(entries + [blklog.Entry(0, 0, blklog.FLUSH, 0)]):
        if e.flags & blklog.FLUSH:
            magics = [os.pread(log, 8, w.data_bytes) if w.len_bytes == BLK_BYTES else b"" for _, w in epoch]
            here = [j for (j, _), m in zip(epoch, magics) if m == b"COWFSREC"]
            records += len(here)
            if here and any(m not in (b"COWFSREC", b"COWFSSEG") for m in magics) or len(here) > 1:
                bad.append(here[0])
            epoch = []
        if e.is_write:
            epoch.append((i, e))
    return records, bad


def is_whole(recording, entries, log):
    """The log, all of it, makes of the card before the card after."""
    with open(f"{recording}/base.img", "rb") as f:
        image = bytearray(f.read())
    for e in entries:
        if e.is_write:
            data = bytes(e.len_bytes) if e.flags & blklog.DISCARD else os.pread(log, e.len_bytes, e.data_bytes)
            image[e.off_bytes:e.off_bytes + e.len_bytes] = data
    with open(f"{recording}/data.img", "rb") as f:
        return f.read() == image


# ---- one card ----

class Card:
    """The image of a cut on a loop device, and the log up to the cut."""

    def __init__(self, recording, scratch, number):
        self.entries = blklog.read(f"{recording}/writes.log", card_bytes(recording))
        self.log = os.open(f"{recording}/writes.log", os.O_RDONLY)
        with open(f"{recording}/base.img", "rb") as f:
            self.durable = bytearray(f.read())
        self.issued, self.pending = 0, []
        self.name = f"cut{number}"
        self.mnt = f"{scratch}/{self.name}.mnt"
        os.makedirs(self.mnt, exist_ok=True)
        path = f"{scratch}/{self.name}.img"
        with open(path, "w+b") as f:
            f.truncate(len(self.durable))
            self.image = mmap.mmap(f.fileno(), len(self.durable))
        self.device = run(["losetup", "-f", "--show", path])[1].strip()
        run(["blockdev", "--setrw", self.device])

    def close(self):
        run(["losetup", "-d", self.device])

    def data(self, e):
        return bytes(e.len_bytes) if e.flags & blklog.DISCARD else os.pread(self.log, e.len_bytes, e.data_bytes)

    def put(self, image, e):
        image[e.off_bytes:e.off_bytes + e.len_bytes] = self.data(e)

    def issue(self, entry):
        """Forward to the first so many entries."""
        assert entry >= self.issued
        for e in self.entries[self.issued:entry]:
            if e.flags & blklog.FLUSH:
                for p in self.pending:
                    self.put(self.durable, p)
                self.pending = []
            if e.is_write:
                # of our own writes none is FUA: taken as one more that is pending, which is harsher
                self.pending.append(e)
        self.issued = entry

    def cut(self, kind, seed):
        rnd = random.Random(seed)
        self.image[:] = self.durable
        pending = self.pending
        if kind == "drop":
            pending = [e for e in pending if rnd.random() < 0.5]
        elif kind == "none":
            pending = []
        elif kind == "last":
            pending = pending[-1:]
        elif kind == "late":
            pending = pending[(len(pending) + 1) // 2:]
        for e in pending:
            if kind == "torn":
                self.tear(rnd, e)
            else:
                self.put(self.image, e)
        with open(self.device, "rb") as f:
            fcntl.ioctl(f, BLKFLSBUF)

    def tear(self, rnd, e):
        data = self.data(e)
        for off in range(0, e.len_bytes, BLK_BYTES):
            have = min(BLK_BYTES, e.len_bytes - off)
            fate = rnd.random()
            if fate < 0.4:
                continue
            if fate < 0.6:
                have = rnd.randrange(0, have + 1, SECTOR_BYTES)
            self.image[e.off_bytes + off:e.off_bytes + off + have] = data[off:off + have]

    def written(self):
        with open(f"/sys/class/block/{os.path.basename(self.device)}/stat") as f:
            return int(f.read().split()[6])


# ---- what must hold ----

def run(command, codes=(0,)):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    if p.returncode not in codes:
        raise Failed(f"{' '.join(command)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return p.returncode, p.stdout


def cowctl(*args, codes=(0,)):
    return run([os.environ["COWFS_BUILD"] + "/cowctl", *args], codes)


def silent(card, *args, codes=(0,)):
    """A command that must not write to the card."""
    before = card.written()
    result = cowctl(*args, codes=codes)
    if card.written() != before:
        raise Failed(f"cowctl {' '.join(args)} wrote to the card")
    return result


def digest_of(card, device, options):
    run(["mount", "-t", "ext4", "-o", options, device, card.mnt])
    try:
        return tree.digest(card.mnt)
    finally:
        run(["umount", card.mnt])


def attached(card):
    """The digest of what an attach shows. Nothing is written until the detach brings the log home."""
    before = card.written()
    loop = json.loads(cowctl("attach", card.device, "--name", card.name, "--ram", "64M", "--json")[1])["loop"]
    try:
        found = digest_of(card, loop, "noatime")
        if card.written() != before:
            raise Failed("attach wrote to the card")
    finally:
        cowctl("detach", card.name, "--discard")
    return found


def look(card, cut, may, attach):
    """Everything that is asked of one cut; returns the mark that the card holds."""
    card.cut(*cut)
    silent(card, "check", card.device, codes=(0, 3))
    shown = None
    if attach:
        shown = attached(card)
        card.cut(*cut)
    cowctl("release", card.device)
    silent(card, "release", card.device)
    # a super copy that was being written at the cut is left as it is: the other one is good
    code, text = silent(card, "check", card.device, "--json", codes=(0, 3))
    if code == 3 and not ('"super_copy_a_bad":true' in text or '"super_copy_b_bad":true' in text):
        raise Failed(f"after release check says {text}")
    run(["e2fsck", "-p", card.device], (0, 1))
    run(["e2fsck", "-fn", card.device])
    found = digest_of(card, card.device, "ro,noload")
    if shown not in (None, found):
        raise Failed(f"attach showed {shown}, release left {found}")
    for m in may:
        if m.digest == found:
            return m
    raise Failed(f"the tree is {found}, not one of " + ", ".join(f"{m.name} ({m.digest})" for m in may))


def work(args):
    """One job: every so many-th point, in order. Returns counts of what was found, and failures."""
    recording, scratch, number, points, marks = args
    tally, failures = {}, []
    card = Card(recording, scratch, number)
    try:
        for i, (entry, kind, seed) in enumerate(points):
            may = allowed(marks, entry)
            card.issue(entry)
            try:
                m = look(card, (kind, seed), may, i % ATTACH_EVERY == 0)
                key = "new" if m is not may[0] else "old" if len(may) > 1 else "only"
                tally[key] = tally.get(key, 0) + 1
            except (Failed, subprocess.TimeoutExpired, OSError) as e:
                failures.append(f"{entry}:{kind}:{seed}: {e}")
                if len(failures) >= 5:
                    break
    finally:
        card.close()
    return tally, failures


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("recording")
    p.add_argument("scratch")
    p.add_argument("--points", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--point")
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)) # the jobs inherit it: they clean up
    start = time.monotonic()
    marks = marks_read(f"{a.recording}/marks")
    log = f"{a.recording}/writes.log"
    entries = blklog.read(log, card_bytes(a.recording))
    log = os.open(log, os.O_RDONLY)
    if not is_whole(a.recording, entries, log):
        sys.exit("replay: FAILED: the recorder's log and its card do not agree: nothing can be told")
    records, bad = records_alone(entries, log)
    points = choose(entries, marks, a.points, a.seed)
    if a.point:
        entry, kind, seed = a.point.split(":")
        points = [(int(entry), kind, int(seed))]
    jobs = max(1, min(a.jobs, len(points)))
    with multiprocessing.Pool(jobs) as pool:
        results = pool.map(work, [(a.recording, a.scratch, n, points[n::jobs], marks) for n in range(jobs)], 1)
        # otherwise they end by SIGTERM, and one that has a lock then may wait for ever
        pool.close()
        pool.join()
    failures = [f for _, fs in results for f in fs]
    if bad:
        failures.append(f"of {records} records {len(bad)} share their flush epoch with other writes, the first is entry {bad[0]}")
    for f in failures:
        print(f"replay: FAILED at {f}")
    tally = {k: sum(t.get(k, 0) for t, _ in results) for k in ("only", "old", "new")}
    kinds = ", ".join(f"{sum(1 for q in points if q[1] == k)} {k}" for k in KINDS)
    print(f"replay: {sum(tally.values())} of {len(points)} points good ({kinds}) in {time.monotonic() - start:.0f} s:",
          f"{tally['only']} between commits; within, {tally['old']} were N and {tally['new']} N+1")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
