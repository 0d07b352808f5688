# SPDX-License-Identifier: MIT
"""What programs do to a file system, for recordings. Each function gets a card (card.py) and works below card.mnt."""
import gzip
import math
import os
import random
import sqlite3
import subprocess

from card import TOP, run

DAY_S = 86400
KERNEL_UPDATES = 30

CHROOT = r"""
for d in proc sys dev; do mount --rbind "/$d" "$1/$d"; done
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
	chroot "$1" sh -euc "$2"
"""


def in_root(root, command):
    p = subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-ec", CHROOT, "-", root, command],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        raise SystemExit(f"record: {command}: exit {p.returncode}\n{p.stdout[-2000:]}")


# ---- Debian ----

def apt_install(card):
    in_root(card.mnt, "apt-get -q -y --no-install-recommends install git gcc libc6-dev")


def apt_upgrade(card):
    in_root(card.mnt, "apt-get -q -y upgrade")


def kernel_updates(card, debs, updates=KERNEL_UPDATES):
    """As apt does it: fetched, installed, the one before removed. Each update ends at a commit point."""
    archives = f"{card.mnt}/var/cache/apt/archives"
    before = "1"
    for i in range(updates):
        deb = debs[(i + 1) % len(debs)]
        package = os.path.basename(deb).split("_")[0]
        run("cp", deb, archives)
        in_root(card.mnt, f"dpkg --force-depends -i /var/cache/apt/archives/{os.path.basename(deb)}")
        if before != "1":
            in_root(card.mnt, f"dpkg --force-depends --purge {before}")
        os.unlink(f"{archives}/{os.path.basename(deb)}")
        before = package
        card.commit()
        print(f"record: update {i + 1} of {updates}", flush=True)


# ---- a day of a GPS logger ----

class Syslog:
    """Appends lines as rsyslog does, without sync; rotated once a day as logrotate does."""

    WORDS = "kernel: gpsd: chronyd: systemd[1]: dhclient: wpa_supplicant: CRON: ntpd: usb: eth0: session opened closed for user root " \
            "PPS locked fix lost satellites 9 time offset adjusted lease renewed".split()

    def __init__(self, root, rnd):
        self.path, self.rnd = f"{root}/log/syslog", rnd
        os.makedirs(f"{root}/log", exist_ok=True)
        self.open()

    def open(self):
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def line(self, t):
        text = " ".join(self.rnd.choices(self.WORDS, k=self.rnd.randint(6, 14)))
        os.write(self.fd, f"Nov 20 {int(t) // 3600:02}:{int(t) // 60 % 60:02}:{int(t) % 60:02} car {text}\n".encode())

    def rotate(self):
        os.close(self.fd)
        os.rename(self.path, f"{self.path}.1")
        self.open()
        with open(f"{self.path}.1", "rb") as f, gzip.open(f"{self.path}.2.gz", "wb") as g:
            g.write(f.read())
        os.unlink(f"{self.path}.1")

    def close(self):
        os.close(self.fd)


def gps_day(card, folder="var/gps-day", seconds=DAY_S, every_s=10):
    """A fix every second, a transaction every 10 s (sqlite as it is by default: rollback journal, synchronous=FULL), a line for
    syslog about every 4 s, logs rotated at 6:25."""
    rnd = random.Random(1)
    root = f"{card.mnt}/{folder}" if folder else card.mnt
    os.makedirs(f"{root}/db", exist_ok=True)
    log = Syslog(root, rnd)
    db = sqlite3.connect(f"{root}/db/track.sqlite", isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS fix(time INTEGER PRIMARY KEY, lat REAL, lon REAL, alt REAL, speed REAL, course REAL, "
               "sats INTEGER, hdop REAL)")
    db.execute("CREATE TABLE IF NOT EXISTS trip(id INTEGER PRIMARY KEY, start INTEGER, end INTEGER, metres REAL)")
    lat, lon, next_line = 52.5, 13.4, 0.0
    for t in range(every_s, seconds + 1, every_s):
        while next_line <= t:
            card.tick(max(next_line, card.now_s))
            log.line(next_line)
            next_line += rnd.expovariate(1 / 4)
        card.tick(t)
        db.execute("BEGIN")
        for s in range(t - every_s, t):
            lat += rnd.gauss(0, 1e-4)
            lon += rnd.gauss(0, 1e-4)
            db.execute("INSERT INTO fix VALUES(?,?,?,?,?,?,?,?)", (1700000000 + s, lat, lon, rnd.gauss(40, 5), rnd.random() * 30,
                                                               rnd.random() * 360, rnd.randint(5, 12), rnd.random() * 2))
        if t % 600 == 0:
            db.execute("INSERT INTO trip(start, end, metres) VALUES(?,?,?)", (t - 600, t, rnd.random() * 9000))
        db.execute("COMMIT")
        if t == 23100:
            log.rotate()
        if t % 7200 == 0:
            print(f"record: {t // 3600} of {seconds // 3600} hours", flush=True)
    db.close()
    log.close()


# ---- a browser ----

def put(path, data):
    with open(f"{path}.tmp", "wb") as f:
        f.write(data)
    os.rename(f"{path}.tmp", path)


class Browser:
    """The cache as Firefox's: each entry is written to a file of its own, under a temporary name first, the index is written anew, the
    oldest go when it is full. History and cookies in sqlite (WAL, synchronous=NORMAL), the session saved every 15 s by rename."""

    def __init__(self, root, cache_mib):
        self.root, self.cache_bytes = root, cache_mib << 20
        self.rnd = random.Random(2)
        self.entries, self.doomed = f"{root}/cache2/entries", f"{root}/cache2/doomed"
        for d in self.entries, self.doomed:
            os.makedirs(d, exist_ok=True)
        self.have, self.used = [], 0
        self.open()

    def open(self):
        self.places = sqlite3.connect(f"{self.root}/places.sqlite", isolation_level=None)
        self.cookies = sqlite3.connect(f"{self.root}/cookies.sqlite", isolation_level=None)
        for db in self.places, self.cookies:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, key TEXT, value TEXT, time INTEGER)")
            db.execute("CREATE INDEX IF NOT EXISTS i ON t(key)")

    def close(self):
        self.places.close()
        self.cookies.close()

    def page(self, card, page, t):
        """Page number `page` at time t, and the half minute behind it."""
        rnd, have = self.rnd, self.have
        card.tick(t)
        put(f"{self.root}/sessionstore.jsonlz4", rnd.randbytes(rnd.randint(20_000, 60_000)))
        for n in range(rnd.randint(10, 50)):
            size = min(200_000, max(1000, int(math.exp(rnd.gauss(9.3, 1.2)))))
            name = f"{rnd.getrandbits(160):040X}"
            put(f"{self.entries}/{name}", rnd.randbytes(size))
            have.append((name, size))
            self.used += size
            if n % 10 == 0:
                self.cookies.execute("INSERT INTO t(key, value, time) VALUES(?,?,?)", (name, name * 3, int(t)))
            if n % 16 == 15:
                card.tick(t + n / 20)
        while self.used > self.cache_bytes:
            name, size = have.pop(0)
            os.rename(f"{self.entries}/{name}", f"{self.doomed}/{name}")
            os.unlink(f"{self.doomed}/{name}")
            self.used -= size
        # pages seen again read their entries; their metadata, at the end of the file, is written
        for name, _ in rnd.sample(have, min(8, len(have))):
            with open(f"{self.entries}/{name}", "ab") as f:
                f.write(b"metadata" * 8)
        self.places.execute("INSERT INTO t(key, value, time) VALUES(?,?,?)", (f"https://example.org/{page}", "title " * 10, int(t)))
        self.places.execute("UPDATE t SET time = ? WHERE id = ?", (int(t), rnd.randint(1, page + 1)))
        put(f"{self.root}/cache2/index", rnd.randbytes(36 * len(have) + 16))
        card.tick(t + 15)
        put(f"{self.root}/sessionstore.jsonlz4", rnd.randbytes(rnd.randint(20_000, 60_000)))


def browser(card, folder="var/browser", pages=240, cache_mib=64, cwd=None):
    """Two hours: a page every 30 s with about 30 objects."""
    b = Browser(f"{card.mnt}/{folder}" if folder else card.mnt, cache_mib)
    for page in range(pages):
        b.page(card, page, page * 30.0)
        if page % 60 == 59:
            print(f"record: {page + 1} of {pages} pages", flush=True)
    card.tick(pages * 30.0)
    b.close()


# ---- a year ----

class Packages:
    """What apt and dpkg do to files, without the packages of a distribution: as many of them as fill more than half of a file system of
    fs_mib. The last version number of each package is kept, contents are random."""

    def __init__(self, root, fs_mib):
        self.root, self.rnd = root, random.Random(3)
        self.packages, used = [], 0
        while used < fs_mib << 19:
            files = [min(4 << 20, max(200, int(math.exp(self.rnd.gauss(8.6, 1.7))))) for _ in range(self.rnd.randint(4, 60))]
            self.packages.append(files)
            used += sum(max(f, 4096) for f in files)
        self.dpkg, self.lists, self.cache = (f"{root}/{d}" for d in ("var/lib/dpkg", "var/lib/apt/lists", "var/cache/apt"))

    def fill(self):
        for d in self.dpkg, self.lists, f"{self.cache}/archives":
            os.makedirs(d)
        for i, files in enumerate(self.packages):
            os.makedirs(f"{self.root}/usr/{i}")
            for k, size in enumerate(files):
                with open(f"{self.root}/usr/{i}/{k}", "wb") as f:
                    f.write(self.rnd.randbytes(size))

    def replace(self, path, data, suffix, sync=True):
        with open(path + suffix, "wb") as f:
            f.write(data)
            f.flush()
            if sync:
                os.fsync(f.fileno())
        os.rename(path + suffix, path)

    def status(self):
        """dpkg writes its database of all packages for each one that it configures; here for each run."""
        path = f"{self.dpkg}/status"
        if os.path.exists(path):
            if os.path.exists(f"{path}-old"):
                os.unlink(f"{path}-old")
            os.link(path, f"{path}-old")
        self.replace(path, self.rnd.randbytes(900 * len(self.packages)), "-new")

    def update(self):
        """apt-get update: each list is fetched beside the old one; the binary caches are made anew."""
        for i, size in enumerate((600_000, 60_000, 150_000)):
            self.replace(f"{self.lists}/{i}_Packages", self.rnd.randbytes(size), ".partial", sync=False)
        for name in "pkgcache.bin", "srcpkgcache.bin":
            if os.path.exists(f"{self.cache}/{name}"):
                os.unlink(f"{self.cache}/{name}")
            self.replace(f"{self.cache}/{name}", self.rnd.randbytes(500_000), ".new", sync=False)

    def upgrade(self, n):
        """Archives fetched, unpacked under another name, synced and renamed over the old files; then the archives are deleted."""
        some = self.rnd.sample(range(len(self.packages)), n)
        for i in some:
            with open(f"{self.cache}/archives/{i}.deb", "wb") as f:
                f.write(self.rnd.randbytes(sum(self.packages[i]) // 3))
        for i in some:
            # a new version has other sizes
            self.packages[i] = [max(200, int(size * self.rnd.uniform(0.93, 1.07))) for size in self.packages[i]]
            for k, size in enumerate(self.packages[i]):
                self.replace(f"{self.root}/usr/{i}/{k}", self.rnd.randbytes(size), ".dpkg-new")
            self.status()
        for i in some:
            os.unlink(f"{self.cache}/archives/{i}.deb")

    def temporary(self):
        """Something is installed, used for a while, and removed: a tree of as many files as a sixteenth of the packages."""
        path = f"{self.root}/opt"
        if os.path.exists(path):
            run("rm", "-r", path)
            return
        os.makedirs(path)
        for i, files in enumerate(self.packages[::16]):
            for k, size in enumerate(files):
                with open(f"{path}/{i}.{k}", "wb") as f:
                    f.write(self.rnd.randbytes(size))


def year(card, fs_mib, days):
    """Each day: in the morning logs are rotated and packages updated, in the evening two minutes of a browser. Between them nothing
    happens, and the time goes on. Each Sunday fstrim, if the recording has it; each month something is installed, or removed."""
    rnd = random.Random(4)
    packages = Packages(card.mnt, fs_mib)
    web = Browser(f"{card.mnt}/browser", max(fs_mib // 10, 8))
    log = Syslog(card.mnt, rnd)
    for day in range(days):
        morning, evening = day * DAY_S + 7 * 3600, day * DAY_S + 19 * 3600
        card.idle(morning)
        log.rotate()
        packages.update()
        card.tick(morning + 20)
        packages.upgrade(rnd.randint(1, 3) * max(fs_mib // 448, 1))
        if day % 15 == 14:
            packages.temporary()
        card.tick(morning + 60)
        card.idle(evening)
        for page in range(4):
            for _ in range(300): # a quarter of the day's lines each
                log.line(evening + page)
            web.page(card, 4 * day + page, evening + page * 30.0)
        card.tick(evening + 120)
        if day % 7 == 6:
            card.idle(evening + 3600)
            card.fstrim()
        if day % 28 == 27:
            print(f"record: {day + 1} of {days} days", flush=True)
    card.idle(days * DAY_S)
    web.close()
    log.close()


# ---- small, for tests ----

def small(card, folder="small"):
    """Twenty minutes: a source tree unpacked, part of it removed, a GPS logger, a few pages."""
    root = f"{card.mnt}/{folder}"
    os.makedirs(root, exist_ok=True)
    run("cp", "-a", f"{TOP}/tests", f"{root}/a")
    run("cp", "-a", f"{TOP}/cowfs", f"{root}/b")
    run("rm", "-rf", f"{root}/a/unit", f"{root}/b/control")
    gps_day(card, f"{folder}/gps", seconds=1200)
