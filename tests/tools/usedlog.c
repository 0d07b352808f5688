/* SPDX-License-Identifier: MIT */
/*
 * Gives an empty log its first records, which write the heads of all segments: usedlog CARD
 * Afterwards the card looks as after a detach without a commit. For lab/bench/commit.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "card/blockdev.h"
#include "log/ring.h"
#include "offline/offline.h"

int main(int argc, char **argv)
{
	struct failure fail = { 0 };
	struct offline f = { 0 };
	int e = argc == 2 ? offline_open(&f, argv[1], NULL, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0,
					 &fail)
			  : -EINVAL;

	e = e ?: offline_open_log(&f, &fail);
	e = e ?: card_set_writable(f.base, true);
	e = e ?: log_prepare(f.log);
	if (e == 0) {
		f.log->home_done = true;
		e = log_put_tail(f.log, RECORD_TAIL, RECORD_CLEAN, CAUSE_DETACH);
	}
	if (e < 0)
		fprintf(stderr, "usedlog: %s\n", *fail.why ? fail.why : strerror(-e));
	offline_close(&f);
	return e < 0;
}
