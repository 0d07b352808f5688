/* SPDX-License-Identifier: MIT */
/*
 * What counting rewrites costs a write: rewritecost DEVICE [ROUNDS]
 *
 * DEVICE is the loop device of an attached volume, of which 64 MiB from 64 MiB on are overwritten.
 * In each round the same writes, all of them rewrites in random order, are made into a view in this
 * process, once without the count and once with it, and to DEVICE (O_DIRECT, one at a time). Told
 * are medians: the difference of the first two, and which part of the third it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "sim/sim.h"
#include "export/view.h"
#include "rnd.h"

#define REGION_BYTES (64 * MIB)
#define ROUND_BYTES (16 * MIB)
#define MAX_ROUNDS 201

static void die(const char *what, int r)
{
	fprintf(stderr, "rewritecost: %s: %s\n", what, strerror(-r));
	exit(1);
}

static int ascending(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), ascending);
	return v[n / 2];
}

/* ns for a write */
static double writes(struct view *v, int fd, size_t len, const void *buf)
{
	uint64_t n = ROUND_BYTES / len / (v ? 1 : 8), start = now_ns();

	for (uint64_t i = 0; i < n; i++) {
		uint64_t off = rnd(REGION_BYTES / len) * len;
		int r = v ? view_write(v, off, buf, len)
			  : io_pwrite_full(fd, buf, len, REGION_BYTES + off);

		if (r < 0)
			die("write", r);
	}
	return (double)(now_ns() - start) / (double)n;
}

static void measure(struct view *v, struct rewrites *w, int fd, size_t len, unsigned rounds)
{
	static double without[MAX_ROUNDS], with[MAX_ROUNDS], more[MAX_ROUNDS], path[MAX_ROUNDS];
	_cleanup_free_ void *buf = io_alloc(len);
	double a, b, d, p;

	if (!buf)
		die("memory", -ENOMEM);
	memset(buf, 1, len);
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned k = 0; k < 2; k++) { /* in turns */
			bool count = (i + k) % 2;

			view_set_rewrites(v, count ? w : NULL);
			(count ? with : without)[i] = writes(v, -1, len, buf);
		}
		more[i] = with[i] - without[i];
		path[i] = writes(NULL, fd, len, buf);
	}
	a = median(without, rounds), b = median(with, rounds), d = median(more, rounds),
	p = median(path, rounds);
	printf("%3zu KiB: into the view %.0f ns without the count, %.0f ns with it (%+.0f ns, %+.2f %%); to the device %.0f ns: %.3f %%\n",
	       len / 1024, a, b, d, 100 * d / a, p, 100 * d / p);
}

int main(int argc, char **argv)
{
	const struct sim_params params = { .size_bytes = REGION_BYTES };
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 41;
	struct log_index *ix = log_index_empty();
	struct ram_store *store;
	struct rewrites *w;
	struct card *card;
	struct view *v;
	void *buf = io_alloc(MIB);
	int fd = argc > 1 ? open(argv[1], O_WRONLY | O_DIRECT | O_CLOEXEC) : -1, r;

	if (fd < 0 || !rounds || rounds > MAX_ROUNDS || !ix || !buf) {
		fprintf(stderr, "usage: rewritecost DEVICE [ROUNDS]\n");
		return 2;
	}
	if ((r = sim_new(&card, &params)) < 0 ||
	    (r = ram_store_open(&store, 2 * REGION_BYTES)) < 0 ||
	    (r = view_new(&v, store, card, REGION_BYTES / COW_BLK_BYTES, ix)) < 0 ||
	    (r = rewrites_new(&w, 256 * KIB)) < 0)
		die("view", r);
	memset(buf, 2, MIB);
	for (uint64_t off = 0; off < REGION_BYTES; off += MIB) {
		r = view_write(v, off, buf, MIB);
		if (r == 0)
			r = io_pwrite_full(fd, buf, MIB, REGION_BYTES + off);
		if (r < 0)
			die("first writes", r);
	}
	printf("%u rounds of %llu MiB, all of it rewrites, in turns; medians; the last figure is the cost\n",
	       rounds, ROUND_BYTES / MIB);
	measure(v, w, fd, 4 * KIB, rounds);
	measure(v, w, fd, 128 * KIB, rounds);
	view_free(v);
	rewrites_free(w);
	ram_store_close(store);
	card_close(card);
	log_index_unref(ix);
	free(buf);
	close(fd);
	return 0;
}
