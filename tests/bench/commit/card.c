/* SPDX-License-Identifier: MIT */
/* A card whose contents are memory and whose time is the model's. Never dies, loses nothing: cuts are tests/crash's. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "replay.h"

struct bench_card {
	struct card card;
	struct flash_model *model;
	uint8_t *bytes;
};

static struct bench_card *of(struct card *c)
{
	return (struct bench_card *)c;
}

static int bench_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	flash_model_read(of(c)->model, off_bytes, len_bytes);
	memcpy(buf, of(c)->bytes + off_bytes, len_bytes);
	return 0;
}

static int bench_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	for (size_t done = 0, n; done < len_bytes; done += n) {
		n = min_u64(len_bytes - done, REQUEST_BYTES);
		flash_model_write(of(c)->model, off_bytes + done, n, 0);
	}
	memcpy(of(c)->bytes + off_bytes, buf, len_bytes);
	return 0;
}

static int bench_flush(struct card *c)
{
	flash_model_flush(of(c)->model);
	return 0;
}

static int bench_set_writable(struct card *c, bool writable)
{
	(void)c, (void)writable;
	return 0;
}

static int bench_counters(struct card *c, struct card_counters *ret)
{
	(void)c, (void)ret;
	return -ENOTSUP;
}

static void bench_close(struct card *c)
{
	munmap(of(c)->bytes, c->geo.size_bytes);
	free(c);
}

static const struct card_ops bench_ops = {
	.read = bench_read,
	.write = bench_write,
	.flush = bench_flush,
	.set_writable = bench_set_writable,
	.counters = bench_counters,
	.close = bench_close,
};

struct card *bench_card_new(struct flash_model *model, uint64_t size_bytes, int base_fd, uint64_t base_bytes)
{
	const struct flash_profile *p = flash_model_profile(model);
	struct bench_card *b = calloc(1, sizeof(*b));

	if (!b)
		die("no memory");
	b->model = model;
	b->bytes = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (b->bytes == MAP_FAILED || mmap(b->bytes, base_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
					   base_fd, 0) == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	b->card.ops = &bench_ops;
	b->card.geo = (struct card_geometry){ .size_bytes = size_bytes,
					      .erase_block_bytes = (uint32_t)p->unit_bytes,
					      .eb_source = CARD_EB_REPORTED,
					      .path = "model" };
	snprintf(b->card.geo.identity, sizeof(b->card.geo.identity), "%s", p->id);
	return &b->card;
}
