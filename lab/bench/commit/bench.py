#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The benchmark of commits: recorded traces, priced on every card profile for several systems. As root.

usage: bench.py FOLDER [--out DOCS] [--only WORKLOAD,...]	traces in FOLDER (made if they are not there), tables and plots to DOCS;
								with --only the figures of the others are those of the last run
       bench.py --short						one small trace, three cards: for make check; what must hold is asserted
"""
import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import plot # noqa: E402
from card import BUILD, HERE # noqa: E402
from record import OTHERS, WORKLOADS # noqa: E402

METHOD = """What programs write is recorded once on a real ext4 (record.py), as it is on the card, and as it is on overlays. Each system's
writes and flushes then go to a model of each card (lab/sim) in virtual time, with the card in its steady state and what it owes at
the end included. Nothing depends on this machine but the recordings."""

SHORT_PROFILES = ("transcend-ts8gcf266", "lexar-300x-8g", "sandisk-ultra-4g")
# where the power is cut behind each so many-th write of cowfs, too
CUT_PROFILES, CUT_EVERY = ("sandisk-sata5000-32g", "lexar-300x-8g", "sandisk-ultra-4g"), 40

# What each system recorded differs from run to run: ext4 places small files by the CPU that writes them back. With "small" that is an
# erase block more or less, 8 % of twelve, with the time that it takes. A plan that costs one more in each commit costs two there.
ANOTHER_PLACE = {"seconds": lambda other: other["seconds"] * (1.1 + 1 / max(1, other["erases"])), "erases": lambda other: other["erases"] + 1}

TITLES = {
    "boot": "boot of a Debian 12",
    "apt-install": "apt-get install git gcc libc6-dev",
    "apt-upgrade": "apt-get upgrade",
    "gps-day": "a day of a GPS logger",
    "browser": "two hours of a browser",
    "kernel30": "30 kernel updates",
    "small": "small",
}
EVERY = {"gps-day": "every 5 minutes", "browser": "every 5 minutes", "kernel30": "after each update", "small": "every 5 minutes"}
SYSTEMS = {
    "ext4": "ext4 on the card, no journal",
    "ext4-journal": "ext4 on the card, journal",
    "rsync": "overlayfs, rsync",
    "order": "block order",
    "dm-4": "dm-snapshot, 4 KiB",
    "dm-64": "dm-snapshot, 64 KiB",
    "qemu": "qemu-img commit",
    "cowfs-home": "cowfs, all home",
    "cowfs": "cowfs",
}
KEPT = {True: "kept", False: "missed", None: "—"}
OURS = ("cowfs", "cowfs-home")
PEERS = ("rsync", "order", "dm-4", "dm-64", "qemu")


def say(text):
    print(f"bench-commit: {text}", file=sys.stderr, flush=True)


# ---- runs ----

def replay(folder, trace, system, *options, profile=None):
    command = [f"{BUILD}/tests/replay", *options, *(["--profile", profile] if profile else []), system, f"{folder}/{trace}"]
    p = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if p.returncode:
        sys.exit(f"bench-commit: {' '.join(command)}: exit {p.returncode}")
    return [json.loads(line) for line in p.stdout.splitlines()]


def plain_rows(folder, workload, profile):
    """Of the recordings for several erase blocks each card has the one for its own, or that for 4 MiB."""
    found = {}
    for f in sorted(os.listdir(folder)):
        if f.startswith(f"{workload}.plain") and f.endswith(".done"):
            mib = int(f[len(workload) + 6:-5])
            for row in replay(folder, f[:-5], "plain", "--no-journal", profile=profile):
                found.setdefault(row["profile"], {})[mib] = row
    return [rows.get(rows[min(rows)]["unit_bytes"] >> 20, rows.get(4, rows[min(rows)])) for rows in found.values()]


def unplanned_rows(folder, workload, each, profile):
    """Commits that know nothing of the card."""
    trace = f"{workload}.{'freeze' if each else 'journal'}"
    rows = replay(folder, trace, "cowfs", "--plan-by", "none", *(["--each"] if each else []), profile=profile)
    for row in rows:
        row.update(workload=workload, each=each, system="cowfs-home" if row["home"] else "cowfs")
    return rows


def system_rows(folder, workload, each, system, profile):
    variant, option = ("freeze", ["--each"]) if each else ("journal", [])
    trace = f"{workload}.{variant}"
    five = "5" if each else ""
    if system == "ext4":
        return plain_rows(folder, workload, profile)
    if system == "ext4-journal":
        return replay(folder, f"{workload}.journal", "plain", profile=profile)
    if system in ("rsync", "qemu"):
        if not os.path.exists(f"{folder}/{workload}.{system}{five}.done"):
            return []
        return replay(folder, f"{workload}.{system}{five}", "merge", profile=profile)
    if system == "order":
        return replay(folder, trace, "order", *option, profile=profile)
    if system.startswith("dm-"):
        return replay(folder, trace, "dm-snapshot", "--chunk", system[3:], *option, profile=profile)
    return replay(folder, trace, "cowfs", "--verify", *option, profile=profile)


def modes(workload):
    return (False, True) if "freeze" in WORKLOADS[workload] else (False,)


def cut_power(folder, workload, every, profiles=CUT_PROFILES):
    """How many power cuts were tried. One that leaves neither the old nor the new state ends the program."""
    return sum(replay(folder, f"{workload}.{'freeze' if each else 'journal'}", "cowfs", *(["--each"] if each else []), "--cuts", str(every),
                      profile=p)[-1]["cuts"] for each in modes(workload) for p in profiles)


def workload_rows(folder, workload, profile=None):
    rows = []
    for each in modes(workload):
        for system in SYSTEMS:
            if system == "cowfs-home":
                continue # comes with cowfs
            start = time.monotonic()
            got = system_rows(folder, workload, each, system, profile)
            for row in got:
                row.update(workload=workload, each=each, system="cowfs-home" if row.get("home") else system)
            rows += got
            if not profile:
                say(f"{workload}{', ' + EVERY[workload] if each else ''}: {SYSTEMS[system]}: {len(got)} cards in "
                    f"{time.monotonic() - start:.1f} s")
    return rows


# ---- what is asked of them ----

WORSE = 1.02 # so much more time, or erases, a plan may cost than none


def plan_costs(rows, unplanned):
    """(row, field, factor) of what a plan costs against none, with everything home: what a shutdown leaves in the log is a debt."""
    plain = {(r["workload"], r["each"], r["profile"]): r for r in unplanned if r["home"]}
    for r in rows:
        u = plain.get((r["workload"], r["each"], r["profile"])) if r["system"] == "cowfs-home" else None
        for field in ("seconds", "erases") if u else ():
            yield r, field, r[field] / max(u[field], 1e-9)


def worse_plans(rows, unplanned):
    """What the plan makes dearer than no plan, by its row."""
    return {f"{name_of((r['workload'], r['each']))}, {r['profile']}: {f} beside no plan": f"{q:.3f} times those without"
            for r, f, q in plan_costs(rows, unplanned) if q > WORSE}


def cells(rows):
    """(workload, each) -> profile -> system -> row."""
    table = {}
    for r in rows:
        table.setdefault((r["workload"], r["each"]), {}).setdefault(r["profile"], {})[r["system"]] = r
    return table


def name_of(key):
    return f"{key[0]}, {EVERY[key[0]]}" if key[1] else f"{key[0]}, at the end"


def best(systems, field, of=None):
    return min((s for s in systems if s not in OURS and (of is None or s in of)), key=lambda s: systems[s][field])


def losses(table, ours="cowfs"):
    """Where cowfs takes more time or erases than the best of the others."""
    for key, profiles in table.items():
        for profile, systems in profiles.items():
            for field in "seconds", "erases":
                b = best(systems, field)
                if systems[ours][field] > systems[b][field] * 1.0000001:
                    yield key, profile, field, systems[ours], b, systems[b]


def is_out_of_reach(key, _profile, field, ours, _b, other):
    """Would every atomic system with everything home lose here, too? Known for a single commit."""
    return ours["home"] and not key[1] and ours["atomic_" + field] > other[field]


def aims(table, cuts, unplanned):
    """Lines of (figure, aim, measured, kept)."""
    lines = []
    apt = table.get(("apt-install", False), {})
    shares = {p: s["cowfs"]["linear_seconds"] / s["cowfs"]["commit_seconds"] for p, s in apt.items()}
    if shares:
        low = min(shares, key=shares.get)
        lines.append(("commit of apt-get install: share of the card's linear write bandwidth, worst card", ">= 90 %",
                      f"{shares[low] * 100:.1f} % ({low}); {sum(v >= 0.9 for v in shares.values())} of {len(shares)} cards",
                      shares[low] >= 0.9))
    day = table.get(("gps-day", True), {})
    if day:
        gain = {p: s["ext4"]["erases"] / s["cowfs"]["erases"] for p, s in day.items()}
        low = min(gain, key=gain.get)
        lines.append(("GPS day, every 5 minutes: erases of ext4 on the card / of cowfs, worst card", ">= 100",
                      f"{gain[low]:.1f} ({low}); {sum(v >= 100 for v in gain.values())} of {len(gain)} cards", gain[low] >= 100))
        gain = {p: s[best(s, "erases", PEERS)]["erases"] / s["cowfs"]["erases"] for p, s in day.items() if s["cowfs"]["absorb"] == 1}
        if gain:
            low = min(gain, key=gain.get)
            lines.append(("— of the best merged overlay / of cowfs, worst block-mapped card", ">= 20",
                          f"{gain[low]:.1f} ({low}); {sum(v >= 20 for v in gain.values())} of {len(gain)} cards", gain[low] >= 20))
    total = sum(len(p) for p in table.values())
    for ours, text in ("cowfs", ""), ("cowfs-home", ", all written home at the end"):
        lost = list(losses(table, ours))
        lines.append((f"trace and card where another system takes less time, or less erases{text}", "0",
                      f"time {sum(l[2] == 'seconds' for l in lost)}, erases {sum(l[2] == 'erases' for l in lost)} of {total}", not lost))
        if text:
            lines.append(("— of these, beyond what an atomic system can reach", "—", f"{sum(is_out_of_reach(*l) for l in lost)} of {len(lost)}", None))
    rows = [r for p in table.values() for s in p.values() for r in s.values()]
    costs = list(plan_costs(rows, unplanned))
    if costs:
        r, field, most = max(costs, key=lambda c: c[2])
        lines.append(("a plan against none, all home: most time or erases", f"<= {WORSE}",
                      f"{most:.3f} ({name_of((r['workload'], r['each']))}, {r['profile']}, {field}); {sum(c[2] > WORSE for c in costs)} of "
                      f"{len(costs)} above", most <= WORSE))
    risk = max(s["cowfs"]["risk_seconds"] for p in table.values() for s in p.values())
    lines.append(("seconds in which a power cut leaves neither the old nor the new state", "0",
                  f"{risk:g}; {cuts} power cuts on the way, each left one of the two", risk == 0))
    return lines


def per_card(table):
    """The same for each card, and what bounds it."""
    apt, day = table.get(("apt-install", False), {}), table.get(("gps-day", True), {})
    if not apt or not day:
        return []
    out = ["", "Those by card. In brackets, apt: if everything is written in place, each unit once; the day: what no way of committing the same blocks could "
           "surpass, with all of them written once, linearly.", "",
           "| card | apt: share of linear | day: erases of ext4 / of cowfs | of the best merged overlay / of cowfs |", "| --- " * 4 + "|"]
    for p in sorted(day):
        a, d = apt[p]["cowfs"], day[p]
        (_, linear), (in_place, _) = bounds(d["cowfs"])[0], bounds(a)[1]
        erases = d["cowfs"]["erases"]
        b = best(d, "erases", PEERS)
        out.append(f"| {p} | {a['linear_seconds'] / a['commit_seconds'] * 100:.0f} % ({a['linear_seconds'] / in_place * 100:.0f} %) | "
                   f"{d['ext4']['erases'] / erases:.0f} ({d['ext4']['erases'] / linear:.0f}) | "
                   f"{d[b]['erases'] / erases:.1f} ({d[b]['erases'] / linear:.0f}) |")
    return out


# ---- tables ----

def number(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 0.1 else f"{x:.3f}"


def bounds(row):
    """Seconds and erases that no system can do with fewer: (in the log, linear; in place).

    In the log: all blocks of all commits written linearly. In place: on a block-mapped card each unit that a commit touches costs one erase,
    and if it is not written whole the copy of the rest; on others the linear rate."""
    linear = row["linear_seconds"], -(-row["payload_bytes"] // row["unit_bytes"])
    return linear, (row["bound_seconds"], row["home_units"]) if row["absorb"] == 1 else linear


def loss_lines(table, ours):
    out = []
    for key, profile, field, c, b, o in losses(table, ours):
        i = field == "erases"
        show = str if i else number
        linear, home = (show(x[i]) for x in bounds(c))
        out.append(f"| {name_of(key)} | {profile} | {'erases' if i else 's'} | {show(c[field])} | {show(o[field])} ({SYSTEMS[b]}) | "
                   f"{c[field] / max(o[field], 1e-9):.2f} | {linear} | {home} | "
                   f"{'–' if key[1] else show(c['atomic_' + field])} | {'no' if is_out_of_reach(key, profile, field, c, b, o) else 'yes'} |")
    return out


def loss_sums(table, ours):
    """The same, a line for each trace."""
    traces = {}
    for l in losses(table, ours):
        traces.setdefault(l[0], {"seconds": [], "erases": []})[l[2]].append(l)
    out = []
    for key, fields in traces.items():
        line = f"| {name_of(key)}"
        for field, lost in fields.items():
            ratios = [l[3][field] / max(l[5][field], 1e-9) for l in lost]
            line += f" | {len(lost)} | {f'{min(ratios):.2f} to {max(ratios):.2f}' if lost else '–'} | {sum(not is_out_of_reach(*l) for l in lost)}"
        out.append(line + " |")
    return out


FIELDS = ("seconds", "bytes", "writes", "flushes", "read_bytes", "programmed_bytes", "erases", "hottest_unit", "hottest_erases",
          "longest_seconds", "risk_seconds")


def write_csv(rows, path):
    with open(path, "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(("trace", "merged", "card", "system", *FIELDS))
        for r in rows:
            w.writerow((r["workload"], EVERY[r["workload"]] if r["each"] else "at the end", r["profile"], r["system"],
                        *(f"{r[f]:.3f}" if isinstance(r[f], float) else r[f] for f in FIELDS)))


def write_docs(rows, unplanned, cuts, folder):
    table = cells(rows)
    os.makedirs(folder, exist_ok=True)
    write_csv(rows, f"{folder}/results.csv")
    out = ["# Commits, priced", "", "Made by `make bench-commit`; the method is in [BENCHMARKS.md](../BENCHMARKS.md), \"Commits on every card\". All figures, bytes and "
           "hottest units and seconds at risk too, are in [results.csv](results.csv).", "",
           "| figure | aim | measured | kept? |", "| --- | --- | --- | --- |"]
    out += [f"| {a} | {b} | {c} | {KEPT[k]} |" for a, b, c, k in aims(table, cuts, unplanned)]
    out += per_card(table)
    lost = loss_lines(table, "cowfs")
    if lost:
        out += ["", "Where another system is better than cowfs. Bounds: all blocks of all commits written once, linearly, as to a log; and each commit "
                "written in place by itself: on block-mapped cards one erase for each unit that it touches, and a copy of the rest of that unit.", "",
                "| trace | card | what | cowfs | best other | × | bound, linear | bound, home | bound, atomic | within reach |", "| --- " * 10 + "|", *lost]
    sums = loss_sums(table, "cowfs-home")
    if sums:
        out += ["", "Where another system is better than cowfs with everything home: on how many cards, how often the best other, and on how many of "
                "these an atomic system can do better. Such a one writes what the committed file system uses twice, once to a log, and the rest once, with "
                "one merge for each unit that is not filled, and two flushes.", "",
                "| trace | more time | × | within reach | more erases | × | within reach |", "| --- " * 7 + "|", *sums]
    out += ["", "Seconds and erases of each system on each card:"]
    out += [f"\n![{name_of(key)}]({key[0]}{'-each' if key[1] else ''}.svg)" for key in table]
    with open(f"{folder}/README.md", "w") as f:
        f.write("\n".join(out) + "\n")
    for key, profiles in table.items():
        name = f"{key[0]}{'-each' if key[1] else ''}"
        with open(f"{folder}/{name}.svg", "w") as f:
            f.write(plot.dots(f"{TITLES[key[0]]}, merged {EVERY[key[0]] if key[1] else 'at the end'}", profiles, SYSTEMS))
    for a, b, c, k in aims(table, cuts, unplanned):
        print(f"| {a} | {b} | {c} | {KEPT[k]} |")


# ---- the program ----

def short_round():
    """One recording. Returns what must hold for each, and what the kernel's choice of blocks can break, by its row."""
    folder = tempfile.mkdtemp(prefix="cowfs-bench-commit.")
    try:
        record(folder, [f"small.{v}" for v in WORKLOADS["small"]])
        rows = [r for p in SHORT_PROFILES for r in workload_rows(folder, "small", p)]
        unplanned = [r for p in SHORT_PROFILES for e in modes("small") for r in unplanned_rows(folder, "small", e, p)]
        cuts = cut_power(folder, "small", 1, SHORT_PROFILES)
    finally:
        shutil.rmtree(folder)
    table, bad = cells(rows), []
    for key, profiles in table.items():
        for profile, systems in profiles.items():
            c = systems["cowfs"]
            for field in "seconds", "erases":
                b = best(systems, field)
                print(f"bench-commit: {name_of(key)}, {profile}: {field} {number(c[field])}, best other "
                      f"{number(systems[b][field])} ({SYSTEMS[b]})")
            if c["risk_seconds"]:
                bad.append(f"{profile}: {c['risk_seconds']} s at risk")
    print(f"bench-commit: {cuts} power cuts, one behind each write of cowfs: each left the old or the new state")
    worse = {f"{name_of(k)}, {p}: {f}": f"cowfs {number(c[f])}, {SYSTEMS[b]} {number(o[f])}" for k, p, f, c, b, o in losses(table)
             if c[f] > ANOTHER_PLACE[f](o)}
    worse.update(worse_plans(rows, unplanned))
    return bad, worse


def short():
    # The blocks that ext4 gives to small files depend on the CPU: one for the programs. Writeback still runs anywhere, so what fails
    # counts if it fails in two of three recordings.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    failed = {}
    for _ in range(3):
        bad, worse = short_round()
        for row, figures in worse.items():
            failed.setdefault(row, []).append(figures)
        bad += [f"{row}: {'; '.join(f)}" for row, f in failed.items() if len(f) == 2]
        if bad:
            sys.exit("\n".join(["bench-commit: FAILED"] + bad))
        if not failed:
            return
        print("bench-commit: recorded again: " + "; ".join(failed))


def record(folder, traces):
    subprocess.run([f"{HERE}/record.py", folder, *traces], check=True)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("folder", nargs="?")
    p.add_argument("--out")
    p.add_argument("--only")
    p.add_argument("--short", action="store_true")
    a = p.parse_args()
    if a.short:
        return short()
    if not a.folder:
        p.error("FOLDER is missing")
    wanted = a.only.split(",") if a.only else [w for w in WORKLOADS if w not in OTHERS]
    if set(wanted) - set(WORKLOADS):
        p.error(f"no workload is called {(set(wanted) - set(WORKLOADS)).pop()}")
    print(METHOD)
    traces = subprocess.run([f"{HERE}/record.py", "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    record(a.folder, [t for t in traces if t.split(".")[0] in wanted])
    for w in wanted:
        found = {"rows": workload_rows(a.folder, w), "unplanned": [r for e in modes(w) for r in unplanned_rows(a.folder, w, e, None)],
                 "cuts": cut_power(a.folder, w, CUT_EVERY)}
        with open(f"{a.folder}/{w}.prices", "w") as f:
            json.dump(found, f)
    rows, unplanned, cuts = [], [], 0
    for w in WORKLOADS:
        if os.path.exists(f"{a.folder}/{w}.prices"):
            with open(f"{a.folder}/{w}.prices") as f:
                found = json.load(f)
            rows += found["rows"]
            unplanned += found.get("unplanned", [])
            cuts += found["cuts"]
    write_docs(rows, unplanned, cuts, a.out or f"{a.folder}/docs")


if __name__ == "__main__":
    main()
