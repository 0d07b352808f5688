/* SPDX-License-Identifier: MIT */
/* The commands that ask a running daemon: status, commit, discard, detach. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "config/conf.h"
#include "attach/keep.h"
#include "cli/place.h"
#include "attach/leftover.h"
#include "wear/health.h"
#include "wear/projection.h"
#include "attach/rootstate.h"
#include "volume/pressure.h"

static const char *which(const struct options *o)
{
	return o->operands ? o->operand[0] : NULL;
}

/* Reports an answer that is {"ok":false}, and returns its exit code. */
static int explain(const struct options *o, struct json_object *answer)
{
	uint64_t exit = json_u64(answer, "exit");

	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		fprintf(stderr, "cowctl: %s\n", json_text(answer, "error"));
	return exit >= EXIT_FAILED && exit <= EXIT_NOT_RUNNING ? (int)exit : EXIT_FAILED;
}

static const char *explain_interrupt(unsigned nth, bool *ret_end)
{
	*ret_end = nth > 1;
	return nth > 1 ? "cowctl: not waiting any longer; the daemon goes on, see cowctl status\n"
		       : "cowctl: the daemon goes on with it, and the card is safe at any moment. "
			 "Ctrl-C again: do not wait for its end\n";
}

/*
 * Opens, sends the request, reports a failure. EXIT_OK with the answer, which the caller puts. c
 * stays open.
 */
static int ask(struct client *c, const struct options *o, const struct request *rq,
	       struct json_object **ret)
{
	struct failure err;
	_cleanup_close_ int lent_fd = -1;
	struct progress progress;
	struct json_object *answer;
	int exit;

	if (client_open(c, which(o), &err) < 0)
		return cmd_failed(o, &err);
	exit = rq->lend ? lend_open(o, c, &lent_fd) : EXIT_OK;
	if (exit != EXIT_OK) {
		client_close(c);
		return exit;
	}
	c->pass_fd = lent_fd;
	if (rq->command == COMMAND_COMMIT || rq->command == COMMAND_DETACH)
		interrupt_begin(explain_interrupt);
	progress_start(&progress);
	answer = client_call(c, rq, progress_event, &progress, &err);
	progress_end(&progress);
	interrupt_end();
	if (!answer) {
		client_close(c);
		return cmd_failed(o, &err);
	}
	if (json_true(answer, "ok")) {
		*ret = answer;
		return EXIT_OK;
	}
	exit = explain(o, answer);
	json_object_put(answer);
	client_close(c);
	return exit;
}

/* From the daemon, or, for users without that permission, from its world-readable file. */
static int get_status(const struct options *o, struct json_object **ret)
{
	const struct request rq = { .command = COMMAND_STATUS };
	struct failure err;
	struct client c;
	int exit;

	if (geteuid() != 0 && (*ret = cmd_composed(client_status_file(which(o), &err))))
		return EXIT_OK;
	exit = ask(&c, o, &rq, ret);
	if (exit == EXIT_OK) {
		client_close(&c);
		*ret = cmd_composed(*ret);
	}
	return exit;
}

/* What is kept, and when it was last committed: not known to the daemon. */
static void add_keep(struct json_object *status)
{
	const char *name = json_raw(status, "name"), *paths;
	struct json_object *keep;
	struct keep_state s;
	struct conf *c;
	char why[512];

	if (conf_load(&c, why, sizeof(why)) < 0)
		return;
	paths = conf_text(c, name, ROOTOPT_KEEP);
	if (*paths) {
		keep = json_object_new_object();
		keep_read(name, &s);
		json_object_object_add(keep, "paths", json_object_new_string(paths));
		json_object_object_add(
			keep, "interval",
			json_object_new_string(conf_text(c, name, ROOTOPT_KEEP_INTERVAL)));
		json_object_object_add(keep, "last_unix_seconds", json_object_new_uint64(s.last_s));
		json_object_object_add(keep, "error", json_object_new_string(s.error));
		json_object_object_add(status, "keep", keep);
	}
	conf_free(c);
}

static int show_status(const struct options *o)
{
	struct json_object *answer;
	int exit = get_status(o, &answer);

	if (exit != EXIT_OK)
		return exit;
	add_keep(answer);
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		print_status(answer);
	if (json_true(answer, "degraded"))
		exit = EXIT_DEGRADED;
	json_object_put(answer);
	return exit;
}

int each_volume(const struct options *o, char names[][RUNDIR_NAME_BYTES], size_t n,
		int (*fn)(const struct options *o, size_t nth, void *ctx), void *ctx)
{
	int exit = EXIT_OK;

	for (size_t i = 0; i < n; i++) {
		struct options one = *o;
		int e;

		one.operand[0] = names[i];
		one.operands = 1;
		e = fn(&one, i, ctx);
		exit = exit == EXIT_OK ? e : exit;
	}
	return exit;
}

static int show_nth(const struct options *o, size_t nth, void *ctx)
{
	(void)ctx;
	if (nth && !has_option(o, OPT_JSON))
		putchar('\n');
	return show_status(o);
}

/*
 * True for a root that should be protected and is not, if it is requested by its name or by none.
 * False: no such root.
 */
static bool root_is_bare(const struct options *o, char *why, size_t why_bytes)
{
	char reason[512];
	enum root_state s = rootstate_read(reason, sizeof(reason));

	if ((s != ROOT_FAILED && s != ROOT_BYPASSED) || (which(o) && strcmp(which(o), ROOT_NAME)))
		return false;
	snprintf(why, why_bytes, "the root is NOT PROTECTED%s: %s",
		 s == ROOT_FAILED ? ", and read-only" : "", reason);
	return true;
}

static int follow(const struct options *o)
{
	if (!status_follow)
		return cmd_fail(
			o, EXIT_USAGE, -EINVAL,
			"status --follow: not in an initramfs, only in the cowctl of the system");
	if (o->operands)
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--follow shows all volumes and takes none");
	return status_follow(o);
}

int cmd_status(const struct options *o)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = which(o) ? 0 : client_volumes(names);
	struct failure err;
	struct client c;
	struct leftover_volume dead[CLIENT_VOLUMES];
	char why[600];
	bool bare = root_is_bare(o, why, sizeof(why));
	int exit;

	if (has_option(o, OPT_ONCE) && !has_option(o, OPT_FOLLOW))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--once needs --follow");
	if (has_option(o, OPT_FOLLOW)) {
		exit = cmd_excludes(o, "--follow", OPT_BRIEF, "--brief", OPT_END);
		return exit == EXIT_OK ? follow(o) : exit;
	}
	if (has_option(o, OPT_BRIEF)) {
		exit = cmd_excludes(o, "--brief", OPT_JSON, "--json", OPT_END);
		return exit == EXIT_OK ? status_brief() : exit;
	}
	if (bare && client_open(&c, which(o), &err) < 0)
		return cmd_fail(o, EXIT_DEGRADED, -EROFS, "%s", why);
	if (bare) {
		client_close(&c);
		fprintf(stderr, "cowctl: %s\n", CLEAN(why));
	}
	if (has_option(o, OPT_JSON))
		leftover_clear(dead);
	else
		leftover_clear_and_tell(false);
	exit = n > 1 ? each_volume(o, names, n, show_nth, NULL) : show_status(o);
	return exit == EXIT_OK && bare ? EXIT_DEGRADED : exit;
}

/* A commit of free blocks alone writes nothing, not even a record. */
static bool wrote_nothing(struct json_object *answer, bool dry_run)
{
	struct json_object *r = json_object_object_get(answer, "report");
	bool clean = !json_u64(r, "dirty_blocks") && !json_u64(r, "hole_blocks");

	return (clean || !dry_run) && !json_u64(r, "written_bytes");
}

/*
 * Adds the share of the card's life that this would use, as an interval: from no copying to every
 * erase block copied.
 */
static void add_life_share(struct client *c, struct json_object *answer,
			   const struct flash_kind *flash)
{
	const struct request rq = { .command = COMMAND_WEAR };
	struct json_object *r = json_object_object_get(answer, "report"),
			   *o = json_object_new_object(), *wear;
	double low, high, capacity, eb_bytes;
	struct failure err;
	char text[32];

	wear = client_call(c, &rq, NULL, NULL, &err);
	capacity = wear ? (double)health_disk_bytes(json_raw(wear, "device")) : 0;
	if (wear && capacity <= 0)
		capacity = (double)json_u64(wear, "device_bytes");
	eb_bytes = (double)json_u64(json_object_object_get(wear, "erase_blocks"),
				    "erase_block_bytes");
	json_object_put(wear);
	if (capacity > 0 && eb_bytes > 0) {
		projection_share(flash, capacity, eb_bytes, (double)json_u64(r, "written_bytes"),
				 (double)(json_u64(r, "erase_blocks") +
					  json_u64(r, "checkpoint_erase_blocks")),
				 &low, &high);
		snprintf(text, sizeof(text), "%.3g", low);
		json_object_object_add(o, "low", json_object_new_double_s(low, text));
		snprintf(text, sizeof(text), "%.3g", high);
		json_object_object_add(o, "high", json_object_new_double_s(high, text));
		snprintf(text, sizeof(text), "%.0f to %.0f", flash->cycles_low, flash->cycles_high);
		json_object_object_add(o, "assumed_erase_cycles", json_object_new_string(text));
		json_object_object_add(answer, "life_share", json_object_get(o));
	}
	json_object_put(o);
}

static void print_life_share(struct json_object *answer)
{
	struct json_object *s = json_object_object_get(answer, "life_share");

	if (s)
		printf("  life: %.1g to %.1g %% of the flash's endurance, if that is %s erase "
		       "cycles\n",
		       json_number(s, "low") * 100, json_number(s, "high") * 100,
		       json_text(s, "assumed_erase_cycles"));
}

void print_commit(const char *name, const struct options *o, struct json_object *answer)
{
	struct json_object *r = json_object_object_get(answer, "report");
	const char *remark = json_text(answer, "remark");
	bool nothing = wrote_nothing(answer, has_option(o, OPT_DRY_RUN));

	if (nothing)
		printf("%s: nothing to commit, generation %s is current\n", name,
		       with_commas(json_u64(answer, "generation")));
	else if (!json_u64(r, "dirty_blocks") && !json_u64(r, "hole_blocks"))
		printf("%s: nothing to commit, generation %s is current; %s %s written home\n",
		       name, with_commas(json_u64(answer, "generation")),
		       FORMAT_SIZE(blk_to_bytes(json_u64(r, "checkpoint_blocks"))),
		       has_option(o, OPT_DRY_RUN) ? "would be" : "were");
	else if (has_option(o, OPT_DRY_RUN))
		printf("%s: a commit now would write, on top of generation %s:\n", name,
		       with_commas(json_u64(answer, "generation")));
	else
		printf("%s: committed %s as generation %s in %.2f s\n", name,
		       FORMAT_SIZE(json_u64(r, "written_bytes")),
		       with_commas(json_u64(answer, "generation")),
		       json_number(r, "duration_seconds"));
	if (!nothing && (has_option(o, OPT_DRY_RUN) || has_option(o, OPT_VERBOSE)))
		print_bill(answer);
	print_remarks(answer);
	print_life_share(answer);
	if (*remark)
		printf("  %s\n", remark);
}

/* Whether a commit fits is known for the whole volume, and without a checkpoint. */
static int take_deadline(const struct options *o, uint64_t *ret_ms)
{
	const char *text = o->value[OPT_DEADLINE];
	uint64_t ns = 0;

	if (!text)
		return EXIT_OK;
	if (parse_duration_ns(text, &ns) < 0 || ns < 1000000 || ns / 1000000 > UINT32_MAX)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--deadline %s is not a time such as 5s",
				text);
	if (has_option(o, OPT_DRY_RUN) || has_option(o, OPT_CHECKPOINT) || has_option(o, OPT_LEND))
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--deadline is for a commit without --checkpoint, --lend and "
				"--dry-run");
	*ret_ms = ns / 1000000;
	return EXIT_OK;
}

int commit_request(const struct options *o, struct request *ret)
{
	*ret = (struct request){
		.command = COMMAND_COMMIT,
		.dry_run = has_option(o, OPT_DRY_RUN),
		.checkpoint = has_option(o, OPT_CHECKPOINT),
		.force = has_option(o, OPT_FORCE),
		.no_wait = has_option(o, OPT_NO_WAIT),
		.timer = has_option(o, OPT_TIMER),
		.lend = has_option(o, OPT_LEND),
	};
	if (has_option(o, OPT_FLASH) && (!ret->dry_run || !projection_class(o->value[OPT_FLASH])))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--flash %s %s", o->value[OPT_FLASH],
				projection_class(o->value[OPT_FLASH])
					? "needs --dry-run"
					: "is not one of slc, mlc, tlc, qlc, unknown");
	if (ret->lend && ret->dry_run)
		return cmd_fail(
			o, EXIT_USAGE, -EINVAL,
			"--lend and --dry-run are mutually exclusive: --dry-run alone prints how "
			"much space to lend");
	return take_deadline(o, &ret->deadline_ms);
}

int commit_answer(const struct options *o, struct json_object **ret, char name[RUNDIR_NAME_BYTES])
{
	struct request rq;
	struct client c;
	int exit = commit_request(o, &rq);

	if (exit == EXIT_OK)
		exit = ask(&c, o, &rq, ret);
	if (exit != EXIT_OK)
		return exit;
	if (rq.dry_run && !wrote_nothing(*ret, true))
		add_life_share(&c, *ret,
			       projection_class(has_option(o, OPT_FLASH) ? o->value[OPT_FLASH]
									 : "unknown"));
	memcpy(name, c.name, RUNDIR_NAME_BYTES);
	client_close(&c);
	return EXIT_OK;
}

int commit_volume(const struct options *o)
{
	char name[RUNDIR_NAME_BYTES];
	struct json_object *answer;
	int exit = commit_answer(o, &answer, name);

	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		print_commit(name, o, answer);
	json_object_put(answer);
	return EXIT_OK;
}

static int commit_paths(const struct options *o, const struct places *p)
{
	static const enum cmd_option not_with[] = { OPT_DRY_RUN, OPT_FORCE, OPT_LEND, OPT_TIMER,
						    OPT_DEADLINE };
	char name[RUNDIR_NAME_BYTES];
	struct json_object *answer;
	struct failure err;

	for (size_t i = 0; i < ARRAY_SIZE(not_with); i++)
		if (has_option(o, not_with[i]))
			return cmd_fail(
				o, EXIT_USAGE, -EINVAL,
				"commit: --dry-run, --force, --lend, --timer and --deadline "
				"are for all changes, not for a PATH");
	if (!commit_files)
		return cmd_fail(
			o, EXIT_USAGE, -EINVAL,
			"commit PATH: not in an initramfs, only in the cowctl of the system");
	if (commit_files(o, p, &answer, name, &err) < 0)
		return cmd_failed(o, &err);
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		print_commit(name, o, answer);
	json_object_put(answer);
	return EXIT_OK;
}

/* One operand may be a volume as well as a file. */
int cmd_commit(const struct options *o)
{
	struct places places = { 0 };
	int exit;

	if ((has_option(o, OPT_ALL) && !commit_all) || (has_option(o, OPT_KEPT) && !commit_kept))
		return cmd_fail(
			o, EXIT_USAGE, -EINVAL,
			"commit --all and --kept: not in an initramfs, only in the cowctl of the system");
	if (has_option(o, OPT_KEPT))
		return commit_kept(o);
	if (has_option(o, OPT_ALL))
		return commit_all(o);
	exit = o->operands ? places_resolve(o, 0, &places) : EXIT_OK;
	if (exit == EXIT_OK)
		exit = places.n ? commit_paths(o, &places) : commit_volume(o);
	places_clear(&places);
	return exit;
}

int cmd_discard(const struct options *o)
{
	const struct request rq = { .command = COMMAND_DISCARD, .undo = has_option(o, OPT_UNDO) };
	struct json_object *answer;
	struct client c;
	int exit = ask(&c, o, &rq, &answer);

	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else if (rq.undo)
		printf("%s: changes will be committed at the next detach or shutdown\n", c.name);
	else
		printf("%s: uncommitted changes will be discarded at the next detach or "
		       "shutdown\n",
		       c.name);
	json_object_put(answer);
	client_close(&c);
	return EXIT_OK;
}

int cmd_trim(const struct options *o)
{
	const struct request rq = { .command = COMMAND_TRIM };
	struct json_object *answer;
	struct client c;
	int exit = ask(&c, o, &rq, &answer);

	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		printf("%s: trimmed %s (%s bytes)\n", c.name,
		       FORMAT_SIZE(json_u64(answer, "trimmed_bytes")),
		       with_commas(json_u64(answer, "trimmed_bytes")));
	json_object_put(answer);
	client_close(&c);
	return EXIT_OK;
}

static int inhibit(const struct options *o, const struct request *rq)
{
	struct json_object *answer;
	struct client c;
	int exit = ask(&c, o, rq, &answer);

	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else if (rq->command == COMMAND_INHIBIT)
		printf("%s: no timer commits for %s s\n", c.name,
		       with_commas(json_u64(answer, "inhibit_seconds")));
	else
		printf("%s: timer commits resumed\n", c.name);
	json_object_put(answer);
	client_close(&c);
	return EXIT_OK;
}

int cmd_inhibit(const struct options *o)
{
	const char *text = o->value[OPT_FOR];
	uint64_t ns = INHIBIT_DEFAULT_S * 1000000000ull;
	struct request rq = { .command = COMMAND_INHIBIT };

	if (text && (parse_duration_ns(text, &ns) < 0 || !ns))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--for %s is not a time such as 10m or 2h",
				text);
	if (ns > INHIBIT_MAX_S * 1000000000ull)
		return cmd_fail(
			o, EXIT_USAGE, -EINVAL,
			"--for %s is too long: timer commits are inhibited for at most 24 hours",
			text);
	rq.seconds = (ns + 999999999u) / 1000000000u;
	return inhibit(o, &rq);
}

int cmd_uninhibit(const struct options *o)
{
	const struct request rq = { .command = COMMAND_UNINHIBIT };

	return inhibit(o, &rq);
}

static void print_detach(const struct client *c, const struct options *o,
			 struct json_object *answer)
{
	const char *remark = json_text(answer, "remark");

	if (*remark)
		printf("%s: detached, %s\n", c->name, remark);
	else if (wrote_nothing(answer, false))
		printf("%s: detached, nothing was written\n", c->name);
	else
		printf("%s: detached, everything is on the card as generation %s\n", c->name,
		       with_commas(json_u64(answer, "generation")));
	if (!wrote_nothing(answer, false) && has_option(o, OPT_VERBOSE))
		print_bill(answer);
	print_remarks(answer);
}

/* Before the armed discard. Whatever is wrong shows in the request that follows. */
static void keep_files(const struct options *o)
{
	struct failure err;
	struct client c;

	if (client_open(&c, which(o), &err) < 0)
		return;
	client_close(&c);
	if (!keep_before_discard(c.name))
		fprintf(stderr, "cowctl: %s: not all kept paths were committed\n", c.name);
}

int cmd_detach(const struct options *o)
{
	const struct request rq = {
		.command = COMMAND_DETACH,
		.commit = has_option(o, OPT_COMMIT),
		.discard = has_option(o, OPT_DISCARD),
	};
	struct json_object *answer;
	struct client c;
	int exit;

	if (rq.commit && rq.discard)
		return cmd_fail(o, EXIT_USAGE, -EINVAL,
				"--commit and --discard are mutually exclusive");
	if (!rq.commit && !rq.discard)
		keep_files(o);
	exit = ask(&c, o, &rq, &answer);
	if (exit != EXIT_OK)
		return exit;
	client_wait_gone(&c);
	if (has_option(o, OPT_JSON))
		json_print(answer);
	else
		print_detach(&c, o, answer);
	json_object_put(answer);
	client_close(&c);
	return EXIT_OK;
}
