# SPDX-License-Identifier: MIT
"""A card whose writes are recorded (recorder.c): an image behind FUSE and a loop device, its ext4 mounted; and virtual time.

Virtual time: a day is recorded in a minute or two, and what the kernel does by its clock is done at the virtual one. Card.tick(t) brings
time to t and on the way, as Linux does by default,
	every 5 s	commits the journal (ext4's commit=5): touches the root directory and syncs that, which commits the running
			transaction and writes no data whose place is not allocated yet
	every 30 s	writes back all that is dirty (vm.dirty_expire_centisecs=3000): syncfs, and a sync point
	every 300 s	a commit point, if the recording is one for systems that merge so often: frozen and thawed
The real timers of the kernel do nothing meanwhile: nothing stays dirty for 5 or 30 real seconds.
"""
import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(f"{HERE}/../../..")
BUILD = os.environ.get("COWFS_BUILD", f"{TOP}/build")
JOURNAL_S, WRITEBACK_S, COMMIT_S = 5, 30, 300
FIFREEZE, FITHAW, FITRIM = 0xC0045877, 0xC0045878, 0xC0185879
MAX_REQUEST_KIB = 1024 # of the loop device: no host asks for more at once
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command, **more):
    more.setdefault("check", True)
    return subprocess.run([str(c) for c in command], **more)


def output(*command):
    return run(*command, stdout=subprocess.PIPE, text=True).stdout.strip()


def mkfs(image, mib, *, journal, stripe_mib, tree=None):
    """ext4 as the recipes for cards have it (aligned to the erase block, no journal), or as mke2fs makes it."""
    if os.path.exists(image):
        os.unlink(image)
    with open(image, "wb") as f:
        f.truncate(mib << 20)
    blocks = stripe_mib * 256
    options = ["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]
    if not journal:
        options = ["-O", "^has_journal", "-E", f"stride={blocks},stripe-width={blocks},lazy_itable_init=0,nodiscard"]
    run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", *options, *(["-d", tree] if tree else []), image)


def copy_sparse(source, target):
    run("cp", "--sparse=always", "--reflink=auto", source, target)


def umount(mnt, lazy=False):
    for _ in range(0 if lazy else 50):
        if run("umount", mnt, check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    run("umount", *(["-l"] if lazy else []), mnt)


class Loop:
    """A loop device and, if wanted, its file system."""

    def __init__(self, file, direct=True, read_only=False):
        self.device = output("losetup", "-f", "--show", f"--direct-io={'on' if direct else 'off'}", *(["-r"] if read_only else []),
                             file)
        queue = f"/sys/block/{os.path.basename(self.device)}/queue/max_sectors_kb"
        if not read_only:
            with open(queue, "w") as f:
                f.write(str(MAX_REQUEST_KIB))
        self.mnt = None

    def mount(self, mnt, options="noatime", fs="ext4"):
        os.makedirs(mnt, exist_ok=True)
        run("mount", "-t", fs, "-o", options, self.device, mnt)
        self.mnt = mnt

    def close(self, lazy=False):
        """lazy: something failed, and files may be open."""
        try:
            if self.mnt:
                umount(self.mnt, lazy)
        finally:
            run("losetup", "-d", self.device)


class Recorder:
    """name: path without ending, of the trace. What is behind is image. A file `card` to use, `mark` to tell it things."""

    def __init__(self, image, name, contents=True):
        self.dir = f"{name}.fuse"
        os.makedirs(self.dir, exist_ok=True)
        self.process = subprocess.Popen([f"{BUILD}/tests/recorder", image, self.dir, name] + ([] if contents else ["no-contents"]))
        for _ in range(500):
            if os.path.ismount(self.dir):
                break
            if self.process.poll() is not None:
                raise SystemExit("record: the recorder did not start")
            time.sleep(0.01)
        self.card = f"{self.dir}/card"
        self.marks = os.open(f"{self.dir}/mark", os.O_WRONLY)

    def mark(self, word):
        os.write(self.marks, word.encode())

    def close(self, lazy=False):
        os.close(self.marks)
        umount(self.dir, lazy)
        if lazy:
            self.process.terminate()
        if self.process.wait(30) != 0 and not lazy:
            raise SystemExit("record: the recorder failed")
        os.rmdir(self.dir)


class Card:
    """A recorded ext4, mounted. freezes: a commit point every 300 s of virtual time, and wherever commit() is called. fstrim: what
    fstrim() does."""

    def __init__(self, base, name, *, journal, freezes=False, contents=True, mount=True, options="noatime", fstrim=False):
        self.name, self.journal, self.freezes, self.trims = name, journal, freezes, fstrim
        self.image = f"{name}.img"
        self.now_s = 0.0
        self.loop = self.recorder = None
        copy_sparse(base, self.image)
        try:
            self.recorder = Recorder(self.image, name, contents)
            self.recorder.mark("on")
            if mount:
                self.loop = Loop(self.recorder.card)
                self.loop.mount(f"{name}.mnt", options)
                self.mnt = self.loop.mnt
                self.root_fd = os.open(self.mnt, os.O_RDONLY | os.O_DIRECTORY)
        except BaseException:
            self.close(False)
            raise

    # ---- what a kernel does by its clock ----

    def journal_commit(self):
        if self.journal:
            os.utime(self.root_fd)
            os.fsync(self.root_fd)

    def writeback(self):
        if LIBC.syncfs(self.root_fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
        self.recorder.mark("sync")

    def commit(self):
        """A place where systems with an overlay may merge."""
        if not self.freezes:
            return
        fcntl.ioctl(self.root_fd, FIFREEZE, 0)
        self.recorder.mark("commit")
        fcntl.ioctl(self.root_fd, FITHAW, 0)

    def clock(self, t):
        self.now_s = t
        self.recorder.mark(f"clock {int(t * 1e9)}")

    def tick(self, t):
        """Virtual time goes on to t."""
        step = int(self.now_s // JOURNAL_S + 1) * JOURNAL_S
        while step <= t:
            self.clock(step)
            self.journal_commit()
            if step % WRITEBACK_S == 0:
                self.writeback()
            if step % COMMIT_S == 0:
                self.commit()
            step += JOURNAL_S
        self.clock(t)

    def idle(self, t):
        """Until t nothing happens: what is dirty is written back, and then there is a place to merge."""
        self.journal_commit()
        self.writeback()
        self.commit()
        self.clock(t)

    def fstrim(self):
        if self.trims:
            fcntl.ioctl(self.root_fd, FITRIM, struct.pack("=QQQ", 0, 2**64 - 1, 0))

    # ---- the end ----

    def shut_down(self):
        """Unmounted, and the last commit point."""
        if self.loop:
            os.close(self.root_fd)
            self.root_fd = -1
            self.loop.close()
            self.loop = None
        self.recorder.mark("commit")
        self.recorder.mark("off")

    def close(self, good):
        if self.loop:
            if getattr(self, "root_fd", -1) >= 0:
                os.close(self.root_fd)
            self.loop.close(not good)
            self.loop = None
        if self.recorder:
            self.recorder.close(not good)
            self.recorder = None
        if os.path.isdir(f"{self.name}.mnt"):
            os.rmdir(f"{self.name}.mnt")
        if good:
            os.rename(self.image, f"{self.name}.end")
        else:
            for end in "base", "img", "trace", "data":
                if os.path.exists(f"{self.name}.{end}"):
                    os.unlink(f"{self.name}.{end}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.shut_down()
        finally:
            self.close(kind is None)


class Tree:
    """A tree of files in RAM in the place of a Card, for what is merged by rsync: the target is a card, mounted read-only but for the
    merge."""

    def __init__(self, card, folder, ram):
        self.card, self.folder = card, folder
        self.mnt = ram
        self.now_s = 0.0
        os.makedirs(ram, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "size=2G", "cowfs-bench", ram)
        run("rsync", "-aHAX", f"{card.mnt}/{folder}/", f"{ram}/")
        run("mount", "-o", "remount,ro", card.mnt)
        card.recorder.mark("commit")

    def merge(self):
        run("mount", "-o", "remount,rw", self.card.mnt)
        run("rsync", "-aHAX", "--delete", f"{self.mnt}/", f"{self.card.mnt}/{self.folder}/")
        run("mount", "-o", "remount,ro", self.card.mnt)
        self.card.recorder.mark("commit")

    def commit(self):
        self.merge()

    def tick(self, t):
        step = int(self.now_s // COMMIT_S + 1) * COMMIT_S
        while step <= t:
            self.card.clock(step)
            self.merge()
            step += COMMIT_S
        self.now_s = t

    def close(self):
        umount(self.mnt, True)
        os.rmdir(self.mnt)


def clear_away(*paths):
    for p in paths:
        shutil.rmtree(p, ignore_errors=True)
