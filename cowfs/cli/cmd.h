/* SPDX-License-Identifier: MIT */
/* What the commands of cowctl share. A command prints its result and returns the exit code. */
#ifndef COWFS_CLI_CMD_H
#define COWFS_CLI_CMD_H

#include <json-c/json.h>

#include "base/numbers.h"
#include "commit/commit.h"
#include "wire/client.h"
#include "wire/failure.h"
#include "wire/json.h"
#include "wire/progress.h"
#include "config/options.h"
#include "wire/proto.h"
#include "config/volopt.h"

enum cmd_option {
	OPT_LOG = VOLOPT_LOG,
	OPT_ERASE_BLOCK = VOLOPT_ERASE_BLOCK,
	OPT_JSON = VOLOPTS,
	OPT_HELP,
	OPT_LOG_SIZE,
	OPT_FORCE,
	OPT_COMMIT,
	OPT_DISCARD,
	OPT_DRY_RUN,
	OPT_CHECKPOINT,
	OPT_NO_WAIT,
	OPT_TIMER,
	OPT_FOR,
	OPT_UNDO,
	OPT_ACCEPT_BASE,
	OPT_ACCEPT_LOG,
	OPT_SHRINK,
	OPT_JOURNAL_SIZE,
	OPT_KEY,
	OPT_DEVICE,
	OPT_CMDLINE,
	OPT_CONF,
	OPT_WITHIN,
	OPT_ONCE,
	OPT_BRIEF,
	OPT_LIST,
	OPT_SWAP_OFF,
	OPT_YES,
	OPT_ROOT,
	OPT_LAG,
	OPT_FLASH,
	OPT_CMD56,
	OPT_OUTPUT,
	OPT_FROM,
	OPT_ROWS,
	OPT_BY,
	OPT_INTERVAL,
	OPT_LEND,
	OPT_END
};
_Static_assert(OPT_END <= OPTIONS_MAX, "options_parse has room for their values");

int cmd_format(const struct options *o);
int cmd_attach(const struct options *o);
int cmd_detach(const struct options *o);
int cmd_status(const struct options *o);
int cmd_commit(const struct options *o);
int cmd_discard(const struct options *o);
int cmd_hold(const struct options *o);
int cmd_release(const struct options *o);
int cmd_check(const struct options *o);
int cmd_recover(const struct options *o);
int cmd_grow(const struct options *o);
int cmd_config(const struct options *o);
int cmd_boot(const struct options *o);
int cmd_shutdown(const struct options *o);
int cmd_events(const struct options *o);
int cmd_top(const struct options *o);
int cmd_wear(const struct options *o);
int cmd_report(const struct options *o);
int cmd_metrics(const struct options *o);
int cmd_setup(const struct options *o);
int cmd_enable(const struct options *o);
int cmd_disable(const struct options *o);

static inline bool has_option(const struct options *o, enum cmd_option id)
{
	return o->value[id] != NULL;
}

/* ---- cmd.c ---- */

/* One sentence on stderr, or as JSON on stdout with --json. Returns exit. error: -errno, for the
 * JSON. */
int cmd_fail(const struct options *o, enum exit_code exit, int error, const char *fmt, ...)
	PRINTF(4, 5);
/* The same of an operation; what a program said goes with it, without --json. */
int cmd_failed(const struct options *o, const struct failure *f);
/* That output alone, indented. */
void cmd_show_said(const struct failure *f);
/* A commit_progress; ctx is a struct progress. */
void cmd_progress(void *ctx, enum commit_phase phase, uint64_t done_blks, uint64_t total_blks);
/* Who reads the file meanwhile sees the old or the new text; it is readable for all. EXIT_OK, or
 * what cmd_fail returned. */
int cmd_write_file(const struct options *o, const char *path, const char *text,
		   size_t len) MUST_CHECK;

/* ---- cmd_brief.c: status --brief. The exit code. ---- */

int status_brief(void);

/* ---- print.c: answers of a daemon for people ---- */

void print_status(struct json_object *status);
/* the bill of a commit: {"report":{},"quiesce":{}} */
void print_bill(struct json_object *result);

/* ---- cmd_wear.c ---- */

/* What a card has seen in its life with cowfs, as documented in WEAR.md: of a running volume (which
 * may be NULL), or of a device that no daemon has, *ret for the caller to put. EXIT_OK, or what
 * cmd_fail returned. */
int wear_gather(const struct options *o, const char *which, struct json_object **ret) MUST_CHECK;

/* ---- wear_print.c ---- */

void print_wear(struct json_object *wear);
/* ---- lend_target.c ---- */

/* Opens what --lend names, a device that nothing uses or a file, for writing. c: a connection to
 * the volume that it is for, whose log it must be good for; NULL: no daemon, and it is looked at no
 * further. EXIT_OK, or what cmd_fail returned. */
int lend_open(const struct options *o, struct client *c, int *ret_fd) MUST_CHECK;

#endif
