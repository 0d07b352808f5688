#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""image.py FILE...: boots busybox images of image/build as a person would, from their boot loader, by the serial console: log in, look
whether all was started and the root is protected, leave a file, power off, and look for it in the next boot. In the image of a
squashfs a package is installed and committed, and then the power goes. FILE itself is not changed."""
import base64
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

LIMIT_S = int(os.environ.get("LIMIT", "600"))
PC = ["qemu-system-x86_64", "-machine", "q35"]


class Machine:
    def __init__(self, image, folder, command=PC, board=False):
        """board: it has its own memory and a slot for the card, and the console is its second UART"""
        path = os.path.join(folder, "serial")
        self.log = open(os.path.join(folder, "console"), "ab")
        if board:
            devices = ["-drive", f"file={image},if=sd,format=raw", "-nic", "none", "-monitor", "none", "-serial", "null"]
        else:
            devices = ["-nodefaults", "-m", "768", "-device", "virtio-rng-pci", "-drive", f"file={image},if=virtio,format=raw"]
        self.qemu = subprocess.Popen(
            command + ["-accel", "tcg", "-no-user-config", "-display", "none", "-no-reboot"] + devices +
            ["-serial", f"unix:{path},server=on,wait=off"],
            preexec_fn=lambda: os.nice(5))
        self.text = ""
        self.end = time.monotonic() + LIMIT_S
        self.serial = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.serial.connect(path)
                break
            except OSError:
                time.sleep(0.1)
                if self.qemu.poll() is not None or time.monotonic() > self.end:
                    raise SystemExit(f"QEMU did not start: {self.qemu.poll()}")
        self.serial.settimeout(1)

    def read(self):
        try:
            data = self.serial.recv(4096)
        except socket.timeout:
            return True
        except OSError:
            return False
        self.log.write(data)
        self.log.flush()
        self.text += data.decode(errors="replace").replace("\r", "")
        return bool(data)

    def wait(self, what):
        while what not in self.text:
            if not self.read() or time.monotonic() > self.end:
                raise SystemExit(f"no '{what}' on the console: {self.text[-300:]!r}")
        before, self.text = self.text.split(what, 1)
        return before

    def type(self, line):
        self.serial.sendall(line.encode() + b"\n")

    def run(self, command):
        """Its output. The marks are split, so that the echo of the line does not look like them."""
        self.type(f"echo BEG''IN; {command}; echo EN''D")
        self.wait("BEGIN\n")
        return self.wait("END\n").strip()

    def login_name(self):
        """What the boot has printed."""
        boot = self.wait("login: ")
        for line in re.sub(r"\x1b\[[0-9;]*m", "", boot).splitlines():
            if "can't run" in line or "[FAILED]" in line:
                raise SystemExit(f"in the boot: {line}")
        self.type("root")
        return boot

    def login(self, password):
        boot = self.login_name()
        if password:
            self.wait("assword: ")
            self.type(password)
        self.wait("# ")
        time.sleep(1)
        return boot

    def cut(self):
        self.qemu.kill()
        self.qemu.wait()

    def power_off(self):
        self.type("poweroff")
        while self.read():
            if time.monotonic() > self.end:
                raise SystemExit("it does not power off")
        self.qemu.wait()


def package(folder):
    """A package for busybox' dpkg, as words for a shell."""
    tree = os.path.join(folder, "package")
    os.makedirs(os.path.join(tree, "DEBIAN"))
    os.makedirs(os.path.join(tree, "usr/share/sample"))
    with open(os.path.join(tree, "DEBIAN/control"), "w") as f:
        f.write("Package: sample\nVersion: 1\nArchitecture: all\nMaintainer: nobody <root@localhost>\nDescription: sample\n")
    with open(os.path.join(tree, "usr/share/sample/file"), "w") as f:
        f.write("installed\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", tree, tree + ".deb"], check=True, stdout=subprocess.DEVNULL)
    with open(tree + ".deb", "rb") as f:
        text = base64.b64encode(f.read()).decode()
    return [text[i:i + 200] for i in range(0, len(text), 200)]


def install(m, words):
    for word in words:
        m.run(f"echo {word} >>/tmp/deb.text")
    done = m.run("base64 -d /tmp/deb.text >/tmp/sample.deb && dpkg -i /tmp/sample.deb && cowctl commit root && echo DO''NE")
    if "DONE" not in done:
        raise SystemExit(f"no package was installed and committed: {done}")


def check_installed(m):
    seen = m.run("cat /usr/share/sample/file; dpkg -l sample | tail -n 1; cat /etc/hostname; mount | grep ' / '")
    for what in ("installed", "ii  sample", "cowfs", "type overlay"):
        if what not in seen:
            raise SystemExit(f"after the power cut there is no '{what}': {seen}")


def check(image):
    squashfs = "squashfs" in image
    with tempfile.TemporaryDirectory(prefix="vm-image-", dir=os.path.dirname(os.path.abspath(image))) as folder:
        copy = os.path.join(folder, "card.img")
        subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        for boot in (1, 2):
            start = time.monotonic()
            m = Machine(copy, folder)
            try:
                m.login(None)
                state = m.run("cat /run/cowfs/root.state")
                seen = m.run("cat /root/left-here 2>/dev/null")
                if state != "on":
                    raise SystemExit(f"boot {boot}: the state is '{state}'")
                if boot == 2 and seen != "hello":
                    raise SystemExit(f"what was written in the first boot is '{seen}'")
                m.run("echo hello >/root/left-here")
                if boot == 1 and squashfs:
                    install(m, package(folder))
                    m.cut()
                else:
                    if squashfs:
                        check_installed(m)
                    m.power_off()
            except BaseException:
                shutil.copy(os.path.join(folder, "console"), image + ".console")
                raise
            finally:
                if m.qemu.poll() is None:
                    m.qemu.kill()
            print(f"  {os.path.basename(image)}: boot {boot}, {time.monotonic() - start:.0f} s: ok", flush=True)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        check(one)
