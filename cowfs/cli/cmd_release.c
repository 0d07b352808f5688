/* SPDX-License-Identifier: MIT */
/* cowctl release: checkpoints the log and retires it, without a daemon. */
#include "cli/cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "offline/offline.h"
#include "wire/render.h"

static void print_json(const char *device, const struct recover_report *rep, const char *command)
{
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "device", device);
	jsonw_str(w, "log_state_before", log_state_name(rep->log.state));
	jsonw_u64(w, "generation", rep->log.newest.ledger.commits);
	jsonw_u64(w, "record", rep->log.newest.seq);
	jsonw_bool(w, "nothing_to_do", rep->nothing_to_do);
	jsonw_u64(w, "home_blocks", rep->home_blks);
	jsonw_bool(w, "lost", rep->lost);
	jsonw_u64(w, "written_bytes", rep->written_bytes);
	jsonw_str(w, "check_with", command);
	json_end(w);
}

static void print_text(const char *device, const struct recover_report *rep, const char *command)
{
	if (rep->nothing_to_do) {
		printf("%s: nothing to do, %s; nothing was written\n", device,
		       rep->log.state == LOG_EMPTY ? "the log is empty"
						   : "everything is checkpointed");
		return;
	}
	if (rep->log.state == LOG_FELL_BACK)
		printf("%s: the newest commit was incomplete (%s): the previous generation was "
		       "taken\n",
		       device, CLEAN(rep->log.why));
	if (rep->dropped)
		printf("%s: the log is retired, and the blocks in it are discarded\n", device);
	else
		printf("%s: generation %s is checkpointed and the log is retired\n", device,
		       with_commas(rep->log.newest.ledger.commits));
	printf("  %s block%s (%s) checkpointed, %s written in total\n", with_commas(rep->home_blks),
	       plural(rep->home_blks), FORMAT_SIZE(blk_to_bytes(rep->home_blks)),
	       FORMAT_SIZE(rep->written_bytes));
	if (rep->lost)
		puts("  blocks of it cannot be read, and are zeroes now");
	if (rep->unsure)
		printf("  %s: %s%s%s\n",
		       rep->dropped ? "it may be a mixture of generations"
		       : rep->lost  ? "they may be metadata"
				    : "the foreign changes may not fit",
		       *command
			       ? "check the file system before it is mounted, with"
			       : "no program checks this file system, so compare its files with a backup",
		       *command ? "\n  " : "", CLEAN(command));
	if (rep->shrink_finished)
		puts("  the interrupted shrink is finished: the log is empty now");
}

static int report(const struct options *o, const struct recover_report *rep)
{
	const char *device = o->operand[0];
	char command[PATH_MAX + 32] = "";

	if (rep->check_with)
		snprintf(command, sizeof(command), "%s %s", rep->check_with, device);
	if (has_option(o, OPT_JSON))
		print_json(device, rep, command);
	else
		print_text(device, rep, command);
	return rep->unsure ? EXIT_DEGRADED : EXIT_OK;
}

int cmd_release(const struct options *o)
{
	struct progress progress;
	struct recover_options opt = {
		.device = o->operand[0],
		.log_device = o->value[OPT_LOG],
		.progress = cmd_progress,
		.progress_ctx = &progress,
	};
	const char *accept = o->value[OPT_ACCEPT];
	struct recover_report rep;
	struct failure fail;
	int choice = accept ? volopt_choice("base|log|lost", accept) : -1;
	int e;

	if (accept && choice < 0)
		return cmd_usage(o, "--accept is base, log or lost, not %s", accept);
	if (accept)
		opt.accept = RECOVER_ACCEPT_BASE + (unsigned)choice;
	progress_start(&progress);
	e = offline_recover(&opt, &rep, &fail);
	progress_end(&progress);
	return e < 0 ? cmd_failed(o, &fail) : report(o, &rep);
}
