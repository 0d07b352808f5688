// SPDX-License-Identifier: MIT
/*
 * Which 4 KiB units of an image are used, free, or jbd2 log: the fsmap of fsinfo.h. Bitmaps and the
 * blocks of the journal come from ext4_group.c, which may run in another process (reader.h); this
 * file decides what they mean. The bitmaps of other kinds (btrfs_space.c, xfs_space.c) are of
 * windows of the device. These only report "free", never an alarm.
 *
 * "Free" is the claim that loses data when it is wrong. Invariants:
 * I1 a block is free only by a clear bit of a group whose descriptor and bitmap checksums match
 *    (where the file system has them) and whose bitmap covers its own superblock copy and tables;
 * I2 a BLOCK_UNINIT group is computed as in the kernel's ext4_init_block_bitmap, plus the tables
 *    that other members of its flex group may have here; a damaged descriptor among them spoils the
 *    group;
 * I3 a journal block is a block that the inode maps between the journal's superblock and its
 *    s_maxlen, that is used according to the bitmap, and that belongs to an empty log: a full log
 *    is content, also if the bitmaps are those after its replay;
 * I4 and the inode is trusted only if everything that it maps, including the blocks of its tree,
 *    lies inside the file system, once each, and never in superblocks, descriptors, bitmaps and
 *    inode tables. If these are not all known (a damaged descriptor), no block is a journal block;
 * I5 for other kinds, once a group could not be read, whatever the reason, each group that is
 *    requested after it counts as used. The amount of reads is bounded, so a second answer could
 *    differ from the first.
 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "fs/fs_ops.h"
#include "fs/reader.h"
#include "fs/replay.h"

#define LRU_GROUPS 16 /* a commit asks in ascending order */

struct group {
	bool valid, bad; /* bad: every block of the group counts as used */
	uint32_t nr;
	uint64_t used_at;
	uint8_t *bits; /* one per cluster, as on the card */
};

struct fsmap {
	struct reader *e; /* NULL: every unit is used */
	struct fsimage_facts f;
	bool knows, alarming; /* struct fsimage_ops */
	bool doubt;	      /* I5 */
	bool replayed;
	unsigned alarms;
	uint64_t volume_blks, clock;
	struct fsimage_range *log;
	size_t log_ranges;
	uint32_t log_sequence; /* of the next transaction, if the log is empty */
	struct group *last, groups[LRU_GROUPS];
};

static const struct fsimage_range *range_find(const struct fsimage_range *ranges, size_t n,
					      uint64_t block)
{
	size_t behind = ARRAY_FIRST(i, n, ranges[i].first > block);

	if (!behind || block - ranges[behind - 1].first >= ranges[behind - 1].count)
		return NULL;
	return &ranges[behind - 1];
}

static uint64_t group_first(const struct fsmap *m, uint32_t nr)
{
	return m->f.first_data_block + (uint64_t)nr * m->f.blocks_per_group;
}

static int group_get(struct fsmap *m, uint32_t nr, const struct group **ret)
{
	struct group *g = m->last, *oldest = m->groups;
	int err;

	if (!g || !g->valid || g->nr != nr) {
		for (g = m->groups; g < m->groups + LRU_GROUPS; g++) {
			if (g->valid && g->nr == nr)
				break;
			if (g->used_at < oldest->used_at)
				oldest = g;
		}
	}
	if (g == m->groups + LRU_GROUPS) {
		g = oldest;
		g->valid = false;
		g->nr = nr;
		if (!g->bits)
			g->bits = malloc(1u << m->f.block_shift);
		if (!g->bits)
			return -ENOMEM;
		err = m->doubt ? -EUCLEAN : reader_group(m->e, nr, g->bits);
		if (err && err != -EUCLEAN && m->alarming)
			return err;
		g->bad = err;
		g->valid = true;
		m->doubt = g->bad && !m->alarming;
		if (g->bad && m->alarming)
			m->alarms |= FSMAP_BAD_CHECKSUM;
	}
	g->used_at = ++m->clock;
	m->last = g;
	*ret = g;
	return 0;
}

/* ---- the map ---- */

static int block_use(struct fsmap *m, uint64_t block, enum blk_use *ret)
{
	const struct group *g;
	uint64_t rel, bit;
	bool log, used;
	int err;

	*ret = USE_USED;
	/* block 0 whatever the bitmap says: the boot sector; and s_first_data_block is 0 or 1 */
	if (block < max_u64(1, m->f.first_data_block) || block >= m->f.blocks)
		return 0;
	rel = block - m->f.first_data_block;
	err = group_get(m, (uint32_t)(rel / m->f.blocks_per_group), &g);
	if (err || g->bad)
		return err;
	bit = rel % m->f.blocks_per_group >> m->f.cluster_shift;
	used = g->bits[bit / 8] & 1 << bit % 8;
	log = range_find(m->log, m->log_ranges, block);
	if (used && log && !(m->alarms & FSMAP_NEEDS_RECOVERY))
		*ret = USE_JOURNAL;
	else if (!used && !log)
		*ret = USE_FREE;
	return 0;
}

int fsmap_use(struct fsmap *m, uint64_t blk, enum blk_use *ret)
{
	enum blk_use use, part;
	uint64_t first, parts;
	unsigned shift;
	int err;

	if (!m->e || blk >= m->volume_blks) {
		*ret = USE_USED;
		return 0;
	}
	shift = m->f.block_shift;
	first = blk_to_bytes(blk) >> shift;
	parts = shift < COW_BLK_SHIFT ? 1u << (COW_BLK_SHIFT - shift) : 1;
	err = block_use(m, first, &use);
	for (uint64_t i = 1; !err && i < parts && use != USE_USED; i++) {
		err = block_use(m, first + i, &part);
		if (part != use)
			use = USE_USED;
	}
	if (!err)
		*ret = use;
	return err;
}

/* The number of bits, from this one on and below end, that are equal to it. */
static uint64_t bits_alike(const uint8_t *bits, uint64_t bit, uint64_t end)
{
	const bool set = bits[bit / 8] & 1 << bit % 8;
	uint64_t pos = bit;

	while (pos < end) {
		if (pos % 8 == 0 && end - pos >= 8 && bits[pos / 8] == (set ? 0xff : 0))
			pos += 8;
		else if (!(bits[pos / 8] & 1 << pos % 8) == !set)
			pos++;
		else
			break;
	}
	return pos - bit;
}

/* The first place after block where the journal begins or ends. */
static uint64_t log_edge(const struct fsmap *m, uint64_t block)
{
	size_t at = ARRAY_FIRST(i, m->log_ranges, m->log[i].first + m->log[i].count > block);

	if (at == m->log_ranges)
		return UINT64_MAX;
	return m->log[at].first > block ? m->log[at].first : m->log[at].first + m->log[at].count;
}

/* The number of blocks, from this one of the last group on, that have the same use for certain. */
static uint64_t blocks_alike(const struct fsmap *m, uint64_t block)
{
	uint64_t start = group_first(m, m->last->nr), end, bit, clusters;

	end = min_u64(start + m->f.blocks_per_group, m->f.blocks);
	if (m->last->bad)
		return end - block;
	end = min_u64(end, log_edge(m, block));
	bit = (block - start) >> m->f.cluster_shift;
	clusters = ((end - 1 - start) >> m->f.cluster_shift) + 1;
	return min_u64(end, start + ((bit + bits_alike(m->last->bits, bit, clusters))
				     << m->f.cluster_shift)) -
	       block;
}

int fsmap_run(struct fsmap *m, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
	      uint64_t *ret_blks)
{
	enum blk_use use, next;
	uint64_t block, n = 0;
	unsigned shift;
	int err = fsmap_use(m, blk, &use);

	if (!err && max_blks > 1 && !m->e) {
		n = max_blks - 1;
	} else if (!err && max_blks > 1 && blk < m->volume_blks) {
		/* one unit may have blocks of several uses: the run is of the blocks after it */
		shift = m->f.block_shift;
		block = blk_to_bytes(blk + 1) >> shift;
		if (shift <= COW_BLK_SHIFT && m->last && block < m->f.blocks) {
			err = block_use(m, block, &next);
			if (!err && next == use)
				n = min_u64(blocks_alike(m, block) >> (COW_BLK_SHIFT - shift),
					    max_blks - 1);
		}
	}
	if (err)
		return err;
	*ret = use;
	*ret_blks = 1 + n;
	return 0;
}

/* Is the whole unit in the log? */
static bool unit_in_log(const struct fsmap *m, uint64_t blk)
{
	unsigned shift = m->f.block_shift;
	uint64_t first = blk_to_bytes(blk) >> shift,
		 end = max_u64(blk_to_bytes(blk + 1) >> shift, first + 1);

	for (; first < end; first++)
		if (!range_find(m->log, m->log_ranges, first))
			return false;
	return true;
}

/* Transaction numbers wrap. */
static bool log_goes_on(const struct fsmap *m, const struct fsmap *before)
{
	return before && before->e && before->log && !(before->alarms & FSMAP_NEEDS_RECOVERY) &&
	       (int32_t)(m->log_sequence - before->log_sequence) >= 0;
}

int fsmap_run_after(struct fsmap *m, const struct fsmap *before, uint64_t blk, uint64_t max_blks,
		    enum blk_use *ret, uint64_t *ret_blks)
{
	enum blk_use use;
	uint64_t n, same = 1;
	int err = fsmap_run(m, blk, max_blks, &use, &n);

	if (err)
		return err;
	if (use == USE_JOURNAL && !log_goes_on(m, before)) {
		use = USE_USED;
	} else if (use == USE_JOURNAL) {
		bool was_log = unit_in_log(before, blk);

		while (same < n && unit_in_log(before, blk + same) == was_log)
			same++;
		n = same;
		use = was_log ? USE_JOURNAL : USE_USED;
	}
	*ret = use;
	*ret_blks = n;
	return 0;
}

static int log_load(struct fsmap *m)
{
	int err = m->f.journal_err;

	if (err)
		return err;
	if (m->f.journal.start)
		m->alarms |= FSMAP_NEEDS_RECOVERY;
	m->log_sequence = m->f.journal.sequence;
	return reader_log(m->e, &m->log, &m->log_ranges);
}

static int map_open_alarming(struct fsmap *m, const struct blk_reader *r, const struct fsinfo *f,
			     struct replay *y)
{
	bool log = f->has_journal && !f->external_journal;
	int err = 0;

	m->e = y ? replay_take_reader(y, &m->f) : NULL;
	if (!m->e)
		err = reader_open(&m->e, r, f->kind,
				  log ? FSIMAGE_ASK_JOURNAL | FSIMAGE_ASK_REPLAY : 0, &m->f);
	if (err == -EUCLEAN)
		m->alarms |= FSMAP_BAD_CHECKSUM;
	else if (err == -EOPNOTSUPP)
		m->knows = false;
	if (err == -EUCLEAN || err == -EOPNOTSUPP)
		return 0;
	if (!err && log) {
		m->replayed = !m->f.replay_err;
		err = log_load(m);
		if (err == -EUCLEAN) {
			m->alarms |= FSMAP_BAD_CHECKSUM;
			err = 0;
		}
	}
	return err;
}

static int map_open(struct fsmap **ret, const struct blk_reader *r, bool unread, struct replay *y)
{
	struct fsinfo f;
	const struct fsimage_ops *image;
	struct fsmap *m;
	int err = fsinfo_probe_super(r, &f);

	if (err)
		return err;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	image = fs_ops(f.kind)->image;
	m->alarming = image && image->alarms;
	m->knows = m->alarming && !unread;
	m->volume_blks = r->volume_blks;
	m->alarms = (f.error_flag ? FSMAP_ERROR_FLAG : 0) |
		    (f.needs_recovery ? FSMAP_NEEDS_RECOVERY : 0);
	if (m->knows)
		err = map_open_alarming(m, r, &f, y);
	else if (image && !m->alarming && !unread)
		/* reads the trees; if that fails, whatever the reason, all differing blocks go through the log */
		m->knows = !reader_open(&m->e, r, f.kind, 0, &m->f);
	if (err) {
		fsmap_close(m);
		return err;
	}
	*ret = m;
	return 0;
}

int fsmap_open(struct fsmap **ret, const struct blk_reader *r)
{
	return map_open(ret, r, false, NULL);
}

int fsmap_open_replayed(struct fsmap **ret, struct replay *y)
{
	struct blk_reader r = replay_reader(y);

	return map_open(ret, &r, false, y);
}

int fsmap_open_unread(struct fsmap **ret, const struct blk_reader *r)
{
	return map_open(ret, r, true, NULL);
}

void fsmap_close(struct fsmap *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < LRU_GROUPS; i++)
		free(m->groups[i].bits);
	free(m->log);
	reader_close(m->e);
	free(m);
}

void fsmap_assume_empty_journal(struct fsmap *m)
{
	m->alarms &= ~(unsigned)FSMAP_NEEDS_RECOVERY;
}

bool fsmap_knows(const struct fsmap *m)
{
	return m->knows;
}

bool fsmap_replayed(const struct fsmap *m)
{
	return m->replayed;
}

bool fsmap_doubts(const struct fsmap *m)
{
	return m->doubt;
}

uint32_t fsmap_log_sequence(const struct fsmap *m)
{
	return m->log ? m->log_sequence : 0;
}

void fsmap_set_log_sequence(struct fsmap *m, uint32_t sequence)
{
	m->log_sequence = sequence;
}

unsigned fsmap_alarms(const struct fsmap *m)
{
	return m->alarms;
}
