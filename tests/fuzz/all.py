#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Gives every fuzz target its share of CPU time: all.py BUILD CORPUS OUT MINUTES [JOBS]. Runs the libFuzzer programs of
BUILD/tests in slices, always the one that is furthest behind, until each has had its minutes of CPU time: MINUTES, and twice
that for the targets that read whole images. Counts that, not the clock, so the result is the same on a busy machine. Findings
and totals lie in OUT, so a later run continues: OUT/TARGET is the corpus grown so far, OUT/TARGET-crash-* an input that broke
a promise. Ends with a table: CPU minutes, executions, edges covered, inputs kept and findings. Exits 1 if there is one.
"""
import glob
import json
import math
import os
import re
import subprocess
import sys
import threading

SLICE_S = 180
TWICE = ("extfs", "ring")

build, corpus, out, minutes = sys.argv[1:4] + [float(sys.argv[4])]
jobs = int(sys.argv[5]) if len(sys.argv) > 5 else 2
prefix = build + "/tests/libfuzzer_"
had = {p[len(prefix):]: {"seconds": 0.0, "executions": 0, "edges": 0} for p in sorted(glob.glob(prefix + "*"))}
lock, busy = threading.Lock(), set()
os.makedirs(out, exist_ok=True)
if os.path.exists(out + "/totals.json"):
    with open(out + "/totals.json", encoding="ascii") as f:
        had.update({t: s for t, s in json.load(f).items() if t in had and isinstance(s, dict)})


def wanted_s(target):
    return minutes * 60 * (2 if target in TWICE else 1)


def findings(target="*"):
    return [p for kind in ("crash", "leak", "timeout", "oom", "slow-unit")
            for p in glob.glob(f"{out}/{target}-{kind}-*")]


def run_slice(target, seconds):
    os.makedirs(f"{out}/{target}", exist_ok=True)
    with open(f"{out}/{target}.log", "w", encoding="ascii") as log:
        words = f"{corpus}/../{target}.dict"
        p = subprocess.Popen([prefix + target, *([f"-dict={words}"] if os.path.exists(words) else []),
                              f"-max_total_time={seconds}", "-timeout=20", "-max_len=4096",
                              "-use_value_profile=1", "-print_final_stats=1", f"-artifact_prefix={out}/{target}-", f"{out}/{target}",
                              f"{corpus}/{target}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    usage = os.wait4(p.pid, 0)[2]
    seconds = usage.ru_utime + usage.ru_stime
    with open(f"{out}/{target}.log", encoding="ascii", errors="replace") as log:
        text = log.read()
    executed = re.findall(r"number_of_executed_units: *(\d+)", text) or re.findall(r"^#(\d+)\t", text, re.M)
    edges = re.findall(r" cov: (\d+)", text)
    return seconds, int(executed[-1]) if executed else 0, int(edges[-1]) if edges else 0


def worker():
    while True:
        with lock:
            left = [t for t in had if t not in busy and had[t]["seconds"] < wanted_s(t) and not findings(t)]
            if not left:
                return
            target = min(left, key=lambda t: had[t]["seconds"] / wanted_s(t))
            busy.add(target)
            missing = wanted_s(target) - had[target]["seconds"]
        seconds, executed, edges = run_slice(target, max(1, min(SLICE_S, math.ceil(missing))))
        with lock:
            busy.discard(target)
            had[target]["seconds"] += seconds
            had[target]["executions"] += executed
            had[target]["edges"] = max(edges, had[target]["edges"])
            with open(out + "/totals.json", "w", encoding="ascii") as f:
                json.dump(had, f)
            print(f"{target}: {had[target]['seconds'] / 60:.1f} of {wanted_s(target) / 60:g} minutes", flush=True)


threads = [threading.Thread(target=worker) for _ in range(jobs)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(f"  {'target':10} {'CPU minutes':>11} {'executions':>12} {'edges':>7} {'inputs':>7} {'found':>6}")
for t, h in had.items():
    inputs = len(os.listdir(f"{out}/{t}")) if os.path.isdir(f"{out}/{t}") else 0
    print(f"  {t:10} {h['seconds'] / 60:11.1f} {h['executions']:12} {h['edges']:7} {inputs:7} {len(findings(t)):6}")
for p in findings():
    print("found:", p)
sys.exit(1 if findings() or not had else 0)
