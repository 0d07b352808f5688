#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Makes a folder with all that a file can have: mktree.py DIR. What the file system lacks (project ids, flags) is left out.
"""
import array
import fcntl
import os
import socket
import stat
import struct
import subprocess
import sys

top = sys.argv[1]
os.makedirs(top + "/e/f")
os.chdir(top)
NOBODY = 0xFFFFFFFF
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801C581F, 0x401C5820


def write(name, data, at=0):
    with open(name, "wb") as f:
        f.seek(at)
        f.write(data)


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


def set_project(name, projid, inherit=0):
    fd = os.open(name, os.O_RDONLY)
    x = array.array("B", bytes(28))
    try:
        fcntl.ioctl(fd, FS_IOC_FSGETXATTR, x)
        v = list(struct.unpack("IIIII8s", x))
        v[0] |= inherit and 0x200
        v[3] = projid
        fcntl.ioctl(fd, FS_IOC_FSSETXATTR, struct.pack("IIIII8s", *v))
    except OSError:
        pass
    os.close(fd)


write("a", b"hi\n")
os.link("a", "a2")
os.link("a", "e/a3")
write("big", os.urandom(3000000))
write("sparse", b"x", 50000000)
os.truncate("sparse", 100000000)
os.symlink("/etc/passwd", "link")
os.symlink("nothing", "dangling")
os.mkfifo("fifo")
os.mknod("chr", stat.S_IFCHR | 0o640, os.makedev(1, 5))
os.mknod("blk", stat.S_IFBLK | 0o600, os.makedev(7, 200))
try:
    os.mknod("whiteout", stat.S_IFCHR, os.makedev(0, 0))
except PermissionError:  # in an overlay
    pass
socket.socket(socket.AF_UNIX).bind("sock")
write("suid", b"#!")
os.chown("suid", 33, 44)
os.chmod("suid", 0o6755)
write("cap", b"#!")
os.chown("cap", 11, 12)
os.setxattr("cap", "security.capability", struct.pack("<5I", 0x02000001, 0x2000, 0, 0, 0))
os.setxattr("big", "user.x", b"y")
os.setxattr("link", "trusted.t", b"z", follow_symlinks=False)
os.setxattr("a", "system.posix_acl_access", acl((1, 6, NOBODY), (2, 6, 123), (4, 4, NOBODY), (16, 6, NOBODY), (32, 4, NOBODY)))
os.setxattr("e", "system.posix_acl_access", acl((1, 7, NOBODY), (2, 5, 125), (4, 5, NOBODY), (16, 5, NOBODY), (32, 5, NOBODY)))
os.setxattr("e", "system.posix_acl_default", acl((1, 7, NOBODY), (2, 7, 124), (4, 5, NOBODY), (16, 7, NOBODY), (32, 5, NOBODY)))
write("e/inherits", b"")
write("new\nline", b"")
write("n" * 255, b"")
write(b"\xff\xfe", b"")
write(bytes(b for b in range(1, 256) if b != 47)[:250], b"any")
os.mkdir("folder-or-file")
write("folder-or-file/x", b"")
write("file-or-folder", b"")
os.mkdir("fixed")
write("fixed/x", b"x")
write("immutable", b"i\n")
write("append", b"a\n")
write("nodump", b"")
set_project("big", 42)
os.mkdir("p")
set_project("p", 43, 1)
write("p/x", b"p")
for name, ns in ("suid", 978307200123456789), ("e", 978307200000000001), ("folder-or-file", 1):
    os.utime(name, ns=(ns, ns))
os.utime("link", ns=(5, 5), follow_symlinks=False)
for flag, name in ("+i", "immutable"), ("+a", "append"), ("+d", "nodump"), ("+i", "fixed"):
    subprocess.run(["chattr", flag, name], stderr=subprocess.DEVNULL, check=False)
