/* SPDX-License-Identifier: MIT */
/*
 * Superblocks of the log: both copies changed, checksums right or not, and a device larger or
 * smaller than they say.
 *
 * Input: flags u8 (bit 0 fix checksums, bit 1 the file system's end is unknown, bit 2 another log
 * device), size of the device u16 in blocks, then edits: copy u8 (A, B, the block before B), offset
 * u16, length u8, bytes.
 */
#include <errno.h>

#include "base/crc32c.h"
#include "fuzz.h"
#include "log/codec.h"
#include "log/log.h"
#include "toy.h"

static void fix(uint8_t *blk)
{
	uint32_t crc;

	memset(blk + 8, 0, 4);
	crc = crc32c(0, blk, COW_BLK_BYTES);
	for (int i = 0; i < 4; i++)
		blk[8 + i] = (uint8_t)(crc >> 8 * i);
}

/* What an accepted superblock guarantees to all code above. */
static void check_sane(const struct card *c, const struct log_super *s)
{
	uint64_t ring_bytes = (uint64_t)s->seg_bytes * s->seg_count;

	FUZZ_PROMISE(s->version == LOG_FORMAT_VERSION && s->lag <= LOG_MAX_LAG &&
		     (s->incompat | LOG_INCOMPAT_KNOWN) == LOG_INCOMPAT_KNOWN &&
		     s->incompat & LOG_INCOMPAT_ESCAPED);
	FUZZ_PROMISE(s->seg_count >= LOG_MIN_SEGMENTS && s->seg_bytes >= LOG_MIN_SEG_BYTES &&
		     s->seg_bytes % COW_BLK_BYTES == 0);
	FUZZ_PROMISE(s->log_bytes <= c->geo.size_bytes);
	FUZZ_PROMISE(s->ring_off_bytes <= c->geo.size_bytes &&
		     ring_bytes <= c->geo.size_bytes - s->ring_off_bytes);
	FUZZ_PROMISE(s->external || s->state == SUPER_PENDING || s->ring_off_bytes >= s->fs_bytes);
	FUZZ_PROMISE(s->copy_off_bytes[0] < s->log_bytes && s->copy_off_bytes[1] < s->log_bytes);
	FUZZ_PROMISE(s->fs_bytes && s->fs_bytes % COW_BLK_BYTES == 0 && s->erase_block_bytes);
}

static void try_open(struct card *c, const struct log_super *s)
{
	struct log_open_report rep;
	struct wear_ledger life;
	uint64_t bad, before = sim_ops(c);
	struct log *l;

	if (s->fs_bytes > c->geo.size_bytes || log_open(&l, c, c, s, 0, NULL, &rep) < 0)
		return;
	log_totals(l, &life);
	FUZZ_PROMISE(log_room_blks(l) <= (uint64_t)s->seg_bytes / COW_BLK_BYTES * s->seg_count);
	FUZZ_PROMISE(log_meta_blks(l, 10, 10, 2));
	(void)!log_verify(l, NULL, NULL, &bad);
	FUZZ_PROMISE(sim_ops(c) == before);
	log_close(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	unsigned flags = (unsigned)fuzz_uint(&in, 1), trouble = 0;
	static struct toy origin;
	uint64_t blks = 1 + fuzz_uint(&in, 2) % 2048, where[3], before;
	struct sim_params p = { .size_bytes = blk_to_bytes(blks),
				.erase_block_bytes = TOY_SEG_BLKS * COW_BLK_BYTES };
	uint8_t blk[3][COW_BLK_BYTES];
	struct log_super s;
	struct card *c;
	int r;

	if (!origin.card) {
		toy_format(&origin, false);
		if (toy_open(&origin, 0) < 0)
			abort();
	}
	s = *log_super(origin.log);
	s.state = (enum super_state)(1 + (flags >> 3) % 3);
	for (int i = 0; i < 3; i++) {
		memset(blk[i], 0, COW_BLK_BYTES);
		codec_put_super(blk[i], &s);
	}
	while (in.left) {
		uint8_t *to = blk[fuzz_uint(&in, 1) % 3];
		size_t off = (size_t)fuzz_uint(&in, 2) % COW_BLK_BYTES,
		       n = (size_t)fuzz_uint(&in, 1);

		while (n-- && off < COW_BLK_BYTES)
			to[off++] = (uint8_t)fuzz_uint(&in, 1);
	}
	where[0] = flags & 4 ? 0 : TOY_BLKS;
	where[1] = blks - 1;
	where[2] = blks > 2 ? blks - 2 : 0;
	if (sim_new(&c, &p) < 0)
		abort();
	for (int i = 2; i >= 0; i--) {
		if (flags & 1)
			fix(blk[i]);
		if (where[i] < blks &&
		    (r = sim_poke(c, blk_to_bytes(where[i]), blk[i], COW_BLK_BYTES)) < 0)
			abort();
	}
	before = sim_ops(c);
	r = super_read(c, flags & 2 ? 0 : blk_to_bytes(TOY_BLKS), &s, &trouble);
	FUZZ_PROMISE(r <= 0 && sim_ops(c) == before);
	if (r == 0) {
		check_sane(c, &s);
		try_open(c, &s);
	}
	card_close(c);
	return 0;
}
