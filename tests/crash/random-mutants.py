#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Breaks cowfs in random places, one at a time, and notes in mutants.tsv which tests notice it.

random-mutants.py [--matrix] [--count N] [--minutes N] [--unit S] [--bats S] [--tests REGEX] [-j N] [PLACE...]   (as root)
random-mutants.py --score | --cover | --survivors | --apply ID   [PLACE...]

A mutant is one operator, constant, condition or statement of a function; its ID is FILE:FUNCTION:NUMBER, and is void when the text of
the function changes. The rules that cowfs checks itself (RULE, INVARIANT) stay as they are. PLACE is the beginning of an ID: log/,
log/ring.c:ring_at. Rooms take turns, and the order is always the same.

One build of a copy of the source (build/mutants/tree) has all of them: a < b is (mutant(17) ? (a <= b) : (a < b)) there, and
COWFS_MUTANT=17 switches it on. What does not compile, or gives the same object, is skipped (build/mutants/skipped). First each test
runs once without a mutant and marks those that it reaches (build/mutants/tests.*; remove it to measure again). A mutant meets the
tests that reach it, first those that are quick and reach little else: of programs (unit tests, crash driver, corpora) as many as take
--unit seconds (60), of bats, each test by itself, --bats seconds (60). Seconds are those of CPU, because other work on the machine does
not change them. Without --matrix the first test that notices it is the last one; it must notice it twice. Interrupted, it goes on next
time.
"""
import argparse
import base64
import collections
import concurrent.futures
import fcntl
import functools
import glob
import hashlib
import os
import re
import select
import shlex
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
CRASH = {'crash': ['--no-attacks', '--images', '3000'], 'crash-long': ['--no-attacks', '--images', '20000'],
         'crash-attacks': ['--images', '1', '--thin', '16', '--forgeries', '1000']}
SWAPS = [('==', '!='), ('!=', '=='), ('<=', '<'), ('>=', '>'), ('<', '<='), ('>', '>='), ('&&', '||'), ('||', '&&'), ('+', '-'),
         ('-', '+'), ('+=', '-='), ('-=', '+='), ('++', '--'), ('|=', '&=')]
ASSIGNS = '= += -= *= /= %= &= |= ^= <<= >>='.split()
TOKEN = re.compile(r'<<=|>>=|->|\+\+|--|[-+*/%&|^=!<>]=|&&|\|\||<<|>>|\w+|\S')
HIDDEN = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|^#(?:\\\n|[^\n])*', re.S | re.M)
# The place of new in the text of its file, and the expression or statement around it.
Mutant = collections.namedtuple('Mutant', 'id what text file start end new whole')
Row = collections.namedtuple('Row', 'id text mode unit bats seconds by')

# A namespace in which one test after another runs, each a line "SECONDS COMMAND": its processes, mounts and scratch files end with it, and
# so do loop devices on those files and on volumes of its daemons. A line more stops it. The answer: its code, and hundredths of a
# second of CPU.
BOX = r'''
echo 1000 >/proc/self/oom_score_adj
mount -t tmpfs -o size=3g,mode=1777 mutants /tmp && mount --bind /tmp /dev/shm || exit 125
fuse() { awk '/ - fuse\.?[^c.]/ { print $3 }' "$@" 2>/dev/null | sort -u; }
before=$(fuse /proc/self/mountinfo)
tmp=$(mountpoint -d /tmp)
clean() {
	losetup -nl -O NAME,BACK-MAJ:MIN | while read -r dev on; do
		[[ " $* " != *" $on "* ]] || { blockdev --setrw "$dev"; losetup -d "$dev"; }
	done
	findmnt -rno TARGET | grep '^/tmp/' | tac | xargs -r umount -l 2>/dev/null
	find /tmp -mindepth 1 -delete
}
shopt -s dotglob nullglob
exec 3<&0
while read -r cpu command <&3; do
	[ "$cpu" != stop ] || continue # of one that had ended by itself
	read -r -a begun </proc/1/stat
	(ulimit -Sc 0 -t "$cpu"; exec env --default-signal $command) </dev/null >&2 3<&- & test=$!
	read -r _ <&3 & wait -n -p ended; code=$?
	own=$(fuse /proc/[0-9]*/mountinfo | grep -vxF "${before:-none}")
	kill -9 -1
	wait
	files=(/tmp/*)
	[ ${#files[@]}${own} = 0 ] || clean "$tmp" $own
	[[ $ended == "$test" ]] || code=stopped
	read -r -a ended </proc/1/stat
	echo "$code $((ended[15] + ended[16] - begun[15] - begun[16]))"
done
clean "$tmp"
'''
over = threading.Event()


# ---- mutants ----

class Source:
    """The tokens of a file: (text, begin, end), without comments and lines of the preprocessor; a text is a word."""
    def __init__(self, raw):
        self.raw = raw
        self.plain = HIDDEN.sub(lambda m: re.sub(r'[^\n]', '_' if m[0][0] in '"\'' else ' ', m[0]), raw)
        self.tokens = [(m[0], m.start(), m.end()) for m in TOKEN.finditer(self.plain)]
        self.pair, stack = {}, []
        for i, (t, _, _) in enumerate(self.tokens):
            if t in '([{':
                stack.append(i)
            elif t in ')]}' and stack:
                self.pair[i] = stack[-1]
                self.pair[stack.pop()] = i

    def spaced(self, i):
        _, a, b = self.tokens[i]
        return self.plain[a - 1].isspace() and self.plain[b].isspace()

    def around(self, i):
        """The whole expression with operator i, up to a bracket, a comma, or the value that it is assigned to."""
        k, n = i - 1, i + 1
        while True:
            t = self.tokens[k][0]
            if t == ')' and k + 1 < i:  # an operand follows: is this a cast, or the head of a statement?
                head, follows = self.tokens[self.pair[k] - 1][0], self.tokens[k + 1][0]
                if head in ('if', 'while', 'for', 'switch') or re.match(r'\w', head) and re.match(r'\w', follows) and head not in ('return', 'sizeof'):
                    break
            if t in (')', ']'):
                k = self.pair[k]
            elif t in ('(', '[', '{', '}', ';', ',', 'return', 'case', 'else', 'do', *ASSIGNS) or t == ':' and not self.spaced(k):
                break
            k -= 1
        while self.tokens[n][0] not in (')', ']', '}', ',', ';') and (self.tokens[n][0] != ':' or self.spaced(n)):
            n = self.pair[n] + 1 if self.tokens[n][0] in ('(', '[', '{') else n + 1
        return self.tokens[k + 1][1], self.tokens[n - 1][2]

    def operators(self, tokens):
        """(what, start, end, new, whole) for each operator and number."""
        for i in tokens:
            t, a, b = self.tokens[i]
            for old, new in SWAPS:
                if t == old and (t in ('++', '--') or self.spaced(i)):
                    yield f'{old} is {new}', a, b, new, self.around(i)
            if re.fullmatch(r'\d+u?', t):
                yield f'{t} is one more', a, b, f'({t} + 1)', (a, b)

    def lines(self, line, at, i):
        """The same for what a line is as a whole, whose first token is i."""
        m = re.fullmatch(r'\t+(?:if|while) \((.*)\)(?: \{)?\n', line)
        if m:
            yield 'the condition is turned', at + m.start(1), at + m.end(1), f'!({m[1]})', (at + m.start(1), at + m.end(1))
        m = re.fullmatch(r'\t+(([^=]*\w[\])]* (?:[+|&-]?=) .*|\w[\w>.-]*\(.*\));)\n', line)
        if m and self.tokens[i - 1][0] in (';', '{', '}', ')', ':', 'else', 'do') and not re.match(r'\t+(?:\w+ )+\**\w', line):
            yield 'the statement is gone', at + m.start(1), at + m.end(1), ';', (at + m.start(1), at + m.end(1))
        m = re.fullmatch(r'\t+return (r|false|true|0|-E\w+);\n', line)
        if m:
            new = {'r': '0', 'false': 'true', 'true': 'false', '0': '-EIO'}.get(m[1], '0')
            yield f'returns {new} for {m[1]}', at + m.start(1), at + m.end(1), new, (at + m.start(1), at + m.end(1))


def mutants_of(top, file):
    """Those of a file: lines inside of functions, without comments, rules and texts."""
    source = Source(open(f'{top}/cowfs/{file}').read())
    lines, name, first, at, i = source.raw.splitlines(True), '', None, 0, 0
    for n, line in enumerate(lines):
        plain = source.plain[at:at + len(line)]
        here = []
        while i < len(source.tokens) and source.tokens[i][1] < at + len(line):
            here.append(i)
            i += 1
        if line[0].isalpha() or line[0] == '_':
            name = next((w for w in re.findall(r'(\w+)\(', line) if w != '__attribute__'), name)
        if line.startswith('{'):
            end = next(i for i in range(n, len(lines)) if lines[i].startswith('}'))
            first, number, text = n, 0, f'{zlib.crc32("".join(lines[n:end]).encode()):08x}'
        elif line.startswith('}'):
            first = None
        elif first is not None and here and not re.search(r'RULE\(|INVARIANT\(|assert|"|ARRAY_SIZE', line):
            for what, a, b, new, whole in [*source.operators(here), *source.lines(plain, at, here[0])]:
                number += 1
                if 'LOCKED(' in line:
                    continue  # a lock that ends with its block cannot be in one of its own
                yield Mutant(f'{file}:{name}:{number}', what, text, file, a, b, new, whole)
        at += len(line)


def everything(top, places):
    """Mutants of these places, rooms in turns; the order of two does not depend on the others."""
    rooms = []
    for room in sorted(os.listdir(f'{top}/cowfs')):
        files = sorted(f'{room}/{f}' for f in os.listdir(f'{top}/cowfs/{room}') if f.endswith('.c'))
        its = [m for f in files for m in mutants_of(top, f) if not places or m.id.startswith(tuple(places))]
        rooms.append(sorted(its, key=lambda m: hashlib.sha1((m.id + m.text).encode()).digest()))
    return [its[i] for i in range(max(map(len, rooms))) for its in rooms if i < len(its)]


def applied(raw, m):
    return raw[:m.start] + m.new + raw[m.end:]


def schema(raw, mutants):
    """The text of a file with all these (number, mutant); its lines stay where they are."""
    opens, closes, left = collections.defaultdict(str), collections.defaultdict(str), []
    for number, m in sorted(mutants, key=lambda x: (x[1].whole[0], -x[1].whole[1], x[0])):
        a, b = m.whole
        while left and left[-1] <= a:
            left.pop()
        if left and left[-1] < b or '\n#' in raw[a:b]:
            continue  # not a tree
        left.append(b)
        gone = m.new == ';'
        other = re.sub(r'\s+', ' ', raw[a:m.start] + m.new + raw[m.end:b])
        opens[a] += f'{{ if (!mutant({number})) ' if gone else f'(mutant({number}) ? ({other}) : ('
        closes[b] = (' }' if gone else '))') + closes[b]
    out, at = [], 0
    for i in sorted({*opens, *closes}):
        out += [raw[at:i], closes[i], opens[i]]
        at = i
    return ''.join(out) + raw[at:]


# ---- the table ----

def read_table():
    """Rows, and what a run of each test takes. A line has the mutants of a room: FILE:NAME:NUMBER TEXT MODE UNIT BATS SECONDS TESTS."""
    rows, cost = {}, {}
    for room, *its in (line.split('\t') for line in (open(TABLE).read().splitlines() if os.path.exists(TABLE) else ())):
        if room == '# seconds':
            cost = {t: float(s) for t, s in (x.split('=') for x in its)}
        elif room[0] != '#':
            for i, text, mode, unit, bats, seconds, by in (x.split(' ') for x in its):
                rows[f'{room}/{i}'] = Row(f'{room}/{i}', text, mode, int(unit), int(bats), float(seconds), by.split(',') if by else [])
    return rows, cost


def write_table(rows, cost):
    with open(TABLE + '.new', 'w') as f:
        f.write('# random-mutants.py: a room and its mutants (FILE:FUNCTION:NUMBER TEXT MODE UNIT BATS SECONDS TESTS)\n# seconds')
        f.writelines(f'\t{t}={s:.2f}' for t, s in sorted(cost.items()))
        of = ''
        for i, r in sorted(rows.items()):
            room, name = i.split('/', 1)
            f.write('\t' if room == of else f'\n{room}\t')
            f.write(' '.join([name, *map(str, r[1:5]), f'{r.seconds:.2f}', ','.join(r.by)]))
            of = room
        f.write('\n')
    os.rename(TABLE + '.new', TABLE)


# ---- one build with all mutants, and tests in it ----

def bats_tests():
    """{FILE:SUM: name} of each test of bats"""
    of = {f: re.findall(r'^@test "(.*)" \{', open(f'{TOP}/tests/bats/{f}').read(), re.M) for f in sorted(glob.glob('*.bats', root_dir=f'{TOP}/tests/bats'))}
    return {f'{f}:{zlib.crc32(name.encode()):08x}': name for f, names in of.items() for name in names}


def is_bats(test):
    return '.bats:' in test


def waits_for_machine(pid):
    """Does the process or one below it compute, or wait for a CPU or a disk? Time in which none does is the only one that can be too long."""
    try:
        tasks = [f'/proc/{pid}/task/{t}/' for t in os.listdir(f'/proc/{pid}/task')]
        return any(open(t + 'stat').read().rpartition(')')[2][1] in 'RD' or any(map(waits_for_machine, open(t + 'children').read().split())) for t in tasks)
    except OSError:
        return True


class Build:
    """A copy of the tree whose programs have all mutants in them; COWFS_MUTANT=NUMBER is on."""
    def __init__(self):
        self.dir, self.all = f'{CACHE}/tree', everything(TOP, [])
        self.number = {m.id: n for n, m in enumerate(self.all, 1)}
        self.skipped = set(open(f'{CACHE}/skipped').read().split('\n')) if os.path.exists(f'{CACHE}/skipped') else set()
        self.key = f'{zlib.crc32(repr([(m.id, m.text) for m in self.all]).encode()):08x}'
        self.compilers, self.plain, self.size = {}, {}, len(self.all) + 65536 & -65536

    def skip(self, m):
        self.skipped.add(f'{m.id} {m.text}')
        print(m.id, m.text, file=open(f'{CACHE}/skipped', 'a'))

    def is_skipped(self, m):
        return f'{m.id} {m.text}' in self.skipped

    def make(self, *targets):
        return subprocess.run(['make', '-s', f'-j{os.cpu_count()}', 'SMALL=', f'CFLAGS=-O1 -w -fdiagnostics-column-unit=byte -include {CACHE}/mutant.h', f'LDFLAGS={CACHE}/mutant.o', *targets],
                              cwd=self.dir, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env=dict(os.environ, PATH='/usr/lib/ccache:' + os.environ['PATH']), start_new_session=True)

    def write(self, path, text):
        if not os.path.exists(path) or open(path).read() != text:
            open(path, 'w').write(text)

    def build(self):
        """Without those that do not compile: the errors name their places."""
        subprocess.run(['rsync', '-rlpc', '--delete', '--exclude=/build*', '--exclude=.git', '--exclude=/cowfs/*/*.c', f'{TOP}/', self.dir], check=True)
        subprocess.run(['cc', '-O2', f'-DMUTANTS={self.size}', '-c', f'{TOP}/tests/called/mutant.c', '-o', f'{CACHE}/mutant.o'], check=True)
        self.write(f'{CACHE}/mutant.h', f'extern unsigned char mutant_marks[{self.size}]; extern int mutant_on;\n'
                   '#define mutant(n) (mutant_marks[n] = 1, mutant_on == (n))\n')
        of = {f'cowfs/{f}': [] for f in glob.glob('*/*.c', root_dir=f'{TOP}/cowfs')}
        for n, m in enumerate(self.all, 1):
            of[f'cowfs/{m.file}'].append((n, m))
        for old in glob.glob(f'{self.dir}/cowfs/*/*.c'):
            if not os.path.exists(old.replace(self.dir, TOP)):
                os.remove(old)
        while True:
            for file, its in of.items():
                self.write(f'{self.dir}/{file}', schema(open(f'{TOP}/{file}').read(), [x for x in its if not self.is_skipped(x[1])]))
            done, wrong = self.make('-k', 'all'), set()
            if not done.returncode:
                return
            for file, line, column in set(re.findall(r'^(cowfs/\S+\.c):(\d+):(\d+): error:', done.stderr, re.M)):
                lines, n = open(f'{self.dir}/{file}').readlines(), int(line) - 1
                before, after = lines[n][:int(column) + 6], lines[n][int(column) + 6:]
                found = re.findall(r'mutant\((\d+)', before)[-1:] or re.findall(r'mutant\((\d+)', after)[:1]
                found = found or re.findall(r'mutant\((\d+)', ''.join(lines[:n]))[-1:] + re.findall(r'mutant\((\d+)', ''.join(lines[n:]))[:1]
                wrong |= {int(n) for n in found}
            if not wrong:
                sys.exit(f'mutants: {done.stderr}')
            print(f'mutants: {len(wrong)} do not compile', flush=True)
            for n in wrong:
                self.skip(self.all[n - 1])

    def is_equal(self, m):
        """Does the compiler make the same of the mutant?"""
        if m.file not in self.compilers:
            said = self.make('-n', 'V=1', '-W', f'cowfs/{m.file}', f'build/obj/cowfs/{m.file[:-1]}o').stdout
            words = shlex.split(re.search(r'\S*(?:cc|clang) (-std.*?) -MMD', said)[1])
            self.compilers[m.file] = ['cc', *(w for w in words if w != '-include' and not w.endswith('mutant.h')),
                                      '-iquote', f'cowfs/{os.path.dirname(m.file)}', '-x', 'c', '-S', '-o', '-', '-']
        raw = open(f'{TOP}/cowfs/{m.file}').read()

        def compiled(text):
            return subprocess.run(self.compilers[m.file], cwd=self.dir, input=text, capture_output=True, text=True, check=False).stdout

        self.plain[m.file] = self.plain.get(m.file) or compiled(raw)
        return compiled(applied(raw, m)) == self.plain[m.file]

    def commands(self):
        """{test: command}"""
        tests = {t: ['build/tests/crash', *args] for t, args in CRASH.items()}
        for f in sorted(os.listdir(f'{self.dir}/build/tests')):
            if f.endswith('_test'):
                tests[f] = [f'build/tests/{f}']
            elif re.fullmatch(r'fuzz_\w+', f):
                tests[f] = [f'build/tests/{f}', f'tests/fuzz/corpus/{f[5:]}', '100']
        # the filter is a word for BOX: it has no spaces, quotes or patterns
        return {**tests, **{t: ['bats', '--tap', '--filter', '^' + re.sub(r'\W', '.', name) + '$', f'tests/bats/{t.split(":")[0]}']
                            for t, name in bats_tests().items()}}

    def measure(self, o):
        """Runs what was not measured yet: {test: (seconds of CPU, of rest, marks)}; no seconds if it fails or takes longer than these."""
        path, commands, known = f'{CACHE}/tests.{self.key}', self.commands(), {}
        for line in open(path) if os.path.exists(path) else ():
            test, *known[test] = line.split()

        def one(test):
            with tempfile.NamedTemporaryFile(dir=CACHE) as marks, Box(self.dir) as box:
                marks.truncate(self.size)
                os.chmod(marks.name, 0o666)
                limit = o.bats if is_bats(test) else o.unit
                why, cpu, rested = ('stopped', 0, 0) if over.is_set() else box.run([f'COWFS_MUTANT_MARKS={marks.name}', *commands[test]], limit + 1, 200)
                return test, why, cpu, rested, open(marks.name, 'rb').read()

        missing = [t for t in commands if t not in known and re.match(o.tests, t) and (o.bats or not is_bats(t))]
        with concurrent.futures.ThreadPoolExecutor(o.j) as pool, open(path, 'a') as out:
            for test, why, cpu, rested, seen in pool.map(one, missing):
                if why != 'stopped':
                    known[test] = 'None' if why else cpu, rested, base64.b64encode(zlib.compress(seen)).decode()
                    print(f'measured: {test}: {why or "ok"}, {cpu} s of CPU, {rested} s of rest, {sum(seen)} mutants', flush=True)
                    print(test, *known[test], file=out, flush=True)
        return {t: (None if k[0] == 'None' else float(k[0]), float(k[1]), zlib.decompress(base64.b64decode(k[2]))) for t, k in known.items() if t in commands}


class Box:
    """Runs commands in BOX, with a deadline each; it is a new one after a bats file and a hundred programs."""
    def __init__(self, dir):
        self.dir, self.left, self.p = dir, 0, None
        self.out = tempfile.TemporaryFile(dir=CACHE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.out.close()

    def begin(self):
        self.end()
        env = dict(os.environ, COWFS_ON_CRASH='stop', COWFS_SECCOMP='kill', COWFS_BUILD=f'{self.dir}/build')
        self.p = subprocess.Popen(['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', '--propagation', 'private', 'bash', '-c', BOX],
                                  cwd=self.dir, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.out, start_new_session=True)
        self.left = 100

    def end(self):
        if self.p:
            self.p.stdin.close()
            if self.p.wait() == 125:
                sys.exit('mutants: no namespaces here: run it as root')
            self.p.stdout.close()

    def run(self, command, cpu, rest):
        """(0, or why it failed; seconds of CPU; seconds in which it rested): stopped at its first failure, and after so many seconds."""
        if self.left <= 0:
            self.begin()
        self.left = 0 if 'bats' in command else self.left - 1
        why, rested, begun = None, 0, time.monotonic()
        last = begun
        self.out.truncate(0)
        self.p.stdin.write(f'{cpu} {" ".join(command)}\n'.encode())
        self.p.stdin.flush()
        while not select.select([self.p.stdout], [], [], 0.2)[0]:
            now, size = time.monotonic(), os.fstat(self.out.fileno()).st_size
            rested, last = rested + (0 if waits_for_machine(self.p.pid) else now - last), now
            said = os.pread(self.out.fileno(), 4000, max(0, size - 4000)).decode(errors='replace')
            if not why and (re.search(r'^not ok|^\[  FAILED  \]', said, re.M) or rested > rest or now - begun > 900 or over.is_set()):
                why = 'stopped' if over.is_set() else 'too long' if rested > rest or now - begun > 900 else 'failed'
                self.p.stdin.write(b'stop\n')
                self.p.stdin.flush()
        code, ticks = self.p.stdout.readline().decode().split() or ('dead', 0)
        return why or (0 if code == '0' else code), int(ticks) / 100, round(rested, 1)


def judge(build, box, m, tests, known, all):
    """(tests that notice it, seconds until the first did); None if interrupted"""
    by, spent, first, number, commands = [], 0.0, 0.0, build.number[m.id], build.commands()
    for test in tests:
        limits = int(4 * known[test][0]) + 2, 2 * known[test][1] + 4
        for again in (False, True):
            why, took, _ = box.run([f'COWFS_MUTANT={number}', *commands[test]], *limits)
            spent += 0 if again else took
            if over.is_set():
                return None
            if not why or by or why == 'too long' and not is_bats(test) or took >= limits[0]:
                break
        if why:
            first = first or spent
            by.append(test)
            if not all:
                break
    return by, first or spent


def candidates(n, known, o, old, luck, focus):
    """Tests that reach mutant n and that the table does not know of, within each of the two limits: those first that noticed most of its
    file in a second, are quick, or reach little else."""
    again, chosen = not old or (o.matrix and old.mode == 'first'), []
    for bats, left, had in ((False, o.unit, old and old.unit), (True, o.bats, old and old.bats)):
        for test, (took, _, marks) in sorted(known.items(), key=lambda x: ((x[1][0] or 0) + 0.02) / (1 + 20 * luck[x[0]]) / (0.01 + focus[x[0]])) if again or had < left else ():
            if is_bats(test) == bats and took is not None and marks[n] and took <= left:
                chosen.append(test)
                left -= took
    return chosen


def is_done(row, o):
    """Does the table have an answer to this call?"""
    return row.by and not o.matrix or (row.mode == 'all' or not o.matrix) and row.unit >= o.unit and row.bats >= o.bats


def work(o):
    os.makedirs(CACHE, exist_ok=True)
    end = time.monotonic() + 60 * o.minutes
    made, lock, alone = 0, threading.Lock(), open(f'{CACHE}/lock', 'w')
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    build = Build()
    build.build()
    known = {t: k for t, k in build.measure(o).items() if re.match(o.tests, t)}
    if over.is_set():
        return
    rows, cost = read_table()
    texts = {m.id: m.text for m in build.all}
    rows = {i: r for i, r in rows.items() if texts.get(i) == r.text}
    chosen = [m for m in build.all if not o.places or m.id.startswith(tuple(o.places))]
    todo = iter([m for m in chosen if not build.is_skipped(m) and not (m.id in rows and is_done(rows[m.id], o))])
    cost.update({t: k[0] for t, k in known.items() if k[0] is not None})
    luck = collections.defaultdict(collections.Counter)
    for i, r in rows.items():
        luck[i.split(':')[0]].update(r.by[:1])
    reached = {t: sum(k[2]) + 1 for t, k in known.items()}
    print(f'mutants: {len(chosen)} possible here, {len(rows)} in the table', flush=True)

    @functools.cache
    def focus(file):
        """{test: the part of what it reaches that is in the file}"""
        its = [n for n, m in enumerate(build.all, 1) if m.file == file]
        return {t: sum(k[2][n] for n in its) / reached[t] for t, k in known.items()}

    def loop():
        with Box(build.dir) as box:
            while go_on(box):
                pass

    def go_on(box):
        nonlocal made
        with lock:
            m = next(todo, None) if made < o.count and time.monotonic() < end else None
            if not m or over.is_set():
                return False
            old = rows.get(m.id)
            tests = candidates(build.number[m.id], known, o, old, luck[m.file], focus(m.file))
        verdict = tests and judge(build, box, m, tests, known, o.matrix)
        equal = verdict and not verdict[0] and not old and build.is_equal(m)
        with lock:
            if equal:
                build.skip(m)
            elif verdict:
                by, seconds = verdict
                luck[m.file].update(by[:1])
                if old and not (o.matrix and old.mode == 'first'):
                    by, seconds = [*old.by, *by], old.seconds if old.by else old.seconds + seconds
                rows[m.id] = Row(m.id, m.text, 'all' if o.matrix else 'first', o.unit, o.bats, seconds, by)
                write_table(rows, cost)
                made += 1
                print(f'{made:4} {len(by):3} of {len(tests):3} {seconds:6.1f} s {m.id}: {m.what}: {" ".join(by) or "NOT NOTICED"}', flush=True)
        return True

    threads = [threading.Thread(target=loop) for _ in range(o.j)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


# ---- what the table says ----

def score(rows, possible):
    count = [collections.Counter(i.split('/')[0] for i in ids) for ids in ([m.id for m in possible], rows, [i for i, r in rows.items() if r.by])]
    for room in [*sorted(count[0]), None]:
        total, made, noticed = (c[room] if room else sum(c.values()) for c in count)
        print(f'{room or "all":10} {noticed:5} of {made:5} noticed {100 * noticed // max(made, 1):4} %   ({total} possible)')


def cover(rows, cost):
    rows = [r for r in rows.values() if r.mode == 'all' and r.by]
    left, tests, names = set(range(len(rows))), {t for r in rows for t in r.by}, bats_tests()
    by = {t: {i for i, r in enumerate(rows) if t in r.by} for t in tests}
    print(f'quick set for {len(rows)} mutants that met all their tests:')
    quick, spent = [], 0
    while left:
        best = max(sorted(tests), key=lambda t: len(by[t] & left) / (cost[t] + 0.1))
        left, spent = left - by[best], spent + cost[best]
        quick.append(best)
        print(f'{spent:7.1f} s {100 - 100 * len(left) / len(rows):5.1f} %  {best} {names.get(best, "")}')
    print('alone notice a mutant:', ', '.join(f'{t} {n}' for t, n in collections.Counter(r.by[0] for r in rows if len(r.by) == 1).most_common()))
    print('no mutant needs:', *(f'{t} {names.get(t, "")}' for t in sorted(set(cost) - set(quick))), sep='\n')


def main():
    opts = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('--matrix', '--score', '--cover', '--survivors'):
        opts.add_argument(name, action='store_true')
    for name, default in (('--count', 1 << 30), ('--minutes', 1 << 30), ('--unit', 60), ('--bats', 60), ('-j', 1)):
        opts.add_argument(name, type=int, default=default)
    opts.add_argument('--apply', metavar='ID')
    opts.add_argument('--tests', default='', metavar='REGEX')
    opts.add_argument('places', nargs='*', metavar='PLACE')
    o = opts.parse_args()
    if not (o.score or o.cover or o.survivors or o.apply):
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, lambda *_: over.set())
        return work(o)
    possible = {m.id: m for m in everything(TOP, o.places)}
    rows, cost = read_table()
    rows = {i: r for i, r in rows.items() if i in possible and possible[i].text == r.text}
    if o.apply:
        m = possible[o.apply]
        raw = open(f'{TOP}/cowfs/{m.file}').read()
        open(f'{TOP}/cowfs/{m.file}', 'w').write(applied(raw, m))
    if o.score:
        score(rows, possible.values())
    if o.cover:
        cover(rows, cost)
    for m in sorted(possible.values(), key=lambda m: (m.file, m.start)) if o.survivors else ():
        if m.id in rows and not rows[m.id].by:
            raw = open(f'{TOP}/cowfs/{m.file}').read()
            line = applied(raw, m)[raw.rfind('\n', 0, m.start) + 1:].split('\n')[0].strip()
            print(f'cowfs/{m.file}:{raw.count(chr(10), 0, m.start) + 1}: {m.id.split(":", 1)[1]}: {m.what}: {line} ({rows[m.id].unit} + {rows[m.id].bats} s)')


main()
