/* SPDX-License-Identifier: MIT */
/* Converts between on-card bytes and structs: private to log/. Byte tables: docs/FORMAT.md. */
#ifndef COWFS_LOG_CODEC_H
#define COWFS_LOG_CODEC_H

#include "log/format.h"

/* Each function encodes into one zeroed 4 KiB block. */
void codec_put_super(uint8_t blk[COW_BLK_BYTES], const struct log_super *s);
void codec_put_head(uint8_t blk[COW_BLK_BYTES], const struct log_head *h);
void codec_put_record(uint8_t blk[COW_BLK_BYTES], const struct log_record *r);

/* Copies of the wear table in a record. The caller puts r->wear.bytes of them here before
 * codec_put_record. */
enum { RECORD_WEAR_OFF = 1704, RECORD_WEAR_ROOM = COW_BLK_BYTES - RECORD_WEAR_OFF };
/* The packed copy of block 0 takes the end of that room, if there is one. The caller puts it there
 * as well. */
enum { RECORD_COPY_MAX = 1792 };
/* The only descriptor block of a commit, once more: behind the copies, in the room that is left. */
size_t codec_desc_copy_bytes(size_t desc_bytes);
void codec_put_desc_copy(uint8_t rec_blk[COW_BLK_BYTES], size_t wear_bytes,
			 const uint8_t desc[COW_BLK_BYTES], size_t desc_bytes);
/* What is there, as that block. A record without a copy gives something else: the caller compares the CRC. */
void codec_get_desc_copy(const uint8_t rec_blk[COW_BLK_BYTES], const struct log_record *rec,
			 uint8_t desc[COW_BLK_BYTES]);
/* Of which kind is this block in front of the record, and the how many-th? */
enum group_part { PART_NONE, PART_DESC, PART_WEAR };
enum group_part codec_part_of(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16],
			      uint64_t epoch, uint64_t seq, uint32_t *ret_index);
/* The number in a record whose checksum is wrong; 0: it is none, or whole. */
uint64_t codec_torn_seq(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16]);
/* A block of such copies. */
enum { WEAR_BLK_OFF = 64, WEAR_BLK_ROOM = COW_BLK_BYTES - WEAR_BLK_OFF };
void codec_put_wear(uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16], uint64_t epoch,
		    uint64_t seq, uint32_t index, size_t len_bytes);
/* Returns the number of bytes of copies in the block; -ENOENT, -EBADMSG, -EUCLEAN. */
int codec_get_wear(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16], uint64_t epoch,
		   uint64_t seq, uint32_t index, size_t *ret_len_bytes) MUST_CHECK;

/* -ENOENT another magic; -EBADMSG damaged; -EPROTONOSUPPORT unknown version or feature
 * (superblock only: ret->version and the masks are then valid); -EUCLEAN contradictory fields. */
int codec_get_super(const uint8_t blk[COW_BLK_BYTES], struct log_super *ret) MUST_CHECK;
/* These compare the ring uuid as well: a block of another life is -ENOENT. The wear table part
 * of a record never makes the record invalid. */
int codec_get_head(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16],
		   struct log_head *ret) MUST_CHECK;
int codec_get_record(const uint8_t blk[COW_BLK_BYTES], const uint8_t uuid[16],
		     struct log_record *ret) MUST_CHECK;

/* Belongs to this superblock. -ENOENT: to another one, or none. */
void codec_put_past(uint8_t blk[COW_BLK_BYTES], const struct log_super *s,
		    const struct log_past *p);
int codec_get_past(const uint8_t blk[COW_BLK_BYTES], const struct log_super *s,
		   struct log_past *ret) MUST_CHECK;

/* ---- descriptor blocks ---- */

struct desc_writer {
	uint8_t *blk; /* current block, 4 KiB, zeroed by the caller */
	size_t pos;
	uint32_t extents;
};

#define DESC_HEADER_BYTES 64u
#define DESC_EXTENT_BYTES 24u

void desc_start(struct desc_writer *w, uint8_t *blk);
/* Puts as much of the extent as fits and returns the number of blocks put; 0: the block is full. */
uint32_t desc_put(struct desc_writer *w, const struct desc_extent *e);
void desc_seal(struct desc_writer *w, const uint8_t uuid[16], uint64_t epoch, uint64_t seq,
	       uint32_t index);

struct desc_cursor {
	const uint8_t *blk;
	size_t pos;
	uint32_t left;
	uint32_t crcs[COW_BLK_BYTES / 4]; /* of the current extent */
};

/* Checks header and CRC; -EBADMSG. */
int desc_open(struct desc_cursor *c, const uint8_t *blk, const uint8_t uuid[16], uint64_t epoch,
	      uint64_t seq, uint32_t index) MUST_CHECK;
/* 1 an extent (crc points into the cursor), 0 end, -EUCLEAN invalid data. */
int desc_next(struct desc_cursor *c, struct desc_extent *ret) MUST_CHECK;

#endif
