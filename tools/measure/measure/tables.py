# SPDX-License-Identifier: MIT
"""The tables of published reports about flash cards, measured with fio: what `cowctl measure --tables` runs.

cowctl-measure has looked whether the target may be read or written and passes it open, with what it is, as JSON in the only argument:
a second look-up of its name could find something else. fio opens it through /proc/self/fd, in a process group of its own, so that
Ctrl-C reaches only this program, which then kills fio. The result is a document of JSON; text and page are made of it, and of that
of --compare, neither of which is trusted: fields may be missing or of another type.
"""
import ctypes
import errno
import fcntl
import html
import json
import math
import os
import re
import signal
import stat
import struct
import subprocess
import sys
import time

KIB, MIB = 1 << 10, 1 << 20
FORMER_BYTES = 4 * MIB
QUICK_REQUESTS = 400 # a row ends after these, or after this time
QUICK_MS = int(os.environ.get("COWFS_BENCH_ROW_MS") or 2000)
QUICK_LINEAR_BYTES, QUICK_ROW_BYTES = 16 * MIB, 64 * MIB # at least, so that small caches do not decide; at most
GRACE_S = 60 # a card may take long for its last request
SHORT_S = 0.1 # fio counts milliseconds
# disks that the reports compare with, random requests of 4 KiB per second: Seagate ST936751SS, 15k SAS, and a laptop's
DISKS = {"to_15k_disk": 204.0, "to_5400_disk": 90.0}
PERCENTS = (0, 5, 10, 20, 50, 100)
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]")
COLLAPSE = 8 # FALLOC_FL_COLLAPSE_RANGE
libc = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    def __init__(self, code, why, said=""):
        super().__init__(why)
        self.code, self.said = code, said


class Stopped(Exception):
    pass


# ---- what claims to be a document ----

def member(o, *keys):
    for key in keys:
        o = o.get(key) if isinstance(o, dict) else None
    return o


def number(v):
    return float(v) if isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < 1e300 else 0.0


def words(v):
    return HIDDEN.sub("\ufffd", v) if isinstance(v, str) else ""


def rows_of(doc, *keys):
    v = member(doc, *keys)
    return [row if isinstance(row, dict) else {} for row in v[:64]] if isinstance(v, list) else []


# ---- fio ----

def be_group():
    os.setpgid(0, 0)
    libc.prctl(1, signal.SIGKILL) # PR_SET_PDEATHSIG
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def start_fio(arguments, fds=()):
    try:
        return subprocess.Popen(["fio", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                pass_fds=fds, preexec_fn=be_group)
    except FileNotFoundError:
        raise Failed("ENOENT", "fio is not installed: install the package fio") from None
    except OSError as e:
        raise Failed(errno.errorcode[e.errno], f"fio cannot be run: {e.strerror}") from None


def run_fio(arguments, limit_s, fds=()):
    """Its output and exit code."""
    p = start_fio(arguments, fds)
    try:
        text = p.communicate(timeout=limit_s)[0]
    except BaseException as e:
        os.killpg(p.pid, signal.SIGKILL)
        if isinstance(e, subprocess.TimeoutExpired):
            raise Failed("ETIME", f"fio did not end within {limit_s:.0f} s and was killed") from None
        raise
    return text.decode(errors="replace"), p.returncode


def fio_version():
    text, code = run_fio(["--version"], 10)
    if code or not text.startswith("fio-"):
        raise Failed("EBADMSG", "fio --version failed, or is not that of fio")
    return words(text.splitlines()[0])


def side_of(job, kind):
    side = job[kind]
    latency, percentiles = side["lat_ns"], member(side, "clat_ns", "percentile")
    if not isinstance(latency, dict):
        raise ValueError(kind)
    return {"requests": number(side.get("total_ios")), "bytes": number(side.get("io_bytes")), "seconds": number(side.get("runtime")) / 1e3,
            "mean": number(latency.get("mean")), "deviation": number(latency.get("stddev")), "longest": number(latency.get("max")),
            "median": number(member(percentiles, "50.000000")), "p99": number(member(percentiles, "99.000000"))}


def parse_fio(text):
    """Its reads and writes, and the error of the job; ValueError: that is not what fio prints. Warnings stand before it, a line each."""
    lines = text.split("\n")
    start = next((i for i, line in enumerate(lines) if line.startswith("{")), len(lines))
    try:
        job, = json.loads("\n".join(lines[start:]))["jobs"]
        return side_of(job, "read"), side_of(job, "write"), int(number(job.get("error")))
    except (AttributeError, KeyError, TypeError, RecursionError) as e:
        raise ValueError(text[:80]) from e


def joined(a, b):
    """Mean and deviation of two kinds of requests together."""
    if not a["requests"] or not b["requests"]:
        return a if a["requests"] else b
    n = a["requests"] + b["requests"]
    mean = (a["requests"] * a["mean"] + b["requests"] * b["mean"]) / n
    square = sum(s["requests"] * (s["deviation"] ** 2 + s["mean"] ** 2) for s in (a, b)) / n
    return {"requests": n, "bytes": a["bytes"] + b["bytes"], "seconds": max(a["seconds"], b["seconds"]), "mean": mean,
            "deviation": math.sqrt(max(0, square - mean * mean)), "longest": max(a["longest"], b["longest"]), "median": 0, "p99": 0}


def short(v):
    return float(f"{v:.6g}") if math.isfinite(v) else 0


def figures(read, write):
    s = joined(read, write)
    n, seconds = s["requests"], s["seconds"]
    if seconds < SHORT_S:
        seconds = n * s["mean"] / 1e9
    if not n or seconds <= 0:
        return None
    # 95 % of the means of as many requests lie within the spread, if these are independent
    spread = 196 * s["deviation"] / s["mean"] / math.sqrt(n) if s["mean"] > 0 else 0
    o = {"requests": int(n), "seconds": short(seconds), "requests_per_second": short(n / seconds), "bytes_per_second": short(s["bytes"] / seconds),
         "spread_percent": short(spread), "mean_ns": short(s["mean"])}
    o.update({f"{key}_ns": int(s[key]) for key in ("median", "p99") if s[key]})
    return {**o, "longest_ns": int(s["longest"])}


# ---- files in a directory ----

def new_file(t, length, allocate):
    """A file without a name, which is gone when it is closed, whatever ends the program."""
    try:
        try:
            fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600, dir_fd=t["dir_fd"])
        except OSError as e:
            if e.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
            name = f".cowfs-bench.{os.getpid()}.{time.monotonic_ns():x}"
            fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600, dir_fd=t["dir_fd"])
            os.unlink(name, dir_fd=t["dir_fd"])
        os.truncate(fd, length)
        if allocate and libc.fallocate(fd, 0, ctypes.c_longlong(0), ctypes.c_longlong(length)) and ctypes.get_errno() != errno.EOPNOTSUPP:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return fd
    except OSError as e:
        raise Failed(errno.errorcode[e.errno], f"{t['path']}: no file can be made: {e.strerror}") from None


def extents(fd):
    """0: the file system does not say"""
    request = bytearray(struct.pack("=QQLLLL", 0, 2**64 - 1, 1, 0, 0, 0)) # FIEMAP_FLAG_SYNC, no room for extents: counts
    try:
        fcntl.ioctl(fd, 0xC020660B, request) # FS_IOC_FIEMAP
    except OSError:
        return 0
    return struct.unpack("=QQLLLL", request)[3]


def random_bits(state):
    """splitmix64: the highest bit of each"""
    while True:
        state = state + 0x9E3779B97F4A7C15 & 2**64 - 1
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
        z = (z ^ z >> 27) * 0x94D049BB133111EB & 2**64 - 1
        yield (z ^ z >> 31) >> 63


# ---- the tables ----

def random_total(size):
    return max(min(QUICK_REQUESTS * size, QUICK_ROW_BYTES), size)


class Run:
    def __init__(self, target, tables, seed, quiet):
        self.t, self.tables, self.seed, self.quiet = target, tables, seed, quiet
        self.step = self.steps = self.read_bytes = self.written_bytes = 0
        self.planning, self.doc, self.files = False, {}, []

    def job(self, name, rw, size, total, limit_ms=QUICK_MS, **more):
        """Runs one job, the next step; its reads and writes, None while planning."""
        t, self.step = self.t, self.step + 1
        length = more.get("length", t["test_bytes"])
        if self.planning:
            return None
        if not self.quiet:
            print(f"\r{self.step} of {self.steps}: {name}\033[K", end="", file=sys.stderr, flush=True)
        fd = more.get("fd", t["fd"])
        writes = rw not in ("read", "randread")
        try:
            # --readonly: a second look whether nothing is written. Neither a calibrated clock nor /proc/diskstats: a start takes half as
            # long. Random data: a card may compress or skip zeros. The last request would go beyond the end of a range that is no multiple
            text, code = run_fio(
                [*([] if writes else ["--readonly"]), "--output-format=json", "--eta=never", "--name=bench", "--thread",
                 "--clocksource=clock_gettime", "--disk_util=0", "--ioengine=psync", f"--filename=/proc/self/fd/{fd}",
                 "--allow_file_create=0", "--fallocate=none", f"--rw={rw}",
                 *([f"--rwmixwrite={more['percent']}"] if rw == "randrw" else []),
                 f"--offset={more.get('offset', t['test_offset_bytes'])}", f"--size={length // size * size}", f"--bs={size}",
                 f"--io_size={total}", "--norandommap", f"--runtime={limit_ms}ms", f"--direct={int(t['direct'])}",
                 f"--sync={int(more.get('sync', False))}", "--invalidate=1", "--refill_buffers",
                 f"--randseed={(self.seed + self.step - 1) & 2**63 - 1}", *(["--end_fsync=1"] if writes else [])], limit_ms / 1000 + GRACE_S, (fd,))
            try:
                read, write, error = parse_fio(text)
            except ValueError:
                raise Failed("EBADMSG", f"fio failed with exit code {code}", text.split("{")[0]) from None
            if error or code:
                why = os.strerror(error) if error else f"fio failed with exit code {code}"
                raise Failed(errno.errorcode.get(error, "EIO"), why, text.split("{")[0])
        except Failed as e:
            raise Failed(e.code, f"{t['path']}: {name}: {e}", e.said) from None
        finally:
            if not self.quiet:
                print("\r\033[K", end="", file=sys.stderr, flush=True)
        self.read_bytes += int(read["bytes"])
        self.written_bytes += int(write["bytes"])
        return read, write

    def into(self, row, key, name, rw, size, total, **more):
        result = self.job(f"{name} {size_text(size)}", rw, size, total, **more)
        found = figures(*result) if result else None
        if found:
            row[key] = found

    def skip(self, table, why):
        self.doc.setdefault("not_measured", []).append({"table": table, "why": why})

    def row(self, table, key, value):
        self.doc.setdefault(table, []).append({key: value})
        return self.doc[table][-1]

    def sizes(self, first, last=MIB):
        size = first
        while size <= last:
            if self.t["sector_bytes"] <= size <= self.t["test_bytes"]:
                yield size
            size *= 2

    def linear_row(self, row, rw, size):
        total = min(max(QUICK_REQUESTS * size, QUICK_LINEAR_BYTES), QUICK_ROW_BYTES)
        self.into(row, rw, f"linear {rw}", rw, size, total)

    def linear(self):
        for size in self.sizes(4 * KIB):
            row = self.row("linear", "block_bytes", size)
            for rw in (["write"] if self.t["writes"] else []) + ["read"]:
                self.linear_row(row, rw, size)

    def seek(self):
        row = self.doc["linear"][-1] if self.doc.get("linear") else self.doc.setdefault("transfer", {})
        if "linear" not in self.doc:
            self.linear_row(row, "read", MIB)
        rate = number(member(row, "read", "bytes_per_second"))
        self.doc["seek"] = []
        for size in self.sizes(512):
            row = self.row("seek", "block_bytes", size)
            self.into(row, "read", "random read, all of it,", "randread", size, random_total(size), offset=0, length=self.t["size_bytes"])
            if "read" in row and rate > 0:
                row["seek_ns"] = short(1e9 / row["read"]["requests_per_second"] - 1e9 * size / rate)

    def random(self):
        # to the erase block itself, which need not be a power of two
        last, most = min(self.t["erase_block_bytes"], 16 * MIB), self.t["test_bytes"] // 4
        self.doc["random"] = []
        for size in [s for s in self.sizes(4 * KIB, most) if s < last] + ([last] if last <= most else []):
            row = self.row("random", "block_bytes", size)
            for way in (["write"] if self.t["writes"] else []) + ["read"]:
                self.into(row, way, f"random {way}", f"rand{way}", size, random_total(size))

    def mix(self):
        for percent in PERCENTS if self.t["writes"] else PERCENTS[:1]:
            row = self.row("mix", "write_percent", percent)
            rw = {0: "randread", 100: "randwrite"}.get(percent, "randrw")
            self.into(row, "both", "reads and writes" if percent else "reads", rw, 4 * KIB, random_total(4 * KIB), percent=percent)
            if "both" in row:
                row.update({disk: short(row["both"]["requests_per_second"] / rate) for disk, rate in DISKS.items()})

    def iozone(self):
        row, total = self.doc.setdefault("iozone", {}), random_total(4 * KIB)
        if self.t["writes"]:
            # in a directory the requests extend a new file, as those of iozone do
            new = self.t["dir_fd"] >= 0 and not self.planning
            fd = new_file(self.t, self.t["test_bytes"], False) if new else self.t["fd"]
            self.into(row, "write", "new records of", "write", 4 * KIB, total, fd=fd, sync=True)
            self.into(row, "rewrite", "the same records of", "write", 4 * KIB, total, fd=fd, sync=True)
            if new:
                os.close(fd)
        for way in ["random_read"] + (["random_write"] if self.t["writes"] else []):
            name = f"iozone's {way.replace('_', ' ')}s of"
            self.into(row, way, name, way.replace("random_", "rand"), 4 * KIB, total, sync=True)

    def fragments(self):
        """What fragmentation costs: a file that was allocated at once; one of which, twice as large, one of each two pieces was removed;
        one allocated at once with that one there, as a defragmenter leaves it. The extents are counted, because file systems differ."""
        if self.t["dir_fd"] < 0:
            return self.skip("fragments", "files are needed: name a directory on the device")
        length, piece = 16 * MIB, 16 * KIB
        self.doc["fragments"] = []
        for state in ("blank", "fragmented", "defragmented"):
            row = self.row("fragments", "state", state)
            row["rows"] = []
            fd, why = self.fragments_file(state, 2 * length if state == "fragmented" else length, length, piece)
            if not why and not self.planning:
                row["extents"] = extents(fd)
                why = ("the file system does not report the extents of files" if not row["extents"] else
                       "the file system keeps the file in few pieces" if state == "fragmented" and row["extents"] < length // piece // 4 else "")
            if why:
                del self.doc["fragments"]
                return self.skip("fragments", why)
            for size in (512, 32 * KIB, 256 * KIB, 2 * MIB):
                if size < self.t["sector_bytes"]:
                    continue
                row["rows"].append({"block_bytes": size})
                for way in ("write", "read"):
                    self.into(row["rows"][-1], way, f"{way}s of", f"rand{way}", size, 200 * size, fd=fd, offset=0, length=length)
        return None

    def fragments_file(self, state, whole, length, piece):
        """The file, which stays open, and why it could not be made."""
        fd = -1 if self.planning else new_file(self.t, whole, True)
        self.files.append(fd)
        result = self.job(f"making a file: {state}", "write", MIB, whole, 120000, fd=fd, offset=0, length=whole)
        if self.planning:
            return fd, ""
        if result[1]["bytes"] != whole:
            return fd, "the files were not complete after 2 minutes"
        bits = random_bits(self.seed)
        for at in range(0, length, piece) if state == "fragmented" else ():
            # not the end of the file, which would be a truncation
            second = next(bits) if at + piece < length else 0
            if libc.fallocate(fd, COLLAPSE, ctypes.c_longlong(at + second * piece), ctypes.c_longlong(piece)):
                e = ctypes.get_errno()
                if e in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    return fd, "the file system cannot remove a part of a file, which makes the fragments"
                raise Failed(errno.errorcode[e], f"{self.t['path']}: a file cannot be fragmented: {os.strerror(e)}")
        os.fsync(fd)
        return fd, ""

    def all(self):
        if self.t["writes"] and self.t["dir_fd"] >= 0: # a new file has no blocks
            self.job("filling with random data", "write", min(MIB, self.t["test_bytes"]), self.t["test_bytes"], 24 * 3600000)
        for name in TABLES:
            if name in self.tables:
                getattr(self, name)()
        if not self.t["writes"]:
            self.skip("writes", "a device is only read without --write-area")

    def measure(self, version):
        self.planning = True
        self.all()
        self.planning, self.steps, self.step, self.doc = False, self.step, 0, {}
        start, t = time.monotonic(), self.t
        u = os.uname()
        shown = ("model", "identity", "raid", "fs_type")
        self.doc = {"ok": True, "schema": t["schema"], "command": "bench", "fio": version, "target": t["path"],
                    "kind": "device" if t["dir_fd"] < 0 else "directory", **{key: t[key] for key in shown if t[key]},
                    "kernel": u.release, "machine": u.machine, "date_unix_seconds": int(time.time()), "seed": self.seed}
        if t["dir_fd"] < 0:
            self.doc.update(device_bytes=t["size_bytes"], **{k: t[k] for k in ("test_offset_bytes", "erase_block_bytes", "erase_block_guessed")})
        self.doc.update({k: t[k] for k in ("test_bytes", "sector_bytes", "direct", "writes")})
        self.all()
        self.doc.update(read_bytes=self.read_bytes, written_bytes=self.written_bytes, run_seconds=short(time.monotonic() - start))
        return self.doc


# ---- numbers for people ----

def size_text(v):
    v, units = int(number(v)), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    u = min(max(v.bit_length() - 1, 0) // 10, 5)
    return f"{v} B" if not u else f"{v / (1 << 10 * u):.1f} {units[u]}"


def block(v):
    v = int(number(v))
    return f"{v >> 20}M" if v >= MIB and v % MIB == 0 else f"{v >> 10}K" if v >= KIB and v % KIB == 0 else f"{v}"


def digits(v):
    if not math.isfinite(v) or abs(v) > 1e12:
        return "-"
    return f"{v:.{0 if abs(v) >= 100 else 1 if abs(v) >= 10 else 2}f}"


def figure(o, key, scale=1):
    return digits(number(o.get(key)) * scale) if isinstance(o, dict) else "-"


def ratio(v):
    return f"{digits(v if v >= 1 else 1 / v if v > 0 else math.nan)}x {'better' if v >= 1 else 'worse'}"


def span(s):
    for seconds, unit in ((365.25 * 86400, "years"), (86400, "days"), (3600, "h"), (60, "min"), (1, "s")):
        if s >= 2 * seconds or unit == "s":
            return f"{s / seconds:.{1 if s / seconds < 10 else 0}f} {unit}"
    return "?"


# ---- published cards: [{"id", "title", "source", "writes", "sync_ns", and lists of [bytes, ns] by request}] ----

def published_at(card, key, size):
    return next((ns for n, ns in card[key] if n == size), None)


def published_rate(card, way, size, scale=1):
    """Linear, bytes per second times scale."""
    ns = published_at(card, f"{way}_ns", size) if way == "read" or card["writes"] else None
    return size * 1e9 / ns * scale if ns else None


def published_seek_ns(card, size):
    ns, rate = published_at(card, "random_read_ns", size), published_at(card, "read_ns", MIB)
    return ns - rate * size / MIB if ns and rate else None


def published_mix(card, percent):
    read, write = (published_at(card, f"random_{way}_ns", 4 * KIB) for way in ("read", "write"))
    return 1e9 / (read + (write - read) * percent / 100) if card["writes"] else None


def or_dash(v):
    return digits(v) if v is not None else "-"


# ---- tables of texts: the first row and the first column are headings ----

def same(former, table, key, value):
    return next((row for row in rows_of(former, table) if number(row.get(key)) == value), None)


def turned(columns):
    """Rows of columns."""
    return [list(row) for row in zip(*columns)]


def linear_grid(doc, former, card):
    rows = rows_of(doc, "linear")
    columns = [["Block"]]
    ways = [w for w in ("write", "read") if any(row.get(w) for row in rows)]
    for way in ways:
        columns[0] += [way.capitalize(), "  spread %", f"  {card['id']}"] + (["  before"] if former else [])
    for row in rows:
        size = number(row.get("block_bytes"))
        column = [block(size)]
        for way in ways:
            column += [figure(row.get(way), "bytes_per_second", 1e-6), figure(row.get(way), "spread_percent"),
                       or_dash(published_rate(card, way, size, 1e-6))]
            if former:
                column.append(figure(member(same(former, "linear", "block_bytes", size), way), "bytes_per_second", 1e-6))
        columns.append(column)
    return turned(columns)


def seek_grid(doc, former, card):
    grid = [["Block", "reads/s", "spread %", "MB/s", "seek ms", card["id"]] + (["before/s", "seek before"] if former else [])]
    for row in rows_of(doc, "seek"):
        size, read = number(row.get("block_bytes")), row.get("read")
        seek = published_seek_ns(card, size)
        grid.append([block(size), figure(read, "requests_per_second"), figure(read, "spread_percent"), figure(read, "bytes_per_second", 1e-6),
                     figure(row, "seek_ns", 1e-6), or_dash(seek and seek / 1e6)])
        if former:
            old = same(former, "seek", "block_bytes", size)
            grid[-1] += [figure(member(old, "read"), "requests_per_second"), figure(old, "seek_ns", 1e-6)]
    return grid


def random_grid(doc, former, card):
    rows = rows_of(doc, "random")
    ways = [w for w in ("write", "read") if any(row.get(w) for row in rows)]
    grid = [["Block"]]
    for way in ways:
        grid[0] += [f"{way}s/s", "spread %", "MB/s", card["id"]] + (["before/s"] if former else [])
    for row in rows:
        size = number(row.get("block_bytes"))
        grid.append([block(size)])
        for way in ways:
            o, ns = row.get(way), published_at(card, f"random_{way}_ns", size)
            grid[-1] += [figure(o, "requests_per_second"), figure(o, "spread_percent"), figure(o, "bytes_per_second", 1e-6),
                         or_dash(1e9 / ns if ns else None)]
            if former:
                grid[-1].append(figure(member(same(former, "random", "block_bytes", size), way), "requests_per_second"))
    return grid


def mix_grid(doc, former, card):
    grid = [["writes %", "IOPS", "spread %", "vs 15k SAS", "vs 5400 rpm", card["id"]] + (["before"] if former else [])]
    for row in rows_of(doc, "mix"):
        percent = number(row.get("write_percent"))
        grid.append([f"{percent:.0f}", figure(row.get("both"), "requests_per_second"), figure(row.get("both"), "spread_percent"),
                     *(ratio(number(row.get(disk))) for disk in DISKS), or_dash(published_mix(card, percent))])
        if former:
            grid[-1].append(figure(member(same(former, "mix", "write_percent", percent), "both"), "requests_per_second"))
    return grid


def iozone_grid(doc, former, card):
    sync, size = card["sync_ns"], 4 * KIB
    rewrite, scattered = (published_at(card, key, size) for key in ("write_ns", "random_write_ns"))
    known = {"rewrite": 1e9 / (rewrite + sync), "random_read": 1e9 / published_at(card, "random_read_ns", size),
             "random_write": 1e9 / (scattered + sync)}
    columns = [["", "operations/s", "  spread %", f"  {card['id']}"] + (["  before"] if former else [])]
    for key in ("write", "rewrite", "random_read", "random_write"):
        o = member(doc, "iozone", key)
        columns.append([key.replace("_", " "), figure(o, "requests_per_second"), figure(o, "spread_percent"), or_dash(known.get(key))])
        if former:
            columns[-1].append(figure(member(former, "iozone", key), "requests_per_second"))
    return turned(columns)


def fragments_grid(doc, former, _):
    grid, states = [["File", "extents"]], rows_of(doc, "fragments")
    sizes = [number(row.get("block_bytes")) for row in rows_of(states[0] if states else {}, "rows")]
    grid[0] += [f"{block(size)} {way}" for size in sizes for way in ("write", "read")]
    for row in states:
        old = same_state(former, row.get("state"))
        for name, o, count in [(words(row.get("state")), row, f"{number(row.get('extents')):.0f}")] + ([("  before", old, "")] if former else []):
            grid.append([name, count] + [figure(member(same(o, "rows", "block_bytes", size), way), "requests_per_second", 60)
                                         for size in sizes for way in ("write", "read")])
    return grid


def same_state(former, state):
    return next((row for row in rows_of(former, "fragments") if row.get("state") == state), None)


TABLES = {
    "linear": ("Linear, MB/s", linear_grid),
    "seek": ("Seek: random reads over all of it; seek = 1/IOPS - size/linear rate", seek_grid),
    "random": ("Random requests in the tested part, by size", random_grid),
    "mix": ("Mix of random reads and writes of 4 KiB", mix_grid),
    "iozone": ("As iozone: 4 KiB with O_DIRECT and O_SYNC", iozone_grid),
    "fragments": ("Fragmentation: operations per minute", fragments_grid),
}


def grids(doc, former, cards):
    for name, (title, make) in TABLES.items():
        if member(doc, name) is not None:
            yield name, title, make(doc, former, cards[0])


# ---- header and text ----

def header(doc):
    size, directory = number(member(doc, "device_bytes")), member(doc, "kind") == "directory"
    raid = words(member(doc, "raid"))
    name = [f"{words(member(doc, 'target'))} {'(a file in this directory)' if directory else size_text(size) if size else ''}",
            words(member(doc, "fs_type")), words(member(doc, "model")), f"RAID level {raid}" if raid else ""]
    yield "device", ", ".join(filter(None, name))
    start = f" from {size_text(member(doc, 'test_offset_bytes'))}" if member(doc, "test_offset_bytes") is not None else ""
    way = "direct I/O" if member(doc, "direct") is True else "through the page cache, because direct I/O is not possible here"
    filled = "only read" if member(doc, "writes") is not True else "filled with random data" if directory else "not filled before"
    yield "test", f"{size_text(member(doc, 'test_bytes'))}{start}, {way}, {filled}"
    if member(doc, "erase_block_bytes") is not None:
        guessed = member(doc, "erase_block_guessed") is True
        yield "erase block", f"{size_text(member(doc, 'erase_block_bytes'))} ({'assumed' if guessed else 'reported'})"
    yield "method", f"{words(member(doc, 'fio'))}, seed {number(member(doc, 'seed')):.0f}"
    yield "kernel", f"{words(member(doc, 'kernel'))} {words(member(doc, 'machine'))}"
    yield "date", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(number(member(doc, "date_unix_seconds")), 2**40)))
    yield "I/O", (f"{size_text(member(doc, 'written_bytes'))} written, {size_text(member(doc, 'read_bytes'))} read in "
                  f"{span(number(member(doc, 'run_seconds')))}")


def beside(card):
    return f"beside it {card['id']}: {card['title']}; {card['source']}"


def text_of(doc, former, cards):
    out = [f"  {name:12} {value}" for name, value in header(doc)]
    out.append(f"  {'published':12} {beside(cards[0])}")
    if former:
        out += ["", "before: the result given with --compare"] + [f"  {name:12} {value}" for name, value in header(former)]
    for _, title, grid in grids(doc, former, cards):
        widths = [max(len(cell) for cell in column) for column in zip(*grid)]
        out += ["", title]
        out += ["  " + "  ".join(f"{cell:<{w}}" if not i else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths))) for row in grid]
    missing = [f"not measured: {words(o.get('table'))}: {words(o.get('why'))}" for o in rows_of(doc, "not_measured") if o]
    return "\n".join(out + ([""] if missing else []) + missing) + "\n"


# ---- the page: tables as text, plots as SVG inside it, no script ----

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 290, 46, 18, 10, 38 # of a plot, about one pixel on a phone each
DASH = ("", "8 4", "2 3", "6 3", "9 3 2 3", "3 6")
STYLE = """
:root { color-scheme: light dark; --bg: #f4f5f7; --card: #fff; --text: #1a1f26; --soft: #525b68; --line: #d5dae1; --grid: #e6e9ee;
	--c0: #1f6feb; --c1: #b8500a; --c2: #0f766e; --c3: #7e22ce; --c4: #be123c; --c5: #4d5a00; }
@media (prefers-color-scheme: dark) { :root { --bg: #111418; --card: #1a1f25; --text: #e8ebef; --soft: #a9b3c0; --line: #38414c;
	--grid: #2a323b; --c0: #6ea8fe; --c1: #f5a35c; --c2: #5eead4; --c3: #c4a5fb; --c4: #fda4af; --c5: #d2e07a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
main { max-width: 1080px; margin: 0 auto; padding: 16px; }
h1 { font-size: 1.5rem; line-height: 1.2; } h2 { font-size: 1.1rem; margin: 0 0 8px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px; margin: 0 0 16px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9375rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap; font-weight: 400; }
thead th { font-weight: 600; } th:first-child { text-align: left; }
.head td { text-align: left; white-space: normal; } .head th, footer, .keys { color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 0 24px; }
svg { display: block; width: 100%; max-width: 560px; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.g { stroke: var(--grid); } .l { fill: none; stroke-width: 2; } .d { stroke: none; }
.keys { list-style: none; margin: 4px 0 16px; padding: 0; display: flex; flex-wrap: wrap; gap: 0 16px; font-size: .875rem; }
.keys svg { display: inline-block; width: 32px; margin-right: 6px; vertical-align: middle; }
"""


def escaped(text):
    return html.escape(words(text))


def measured_curve(doc, table, part, field, scale, percent):
    for i, row in enumerate(rows_of(doc, table)):
        o = row.get(part) if part else row
        size = number(row.get("block_bytes"))
        yield i if percent else math.log2(size) if size > 0 else 0, (number(o.get(field)) * scale if isinstance(o, dict) else 0)


def published_curve(card, table, part):
    sizes = [512 << i for i in range(12)]
    if table == "mix":
        return [(i, published_mix(card, percent)) for i, percent in enumerate(PERCENTS)]
    if table == "seek":
        return [(math.log2(size), (published_seek_ns(card, size) or 0) / 1e6) for size in sizes]
    return [(math.log2(size), published_rate(card, part, size, 1e-6)) for size in sizes[3:]]


# title, unit, table, part of a row, figure, scale
PLOTS = (("Linear reads", "MB/s", "linear", "read", "bytes_per_second", 1e-6), ("Linear writes", "MB/s", "linear", "write", "bytes_per_second", 1e-6),
         ("Seek", "ms", "seek", None, "seek_ns", 1e-6), ("Mix of reads and writes of 4 KiB", "requests/s", "mix", "both", "requests_per_second", 1))


def svg(title, percent, series):
    """Its axes are those of all points; the measured curve lies above the others."""
    points = [p for _, curve in series for p in curve]
    x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
    y0 = math.floor(min(math.log10(p[1]) for p in points))
    y1 = max(math.ceil(max(math.log10(p[1]) for p in points)), y0 + 1)
    if x1 <= x0 or y1 - y0 > 12:
        return ""

    def at_x(x):
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - x0) / (x1 - x0)

    def at_y(log):
        return TOP + (HEIGHT - TOP - BOTTOM) * (y1 - log) / (y1 - y0)

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title} by {"share of writes" if percent else "size of a request"}">']
    for e in range(y0, y1 + 1):
        out.append(f'<path class="g" d="M{LEFT} {at_y(e):.1f}H{WIDTH - RIGHT}"/><text x="{LEFT - 6}" y="{at_y(e) + 4:.1f}" '
                   f'text-anchor="end">{10.0 ** e:g}</text>')
    for x in range(math.ceil(x0), math.floor(x1) + 1):
        out.append(f'<path class="g" d="M{at_x(x):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        if percent or x % 2 == 0: # every other size has its name
            name = PERCENTS[x] if percent and x < len(PERCENTS) else block(1 << x)
            out.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{name}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) // 2}" y="{HEIGHT - 4}" text-anchor="middle">'
               f'{"writes, %" if percent else "size of a request, bytes"}</text>')
    for k, curve in reversed(series):
        places = [f"{at_x(x):.1f} {at_y(math.log10(y)):.1f}" for x, y in curve]
        out.append(f'<path class="l" style="stroke:var(--c{k})" stroke-dasharray="{DASH[k]}" d="M{"L".join(places)}"/>')
        if k < 2:
            out += [f'<circle class="d" style="fill:var(--c{k})" cx="{p.split()[0]}" cy="{p.split()[1]}" r="3.5"/>' for p in places]
    return "".join(out) + "</svg>"


def plot(doc, former, cards, title, unit, table, part, field, scale):
    percent = table == "mix"
    names = [words(member(doc, "target")), "before", *(card["title"] for card in cards)]
    curves = [measured_curve(d, table, part, field, scale, percent) for d in (doc, former)] + [published_curve(c, table, part) for c in cards]
    series = [(k, [(x, y) for x, y in curve if y and 0 < y < 1e300]) for k, curve in enumerate(curves)]
    if not series[0][1]:
        return ""
    series = [(k, curve) for k, curve in series if curve]
    drawn = svg(title, percent, series)
    keys = "".join(f'<li><svg viewBox="0 0 32 8" aria-hidden="true"><path class="l" style="stroke:var(--c{k})" stroke-dasharray="{DASH[k]}" '
                   f'd="M0 4H32"/></svg>{escaped(names[k])}</li>' for k, _ in series)
    return f'<div><h2>{title}, {unit}</h2>\n{drawn}\n<ul class="keys">{keys}</ul></div>\n' if drawn else ""


def head_table(doc):
    rows = "".join(f'<tr><th scope="row">{name}</th><td><bdi>{escaped(value)}</bdi></td></tr>\n' for name, value in header(doc))
    return f'<div class="scroll"><table class="head">\n{rows}</table></div>'


def grid_table(name, title, grid):
    first = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in grid[0])
    rest = "".join(f'<tr><th scope="row">{escaped(row[0])}</th>' + "".join(f"<td>{escaped(cell)}</td>" for cell in row[1:]) + "</tr>\n" for row in grid[1:])
    return (f'<section id="{name}">\n<h2>{escaped(title)}</h2>\n<div class="scroll" tabindex="0"><table>\n<thead><tr>{first}</tr></thead>\n'
            f"{rest}</table></div>\n</section>\n")


def page_of(doc, former, cards):
    target = escaped(member(doc, "target"))
    before = f'<section id="before"><h2>Before</h2>{head_table(former)}</section>\n' if former else ""
    plots = "".join(plot(doc, former, cards, *p) for p in PLOTS)
    tables = "".join(grid_table(*g) for g in grids(doc, former, cards))
    missing = "".join(f"<li>{escaped(o.get('table'))}: {escaped(o.get('why'))}</li>" for o in rows_of(doc, "not_measured") if o)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>Benchmark of {target}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Benchmark of <bdi>{target}</bdi></h1>
<section id="head">{head_table(doc)}</section>
{before}<section id="plots"><div class="plots">
{plots}</div></section>
{tables}{f'<section id="missing"><h2>Not measured</h2><ul>{missing}</ul></section>' if missing else ""}
<footer><p>Curves of other cards and disks are published figures, from the flash profiles of cowfs; in the tables: {escaped(beside(cards[0]))}.
spread: half the interval in which 95 % of such means lie.</p></footer>
</main>
</body>
</html>
"""


# ---- the program ----

def read_former(path, schema):
    try:
        with open(path, "rb") as f:
            text = f.read(FORMER_BYTES)
    except OSError as e:
        raise Failed(errno.errorcode[e.errno], f"{path} cannot be read: {e.strerror}") from None
    try:
        doc = json.loads(text) if len(text) < FORMER_BYTES else None
    except (ValueError, RecursionError):
        doc = None
    if member(doc, "ok") is not True or doc.get("schema") != schema or doc.get("command") != "bench":
        raise Failed("EINVAL", f"{path} is not what 'cowctl measure --tables --json' prints (schema {schema})")
    doc.pop("before", None) # of a comparison itself: it would grow with each of them
    return doc


def write_page(rq, text):
    """In one step: by a file beside it, whose name is not known before. None: only finds out whether it can be written."""
    name, folder, new = rq["html_name"], rq["html_dir_fd"], f".{os.urandom(12).hex()}"
    try:
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode # a link is replaced, not what it names
            if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
        except FileNotFoundError:
            pass
        fd = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644, dir_fd=folder)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as f:
                f.write(text or "")
                f.flush()
                os.fsync(fd)
            if text is not None:
                os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
                return
        except OSError:
            os.unlink(new, dir_fd=folder)
            raise
        os.unlink(new, dir_fd=folder)
    except OSError as e:
        raise Failed(errno.errorcode[e.errno], f"{rq['html']} cannot be written: {e.strerror}") from None


def stop(sig, _):
    raise Stopped(sig)


def measure(rq):
    version = fio_version()
    former = read_former(rq["compare"], rq["schema"]) if rq["compare"] else None
    if rq["html"]:
        write_page(rq, None)
    return Run(rq, rq["tables"], rq["seed"], not sys.stderr.isatty()).measure(version), former


def show(rq, doc, former):
    """The result first: it took minutes."""
    if rq["json"]:
        print(json.dumps({**doc, **({"before": former} if former else {})}, separators=(",", ":")))
    else:
        print(text_of(doc, former, rq["published"]), end="")
    sys.stdout.flush()
    if rq["html"]:
        write_page(rq, page_of(doc, former, rq["published"]))


def fail(rq, code, why, said=""):
    why = words(why)
    if rq["json"]:
        print(json.dumps({"ok": False, "schema": rq["schema"], "error": why, "code": code, "exit": 1}, separators=(",", ":")))
    else:
        print(f"cowctl: {why}", *(f"    {words(line)}" for line in said.splitlines() if line), sep="\n", file=sys.stderr)
    return 1


def main():
    rq = json.loads(sys.argv[1])
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, stop)
    doc = None
    try:
        doc, former = measure(rq)
        show(rq, doc, former)
    except Stopped as e:
        fail(rq, "EINTR", f"{rq['path']}: interrupted")
        sys.stdout.flush()
        signal.signal(e.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), e.args[0])
    except Failed as e:
        if doc and rq["json"]: # there is an answer already
            print(f"cowctl: {e}", file=sys.stderr)
            return 1
        return fail(rq, e.code, str(e), e.said)
    except OSError:
        print("cowctl: cannot write the result", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
