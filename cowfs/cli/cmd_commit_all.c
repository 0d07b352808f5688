/* SPDX-License-Identifier: MIT */
/*
 * cowctl commit --all: one commit of all volumes. One thread for each daemon asks and waits; the
 * daemons meet in memory of their own (volume/joint.h). Whatever goes wrong before they decide
 * cancels: an answer, the end of a daemon, and the end of this process, too. The root leads if it
 * has changed: at its next start no other volume may be there to be asked.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>

#include "base/thread.h"
#include "cli/cmd.h"
#include "volume/joint.h"
#include "wire/progress.h"

#define STACK_BYTES (256 * KIB)
#define NAP_NS 20000000
#define CANCEL_NS (2 * 1000000000ull) /* for the answers after a cancel */

struct all;

struct member {
	struct all *all;
	struct client client; /* fd -1: not open */
	struct request rq;
	pthread_t thread;
	struct json_object *answer; /* NULL: error */
	struct failure error;
	uint64_t done_blks, total_blks;
};

struct all {
	const struct options *o;
	uint64_t limit_ns; /* of a shutdown: then it is cancelled; 0: none */
	struct member member[CLIENT_VOLUMES];
	size_t n;
	int joint_fd, lock_fd;
	struct joint *joint;  /* cancels; not a member */
	pthread_mutex_t lock; /* the next ones, and all figures of progress */
	struct progress progress;
};

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

/* ---- one volume, in its thread ---- */

/* The figures of all volumes together. */
static void on_event(void *ctx, struct json_object *event)
{
	struct member *m = ctx;
	struct all *a = m->all;
	uint64_t done_blks = 0, total_blks = 0;

	pthread_mutex_lock(&a->lock);
	m->done_blks = json_u64(event, "done_blocks");
	m->total_blks = json_u64(event, "total_blocks");
	for (size_t i = 0; i < a->n; i++) {
		done_blks += a->member[i].done_blks;
		total_blks += a->member[i].total_blks;
	}
	progress_show(&a->progress, json_text(event, "phase"), blk_to_bytes(done_blks),
		      blk_to_bytes(total_blks));
	pthread_mutex_unlock(&a->lock);
}

static void *member_main(void *arg)
{
	struct member *m = arg;

	m->answer = client_call(&m->client, &m->rq, on_event, m, &m->error);
	/* whoever ends without a decision does not take part */
	if (!m->answer && m->error.error == -EPIPE)
		joint_ended(m->all->joint, (unsigned)m->rq.rank);
	else if (!m->answer || !json_true(m->answer, "ok"))
		joint_cancel(m->all->joint);
	return NULL;
}

/* ---- all of them ---- */

/* Two of these commits at once would wait for each other. A file that only root can open: anybody
 * could lock the directory. */
static int wait_for_turn(struct all *a)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/.commit-all", rundir_path());
	a->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (a->lock_fd < 0)
		return cmd_fail(a->o, EXIT_FAILED, -errno, "%s: %s", path, strerrordesc_np(errno));
	if (flock(a->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return EXIT_OK;
	if (has_option(a->o, OPT_NO_WAIT))
		return cmd_fail(a->o, EXIT_FAILED, -EBUSY, "another commit --all is under way");
	while (flock(a->lock_fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return cmd_fail(a->o, EXIT_FAILED, -errno, "%s: %s", rundir_path(),
					strerrordesc_np(errno));
	return EXIT_OK;
}

static int open_all(struct all *a, char names[][RUNDIR_NAME_BYTES])
{
	struct joint_params p = { .rank = CLIENT_VOLUMES, .gone = never };
	struct request rq;
	int r, exit = commit_request(a->o, &rq);

	for (size_t i = 0; i < a->n && exit == EXIT_OK; i++) {
		struct member *m = &a->member[i];

		if (client_open(&m->client, names[i], &m->error) < 0) {
			m->client.fd = -1;
			exit = cmd_failed(a->o, &m->error);
		}
		m->rq = rq;
		m->rq.command = COMMAND_COMMIT_JOINT;
		m->rq.shutdown = a->limit_ns;
		m->rq.rank = a->n - 1 - i; /* the root is the last name */
	}
	if (exit != EXIT_OK)
		return exit;
	r = a->joint_fd = joint_new((unsigned)a->n);
	p.fd = a->joint_fd;
	if (r >= 0)
		r = joint_enter(&a->joint, &p);
	return r < 0 ? cmd_fail(a->o, EXIT_FAILED, r, "cannot make shared memory: %s",
				strerrordesc_np(-r))
		     : EXIT_OK;
}

/* A daemon that does not answer in time is left alone, and the others do not wait for it. */
static void join_in_time(struct all *a, size_t n)
{
	uint64_t until_ns = now_ns() + a->limit_ns;

	for (size_t i = 0; i < n; i++) {
		const struct timespec nap = { .tv_nsec = NAP_NS };

		while (pthread_tryjoin_np(a->member[i].thread, NULL) == EBUSY) {
			nanosleep(&nap, NULL);
			if (now_ns() < until_ns)
				continue;
			joint_cancel(a->joint);
			if (now_ns() < until_ns + CANCEL_NS)
				continue;
			shutdown(a->member[i].client.fd, SHUT_RDWR);
		}
	}
}

static void run_all(struct all *a)
{
	size_t started = 0;

	if (!a->limit_ns) /* otherwise the output is lines for a console */
		progress_start(&a->progress);
	for (; started < a->n; started++) {
		struct member *m = &a->member[started];
		int r;

		m->client.pass_fd = a->joint_fd;
		r = thread_start(&m->thread, NULL, STACK_BYTES, member_main, m);
		if (r == 0)
			continue;
		failure_set(&m->error, EXIT_FAILED, r, "volume %s: %s", m->client.name,
			    strerrordesc_np(-r));
		joint_cancel(a->joint);
		break;
	}
	if (a->limit_ns)
		join_in_time(a, started);
	for (size_t i = 0; i < started && !a->limit_ns; i++)
		pthread_join(a->member[i].thread, NULL);
	progress_end(&a->progress);
}

/* A volume that another one kept from committing is no reason. */
static bool is_reason(const struct member *m)
{
	return !json_true(m->answer, "ok") && strcmp(json_raw(m->answer, "code"), "ECANCELED");
}

/* Of a commit that was not made. */
static enum exit_code exit_of(const struct all *a)
{
	enum exit_code exit = EXIT_FAILED;

	for (size_t i = 0; i < a->n; i++)
		if (json_u64(a->member[i].answer, "exit") == EXIT_AWAY)
			exit = EXIT_AWAY;
	return exit;
}

static int print_all(const struct all *a, double frozen_s)
{
	int exit = EXIT_OK;
	bool reason = false;

	for (size_t i = 0; i < a->n; i++)
		reason |= is_reason(&a->member[i]);
	for (size_t i = 0; i < a->n; i++) {
		const struct member *m = &a->member[i];

		if (json_true(m->answer, "ok")) {
			print_commit(m->client.name, a->o, m->answer);
			continue;
		}
		exit = exit_of(a);
		if (m->answer && (is_reason(m) || !reason))
			fprintf(stderr, "cowctl: %s: %s\n", m->client.name,
				json_text(m->answer, "error"));
		else if (m->error.why[0])
			failure_print(&m->error, EXIT_FAILED, false);
		reason = true;
	}
	if (exit == EXIT_OK)
		printf("%zu volume%s committed together, held for %.1f ms\n", a->n,
		       a->n == 1 ? "" : "s", frozen_s * 1000);
	return exit;
}

static void add_named(struct json_object *list, struct json_object *one, const char *name)
{
	json_object_object_add(one, "name", json_object_new_string(name));
	json_object_array_add(list, one);
}

static int print_json(struct all *a, double frozen_s)
{
	struct json_object *list = json_object_new_array(), *all;
	enum exit_code exit = exit_of(a);
	char text[24];
	bool ok = true;

	for (size_t i = 0; i < a->n; i++) {
		struct member *m = &a->member[i];
		struct json_object *one = m->answer;

		if (!one) {
			one = json_answer(false);
			json_object_object_add(one, "error", json_object_new_string(m->error.why));
		}
		m->answer = NULL;
		ok &= json_true(one, "ok");
		add_named(list, one, m->client.name);
	}
	all = json_answer(ok);
	if (!ok)
		json_object_object_add(all, "exit", json_object_new_int((int)exit));
	snprintf(text, sizeof(text), "%.6f", frozen_s);
	json_object_object_add(all, "frozen_seconds", json_object_new_double_s(frozen_s, text));
	json_object_object_add(all, "volumes", list);
	json_print(all);
	json_object_put(all);
	return ok ? EXIT_OK : exit;
}

static void close_all(struct all *a)
{
	for (size_t i = 0; i < a->n; i++) {
		json_object_put(a->member[i].answer);
		client_close(&a->member[i].client);
	}
	joint_leave(a->joint);
	if (a->joint_fd >= 0)
		close(a->joint_fd);
	if (a->lock_fd >= 0)
		close(a->lock_fd);
}

/* close_all follows, whatever this returns. *ret_frozen_s: the longest time. */
static int commit_together(struct all *a, const struct options *o, char names[][RUNDIR_NAME_BYTES],
			   size_t n, uint64_t limit_ns, double *ret_frozen_s)
{
	int exit;

	*a = (struct all){ .o = o, .limit_ns = limit_ns, .n = n, .joint_fd = -1, .lock_fd = -1 };
	pthread_mutex_init(&a->lock, NULL);
	for (size_t i = 0; i < n; i++)
		a->member[i] = (struct member){ .all = a, .client.fd = -1 };
	exit = wait_for_turn(a);
	if (exit == EXIT_OK)
		exit = open_all(a, names);
	if (exit != EXIT_OK)
		return exit;
	run_all(a);
	*ret_frozen_s = 0;
	for (size_t i = 0; i < n; i++) {
		struct json_object *q = json_at(a->member[i].answer, "quiesce");
		double frozen_s = json_number(q, "frozen_seconds");

		*ret_frozen_s = frozen_s > *ret_frozen_s ? frozen_s : *ret_frozen_s;
	}
	return EXIT_OK;
}

static int commit_and_print(const struct options *o, char names[][RUNDIR_NAME_BYTES], size_t n)
{
	static struct all a;
	double frozen_s;
	int exit = commit_together(&a, o, names, n, 0, &frozen_s);

	if (exit == EXIT_OK)
		exit = has_option(o, OPT_JSON) ? print_json(&a, frozen_s) : print_all(&a, frozen_s);
	close_all(&a);
	return exit;
}

bool commit_all_last(char names[][RUNDIR_NAME_BYTES], size_t n, uint64_t limit_ns,
		     uint32_t *ret_silent, char *why, size_t why_bytes)
{
	static const struct options o = { .value[OPT_NO_WAIT] = "" };
	static struct all a;
	double frozen_s;
	bool ok = commit_together(&a, &o, names, n, limit_ns, &frozen_s) == EXIT_OK;

	*why = '\0';
	*ret_silent = 0;
	for (size_t i = 0; i < n && ok; i++) {
		const struct member *m = &a.member[i];

		*ret_silent |= (uint32_t)!m->answer << i;
		if (!json_true(m->answer, "ok") && (!*why || is_reason(m)))
			snprintf(why, why_bytes, "%s: %s", m->client.name,
				 m->answer		    ? json_text(m->answer, "error")
				 : m->error.error == -EPIPE ? "no answer"
							    : m->error.why);
	}
	close_all(&a);
	return ok && !*why;
}

/* list: with --json; NULL: text */
static int estimate_nth(const struct options *o, size_t nth, void *list)
{
	char name[RUNDIR_NAME_BYTES];
	struct json_object *answer;
	int exit = commit_answer(o, &answer, name);

	(void)nth;
	if (exit != EXIT_OK)
		return exit;
	if (list) {
		add_named(list, answer, name);
		return EXIT_OK;
	}
	print_commit(name, o, answer);
	json_object_put(answer);
	return EXIT_OK;
}

/* With --json an error is the only document. */
static int estimate_all(const struct options *o, char names[][RUNDIR_NAME_BYTES], size_t n)
{
	struct json_object *all, *list;
	int exit = EXIT_OK;

	if (!has_option(o, OPT_JSON))
		return each_volume(o, names, n, estimate_nth, NULL);
	all = json_answer(true);
	list = json_object_new_array();
	json_object_object_add(all, "volumes", list);
	for (size_t i = 0; i < n && exit == EXIT_OK; i++)
		exit = each_volume(o, &names[i], 1, estimate_nth, list);
	if (exit == EXIT_OK)
		json_print(all);
	json_object_put(all);
	return exit;
}

/* Those whose next start has something else than what is mounted: nothing of that can be committed. */
static size_t leave_out_imported(char names[][RUNDIR_NAME_BYTES], size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *status = fresh_status(names[i]);
		bool imported = json_u64(status, "replaced_by");

		json_object_put(status);
		if (imported)
			fprintf(stderr,
				"cowctl: volume %s takes no part: an import waits for its next start\n",
				names[i]);
		else if (kept++ != i)
			memcpy(names[kept - 1], names[i], RUNDIR_NAME_BYTES);
	}
	return kept;
}

int commit_all(const struct options *o)
{
	int exit = cmd_excludes(o, "--all", OPT_DEADLINE, "--deadline", OPT_TIMER, "--timer",
				OPT_END);
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n;

	if (o->operands)
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "--all takes no volume and no path");
	if (exit != EXIT_OK)
		return exit;
	n = client_dead_volumes(names);
	for (size_t i = 0; i < n; i++)
		fprintf(stderr, "cowctl: volume %s takes no part: its daemon died\n", names[i]);
	n = client_volumes(names);
	if (!n)
		return cmd_fail(o, EXIT_NOT_RUNNING, -ESRCH, "no volume is attached");
	n = leave_out_imported(names, n);
	if (!n)
		return cmd_fail(o, EXIT_FAILED, -ESTALE, "no volume can be committed");
	return has_option(o, OPT_DRY_RUN) ? estimate_all(o, names, n)
					  : commit_and_print(o, names, n);
}
