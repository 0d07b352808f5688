/* SPDX-License-Identifier: MIT */
/*
 * cowctl run: all that a command changes, or nothing. The generation of before is held, and the order to go
 * back to it is on the card before the command starts. From then on a power cut, a kill and a crash all end in that
 * generation, whatever timers and RAM pressure commit meanwhile. Only if the command succeeds is everything
 * committed, and then one record ends the hold and the order.
 *
 * What the command overwrites fills the log, because nothing is written home beside a hold. Once a commit found no
 * room there, no later one will, and the command is ended: the daemon lets no write fail for a minute then.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "base/clean.h"
#include "base/parse.h"

#define EXIT_NO_COMMAND 127 /* as of a shell */
#define LOOK_MS 500
#define END_NS 10000000000ull /* from SIGTERM to SIGKILL */

static volatile pid_t child;

static void pass_on(int sig)
{
	if (child > 0)
		(void)kill(child, sig);
}

/* Ctrl-C of a terminal goes to the command as well, which decides what it means. */
static void set_signals(bool running)
{
	const struct sigaction passes = { .sa_handler = running ? pass_on : SIG_DFL,
					  .sa_flags = SA_RESTART },
			       waits = { .sa_handler = running ? SIG_IGN : SIG_DFL };

	(void)sigaction(SIGTERM, &passes, NULL);
	(void)sigaction(SIGHUP, &passes, NULL);
	(void)sigaction(SIGINT, &waits, NULL);
	(void)sigaction(SIGQUIT, &waits, NULL);
}

/* Can it be started? Nothing is held for a slip. */
static bool is_program(const char *name)
{
	const char *path = strchr(name, '/') ? "" : getenv("PATH"), *end;
	char file[PATH_MAX];
	bool found = path && !*path && access(name, X_OK) == 0;

	for (path = path ? path : "/bin:/usr/bin"; *path && !found; path = end + (*end == ':')) {
		end = strchrnul(path, ':');
		snprintf(file, sizeof(file), "%.*s/%s", (int)(end - path), path, name);
		found = access(file, X_OK) == 0;
	}
	return found;
}

static int check_command(const struct options *o)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	const char *command = o->operand[0];

	for (size_t i = 0, n = client_volumes(names); i < n; i++)
		if (!strcmp(names[i], command))
			return cmd_usage(o, "%s is a volume: " COWCTL " run --volume %s -- COMMAND",
					 command, command);
	if (is_program(command))
		return EXIT_OK;
	(void)cmd_fail(o, EXIT_FAILED, -ENOENT, "%s: no such program; nothing was held", command);
	return EXIT_NO_COMMAND;
}

/* Sends it to the process, and then to its children: a shell must not begin the next command. */
static void end_tree(pid_t pid, int sig)
{
	char path[64], text[4096], *at = text, *next;
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	text[n < 0 ? 0 : n] = '\0';
	(void)kill(pid, sig);
	for (long found; (found = strtol(at, &next, 10)) > 0; at = next)
		end_tree((pid_t)found, sig);
}

struct held_volume {
	char name[RUNDIR_NAME_BYTES];
	uint64_t generation, lost_writes;
};

/* Has a commit found no room in the log? why: what it said. Before that the user is told once that it gets full. */
static bool is_log_full(const struct held_volume *v, bool *told, char *why, size_t n)
{
	struct failure err;
	struct json_object *s = client_status_file(v->name, &err),
			   *last = json_object_object_get(s, "last"),
			   *held = json_object_object_get(s, "held");
	/* the file may tell of an earlier hold for a moment */
	bool ours = json_u64(held, "generation") == v->generation,
	     full = ours && !strcmp(json_text(last, "code"), "EFBIG");

	if (full)
		snprintf(why, n, "%s", json_text(last, "remark"));
	else if (!*told && ours && json_true(held, "log_low")) {
		*told = true;
		fprintf(stderr, COWCTL ": %s: %s of the log are left beside generation %llu\n",
			v->name, FORMAT_SIZE(blk_to_bytes(json_u64(s, "log_room_blocks"))),
			(unsigned long long)json_u64(held, "generation"));
	}
	json_object_put(s);
	return full;
}

/* Until the command has ended; *why "" or the reason why it was ended. */
static int wait_for(pid_t pid, const struct held_volume *v, int *ret_status, char *why, size_t n)
{
	_cleanup_close_ int fd = pidfd_open(pid, 0);
	uint64_t end_ns = UINT64_MAX;
	bool told = false;
	pid_t r;

	while ((r = waitpid(pid, ret_status, WNOHANG)) == 0 || (r < 0 && errno == EINTR)) {
		struct pollfd pfd = { .fd = fd, .events = POLLIN };

		if (!*why && is_log_full(v, &told, why, n)) {
			end_ns = now_ns() + END_NS;
			end_tree(pid, SIGTERM);
		} else if (now_ns() >= end_ns) {
			end_tree(pid, SIGKILL);
		}
		(void)poll(&pfd, 1, LOOK_MS);
	}
	return r < 0 ? -errno : 0;
}

/* The exit code of the command as a shell tells it. -errno: it was not started. */
static int run_command(const struct options *o, const struct held_volume *v, char *why, size_t n)
{
	posix_spawnattr_t attr;
	sigset_t defaults;
	int status = 0, r;
	pid_t pid;

	sigemptyset(&defaults);
	sigaddset(&defaults, SIGINT);
	sigaddset(&defaults, SIGQUIT);
	sigaddset(&defaults, SIGTERM);
	sigaddset(&defaults, SIGHUP);
	r = -posix_spawnattr_init(&attr);
	if (r < 0)
		return r;
	posix_spawnattr_setsigdefault(&attr, &defaults);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
	set_signals(true);
	r = -posix_spawnp(&pid, o->operand[0], NULL, &attr, (char *const *)o->operand, environ);
	posix_spawnattr_destroy(&attr);
	child = r == 0 ? pid : 0;
	if (r == 0)
		r = wait_for(pid, v, &status, why, n);
	child = 0;
	set_signals(false);
	if (r < 0)
		return r;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* One request to the volume. The answer goes to *ret, which may be NULL, with the volume's name. */
static int step(const struct options *volume, const struct request *rq, struct json_object **ret)
{
	struct json_object *answer;
	struct client c;
	int exit = ask_volume(&c, volume, rq, &answer);

	if (exit != EXIT_OK)
		return exit;
	json_object_object_add(answer, "name", json_object_new_string(c.name));
	client_close(&c);
	if (ret)
		*ret = answer;
	else
		json_object_put(answer);
	return EXIT_OK;
}

/* Most writes fail after the call that made them, so the command may not know. */
static int count_lost_writes(const struct options *volume, uint64_t *ret)
{
	const struct request status = { .command = COMMAND_STATUS };
	struct json_object *answer = NULL;
	int exit = step(volume, &status, &answer);

	*ret = json_u64(answer, "lost_writes");
	json_object_put(answer);
	return exit;
}

static int begin(const struct options *volume, struct held_volume *ret)
{
	const struct request hold = { .command = COMMAND_COMMIT, .hold = true },
			     back = { .command = COMMAND_UNDO },
			     accept = { .command = COMMAND_ACCEPT };
	struct json_object *answer;
	int exit = step(volume, &hold, &answer);

	if (exit != EXIT_OK)
		return exit;
	ret->generation = json_u64(answer, "generation");
	snprintf(ret->name, sizeof(ret->name), "%s", json_text(answer, "name"));
	json_object_put(answer);
	exit = count_lost_writes(volume, &ret->lost_writes);
	if (exit == EXIT_OK)
		exit = step(volume, &back, NULL);
	if (exit != EXIT_OK)
		(void)step(volume, &accept, NULL);
	return exit;
}

#define COMES_BACK                                                                                  \
	"%s: generation %llu comes back at the next %s, and what is committed until then is lost. " \
	"To keep what is there now: " COWCTL " accept %s"
#define OF(v)                                                                                      \
	(v)->name, (unsigned long long)(v)->generation,                                            \
		strcmp((v)->name, ROOT_NAME) ? "attach" : "boot", (v)->name

static int end_with_failure(const struct options *o, const struct options *volume,
			    const struct held_volume *v, int code, const char *why)
{
	const struct request accept = { .command = COMMAND_ACCEPT };

	if (*why) {
		(void)cmd_fail(o, EXIT_FAILED, -EFBIG, "%.100s was ended: %.*s. " COMES_BACK,
			       CLEAN(o->operand[0]), (int)strcspn(why, ";"), why, OF(v));
		return code > 0 ? code : EXIT_FAILED;
	}
	if (code >= 0) {
		(void)cmd_fail(o, EXIT_FAILED, -ECANCELED, "%.100s: exit code %d. " COMES_BACK,
			       CLEAN(o->operand[0]), code, OF(v));
		return code;
	}
	(void)cmd_fail(o, EXIT_FAILED, code, "%.100s: %s", CLEAN(o->operand[0]),
		       strerrordesc_np(-code));
	if (step(volume, &accept, NULL) != EXIT_OK)
		fprintf(stderr, COWCTL ": " COMES_BACK "\n", OF(v));
	return EXIT_NO_COMMAND;
}

static void print_end(const char *name, const struct options *o, struct json_object *answer)
{
	(void)o;
	fprintf(stderr, COWCTL ": %s: %s is kept: generation %s\n", CLEAN(name),
		CLEAN(o->operand[0]), with_commas(json_u64(answer, "generation")));
}

/* What the command has changed is on the card with the order to go back. One record more ends that, or puts it on trial. */
static int end_with_commit(const struct options *o, const struct options *volume,
			   const struct held_volume *v, uint64_t trial)
{
	const struct request commit = { .command = COMMAND_COMMIT },
			     accept = { .command = COMMAND_ACCEPT },
			     on_trial = { .command = COMMAND_COMMIT, .trial = trial };
	struct json_object *answer = NULL;
	uint64_t lost = 0;
	int exit = trial ? commit_trial_check(o, -1) : EXIT_OK;

	if (exit == EXIT_OK) {
		commit_metadata_home(which_volume(volume), &commit);
		exit = step(volume, &commit, &answer);
	}
	if (exit == EXIT_OK)
		exit = count_lost_writes(volume, &lost);
	if (exit == EXIT_OK && (lost != v->lost_writes || !commit_synced(answer)))
		exit = cmd_fail(
			o, EXIT_FAILED, -EIO,
			"the card may lack a part of what %.100s has written: %s",
			CLEAN(o->operand[0]),
			lost != v->lost_writes
				? "writes have failed"
				: "the file system could not be synced. First commit again");
	if (exit == EXIT_OK)
		exit = step(volume, trial ? &on_trial : &accept, NULL);
	if (exit == EXIT_OK)
		show_answer(json_text(answer, "name"), o, answer, print_end);
	else
		fprintf(stderr, COWCTL ": " COMES_BACK "\n", OF(v));
	return exit;
}

int cmd_run(const struct options *o)
{
	struct options volume = *o;
	struct held_volume v = { 0 };
	char why[512] = "";
	uint64_t trial;
	int exit = trial_boots(o, &trial), code;

	if (exit != EXIT_OK)
		return exit;
	if (trial && has_option(o, OPT_VOLUME) && strcmp(o->value[OPT_VOLUME], ROOT_NAME))
		return cmd_usage(o, "--trial is for the root alone");
	exit = check_command(o);
	if (exit != EXIT_OK)
		return exit;
	volume.operands = 1;
	volume.operand[0] = has_option(o, OPT_VOLUME) ? o->value[OPT_VOLUME] : ROOT_NAME;
	exit = begin(&volume, &v);
	if (exit == EXIT_NOT_RUNNING && !has_option(o, OPT_VOLUME))
		fprintf(stderr, COWCTL ": run is for the root; of another volume: " COWCTL
				       " run --volume N -- COMMAND\n");
	if (exit != EXIT_OK)
		return exit;
	code = run_command(o, &v, why, sizeof(why));
	return code || *why ? end_with_failure(o, &volume, &v, code, why)
			    : end_with_commit(o, &volume, &v, trial);
}
