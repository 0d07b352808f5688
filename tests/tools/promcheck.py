#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads Prometheus' text format on stdin and is strict about it: form, order, names, units, values. promtool's rules and some more,
for where there is no promtool. Says what is wrong and ends with 1."""
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\Z)')
VALUE = re.compile(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|Inf)\Z|NaN\Z")
SAMPLE = re.compile(r"([^{ ]+)(?:\{(.*)\})? (\S+)\Z")
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}
UNITS = re.compile(r"_(ms|milliseconds|minutes|hours|days|kb|mb|gb|kib|mib|kilobytes|sectors|blocks|percent|celsius)(_total)?\Z")


def check(text):
    errors, helped, typed, seen, current = [], {}, {}, set(), None

    def bad(what):
        errors.append(f"line {number}: {what}: {line}")

    number, line = 0, ""
    if text and not text.endswith("\n"):
        errors.append("the last line has no end")
    for number, line in enumerate(text.split("\n")[:-1], 1):
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            kind, name, rest = line[2:6], *(line[7:].split(" ", 1) + [""])[:2]
            table = helped if kind == "HELP" else typed
            if not NAME.match(name):
                bad("name")
            if name in table:
                bad("said twice")
            if name in {s.split("{")[0] for s in seen}:
                bad("behind its samples")
            if kind == "TYPE" and rest not in TYPES:
                bad("type")
            if kind == "HELP" and not rest.endswith("."):
                bad("help is no sentence")
            table[name], current = rest, name
            continue
        m = SAMPLE.match(line)
        if not m:
            bad("no sample")
            continue
        name, labels, value = m.groups()
        if not NAME.match(name) or name not in typed or name not in helped:
            bad("no HELP or TYPE")
        if name != current:
            bad("apart from its family")
        if UNITS.search(name):
            bad("no base unit")
        if (typed.get(name) == "counter") != name.endswith("_total"):
            bad("_total is for counters")
        at, names = 0, []
        while labels and at < len(labels):
            part = LABEL.match(labels, at)
            if not part:
                bad("labels")
                break
            names.append(part.group(1))
            at = part.end()
        if labels == "" or (labels or "").endswith(",") or len(set(names)) != len(names):
            bad("labels")
        if not VALUE.match(value):
            bad("value")
        elif typed.get(name) == "counter" and float(value) < 0:
            bad("a counter below zero")
        key = f"{name}{{{labels}}}"
        if key in seen:
            bad("twice")
        seen.add(key)
    if not seen:
        errors.append("no sample at all")
    return errors


if __name__ == "__main__":
    found = check(sys.stdin.read())
    for e in found:
        print(e, file=sys.stderr)
    sys.exit(1 if found else 0)
