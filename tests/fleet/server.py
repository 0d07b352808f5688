# SPDX-License-Identifier: MIT
"""Servers of a test of the fleet, on free ports of this machine alone, and questions to Prometheus."""
import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def wait_until(what, seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.5)


class Server:
    """A program that listens on a port; ended with the block."""

    def __init__(self, program, *options, log):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        with open(log, "w") as out:
            self.process = subprocess.Popen([program, f"--web.listen-address=127.0.0.1:{self.port}", *options], stdout=out, stderr=out)
        self.log = log

    def __enter__(self):
        wait_until(f"{self.log} says nothing", 60, self.answers)
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(open(self.log).read()[-2000:])
        try:
            get(self.url + "/metrics")
            return True
        except OSError:
            return False

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)

    def usage(self):
        """CPU seconds and resident bytes up to now."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            stat = f.read().rsplit(")", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), int(stat[21]) * os.sysconf("SC_PAGE_SIZE")


class Prometheus(Server):
    def __init__(self, tools, data, config, *options):
        super().__init__(f"{tools}/prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}",
                         "--storage.tsdb.retention.time=10y", *options, log=f"{data}.log")

    def ask(self, what, **parameters):
        answer = json.loads(get(f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def now(self, expr):
        return self.ask("query", query=expr)["result"]

    def number(self, expr):
        return float(self.now(expr)[0]["value"][1])
