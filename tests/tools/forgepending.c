/* SPDX-License-Identifier: MIT */
/*
 * For tests: what a user would write into a file of his to have one block of another file
 * overwritten. Makes a pending superblock of the log and a ring with one whole commit, by the
 * log's own code, in a sparse file of the device's size:
 *
 * 	forgepending FILE FS_BYTES SUPER_OFF RING_OFF BLOCK <CONTENT
 *
 * CONTENT is put over BLOCK of the volume. With --state LIVE | VIRGIN | EXTERNAL as first argument,
 * the same superblock of the log with another state.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "log/log.h"

enum { RING_BYTES = LOG_MIN_SEGMENTS * LOG_MIN_SEG_BYTES };

static void must(int e, const char *what)
{
	if (e >= 0)
		return;
	fprintf(stderr, "forgepending: %s: %s\n", what, strerror(-e));
	exit(1);
}

static uint64_t number(const char *text)
{
	uint64_t v;

	must(parse_u64(text, &v), text);
	return v;
}

static void commit(struct card *c, const struct log_super *s, uint64_t blk, const void *content)
{
	struct log_open_report rep;
	struct log_index *ix;
	struct log *log;

	must(log_open(&log, c, c, s, LOG_FRESH, NULL, &rep), "log_open");
	must(log_prepare(log), "log_prepare");
	must(log_begin(log), "log_begin");
	must(log_add_logged(log, blk, 1, content), "log_add_logged");
	must(log_end(log, CAUSE_MANUAL, 0, &ix), "log_end");
	log_index_unref(ix);
	log_close(log);
}

int main(int argc, char **argv)
{
	_cleanup_free_ uint8_t *content = io_alloc(COW_BLK_BYTES);
	const char *state = "PENDING";
	struct log_super s;
	struct card *c;

	if (argc > 2 && !strcmp(argv[1], "--state")) {
		state = argv[2];
		argv += 2;
		argc -= 2;
	}
	if (argc != 6)
		must(-EINVAL, "usage");
	memset(content, 0, COW_BLK_BYTES);
	(void)!fread(content, 1, COW_BLK_BYTES, stdin);
	must(blockdev_open(&c, argv[1], BLOCKDEV_ALLOW_FILE, NULL), argv[1]);
	s = (struct log_super){ .version = LOG_FORMAT_VERSION,
				.incompat = LOG_INCOMPAT_ESCAPED,
				.state = SUPER_PENDING,
				.revision = UINT32_MAX,
				.fs_bytes = number(argv[2]),
				.base_bytes = c->geo.size_bytes,
				.log_bytes = c->geo.size_bytes,
				.copy_off_bytes = { number(argv[2]), number(argv[3]) },
				.ring_off_bytes = number(argv[4]),
				.seg_bytes = LOG_MIN_SEG_BYTES,
				.seg_count = LOG_MIN_SEGMENTS,
				.erase_block_bytes = LOG_MIN_SEG_BYTES,
				.created_s = 1 };
	_Static_assert(RING_BYTES == 384 * KIB, "hostile_card.bats copies so much");
	must(card_set_writable(c, true), "set_writable");
	commit(c, &s, number(argv[5]), content);
	if (strcmp(state, "PENDING")) {
		/* the ring uuid is the one that the commit has drawn */
		uint8_t *blk = io_alloc(COW_BLK_BYTES);

		must(card_read(c, s.copy_off_bytes[1], blk, COW_BLK_BYTES), "read");
		memcpy(s.ring_uuid, blk + 16, 16);
		free(blk);
		s.state = !strcmp(state, "VIRGIN") ? SUPER_VIRGIN : SUPER_LIVE;
		s.external = !strcmp(state, "EXTERNAL");
		if (s.external)
			s.copy_off_bytes[0] = 0;
		must(super_write_copy(c, &s, 1), "super_write_copy");
	}
	card_close(c);
	return 0;
}
