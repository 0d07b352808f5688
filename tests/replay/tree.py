#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Digest of a file tree: all that makes it up but access times, and the ctime of FOLDER itself. ./churn and ./lost+found are left out.

usage: tree.py FOLDER
"""
import hashlib
import os
import stat
import sys

LEFT_OUT = ("churn", "lost+found")


def content(path, st):
    if stat.S_ISLNK(st.st_mode):
        return os.fsencode(os.readlink(path))
    if not stat.S_ISREG(st.st_mode):
        return b""
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).digest()


def digest(top):
    total = hashlib.sha256()
    for folder, folders, files in os.walk(top):
        if folder == top:
            folders[:] = [f for f in folders if f not in LEFT_OUT]
        folders.sort()
        for name in [""] + sorted(files) + [f for f in folders if os.path.islink(os.path.join(folder, f))]:
            path = os.path.join(folder, name) if name else folder
            st = os.lstat(path)
            is_dir = stat.S_ISDIR(st.st_mode)
            xattrs = [(x, os.getxattr(path, x, follow_symlinks=False))
                      for x in sorted(os.listxattr(path, follow_symlinks=False))]
            # a commit that finds the journal empty renews the time of the last change of the top folder
            ctime_ns = st.st_ctime_ns if name or folder != top else 0
            # of the top folder's links: churn is one of them
            total.update(repr((os.path.relpath(path, top), st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_nlink,
                               0 if is_dir else st.st_size, st.st_mtime_ns, ctime_ns, xattrs)).encode())
            total.update(content(path, st))
    return total.hexdigest()[:16]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(digest(sys.argv[1].rstrip("/")))
