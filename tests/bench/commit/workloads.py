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

def browser(card, folder="var/browser", pages=240, cache_mib=64, cwd=None):
    """Two hours: a page every 30 s with about 30 objects. The cache as Firefox's: each entry is written to a file of its own, under a
    temporary name first, the index is written anew, the oldest go when it is full. History and cookies in sqlite (WAL, synchronous=NORMAL),
    the session saved every 15 s by rename."""
    rnd = random.Random(2)
    root = f"{card.mnt}/{folder}" if folder else card.mnt
    entries, doomed = f"{root}/cache2/entries", f"{root}/cache2/doomed"
    for d in entries, doomed:
        os.makedirs(d, exist_ok=True)
    places = sqlite3.connect(f"{root}/places.sqlite", isolation_level=None)
    cookies = sqlite3.connect(f"{root}/cookies.sqlite", isolation_level=None)
    for db in places, cookies:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, key TEXT, value TEXT, time INTEGER)")
        db.execute("CREATE INDEX IF NOT EXISTS i ON t(key)")
    have, used = [], 0

    def put(path, data):
        with open(f"{path}.tmp", "wb") as f:
            f.write(data)
        os.rename(f"{path}.tmp", path)

    for page in range(pages):
        t = page * 30.0
        card.tick(t)
        put(f"{root}/sessionstore.jsonlz4", rnd.randbytes(rnd.randint(20_000, 60_000)))
        for n in range(rnd.randint(10, 50)):
            size = min(200_000, max(1000, int(math.exp(rnd.gauss(9.3, 1.2)))))
            name = f"{rnd.getrandbits(160):040X}"
            put(f"{entries}/{name}", rnd.randbytes(size))
            have.append((name, size))
            used += size
            if n % 10 == 0:
                cookies.execute("INSERT INTO t(key, value, time) VALUES(?,?,?)", (name, name * 3, int(t)))
            if n % 16 == 15:
                card.tick(t + n / 20)
        while used > cache_mib << 20:
            name, size = have.pop(0)
            os.rename(f"{entries}/{name}", f"{doomed}/{name}")
            os.unlink(f"{doomed}/{name}")
            used -= size
        # pages seen again read their entries; their metadata, at the end of the file, is written
        for name, _ in rnd.sample(have, min(8, len(have))):
            with open(f"{entries}/{name}", "ab") as f:
                f.write(b"metadata" * 8)
        places.execute("INSERT INTO t(key, value, time) VALUES(?,?,?)", (f"https://example.org/{page}", "title " * 10, int(t)))
        places.execute("UPDATE t SET time = ? WHERE id = ?", (int(t), rnd.randint(1, page + 1)))
        put(f"{root}/cache2/index", rnd.randbytes(36 * len(have) + 16))
        card.tick(t + 15)
        put(f"{root}/sessionstore.jsonlz4", rnd.randbytes(rnd.randint(20_000, 60_000)))
        if page % 60 == 59:
            print(f"record: {page + 1} of {pages} pages", flush=True)
    card.tick(pages * 30.0)
    places.close()
    cookies.close()


# ---- small, for tests ----

def small(card, folder="small"):
    """Twenty minutes: a source tree unpacked, part of it removed, a GPS logger, a few pages."""
    root = f"{card.mnt}/{folder}"
    os.makedirs(root, exist_ok=True)
    run("cp", "-a", f"{TOP}/tests", f"{root}/a")
    run("cp", "-a", f"{TOP}/cowfs", f"{root}/b")
    run("rm", "-rf", f"{root}/a/unit", f"{root}/b/control")
    gps_day(card, f"{folder}/gps", seconds=1200)
