#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""type.py SOCKET KEYS: types KEYS (with escapes such as \\n and \\x18) on a serial console of QEMU, as slowly as a person."""
import socket
import sys
import time

console = socket.socket(socket.AF_UNIX)
console.connect(sys.argv[1])
for key in sys.argv[2].encode().decode("unicode_escape").encode("latin1"):
    console.sendall(bytes([key]))
    time.sleep(0.3)
