#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks random places of cowfs in a copy of the source, one at a time, and tells what no test notices.

random-mutants.py [--count N] [--seed N] [FOLDER...]   (folders of cowfs/; make check-mutants RANDOM_MUTANTS=N)

A mutant is one operator, constant, condition or statement of a function. The rules that cowfs checks itself (RULE, INVARIANT) are
left as they are. Programs run in the order of their time until one fails, so a mutant that is noticed costs a few seconds. Ends with
the rate, and a line for each survivor: look at it, and write a test or see that it changes nothing.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), '../..'))
LOG = ['codec_test', 'super_test', 'golden_test', 'log_escape_test', 'log_forged_test', 'loader_test', 'guard_test', 'alloc_test',
       'powercut_test', 'wear_test', 'log_test', 'log_foreign_test', 'log_fault_test', 'wear_schedule_test', 'log_bounds_test']
COMMIT = ['plan_test', 'commit_time_test', 'commit_large_test', 'commit_fault_test', 'view_log_test', 'powercut_test', 'shrink_test']
VIEW = ['ram_test', 'view_pin_test', 'readahead_test', 'pressure_test', 'serve_test', 'view_stress_test',
        'view_log_test', 'view_test', 'loop_test', 'fuse_test']
VOLUME = ['killed_test', 'server_test', 'quiesce_edge_test', 'quiesce_test']
CRASH = ['crash --no-attacks --images 20000', 'crash --images 1 --thin 16 --forgeries 1000']
BATS = ['bats commit']
PROGRAMS = {'log': LOG + CRASH, 'commit': COMMIT + CRASH, 'ram': VIEW + BATS, 'export': VIEW + BATS, 'volume': VOLUME + BATS}

SWAPS = [('==', '!='), ('!=', '=='), ('<=', '<'), ('>=', '>'), ('<', '<='), ('>', '>='), ('&&', '||'), ('||', '&&'), ('+', '-'),
         ('-', '+'), ('+=', '-='), ('-=', '+='), ('++', '--'), ('|=', '&=')]
TOKEN = re.compile(r'->|\+\+|--|[+|-]=|==|!=|<=|>=|&&|\|\||<<|>>|[<>+-]|\b\d+u?\b|\w+|.')


def code_lines(path):
    """Numbers of lines inside of functions, without comments, rules and declarations of tables."""
    inside, comment = False, False
    for n, line in enumerate(open(path)):
        if line.startswith('{'):
            inside = True
        elif line.startswith('}'):
            inside = False
        if '/*' in line:
            comment = True
        if inside and not comment and line.startswith('\t') and not re.search(r'RULE\(|INVARIANT\(|assert|"|ARRAY_SIZE', line):
            yield n
        if '*/' in line:
            comment = False


def mutations(line):
    """All ways to break a line: (what, new line)."""
    tokens, at = TOKEN.findall(line.rstrip('\n')), 0
    for i, t in enumerate(tokens):
        spaced = i and tokens[i - 1] == ' ' and i + 1 < len(tokens) and tokens[i + 1] == ' '
        for old, new in SWAPS:
            if t == old and (spaced or t in ('++', '--')):
                yield f'{old} is {new}', line[:at] + new + line[at + len(t):]
        if re.fullmatch(r'\d+u?', t):
            yield f'{t} is one more', line[:at] + f'({t} + 1)' + line[at + len(t):]
        at += len(t)
    m = re.fullmatch(r'(\t+)(if|while) \((.*)\)( \{)?\n', line)
    if m:
        yield 'the condition is turned', f'{m[1]}{m[2]} (!({m[3]})){m[4] or ""}\n'
    m = re.fullmatch(r'(\t+)([^=]*\w[\])]* (?:[+|&-]?=) .*|\w[\w>.-]*\(.*\));\n', line)
    if m and not re.match(r'\t+(return|case|goto|struct|const|static|unsigned|int|bool|u?int\d+_t|size_t|char)\b', line):
        yield 'the statement is gone', m[1] + ';\n'
    m = re.fullmatch(r'(\t+)return (r|false|true|0|-E\w+);\n', line)
    if m:
        new = {'r': '0', 'false': 'true', 'true': 'false', '0': '-EIO'}.get(m[2], '0')
        yield f'returns {new} for {m[2]}', f'{m[1]}return {new};\n'


def everything(folders):
    for folder in folders:
        base = os.path.join(TOP, 'cowfs', folder)
        for name in sorted(f for f in os.listdir(base) if f.endswith('.c')):
            path = os.path.join(base, name)
            lines = open(path).readlines()
            for n in code_lines(path):
                for what, new in mutations(lines[n]):
                    yield folder, name, n, what, new


def run(work, *command, seconds=300):
    env = dict(os.environ, COWFS_ON_CRASH='stop', COWFS_BUILD=f'{work}/build')
    with subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True) as p:
        try:
            return p.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
            return -9


def judge(work, mutant):
    """What notices it; '' if nothing does, None if it does not build."""
    folder, name, n, _, new = mutant
    path = os.path.join(work, 'cowfs', folder, name)
    shutil.copy2(path, path + '.saved')
    lines = open(path).readlines()
    lines[n] = new
    open(path, 'w').writelines(lines)
    try:
        for command in PROGRAMS[folder]:
            program, *args = command.split()
            bats = program == 'bats'
            if run(work, 'make', '-s', 'all' if bats else f'build/tests/{program}'):
                return None
            if run(work, *(['tests/run-bats.sh', f'tests/bats/{args[0]}.bats'] if bats else [f'build/tests/{program}', *args])):
                return command
        return ''
    finally:
        shutil.move(path + '.saved', path)
        os.utime(path)


def main():
    opts = argparse.ArgumentParser()
    opts.add_argument('--count', type=int, default=300)
    opts.add_argument('--seed', type=int, default=1)
    opts.add_argument('folders', nargs='*', default=[])
    o = opts.parse_args()
    mutants = list(everything(o.folders or PROGRAMS))
    random.Random(o.seed).shuffle(mutants)
    left, noticed, built = [], {}, 0
    with tempfile.TemporaryDirectory(prefix='cowfs-mutants.') as work:
        ignore = shutil.ignore_patterns('.git')
        shutil.copytree(TOP, work, dirs_exist_ok=True, ignore=ignore, symlinks=True)
        print(f'random mutants: {len(mutants)} possible, seed {o.seed}', flush=True)
        for m in mutants:
            if built == o.count:
                break
            by = judge(work, m)
            if by is None:
                continue
            built += 1
            where = f'cowfs/{m[0]}/{m[1]}:{m[2] + 1}'
            print(f'{built:4} {by or "NOT NOTICED":40} {where}: {m[3]}', flush=True)
            if by:
                noticed[by] = noticed.get(by, 0) + 1
            else:
                left.append((where, m[3], m[4].strip()))
    for by, n in sorted(noticed.items(), key=lambda x: -x[1]):
        print(f'{n:6} noticed by {by}')
    for where, what, new in left:
        print(f'NOT NOTICED {where}: {what}: {new}')
    print(f'random mutants: {built - len(left)} of {built} noticed ({100 * (built - len(left)) / max(built, 1):.0f} %)')


main()
