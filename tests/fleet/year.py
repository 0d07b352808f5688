#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A year of three devices in a real Prometheus: one card that wears out, one whose daemon dies, a healthy one.

year.py TOOLS [DAYS]   TOOLS: a folder with Debian's prometheus, promtool and prometheus-node-exporter. Root, COWFS_BUILD, a mount
namespace of its own.

Each device is a cowfs daemon on a simulated card, with a clock that is ahead (tests/tools/clock.c). The hour is simulated: writes,
commits, `cowctl wear --prometheus`. promtool brings these metrics into Prometheus with the time that they are of, and each rule of
packaging/prometheus is asked for each hour. Then the devices are scraped through node_exporter as they are now, and
10,000 of them. Prints figures.
"""
import gzip
import json
import mmap
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import many # noqa: E402
import shipped # noqa: E402
from server import Prometheus, Server, get, wait_until # noqa: E402

HOUR, DAY = 3600, 86400
BUILD = os.environ["COWFS_BUILD"]
RULES = f"{shipped.SHIPPED}/cowfs.rules.yml"
# with spare units: with few of them it does not level its wear
SMALL = {"small": {"title": "a small card", "member": "x-slow-4g", "unit_kib": 1024, "spare_percent": 20,
                   "from": {"unit_kib": "assumed: small", "spare_percent": "assumed: many"}}}
MIB = 1 << 20


def run(*command, env=None, check=True):
    r = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert not check or r.returncode == 0, (command, r.returncode, r.stdout, r.stderr)
    return r


class Device:
    """A machine of its own: card, daemon, folder in /run."""

    def __init__(self, folder, name, hourly_bytes, commit_hours, clock):
        self.name, self.hourly, self.commit_hours, self.died_s = name, hourly_bytes, commit_hours, None
        self.folder = f"{folder}/{name}"
        self.sim = f"{self.folder}/sim"
        self.textfiles = f"{self.folder}/textfiles"
        for d in (self.sim, f"{self.folder}/run", self.textfiles):
            os.makedirs(d)
        with open(f"{self.folder}/profile", "w") as f:
            json.dump(SMALL, f)
        self.env = os.environ | {"COWFS_RUNDIR": f"{self.folder}/run", "COWFS_CLOCK": clock, "LD_PRELOAD": f"{BUILD}/tests/clock.so",
                                 "COWFS_CONF": "/dev/null"}
        self.random = random.Random(name)
        self.fd = -1
        self.data = mmap.mmap(-1, MIB)
        # its units bear 750 to 1,250 cycles, which nothing in cowfs knows
        self.card = run(f"{BUILD}/cowfs-cardsim", "--loop", "--fresh", "--profiles", f"{self.folder}/profile", "--wear", "global",
                        "--erase-limit", "1000", "small", "32M", self.sim).stdout.strip()

    def attach(self):
        # FAT: all that is written counts, nothing is mounted, and a worker may die
        run("mkfs.vfat", self.card, "16384")
        self.cowctl("prepare", self.card, "--log-size", "8M", "--erase-block", "1M")
        self.device = self.cowctl("attach", self.card, "--name", "data", "--ram", "64M", "--on-crash", "replace").stdout.strip()
        self.fd = os.open(self.device, os.O_WRONLY | os.O_DIRECT)

    def cowctl(self, *command, check=True):
        return run(f"{BUILD}/cowctl", *command, env=self.env, check=check)

    def status(self):
        return json.loads(self.cowctl("status", "data", "--json", check=False).stdout)

    def write(self, size):
        if not self.died_s:
            self.data[:size] = self.random.randbytes(size)
            os.pwrite(self.fd, memoryview(self.data)[:size], self.random.randrange(2 * MIB, 15 * MIB - size) & -4096)

    def hour(self, hour, now_s):
        self.write(self.hourly)
        if not self.died_s and hour % self.commit_hours == 0 and self.cowctl("commit", "data", "--timer", check=False).returncode:
            self.died_s = now_s

    def kill_worker(self):
        before = self.status()["replaced"]
        with open(f"{self.folder}/run/data/pid") as f:
            os.kill(int(f.read()), 9)
        wait_until(f"{self.name}: no other worker", 60, lambda: self.status().get("replaced") == before + 1)

    def metrics(self, path="-"):
        return self.cowctl("wear", "--prometheus", path).stdout

    def end(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.cowctl("detach", "data", "--discard", check=False)
        run(f"{BUILD}/cowfs-cardsim", "stop", self.sim, check=False)


def set_clock(clock, ahead_s):
    clock[:8] = struct.pack("q", ahead_s)


def emit(out, device, times):
    """The device's metrics as they are now, at each of these times."""
    labels = f'instance="{device.name}",job="cowfs"'
    for line in device.metrics().splitlines():
        if line[0] != "#":
            name, rest, value = re.match(r"(\w+)(?:\{(.*)\})? (\S+)$", line).groups()
            for t in times:
                out.write(f'{name}{{{labels}{"," + rest if rest else ""}}} {value} {t}\n')


def simulate(devices, clock, days, year, minutes):
    """Writes each hour's metrics in the OpenMetrics format, and for the last two days those that a scrape a minute sees of a file that
    is written every five. Returns the times of the first and the last hour."""
    first_s = int(time.time()) // HOUR * HOUR - days * DAY
    for hour in range(days * 24 + 1):
        now_s = first_s + hour * HOUR
        set_clock(clock, now_s - int(time.time()))
        for d in devices:
            if hour == 0:
                d.attach()
            d.hour(hour, now_s)
            if d.name == "replaced" and hour == days * 12:
                d.kill_worker()
            emit(year, d, [now_s])
        for t in range(now_s, now_s + HOUR, 300) if days * 24 - 48 <= hour < days * 24 else ():
            set_clock(clock, t - int(time.time()))
            for d in devices:
                d.write(4096)
                emit(minutes, d, range(t, t + 300, 60))
        if hour % (24 * 30) == 0:
            print(f"  day {hour // 24}", flush=True)
    for out in (year, minutes):
        out.write("# EOF\n")
    return first_s, now_s


def blocks(tools, text, to):
    """Blocks of a database from these samples. Returns the bytes of one sample, and their number."""
    run(f"{tools}/promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=500h", text, to)
    samples = size = 0
    for block in os.listdir(to):
        with open(f"{to}/{block}/meta.json") as f:
            samples += json.load(f)["stats"]["numSamples"]
        size += sum(os.path.getsize(f"{d}/{f}") for d, _, files in os.walk(f"{to}/{block}") for f in files)
    return size / samples, samples


def rules():
    """[(alert, severity, expression, seconds that it must hold)] of the rules as shipped."""
    text = open(RULES).read()
    for block in text.split("- alert: ")[1:]:
        hold = re.search(r"for: (\d+)([mh])", block)
        yield (block.split("\n")[0], re.search(r"severity: (\w+)", block).group(1), re.search(r"expr: (.*)", block).group(1),
               int(hold.group(1)) * {"m": 60, "h": HOUR}[hold.group(2)] if hold else 0)


def fires(prometheus, expr, hold_s, first_s, last_s):
    """{instance: [times at which it fires]}, an hour apart."""
    found = {}
    for series in prometheus.ask("query_range", query=expr, start=first_s, end=last_s, step=HOUR)["result"]:
        true = {int(t) for t, _ in series["values"]}
        hours = -(-hold_s // HOUR)
        times = [t for t in sorted(true) if all(t - h * HOUR in true for h in range(hours + 1))]
        if times:
            found.setdefault(series["metric"]["instance"], []).extend(times)
    return found


def check_year(prometheus, devices, first_s, last_s):
    healthy, replaced, worn = devices
    day = lambda t: round((t - first_s) / DAY, 1)
    seen = {}
    for alert, severity, expr, hold_s in rules():
        for instance, times in fires(prometheus, expr, hold_s, first_s, last_s).items():
            seen[instance, alert, severity] = times
            print(f"  {instance}: {alert} ({severity}), days {day(times[0])} to {day(times[-1])}")
    assert not [k for k in seen if k[0] == "healthy"], "a healthy device has alerts"
    assert [k[1] for k in seen if k[0] == "replaced"] == ["CowfsDaemonReplaced"]
    times = seen["replaced", "CowfsDaemonReplaced", "warning"]
    killed_s = first_s + (last_s - first_s) // 2 // HOUR * HOUR
    assert times[0] == killed_s and DAY - HOUR <= times[-1] - killed_s <= DAY, "it fires for a day from the death on"
    assert worn.died_s, "the card has not worn out: simulate more"
    warned_s = seen["worn", "CowfsCardWornIn60Days", "warning"][0]
    print(f"  worn: warned on day {day(warned_s)}, the card failed on day {day(worn.died_s)}: {day(worn.died_s) - day(warned_s):.0f} days before")
    assert worn.died_s - warned_s >= 60 * DAY, "warned too late"
    assert [k for k in seen if k[0] == "worn" and seen[k][0] < warned_s] == []
    alarm_s = seen["worn", "CowfsAlarm", "critical"][0]
    assert 0 <= alarm_s - worn.died_s <= 2 * HOUR


def firing(prometheus):
    return {(a["labels"].get("instance"), a["labels"]["alertname"]) for a in prometheus.ask("alerts")["alerts"] if a["state"] == "firing"}


def check_now(prometheus, devices):
    """Live, through node_exporter. The rules' waits are 10 s here."""
    healthy, replaced, worn = devices
    replaced.kill_worker()
    want = {("worn", "CowfsCardWornIn60Days"), ("worn", "CowfsAlarm"), ("replaced", "CowfsDaemonReplaced")}
    fresh = lambda: [d.metrics(f"{d.textfiles}/cowfs.prom") for d in devices]
    wait_until(f"not {want}", 120, lambda: fresh() and want <= firing(prometheus))
    assert {k for k in firing(prometheus) if k[0] == "healthy"} == set()
    for title, expr in shipped.panel_exprs(shipped.dashboard()):
        found = prometheus.now(shipped.concrete(expr))
        assert found or "cowfs_device_life_used_ratio" in expr, f"{title}: nothing for {expr}" # a loop device reports none
    old = time.time() - HOUR
    os.utime(f"{healthy.textfiles}/cowfs.prom", (old, old))
    wait_until("old figures go unnoticed", 60, lambda: ("healthy", "CowfsFiguresMissing") in firing(prometheus))
    print(f"  firing now: {', '.join(sorted(f'{i} {a}' for i, a in firing(prometheus)))}")


def figures(device, exporter):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(100):
        device.metrics()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 10
    text, scrape = device.metrics().encode(), get(exporter.url + "/metrics")
    packed = get(exporter.url + "/metrics", **{"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed)[:6] == scrape[:6]
    print(f"  cowfs.prom {len(text)} bytes, gzip {len(gzip.compress(text, 6))}; a scrape {len(scrape)}, gzip {len(packed)}")
    series = [len(re.findall(rb"^[^#]", t, re.M)) for t in (text, scrape)]
    print(f"  series: {series[0]} of cowfs, {series[1]} of the scrape")
    print(f"  cowctl wear --prometheus: {cpu:.1f} ms of CPU, mean of 100")


def with_servers(folder, tools, devices, first_s, last_s):
    with open(RULES) as f, open(f"{folder}/rules.yml", "w") as out:
        out.write(re.sub(r"for: .*", "for: 10s", f.read()))
    print("  bytes a sample: {:.2f} of the {} hourly ones, ".format(*blocks(tools, f"{folder}/year.om", f"{folder}/data")), end="")
    print("{:.2f} of {}, one a minute".format(*blocks(tools, f"{folder}/minutes.om", f"{folder}/blocks")))
    exporters = []
    try:
        for d in devices:
            d.metrics(f"{d.textfiles}/cowfs.prom")
            exporters.append(Server(f"{tools}/prometheus-node-exporter", "--web.disable-exporter-metrics", "--collector.disable-defaults",
                                    "--collector.textfile", f"--collector.textfile.directory={d.textfiles}", log=f"{d.folder}/exporter.log").__enter__())
        config = {"global": {"scrape_interval": "5s", "evaluation_interval": "5s"}, "rule_files": [f"{folder}/rules.yml"],
                  "scrape_configs": [{"job_name": "cowfs", "static_configs": [
                      {"targets": [f"127.0.0.1:{e.port}"], "labels": {"instance": d.name}} for d, e in zip(devices, exporters)]}]}
        with open(f"{folder}/prometheus.yml", "w") as f:
            json.dump(config, f)
        # hourly samples: the default takes a value for gone after 5 minutes
        with Prometheus(tools, f"{folder}/data", f"{folder}/prometheus.yml", "--query.lookback-delta=61m") as p:
            check_year(p, devices, first_s, last_s)
            check_now(p, devices)
            figures(devices[0], exporters[0])
    finally:
        for e in exporters:
            e.__exit__()


def main(tools, days="365"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="cowfs-fleet.", dir="/var/tmp")
    devices = []
    try:
        with open(f"{folder}/clock", "wb+") as f:
            f.write(bytes(4096))
            f.flush()
            clock = mmap.mmap(f.fileno(), 4096)
        for name, hourly, hours in (("healthy", 8192, 24), ("replaced", 8192, 24), ("worn", 896 << 10, 3)):
            devices.append(Device(folder, name, hourly, hours, f"{folder}/clock"))
        print(f"check-fleet: {days} days of {len(devices)} devices, hour by hour", flush=True)
        with open(f"{folder}/year.om", "w") as year, open(f"{folder}/minutes.om", "w") as minutes:
            first_s, last_s = simulate(devices, clock, int(days), year, minutes)
        set_clock(clock, 0)
        with_servers(folder, tools, devices, first_s, last_s)
        text = devices[0].metrics().encode()
        many.measure(tools, folder, text, RULES)
        print("check-fleet: ok")
    finally:
        for d in devices:
            d.end()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
