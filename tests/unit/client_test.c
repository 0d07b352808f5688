/* SPDX-License-Identifier: MIT */
/* How long a client waits for a daemon that says what it likes. Time passes in poll(2) only. */
#include "test.h"
#include "workdir.h"

#include <poll.h>
#include <time.h>

#include "wire/client.h"
#include "wire/json.h"

#define S 1000000000ull
#define NEVER UINT64_MAX

static struct client client;
static int daemon_fd;
static uint64_t clock_ns, began_ns, limit_ns; /* limit_ns: of the client; 0: none */

/* Which event the daemon reports every `every_ns`, whose number moves every `moves_ns`; "": a byte. The answer at `ends_ns`. */
static struct {
	const char *says;
	uint64_t every_ns, moves_ns, ends_ns, next_ns;
} daemon_is;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	(void)id;
	*ret = (struct timespec){ (time_t)(clock_ns / S), (long)(clock_ns % S) };
	return 0;
}

/* for 32-bit machines with 64-bit times */
int __wrap___clock_gettime64(clockid_t id, struct timespec *ret);
int __wrap___clock_gettime64(clockid_t id, struct timespec *ret)
{
	return __wrap_clock_gettime(id, ret);
}

static void daemon_says(void)
{
	char text[256];
	uint64_t passed_ns = clock_ns - began_ns;

	if (passed_ns >= daemon_is.ends_ns)
		snprintf(text, sizeof(text), "{\"ok\":true}\n");
	else if (*daemon_is.says)
		snprintf(text, sizeof(text), "{\"event\":\"%s\",\"done_blocks\":%u}\n",
			 daemon_is.says,
			 daemon_is.moves_ns ? (unsigned)(passed_ns / daemon_is.moves_ns) : 7);
	else
		snprintf(text, sizeof(text), "x");
	if (write(daemon_fd, text, strlen(text)) < 0)
		abort();
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	uint64_t until_ns = clock_ns + (uint64_t)timeout_ms * 1000000;
	uint64_t next_ns = min_u64(daemon_is.next_ns,
				   began_ns + min_u64(daemon_is.ends_ns, NEVER / 2));

	if (n != 1 || timeout_ms < 0)
		abort();
	clock_ns = min_u64(until_ns, next_ns);
	if (next_ns > until_ns)
		return 0;
	daemon_says();
	daemon_is.next_ns = clock_ns + daemon_is.every_ns;
	fds->revents = POLLIN;
	return 1;
}

/* Seconds until a command has its answer (*ret_answered) or gives up. */
static uint64_t takes_s(enum proto_command command, const char *says, uint64_t every_ns,
			uint64_t moves_ns, uint64_t ends_ns, bool *ret_answered)
{
	const struct request rq = { .command = command };
	struct failure err = { 0 };
	struct json_object *o;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
			 0);
	client = (struct client){
		.fd = pair[0], .pass_fd = -1, .name = "vol", .in.max_bytes = PROTO_LINE_BYTES
	};
	daemon_fd = pair[1];
	began_ns = clock_ns += 1000 * S;
	client.until_ns = limit_ns ? began_ns + limit_ns : 0;
	daemon_is.says = says;
	daemon_is.every_ns = every_ns;
	daemon_is.moves_ns = moves_ns;
	daemon_is.ends_ns = ends_ns;
	daemon_is.next_ns = every_ns == NEVER ? NEVER : clock_ns + every_ns;
	o = client_call(&client, &rq, NULL, NULL, &err);
	*ret_answered = o != NULL;
	if (!o)
		assert_string_equal(err.why, "the daemon of volume vol does not answer");
	json_object_put(o);
	client_close(&client);
	close(daemon_fd);
	return (clock_ns - began_ns) / S;
}

#define PROGRESS "progress"

static const enum proto_command quick[] = { COMMAND_STATUS,  COMMAND_WEAR,    COMMAND_CHANGES,
					    COMMAND_DISCARD, COMMAND_INHIBIT, COMMAND_UNINHIBIT };
static const enum proto_command jobs[] = { COMMAND_COMMIT, COMMAND_DETACH, COMMAND_VIEW,
					   COMMAND_TRIM,   COMMAND_ACCEPT, COMMAND_UNDO,
					   COMMAND_RENEW };

TEST(test_no_word)
{
	bool answered;

	for (size_t i = 0; i < sizeof(quick) / sizeof(*quick); i++) {
		assert_int_equal(takes_s(quick[i], "", NEVER, 0, NEVER, &answered), 30);
		assert_false(answered);
	}
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		assert_int_equal(takes_s(jobs[i], "", NEVER, 0, NEVER, &answered), 30);
		assert_false(answered);
	}
	/* a machine that is busy */
	assert_int_equal(takes_s(COMMAND_STATUS, "", NEVER, 0, 25 * S, &answered), 25);
	assert_true(answered);
}

TEST(test_progress_for_ever)
{
	bool answered;

	for (size_t i = 0; i < sizeof(quick) / sizeof(*quick); i++) {
		/* also if its numbers move: these are no jobs */
		assert_int_equal(takes_s(quick[i], PROGRESS, S / 5, S, NEVER, &answered), 30);
		assert_false(answered);
	}
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		assert_int_equal(takes_s(jobs[i], PROGRESS, S / 5, 0, NEVER, &answered), 300);
		assert_false(answered);
		assert_int_equal(takes_s(jobs[i], "waiting", S / 5, 0, NEVER, &answered), 300);
		assert_false(answered);
	}
}

TEST(test_numbers_that_move)
{
	bool answered;

	/* a commit of hours on a slow card */
	assert_int_equal(takes_s(COMMAND_COMMIT, PROGRESS, S / 5, 200 * S, 5 * 3600 * S, &answered),
			 5 * 3600);
	assert_true(answered);
	/* for ever */
	assert_int_equal(takes_s(COMMAND_COMMIT, PROGRESS, 9 * S, 200 * S, NEVER, &answered),
			 24 * 3600);
	assert_false(answered);
	/* they stop */
	assert_int_equal(takes_s(COMMAND_DETACH, PROGRESS, S / 5, 301 * S, NEVER, &answered), 300);
	assert_false(answered);
}

/* Of several volumes each has its time, whatever it says. */
TEST(test_limit)
{
	bool answered;

	limit_ns = 3 * S;
	assert_int_equal(takes_s(COMMAND_STATUS, "", NEVER, 0, NEVER, &answered), 3);
	assert_false(answered);
	assert_int_equal(takes_s(COMMAND_COMMIT, PROGRESS, S / 5, S / 5, NEVER, &answered), 3);
	assert_false(answered);
	assert_int_equal(takes_s(COMMAND_COMMIT, "", S / 5, 0, NEVER, &answered), 3);
	assert_false(answered);
	assert_int_equal(takes_s(COMMAND_COMMIT, PROGRESS, S / 5, S / 5, 2 * S, &answered), 2);
	assert_true(answered);
	limit_ns = 0;
}

/* Bytes that never become a line, and lines that are none. */
TEST(test_no_lines)
{
	const struct request rq = { .command = COMMAND_STATUS };
	struct failure err;
	bool answered;
	int pair[2];

	assert_int_equal(takes_s(COMMAND_STATUS, "", S, 0, NEVER, &answered), 30);
	assert_false(answered);
	assert_int_equal(takes_s(COMMAND_COMMIT, "", S, 0, NEVER, &answered), 300);
	assert_false(answered);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
			 0);
	client = (struct client){
		.fd = pair[0], .pass_fd = -1, .name = "vol", .in.max_bytes = PROTO_LINE_BYTES
	};
	assert_int_equal(write(pair[1], "[\n", 2), 2);
	assert_null(client_call(&client, &rq, NULL, NULL, &err));
	assert_string_equal(err.why, "volume vol: Protocol error");
	client_close(&client);
	close(pair[1]);
}

static int make_folder(void **state)
{
	(void)state;
	return workdir_new("client") < 0 || setenv("COWFS_RUNDIR", dir, 1) < 0 ? -1 : 0;
}

TEST_GROUP(make_folder, workdir_remove)
