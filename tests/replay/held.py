#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Commits by RAM pressure beside a held generation, on ext3, ext4, btrfs and xfs under load, with a cut every few seconds.

Three writers read back past the page cache what they wrote. The first generation is held, and RAM is small, so commits come by pressure
only, each at its own moment, or with --commits at random moments as well. The worker is killed twice. The backing file of the card is on an xfs: every few seconds a reflink copy of it
is a power cut. From each copy the card is recovered without a daemon, and without a mount e2fsck -fn finds nothing in it, unless there are
orphans; a btrfs or xfs is mounted, which replays, and checked then. What was synced before the last commit that ended is there. In the end
nothing differs, live or on the card.

usage: held.py [--seconds S] [--seed N] [--ram SIZE] [--commits] [LAYOUT...]     as root; S for each layout
"""
import argparse, json, os, random, signal, struct, subprocess, tempfile, threading, time

from mounts import loop, run, unmount, with_own_mounts

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get('COWFS_BUILD', HERE + '/../../build'))
NOISE = HERE + '/../tools/noise.py'
LAYOUTS = {
    'ext4-4k': 'mke2fs -q -F -t ext4 -b 4096 -J size=16 IMG 400M',
    'ext4-1k': 'mke2fs -q -F -t ext4 -b 1024 -J size=8 IMG 400M',
    'ext3-4k': 'mke2fs -q -F -t ext3 -b 4096 -J size=8 IMG 400M',
    'btrfs': 'mkfs.btrfs -q -f -b 400M IMG',
    'xfs': 'mkfs.xfs -q -f -d size=400m IMG',
}
# those that a mount replays: its options, and what checks them then
MOUNTED = {'btrfs': ([], ['btrfs', 'check', '--check-data-csum']), 'xfs': (['-o', 'nouuid'], ['xfs_repair', '-n'])}
CUT_S = 4


def cow(*a, ok=(0,)):
    return run(BUILD + '/cowctl', *a, ok=ok).stdout


class Counter(threading.Thread):
    """Counts in two files: one is replaced, one is written in place. Each step is synced."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.n, self.committed, self.stop = folder, 0, 0, False

    def run(self):
        while not self.stop:
            for name, to in ('new', 'replaced'), ('in-place', None):
                fd = os.open(self.folder + '/' + name, os.O_WRONLY | os.O_CREAT)
                os.pwrite(fd, b'%08d' % (self.n + 1), 0)
                os.fsync(fd)
                os.close(fd)
                if to:
                    os.rename(self.folder + '/' + name, self.folder + '/' + to)
            self.n += 1
            time.sleep(.02)

    def commit(self):
        n = self.n
        cow('commit', 'held')
        self.committed = n

    def check(self, folder):
        for name in 'replaced', 'in-place':
            n = int(open(folder + '/' + name).read() if self.committed else 0)
            assert self.committed <= n <= self.n + 1, '%s: %d, committed %d, now %d' % (name, n, self.committed, self.n)


def check_mounted(name, dev, m, count):
    options, checker = MOUNTED[name]
    run('btrfs', 'device', 'scan', '--forget', dev, ok=None)  # or it is taken for the one that is mounted
    run('mount', *options, dev, m)
    try:
        count.check(m)
    finally:
        unmount(m)
    run(*checker, dev)


def cut_check(copy, tot, name, m, count):
    """The newest generation of a card after a cut."""
    dev = loop(copy)
    try:
        cow('accept', dev)
        cow('release', dev)
        if name in MOUNTED:
            tot['logs'] += name == 'btrfs' and any(open(dev, 'rb').read(65536 + 104)[-8:])
            check_mounted(name, dev, m, count)
            tot['cuts'] += 1
            return
        sb = open(dev, 'rb').read(2048)[1024:]
        orphans = struct.unpack_from('<I', sb, 0xe8)[0] or struct.unpack_from('<I', sb, 0x64)[0] & 0x10000
        if orphans:
            run('e2fsck', '-p', dev, ok=(0, 1))
        run('e2fsck', '-fn', dev)
        tot['cuts'] += 1
        tot['orphans'] += bool(orphans)
    finally:
        run('losetup', '-d', dev, ok=None)


def status():
    return json.loads(cow('status', '--json', 'held', ok=(0, 3)))


def layout(w, name, o):
    img, m = w + '/x/card', w + '/m'
    tot = dict(cuts=0, orphans=0, logs=0)
    dice = random.Random(o.seed)
    count = Counter(m)
    run('rm', '-f', img)
    run('truncate', '-s', '1800M', img)
    run(*LAYOUTS[name].replace('IMG', img).split())
    card = loop(img)
    writers = []
    try:
        cow('prepare', '--log-size', '1G', card)
        run('mount', cow('attach', '--ram', o.ram, '--name', 'held', card).split()[-1], m)
        run('cp', '-r', '/usr/include/linux', m)
        run('sync', '-f', m)
        cow('commit', '--hold', 'held')
        writers = [subprocess.Popen([NOISE, 'load', '%s/%d' % (m, i), str(o.seed + i)]) for i in range(3)]
        count.start()
        begin, n = time.time(), 0
        while time.time() < begin + o.seconds:
            until = time.time() + CUT_S
            while o.commits and time.time() < until:
                time.sleep(dice.random())
                count.commit()
            time.sleep(max(until - time.time(), 0))
            assert all(p.poll() is None for p in writers), 'a writer has ended'
            n += 1
            run('cp', '--reflink=always', img, w + '/x/cut')
            cut_check(w + '/x/cut', tot, name, w + '/c', count)
            if n in (2, 5):
                os.kill(int(open(os.environ['COWFS_RUNDIR'] + '/held/pid').read()), signal.SIGKILL)
        count.stop = True
        count.join()
        for i in range(3):
            open('%s/%d.stop' % (m, i), 'w').close()
        assert not any(p.wait(300) for p in writers), 'a writer read something else than it wrote'
        s = status()
        assert not s['alarm'], s['alarm']
        assert s['generation'] > 2, 'no commit by pressure'
        cow('accept', 'held')
        for i in range(3):
            run(NOISE, 'verify', '%s/%d' % (m, i), str(o.seed + i))
        unmount(m)
        cow('detach', 'held')
        cow('release', card)
        if name in MOUNTED:
            count.committed = count.n
            check_mounted(name, card, m, count)
        else:
            run('e2fsck', '-fn', card)
        print('%s: generation %d, %d cuts, %d of them with orphans, %d with a log tree' %
              (name, s['generation'], tot['cuts'], tot['orphans'], tot['logs']), flush=True)
    finally:
        count.stop = True
        for p in writers:
            p.kill()
        unmount(m)
        cow('accept', 'held', ok=None)
        cow('detach', '--discard', 'held', ok=None)
        run('losetup', '-d', card, ok=None)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--seconds', type=float, default=30)
    p.add_argument('--seed', type=int, default=int(os.environ.get('COWFS_SEED') or 1))
    p.add_argument('--ram', default='64M')
    p.add_argument('--commits', action='store_true')
    p.add_argument('layouts', nargs='*')
    o = p.parse_args()
    w = tempfile.mkdtemp(prefix='held.', dir='/var/tmp')
    os.environ['COWFS_RUNDIR'] = w + '/run'
    for d in ('run', 'x', 'm', 'c'):
        os.mkdir(w + '/' + d)
    try:
        run('truncate', '-s', '8G', w + '/xfs')
        run('mkfs.xfs', '-q', '-f', '-m', 'reflink=1', w + '/xfs')
        run('mount', '-o', 'loop', w + '/xfs', w + '/x')
        for name in o.layouts or LAYOUTS:
            layout(w, name, o)
    finally:
        unmount(w + '/x')
        if not os.path.exists(w + '/run/held'):
            run('rm', '-rf', w, ok=None)


with_own_mounts(main)
