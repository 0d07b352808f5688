/* SPDX-License-Identifier: MIT */
/* The bytes of a delta. */
#include "offline/delta_section.h"

#include <errno.h>
#include <string.h>

#include <ext2fs/ext2fs.h>

#include "base/bytes.h"

/* 2: has a base */
#define VERSION(head) ((head)->whole ? 1u : 2u)
#define KEPT (1u << 31)
#define REPLACES (1u << 30)

static const char magic[16] = "cowfs delta\n";

#define HEAD_SUM_AT (DELTA_HEAD_BYTES - DELTA_SUM_BYTES)

/* Of libext2fs, which all programs have. */
void section_sum(const void *data, size_t bytes, uint8_t ret[DELTA_SUM_BYTES])
{
	uint8_t sum[EXT2FS_SHA512_LENGTH];

	ext2fs_sha512(data, bytes, sum);
	memcpy(ret, sum, DELTA_SUM_BYTES);
}

void delta_put_head(uint8_t buf[DELTA_HEAD_BYTES], const struct delta_head *h)
{
	struct bytes_writer w = { buf, DELTA_HEAD_BYTES, 0, false };

	memset(buf, 0, DELTA_HEAD_BYTES);
	put_bytes(&w, magic, sizeof(magic));
	put_u32(&w, VERSION(h));
	put_u32(&w, h->whole);
	put_bytes(&w, h->fs_type, sizeof(h->fs_type));
	put_bytes(&w, h->fs_uuid, sizeof(h->fs_uuid));
	put_u64(&w, h->volume_blks);
	put_u64(&w, h->base_generation);
	put_u64(&w, h->base_s);
	put_u64(&w, h->generation);
	put_u64(&w, h->time_s);
	put_u64(&w, h->kept_blks);
	put_u64(&w, h->data_blks);
	put_u64(&w, h->file_bytes);
	put_u32(&w, h->sections);
	put_u32(&w, 0);
	put_bytes(&w, h->table_sum, sizeof(h->table_sum));
	section_sum(buf, HEAD_SUM_AT, buf + HEAD_SUM_AT);
}

static bool head_sane(const struct delta_head *h)
{
	uint64_t sections_bytes = (uint64_t)h->sections * SECTION_ENTRY_BYTES,
		 least = DELTA_HEAD_BYTES + DELTA_SIGNATURE_BYTES + sections_bytes;

	return !h->fs_type[sizeof(h->fs_type) - 1] && h->volume_blks && h->time_s <= UINT32_MAX &&
	       h->base_s <= UINT32_MAX && h->volume_blks <= UINT32_MAX && h->file_bytes >= least &&
	       h->file_bytes <= INT64_MAX && h->kept_blks <= h->volume_blks &&
	       h->data_blks <= h->volume_blks - h->kept_blks &&
	       h->sections <= (h->kept_blks + h->data_blks) / SECTION_LEAST_BLKS + 1;
}

int delta_get_head(const uint8_t buf[DELTA_HEAD_BYTES], struct delta_head *ret)
{
	struct bytes_reader r = { buf, HEAD_SUM_AT, 0, false };
	uint8_t sum[DELTA_SUM_BYTES];
	char found[sizeof(magic)];
	struct delta_head h = { 0 };
	uint32_t version;

	get_bytes(&r, found, sizeof(found));
	if (memcmp(found, magic, sizeof(magic)))
		return -ENOMSG;
	section_sum(buf, HEAD_SUM_AT, sum);
	if (memcmp(sum, buf + HEAD_SUM_AT, sizeof(sum)))
		return -EBADMSG;
	version = get_u32(&r);
	h.whole = get_u32(&r);
	if (version != VERSION(&h))
		return version == 1 ? -EPROTO : -EPROTONOSUPPORT;
	get_bytes(&r, h.fs_type, sizeof(h.fs_type));
	get_bytes(&r, h.fs_uuid, sizeof(h.fs_uuid));
	h.volume_blks = get_u64(&r);
	h.base_generation = get_u64(&r);
	h.base_s = get_u64(&r);
	h.generation = get_u64(&r);
	h.time_s = get_u64(&r);
	h.kept_blks = get_u64(&r);
	h.data_blks = get_u64(&r);
	h.file_bytes = get_u64(&r);
	h.sections = get_u32(&r);
	get_u32(&r);
	get_bytes(&r, h.table_sum, sizeof(h.table_sum));
	if (!head_sane(&h))
		return -EBADMSG;
	*ret = h;
	return 0;
}

/* ---- sections ---- */

void section_add_sum(struct section_sums *s, const void *data, uint64_t blks)
{
	section_sum(data, blk_to_bytes(blks), s->sum[s->n++]);
}

void section_end_sums(struct section_sums *s, uint8_t ret[DELTA_SUM_BYTES])
{
	section_sum(s->sum[0], s->n * DELTA_SUM_BYTES, ret);
}

size_t section_put(uint8_t *buf, const struct section *s)
{
	struct bytes_writer w = { buf, SECTION_META_BYTES, 0, false };
	uint64_t at = s->runs ? s->run[0].blk : 0;

	put_u64(&w, at);
	put_u32(&w, s->runs);
	put_u32(&w, 0);
	put_bytes(&w, s->kept_sum, sizeof(s->kept_sum));
	for (uint32_t i = 0; i < s->runs; i++) {
		const struct section_run *run = &s->run[i];

		put_u32(&w, (uint32_t)(run->blk - at));
		put_u32(&w, run->blks | (run->kept ? KEPT : 0) | (run->replaces ? REPLACES : 0));
		at = run->blk + run->blks;
	}
	put_bytes(&w, s->replaced_sum, (size_t)s->replaced * DELTA_SUM_BYTES);
	return w.pos;
}

int section_get(const uint8_t *buf, size_t bytes, uint64_t volume_blks, uint64_t *at,
		struct section *ret, const uint8_t **ret_data)
{
	struct bytes_reader r = { buf, bytes, 0, false };
	uint64_t next = get_u64(&r), data = 0, kept = 0;

	ret->replaced = 0;
	ret->runs = get_u32(&r);
	get_u32(&r);
	get_bytes(&r, ret->kept_sum, sizeof(ret->kept_sum));
	if (r.bad || next < *at || next > volume_blks || !ret->runs || ret->runs > SECTION_RUNS)
		return -EBADMSG;
	for (uint32_t i = 0; i < ret->runs; i++) {
		struct section_run *run = &ret->run[i];
		uint32_t gap = get_u32(&r), n = get_u32(&r);

		*run = (struct section_run){ next + gap, n & ~(KEPT | REPLACES), n & KEPT,
					     n & REPLACES };
		next = run->blk + run->blks;
		if (r.bad || !run->blks || run->blks > SECTION_RUN_BLKS || next > volume_blks ||
		    (run->kept && run->replaces))
			return -EBADMSG;
		ret->replaced += run->replaces;
		*(run->kept ? &kept : &data) += run->blks;
	}
	if (kept > SECTION_KEPT_BLKS || data > SECTION_DATA_BLKS)
		return -EBADMSG;
	get_bytes(&r, ret->replaced_sum, (size_t)ret->replaced * DELTA_SUM_BYTES);
	if (r.bad || r.size_bytes - r.pos != blk_to_bytes(data))
		return -EBADMSG;
	ret->kept_blks = (uint32_t)kept;
	ret->data_blks = (uint32_t)data;
	*ret_data = buf + r.pos;
	*at = next;
	return 0;
}

void section_put_entry(uint8_t *buf, const struct section_entry *e)
{
	struct bytes_writer w = { buf, SECTION_ENTRY_BYTES, 0, false };

	put_u32(&w, e->packed_bytes);
	put_u32(&w, e->bytes);
	put_bytes(&w, e->sum, sizeof(e->sum));
}

struct section_entry section_get_entry(const uint8_t *buf)
{
	struct bytes_reader r = { buf, SECTION_ENTRY_BYTES, 0, false };
	struct section_entry e = { .packed_bytes = get_u32(&r), .bytes = get_u32(&r) };

	get_bytes(&r, e.sum, sizeof(e.sum));
	return e;
}
