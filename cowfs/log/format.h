/* SPDX-License-Identifier: MIT */
/*
 * What is on the card besides the file system: super record, segment heads, descriptor
 * blocks and records. The byte tables are in docs/FORMAT.md; the codec (codec.c) is the
 * only place that knows offsets. In memory these are plain structs in host order.
 *
 * Every block but payload is 4 KiB: magic, CRC32C over the block with the CRC field zero,
 * ring uuid, fields, zeros. Reserved bytes are zero and checked.
 */
#ifndef COWFS_LOG_FORMAT_H
#define COWFS_LOG_FORMAT_H

#include "base/util.h"
#include "fs/fsinfo.h"

#define LOG_FORMAT_VERSION 1u
#define LOG_MIN_SEGMENTS 6u
#define LOG_MAX_SEGMENTS 65536u
#define LOG_MIN_SEG_BYTES (64 * KIB)
#define LOG_MAX_SEG_BYTES (4 * MIB)
#define LOG_MAX_LAG 1u

/* Features. compat: ignore if unknown; ro_compat: unknown = attach refused, check and recover too
 * would lose it, so refused; incompat: unknown = nothing at all is done with this ring. */
#define LOG_INCOMPAT_ESCAPED 1ull /* payload in the ring is escaped (escape.h); all new logs */
#define LOG_INCOMPAT_KNOWN LOG_INCOMPAT_ESCAPED
#define LOG_RO_COMPAT_KNOWN 0ull

enum super_state {
	SUPER_VIRGIN = 1, /* formatted, never attached: the ring is void, its uuid a placeholder */
	SUPER_LIVE = 2,	  /* attached at least once; uuid is final */
	/* the ring of a shrink under way: in blocks free before and after it, for its one commit */
	SUPER_PENDING = 3,
};

struct log_super {
	uint32_t version;
	uint64_t compat, ro_compat, incompat;
	enum super_state state;
	uint64_t revision; /* counts rewrites; of two valid copies the higher wins */
	uint8_t ring_uuid[16];
	uint64_t fs_bytes;	    /* exported size of the volume */
	uint64_t base_bytes;	    /* size of the base device when written */
	uint64_t log_bytes;	    /* size of the log device when written */
	uint64_t copy_off_bytes[2]; /* A, B on the log device */
	uint64_t ring_off_bytes;    /* on the log device */
	uint32_t seg_bytes, seg_count;
	uint32_t erase_block_bytes, eb_source;
	uint64_t disk_off_bytes; /* start of the log device on its disk, for alignment */
	uint8_t external;	 /* 1: ring on another device than the volume */
	uint8_t lag;		 /* commits that the card may lose after acknowledging them */
	uint64_t created_s;	 /* CLOCK_REALTIME seconds */
	uint8_t fs_uuid[16];	 /* of the file system when formatted, to tell cards apart */
};

enum record_type {
	RECORD_COMMIT = 1,
	RECORD_OPEN = 2, /* empty; first of an epoch, in a fresh segment */
	/* second copy of the newest commit record, before the first home write */
	RECORD_CHECKPOINT = 3,
	RECORD_TAIL = 4,    /* empty; carries a new tail */
	RECORD_RETIRED = 5, /* empty; cowfs has left this card, the base is free to change */
};

enum {
	RECORD_CLEAN = 1 << 0, /* everything is home, nothing was in flight: written at detach */
	/* of a commit: the file system was mounted and not frozen; its journal is to be replayed */
	RECORD_UNFROZEN = 1 << 1,
	/* of a commit: nothing could read its metadata, so they were not checked */
	RECORD_UNREAD = 1 << 2,
	/* what later records of the same image repeat */
	RECORD_OF_IMAGE = RECORD_UNFROZEN | RECORD_UNREAD,
};

enum commit_cause {
	CAUSE_MANUAL = 1,
	CAUSE_TIMER = 2,
	CAUSE_PRESSURE = 3,
	CAUSE_SHUTDOWN = 4,
	CAUSE_DETACH = 5,
	CAUSE_RECOVER = 6
};

/* For the life of the card with cowfs; every record carries the totals at the moment it was
 * written, itself included (as planned: a record that is read back was written). Units in the
 * names. */
struct wear_ledger {
	uint64_t absorbed_bytes, absorbed_writes; /* what programs wrote, into RAM */
	uint64_t punched_bytes;
	uint64_t free_blks, journal_blks, same_blks;  /* dirty blocks not written, by reason */
	uint64_t direct_blks, logged_blks, zero_blks; /* zero: logged without payload */
	uint64_t checkpoint_blks;
	uint64_t meta_blks; /* heads, descriptors, records */
	uint64_t super_blks;
	uint64_t write_calls, written_bytes; /* everything sent to the card */
	uint64_t flushes;
	uint64_t commits, commits_failed, checkpoints, attaches;
	uint64_t writable_ns;
	/* those of logged_blks whose payload went to free blocks of the volume */
	uint64_t spilled_blks;
	uint64_t hole_blks;   /* discarded blocks that are free or in the journal: nothing to do */
	uint64_t padded_blks; /* written only to bridge a gap between two others */
	uint64_t cause_commits[CAUSE_RECOVER]; /* commits by cause: [cause - 1] */
	uint64_t visits;		       /* moves to another erase block (wear.h) */
	uint64_t attached_ns;		       /* time under cowfs's protection */
	uint64_t first_s; /* clock at the first record whose clock was set; stays */
	/* written to the card by something else, and when that was first seen */
	uint64_t foreign_bytes, foreign_first_s;
	uint64_t table_losses; /* how often a part of the wear table was not found at attach */
};

#define WEAR_COUNTER_MAX ((uint64_t)INT64_MAX) /* where counters stop: they never go round */

struct record_ptr {
	uint64_t seq, epoch, lblk;
};

/* What a record has of the wear table (wear.h): `bytes` of copies behind its marks, and whole
 * blocks of them in its group. Nothing depends on it. unit_blks 0: none. */
struct wear_ref {
	/* the record written before, whatever this one builds on; seq 0: none */
	struct record_ptr prev;
	uint64_t lblk;
	uint32_t blks, crc; /* CRC32C over those blocks */
	uint32_t eb_blks, unit_blks, units[2];
	uint64_t first_unit[2];
	uint32_t rotor, debt_blks;
	uint32_t bytes;
};

struct log_record {
	enum record_type type;
	uint32_t flags;
	uint8_t ring_uuid[16];
	uint64_t epoch, seq, lblk; /* lblk: where this block lies, checked when read */
	struct record_ptr prev;	   /* seq 0: none */
	uint64_t tail_seq;	   /* oldest record whose log entries replay still needs */
	/* oldest candidate once this record is durable: manifests are checked from here */
	uint64_t floor_seq;
	/* oldest candidate when it was written: recovery never goes below the highest */
	uint64_t fallback_seq;
	uint64_t start_lblk;	      /* first ring block of this group */
	uint64_t desc_lblk;	      /* first descriptor block; its followers by log_next_lblk */
	uint32_t desc_blks, desc_crc; /* CRC32C over all descriptor blocks */
	/* whose descriptors: its own, or those of the record that it copies */
	uint64_t desc_epoch, desc_seq;
	uint64_t direct_blks, logged_blks, zero_blks;
	enum commit_cause cause;
	uint64_t time_s;
	struct fs_fingerprint fingerprint;
	char identity[64];
	struct wear_ledger ledger;
	struct wear_ref wear;
};

struct log_head {
	uint8_t ring_uuid[16];
	uint64_t epoch;
	uint64_t serial;	/* grows with every segment opened */
	uint32_t seg;		/* index of this segment, checked */
	struct record_ptr last; /* newest durable record when it was opened */
	uint64_t fallback_seq;	/* oldest candidate then */
};

/* First block of lent room: which attempt its payload, behind it, belongs to. */
struct log_lent_head {
	uint8_t ring_uuid[16];
	uint64_t epoch, seq; /* as in the descriptors */
	uint64_t blks;	     /* of payload */
};

enum desc_type { DESC_LOGGED = 1, DESC_ZERO = 2, DESC_DIRECT = 3, DESC_SPILLED = 4, DESC_LENT = 5 };

/* One extent of a descriptor. crc has `blks` entries, none for ZERO. */
struct desc_extent {
	enum desc_type type;
	uint32_t blks;
	uint64_t blk;
	/* LOGGED: where in the ring the payload starts; SPILLED: in which block of the volume;
	 * LENT: of the lent room */
	uint64_t lblk;
	const uint32_t *crc;
};

#endif
