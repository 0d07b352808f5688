#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `cowctl wear --json` prints of a card that never was: the same for the same arguments. For looking at the report.

sample.py [key=value]...   units, log_units, days, commits, health (none, good, urgent), name, foreign (bytes), big (1: largest counters)
"""
import json
import random
import sys

opt = {"units": 8192, "log_units": 0, "days": 60, "commits": 64, "health": "none", "name": "root", "foreign": 0, "big": 0}
for arg in sys.argv[1:]:
    key, value = arg.split("=", 1)
    if key not in opt:
        sys.exit(f"sample.py: no {key}\n{__doc__}")
    opt[key] = type(opt[key])(value)

rnd = random.Random(1)
NOW, EB = 1790000000, 4 << 20
TODAY = NOW // 86400
MIB = 1 << 20
MAX = 2**32 - 1
hostile = opt["name"] == "hostile"
name = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'" if hostile else opt["name"]

days, per_day = [], []
for k in range(opt["days"]):
    week = (TODAY - opt["days"] + k) % 7
    busy = 1 if k % 23 == 11 else 0  # an upgrade
    if k % 19 == 7:
        continue  # switched off
    absorbed = int(MIB * (rnd.lognormvariate(6.6, 0.35) * (0.6 if week in (2, 3) else 1) + busy * 2600))
    written = int(absorbed * rnd.uniform(0.012, 0.03) + busy * 900 * MIB) // 4096 * 4096
    commits = rnd.randint(20, 25)
    days.append({"number": len(days), "unix_day": TODAY - opt["days"] + k, "absorbed_bytes": absorbed, "absorbed_writes": absorbed // 9000,
                 "written_bytes": written, "commits": commits, "erase_block_visits": commits * rnd.randint(6, 11) + busy * 260})
ring = []
for k in range(opt["commits"]):
    cause = "manual" if k % 31 == 9 else "pressure" if k % 27 == 20 else "timer"
    written = int(MIB * rnd.lognormvariate(-0.6, 0.8) + (180 * MIB if cause == "pressure" else 0)) // 4096 * 4096
    ring.append({"number": 1274 - opt["commits"] + k, "unix_seconds": NOW - (opt["commits"] - k) * 3600 + 7, "cause": cause,
                 "absorbed_bytes": int(written * rnd.uniform(8, 60)), "written_bytes": written,
                 "writable_seconds": round(0.05 + written / (14 * MIB) + rnd.uniform(0, 0.15), 6),
                 "erase_block_visits": 6 + written // EB + rnd.randint(0, 5)})

units = opt["units"] + opt["log_units"]
visits, blocks = [0] * units, [0] * units
for i in range(units):
    at = i / max(1, opt["units"])
    hot = 40 if at < 0.02 else 14 if 0.31 < at < 0.34 else 3 if at < 0.4 else 0.6 if at < 0.55 else 0.02
    if 0.985 < at < 1:  # the log
        hot = 90
    visits[i] = int(rnd.expovariate(1) * hot)
    blocks[i] = visits[i] * rnd.randint(1, 300)
    if opt["big"]:
        visits[i] = blocks[i] = MAX - rnd.randint(0, 9)

if days and not opt["big"]:  # as much as the days tell
    share = sum(d["written_bytes"] for d in days) / 4096 / sum(blocks)
    blocks = [max(1, int(b * share)) if b else 0 for b in blocks]
written = 4096 * sum(blocks)
absorbed = sum(d["absorbed_bytes"] for d in days)
total_visits = sum(visits)
order = sorted((i for i in range(units) if blocks[i]), key=lambda i: (-visits[i], -blocks[i]))[:10]
hottest = [{"unit": i, "log_device": i >= opt["units"], "disk_offset_bytes": 4 * MIB + (i - opt["units"] if i >= opt["units"] else i) * EB,
            "written_bytes": 4096 * blocks[i], "visits": visits[i]} for i in order]


def interval(low, high, basis, source):
    return {"low": low, "high": high, "basis": basis, "source": source}


health = {"kind": "sd", "disk": "mmcblk0", "model": "SD32G", "disk_bytes": 32010928128, "source": "",
          "unknown_because": "SD cards have no standard for it; some answer --cmd56", "life_used": [], "pre_eol": "unknown",
          "host_written_bytes": None, "flash_written_bytes": None, "erase_cycles": None, "spare": None, "media_errors": None,
          "passed": None, "attributes": []}
left = interval(1, 1, "assumed", "the card reports nothing: assumed to be new at its first attach, less what cowfs wrote")
if opt["health"] != "none":
    bad = opt["health"] == "urgent"
    health |= {"kind": "emmc", "model": "DF4032", "source": "sysfs: life_time, pre_eol_info", "unknown_because": "",
               "pre_eol": "urgent" if bad else "normal",
               "life_used": [{"part": "a", "low": 0.9 if bad else 0.0, "high": 1.0 if bad else 0.1, "raw": "0x0a" if bad else "0x01"},
                             {"part": "b", "low": 0.1, "high": 0.2, "raw": "0x02"}]}
    left = interval(0 if bad else 0.8, 0.1 if bad else 0.9, "measured", "reported by the device")
if hostile:
    health |= {"model": name, "unknown_because": name}

whole_days = sorted(d["written_bytes"] for d in days) or [1]
all_days = sorted([0] * (opt["days"] - len(days)) + whole_days)
daily = interval(all_days[(len(all_days) - 1) // 2], all_days[(9 * len(all_days) + 9) // 10 - 1], "measured",
                 "median and 90th percentile of the days observed")
daily_abs = interval(780 * MIB, 1300 * MIB, "measured", "the same for what programs wrote")
amp = interval(1, round(max(1, EB * total_visits / max(1, written)), 4), "bounded", "from no copying to one erase block copied per visit")
sooner = interval(4.2, 137.5, "model", "from the bytes alone to one erase for each write and visit")
cycles = interval(500, 5000, "assumed", "unknown")
capacity = interval(health["disk_bytes"], health["disk_bytes"], "measured", "the whole disk")
factors = {"erase_cycles": cycles, "capacity_bytes": capacity, "life_left": left, "device_amplification": amp}
enough = opt["days"] >= 7


def life(day, by, basis, source):
    return {"basis": basis, "source": source,
            "seconds_low": 86400 * cycles["low"] * capacity["low"] * left["low"] / (max(1, day["high"]) * by["high"]),
            "seconds_high": 86400 * cycles["high"] * capacity["low"] * left["high"] / (max(1, day["low"]) * by["low"])}


scenarios = None
if enough:
    factors |= {"daily_bytes": daily, "daily_bytes_without_cowfs": daily_abs, "sooner_without_cowfs": sooner}
    rate = (max(visits) or 1) / (opt["days"] * 86400)
    scenarios = {"whole_card": life(daily, amp, "bounded", "the wear is spread over the whole card"),
                 "hottest_erase_block": {"basis": "bounded", "source": "no wear levelling: the most visited erase block, erased at each visit",
                                         "seconds_low": 500 * left["low"] / rate, "seconds_high": 5000 * left["high"] / rate}}

causes = {"manual": 31, "timer": 1201, "pressure": 9, "shutdown": 28, "detach": 3, "recover": 2}
json.dump({
    "ok": True, "schema": 1, "version": "0.1.0", "name": name, "device": "/dev/" + name if hostile else "/dev/mmcblk0p2",
    "log_device": "/dev/sdb1" if opt["log_units"] else "", "card_identity": name if hostile else "0x1f3a99c2", "attached": True,
    "generated_unix_seconds": NOW, "last_unix_seconds": NOW - 3593, "volume_bytes": opt["units"] * EB * 98 // 100,
    "device_bytes": opt["units"] * EB, "have_table": True,
    "totals": {"absorbed_bytes": absorbed, "absorbed_writes": absorbed // 9000, "punched_bytes": absorbed // 5, "skipped_free_blocks": 1810233,
               "skipped_journal_blocks": 920411, "skipped_same_blocks": 41233, "skipped_hole_blocks": 311, "direct_blocks": 401233,
               "logged_blocks": 99021, "spilled_blocks": 2210, "zero_blocks": 310, "checkpoint_blocks": 88200, "padded_blocks": 5121,
               "log_metadata_blocks": 14022, "super_blocks": 2611, "write_calls": 61022, "written_bytes": written, "flushes": 5210,
               "commits": sum(causes.values()), "commits_failed": 0, "commits_by_cause": causes, "checkpoints": 61, "attaches": 31,
               "erase_block_visits": total_visits, "writable_seconds": 612.318, "attached_seconds": opt["days"] * 80000.0,
               "first_unix_seconds": NOW - opt["days"] * 86400, "foreign_bytes": opt["foreign"],
               "foreign_first_unix_seconds": NOW - 86400 if opt["foreign"] else 0, "table_losses": 0},
    "ratios": {"absorption": float("%.4g" % (absorbed / written)) if written else None, "cowfs_amplification": 1.31,
               "device_amplification": amp},
    "erase_blocks": {"erase_block_bytes": EB, "erase_block_source": "reported", "unit_bytes": EB, "units": opt["units"],
                     "log_device_units": opt["log_units"], "disk_offset_bytes": 4 * MIB, "log_device_disk_offset_bytes": 4 * MIB,
                     "written_blocks": blocks, "visits": visits, "touched_units": sum(b > 0 for b in blocks),
                     "counted_bytes": written, "hottest": hottest},
    "history": {"commits": ring, "days": days},
    "truth": {"have_kernel_counters": True, "cowfs_written_bytes": 812 * MIB, "kernel_written_bytes": 812 * MIB + opt["foreign"],
              "foreign_bytes": opt["foreign"], "foreign_since_unix_seconds": NOW - 86400 if opt["foreign"] else 0,
              "foreign_noticed_unix_seconds": NOW - 86000 if opt["foreign"] else 0, "agreed_unix_seconds": NOW - 86400},
    "health": health,
    "projection": {"enough_data": enough, "why_not": "" if enough else f"not enough data: {opt['days']} whole days, at least 7 are needed",
                   "observed_days": opt["days"], "ignored_days": 0, "scenarios": scenarios, "factors": factors},
}, sys.stdout, separators=(",", ":"))
print()
