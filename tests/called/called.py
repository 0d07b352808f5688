#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions of cowfs/ that no program has begun: called.py BUILD MARKS, after `make called`."""
import os
import subprocess
import sys

build, marks = sys.argv[1:3]
own, begun = {}, set()
for root, _, files in os.walk(f'{build}/obj/cowfs'):
    for f in files:
        if f.endswith('.o'):
            for line in subprocess.run(['nm', os.path.join(root, f)], capture_output=True, text=True, check=True).stdout.splitlines():
                kind, name = line.split()[-2:]
                if kind in 'tT':
                    own.setdefault(name.split('.')[0], os.path.relpath(os.path.join(root, f[:-1] + 'c'), f'{build}/obj'))
for program in os.listdir(marks):
    path = next((p for p in (f'{build}/{program}', f'{build}/tests/{program}') if os.path.exists(p)), None)
    seen = open(os.path.join(marks, program), 'rb').read()
    for line in subprocess.run(['nm', path], capture_output=True, text=True, check=True).stdout.splitlines() if path else ():
        part = line.split()
        if len(part) == 3 and part[1] in 'tT' and int(part[0], 16) < len(seen) and seen[int(part[0], 16)]:
            begun.add(part[2].split('.')[0])
left = sorted((f, n) for n, f in own.items() if n not in begun)
for f, n in left:
    print(f'{f:40} {n}')
print(f'{len(own)} functions, {len(left)} of them never called')
