#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""first_boot.py FILE...: a Debian image of image/build on cards that are larger than it, by the serial console: the first boot
grows and protects it, its password must be changed, a commit survives a power cut, and the second boot changes no id. A second card, with the power cut in
its first boots, gets other ids and keys. A third card of a Raspberry Pi's image is started by QEMU's Raspberry Pi 3: its SD controller, its
device tree. FILE itself is not changed."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import image

MIB = 1 << 20
CARD_MIB = 3000
BOARD_CARD_MIB = 4096  # QEMU wants a power of two
PASSWORD = "another-one"
ARM = ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a53"]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFirstBootFirstBootFirstBootFirstBootFirst test\n"
IDS = "cat /etc/machine-id; cut -d' ' -f2 /etc/ssh/ssh_host_*_key.pub; blkid -p -s UUID -o value $(ls /dev/vda2 /dev/mmcblk0p2 2>&-)"
PI3_TREE = "bcm2837-rpi-3-b.dtb"
# (what is on the console, seconds after that) at which the power is cut in the first boot
CUTS = [("growing to the end", 3), ("on-line resizing required", 1), ("making space for a log", 10), ("is protected", 60)]


def partition(path, n):
    """Its first byte."""
    disk = json.loads(subprocess.run(["sfdisk", "--json", path], check=True, capture_output=True).stdout)["partitiontable"]
    return next(p["start"] for p in disk["partitions"] if p["node"].endswith(str(n))) * 512


def pc(path, folder, boot):
    """Started by its BIOS and by EFI in turns."""
    if boot % 2:
        return image.PC
    variables = os.path.join(folder, "efi-variables")
    shutil.copy("/usr/share/OVMF/OVMF_VARS.fd", variables)
    return image.PC + ["-drive", "if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE.fd",
                       "-drive", f"if=pflash,unit=1,format=raw,file={variables}"]


def uboot(path, folder, boot):
    return ARM + ["-bios", "/usr/lib/u-boot/qemu_arm64/u-boot.bin"]


def firmware(path, folder):
    """What that of a Raspberry Pi starts: by config.txt, what has auto_initramfs=1 and no other kernel."""
    part = f"{path}@@{partition(path, 1)}"
    for name in ("kernel8.img", "initramfs8", "cmdline.txt", PI3_TREE):
        subprocess.run(["mcopy", "-n", "-o", "-i", part, f"::{name}", folder], check=True)
    with open(os.path.join(folder, "cmdline.txt")) as f:
        return ["-kernel", os.path.join(folder, "kernel8.img"), "-initrd", os.path.join(folder, "initramfs8"), "-append", f.read().strip()]


def rpi(path, folder, boot):
    return ARM + firmware(path, folder)


def board(path, folder, boot):
    return ["qemu-system-aarch64", "-machine", "raspi3b", "-dtb", os.path.join(folder, PI3_TREE)] + firmware(path, folder)


MACHINES = {"pc": pc, "uboot": uboot, "rpi": rpi, "board": board}


def card(source, path, machine):
    subprocess.run(["cp", "--sparse=always", source, path], check=True)
    os.truncate(path, (BOARD_CARD_MIB if machine == "board" else CARD_MIB) * MIB)
    if machine == "uboot":
        with tempfile.NamedTemporaryFile("w") as f:
            f.write(KEY)
            f.flush()
            subprocess.run(["debugfs", "-w", "-R", f"write {f.name} authorized_keys", f"{path}?offset={partition(path, 1)}"],
                           check=True, capture_output=True)
    else:
        part = partition(path, 3 if machine == "pc" else 1)
        subprocess.run(["mcopy", "-i", f"{path}@@{part}", "-", "::authorized_keys"], check=True, input=KEY.encode())


def first_login(m):
    boot = m.login_name()
    m.wait("assword: ")
    m.type("cowfs")
    for ask, answer in (("urrent password: ", "cowfs"), ("ew password: ", PASSWORD), ("new password: ", PASSWORD)):
        m.wait(ask)
        m.type(answer)
    if "cowctl commit" not in m.wait("# "):
        raise SystemExit("the login does not say what to do next")
    time.sleep(1)
    return boot


def expect(what, seen, pattern):
    if not re.search(pattern, seen):
        raise SystemExit(f"{what}: {seen!r}, not {pattern!r}")


def look(m):
    m.run("dmesg -n 1")  # the kernel would write between the answers
    # the service of the first boot, and the commit of what it has made
    expect("first boot", m.run("systemctl is-system-running --wait; ls /etc/cowfs/first-boot"), "No such file")
    expect("state", m.run("cat /run/cowfs/root.state"), "^on$")
    expect("status", m.run("cowctl status root --brief"), "root")
    size = int(m.run("df -Pm / | awk 'END { print $2 }'"))
    if size < CARD_MIB - 700:
        raise SystemExit(f"the root has {size} MiB on a card of {CARD_MIB}")
    expect("sshd", m.run("systemctl is-active ssh; sshd -T | grep -i permitrootlogin"), "^active\npermitrootlogin without-password")
    expect("authorized_keys", m.run("stat -c %a /root/.ssh/authorized_keys; cat /root/.ssh/authorized_keys"), "^600\n" + KEY.strip())
    expect("units that failed", m.run("systemctl --failed --plain --no-legend | wc -l"), "^0$")


def cut_boots(start):
    for text, most_s in CUTS:
        m = start()
        m.wait(text)
        time.sleep(random.uniform(0, most_s))
        m.cut()


def first_boot(m, grown):
    if ("growing to the end of its disk" in first_login(m)) == grown:
        raise SystemExit("the card is grown twice, or never")
    look(m)
    ids = m.run(IDS)
    m.run("echo hello >/root/left-here; cowctl commit root; echo gone >/root/not-here")
    m.cut()
    return ids


def second_boot(m, ids):
    if "growing" in m.login(PASSWORD):
        raise SystemExit("the second boot grows the card again")
    look(m)
    expect("files", m.run("ls /root"), "^left-here$")
    expect("ids", m.run(IDS), "^" + re.escape(ids) + "$")
    m.cut()


def life(source, n, machine):
    """Of card n: the ids that its first boot has made."""
    name = os.path.basename(source)
    machines = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vm-first-", dir=os.path.dirname(os.path.abspath(source))) as folder:
        path = os.path.join(folder, "card.img")
        card(source, path, machine)

        def start(boot=n):
            machines.append(image.Machine(path, folder, MACHINES[machine](path, folder, boot), machine == "board"))
            return machines[-1]
        try:
            if n == 2:
                cut_boots(start)
            ids = first_boot(start(), n == 2)  # the last cut was after that
            second_boot(start(n + 1), ids)
        except BaseException:
            shutil.copy(os.path.join(folder, "console"), f"{source}.console-{n}")
            raise
        finally:
            for m in machines:
                if m.qemu.poll() is None:
                    m.qemu.kill()
    print(f"  {name}: card {n}, {time.monotonic() - begin:.0f} s: ok", flush=True)
    return ids.split("\n")


def check(source):
    machine = re.sub(r".*-|\.img", "", os.path.basename(source))
    first, second = life(source, 1, machine), life(source, 2, machine)
    if machine == "rpi":
        life(source, 3, "board")
    if set(first) & set(second) or len(first) != 5:
        raise SystemExit(f"two cards have ids in common: {first} {second}")


if __name__ == "__main__":
    for one in sys.argv[1:]:
        check(one)
