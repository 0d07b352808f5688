# SPDX-License-Identifier: MIT
"""Reader of a log in the format of dm-log-writes (Linux, include drivers/md/dm-log-writes.c), as QEMU's driver blklogwrites
writes it.

Sector 0 of the log: magic, version, number of entries (8 bytes each, little-endian), sector size (4 bytes). Then for each
entry a sector with sector, number of sectors, flags, bytes of extra data (8 bytes each), followed by the data. An entry
stands where its request completed: a flush covers all entries before it.
"""
import struct

MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
SECTOR_BYTES = 512 # of the addresses


class Entry:
    """One request. off_bytes and len_bytes: on the card. data_bytes: where its data lies in the log."""

    __slots__ = ("off_bytes", "len_bytes", "flags", "data_bytes")

    def __init__(self, off_bytes, len_bytes, flags, data_bytes):
        self.off_bytes, self.len_bytes, self.flags, self.data_bytes = off_bytes, len_bytes, flags, data_bytes

    @property
    def is_write(self):
        return self.len_bytes > 0 and not self.flags & MARK


def count(path):
    """Entries that the log has by its first sector: those up to the newest flush, at least."""
    with open(path, "rb") as f:
        magic, version, entries, _ = struct.unpack("<QQQI", f.read(28))
    if magic != MAGIC or version != 1:
        raise ValueError(f"{path}: not a log of writes: magic {magic:#x}, version {version}")
    return entries


def read(path, card_bytes):
    """All entries, each checked to lie on the card and in the log."""
    entries = []
    with open(path, "rb") as f:
        n = count(path)
        log_sector_bytes = struct.unpack("<I", f.read(28)[24:])[0]
        at = log_sector_bytes
        log_bytes = f.seek(0, 2)
        for i in range(n):
            f.seek(at)
            sector, sectors, flags, extra_bytes = struct.unpack("<QQQQ", f.read(32))
            at += log_sector_bytes
            e = Entry(sector * SECTOR_BYTES, sectors * SECTOR_BYTES, flags, at)
            if flags & ~(FLUSH | FUA | DISCARD | MARK) or e.off_bytes + e.len_bytes > card_bytes:
                raise ValueError(f"{path}: entry {i} makes no sense: {sector} + {sectors}, flags {flags:#x}")
            payload = extra_bytes if flags & MARK else 0 if flags & DISCARD else e.len_bytes
            at += -(-payload // log_sector_bytes) * log_sector_bytes
            if at > log_bytes:
                raise ValueError(f"{path}: entry {i} lies behind the end")
            entries.append(e)
    return entries
