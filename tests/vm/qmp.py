#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One QMP command: qmp.py SOCKET COMMAND [JSON-ARGUMENTS] prints what it returns.
`qmp.py SOCKET writes DRIVE`: number and bytes of the writes and discards that QEMU has seen on a drive."""
import json
import socket
import sys


def main():
    path, command = sys.argv[1:3]
    drive = None
    request = {}
    if command == "writes":
        drive, command = sys.argv[3], "query-blockstats"
    elif len(sys.argv) > 3:
        request = json.loads(sys.argv[3])
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(path)
    f = s.makefile("rw")

    def call(name, arguments):
        f.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        f.flush()
        for line in f:
            answer = json.loads(line)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                sys.exit(f"{name}: {answer['error']['desc']}")
        sys.exit(f"{name}: the connection ended")

    f.readline()
    call("qmp_capabilities", {})
    answer = call(command, request)
    if drive is None:
        print(json.dumps(answer))
        return
    for d in answer:
        if d["device"] == drive:
            s = d["stats"]
            print(s["wr_operations"], s["wr_bytes"], s["unmap_operations"], s["unmap_bytes"])


main()
