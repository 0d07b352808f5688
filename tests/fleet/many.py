# SPDX-License-Identifier: MIT
"""What a Prometheus of 10,000 devices costs: it scrapes as many targets once a minute. All have the text of one real device."""
import gzip
import http.server
import json
import re
import threading
import time

from server import Prometheus, get, wait_until

MIB = 1 << 20


def serve(text):
    packed = gzip.compress(text)

    class Device(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(packed)))
            self.end_headers()
            self.wfile.write(packed)

        def log_message(self, *_):
            pass

    class Devices(http.server.ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 4096

    server = Devices(("127.0.0.1", 0), Device)
    server.handle_error = lambda *_: None # a scrape that is given up is one that is missing
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def measure(tools, folder, text, rules, devices=10000, seconds=180):
    device = serve(text)
    address = f"127.0.0.1:{device.server_address[1]}"
    with open(f"{folder}/targets.json", "w") as f:
        json.dump([{"targets": [address], "labels": {"instance": f"device-{i}", "__param_device": str(i)}} for i in range(devices)], f)
    config = {"global": {"scrape_interval": "60s", "evaluation_interval": "60s"}, "rule_files": [rules],
              "scrape_configs": [{"job_name": "cowfs", "scrape_timeout": "30s", "file_sd_configs": [{"files": [f"{folder}/targets.json"]}]}]}
    with open(f"{folder}/many.yml", "w") as f:
        json.dump(config, f)
    with Prometheus(tools, f"{folder}/many", f"{folder}/many.yml") as p:
        wait_until("not all targets are up", 900, lambda: (p.now("sum(up)") or [{"value": [0, 0]}])[0]["value"][1] == str(devices))
        cpu, _ = p.usage()
        began = time.monotonic()
        time.sleep(seconds)
        cpu, took = p.usage()[0] - cpu, time.monotonic() - began
        resident = p.usage()[1]
        up = p.number("sum(up)")
        series, rate = p.number('count({__name__=~".+"})'), p.number("sum(scrape_samples_scraped)") / 60
        evaluation = re.search(rb"^prometheus_rule_group_last_duration_seconds\{.*\} (\S+)$", get(p.url + "/metrics"), re.M).group(1)
    device.shutdown()
    assert up == devices, f"only {up} targets are up"
    print(f"  {devices} devices, a scrape a minute: {series:.0f} series, {rate:.0f} samples a second, {100 * cpu / took:.0f} % of one CPU, "
          f"{resident / MIB:.0f} MiB of RAM; the rules take {float(evaluation):.2f} s")
