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
#define COMES_LATER -1 /* an exit code within this file */

struct times {
	uint64_t within_ns;    /* 0: no limit */
	uint64_t if_longer_ns; /* 0: commit in any case */
	uint64_t away_ns;      /* for a card that is away */
};

struct last_commit {
	const char *name;
	uint64_t next_line_ns;
};

/* Of several volumes. */
struct all {
	const struct options *o;
	const struct times *t;
	uint64_t limit_ns; /* for each; 0: none */
	uint64_t ask_ns;   /* for the first answer of each; 0: no limit */
	struct turns late; /* those that come once the others are done */
	bool root_is_late;
};

static void say(const char *name, const char *text)
{
	fprintf(stderr, "cowfs: %s: %s\n", CLEAN(name), CLEAN(text));
}

static bool on_event(void *ctx, struct json_object *event)
{
	struct last_commit *l = ctx;
	uint64_t total = json_u64(event, "total_blocks");

	if (now_ns() < l->next_line_ns || !total)
		return true;
	l->next_line_ns = now_ns() + LINE_EVERY_NS;
	fprintf(stderr, "cowfs: %s: %s, %s of %s\n", l->name, json_text(event, "phase"),
		FORMAT_SIZE(blk_to_bytes(json_u64(event, "done_blocks"))),
		FORMAT_SIZE(blk_to_bytes(total)));
	return true;
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
 * the page cache adds when the file system is synced or unmounted.
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

/* A volume whose card has failed must not hold up others. */
static bool may_hang(struct json_object *status)
{
	char away[8];

	return away_text(status, away, sizeof(away)) || *json_text(status, "alarm") ||
	       json_true(status, "halted");
}

/*
 * The next call has a time limit, and nothing can be done about a failure then. So nothing is left to it if anything is wrong,
 * or if a job is running, because dirty_blocks lacks what that job writes. Kept paths are committed in front of a discard
 * while the file system is still writable.
 */
static bool can_wait(struct json_object *status, uint64_t if_longer_ns)
{
	return !may_hang(status) && !json_true(status, "discard_armed") && !undo_pending(status) &&
	       !json_true(status, "degraded") && !json_object_object_get(status, "progress") &&
	       estimate_seconds(status, page_cache_bytes()) < (double)if_longer_ns / 1e9;
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

/* NULL with *err; after limit_ns (0: none) with -ETIMEDOUT. */
static struct json_object *call(struct client *c, const struct request *rq, uint64_t limit_ns,
				struct failure *err)
{
	struct last_commit l = { .name = c->name, .next_line_ns = now_ns() + LINE_EVERY_NS };

	c->until_ns = limit_ns ? now_ns() + limit_ns : 0;
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
	struct json_object *status = call(c, &ask, 0, &err);
	bool held = json_object_object_get(status, "held");

	if (json_u64(status, "log_live_blocks"))
		say(c->name,
		    held ? "a generation is held, so part of it exists in the log only: run 'cowctl accept' "
			   "or 'cowctl undo' before you mount the card without cowfs"
			 : "part of it exists in the log only: run 'cowctl release' before you mount "
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

static int commit(const struct options *o, struct client *c, struct json_object *status,
		  const struct times *t, uint64_t limit_ns, bool *ret_committed)
{
	struct request rq = { .command = COMMAND_COMMIT, .shutdown = true };
	struct json_object *answer;
	struct failure err = { 0 };
	int exit;

	if (!keep_before_discard(c->name))
		say(c->name, "not all kept paths were committed");
	rq.checkpoint = !t->within_ns ||
			estimate_seconds(status, 0) <
				(double)(limit_ns ? limit_ns : t->within_ns / 2) / 1e9;
	answer = call(c, &rq, limit_ns, &err);
	if (answer && json_true(answer, "ok") && !commit_synced(answer) && !t->within_ns) {
		/* once more, which waits for the same sync. If there is time for that */
		json_object_put(answer);
		answer = call(c, &rq, limit_ns, &err);
	}
	if (!answer && limit_ns && err.error == -ETIMEDOUT) {
		say(c->name, "takes long, so the other volumes come first");
		return COMES_LATER;
	}
	if (answer && has_option(o, OPT_JSON))
		json_print(answer);
	*ret_committed = turn_committed(answer);
	exit = answer ? tell(c->name, answer) : tell_failure(o, c->name, &err);
	if (exit == EXIT_OK && !undo_pending(status) &&
	    (!rq.checkpoint || json_object_object_get(status, "held")))
		tell_waiting(c);
	json_object_put(answer);
	return exit;
}

/* limit_ns: COMES_LATER for a volume that takes longer, or may never answer; 0: none. ask_ns: one that does not answer has failed */
static int last_commit(const struct options *o, const char *which, const struct times *t,
		       uint64_t limit_ns, uint64_t ask_ns, bool *ret_committed)
{
	const struct request ask = { .command = COMMAND_STATUS };
	struct json_object *status;
	struct failure err;
	struct client c;
	int exit;

	if (client_open(&c, which, &err) < 0)
		return tell_failure(o, which, &err);
	status = call(&c, &ask, ask_ns, &err);
	if (status && !limit_ns && may_hang(status)) {
		c.until_ns = 0;
		(void)await_card(&c, t->away_ns, false);
		json_object_put(status);
		status = call(&c, &ask, 0, &err);
	}
	if (limit_ns && (!status || may_hang(status)))
		exit = COMES_LATER;
	else if (!status)
		exit = tell_failure(o, c.name, &err);
	else if (t->if_longer_ns && can_wait(status, t->if_longer_ns))
		exit = tell_can_wait(o, c.name);
	else
		exit = commit(o, &c, status, t, limit_ns, ret_committed);
	json_object_put(status);
	client_close(&c);
	return exit;
}

/* ---- all volumes ---- */

static int shutdown_turn(void *ctx, const char *name, bool left_out, bool *ret_committed)
{
	struct all *a = ctx;
	struct failure err;
	int exit = COMES_LATER;

	if (left_out && a->t->if_longer_ns)
		return tell_can_wait(a->o, name);
	if (left_out && !a->root_is_late) {
		turn_left_out(&err, name);
		return tell_failure(a->o, name, &err);
	}
	if (!left_out)
		exit = last_commit(a->o, name, a->t, a->limit_ns, a->ask_ns, ret_committed);
	/* a card that hangs does not hold up what it lies on, which is committed once more behind it */
	if (exit != COMES_LATER && !turns_has_inner(&a->late, name))
		return exit;
	a->root_is_late |= exit == COMES_LATER && !strcmp(name, ROOT_NAME);
	turns_add(&a->late, name, left_out);
	return exit == COMES_LATER ? EXIT_OK : exit;
}

static int commit_all_volumes(const struct options *o, const struct times *t)
{
	struct all a = { .o = o, .t = t }, late = { .o = o, .t = t };
	struct turns turns;
	int exit, e;

	turns_of_all(&turns);
	if (turns.n > 1)
		a.limit_ns = t->within_ns ? t->within_ns / 2 / turns.n : ENOUGH_NS;
	/* those that answer nobody leave half of the rest to those that take long */
	a.ask_ns = a.limit_ns;
	late.ask_ns = a.limit_ns / 2;
	exit = turns_take(&turns, false, shutdown_turn, &a);
	e = turns_take(&a.late, false, shutdown_turn, &late);
	return exit == EXIT_OK ? e : exit;
}

static bool take_time(const struct options *o, enum cmd_option id, uint64_t *ret_ns)
{
	const char *text = o->value[id];

	return !text || (parse_duration_ns(text, ret_ns) == 0 && *ret_ns);
}

int cmd_shutdown(const struct options *o)
{
	struct times t = { 0 };
	bool committed;
	int exit;

	if (!take_time(o, OPT_WITHIN, &t.within_ns))
		return cmd_usage(o, "--within %s is not a time such as 80s", o->value[OPT_WITHIN]);
	if (!take_time(o, OPT_IF_LONGER, &t.if_longer_ns))
		return cmd_usage(o, "--if-longer %s is not a time such as 10s",
				 o->value[OPT_IF_LONGER]);
	t.away_ns = t.within_ns && t.within_ns / 2 < AWAY_WAIT_NS ? t.within_ns / 2 : AWAY_WAIT_NS;
	exit = await_time(o, &t.away_ns);
	if (exit != EXIT_OK)
		return exit;
	if (t.within_ns)
		set_alarm(t.within_ns);
	return o->operands ? last_commit(o, o->operand[0], &t, 0, 0, &committed)
			   : commit_all_volumes(o, &t);
}
