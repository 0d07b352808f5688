#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One QMP command: qmp.py SOCKET COMMAND [JSON-ARGUMENTS] prints what it returns.
`qmp.py SOCKET writes DRIVE`: number and bytes of the writes and discards that QEMU has seen on a drive.
`qmp.py SOCKET await DRIVE N`: returns after the N-th write, or when QEMU has ended; prints how many there were."""
import json
import socket
import sys
import time


def main():
    path, command = sys.argv[1:3]
    drive = None
    request = {}
    target = None
    if command in ("writes", "await"):
        target = int(sys.argv[4]) if command == "await" else None
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
    if drive is None:
        print(json.dumps(call(command, request)))
        return

    def stats():
        for d in call(command, request):
            if d["device"] == drive:
                return d["stats"]
        sys.exit(f"no drive {drive}")

    s = stats()
    seen = s["wr_operations"]
    try:
        while target is not None and seen < target:
            time.sleep(0.005)
            seen = stats()["wr_operations"]
    except (OSError, SystemExit):
        pass
    if target is None:
        print(s["wr_operations"], s["wr_bytes"], s["unmap_operations"], s["unmap_bytes"])
    else:
        print(seen)


main()
