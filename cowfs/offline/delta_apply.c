/* SPDX-License-Identifier: MIT */
/*
 * Applies a delta. A boxed child reads the file and the volume, compares, and sends the blocks that the volume lacks;
 * this process writes them. So what unpacks and parses a file from elsewhere can write nothing, and
 * this process believes nothing of what it sends but numbers of blocks inside the volume.
 */
#include <errno.h>
#include <string.h>

#include <zstd.h>

#include "base/boxed.h"
#include "base/io.h"
#include "offline/delta_section.h"

#define PUT_BLKS 3u

struct put {
	uint32_t blk, blks;
	uint8_t data[PUT_BLKS * COW_BLK_BYTES];
};
_Static_assert(sizeof(struct put) <= BOXED_MESSAGE_BYTES, "one message");

struct other {
	uint64_t blk;
};

struct parent {
	struct delta_apply *a;
	uint64_t end_blk;
	int error; /* of writing */
};

/* ---- the child ---- */

struct child {
	const struct delta_apply *a;
	struct boxed *parent;
	struct section s;
	struct section_sums sums;
	uint8_t *table, *packed, *bytes;
	char *there; /* a run of the volume */
	uint64_t at; /* in the file */
	uint64_t end_blk, kept_blks, data_blks;
};

static int read_there(struct child *c, uint64_t blk, uint64_t blks)
{
	return io_pread_full(c->a->disk_fd, c->there, blk_to_bytes(blks), blk_to_bytes(blk));
}

static int other_base(struct child *c, uint64_t blk)
{
	const struct other other = { blk };

	boxed_say(c->parent, &other, sizeof(other));
	return -ESTALE;
}

static int check_kept(struct child *c)
{
	uint8_t sum[DELTA_SUM_BYTES];
	uint64_t first = 0;
	int r = 0;

	c->sums.n = 0;
	for (uint32_t i = 0; i < c->s.runs && r == 0; i++) {
		const struct section_run *run = &c->s.run[i];

		if (!run->kept)
			continue;
		if (!c->sums.n)
			first = run->blk;
		r = read_there(c, run->blk, run->blks);
		if (r == 0)
			section_add_sum(&c->sums, c->there, run->blks);
	}
	if (r < 0)
		return r;
	section_end_sums(&c->sums, sum);
	return memcmp(sum, c->s.kept_sum, sizeof(sum)) ? other_base(c, first) : 0;
}

/* Of a run that was read: has it what the base has there, or what the delta brings already? */
static bool may_replace(struct child *c, const struct section_run *run, const uint8_t *data,
			const uint8_t base_sum[DELTA_SUM_BYTES])
{
	uint8_t sum[DELTA_SUM_BYTES];

	section_sum(c->there, blk_to_bytes(run->blks), sum);
	return !memcmp(sum, base_sum, sizeof(sum)) ||
	       !memcmp(c->there, data, blk_to_bytes(run->blks));
}

static void send_run(struct child *c, uint64_t blk, uint64_t blks, const uint8_t *data)
{
	struct put p;

	for (uint64_t i = 0, n; i < blks; i += n) {
		n = min_u64(blks - i, PUT_BLKS);
		p.blk = (uint32_t)(blk + i);
		p.blks = (uint32_t)n;
		memcpy(p.data, data + blk_to_bytes(i), blk_to_bytes(n));
		boxed_say(c->parent, &p, offsetof(struct put, data) + blk_to_bytes(n));
	}
}

static void send_others(struct child *c, const struct section_run *run, const uint8_t *data)
{
	for (uint64_t i = 0, n; i < run->blks; i += n) {
		for (n = 0; i + n < run->blks && memcmp(c->there + blk_to_bytes(i + n),
							data + blk_to_bytes(i + n), COW_BLK_BYTES);)
			n++;
		send_run(c, run->blk + i, n, data + blk_to_bytes(i));
		n = max_u64(n, 1);
	}
}

static int put_data(struct child *c, const uint8_t *data)
{
	uint32_t replaced = 0;
	int r = 0;

	for (uint32_t i = 0; i < c->s.runs && r == 0; i++) {
		const struct section_run *run = &c->s.run[i];

		if (run->kept)
			continue;
		r = read_there(c, run->blk, run->blks);
		if (r == 0 && run->replaces &&
		    !may_replace(c, run, data, c->s.replaced_sum[replaced++]))
			r = other_base(c, run->blk);
		if (r == 0)
			send_others(c, run, data);
		data += blk_to_bytes(run->blks);
	}
	return r;
}

static int do_section(struct child *c, const struct section_entry *e)
{
	uint8_t sum[DELTA_SUM_BYTES];
	const uint8_t *data;
	int r;

	if (e->packed_bytes > ZSTD_compressBound(SECTION_BYTES) || e->bytes > SECTION_BYTES)
		return -EBADMSG;
	r = io_pread_full(c->a->fd, c->packed, e->packed_bytes, c->at);
	if (r < 0)
		return r;
	c->at += e->packed_bytes;
	section_sum(c->packed, e->packed_bytes, sum);
	if (memcmp(sum, e->sum, sizeof(sum)) ||
	    ZSTD_decompress(c->bytes, e->bytes, c->packed, e->packed_bytes) != e->bytes)
		return -EBADMSG;
	r = section_get(c->bytes, e->bytes, c->a->head->volume_blks, &c->end_blk, &c->s, &data);
	if (r == 0)
		r = check_kept(c);
	if (r == 0)
		r = put_data(c, data);
	if (r < 0)
		return r;
	c->kept_blks += c->s.kept_blks;
	c->data_blks += c->s.data_blks;
	return 0;
}

static int load_table(struct child *c)
{
	const struct delta_head *h = c->a->head;
	size_t bytes = (size_t)h->sections * SECTION_ENTRY_BYTES;
	uint8_t sum[DELTA_SUM_BYTES];
	int r;

	c->table = malloc(bytes + 1);
	c->packed = malloc(ZSTD_compressBound(SECTION_BYTES));
	c->bytes = malloc(SECTION_BYTES);
	c->there = io_alloc(blk_to_bytes(SECTION_RUN_BLKS));
	if (!c->table || !c->packed || !c->bytes || !c->there)
		return -ENOMEM;
	r = io_pread_full(c->a->fd, c->table, bytes, h->file_bytes - bytes);
	section_sum(c->table, bytes, sum);
	if (r == 0 && memcmp(sum, h->table_sum, sizeof(sum)))
		r = -EBADMSG;
	return r;
}

static int work(void *ctx, struct boxed *b)
{
	static struct child c;
	const struct delta_head *h;
	struct boxed_progress p;
	int r;

	c.a = ((const struct parent *)ctx)->a;
	c.parent = b;
	c.at = DELTA_HEAD_BYTES + DELTA_SIGNATURE_BYTES;
	h = c.a->head;
	r = load_table(&c);
	for (uint32_t i = 0; i < h->sections && r == 0; i++) {
		struct section_entry e =
			section_get_entry(c.table + (size_t)i * SECTION_ENTRY_BYTES);

		r = do_section(&c, &e);
		if (r < 0)
			return r;
		p = boxed_progress("import", blk_to_bytes(c.kept_blks + c.data_blks),
				   blk_to_bytes(h->kept_blks + h->data_blks));
		boxed_say(b, &p, sizeof(p));
	}
	if (r == 0 && (c.kept_blks != h->kept_blks || c.data_blks != h->data_blks ||
		       c.at != h->file_bytes - (size_t)h->sections * SECTION_ENTRY_BYTES))
		r = -EBADMSG;
	return r;
}

/* ---- this process ---- */

static int hear_put(struct parent *x, const struct put *p, size_t bytes)
{
	static _Alignas(4096) uint8_t buf[PUT_BLKS * COW_BLK_BYTES];
	size_t data_bytes = bytes - offsetof(struct put, data);

	if (!p->blks || p->blks > PUT_BLKS || data_bytes != blk_to_bytes(p->blks) ||
	    p->blk < x->end_blk || p->blk + (uint64_t)p->blks > x->a->head->volume_blks)
		return -EPROTO;
	x->end_blk = (uint64_t)p->blk + p->blks;
	memcpy(buf, p->data, data_bytes);
	x->error = io_pwrite_full(x->a->disk_fd, buf, data_bytes, blk_to_bytes(p->blk));
	x->a->written_blks += p->blks;
	return x->error ? -EPROTO : 0;
}

static int hear(void *ctx, const void *message, size_t bytes)
{
	struct parent *x = ctx;

	if (bytes == sizeof(struct boxed_progress))
		return boxed_hear_progress(message, x->a->progress, x->a->ctx);
	if (bytes == sizeof(struct other)) {
		x->a->other_blk = ((const struct other *)message)->blk;
		return 0;
	}
	return bytes > offsetof(struct put, data) && bytes <= sizeof(struct put)
		       ? hear_put(x, message, bytes)
		       : -EPROTO;
}

int delta_apply(struct delta_apply *a)
{
	struct parent x = { .a = a };
	const struct boxed_job job = { .work = work,
				       .hear = hear,
				       .ctx = &x,
				       .fd = { a->fd, a->disk_fd },
				       .fds = 2,
				       .more_bytes = a->head->data_blks * sizeof(struct put) };
	int r;

	a->written_blks = a->other_blk = 0;
	r = boxed_run(&job);
	return x.error ? x.error : r;
}
