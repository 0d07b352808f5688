#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Gives every fuzz target its share of CPU time: all.py BUILD CORPUS OUT MINUTES [JOBS]. Runs the libFuzzer programs of
BUILD/tests in slices, always the one that had least, until each has had MINUTES of user time; counts that, not the
clock, so that it tells the same on a busy machine. What it finds and the totals lie in OUT, so it can go on later:
OUT/TARGET is the corpus grown so far, OUT/TARGET-crash-* an input that broke a promise. Exits 1 if there is one.
"""
import glob
import json
import os
import subprocess
import sys
import threading

SLICE_S = 180

build, corpus, out, minutes = sys.argv[1:4] + [float(sys.argv[4])]
jobs = int(sys.argv[5]) if len(sys.argv) > 5 else 2
prefix = build + "/tests/libfuzzer_"
had = {p[len(prefix):]: 0.0 for p in sorted(glob.glob(prefix + "*"))}
lock, busy = threading.Lock(), set()
os.makedirs(out, exist_ok=True)
if os.path.exists(out + "/totals.json"):
    with open(out + "/totals.json", encoding="ascii") as f:
        had.update({t: s for t, s in json.load(f).items() if t in had})


def findings(target="*"):
    return [p for kind in ("crash", "leak", "timeout", "oom", "slow-unit")
            for p in glob.glob(f"{out}/{target}-{kind}-*")]


def run_slice(target):
    os.makedirs(f"{out}/{target}", exist_ok=True)
    with open(f"{out}/{target}.log", "w", encoding="ascii") as log:
        p = subprocess.Popen([prefix + target, f"-max_total_time={SLICE_S}", "-timeout=20", "-max_len=4096",
                              "-use_value_profile=1", f"-artifact_prefix={out}/{target}-", f"{out}/{target}",
                              f"{corpus}/{target}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    return os.wait4(p.pid, 0)[2].ru_utime


def worker():
    while True:
        with lock:
            left = [t for t in had if t not in busy and had[t] < minutes * 60 and not findings(t)]
            if not left:
                return
            target = min(left, key=had.get)
            busy.add(target)
        seconds = run_slice(target)
        with lock:
            busy.discard(target)
            had[target] += seconds
            with open(out + "/totals.json", "w", encoding="ascii") as f:
                json.dump(had, f)
            print(f"{target}: {had[target] / 60:.1f} of {minutes:g} minutes", flush=True)


threads = [threading.Thread(target=worker) for _ in range(jobs)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("\n".join(f"  {t:10} {s / 60:6.1f} CPU minutes" for t, s in had.items()))
for p in findings():
    print("found:", p)
sys.exit(1 if findings() or not had else 0)
