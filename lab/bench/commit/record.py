#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records traces: what real programs make a real ext4 write to a card. As root, in a mount namespace of its own.

usage: record.py FOLDER [TRACE...]	default: all; a trace that is in FOLDER already is left as it is
       record.py --list

A TRACE is WORKLOAD.VARIANT. The workloads are in workloads.py; boot is a Debian in QEMU. Variants:

	journal	ext4 as mke2fs makes it. Its contents are recorded too: it is also what runs on overlays in RAM, merged at the end
	freeze	the same, frozen every 5 minutes (kernel30: after each update): what runs on overlays that are merged so often
	plainN	ext4 as the recipes for cards have it: no journal, stride and stripe-width of an erase block of N MiB
	rsync	the end of "journal" brought by rsync to an ext4 as in plain4: an overlayfs merged at shutdown
	qemu	the blocks of "journal" in a qcow2 overlay, brought to the card by qemu-img commit; qemu5: those of "freeze", each time
	fstrimN	as plainN, with an fstrim each week of virtual time; freeze has one as well (year and weeks)
	discardN	as plainN, mounted with "discard"
	rsync5	a tree in RAM that is merged by rsync every 5 minutes; the card is mounted read-only between

All mount options are noatime. Left behind: TRACE.trace, and for journal and freeze TRACE.data, TRACE.base and (journal) TRACE.end.
"""
import os
import signal
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import workloads # noqa: E402
from card import BUILD, TOP, Card, Loop, Tree, clear_away, copy_sparse, mkfs, output, run # noqa: E402

FS_MIB = 896
SIZES_MIB = {"small": 64, "year": 448, "weeks": 128}
STRIPES_MIB = (1, 2, 4, 32)
KERNELS = [f"linux-image-6.1.0-{n}-cloud-amd64" for n in range(49, 57)]
CMDLINE = "root=/dev/vda rw console=ttyS0 panic=-1"
BOOT_LIMIT_S = 560
QEMU_IO_BYTES = 64 << 20

WORKLOADS = {
    "boot": ["journal", "plain", "rsync", "qemu"],
    "apt-install": ["journal", "plain", "rsync", "qemu"],
    "apt-upgrade": ["journal", "plain", "rsync", "qemu"],
    "gps-day": ["journal", "freeze", "plain", "rsync", "rsync5", "qemu", "qemu5"],
    "browser": ["journal", "freeze", "plain", "rsync", "qemu", "qemu5"],
    "kernel30": ["journal", "freeze", "plain", "rsync", "qemu", "qemu5"],
    "small": ["journal", "freeze", "plain4", "rsync", "qemu", "qemu5"],
    "year": ["freeze", "fstrim4", "discard4"],
    "weeks": ["freeze", "fstrim4", "discard4"],
}
# what make bench-commit does not record
OTHERS = ("small", "year", "weeks")


def traces(stripes):
    for w, variants in WORKLOADS.items():
        for v in variants:
            if v == "plain":
                yield from (f"{w}.plain{s}" for s in stripes)
            else:
                yield f"{w}.{v}"


# ---- start states: trees ----

class Trees:
    """Trees of files as they are before the workloads, each made once, as a folder."""

    def __init__(self, folder):
        self.folder = f"{folder}/trees"
        os.makedirs(self.folder, exist_ok=True)

    def sources(self, security):
        lines = output("bash", "-c", f'die() {{ echo "$*" >&2; exit 1; }}; . {TOP}/image/lib.bash; apt_sources bookworm').splitlines()
        return [l for l in lines if security or ("-security" not in l and "-updates" not in l)]

    def options(self):
        text = output("apt-config", "dump")
        return [l for l in text.splitlines() if l.startswith("Acquire::") and ("Proxy \"" in l or "Check-Valid-Until \"" in l)]

    def make(self, name, packages=()):
        """A minimal Debian 12 as of its last point release, so that there is something to upgrade."""
        tree = f"{self.folder}/{name}"
        if os.path.exists(tree):
            return tree
        print(f"record: mmdebstrap for {name}", flush=True)
        clear_away(f"{tree}.new")
        with open(f"{tree}.list", "w") as f:
            f.write("\n".join(self.sources(False)) + "\n")
        run("mmdebstrap", "-q", "--variant=minbase", "--format=directory", *(f"--aptopt={o}" for o in self.options()),
            *([f"--include={','.join(packages)}"] if packages else []), "bookworm", f"{tree}.new", f"{tree}.list")
        os.unlink(f"{tree}.list")
        run("cp", "-L", "/etc/resolv.conf", f"{tree}.new/etc/resolv.conf")
        with open(f"{tree}.new/usr/sbin/policy-rc.d", "w") as f:
            f.write("#!/bin/sh\nexit 101\n")
        os.chmod(f"{tree}.new/usr/sbin/policy-rc.d", 0o755)
        with open(f"{tree}.new/etc/apt/apt.conf.d/90bench", "w") as f:
            f.write("\n".join(self.options()) + "\n")
        os.rename(f"{tree}.new", tree)
        return tree

    def debian(self):
        tree = self.make("debian")
        if not os.listdir(f"{tree}/var/lib/apt/lists") or not os.path.exists(f"{tree}/.lists"):
            workloads.in_root(tree, "apt-get -q update")
            open(f"{tree}/.lists", "w").close()
        return tree

    def installed(self):
        """The same with what apt-install installs, the packages' lists of today."""
        tree = f"{self.folder}/installed"
        if not os.path.exists(tree):
            run("cp", "-a", self.debian(), f"{tree}.new")
            workloads.in_root(f"{tree}.new", "apt-get -q -y --no-install-recommends install git gcc libc6-dev; apt-get clean")
            with open(f"{tree}.new/etc/apt/sources.list", "w") as f:
                f.write("\n".join(self.sources(True)) + "\n")
            workloads.in_root(f"{tree}.new", "apt-get -q update")
            os.rename(f"{tree}.new", tree)
        return tree

    def packages(self, workload):
        """What workloads.Packages begin with: more than half of the file system."""
        tree = f"{self.folder}/{workload}"
        if not os.path.exists(tree):
            clear_away(f"{tree}.new")
            workloads.Packages(f"{tree}.new", SIZES_MIB[workload]).fill()
            os.rename(f"{tree}.new", tree)
        return tree

    def kernels(self):
        """The kernel packages, and a root that they can be installed in."""
        folder = f"{self.folder}/debs"
        tree = self.make("kernels", ("kmod", "linux-base"))
        os.makedirs(folder, exist_ok=True)
        if len(os.listdir(folder)) < len(KERNELS):
            run("apt-get", "-q", "download", *KERNELS, cwd=folder, stdout=subprocess.DEVNULL)
        return tree, sorted(f"{folder}/{f}" for f in os.listdir(folder))

    def guest(self):
        """A Debian with systemd that powers off when it has booted. Its /boot is not on the card."""
        tree = f"{self.folder}/guest"
        if not os.path.exists(f"{tree}.boot/vmlinuz"):
            cache = os.environ.get("COWFS_VM_CACHE", f"{BUILD}/vm/cache")
            os.makedirs(cache, exist_ok=True)
            run("bash", "-euc", f"TOP={TOP} BUILD={BUILD} CACHE={cache}; . $TOP/image/lib.bash; . $TOP/image/debian.bash; "
                f"IMAGE_PLAIN=1 debian_tree debian12 {tree}")
            with open(f"{tree}/etc/fstab", "w") as f:
                f.write("/dev/vda / ext4 noatime 0 1\n")
            with open(f"{tree}/etc/systemd/system/bench-off.service", "w") as f:
                f.write("[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'sleep 35; systemctl poweroff'\n")
            os.makedirs(f"{tree}/etc/systemd/system/graphical.target.wants", exist_ok=True)
            for target in "graphical", "multi-user":
                os.symlink("../bench-off.service", f"{tree}/etc/systemd/system/{target}.target.wants/bench-off.service")
            self.boot_once(tree)
        return tree

    def boot_once(self, tree):
        """The first boot makes keys, ids, caches: not what a boot writes."""
        image = f"{tree}.img"
        mkfs(image, FS_MIB, journal=True, stripe_mib=4, tree=tree)
        boot(tree, image)
        loop = Loop(image, read_only=True)
        try:
            loop.mount(f"{tree}.mnt", "ro,noload")
            run("rsync", "-aHAX", "--delete", f"{tree}.mnt/", f"{tree}/")
        finally:
            loop.close()
        clear_away(f"{tree}.mnt")
        os.unlink(image)


def boot(tree, card):
    """Until it has powered off."""
    console = f"{tree}.console"
    start = time.monotonic()
    run("qemu-system-x86_64", "-accel", "tcg", "-m", "768", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-serial", f"file:{console}", "-device", "virtio-rng-pci", "-drive", f"file={card},if=virtio,format=raw,discard=unmap",
        "-kernel", f"{tree}.boot/vmlinuz", "-initrd", f"{tree}.boot/initrd.img", "-append", CMDLINE, timeout=BOOT_LIMIT_S)
    with open(console, errors="replace") as f:
        text = f.read()
    if "Power down" not in text:
        raise SystemExit(f"record: the guest did not power off:\n{text[-1500:]}")
    print(f"record: booted and off in {time.monotonic() - start:.0f} s", flush=True)


# ---- recordings ----

class Studio:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.trees = Trees(folder)

    def start_tree(self, workload):
        return {"boot": self.trees.guest, "apt-install": self.trees.debian, "apt-upgrade": self.trees.installed,
                "kernel30": lambda: self.trees.kernels()[0], "small": lambda: None, "year": lambda: self.trees.packages("year"),
                "weeks": lambda: self.trees.packages("weeks")}.get(workload, self.trees.debian)()

    def base(self, workload, variant):
        """The volume before the workload. Not kept for what is only priced."""
        path = f"{self.folder}/{workload}.{variant}.base"
        mkfs(path, SIZES_MIB.get(workload, FS_MIB), journal=variant in ("journal", "freeze"),
             stripe_mib=int(variant.lstrip("abcdefghijklmnopqrstuvwxyz") or 4) if not variant.startswith("rsync") else 4,
             tree=self.start_tree(workload))
        return path

    def do(self, workload, card):
        if workload in ("apt-install", "apt-upgrade"):
            (workloads.apt_install if workload == "apt-install" else workloads.apt_upgrade)(card)
        elif workload == "kernel30":
            workloads.kernel_updates(card, self.trees.kernels()[1])
        elif workload == "gps-day":
            workloads.gps_day(card)
        elif workload in ("year", "weeks"):
            workloads.year(card, SIZES_MIB[workload], 364 if workload == "year" else 22)
        else:
            getattr(workloads, workload)(card)

    def rsync(self, workload, card):
        """What a merge of the overlay's upper layer at shutdown would bring: all that differs."""
        end = f"{self.folder}/{workload}.journal.end"
        if not os.path.exists(end):
            raise SystemExit(f"record: {workload}.rsync needs {workload}.journal")
        loop = Loop(end, read_only=True)
        try:
            loop.mount(f"{end}.mnt", "ro,noload")
            run("rsync", "-aHAX", "--delete", f"{end}.mnt/", f"{card.mnt}/")
        finally:
            loop.close()
            clear_away(f"{end}.mnt")

    def qemu(self, trace, source, each):
        """The dirty blocks of each interval, with other contents, in a fresh overlay; then the real command. The card is a block device,
        so the kernel makes the requests out of what it writes."""
        name = f"{self.folder}/{trace}"
        if not os.path.exists(f"{source}.trace"):
            raise SystemExit(f"record: {trace} needs {source}")
        lines = output(f"{BUILD}/tests/replay", *(["--each"] if each else []), "dirty", source).splitlines()
        with open(f"{source}.trace", "rb") as f:
            volume_bytes = struct.unpack_from("<Q", f.read(64), 16)[0]
        with open(f"{name}.base", "wb") as f:
            f.truncate(volume_bytes)
        overlay, commands = f"{name}.qcow2", []
        with Card(f"{name}.base", name, journal=False, contents=False, mount=False) as card:
            card.recorder.mark("off")
            loop = Loop(card.recorder.card)
            try:
                for line in lines:
                    if line != "commit":
                        off, size = map(int, line.split())
                        commands += [f"write -q -P 90 {off + i} {min(size - i, QEMU_IO_BYTES)}" for i in range(0, size, QEMU_IO_BYTES)]
                        continue
                    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", loop.device, "-F", "raw", overlay)
                    run("qemu-io", "-f", "qcow2", overlay, input="\n".join(commands) + "\n", text=True, stdout=subprocess.DEVNULL)
                    card.recorder.mark("on")
                    run("qemu-img", "commit", "-q", overlay)
                    card.recorder.mark("commit")
                    card.recorder.mark("off")
                    commands = []
            finally:
                loop.close()
                os.unlink(overlay)
        for end in "base", "end":
            os.unlink(f"{name}.{end}")

    def record(self, trace):
        workload, variant = trace.split(".")
        if variant.startswith("qemu"):
            each = variant == "qemu5"
            return self.qemu(trace, f"{self.folder}/{workload}.{'freeze' if each else 'journal'}", each)
        keep = variant in ("journal", "freeze")
        name = f"{self.folder}/{trace}"
        base = self.base(workload, variant)
        with Card(base, name, journal=keep, freezes=variant == "freeze", contents=keep, fstrim=variant.startswith(("freeze", "fstrim")),
                  options="noatime,discard" if variant.startswith("discard") else "noatime",
                  mount=not (workload == "boot" and variant != "rsync")) as card:
            if workload == "boot" and variant != "rsync":
                boot(self.trees.guest(), card.recorder.card)
            elif variant == "rsync":
                self.rsync(workload, card)
            elif variant == "rsync5":
                tree = Tree(card, "var", f"{name}.ram")
                try:
                    workloads.gps_day(tree, "gps-day")
                    tree.merge()
                finally:
                    tree.close()
            else:
                self.do(workload, card)
        if not keep:
            os.unlink(base)
        if variant != "journal":
            os.unlink(f"{name}.end")

    def is_there(self, trace):
        return os.path.exists(f"{self.folder}/{trace}.done")

    def have(self, trace):
        if self.is_there(trace):
            return
        start = time.monotonic()
        print(f"record: {trace}", flush=True)
        self.record(trace)
        size = os.path.getsize(f"{self.folder}/{trace}.trace")
        open(f"{self.folder}/{trace}.done", "w").close()
        print(f"record: {trace}: {(size - 64) // 32} records in {time.monotonic() - start:.0f} s", flush=True)


def main():
    stripes = [int(s) for s in os.environ.get("BENCH_STRIPES_MIB", " ".join(map(str, STRIPES_MIB))).split()]
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    if sys.argv[1] == "--list":
        print("\n".join(t for t in traces(stripes) if t.split(".")[0] not in OTHERS))
        return
    if os.geteuid() != 0:
        sys.exit("record: needs root")
    if not os.environ.get("BENCH_NAMESPACE"):
        os.environ["BENCH_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)) # loop devices are given back
    known = list(traces(range(1, 65)))
    wanted = sys.argv[2:] or [t for t in traces(stripes) if t.split(".")[0] not in OTHERS]
    for t in wanted:
        if t not in known:
            sys.exit(f"record: no trace is called {t}")
    studio = Studio(os.path.abspath(sys.argv[1]))
    for t in wanted:
        studio.have(t)


if __name__ == "__main__":
    main()
