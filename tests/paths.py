#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Lists the calls in cowfs/, lab/ (without bench) and tools/ that look up a path, without those whose path is a literal below /proc, /sys or /dev, or the descriptor
itself. Compares them with the table tests/paths.txt: a line "FILE CALLS REASON" for each file, whose words are explained there.
A new call fails, and so does a line whose call is gone: use base/path.h, or give the reason. paths.py --list prints the calls.
Below the descriptor of a FUSE mount, whose server may have been taken over, export/fuse_mount.c alone looks a name up.
"""
import os
import re
import sys

CALLS = """open openat creat fopen opendir scandir mount umount umount2 move_mount pivot_root rename renameat renameat2 unlink unlinkat
rmdir mkdir mkdirat mknod mknodat symlink symlinkat link linkat chown lchown fchownat chmod fchmodat stat lstat statx fstatat access
faccessat readlink readlinkat truncate utimensat setxattr getxattr listxattr removexattr mkostemp mkdtemp realpath chdir chroot execv
execve execvp statfs statvfs""".split()
call = re.compile(r"(?<![\w.>])(" + "|".join(CALLS) + r")\(")
served = re.compile(r"(?<![\w.>])(?:syscall|" + "|".join(CALLS) + r")\(\s*(?:SYS_\w+,\s*)?[\w>.-]*mount_fd\s*,")
harmless = re.compile(r'"(/proc\b|/sys\b|/dev\b|/"|"|\."|\.\.")')

top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def arguments(text, at):
    depth, start = 1, at
    while depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[start:at - 1]


found, others = {}, []
for folder, _, names in sorted(f for tree in ("cowfs", "lab", "tools") for f in os.walk(f"{top}/{tree}") if "lab/bench" not in f[0]):
    for name in sorted(n for n in names if n.endswith(".c")):
        with open(f"{folder}/{name}", encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), f.read(), flags=re.S)
        others += [f"{os.path.basename(folder)}/{name}: looks a name up in what is served (mount_fd): fuse_mount_open_file"
                   for m in served.finditer(text) if name != "fuse_mount.c" and '#include "export/' in text]
        for m in call.finditer(text):
            line = text.count("\n", 0, m.start()) + 1
            its = arguments(text, m.end())
            if its != "8" and not harmless.search(its):  # not mount(8) in a message
                path = f"{os.path.basename(folder)}/{name}"
                found.setdefault(path, []).append((line, m[1], " ".join(its.split())))

if sys.argv[1:] == ["--list"]:
    for path, calls in found.items():
        for line, what, its in calls:
            print(f"{path}:{line}: {what}({its})")
    sys.exit()

faults, seen, words = others, set(), set()
with open(top + "/tests/paths.txt", encoding="utf-8") as f:
    for text in f:
        if text.startswith("# ") and ":" in text:
            words.add(text[2:].split(":")[0])
        if text.startswith("#") or not text.strip():
            continue
        path, count, *reasons = text.split()
        seen.add(path)
        faults += [f"tests/paths.txt: {path}: {r} is not explained" for r in reasons if r not in words]
        calls = found.get(path, [])
        if len(calls) != int(count):
            faults.append(f"{path}: {len(calls)} calls look up a path, {count} are in tests/paths.txt")
faults += [f"{path}: looks up a path and is not in tests/paths.txt" for path in found if path not in seen]
print("\n".join(faults) or f"paths: {sum(map(len, found.values()))} calls in {len(found)} files look up a path, each with its reason")
sys.exit(bool(faults))
