/* SPDX-License-Identifier: MIT */
/*
 * Writes the golden images of the format into a directory: mkgolden DIR. The code that writes is the
 * product's, in a world that stands still (golden/still.h). When it may be run: CONTRIBUTING.md.
 */
#include <stdio.h>
#include <string.h>

#include "golden/golden.h"
#include "log/codec.h"

static FILE *create(const char *dir, const char *name, const char *suffix)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/v%u-%s.%s", dir, LOG_FORMAT_VERSION, name, suffix);
	f = fopen(path, "we");
	if (!f) {
		perror(path);
		exit(1);
	}
	if (!strcmp(suffix, "image"))
		fprintf(f, "# cowfs, format %u, golden image '%s'; never changed after a release\n",
			LOG_FORMAT_VERSION, name);
	return f;
}

static void finish(FILE *f)
{
	if (fclose(f)) {
		perror("mkgolden");
		exit(1);
	}
}

static void tell(const char *dir, const char *name, enum toy_story story)
{
	static _Alignas(COW_BLK_BYTES) uint8_t view[TOY_BLKS * COW_BLK_BYTES];
	struct toy t;
	FILE *f;

	toy_tell(&t, story, NULL, NULL);
	toy_close(&t);
	f = create(dir, name, "image");
	golden_save(f, t.base);
	if (t.card != t.base)
		golden_save(f, t.card);
	finish(f);
	if (toy_open(&t, 0) < 0 || toy_view(&t, view) < 0 || toy_differs(&t.n, view) >= 0) {
		fprintf(stderr, "mkgolden: %s does not read back\n", name);
		exit(1);
	}
	f = create(dir, name, "expect");
	golden_report(f, &t);
	finish(f);
	toy_free(&t);
}

/* ---- one block of each kind, no two fields alike ---- */

static uint64_t unlike(void)
{
	static uint64_t n = 0x0102030405060708;

	return n += 0x0101010101010101;
}

static struct log_super some_super(void)
{
	struct log_super s = { .version = LOG_FORMAT_VERSION,
			       .state = SUPER_PENDING,
			       .compat = unlike(),
			       .incompat = LOG_INCOMPAT_ESCAPED,
			       .revision = unlike(),
			       .fs_bytes = 64 * MIB,
			       .base_bytes = 301 * MIB,
			       .log_bytes = 302 * MIB,
			       .copy_off_bytes = { 65 * MIB, 303 * MIB / 2 },
			       .ring_off_bytes = 68 * MIB,
			       .seg_bytes = 4 * MIB,
			       .seg_count = 9,
			       .erase_block_bytes = 12 * MIB,
			       .eb_source = CARD_EB_CONFIGURED,
			       .disk_off_bytes = unlike(),
			       .external = 1,
			       .image_boots = 0x61,
			       .image = 0x62636465,
			       .created_s = unlike() };

	memcpy(s.ring_uuid, "ring uuid 123456", 16);
	memcpy(s.fs_uuid, "file system uuid", 16);
	return s;
}

static struct log_record some_record(void)
{
	uint64_t base = unlike();
	struct log_record r = {
		.type = RECORD_CHECKPOINT,
		.cause = CAUSE_SHUTDOWN,
		.flags = 0x40302010,
		.epoch = unlike(),
		.seq = base + 9,
		.lblk = unlike(),
		.prev = { base + 8, unlike(), unlike() },
		.tail_seq = base + 5,
		.floor_seq = base + 7,
		.fallback_seq = base + 6,
		.start_lblk = unlike(),
		.desc_lblk = unlike(),
		.desc_blks = 0x11223344,
		.desc_crc = 0x55667788,
		.desc_epoch = unlike(),
		.desc_seq = unlike(),
		.direct_blks = unlike(),
		.logged_blks = unlike(),
		.zero_blks = unlike(),
		.time_s = unlike(),
		.identity = "identity of a card, which may be as long as sixty-three byte"
	};
	uint64_t *counter = (uint64_t *)&r.ledger;

	memcpy(r.ring_uuid, "ring uuid 123456", 16);
	for (size_t i = 0; i < sizeof(r.ledger) / sizeof(*counter); i++)
		counter[i] = unlike();
	r.wear = (struct wear_ref){ .prev = { unlike(), unlike(), unlike() },
				    .lblk = unlike(),
				    .blks = 0x01121314,
				    .crc = 0x02222324,
				    .eb_blks = 0x03323334,
				    .unit_blks = 0x04424344,
				    .units = { 0x05525354, 0x06626364 },
				    .first_unit = { unlike(), unlike() },
				    .bytes = RECORD_WEAR_ROOM };
	r.fingerprint = (struct fs_fingerprint){ .kind = FS_EXT,
						 .mtime = 0x01111111,
						 .wtime = 0x02222222,
						 .mnt_count = 0x0333,
						 .state = 0x0444,
						 .kbytes_written = unlike(),
						 .journal_seq = 0x05555555,
						 .sb_crc = 0x06666666,
						 .gdt_crc = 0x07777777,
						 .uuid = "file system uui",
						 .n_marks = FS_MARKS };
	for (uint32_t i = 0; i < FS_MARKS; i++) {
		r.fingerprint.mark[i].blk = unlike();
		for (int k = 0; k < 8; k++)
			r.fingerprint.mark[i].sector_crc[k] = (uint32_t)unlike() + (uint32_t)k;
	}
	return r;
}

static void blocks(const char *dir)
{
	const struct log_head h = { .ring_uuid = "ring uuid 12345",
				    .epoch = unlike(),
				    .serial = unlike(),
				    .seg = 0x01020304,
				    .last = { unlike(), unlike(), unlike() },
				    .fallback_seq = unlike() };
	const uint32_t crc[3] = { 0x11111111, 0x22222222, 0x33333333 };
	const struct desc_extent e[4] = { { DESC_LOGGED, 3, 11, 12, crc },
					  { DESC_ZERO, 400, 13, 0, NULL },
					  { DESC_DIRECT, 2, 14, 0, crc },
					  { DESC_SPILLED, 1, 15, 16, crc + 2 } };
	uint8_t blk[6][COW_BLK_BYTES] = { 0 };
	const struct log_super s = some_super();
	struct log_super newer = s;
	const struct log_record r = some_record();
	struct desc_writer w;
	FILE *f = create(dir, "blocks", "image");

	codec_put_super(blk[0], &s);
	codec_put_head(blk[1], &h);
	for (unsigned i = 0; i < RECORD_WEAR_ROOM; i++)
		blk[2][RECORD_WEAR_OFF + i] = (uint8_t)i;
	codec_put_record(blk[2], &r);
	for (unsigned i = 0; i < WEAR_BLK_ROOM; i++)
		blk[5][WEAR_BLK_OFF + i] = (uint8_t)(255 - i);
	codec_put_wear(blk[5], r.ring_uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334,
		       WEAR_BLK_ROOM);
	desc_start(&w, blk[3]);
	for (int i = 0; i < 4; i++)
		if (desc_put(&w, &e[i]) != e[i].blks)
			exit(1);
	desc_seal(&w, r.ring_uuid, 0x1112131415161718, 0x2122232425262728, 0x31323334);
	newer.ro_compat = unlike();
	newer.incompat = unlike();
	codec_put_super(blk[4], &newer);
	fprintf(f, "card %u 4096 0\n", 6 * COW_BLK_BYTES);
	for (unsigned i = 0; i < 6; i++)
		golden_save_block(f, i, blk[i]);
	finish(f);
	f = create(dir, "blocks", "expect");
	golden_print_super(f, &s);
	golden_print_head(f, &h);
	golden_print_record(f, &r);
	for (int i = 0; i < 4; i++)
		golden_print_extent(f, &e[i]);
	fprintf(f, "not understood %llx %llx\n", (unsigned long long)newer.ro_compat,
		(unsigned long long)newer.incompat);
	finish(f);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
		return 2;
	}
	tell(argv[1], "live", TOY_LIVE);
	tell(argv[1], "chain", TOY_CHAIN);
	tell(argv[1], "retired", TOY_RETIRED);
	blocks(argv[1]);
	tell(argv[1], "lag", TOY_LAG);
	tell(argv[1], "payload", TOY_ESCAPED);
	tell(argv[1], "held", TOY_HELD);
	tell(argv[1], "back", TOY_BACK);
	return 0;
}
