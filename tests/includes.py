#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Checks cowfs/, lab/ and tools/ against the tables of docs/HACKING.md: includes.py [OBJECTS]. A folder includes itself and what its row
names, folders or files, rows name only folders above them, no header includes itself through others, and no two files have the same name. With the folder of
the object files also: what a file calls lies in such a folder, and files that call each other in a circle are a row of
the table "Circles". The functions of "Ten questions" are in their files. Exits 1 and prints what breaks a rule.
"""
import collections
import glob
import os
import re
import subprocess
import sys

top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with open(top + "/docs/HACKING.md", encoding="utf-8") as f:
    hacking = f.read()
rows = re.findall(r"^\|[\w ]*\| `(cowfs|lab|tools)/(\w+)` \|.*\| ([\w/ ]*)\|$", hacking, re.M)
tree = {folder: t for t, folder, _ in rows}
allowed = {folder: set(names.split()) for _, folder, names in rows}
faults = []

seen = set()
for folder, names in allowed.items():
    faults += [f"docs/HACKING.md: {folder} may include {n}, which is not above it" for n in sorted(names) if n.split("/")[0] not in seen]
    seen.add(folder)



def may(folder, other):
    """May it know this file, "room/file"?"""
    return bool({other, other.split("/")[0]} & (allowed.get(folder, set()) | {folder}))


includes, named = {}, collections.defaultdict(list)
for path in sorted(p for t in ("cowfs", "lab", "tools") for p in glob.glob(f"{top}/{t}/*/*.[ch]")):
    t, folder, name = path.split("/")[-3:]
    with open(path, encoding="utf-8") as f:
        includes[f"{folder}/{name}"] = re.findall(r'^#include "(.*)"', f.read(), re.M)
    named[name].append(folder)
    if tree.get(folder) != t:
        faults.append(f"{t}/{folder}: no row in docs/HACKING.md")

for path, its in includes.items():
    folder = path.split("/")[0]
    for i in its:
        if i not in includes:
            faults.append(f'{path}: "{i}" is not a file below cowfs/, lab/ or tools/')
        elif not may(folder, i[:-2]):
            faults.append(f"{path}: {folder} may not include {i}")
faults += [f"{name} in {' and '.join(f)}" for name, f in named.items() if len(f) > 1]


questions = re.findall(r"^\| .* \| `(\w+/\w+)` `(\w+)` \|$", hacking, re.M)
for path, name in questions:
    source = f"{top}/{tree.get(path.split('/')[0])}/{path}.c"
    with open(source if os.path.exists(source) else os.devnull, encoding="utf-8") as f:
        if not re.search(rf"^[a-z][^\n;=]*\b{name}\([^;{{]*\)\n\{{", f.read(), re.M):
            faults.append(f"docs/HACKING.md: {path}.c has no function {name}")
if len(questions) != 10:
    faults.append(f"docs/HACKING.md: {len(questions)} questions, not ten")


def circle(path, way):
    if path in way:
        return way[way.index(path):] + [path]
    return next(filter(None, (circle(i, way + [path]) for i in includes[path] if i in includes)), None)


found = {tuple(sorted(set(c))): c for c in (circle(p, []) for p in includes) if c}
faults += ["circle: " + " -> ".join(c) for c in found.values()]


def calls(folder):
    """Which file calls which: {"volume/volume": {"log/ring", ...}, ...}"""
    defined, used = {}, {}
    for path in glob.glob(folder + "/*/*/*.o"):
        t, room, name = path[:-2].split("/")[-3:]
        name = f"{room}/{name}"
        if tree.get(room) != t or name + ".c" not in includes:
            continue
        symbols = [line.split() for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()]
        defined.update((s[2], name) for s in symbols if len(s) == 3 and s[1] in "TDBRVWC")
        used[name] = {s[1] for s in symbols if len(s) == 2 and s[0] in "Uw"}
    return {name: {defined[s] for s in u if s in defined} - {name} for name, u in used.items()}


def circles(graph):
    """Files of which each one reaches each other one, in sets of two or more."""
    def reach(start):
        seen, todo = set(), [start]
        while todo:
            new = graph.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen

    reached = {name: reach(name) for name in graph}
    return {frozenset(o for o in reached[n] if n in reached[o]) | {n} for n in graph if n in reached[n]}


if len(sys.argv) > 1:
    graph = calls(sys.argv[1])
    for name, others in sorted(graph.items()):
        folder = name.split("/")[0]
        faults += [f"{name}.c: {folder} may not call {o}" for o in sorted(others)
                   if not may(folder, o)]
    part = re.search(r"^### Circles$(.*?)(?=^##)", hacking, re.M | re.S)
    named_circles = [set(re.findall(r"`(\w+/\w+)`", line.split("|")[1])) for line in part.group(1).splitlines() if line.startswith("| `")]
    faults += ["circle of calls: " + ", ".join(sorted(c)) for c in circles(graph) if not any(c <= n for n in named_circles)]
    if not graph:
        faults.append(f"{sys.argv[1]}: no object files")

print("\n".join(faults) or f"includes: {len(includes)} files, {sum(map(len, includes.values()))} includes, none upward")
sys.exit(bool(faults))
