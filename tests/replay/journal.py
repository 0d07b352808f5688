#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Journals of the kernel at random moments under load: cowfs's replay against that of e2fsck.

A file system on a loop device over a file of an xfs: a reflink copy of this file is one moment, each answered write whole. Of
each moment two copies are made. cowfs replays one, in memory, and fsmap_dump writes what changes; e2fsck -E journal_only the
other; if there are orphans it frees them in both. They must be equal, but for times, counters and totals of the superblock. Then e2fsck -fn finds nothing in cowfs's copy; with orphans, after a mount.

usage: journal.py [--seconds S] [--seed N] [LAYOUT...]     as root; S for each layout
"""
import argparse, os, random, re, struct, tempfile, threading, time

from mounts import loop, run, unmount, with_own_mounts

BUILD = os.environ.get('COWFS_BUILD', 'build')
# name: size in MiB, options of mke2fs, options of mount
LAYOUTS = {
    'ext3-1k': (96, '-t ext3 -b 1024 -J size=4', ''),
    'ext3-2k': (128, '-t ext3 -b 2048 -J size=8', ''),
    'ext3-4k': (192, '-t ext3 -b 4096 -J size=8', ''),
    'ext3-v1': (192, '-t ext3 -b 4096 -J size=8', '-t ext4 -o journal_checksum'),
    'ext3-data': (192, '-t ext3 -b 4096 -J size=16', '-o data=journal'),
    'ext4-1k': (96, '-t ext4 -b 1024 -J size=4', ''),
    'ext4-2k': (128, '-t ext4 -b 2048 -J size=8', ''),
    'ext4-4k': (192, '-t ext4 -b 4096 -J size=4', ''),
    'ext4-16m': (192, '-t ext4 -b 4096 -J size=16', ''),
    'ext4-128m': (400, '-t ext4 -b 4096 -J size=128', ''),
    'no-csum': (192, '-t ext4 -b 4096 -O ^metadata_csum -J size=8', ''),
    'no-csum-v1': (96, '-t ext4 -b 1024 -O ^metadata_csum,^64bit -J size=8', '-o journal_checksum'),
    'no-64bit': (192, '-t ext4 -b 4096 -O ^64bit -J size=8', ''),
    'csum-seed': (192, '-t ext4 -b 4096 -O metadata_csum_seed -J size=8', ''),
    'orphan-file': (192, '-t ext4 -b 4096 -O orphan_file -J size=8', ''),
    'bigalloc': (256, '-t ext4 -b 4096 -O bigalloc -C 16384 -J size=8', ''),
    'meta-bg': (192, '-t ext4 -b 1024 -O meta_bg,^resize_inode -J size=8', ''),
    'no-flex': (192, '-t ext4 -b 4096 -O ^flex_bg -J size=8', ''),
    'data-journal': (192, '-t ext4 -b 4096 -J size=16', '-o data=journal'),
}
os.environ['E2FSCK_TIME'] = '1700000000'  # of the inodes that it frees
SHORT = ['ext3-1k', 'ext4-4k', 'orphan-file']


def load(d, stop, seed):
    """Creates, appends, truncates, renames, links and removes files with content that looks like jbd2's blocks now and then."""
    rnd, names = random.Random(seed), []
    while not stop.is_set():
        try:
            x = rnd.random()
            if x < .4 or not names:
                p = '%s/d%d' % (d, rnd.randrange(40))
                os.makedirs(p, exist_ok=True)
                names.append('%s/f%d-%d' % (p, seed, rnd.randrange(10**9)))
                with open(names[-1], 'wb') as f:
                    data = os.urandom(rnd.choice((10, 3000, 20000, 200000)))
                    f.write((b'\xc0\x3b\x39\x98' if rnd.random() < .3 else b'') + data)
                    if rnd.random() < .2:
                        os.fsync(f.fileno())
            elif x < .6:
                with open(rnd.choice(names), 'r+b') as f:
                    f.seek(rnd.randrange(50000))
                    f.write(os.urandom(rnd.choice((1, 5000, 60000))))
                    if rnd.random() < .3:
                        os.fsync(f.fileno())
            elif x < .8:
                p = names.pop(rnd.randrange(len(names)))
                if rnd.random() < .02:  # an orphan for some moments
                    with open(p, 'rb'):
                        os.unlink(p)
                        time.sleep(rnd.random() / 5)
                else:
                    os.unlink(p)
            elif x < .88:
                os.truncate(rnd.choice(names), rnd.randrange(30000))
            elif x < .94:
                p = names.pop(rnd.randrange(len(names)))
                os.rename(p, p + 'r')
                names.append(p + 'r')
            elif x < .97:
                os.setxattr(rnd.choice(names), 'user.a', os.urandom(rnd.choice((10, 900))))
            else:
                p = rnd.choice(names)
                os.symlink('x' * rnd.choice((10, 300)), p + 'l')
                names.append(p + 'l')
        except OSError:
            for p in names[:40]:
                try:
                    os.unlink(p)
                except OSError:
                    pass
            del names[:40]


def masked(path):
    """The image, without the fields of its superblock that e2fsck sets besides, or cowfs sums."""
    b = bytearray(open(path, 'rb').read())
    sb = 1024
    for off, n in ((0x30, 4), (0x40, 4), (0x178, 8), (0x3fc, 4), (0x0c, 4), (0x158, 4), (0x10, 4), (0x274, 2), (0x277, 1)):
        b[sb + off:sb + off + n] = bytes(n)
    b[sb + 0x66] &= ~1  # s_feature_ro_compat: orphan_present
    if b[sb + 0x60] & 16:  # s_feature_incompat: meta_bg, whose second and third copies of descriptors are not the kernel's, but e2fsck's
        bs = 1024 << b[sb + 0x18]
        for i, at in enumerate(re.findall(r'Group descriptor at (\d+)', run('dumpe2fs', path).stdout)):
            if i % 3:
                b[int(at) * bs:(int(at) + 1) * bs] = bytes(bs)
    return bytes(b)


def orphans(path):
    b = open(path, 'rb').read(4096)
    return struct.unpack_from('<I', b, 1024 + 0xe8)[0] or struct.unpack_from('<I', b, 1024 + 0x64)[0] & 0x10000


def check(w, moment, tot):
    """One moment."""
    ours, theirs = w + '/x/ours', w + '/x/theirs'
    for c in (ours, theirs):
        # a new file: mount takes the loop device of an old one again, and its cache, if a program has that device open
        run('rm', '-f', c)
        run('cp', '--reflink=always', moment, c)
    us, units = run(BUILD + '/tests/fsmap_dump', '-r', moment, ours).stdout.split()
    left = orphans(ours)
    run('cp', '--reflink=always', ours, w + '/x/freed')
    for c in [theirs] + [w + '/x/freed'] * bool(left):
        run('e2fsck', '-y', '-E', 'journal_only', c, ok=(0, 1))
    a, b = masked(w + '/x/freed'), masked(theirs)
    if a != b:
        bad = [i for i in range(0, len(a), 1024) if a[i:i + 1024] != b[i:i + 1024]]
        raise SystemExit('%s: %d KiB differ: %s' % (moment, len(bad), [i // 1024 for i in bad[:20]]))
    if left:
        dev = loop(ours)
        try:
            run('mount', '-w', dev, w + '/n')
            unmount(w + '/n')
        finally:
            run('losetup', '-d', dev)
    run('e2fsck', '-fn', ours)
    tot['moments'] += 1
    tot['units'] += int(units)
    tot['orphans'] += bool(left)
    tot['replayed'] += units != '0'
    tot['us'] = max(tot['us'], int(us))


def layout(w, name, seconds, seed):
    mib, mkfs, options = LAYOUTS[name]
    img, dev, rnd, stop, n = w + '/x/img', None, random.Random(seed), threading.Event(), 0
    tot = dict(moments=0, units=0, orphans=0, replayed=0, us=0)
    run('rm', '-f', img)
    run('truncate', '-s', '%dM' % mib, img)
    if run('mke2fs', '-q', '-F', *mkfs.split(), img, ok=None).returncode:
        print('%s: not known here' % name)
        return
    try:
        dev = loop(img, '--direct-io=on')
        run('mount', '-w', *options.split(), dev, w + '/m')
        threads = [threading.Thread(target=load, args=(w + '/m', stop, seed + i)) for i in range(3)]
        [t.start() for t in threads]
        end = time.time() + seconds
        while time.time() < end or n < 3:
            time.sleep(rnd.choice((.02, .3, 1.0)))
            if rnd.random() < .5:
                run('sync', '-f', w + '/m')
            n += 1
            run('cp', '--reflink=always', img, w + '/x/s%d' % n)
        stop.set()
        [t.join() for t in threads]
    finally:
        stop.set()
        unmount(w + '/m')
        if dev:
            run('losetup', '-d', dev, ok=None)
    for k in range(1, n + 1):
        check(w, w + '/x/s%d' % k, tot)
        os.unlink(w + '/x/s%d' % k)
    print('%s: %d moments, %d with a journal, %d with orphans, %d units, at most %d ms of CPU for a list' % (
        name, tot['moments'], tot['replayed'], tot['orphans'], tot['units'], tot['us'] // 1000), flush=True)
    assert tot['replayed'], name


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--seconds', type=float, default=10)
    p.add_argument('--seed', type=int, default=int(os.environ.get('COWFS_SEED') or 1))
    p.add_argument('--short', action='store_true', help='three layouts')
    p.add_argument('layouts', nargs='*')
    o = p.parse_args()
    w = tempfile.mkdtemp(prefix='journal.', dir='/var/tmp')
    for d in 'xmn':
        os.mkdir(w + '/' + d)
    ok = False
    try:
        run('truncate', '-s', '8G', w + '/xfs')
        run('mkfs.xfs', '-q', '-f', '-m', 'reflink=1', w + '/xfs')
        run('mount', '-o', 'loop', w + '/xfs', w + '/x')
        for i, name in enumerate(o.layouts or (SHORT if o.short else LAYOUTS)):
            layout(w, name, o.seconds, o.seed + i)
        ok = True
    finally:
        unmount(w + '/n')
        unmount(w + '/x')
        if ok or not os.environ.get('COWFS_REPLAY_KEEP'):
            run('rm', '-rf', w)


with_own_mounts(main)
