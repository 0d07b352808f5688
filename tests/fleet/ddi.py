#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server with the part of hawkBit's DDI API that a device uses, for one device and one deployment at a time.

ddi.py FOLDER: prints its port. FOLDER/action names the open action, whose artifact is FOLDER/update.swu; each feedback is
a line of FOLDER/feedback: action, execution, finished. What is closed is not offered again.
"""
import hashlib
import http.server
import json
import os
import sys

folder = sys.argv[1]
base = "/default/controller/v1/card"


def path(name):
    return os.path.join(folder, name)


def action():
    try:
        with open(path("action"), encoding="ascii") as f:
            return f.read().strip()
    except FileNotFoundError:
        return ""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def send(self, body, kind="application/hal+json", code=200):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def url(self, rest):
        return "http://127.0.0.1:%d%s%s" % (self.server.server_address[1], base, rest)

    def do_GET(self):
        name = self.path.split("?")[0]
        if name == base:
            links = {"deploymentBase": {"href": self.url("/deploymentBase/" + action())}} if action() else {}
            self.send(json.dumps({"config": {"polling": {"sleep": "00:00:02"}}, "_links": links}).encode())
        elif action() and name == base + "/deploymentBase/" + action():
            self.send(json.dumps(self.deployment()).encode())
        elif name == base + "/update.swu":
            with open(path("update.swu"), "rb") as f:
                self.send(f.read(), "application/octet-stream")
        else:
            self.send(b"{}", code=404)

    def deployment(self):
        with open(path("update.swu"), "rb") as f:
            data = f.read()
        link = {"href": self.url("/update.swu")}
        artifact = {"filename": "update.swu", "size": len(data), "_links": {"download": link, "download-http": link},
                    "hashes": {"sha1": hashlib.sha1(data).hexdigest(), "md5": hashlib.md5(data).hexdigest()}}
        return {"id": action(), "deployment": {"download": "forced", "update": "forced", "chunks": [
            {"part": "os", "name": "root", "version": "2", "artifacts": [artifact]}]}}

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = body["status"]
        with open(path("feedback"), "a", encoding="ascii") as f:
            print(self.path.split("/")[-2], status["execution"], status["result"]["finished"], file=f, flush=True)
        if status["execution"] == "closed":
            os.unlink(path("action"))
        self.send(b"{}")

    def do_PUT(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send(b"{}")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
