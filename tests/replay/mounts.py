# SPDX-License-Identifier: MIT
"""Commands, mounts and loop devices of the tests of this folder."""
import os, signal, subprocess, sys, time


def run(*a, ok=(0,)):
    r = subprocess.run(a, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
    if ok is not None and r.returncode not in ok:
        raise SystemExit('%s: %d\n%s' % (' '.join(a), r.returncode, r.stdout[-2000:]))
    return r


def unmount(d):
    for _ in range(300):
        if not os.path.ismount(d) or run('umount', d, ok=None).returncode == 0:
            return
        time.sleep(.1)
    raise SystemExit('%s stays mounted' % d)


def loop(path, *options):
    """A loop device that may be written: the last user of its number may have left it read-only, and mount(8) then succeeds, too."""
    dev = run('losetup', '-f', '--show', *options, path).stdout.strip()
    run('blockdev', '--setrw', dev)
    return dev


def with_own_mounts(main):
    """Or namespaces of other tests keep copies."""
    if os.environ.get('COWFS_OWN_MOUNTS') != str(os.getpid()):
        os.environ['COWFS_OWN_MOUNTS'] = str(os.getpid())
        os.execvp('unshare', ['unshare', '--mount', '--propagation', 'private', sys.executable] + sys.argv)
    signal.signal(signal.SIGTERM, lambda s, _: signal.signal(s, signal.SIG_IGN) and sys.exit(143))
    main()
