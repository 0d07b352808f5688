/* SPDX-License-Identifier: MIT */
/*
 * The codecs of segment heads, records, superblocks and descriptors. Input: kind u8 (bit 7: leave
 * the checksum alone), then the block after checksum and magic; the rest is zero. An accepted block must give the same bytes when it is written again.
 */
#include <errno.h>

#include "base/crc32c.h"
#include "fuzz.h"
#include "log/codec.h"

static const uint8_t uuid[16] = "ring uuid 123456";
enum { OFF_CRC = 8, OFF_UUID = 16, OFF_BODY = 32 };

static uint8_t blk[COW_BLK_BYTES], out[COW_BLK_BYTES];

static void try_head(void)
{
	struct log_head h;

	if (codec_get_head(blk, uuid, &h) < 0)
		return;
	codec_put_head(out, &h);
	FUZZ_PROMISE(!memcmp(blk, out, sizeof(blk)));
}

static void try_super(void)
{
	struct log_super s;

	if (codec_get_super(blk, &s) < 0)
		return;
	codec_put_super(out, &s);
	FUZZ_PROMISE(!memcmp(blk, out, sizeof(blk)));
}

/* Counters of a later release may follow, an identity is cut off, and the part of the wear table
 * has arbitrary content. */
static void try_record(void)
{
	enum {
		OFF_IDENTITY_END = 303,
		OFF_SPARE = 304 + sizeof(struct wear_ledger),
		OFF_MARKS = 816,
		OFF_WEAR = 1616
	};
	struct log_record r;

	if (codec_get_record(blk, uuid, &r) < 0)
		return;
	codec_put_record(out, &r);
	out[OFF_IDENTITY_END] = blk[OFF_IDENTITY_END];
	memcpy(out + OFF_SPARE, blk + OFF_SPARE, OFF_MARKS - OFF_SPARE);
	memcpy(out + OFF_WEAR, blk + OFF_WEAR, COW_BLK_BYTES - OFF_WEAR);
	memcpy(out + OFF_CRC, blk + OFF_CRC, 4);
	FUZZ_PROMISE(!memcmp(blk, out, sizeof(blk)));
	FUZZ_PROMISE(r.wear.bytes <= RECORD_WEAR_ROOM);
	FUZZ_PROMISE(r.copy_bytes <= RECORD_COPY_MAX &&
		     r.copy_bytes + r.wear.bytes <= RECORD_WEAR_ROOM);
	FUZZ_PROMISE(strlen(r.identity) < sizeof(r.identity));
	FUZZ_PROMISE(r.seq && r.prev.seq < r.seq && r.tail_seq && r.tail_seq <= r.seq);
}

static void try_desc(void)
{
	static struct desc_cursor c;
	struct desc_writer w;
	struct desc_extent e;
	int r = desc_open(&c, blk, uuid, 3, 4, 5);

	desc_start(&w, out);
	while (r == 0 && (r = desc_next(&c, &e)) == 1) {
		FUZZ_PROMISE(e.blks && (e.type == DESC_ZERO) == !e.crc);
		FUZZ_PROMISE(desc_put(&w, &e) == e.blks);
		r = 0;
	}
	if (r < 0)
		return;
	desc_seal(&w, uuid, 3, 4, 5);
	FUZZ_PROMISE(!memcmp(blk, out, sizeof(blk)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const char magic[4][9] = { "COWFSSEG", "COWFSREC", "COWFSSUP", "COWFSDSC" };
	static void (*const tries[4])(void) = { try_head, try_record, try_super, try_desc };
	unsigned kind = len ? data[0] : 0, which = kind % 4;
	uint32_t crc;

	memset(blk, 0, sizeof(blk));
	memset(out, 0, sizeof(out));
	memcpy(blk, magic[which], 8);
	memcpy(blk + OFF_UUID, uuid, 16);
	if (len > 1)
		memcpy(blk + OFF_BODY, data + 1, min_u64(len - 1, COW_BLK_BYTES - OFF_BODY));
	crc = kind & 0x80 ? 0 : crc32c(0, blk, sizeof(blk));
	for (int i = 0; i < 4; i++)
		blk[OFF_CRC + i] = (uint8_t)(crc >> 8 * i);
	tries[which]();
	return 0;
}
