#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Device stacks on image files, without the kernel: what cryptsetup and mdadm can do only with it.

stack.py encrypt|decrypt KEY FROM TO: the data of a LUKS2 volume of 4 KiB sectors, aes-xts-plain64, with its volume key
stack.py md NUMBER FILE [end]: makes FILE number 0 or 1 of a clean RAID1. Its data begins at 1 MiB (version 1.2); end: at 0, and the
superblock is at the end (1.0), 128 KiB for it and its alignment"""
import os
import struct
import sys

SECTOR = 4096
MD_DATA = 2048  # in sectors of 512 bytes
MD_SUPER = 8
MD_UUID = bytes.fromhex("c0ffee0000004000800000000000000a")
NO_BYTES = b"\0" * SECTOR


def crypt(direction, key, source, target):
    """Tweaks count sectors of 512 bytes, whatever the size of a sector is. TO gets holes where it is zero."""
    # not needed for arrays
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    algorithm = algorithms.AES(key)
    number = 0
    while True:
        data = source.read(SECTOR)
        if not data:
            break
        cipher = Cipher(algorithm, modes.XTS((number * (SECTOR // 512)).to_bytes(16, "little")))
        done = (cipher.encryptor() if direction == "encrypt" else cipher.decryptor()).update(data)
        if done == NO_BYTES:
            target.seek(SECTOR, os.SEEK_CUR)
        else:
            target.write(done)
        number += 1
    target.truncate(number * SECTOR)


def md_super(number, place, data, data_sectors):
    """mdp_superblock_1 of linux/raid/md_p.h."""
    roles = struct.pack("<2H", 0, 1)
    head = struct.pack("<4I16s32sQiiQIII28s", 0xA92B4EFC, 1, 0, 0, MD_UUID, b"any:0", 1600000000, 1, 0,
                       data_sectors // 128 * 128, 0, 2, 0, b"")
    device = struct.pack("<QQQQII16sBBHi", data, data_sectors, place, 0, number, 0,
                         MD_UUID[:15] + bytes([0xB0 + number]), 0, 0, 0, 0)

    def whole(checksum):
        state = struct.pack("<QQQII32s", 1600000000, 1, 2**64 - 1, checksum, len(roles) // 2, b"")
        return head + device + state + roles

    blank = whole(0)
    total = sum(struct.unpack("<%dI" % (len(blank) // 4), blank))
    return whole(((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)


def main():
    if sys.argv[1] == "md":
        with open(sys.argv[3], "r+b") as f:
            sectors = f.seek(0, os.SEEK_END) // 512
            place, data, data_sectors = MD_SUPER, MD_DATA, sectors - MD_DATA
            if sys.argv[4:] == ["end"]:
                place, data = (sectors - 16) // 8 * 8, 0
                data_sectors = sectors - 256
            f.seek(place * 512)
            f.write(md_super(int(sys.argv[2]), place, data, data_sectors))
        return
    with open(sys.argv[2], "rb") as f:
        key = f.read()
    with open(sys.argv[3], "rb") as source, open(sys.argv[4], "wb") as target:
        crypt(sys.argv[1], key, source, target)


main()
