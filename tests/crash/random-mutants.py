#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks cowfs in random places of a copy of the source, one at a time, and notes in mutants.tsv which tests notice it.

random-mutants.py [--matrix] [--count N] [--minutes N] [--unit S] [--bats S] [-j N] [PLACE...]   (as root)
random-mutants.py --score | --cover | --survivors | --apply ID   [PLACE...]

A mutant is one operator, constant, condition or statement of a function; its ID is FILE:FUNCTION:NUMBER, and is void when the text of
the function changes. The rules that cowfs checks itself (RULE, INVARIANT) stay as they are. PLACE is the beginning of an ID: log/,
log/ring.c:ring_at. Rooms take turns, and the order is always the same. What does not compile, or gives the same object, is skipped.

First each test runs once with marks of the functions that it begins (build/mutants/tests.json; remove it to measure again). A mutant meets
the tests that begin its function, the quick ones first: of programs (unit tests, crash driver, corpora) as many as take --unit seconds
(60), of bats files --bats seconds (60). Seconds are those of CPU, because other work on the machine does not change them. Without
--matrix the first test that notices it is the last one; it must notice it twice. Interrupted, it goes on next time.
"""
import argparse
import collections
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.realpath(os.path.join(HERE, '../..'))
TABLE = os.path.join(HERE, 'mutants.tsv')
CACHE = os.path.join(TOP, 'build/mutants')
HEAD = 'mutant\twhat\ttext\tcommit\tmode\tunit\tbats\tseconds\tnoticed by'
CRASH = {'crash': ['--no-attacks', '--images', '20000'], 'crash-attacks': ['--images', '1', '--thin', '16', '--forgeries', '1000']}
SWAPS = [('==', '!='), ('!=', '=='), ('<=', '<'), ('>=', '>'), ('<', '<='), ('>', '>='), ('&&', '||'), ('||', '&&'), ('+', '-'),
         ('-', '+'), ('+=', '-='), ('-=', '+='), ('++', '--'), ('|=', '&=')]
TOKEN = re.compile(r'->|\+\+|--|[+|-]=|==|!=|<=|>=|&&|\|\||<<|>>|[<>+-]|\b\d+u?\b|\w+|.')
Mutant = collections.namedtuple('Mutant', 'id what text file line new')
Row = collections.namedtuple('Row', 'id what text commit mode unit bats seconds by')  # by: {test: seconds}

# A test in namespaces of its own: its processes, mounts and scratch files end with it, and so do loop devices on those files and on
# volumes of its daemons. It is stopped by the end of its input.
BOX = r'''
mount -t tmpfs -o size=8g,mode=1777 mutants /tmp && mount --bind /tmp /dev/shm || exit 125
fuse() { cat "$@" 2>/dev/null | awk '/ - fuse/ { print $3 }' | sort -u; }
before=$(fuse /proc/self/mountinfo)
ulimit -Sc 0 -t "$1"
shift
exec 3<&0
env --default-signal "$@" </dev/null 3<&- & test=$!
cat <&3 >/dev/null & wait -n; code=$?
own=" $(mountpoint -d /tmp) $(fuse /proc/[0-9]*/mountinfo | grep -vxF "${before:-none}" | xargs) "
kill -9 -1
wait
losetup -nl -O NAME,BACK-MAJ:MIN | while read -r dev on; do
	[[ $own != *" $on "* ]] || { blockdev --setrw "$dev"; losetup -d "$dev"; }
done
exit $code
'''
over = threading.Event()


# ---- mutants ----

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


def mutants_of(top, file):
    """Those of a file: lines inside of functions, without comments, rules and texts."""
    lines, name, first, comment = open(f'{top}/cowfs/{file}').readlines(), '', None, False
    for n, line in enumerate(lines):
        if line[0].isalpha() or line[0] == '_':
            name = next((w for w in re.findall(r'(\w+)\(', line) if w != '__attribute__'), name)
        if line.startswith('{'):
            end = next(i for i in range(n, len(lines)) if lines[i].startswith('}'))
            first, number, text = n, 0, f'{zlib.crc32("".join(lines[n:end]).encode()):08x}'
        elif line.startswith('}'):
            first = None
        comment = comment or '/*' in line
        if first is not None and not comment and line.startswith('\t') and not re.search(r'RULE\(|INVARIANT\(|assert|"|ARRAY_SIZE', line):
            for what, new in mutations(line):
                number += 1
                yield Mutant(f'{file}:{name}:{number}', what, text, file, n, new)
        comment = comment and '*/' not in line


def everything(top, places):
    """Mutants of these places, rooms in turns; the order of two does not depend on the others."""
    rooms = []
    for room in sorted(os.listdir(f'{top}/cowfs')):
        files = sorted(f'{room}/{f}' for f in os.listdir(f'{top}/cowfs/{room}') if f.endswith('.c'))
        its = [m for f in files for m in mutants_of(top, f) if not places or m.id.startswith(tuple(places))]
        rooms.append(sorted(its, key=lambda m: hashlib.sha1((m.id + m.text).encode()).digest()))
    return [its[i] for i in range(max(map(len, rooms))) for its in rooms if i < len(its)]


# ---- the table ----

def read_table():
    rows = [line.split('\t') for line in open(TABLE).read().splitlines()[1:]] if os.path.exists(TABLE) else []
    return {r[0]: Row(*r[:5], int(r[5]), int(r[6]), float(r[7]), {t: float(s) for t, s in (x.split('=') for x in r[8].split())}) for r in rows}


def write_table(rows):
    with open(TABLE + '.new', 'w') as f:
        f.write(HEAD + '\n')
        for _, r in sorted(rows.items()):
            f.write('\t'.join(map(str, r[:7])) + f'\t{r.seconds:.1f}\t' + ' '.join(f'{t}={s:.1f}' for t, s in r.by.items()) + '\n')
    os.rename(TABLE + '.new', TABLE)


# ---- a copy of the tree, its build and its tests ----

def waits_for_machine(pid):
    """Does the process or one below it compute, or wait for a CPU or a disk? Time in which none does is the only one that can be too long."""
    try:
        tasks = [f'/proc/{pid}/task/{t}/' for t in os.listdir(f'/proc/{pid}/task')]
        return any(open(t + 'stat').read().rpartition(')')[2][1] in 'RD' or any(map(waits_for_machine, open(t + 'children').read().split())) for t in tasks)
    except OSError:
        return True


class Work:
    """Where mutants are built and run."""
    def __init__(self, dir):
        self.dir, self.marks = dir, f'{CACHE}/marks'

    def make(self, *targets):
        """What is wrong, or nothing."""
        done = subprocess.run(['make', '-s', 'SMALL=', 'CFLAGS=-O1 -w -finstrument-functions', f'LDFLAGS={CACHE}/called.o', *targets],
                              cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, PATH='/usr/lib/ccache:' + os.environ['PATH']), start_new_session=True, check=False)
        return done.stderr or 'make failed' if done.returncode else ''

    def build(self):
        subprocess.run(['rsync', '-rlpc', '--delete', '--exclude=/build*', '--exclude=.git', f'{TOP}/', self.dir], check=True)  # changes are newer
        subprocess.run(['cc', '-O2', f'-DCALLED_DIR="{self.marks}"', '-c', f'{TOP}/tests/called/called.c', '-o', f'{CACHE}/called.o'], check=True)
        if why := self.make('-k', 'all'):
            sys.exit(f'mutants: {why}')

    def commands(self):
        """{test: command}"""
        tests = {t: ['build/tests/crash', *args] for t, args in CRASH.items()}
        for f in sorted(os.listdir(f'{self.dir}/build/tests')):
            if f.endswith('_test'):
                tests[f] = [f'build/tests/{f}']
            elif re.fullmatch(r'fuzz_\w+', f):
                tests[f] = [f'build/tests/{f}', f'tests/fuzz/corpus/{f[5:]}', '100']
        bats = sorted(f for f in os.listdir(f'{self.dir}/tests/bats') if f.endswith('.bats'))
        return {**tests, **{f: ['bats', '--tap', f'tests/bats/{f}'] for f in bats}}

    def programs(self):
        """What bats files run."""
        files = [f'build/{d}{f}' for d in ('', 'tests/') for f in os.listdir(f'{self.dir}/build/{d}') if re.fullmatch(r'[\w-]+(\.cowfs)?', f)]
        return [f for f in files if os.path.isfile(f'{self.dir}/{f}') and not re.search(r'_test$|/fuzz_', f)]

    def run(self, command, cpu, rest):
        """(0, or why it failed; seconds of CPU; seconds in which it rested): stopped at its first failure, and after so many seconds."""
        env = dict(os.environ, COWFS_ON_CRASH='stop', COWFS_SECCOMP='kill', COWFS_BUILD=f'{self.dir}/build')
        why, said, at, rested, last = None, '', 0, 0, time.monotonic()
        box = ['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', '--propagation', 'private', 'bash', '-c', BOX, 'box', str(cpu)]
        with tempfile.TemporaryFile(dir=CACHE) as out, subprocess.Popen(
                [*box, *command], cwd=self.dir, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True) as p:
            while not (ended := os.wait4(p.pid, os.WNOHANG))[0]:
                time.sleep(0.1)
                now, size = time.monotonic(), os.fstat(out.fileno()).st_size
                rested, last = rested + (0 if waits_for_machine(p.pid) else now - last), now
                said, at = said[-200:] + os.pread(out.fileno(), size - at, at).decode(errors='replace'), size
                if why and now > since + 120:
                    p.kill()
                elif not why and (re.search(r'^not ok|^\[  FAILED  \]', said, re.M) or rested > rest or over.is_set()):
                    why, since = 'stopped' if over.is_set() else 'too long' if rested > rest else 'failed', now
                    p.stdin.close()
            p.returncode = os.waitstatus_to_exitcode(ended[1])
        if p.returncode == 125:
            sys.exit('mutants: no namespaces here: run it as root')
        return why or p.returncode, round(ended[2].ru_utime + ended[2].ru_stime, 1), round(rested, 1)

    def measure(self, unit, bats):
        """Runs what was not measured yet: {test: (seconds of CPU, of rest, functions)}; no seconds if it fails or takes longer than these."""
        path, names = f'{CACHE}/tests.json', {}
        known = json.load(open(path)) if os.path.exists(path) else {}
        for test, command in self.commands().items():
            if test in known or over.is_set() or (command[0] == 'bats' and not bats):
                continue
            shutil.rmtree(self.marks, ignore_errors=True)
            os.makedirs(self.marks)
            os.chmod(self.marks, 0o777)
            why, cpu, rested = self.run(command, (bats if command[0] == 'bats' else unit) + 1, 200)
            begun = set()
            for mark in os.listdir(self.marks):
                program = re.match(r'(?:memfd:)?([\w.-]+)', mark)[1]
                file = next((p for p in (f'{self.dir}/build/{program}', f'{self.dir}/build/tests/{program}') if os.path.exists(p)), None)
                if file not in names:
                    said = subprocess.run(['nm', file], capture_output=True, text=True, check=False).stdout if file else ''
                    names[file] = [(int(a, 16), n.split('.')[0]) for a, n in re.findall(r'^(\w+) [tT] (\S+)$', said, re.M)]
                seen = open(f'{self.marks}/{mark}', 'rb').read()
                begun |= {n for a, n in names[file] if a < len(seen) and seen[a]}
            if why == 'stopped':
                break
            known[test] = [None if why else cpu, rested, sorted(begun)]
            print(f'measured: {test}: {why or "ok"}, {cpu} s of CPU, {rested} s of rest, {len(begun)} functions', flush=True)
            json.dump(known, open(path, 'w'))
        shutil.rmtree(self.marks, ignore_errors=True)
        return known

    def judge(self, m, tests, known, all):
        """{test: seconds} that notice it, and seconds until the first did; None without a verdict."""
        source, obj = f'{self.dir}/cowfs/{m.file}', f'build/obj/cowfs/{m.file[:-1]}o'
        saved, text = open(f'{self.dir}/{obj}', 'rb').read(), open(source).readlines()
        open(source, 'w').writelines(text[:m.line] + [m.new] + text[m.line + 1:])
        by, spent, first, late, size, todo, commands = {}, 0.0, 0.0, 0, 1 << 10 if all else 2, list(tests), self.commands()
        try:
            if self.make(obj) or open(f'{self.dir}/{obj}', 'rb').read() == saved:
                return None
            while todo and late < 3 and (all or not by):
                now, size = [t for t in todo[:size] if t.endswith('.bats') == todo[0].endswith('.bats')], size * 2
                todo = todo[len(now):]
                self.make(*(self.programs() if now[0].endswith('.bats') else {commands[t][0] for t in now}))
                for test in now:
                    limits = int(2 * known[test][0]) + 5, 3 * known[test][1] + 15
                    why, took, _ = self.run(commands[test], *limits)
                    spent += took
                    if why and (by or self.run(commands[test], *limits)[0]):
                        first, by[test], late = first or spent, took, late + (why == 'too long')
                    if over.is_set():
                        return None
                    if late == 3 or (by and not all):
                        break
            return by, first or spent
        finally:
            open(source, 'w').writelines(text)
            open(f'{self.dir}/{obj}', 'wb').write(saved)


def candidates(m, known, o, old):
    """Tests that begin the function and that the table does not know of, the quick ones first, within each of the two limits."""
    again, chosen = not old or (o.matrix and old.mode == 'first'), []
    for bats, left, had in ((False, o.unit, old and old.unit), (True, o.bats, old and old.bats)):
        for test, (took, _, names) in sorted(known.items(), key=lambda x: x[1][0] or 0) if again or had < left else ():
            if test.endswith('.bats') == bats and took is not None and m.id.split(':')[1] in names and took <= left:
                chosen.append(test)
                left -= took
    return chosen


def is_done(row, o):
    """Does the table have an answer to this call?"""
    return row.by and not o.matrix or (row.mode == 'all' or not o.matrix) and row.unit >= o.unit and row.bats >= o.bats


def work(o):
    commit = subprocess.run(['git', 'rev-parse', '--short=10', 'HEAD'], cwd=TOP, capture_output=True, text=True, check=True).stdout.strip()
    os.makedirs(CACHE, exist_ok=True)
    end = time.monotonic() + 60 * o.minutes
    made, lock, alone = 0, threading.Lock(), open(f'{CACHE}/lock', 'w')
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    skipped = set(open(f'{CACHE}/skipped').read().split('\n')) if os.path.exists(f'{CACHE}/skipped') else set()
    places = [Work(f'{CACHE}/{i}') for i in range(o.j)]
    for p in places:
        p.build()
    known = places[0].measure(o.unit, o.bats)
    if over.is_set():
        return
    rows, all_mutants = read_table(), everything(TOP, o.places)
    texts = {m.id: m.text for m in (everything(TOP, []) if o.places else all_mutants)}
    rows = {i: r for i, r in rows.items() if texts.get(i) == r.text}
    todo = iter([m for m in all_mutants if f'{m.id} {m.text}' not in skipped and not (m.id in rows and is_done(rows[m.id], o))])
    print(f'mutants: {len(all_mutants)} possible here, {len(rows)} in the table', flush=True)

    def loop(place):
        nonlocal made
        while not over.is_set() and time.monotonic() < end:
            with lock:
                m = next(todo, None) if made < o.count else None
                made += 1
            if not m:
                return
            old = rows.get(m.id)
            tests = candidates(m, known, o, old)
            verdict = place.judge(m, tests, known, o.matrix)
            with lock:
                if not verdict:
                    made -= 1
                    if not over.is_set():
                        print(m.id, m.text, file=open(f'{CACHE}/skipped', 'a'))
                    continue
                by, seconds = verdict
                if old and not (o.matrix and old.mode == 'first'):
                    by, seconds = {**old.by, **by}, old.seconds if old.by else old.seconds + seconds
                rows[m.id] = Row(m.id, m.what, m.text, commit, 'all' if o.matrix else 'first', o.unit, o.bats, seconds, by)
                write_table(rows)
                print(f'{made:4} {len(by):3} of {len(tests):3} {seconds:6.1f} s {m.id}: {m.what}: {" ".join(by) or "NOT NOTICED"}', flush=True)

    threads = [threading.Thread(target=loop, args=(p,)) for p in places]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


# ---- what the table says ----

def score(rows, possible):
    total = collections.Counter(m.id.split('/')[0] for m in possible)
    made, noticed = (collections.Counter(i.split('/')[0] for i, r in rows.items() if r.by or every) for every in (True, False))
    for room in [*sorted(total), None]:
        n, k, t = (c[room] if room else sum(c.values()) for c in (made, noticed, total))
        print(f'{room or "all":10} {k:5} of {n:5} noticed {100 * k // max(n, 1):4} %   ({t} possible)')


def cover(rows):
    rows = [r for r in rows.values() if r.mode == 'all' and r.by]
    left, tests = set(range(len(rows))), {t for r in rows for t in r.by}
    cost = {t: max(r.by[t] for r in rows if t in r.by) + 0.1 for t in tests}
    by = {t: {i for i, r in enumerate(rows) if t in r.by} for t in tests}
    print(f'quick set for {len(rows)} mutants that met all their tests:')
    quick, spent = [], 0
    while left:
        best = max(sorted(tests), key=lambda t: len(by[t] & left) / cost[t])
        left, spent = left - by[best], spent + cost[best]
        quick.append(best)
        print(f'{spent:7.1f} s {100 - 100 * len(left) / len(rows):5.1f} %  {best}')
    print('alone notice a mutant:', ', '.join(f'{t} {n}' for t, n in collections.Counter(next(iter(r.by)) for r in rows if len(r.by) == 1).most_common()))
    every = [f for d in ('unit', 'bats') for f in os.listdir(f'{TOP}/tests/{d}') if re.search(r'_test\.c$|\.bats$', f)]
    print('no mutant needs:', ' '.join(sorted({f.removesuffix('.c') for f in every} - set(quick))))


def main():
    opts = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('--matrix', '--score', '--cover', '--survivors'):
        opts.add_argument(name, action='store_true')
    for name, default in (('--count', 1 << 30), ('--minutes', 1 << 30), ('--unit', 60), ('--bats', 60), ('-j', 1)):
        opts.add_argument(name, type=int, default=default)
    opts.add_argument('--apply', metavar='ID')
    opts.add_argument('places', nargs='*', metavar='PLACE')
    o = opts.parse_args()
    if not (o.score or o.cover or o.survivors or o.apply):
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, lambda *_: over.set())
        return work(o)
    possible = {m.id: m for m in everything(TOP, o.places)}
    rows = {i: r for i, r in read_table().items() if i in possible and possible[i].text == r.text}
    if o.apply:
        m = possible[o.apply]
        lines = open(f'{TOP}/cowfs/{m.file}').readlines()
        open(f'{TOP}/cowfs/{m.file}', 'w').writelines(lines[:m.line] + [m.new] + lines[m.line + 1:])
    if o.score:
        score(rows, possible.values())
    if o.cover:
        cover(rows)
    for m in sorted(possible.values(), key=lambda m: (m.file, m.line)) if o.survivors else ():
        if m.id in rows and not rows[m.id].by:
            print(f'cowfs/{m.file}:{m.line + 1}: {m.id.split(":", 1)[1]}: {m.what}: {m.new.strip()} ({rows[m.id].unit} + {rows[m.id].bats} s)')


main()
