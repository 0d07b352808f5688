/* SPDX-License-Identifier: MIT */
/* cowctl recover: brings home what is in the log and retires it, without a daemon. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "wire/render.h"
#include "commit/shrink.h"
#include "fs/fs_ops.h"

static void on_progress(void *ctx, enum commit_phase phase, uint64_t done_blks, uint64_t total_blks)
{
	progress_show(ctx, phase_name(phase), blk_to_bytes(done_blks), blk_to_bytes(total_blks));
}

static uint64_t written_bytes(const struct offline *f)
{
	return f->base->account.written_bytes +
	       (f->log_card != f->base ? f->log_card->account.written_bytes : 0);
}

/* The newest commit is given up, and some of it may be in place. */
static bool gives_up(const struct options *o, const struct offline *f)
{
	return has_option(o, OPT_ACCEPT_BASE) && f->report.state == LOG_BROKEN;
}

/* What others changed in other places than the log's blocks has stayed, or a part of a commit: does
 * it fit? */
static bool needs_check(const struct options *o, const struct offline *f, uint64_t home_blks)
{
	return f->fs.kind != FS_UNKNOWN &&
	       (gives_up(o, f) || (home_blks && has_option(o, OPT_ACCEPT_LOG)));
}

static int report(const struct options *o, const struct offline *f, uint64_t home_blks,
		  bool nothing)
{
	const char *checker = fs_ops(f->fs.kind)->checker;
	bool check = needs_check(o, f, home_blks);
	int exit = check ? EXIT_DEGRADED : EXIT_OK;
	char text[2048], command[512] = "";
	struct jsonw w;

	if (check && checker)
		snprintf(command, sizeof(command), "%s %s", checker, f->base->geo.path);
	if (has_option(o, OPT_JSON)) {
		jsonw_init(&w, text, sizeof(text));
		answer_ok(&w);
		jsonw_str(&w, "device", f->base->geo.path);
		jsonw_str(&w, "log_state_before", log_state_name(f->report.state));
		jsonw_u64(&w, "generation", f->report.newest.seq);
		jsonw_bool(&w, "nothing_to_do", nothing);
		jsonw_u64(&w, "home_blocks", home_blks);
		jsonw_u64(&w, "written_bytes", written_bytes(f));
		jsonw_str(&w, "check_with", command);
		if (jsonw_finish(&w))
			fputs(text, stdout);
		return exit;
	}
	if (nothing) {
		printf("%s: nothing to do, %s; nothing was written\n", f->base->geo.path,
		       f->report.state == LOG_EMPTY ? "the log is empty" : "everything is at home");
		return exit;
	}
	if (f->report.state == LOG_FELL_BACK)
		printf("%s: a newer commit was not complete (%s): the one before it was taken\n",
		       f->base->geo.path, CLEAN(f->report.why));
	if (gives_up(o, f))
		printf("%s: the log is retired, and what waited in it is dropped\n",
		       f->base->geo.path);
	else
		printf("%s: generation %s is at home and the log is retired\n", f->base->geo.path,
		       with_commas(f->report.newest.seq));
	printf("  %s blocks (%s) went home, %s written in all\n", with_commas(home_blks),
	       FORMAT_SIZE(blk_to_bytes(home_blks)), FORMAT_SIZE(written_bytes(f)));
	if (check)
		printf("  %s: %s%s%s\n",
		       gives_up(o, f) ? "it may be a mixture of generations"
				      : "what was changed without cowfs may not fit",
		       checker ? "check the file system before it is mounted, with"
			       : "no program checks this file system, so compare its files with a backup",
		       checker ? "\n  " : "", CLEAN(command));
	return exit;
}

static int explain_broken(const struct options *o, const struct offline *f)
{
	if (f->report.wants_lent)
		return cmd_fail(
			o, EXIT_FAILED, -ENOMEDIUM,
			"%s: %s%s: nothing was written. Plug it in, and name it with --lend. If it is lost for ever: --lend "
			"none takes the commit before, if no block of the newer one is in place yet; else --accept-base "
			"takes the file system as it is, a mixture of both, for its own checker",
			f->log_card->geo.path, f->report.why,
			f->lent ? " (--lend names something else)" : "");
	return cmd_fail(o, EXIT_FAILED, -EUCLEAN,
			"the log on %s is broken (%s): no complete generation is left in it, so "
			"nothing was written. The "
			"file system is as the card holds it: look at it with its own checker, "
			"then 'cowctl recover "
			"--accept-base' takes it as it is",
			f->log_card->geo.path, f->report.why[0] ? f->report.why : "no record");
}

static int explain_foreign(const struct options *o, const struct offline *f)
{
	return cmd_fail(o, EXIT_FAILED, -ESTALE,
			"%s: %s, and blocks of it wait in the log: nothing was written. Decide: "
			"--accept-base drops them "
			"(the file system is right as it is now), --accept-log writes them over "
			"what was changed",
			f->base->geo.path, f->report.why);
}

static int bring_home(struct offline *f, const struct options *o)
{
	struct progress progress;
	const struct commit_options opt = {
		.cause = CAUSE_RECOVER,
		.progress = on_progress,
		.progress_ctx = &progress,
	};
	uint64_t home_blks = 0;
	int e;

	progress_start(&progress);
	e = commit_checkpoint(f->log, f->base, &opt, NULL, NULL, RECORD_RETIRED, &home_blks);
	progress_end(&progress);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e,
				"%s: %s. The log still holds everything: run it again when the "
				"card is well",
				f->base->geo.path, strerrordesc_np(-e));
	if (log_unlend(f->log) < 0)
		fprintf(stderr,
			"cowctl: the header of %s could not be wiped; it is not needed any more\n",
			CLEAN(o->value[OPT_LEND]));
	return report(o, f, home_blks, false);
}

static int forget_shrink(struct offline *f, const struct options *o)
{
	int e = shrink_forget(f->base, &f->super);

	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s cannot be written: %s", f->base->geo.path,
				strerrordesc_np(-e));
	return report(o, f, 0, false);
}

/* A shrink was cut off after its commit: the rest is done now. */
static int recover_shrink(struct offline *f, const struct options *o)
{
	struct shrink_report rep;
	struct progress progress;
	const struct commit_options opt = {
		.cause = CAUSE_RECOVER,
		.progress = on_progress,
		.progress_ctx = &progress,
	};
	int e, exit;

	if (has_option(o, OPT_ACCEPT_BASE) && f->report.state >= LOG_BROKEN)
		return forget_shrink(f, o);
	if (f->report.state == LOG_BROKEN)
		return explain_broken(o, f);
	if (f->report.state == LOG_FOREIGN)
		return explain_foreign(o, f);
	progress_start(&progress);
	e = shrink_finish(f->base, &f->super, f->log_flags, &opt, &rep);
	progress_end(&progress);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s: %s. Run it again when the card is well",
				f->base->geo.path, rep.why);
	exit = report(o, f, rep.home_blks, false);
	if (!has_option(o, OPT_JSON))
		puts("  the shrink that was cut off is finished: there is an empty log now");
	return exit;
}

static int take_lent(struct offline *f, const struct options *o)
{
	_cleanup_close_ int fd = -1;
	int exit, e;

	if (!has_option(o, OPT_LEND))
		return EXIT_OK;
	if (!strcmp(o->value[OPT_LEND], "none")) {
		f->log_flags |= LOG_NO_LENT;
		return EXIT_OK;
	}
	exit = lend_open(o, NULL, &fd);
	if (exit != EXIT_OK)
		return exit;
	e = blockdev_adopt(&f->lent, fd);
	if (e < 0)
		return cmd_fail(o, EXIT_FAILED, e, "%s: %s", o->value[OPT_LEND],
				strerrordesc_np(-e));
	(void)steal_fd(&fd); /* the card's now */
	return EXIT_OK;
}

static int recover(struct offline *f, const struct options *o)
{
	int exit = offline_open(f, o, BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE, 0);

	if (exit == EXIT_OK && has_option(o, OPT_ACCEPT_BASE) && has_option(o, OPT_ACCEPT_LOG))
		exit = cmd_fail(o, EXIT_USAGE, -EINVAL, "--accept-base or --accept-log, not both");
	f->log_flags = has_option(o, OPT_ACCEPT_LOG) ? LOG_ANY_BASE : 0;
	if (exit == EXIT_OK)
		exit = take_lent(f, o);
	if (exit == EXIT_OK)
		exit = offline_open_log(f, o);
	if (exit != EXIT_OK)
		return exit;
	if (f->super.state == SUPER_PENDING)
		return recover_shrink(f, o);
	/* older generations are in the base already: only the newest is what was asked for */
	if (has_option(o, OPT_ACCEPT_LOG) && f->report.state == LOG_FELL_BACK)
		return cmd_fail(
			o, EXIT_FAILED, -ESTALE,
			"%s: the newest generation cannot be had back (%s): what was changed lies "
			"over blocks of it. Nothing was written; --accept-base is what is left",
			f->base->geo.path, f->report.why);
	if (has_option(o, OPT_ACCEPT_BASE) && f->report.state >= LOG_BROKEN) {
		log_accept_base(f->log); /* the record that retires it drops what waits */
		return bring_home(f, o);
	}
	switch (f->report.state) {
	case LOG_BROKEN:
		return explain_broken(o, f);
	case LOG_FOREIGN:
		return explain_foreign(o, f);
	case LOG_EMPTY:
		return report(o, f, 0, true);
	case LOG_RETIRED:
		if (f->trouble & SUPER_COPIES_BAD)
			return bring_home(f, o); /* nothing, but the copy is mended */
		return report(o, f, 0, true);
	default:
		return bring_home(f, o);
	}
}

int cmd_recover(const struct options *o)
{
	struct offline f = { 0 };
	int exit = recover(&f, o);

	offline_close(&f);
	return exit;
}
