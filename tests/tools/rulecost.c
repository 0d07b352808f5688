/* SPDX-License-Identifier: MIT */
/*
 * The same work each time, for callgrind to count: rulecost write|read|commit N
 *
 * N random 4 KiB writes into a view, N reads of what was written, or N blocks of payload through the log in commits
 * of 1 MiB. lab/bench/rules.sh runs it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "export/view.h"
#include "log/log.h"
#include "ram/store.h"
#include "sim/sim.h"

#define REGION_BYTES (16 * MIB)
#define REGION_BLKS (REGION_BYTES / COW_BLK_BYTES)
#define COMMIT_BLKS 256u

/* valgrind knows no fsopen: a file in memory is the store (Makefile) */
int __wrap_ram_store_open(struct ram_store **ret, uint64_t limit_bytes);
int __wrap_ram_store_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes);
int __wrap_ram_store_map_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes);
uint64_t __wrap_ram_store_new_id(struct ram_store *s);
void __wrap_ram_store_remove(const struct ram_store *s, uint64_t id);

int __wrap_ram_store_open(struct ram_store **ret, uint64_t limit_bytes)
{
	*ret = NULL;
	return 0;
}

int __wrap_ram_store_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes)
{
	int fd = memfd_create("store", MFD_CLOEXEC);

	return fd < 0 || ftruncate(fd, (off_t)size_bytes) < 0 ? -errno : fd;
}

int __wrap_ram_store_map_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes)
{
	return __wrap_ram_store_file(s, id, size_bytes);
}

uint64_t __wrap_ram_store_new_id(struct ram_store *s)
{
	return 1;
}

void __wrap_ram_store_remove(const struct ram_store *s, uint64_t id)
{
}

static void must(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "rulecost: %s: %s\n", what, strerror(-r));
	exit(1);
}

static struct card *new_card(uint64_t size_bytes)
{
	const struct sim_params params = { .size_bytes = size_bytes,
					   .erase_block_bytes = 64 * KIB };
	struct card *c;

	must(sim_new(&c, &params), "card");
	return c;
}

static void view(bool write, unsigned long n)
{
	struct log_index *ix = log_index_empty();
	struct card *card = new_card(REGION_BYTES);
	void *buf = io_alloc(COW_BLK_BYTES);
	uint64_t state = 1;
	struct ram_store *store;
	struct view *v;

	must(ix && buf ? 0 : -ENOMEM, "memory");
	must(ram_store_open(&store, 4 * REGION_BYTES), "store");
	must(view_new(&v, store, card, REGION_BLKS, ix), "view");
	memset(buf, 1, COW_BLK_BYTES);
	for (uint64_t blk = 0; blk < REGION_BLKS; blk++)
		must(view_write(v, blk_to_bytes(blk), buf, COW_BLK_BYTES), "write");
	for (unsigned long i = 0; i < n; i++) {
		uint64_t off;

		state = state * 6364136223846793005u + 1442695040888963407u;
		off = blk_to_bytes((state >> 33) % REGION_BLKS);
		must(write ? view_write(v, off, buf, COW_BLK_BYTES)
			   : view_read(v, off, buf, COW_BLK_BYTES),
		     "request");
	}
	view_free(v);
	ram_store_close(store);
	card_close(card);
	log_index_unref(ix);
	free(buf);
}

static void commit(unsigned long n)
{
	struct card *card = new_card(REGION_BYTES + 32 * MIB);
	void *buf = io_alloc(COMMIT_BLKS * COW_BLK_BYTES);
	struct log_open_report rep;
	struct log_super super;
	struct log_index *ix;
	uint64_t missing;
	struct log *log;

	must(buf ? 0 : -ENOMEM, "memory");
	memset(buf, 1, COMMIT_BLKS * COW_BLK_BYTES);
	must(super_plan(card, card, REGION_BYTES, 24 * MIB, &super, &missing), "plan");
	must(card_set_writable(card, true), "card");
	must(super_write(card, &super), "super");
	must(log_open(&log, card, card, &super, 0, NULL, &rep), "open");
	must(log_prepare(log), "prepare");
	for (unsigned long i = 0; i < n; i += COMMIT_BLKS) {
		if (log_room_blks(log) < 2 * COMMIT_BLKS) {
			must(log_checkpoint(log, NULL, NULL, NULL, &ix), "checkpoint");
			log_index_unref(ix);
			must(log_put_tail(log, RECORD_TAIL, 0, CAUSE_MANUAL), "tail");
		}
		must(log_begin(log), "begin");
		must(log_add_logged(log, i % REGION_BLKS, COMMIT_BLKS, buf), "add");
		must(log_end(log, CAUSE_MANUAL, 0, &ix), "end");
		log_index_unref(ix);
	}
	log_close(log);
	card_close(card);
	free(buf);
}

int main(int argc, char **argv)
{
	unsigned long n = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;

	if (n && !strcmp(argv[1], "commit")) {
		commit(n);
	} else if (n && (!strcmp(argv[1], "write") || !strcmp(argv[1], "read"))) {
		view(argv[1][0] == 'w', n);
	} else {
		fprintf(stderr, "usage: rulecost write|read|commit N\n");
		return 2;
	}
	return 0;
}
