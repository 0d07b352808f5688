/* SPDX-License-Identifier: MIT */
/*
 * Writes transactions of jbd2 into the journal of an ext3 or ext4 image, by the format's description: an
 * implementation of its own, for the reader to be compared with. Behind image.h.
 */
#ifndef COWFS_TESTS_JOURNAL_MAKER_H
#define COWFS_TESTS_JOURNAL_MAKER_H

#include <ext2fs/ext2fs.h>

#include "base/bytes.h"
#include "image.h"

#define MAKER_MAGIC 0xc03b3998u

enum { MAKER_DESC = 1, MAKER_COMMIT = 2, MAKER_REVOKE = 5 };

struct maker {
	struct image im;
	uint32_t bs, blocks, first, pos, seq;
	unsigned csum; /* 0 to 3 */
	bool is64;
	uint32_t seed, crc1;
	uint64_t commit_s;
	uint64_t *where;	   /* of each block of the journal */
	uint64_t *target, targets; /* blocks that a file has, or that are free */
	uint8_t *p;		   /* the block that is being made */
};

static inline uint8_t *maker_jsb(struct maker *m)
{
	return m->im.p + m->where[0] * m->bs;
}

/* Renews the checksum of the journal's superblock. */
static inline void maker_seal_jsb(struct maker *m)
{
	uint8_t *s = maker_jsb(m);

	be_set(s, 252, 4, 0);
	if (m->csum >= 2)
		be_set(s, 252, 4, ext2fs_crc32c_le(~0u, s, 1024));
}

/* Renews that of the file system's. */
static inline void maker_seal_super(struct maker *m)
{
	struct ext2_super_block *sb = (void *)(m->im.p + 1024);

	if (sb->s_feature_ro_compat & EXT4_FEATURE_RO_COMPAT_METADATA_CSUM)
		sb->s_checksum = ext2fs_crc32c_le(~0u, (void *)sb, 1020);
}

static inline void maker_find(struct maker *m)
{
	ext2_filsys fs;
	struct ext2_inode inode;
	char path[160];

	snprintf(path, sizeof(path), "%s", m->im.path);
	assert_int_equal(ext2fs_open(path, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs), 0);
	m->bs = fs->blocksize;
	assert_int_equal(ext2fs_read_inode(fs, EXT2_JOURNAL_INO, &inode), 0);
	m->blocks = (uint32_t)(EXT2_I_SIZE(&inode) / m->bs);
	m->where = calloc(m->blocks, sizeof(*m->where));
	for (uint32_t i = 0; i < m->blocks; i++) {
		blk64_t at = 0;

		assert_int_equal(ext2fs_bmap2(fs, EXT2_JOURNAL_INO, &inode, NULL, 0, i, NULL, &at),
				 0);
		m->where[i] = at;
	}
	assert_int_equal(ext2fs_read_block_bitmap(fs), 0);
	m->target = calloc(4096, sizeof(*m->target));
	for (uint64_t b = ext2fs_blocks_count(fs->super) - 1; b > 4 && m->targets < 4096;
	     b -= 1 + b % 3)
		if (!ext2fs_test_block_bitmap2(fs->block_map, b))
			m->target[m->targets++] = b;
	assert_true(m->targets > 100);
	ext2fs_close(fs);
}

/* The journal of image `name` is to be replayed from block `start` on, transaction seq. */
static inline void maker_open(struct maker *m, const char *name, unsigned csum, bool is64,
			      uint32_t start, uint32_t seq)
{
	struct ext2_super_block *sb;
	uint8_t *s;

	memset(m, 0, sizeof(*m));
	image_open(&m->im, name);
	maker_find(m);
	m->p = calloc(1, m->bs);
	m->csum = csum;
	m->is64 = is64;
	m->first = 1;
	m->pos = start;
	m->seq = seq;
	m->crc1 = ~0u;
	m->commit_s = 1700000000;
	s = maker_jsb(m);
	be_set(s, 4, 4, 4);
	be_set(s, 24, 4, seq);
	be_set(s, 28, 4, start);
	be_set(s, 36, 4, csum == 1);
	be_set(s, 40, 4, 1u | (is64 ? 2 : 0) | (csum == 2 ? 8 : 0) | (csum == 3 ? 16 : 0));
	rnd_fill(s + 48, 16);
	s[80] = csum >= 2 ? 4 : 0;
	m->seed = ext2fs_crc32c_le(~0u, s + 48, 16);
	maker_seal_jsb(m);
	sb = (void *)(m->im.p + 1024);
	sb->s_feature_incompat |= EXT3_FEATURE_INCOMPAT_RECOVER;
	maker_seal_super(m);
}

static inline void maker_close(struct maker *m)
{
	image_close(&m->im);
	free(m->where);
	free(m->target);
	free(m->p);
}

static inline uint8_t *maker_put(struct maker *m, const uint8_t *block)
{
	uint8_t *at = m->im.p + m->where[m->pos] * m->bs;

	memcpy(at, block, m->bs);
	if (++m->pos == m->blocks)
		m->pos = m->first;
	return at;
}

static inline void maker_header(struct maker *m, unsigned kind)
{
	memset(m->p, 0, m->bs);
	be_set(m->p, 0, 4, MAKER_MAGIC);
	be_set(m->p, 4, 4, kind);
	be_set(m->p, 8, 4, m->seq);
}

static inline void maker_tail(struct maker *m, size_t at)
{
	if (m->csum >= 2)
		be_set(m->p, at, 4, ext2fs_crc32c_le(m->seed, m->p, m->bs));
}

static inline void maker_revoke(struct maker *m, const uint64_t *block, size_t n)
{
	const size_t width = m->is64 ? 8 : 4;

	maker_header(m, MAKER_REVOKE);
	for (size_t i = 0; i < n; i++)
		be_set(m->p, 16 + i * width, width, block[i]);
	be_set(m->p, 12, 4, 16 + n * width);
	maker_tail(m, m->bs - 4);
	maker_put(m, m->p);
}

static inline size_t maker_tag_bytes(const struct maker *m)
{
	return m->csum == 3 ? 16 : m->csum == 2 ? (m->is64 ? 14 : 10) : (m->is64 ? 12 : 8);
}

/* As many as one descriptor has room for. */
static inline size_t maker_room(const struct maker *m)
{
	return (m->bs - 12 - 16 - (m->csum >= 2 ? 4 : 0)) / maker_tag_bytes(m);
}

static inline void maker_tag(struct maker *m, uint8_t *tag, uint64_t block, unsigned flags,
			     const uint8_t *data)
{
	uint8_t seq[4];
	uint32_t crc;

	be_set(seq, 0, 4, m->seq);
	crc = ext2fs_crc32c_le(ext2fs_crc32c_le(m->seed, seq, 4), data, m->bs);
	be_set(tag, 0, 4, block & 0xffffffff);
	be_set(tag, 4, m->csum == 3 ? 4 : 2, flags);
	if (m->csum != 3) {
		be_set(tag, 4, 2, m->csum == 2 ? crc & 0xffff : 0);
		be_set(tag, 6, 2, flags);
	}
	if (m->csum == 3 || m->is64)
		be_set(tag, 8, 4, block >> 32);
	if (m->csum == 3)
		be_set(tag, 12, 4, crc);
}

/* One descriptor and its blocks, whose content data has one behind the other. */
static inline void maker_write(struct maker *m, const uint64_t *block, uint8_t *data, size_t n)
{
	size_t at = 12;

	assert_true(n && n <= maker_room(m));
	maker_header(m, MAKER_DESC);
	for (size_t i = 0; i < n; i++) {
		uint8_t *p = data + i * m->bs;
		unsigned flags = (i ? 2 : 0) | (i + 1 == n ? 8 : 0);

		if (!memcmp(p, "\xc0\x3b\x39\x98", 4)) {
			memset(p, 0, 4);
			flags |= 1;
		}
		maker_tag(m, m->p + at, block[i], flags, p);
		at += maker_tag_bytes(m) + (i ? 0 : 16);
	}
	maker_tail(m, m->bs - 4);
	if (m->csum == 1)
		m->crc1 = ext2fs_crc32_be(m->crc1, m->p, m->bs);
	maker_put(m, m->p);
	for (size_t i = 0; i < n; i++) {
		if (m->csum == 1)
			m->crc1 = ext2fs_crc32_be(m->crc1, data + i * m->bs, m->bs);
		maker_put(m, data + i * m->bs);
	}
}

static inline uint8_t *maker_commit(struct maker *m)
{
	uint8_t *at;

	maker_header(m, MAKER_COMMIT);
	be_set(m->p, 48, 8, m->commit_s++);
	if (m->csum == 1) {
		m->p[12] = 1;
		m->p[13] = 4;
		be_set(m->p, 16, 4, m->crc1);
	}
	maker_tail(m, 16);
	at = maker_put(m, m->p);
	m->crc1 = ~0u;
	m->seq++;
	return at;
}

#endif
