/* SPDX-License-Identifier: MIT */
/*
 * The structures of cowfs on the card: superblock of the log, segment heads, descriptor blocks
 * and records. docs/FORMAT.md has the byte tables. The codec (codec.c) is the only code that
 * knows offsets. In memory these are plain structs in host order.
 *
 * Every block but payload is 4 KiB: magic, CRC32C over the block with the CRC field zero, ring
 * uuid, fields, zeros. Reserved bytes are zero and checked.
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

/* Features. An unknown compat feature is ignored. An unknown ro_compat feature makes attach
 * refuse; check and release would lose it, so they refuse as well. With an unknown incompat
 * feature, or without ESCAPED, the ring is not touched at all. */
#define LOG_INCOMPAT_ESCAPED 1ull /* payload in the ring is escaped (escape.h): of each log */
#define LOG_INCOMPAT_HELD 2ull	  /* while a generation is held (hold.c) */
#define LOG_INCOMPAT_KNOWN (LOG_INCOMPAT_ESCAPED | LOG_INCOMPAT_HELD)
#define LOG_RO_COMPAT_KNOWN 0ull

enum super_state {
	SUPER_VIRGIN = 1, /* formatted, never attached: the ring is void, its uuid a placeholder */
	SUPER_LIVE = 2,	  /* attached at least once; the uuid is final */
	/* ring of a shrink under way, for its only commit: it lies in blocks free before and
	 * after it */
	SUPER_PENDING = 3,
};

enum { SUPER_PROVEN = 255 }; /* image_boots: a boot was good */

struct log_super {
	uint32_t version;
	uint64_t compat, ro_compat, incompat;
	enum super_state state;
	uint64_t revision; /* counts rewrites; of two valid copies the higher wins */
	uint8_t ring_uuid[16];
	uint64_t fs_bytes;	    /* exported size of the volume */
	uint64_t base_bytes;	    /* size of the base device when written */
	uint64_t log_bytes;	    /* size of the log device when written */
	uint64_t copy_off_bytes[2]; /* copies A and B, on the log device */
	uint64_t ring_off_bytes;    /* on the log device */
	uint32_t seg_bytes, seg_count;
	uint32_t erase_block_bytes, eb_source;
	uint64_t disk_off_bytes; /* start of the log device on its disk, for alignment */
	uint8_t external;	 /* 1: ring on another device than the volume */
	uint8_t lag;		 /* acknowledged commits that the card may lose */
	/* the initramfs that is or was on trial: boots that it has begun without cowctl accept, or
	 * SUPER_PROVEN; and a CRC-32C of its name, 0 if there was none */
	uint8_t image_boots;
	uint32_t image;
	uint64_t created_s;  /* CLOCK_REALTIME seconds */
	uint8_t fs_uuid[16]; /* of the file system when formatted; distinguishes cards */
	/* the newest generation that cowctl import has brought, by the clock of the card that it is from; 0: none. And
	 * one that is on trial: it counts when the hold ends */
	uint64_t imported_s, offered_s;
};

/* The life of the card that this one was cloned from, as its ledger had it. For people: nothing depends on it. */
struct log_past {
	uint64_t cloned_s, first_s; /* time of the clone; of the first record there */
	uint64_t absorbed_bytes, written_bytes, visits, commits;
	uint64_t cards, all_written_bytes; /* of that one and those before it */
	uint8_t ring_uuid[16];
	char model[64], identity[64]; /* "": not known */
};

enum record_type {
	RECORD_COMMIT = 1,
	RECORD_OPEN = 2, /* empty; first record of an epoch, in a fresh segment */
	/* second copy of the newest commit record, before the first home write */
	RECORD_CHECKPOINT = 3,
	RECORD_TAIL = 4,    /* empty; carries a new tail */
	RECORD_RETIRED = 5, /* empty; cowfs has left this card and the base may change */
};

enum {
	/* everything is checkpointed, nothing was in flight: written at detach */
	RECORD_CLEAN = 1 << 0,
	/* 1 << 1: 0.1.0 wrote it, and it means nothing now (docs/FORMAT.md) */
	/* of a commit: no process could read its metadata, so they were not checked. Later records of the same
	 * image repeat it */
	RECORD_UNREAD = 1 << 2,
	/* the base had the guard, and nothing is left in the log: the write that takes the guard away
	 * may come behind this record (log/guarded.c) */
	RECORD_GUARDED = 1 << 3,
	/* which guard: the lowest bit of its owner */
	RECORD_GUARD_ODD = 1 << 4,
	/* 1 << 5: 0.1.0 wrote it, and it means nothing now (docs/FORMAT.md) */
	/* the oldest of an uninterrupted run of records with this flag, up to the newest, is held */
	RECORD_HELD = 1 << 6,
	/* of the newest record: whoever opens the log goes back to the held generation */
	RECORD_BACK = 1 << 7,
	/* four bits, of the newest record: how many boots may still try it, plus one; 0: it is not on trial */
	RECORD_BOOTS = 15 << 8,
};

#define RECORD_BOOTS_SHIFT 8
#define RECORD_BOOTS_MAX 14u

enum commit_cause {
	CAUSE_MANUAL = 1,
	CAUSE_TIMER = 2,
	CAUSE_PRESSURE = 3,
	CAUSE_SHUTDOWN = 4,
	CAUSE_DETACH = 5,
	CAUSE_RECOVER = 6
};

/* Totals over the life of the card with cowfs. Every record carries the totals at the moment of
 * its write, its own write included (as planned: a record that is read back was written). The
 * names have the units. */
struct wear_ledger {
	uint64_t absorbed_bytes, absorbed_writes; /* written by programs, into RAM */
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
	/* part of logged_blks: payload written to free blocks of the volume */
	uint64_t spilled_blks;
	uint64_t hole_blks;   /* discarded blocks that are free or in the journal: never written */
	uint64_t padded_blks; /* written only to bridge a gap between two other blocks */
	uint64_t cause_commits[CAUSE_RECOVER]; /* commits by cause: [cause - 1] */
	/* writes that move to another erase block (wear.h) */
	uint64_t visits;
	uint64_t attached_ns; /* time under the protection of cowfs */
	/* time of the first record written with a clock that was set; never changes */
	uint64_t first_s;
	/* foreign writes to the card, and the time when cowfs first saw them */
	uint64_t foreign_bytes, foreign_first_s;
	uint64_t table_losses; /* number of attaches that did not find a part of the wear table */
	/* trims begun; bytes in all; end of the last complete trim */
	uint64_t trims, trimmed_bytes, trimmed_s;
	/* reads and writes of the card that had to be made again; how often its device was gone */
	uint64_t retried_ios, away_times;
};

#define WEAR_COUNTER_MAX ((uint64_t)INT64_MAX) /* counters stop here and never wrap */

struct record_ptr {
	uint64_t seq, epoch, lblk;
};

/* The part of the wear table (wear.h) that a record carries: `bytes` of copies behind its marks,
 * and whole blocks of copies in its group. Nothing depends on it. unit_blks 0: none. */
struct wear_ref {
	/* the record written before this one, even if this one builds on another; seq 0: none */
	struct record_ptr prev;
	uint64_t lblk;
	uint32_t blks, crc; /* CRC32C over those blocks */
	uint32_t eb_blks, unit_blks, units[2];
	uint64_t first_unit[2];
	uint32_t bytes;
};

/* A block of the base that cowfs has written, and its content CRC: sample.c. blk 0: none. */
struct log_sample {
	uint64_t blk, crc;
};

enum {
	LOG_SAMPLES = 6,
	LOG_SAMPLES_HOME =
		2, /* the first ones are of checkpoints, the others of commits, newest first */
};

struct log_record {
	enum record_type type;
	uint32_t flags;
	uint8_t ring_uuid[16];
	uint64_t epoch, seq, lblk; /* lblk: where this block lies, checked at read */
	struct record_ptr prev;	   /* seq 0: none */
	uint64_t tail_seq;	   /* oldest record whose log entries replay still needs */
	/* oldest candidate once this record is durable: recovery checks manifests from here on */
	uint64_t floor_seq;
	/* oldest candidate at the time of writing: recovery never goes below the highest of them */
	uint64_t fallback_seq;
	uint64_t start_lblk;	      /* first ring block of this group */
	uint64_t desc_lblk;	      /* first descriptor block; log_next_lblk finds the others */
	uint32_t desc_blks, desc_crc; /* CRC32C over all descriptor blocks */
	/* owner of the descriptors: this record, or the record that it copies */
	uint64_t desc_epoch, desc_seq;
	uint64_t direct_blks, logged_blks, zero_blks;
	enum commit_cause cause;
	/* of the copy of the superblock's block at the end of the record's block, packed (fs/guard.h); 0: none */
	uint32_t copy_bytes;
	uint64_t time_s;
	struct fs_fingerprint fingerprint;
	char identity[64];
	struct wear_ledger ledger;
	struct log_sample sample[LOG_SAMPLES];
	struct wear_ref wear;
};

static inline struct record_ptr record_ptr_of(const struct log_record *rec)
{
	return (struct record_ptr){ rec->seq, rec->epoch, rec->lblk };
}

struct log_head {
	uint8_t ring_uuid[16];
	uint64_t epoch;
	uint64_t serial;	/* grows with every segment opened */
	uint32_t seg;		/* index of this segment, checked */
	struct record_ptr last; /* newest durable record when the segment was opened */
	uint64_t fallback_seq;	/* oldest candidate at that time */
};

enum desc_type {
	DESC_LOGGED = 1,
	DESC_ZERO = 2,
	DESC_DIRECT = 3,
	DESC_SPILLED = 4,
	DESC_LENT =
		5, /* of cowfs 0.1.0: payload on another device. Read only to refuse the record */
	DESC_JOINT = 6 /* of cowfs 0.1.0: one of several logs; no blocks */
};

/* One extent of a descriptor. crc has `blks` entries, and none for ZERO. */
struct desc_extent {
	enum desc_type type;
	uint32_t blks;
	uint64_t blk;
	/* LOGGED: first ring block of the payload; SPILLED: first block of the payload in the
	 * volume */
	uint64_t lblk;
	const uint32_t *crc;
};

#endif
