/* SPDX-License-Identifier: MIT */
/*
 * A card in an image file, without a daemon, in a world that stands still (golden/still.h): the same
 * steps give the same bytes on every machine.
 *
 *	offlinecard format CARD MIB		an empty log of MIB behind the file system
 *	offlinecard commit CARD CHANGED...	each CHANGED is an image of the volume, and becomes a
 *						generation. Its holes are as before. All goes to the log
 *	offlinecard recover CARD
 *
 * Commits are made in the year 2106, behind the end of 32 bits without a sign.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "card/blockdev.h"
#include "commit/commit.h"
#include "golden/still.h"
#include "offline/offline.h"

#define TIME_S 4294967000 /* 2^32 is five commits later */

static struct failure fail;

struct source {
	struct offline f;
	struct log_index *index; /* of the newest generation */
	int fd;			 /* CHANGED */
	uint64_t volume_blks;
};

static void die(const char *what, int r)
{
	fprintf(stderr, "offlinecard: %s: %s\n", what, r == fail.error ? fail.why : strerror(-r));
	exit(1);
}

static int read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct source *s = ctx;

	return log_index_read_volume(s->index, s->f.base, blk, blks, buf);
}

static int read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	struct source *s = ctx;

	return io_pread_full(s->fd, buf, blk_to_bytes(blks), blk_to_bytes(blk));
}

/* Whole blocks around the next data of the file: parts of a block are small holes of its. */
static bool next(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
		 enum blk_state *ret_state)
{
	struct source *s = ctx;
	off_t data, hole;

	if (*blk >= s->volume_blks ||
	    (data = lseek(s->fd, (off_t)blk_to_bytes(*blk), SEEK_DATA)) < 0)
		return false;
	hole = lseek(s->fd, data, SEEK_HOLE);
	*blk = (uint64_t)data / COW_BLK_BYTES;
	if (hole < 0 || *blk >= s->volume_blks)
		return false;
	*ret_blks = min_u64(((uint64_t)hole + COW_BLK_BYTES - 1) / COW_BLK_BYTES, s->volume_blks) -
		    *blk;
	*ret_blks = min_u64(*ret_blks, max_blks);
	*ret_state = BLK_DATA;
	return true;
}

static void publish(void *ctx, struct log_index *ix)
{
	struct source *s = ctx;

	log_index_unref(s->index);
	s->index = ix;
}

static void commit(struct source *s, const char *path)
{
	const struct commit_source src = { .ctx = s,
					   .volume_blks = s->volume_blks,
					   .next = next,
					   .read_sealed = read_sealed,
					   .read_committed = read_committed };
	const struct commit_options opt = { .cause = CAUSE_TIMER };
	struct commit_report rep = { 0 };
	struct log_index *ix = NULL;
	int r;

	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	r = s->fd < 0 ? -errno : commit_run(s->f.log, s->f.base, &src, &opt, publish, s, &rep, &ix);
	if (r < 0)
		die(path, r);
	close(s->fd);
	if (ix)
		publish(s, ix);
	printf("commit: %llu blocks given, %llu logged, %llu as before\n",
	       (unsigned long long)rep.dirty, (unsigned long long)rep.logged,
	       (unsigned long long)rep.skipped_same);
}

static void commits(const char *card, char **path)
{
	struct source s = { 0 };
	int r = offline_open(&s.f, card, NULL, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0, &fail);

	if (r == 0)
		r = offline_open_log(&s.f, &fail);
	if (r < 0)
		die(card, r);
	s.index = log_index_of(s.f.log);
	s.volume_blks = s.f.super.fs_bytes / COW_BLK_BYTES;
	for (; *path; path++)
		commit(&s, *path);
	log_index_unref(s.index);
	offline_close(&s.f);
}

static void format(const char *card, const char *mib)
{
	const struct format_options opt = { .device = card,
					    .log_bytes = strtoull(mib, NULL, 10) * MIB,
					    .erase_block_bytes = 64 * KIB };
	struct format_report rep;
	int r = offline_format(&opt, &rep, &fail);

	if (r < 0)
		die(card, r);
}

static void recover(const char *card)
{
	const struct recover_options opt = { .device = card };
	struct recover_report rep;
	int r = offline_recover(&opt, &rep, &fail);

	if (r < 0)
		die(card, r);
	printf("recover: %llu blocks written home\n", (unsigned long long)rep.home_blks);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	still_time_s = TIME_S;
	if (!strcmp(what, "format") && argc == 4) {
		format(argv[2], argv[3]);
	} else if (!strcmp(what, "commit") && argc > 3) {
		still_random_byte = 0x80; /* no process repeats what another one has drawn */
		commits(argv[2], argv + 3);
	} else if (!strcmp(what, "recover") && argc == 3) {
		still_random_byte = 0xc0;
		recover(argv[2]);
	} else {
		fprintf(stderr,
			"usage: offlinecard format CARD MIB | commit CARD CHANGED... | recover CARD\n");
		return 2;
	}
	return 0;
}
