/* SPDX-License-Identifier: MIT */
/*
 * The last commit before power-off: for units, hooks and rcK. The output is plain lines, because
 * it is not interactive. Every volume gets one line that reports its result, whatever happens.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "attach/keep.h"
#include "base/clean.h"
#include "base/io.h"
#include "base/parse.h"
#include "cli/cmd.h"

#define LINE_EVERY_NS 3000000000ull
/* For a daemon from before an upgrade, which does not tell the speed of its card. */
#define UNTOLD_BYTES_PER_S (2 * MIB)
#define ENOUGH_NS (60 * 1000000000ull)
#define AWAY_WAIT_NS (60 * 1000000000ull)

struct times {
	uint64_t within_ns;    /* 0: no limit */
	uint64_t if_longer_ns; /* 0: commit in any case */
	uint64_t away_ns;      /* for a card that is away */
};

struct last_commit {
	const char *name;
	uint64_t next_line_ns;
};

static void say(const char *name, const char *text)
{
	fprintf(stderr, "cowfs: %s: %s\n", CLEAN(name), CLEAN(text));
}

static void on_event(void *ctx, struct json_object *event)
{
	struct last_commit *l = ctx;
	uint64_t total = json_u64(event, "total_blocks");

	if (now_ns() < l->next_line_ns || !total)
		return;
	l->next_line_ns = now_ns() + LINE_EVERY_NS;
	fprintf(stderr, "cowfs: %s: %s, %s of %s\n", l->name, json_text(event, "phase"),
		FORMAT_SIZE(blk_to_bytes(json_u64(event, "done_blocks"))),
		FORMAT_SIZE(blk_to_bytes(total)));
}

/* ---- time ---- */

static void too_late(int sig)
{
	static const char text[] = "cowfs: NOT everything is on the card: out of time. The card "
				   "holds the last complete commit.\n";

	(void)sig;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(EXIT_NOT_RUNNING);
	_exit(EXIT_FAILED);
}

static void set_alarm(uint64_t ns)
{
	struct itimerval t = { .it_value = { .tv_sec = (time_t)(ns / 1000000000u),
					     .tv_usec = (suseconds_t)(ns % 1000000000u / 1000) } };

	signal(SIGALRM, too_late);
	setitimer(ITIMER_REAL, &t, NULL);
}

/*
 * How long a commit and its checkpoint would take, which read and write once more what is in the log and in RAM. cache: what
 * the page cache adds when the file system is frozen or unmounted.
 */
static double estimate_seconds(struct json_object *status, uint64_t cache_bytes)
{
	struct json_object *p = json_object_object_get(status, "pressure");
	uint64_t blks = 2 * json_u64(status, "log_live_blocks") + json_u64(status, "dirty_blocks"),
		 speed = json_u64(p, "commit_bytes_per_second");

	return json_number(p, "commit_seconds") +
	       (double)(blk_to_bytes(blks) + 2 * cache_bytes) /
		       (double)(speed ? speed : UNTOLD_BYTES_PER_S);
}

/* Of all file systems: which part is this volume's is not known. */
static uint64_t page_cache_bytes(void)
{
	uint64_t dirty, writeback;
	char text[4096];

	if (io_read_text(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0 ||
	    !parse_meminfo(text, "Dirty:", &dirty) ||
	    !parse_meminfo(text, "Writeback:", &writeback))
		return UINT64_MAX / 4;
	return dirty + writeback;
}

static bool undo_pending(struct json_object *status)
{
	return json_true(json_object_object_get(status, "held"), "undo_pending");
}

/* With others: a volume whose card has failed must not hold them up. */
static bool takes_part(struct json_object *status)
{
	char away[8];

	return !away_text(status, away, sizeof(away)) && !*json_text(status, "alarm") &&
	       !json_true(status, "halted") && !json_true(status, "discard_armed") &&
	       !undo_pending(status);
}

/*
 * The next call has a time limit, and nothing can be done about a failure then. So nothing is left to it if anything is wrong,
 * or if a job is running, because dirty_blocks lacks what that job writes. Kept paths are committed in front of a discard
 * while the file system is still writable.
 */
static bool can_wait(struct json_object *status, uint64_t if_longer_ns)
{
	return takes_part(status) && !json_true(status, "degraded") &&
	       !json_object_object_get(status, "progress") &&
	       estimate_seconds(status, page_cache_bytes()) < (double)if_longer_ns / 1e9;
}

/* ---- all volumes ---- */

/*
 * Of one moment: whenever the power goes from now on, all volumes have this state or a later one. What follows for each
 * of them is the checkpoint, and what has changed since. Returns which of the names did not answer in time, a bit each.
 */
static uint32_t commit_together(char names[][RUNDIR_NAME_BYTES], size_t n, const struct times *t)
{
	const struct request ask = { .command = COMMAND_STATUS };
	char members[CLIENT_VOLUMES][RUNDIR_NAME_BYTES], why[512] = "";
	bool waits = t->if_longer_ns;
	double longest_s = 0, s;
	uint32_t silent = 0, named = 0;
	uint64_t limit_ns;
	size_t m = 0, nth[CLIENT_VOLUMES];

	for (size_t i = 0; i < n; i++) {
		struct json_object *status = NULL;
		struct failure err;
		struct client c;

		if (client_open(&c, names[i], &err) == 0) {
			status = client_call(&c, &ask, NULL, NULL, &err);
			client_close(&c);
		}
		if (status && takes_part(status)) {
			nth[m] = i;
			snprintf(members[m++], RUNDIR_NAME_BYTES, "%s", names[i]);
			s = estimate_seconds(status, 0);
			longest_s = s > longest_s ? s : longest_s;
			waits &= can_wait(status, t->if_longer_ns);
		}
		json_object_put(status);
	}
	if (m < 2 || waits)
		return 0;
	limit_ns = t->within_ns ? t->within_ns / 2 : (uint64_t)(2e9 * longest_s) + ENOUGH_NS;
	if (longest_s > (double)limit_ns / 1e9) {
		snprintf(why, sizeof(why), ": it would take too long");
	} else if (commit_all_last(members, m, limit_ns, &silent, why + 2, sizeof(why) - 2)) {
		fprintf(stderr, "cowfs: %zu volumes committed together\n", m);
		return 0;
	} else if (why[2]) {
		memcpy(why, ": ", 2);
	}
	fprintf(stderr, "cowfs: NOT committed together, but one after another%s\n", CLEAN(why));
	for (size_t i = 0; i < m; i++)
		named |= (silent >> i & 1) << nth[i];
	return named;
}

/* ---- one volume ---- */

/* Tells that a volume did not answer, on stdout as well with --json. */
static int tell_failure(const struct options *o, const char *name, const struct failure *err)
{
	say(name, err->why);
	if (has_option(o, OPT_JSON))
		cmd_failed(o, err);
	return err->exit;
}

/* NULL with *err */
static struct json_object *call(struct client *c, const struct request *rq, struct failure *err)
{
	struct last_commit l = { .name = c->name, .next_line_ns = now_ns() + LINE_EVERY_NS };

	return client_call(c, rq, on_event, &l, err);
}

static int tell(const char *name, struct json_object *answer)
{
	struct json_object *report = json_object_object_get(answer, "report");
	const char *remark = json_text(answer, "remark");

	if (!json_true(answer, "ok")) {
		fprintf(stderr, "cowfs: %s: NOT COMMITTED: %s. The card holds generation %s.\n",
			name, json_text(answer, "error"),
			with_commas(json_u64(answer, "generation")));
		return json_u64(answer, "exit") == EXIT_AWAY ? EXIT_AWAY : EXIT_FAILED;
	}
	if (*remark)
		say(name, remark);
	else
		fprintf(stderr,
			"cowfs: %s: everything is on the card, generation %s, %s written in %.1f "
			"s\n",
			name, with_commas(json_u64(answer, "generation")),
			FORMAT_SIZE(json_u64(report, "written_bytes")),
			json_number(report, "duration_seconds"));
	return EXIT_OK;
}

/* There was no time for a checkpoint, or a generation is held: report what remains in the log. */
static void tell_waiting(struct client *c)
{
	const struct request ask = { .command = COMMAND_STATUS };
	struct failure err;
	struct json_object *status = call(c, &ask, &err);
	bool held = json_object_object_get(status, "held");

	if (json_u64(status, "log_live_blocks"))
		say(c->name,
		    held ? "a generation is held, so part of it exists in the log only: run 'cowctl accept' "
			   "or 'cowctl undo' before you mount the card without cowfs"
			 : "part of it exists in the log only: run 'cowctl recover' before you mount "
			   "the card without cowfs");
	json_object_put(status);
}

static int tell_can_wait(const struct options *o, const char *name)
{
	struct json_object *answer = json_object_new_object();
	const char *remark = "little to commit: left to the end of the shutdown";

	if (has_option(o, OPT_JSON)) {
		json_object_object_add(answer, "ok", json_object_new_boolean(true));
		json_object_object_add(answer, "remark", json_object_new_string(remark));
		json_print(answer);
	}
	json_object_put(answer);
	say(name, remark);
	return EXIT_OK;
}

static int last_commit(const struct options *o, const char *which, const struct times *t)
{
	const struct request ask = { .command = COMMAND_STATUS };
	struct request rq = { .command = COMMAND_COMMIT, .shutdown = true };
	struct json_object *status, *answer;
	struct failure err;
	struct client c;
	int exit;

	if (client_open(&c, which, &err) < 0)
		return tell_failure(o, which, &err);
	(void)await_card(&c, t->away_ns, false);
	status = call(&c, &ask, &err);
	if (status && t->if_longer_ns && can_wait(status, t->if_longer_ns)) {
		exit = tell_can_wait(o, c.name);
		json_object_put(status);
		client_close(&c);
		return exit;
	}
	if (status && !keep_before_discard(c.name))
		say(c.name, "not all kept paths were committed");
	rq.checkpoint = status && (!t->within_ns ||
				   estimate_seconds(status, 0) < (double)t->within_ns / 1e9 / 2);
	answer = status ? call(&c, &rq, &err) : NULL;
	if (answer && has_option(o, OPT_JSON))
		json_print(answer);
	exit = answer ? tell(c.name, answer) : tell_failure(o, c.name, &err);
	if (exit == EXIT_OK && !undo_pending(status) &&
	    (!rq.checkpoint || json_object_object_get(status, "held")))
		tell_waiting(&c);
	json_object_put(answer);
	json_object_put(status);
	client_close(&c);
	return exit;
}

static bool take_time(const struct options *o, enum cmd_option id, uint64_t *ret_ns)
{
	const char *text = o->value[id];

	return !text || (parse_duration_ns(text, ret_ns) == 0 && *ret_ns);
}

int cmd_shutdown(const struct options *o)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	struct times t = { 0 };
	int exit = EXIT_OK, e;
	uint32_t silent;
	size_t n;

	if (!take_time(o, OPT_WITHIN, &t.within_ns))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--within %s is not a time such as 80s",
				o->value[OPT_WITHIN]);
	if (!take_time(o, OPT_IF_LONGER, &t.if_longer_ns))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--if-longer %s is not a time such as 10s",
				o->value[OPT_IF_LONGER]);
	t.away_ns = t.within_ns && t.within_ns / 2 < AWAY_WAIT_NS ? t.within_ns / 2 : AWAY_WAIT_NS;
	exit = await_time(o, &t.away_ns);
	if (exit != EXIT_OK)
		return exit;
	if (t.within_ns)
		set_alarm(t.within_ns);
	if (o->operands)
		return last_commit(o, o->operand[0], &t);
	n = client_volumes(names);
	silent = n > 1 && commit_all_last ? commit_together(names, n, &t) : 0;
	for (unsigned late = 0; late < 2; late++) /* a dead card must not hold up the others */
		for (size_t i = 0; i < n; i++) {
			if ((silent >> i & 1) != late)
				continue;
			e = last_commit(o, names[i], &t);
			exit = e ? e : exit;
		}
	return exit;
}
