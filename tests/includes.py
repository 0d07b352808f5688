#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Checks the includes of cowfs/ against the table of docs/HACKING.md: includes.py. A folder includes itself and what its row
names, rows name only folders above them, no header includes itself through others, and no two files have the same name. Exits
1 and prints each include that breaks a rule.
"""
import collections
import os
import re
import sys

top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with open(top + "/docs/HACKING.md", encoding="utf-8") as f:
    rows = re.findall(r"^\| `cowfs/(\w+)` \|.*\| ([\w ]*)\|$", f.read(), re.M)
allowed = {folder: set(names.split()) for folder, names in rows}
faults = []

seen = set()
for folder, names in allowed.items():
    faults += [f"docs/HACKING.md: {folder} may include {n}, which is not above it" for n in sorted(names - seen)]
    seen.add(folder)

includes, named = {}, collections.defaultdict(list)
for folder in sorted(os.listdir(top + "/cowfs")):
    for name in sorted(os.listdir(f"{top}/cowfs/{folder}")):
        if not name.endswith((".c", ".h")):
            continue
        with open(f"{top}/cowfs/{folder}/{name}", encoding="utf-8") as f:
            includes[f"{folder}/{name}"] = re.findall(r'^#include "(.*)"', f.read(), re.M)
        named[name].append(folder)
    if folder not in allowed and any(p.startswith(folder + "/") for p in includes):
        faults.append(f"cowfs/{folder}: no row in docs/HACKING.md")

for path, its in includes.items():
    folder = path.split("/")[0]
    for i in its:
        if i not in includes:
            faults.append(f'cowfs/{path}: "{i}" is not a file below cowfs/')
        elif i.split("/")[0] not in allowed.get(folder, set()) | {folder}:
            faults.append(f"cowfs/{path}: {folder} may not include {i}")
faults += [f"cowfs: {name} in {' and '.join(f)}" for name, f in named.items() if len(f) > 1]


def circle(path, way):
    if path in way:
        return way[way.index(path):] + [path]
    return next(filter(None, (circle(i, way + [path]) for i in includes[path] if i in includes)), None)


found = {tuple(sorted(set(c))): c for c in (circle(p, []) for p in includes) if c}
faults += ["circle: " + " -> ".join(c) for c in found.values()]
print("\n".join(faults) or f"includes: {len(includes)} files, {sum(map(len, includes.values()))} includes, none upward")
sys.exit(bool(faults))
