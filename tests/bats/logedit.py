#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows and damages what cowfs has on a card image; offsets as in docs/FORMAT.md.

logedit.py IMAGE copies                 offsets of the super copies
logedit.py IMAGE set OFFSET SIZE VALUE  a field of both super copies, checksum made right
logedit.py IMAGE break A|B|AB           damages super copies
logedit.py IMAGE wipe                   zeroes both super copies: as if there never was a log
logedit.py IMAGE records                type, seq and lblk of each valid record
logedit.py IMAGE damage N               damages the descriptors of the N-th newest commit (1: newest), and their copy in its record
logedit.py IMAGE newest                 where the newest record is
logedit.py IMAGE flip OFFSET            damages one byte; twice: as before
logedit.py IMAGE uuid                   the ring uuid, as status and check would print it
logedit.py IMAGE forge BLOCK GROUPS     to stdout: GROUPS times payload for BLOCK of the volume, its descriptor, and a record of
                                        both, as they would lie behind the newest record; each group at another guess where
"""
import mmap
import struct
import sys

BLOCK = 4096


def crc32c_table():
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        yield n


TABLE = list(crc32c_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def block_crc(block):
    return crc32c(block[:8] + b"\0\0\0\0" + block[12:])


def find(image, magic):
    at = image.find(magic)
    while at >= 0:
        if at % BLOCK == 0:
            yield at
        at = image.find(magic, at + 1)


def u64(image, at):
    return struct.unpack_from("<Q", image, at)[0]


def super_copies(image):
    """A and B, as the first one found tells; others are leftovers of an older format."""
    for at in find(image, b"COWFSSUP"):
        a, b = u64(image, at + 96), u64(image, at + 104)
        if at in (a, b) and image[b:b + 8] == b"COWFSSUP":
            return [a, b]
    sys.exit("no superblock of the log")


def records(image):
    a = super_copies(image)[0]
    uuid, ring = image[a + 16:a + 32], u64(image, a + 112)
    for at in find(image, b"COWFSREC"):
        block = image[at:at + BLOCK]
        stored = struct.unpack_from("<I", block, 8)[0]
        if block[16:32] == uuid and stored == block_crc(block):
            kind, = struct.unpack_from("<H", block, 32)
            yield {"at": at, "type": kind, "seq": u64(block, 48), "lblk": u64(block, 56),
                   "desc": ring + u64(block, 120) * BLOCK, "own": u64(block, 48) == u64(block, 144)}


def seal(block):
    block[8:12] = struct.pack("<I", block_crc(block))
    return bytes(block)


def forged_group(uuid, newest, blk, lblk):
    """What a scan of the ring takes for the newest commit: of one block, by a record that needs no other and fits any base."""
    high, seq = 0xFFFFFFFF00000000, newest["seq"] + 1000
    payload = b"forged\n" * 585 + b"\n"
    desc, rec = bytearray(BLOCK), bytearray(BLOCK)
    desc[:8], desc[16:32] = b"COWFSDSC", uuid
    struct.pack_into("<QQIIQ", desc, 32, high, seq, 0, 1, 0)
    struct.pack_into("<BBHIQQI", desc, 64, 1, 0, 0, 1, blk, lblk, crc32c(payload[::-1]))
    desc = seal(desc)
    rec[:8], rec[16:32] = b"COWFSREC", uuid
    struct.pack_into("<HHIQQQ", rec, 32, 1, 1, 0, high, seq, lblk + 2)
    struct.pack_into("<QQQQQIIQQQQQ", rec, 88, seq, seq, seq, lblk, lblk + 1, 1, crc32c(desc), high, seq, 0, 1, 0)
    return payload + desc + seal(rec)


def flip(image, at):
    image[at] ^= 0xFF


def main():
    with open(sys.argv[1], "r+b") as f:
        image = mmap.mmap(f.fileno(), 0)
        what, args = sys.argv[2], sys.argv[3:]
        if what == "copies":
            print(*super_copies(image))
        elif what == "set":
            off, size, value = (int(a, 0) for a in args)
            for at in super_copies(image):
                image[at + off:at + off + size] = value.to_bytes(size, "little")
                image[at + 8:at + 12] = struct.pack("<I", block_crc(image[at:at + BLOCK]))
        elif what == "break":
            for name, at in zip("AB", super_copies(image)):
                if name in args[0]:
                    flip(image, at + 75)
        elif what == "wipe":
            for at in super_copies(image):
                image[at:at + BLOCK] = bytes(BLOCK)
        elif what == "records":
            for r in sorted(records(image), key=lambda r: r["seq"]):
                print(r["type"], r["seq"], r["lblk"])
        elif what == "damage":
            commits = sorted((r for r in records(image) if r["type"] == 1 and r["own"]),
                             key=lambda r: -r["seq"])
            commit = commits[int(args[0]) - 1]
            flip(image, commit["desc"] + 200)
            record = bytearray(image[commit["at"]:commit["at"] + BLOCK])
            copy, = struct.unpack_from("<I", record, 1696)
            record[1704 + copy:] = bytes(BLOCK - 1704 - copy)
            image[commit["at"]:commit["at"] + BLOCK] = seal(record)
        elif what == "newest":
            print(max(records(image), key=lambda r: r["seq"])["at"])
        elif what == "flip":
            flip(image, int(args[0]))
        elif what == "uuid":
            text = image[super_copies(image)[0] + 16:][:16].hex()
            print("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
        elif what == "forge":
            newest = max(records(image), key=lambda r: r["seq"])
            blk, groups = int(args[0]), int(args[1])
            a = super_copies(image)[0]
            for i in range(groups):
                guess = newest["lblk"] + 1 + i % 24 + 3 * i
                sys.stdout.buffer.write(forged_group(image[a + 16:a + 32], newest, blk, guess))
            sys.stdout.buffer.flush()
        else:
            sys.exit(__doc__)
        image.flush()


main()
