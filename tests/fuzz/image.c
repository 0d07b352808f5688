/* SPDX-License-Identifier: MIT */
/* The offsets here are those of docs/FORMAT.md, intentionally not taken from the codec. */
#include "image.h"

#include "base/bytes.h"
#include "base/crc32c.h"

enum {
	OFF_CRC = 8,
	DESC_EXTENTS = 52,
	DESC_BODY = 64,
	REC_DESC_LBLK = 120,
	REC_DESC_BLKS = 128,
	REC_DESC_CRC = 132
};

static void must(int r)
{
	if (r < 0)
		abort();
}

static void peek(const struct toy *t, uint64_t blk, uint8_t *buf)
{
	must(sim_peek(t->card, blk_to_bytes(blk), buf, COW_BLK_BYTES));
}

static void poke(struct toy *t, uint64_t blk, const uint8_t *buf)
{
	must(sim_poke(t->card, blk_to_bytes(blk), buf, COW_BLK_BYTES));
}

static bool is_kind(const uint8_t *blk, const char kind[3])
{
	return !memcmp(blk, "COWFS", 5) && !memcmp(blk + 5, kind, 3);
}

static bool is_meta(const uint8_t *blk)
{
	return is_kind(blk, "SUP") || is_kind(blk, "SEG") || is_kind(blk, "DSC") ||
	       is_kind(blk, "REC");
}

/* ---- images ---- */

static void note_generation(struct toy *t, void *ctx)
{
	struct image *im = ctx;

	if (im->n_gens == IMAGE_MAX_GENS)
		abort();
	im->gen[im->n_gens].seq = log_newest(t->log)->seq;
	memcpy(im->gen[im->n_gens].direct, t->direct, sizeof(t->direct));
	im->gen[im->n_gens++].image = t->n;
}

const struct image *image_get(unsigned n)
{
	static struct image all[TOY_STORIES];
	struct image *im = &all[n % TOY_STORIES];
	uint8_t blk[COW_BLK_BYTES];

	if (im->blks)
		return im;
	toy_tell(&im->toy, (enum toy_story)(n % TOY_STORIES), note_generation, im);
	toy_close(&im->toy);
	im->blks = im->toy.card->geo.size_bytes / COW_BLK_BYTES;
	for (uint64_t b = 0; b < im->blks; b++) {
		peek(&im->toy, b, blk);
		if (is_meta(blk) && im->n_meta < ARRAY_SIZE(im->meta))
			im->meta[im->n_meta++] = (uint16_t)b;
	}
	return im;
}

/* ---- checksums made right ---- */

static void fix_block(struct toy *t, uint64_t b, uint8_t *blk)
{
	le_set(blk, OFF_CRC, 4, 0);
	le_set(blk, OFF_CRC, 4, crc32c(0, blk, COW_BLK_BYTES));
	poke(t, b, blk);
}

/* Place of lblk on the card; after the end of the ring: none. */
static uint64_t ring_blk(const struct image *im, uint64_t lblk)
{
	uint64_t first = im->toy.card->geo.size_bytes, eb = TOY_SEG_BLKS * COW_BLK_BYTES;

	first = round_up_u64(32 * KIB +
				     (im->toy.base == im->toy.card ? blk_to_bytes(TOY_BLKS) : 0) +
				     COW_BLK_BYTES,
			     eb);
	first = (first - 32 * KIB) / COW_BLK_BYTES;
	return lblk < im->blks ? first + lblk : im->blks;
}

static uint32_t crc_at(const struct card *c, uint64_t blk)
{
	uint8_t buf[COW_BLK_BYTES];

	if (blk >= c->geo.size_bytes / COW_BLK_BYTES)
		return 0;
	must(sim_peek(c, blk_to_bytes(blk), buf, sizeof(buf)));
	return crc32c_back(buf, sizeof(buf));
}

static void fix_payload(const struct image *im, const struct toy *t, uint8_t *desc)
{
	size_t pos = DESC_BODY;

	for (uint64_t n = le_at(desc, DESC_EXTENTS, 4); n && pos + 24 <= COW_BLK_BYTES; n--) {
		uint8_t type = desc[pos];
		uint64_t blks = le_at(desc, pos + 4, 4), blk = le_at(desc, pos + 8, 8),
			 at = le_at(desc, pos + 16, 8);

		pos += 24;
		for (uint64_t i = 0; type != 2 && i < blks && pos + 4 <= COW_BLK_BYTES;
		     i++, pos += 4) {
			if (type == 1)
				le_set(desc, pos, 4, crc_at(t->card, ring_blk(im, at + i)));
			else
				le_set(desc, pos, 4, crc_at(t->base, (type == 4 ? at : blk) + i));
		}
	}
}

static void fix_group(const struct image *im, const struct toy *t, uint8_t *rec)
{
	uint64_t lblk = le_at(rec, REC_DESC_LBLK, 8), n = le_at(rec, REC_DESC_BLKS, 4);
	uint8_t blk[COW_BLK_BYTES];
	uint32_t crc = 0;

	for (; n && n <= im->blks && ring_blk(im, lblk) < im->blks; n--) {
		peek(t, ring_blk(im, lblk), blk);
		crc = crc32c(crc, blk, sizeof(blk));
		lblk++;
		if (lblk % TOY_SEG_BLKS == 0)
			lblk = lblk % (TOY_SEG_BLKS * TOY_SEGS) + 1;
	}
	le_set(rec, REC_DESC_CRC, 4, crc);
}

static void fix_all(const struct image *im, struct toy *t, unsigned fix)
{
	uint8_t blk[COW_BLK_BYTES];

	for (uint64_t b = 0; b < im->blks; b++) {
		peek(t, b, blk);
		if (is_kind(blk, "DSC") && (fix & EDIT_FIX_PAYLOAD))
			fix_payload(im, t, blk);
		if (is_meta(blk) && !is_kind(blk, "REC"))
			fix_block(t, b, blk);
	}
	for (uint64_t b = 0; b < im->blks; b++) {
		peek(t, b, blk);
		if (is_kind(blk, "REC") && (fix & (EDIT_FIX_GROUPS | EDIT_FIX_PAYLOAD)))
			fix_group(im, t, blk);
		if (is_kind(blk, "REC"))
			fix_block(t, b, blk);
	}
}

/* ---- edits ---- */

/*
 * An edit is: what u8, block u16, offset u16, length u8, then that many bytes. what: the low two
 * bits are 0 put bytes, 1 add the bytes as a number, 2 copy the block that the bytes name to here,
 * 3 zeroes; bit 2: the block is any of the card, else one that begins with a magic. */
static uint64_t pick(const struct image *im, unsigned what, uint64_t n)
{
	return what & 4 || !im->n_meta ? n % im->blks : im->meta[n % im->n_meta];
}

static void edit_one(const struct image *im, struct toy *t, struct fuzz_input *in,
		     uint64_t *ret_blk)
{
	unsigned what = (unsigned)fuzz_uint(in, 1);
	uint64_t b = pick(im, what, fuzz_uint(in, 2)), off = fuzz_uint(in, 2) % COW_BLK_BYTES, v;
	size_t len = (size_t)fuzz_uint(in, 1), width = off + 8 <= COW_BLK_BYTES ? 8 : 1;
	uint8_t blk[COW_BLK_BYTES];

	peek(t, b, blk);
	switch (what & 3) {
	case 0:
		while (len-- && off < COW_BLK_BYTES)
			blk[off++] = (uint8_t)fuzz_uint(in, 1);
		break;
	case 1:
		v = fuzz_uint(in, min_u64(len, 8));
		le_set(blk, off, width, le_at(blk, off, width) + v);
		break;
	case 2:
		peek(t, pick(im, what, fuzz_uint(in, 2)), blk);
		break;
	case 3:
		memset(blk, 0, sizeof(blk));
		break;
	}
	poke(t, b, blk);
	*ret_blk = b;
}

void image_edit(const struct image *im, struct toy *t, struct fuzz_input *in, unsigned fix,
		struct edits *ret)
{
	bool seen[1024] = { false };

	*ret = (struct edits){ 0 };
	while (in->left) {
		uint64_t b;

		edit_one(im, t, in, &b);
		if (b >= ring_blk(im, 0) && b < ring_blk(im, 0) + TOY_SEG_BLKS * TOY_SEGS) {
			ret->ring_blks += !seen[b];
		} else if (im->toy.base == im->toy.card && b < TOY_BLKS) {
			ret->home_blks += !seen[b];
			ret->home_blk = b;
		} else {
			ret->outside = true;
		}
		seen[b] = true;
	}
	if (fix & EDIT_FIX_BLOCKS)
		fix_all(im, t, fix);
}
