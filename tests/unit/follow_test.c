/* SPDX-License-Identifier: MIT */
/* What `cowctl status --follow` tells, and when, of a volume that says what it likes. Time passes in poll(2) only. */
#include "test.h"

#include <poll.h>
#include <stdio_ext.h>
#include <time.h>

#include "cli/cmd.h"
#include "wire/client.h"
#include "attach/leftover.h"

#define S 1000000000ull

static uint64_t clock_ns, began_ns;
static int out_fd;
static off_t told_bytes;

/* What the status says; it changes every second until changes_s, and the program is ended at end_s. */
static struct {
	const char *(*alarm)(uint64_t s);
	bool (*degraded)(uint64_t s);
	uint64_t changes_s, end_s;
} volume;

static uint64_t now_s(void)
{
	return (clock_ns - began_ns) / S;
}

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

size_t __wrap_client_volumes(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES]);
size_t __wrap_client_volumes(char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES])
{
	snprintf(names[0], RUNDIR_NAME_BYTES, "vol");
	return 1;
}

size_t __wrap_leftover_volumes(struct leftover_volume list[CLIENT_VOLUMES]);
size_t __wrap_leftover_volumes(struct leftover_volume list[CLIENT_VOLUMES])
{
	(void)list;
	return 0;
}

struct json_object *__wrap_client_status_file(const char *which, struct failure *err);
struct json_object *__wrap_client_status_file(const char *which, struct failure *err)
{
	struct json_object *o = json_object_new_object(), *p = json_object_new_object();

	(void)which;
	(void)err;
	json_object_object_add(p, "level", json_object_new_string("ok"));
	json_object_object_add(o, "pressure", p);
	if (volume.alarm)
		json_object_object_add(o, "alarm", json_object_new_string(volume.alarm(now_s())));
	if (volume.degraded)
		json_object_object_add(o, "degraded",
				       json_object_new_boolean(volume.degraded(now_s())));
	return o;
}

/* Behind what was just told: the second. At the end: an error of stdout. */
static void look_at_output(void)
{
	struct stat st;

	if (fstat(out_fd, &st) < 0)
		abort();
	if (st.st_size != told_bytes)
		dprintf(out_fd, "at %u\n", (unsigned)now_s());
	if (fstat(out_fd, &st) < 0)
		abort();
	told_bytes = st.st_size;
}

static void end_output(void)
{
	int full_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	if (full_fd < 0 || dup2(full_fd, STDOUT_FILENO) < 0)
		abort();
	close(full_fd);
	if (putchar('x') == EOF || fflush(stdout) == 0)
		abort();
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	uint64_t until_ns = clock_ns + (uint64_t)timeout_ms * 1000000;
	uint64_t next_ns = began_ns + (now_s() + 1) * S;

	(void)fds;
	look_at_output();
	clock_ns = n && now_s() < volume.changes_s ? min_u64(until_ns, next_ns) : until_ns;
	if (n && now_s() >= volume.end_s)
		end_output();
	return 0;
}

/* Its lines, with the seconds. */
static const char *follow(void)
{
	static char text[65536];
	static struct options o;
	int saved = dup(STDOUT_FILENO);
	ssize_t n;

	out_fd = memfd_create("out", MFD_CLOEXEC);
	assert_true(saved >= 0 && out_fd >= 0);
	told_bytes = 0;
	began_ns = clock_ns += 1000 * S;
	fflush(stdout);
	assert_int_equal(fcntl(out_fd, F_SETFL, O_APPEND), 0);
	assert_true(dup2(out_fd, STDOUT_FILENO) >= 0);
	(void)!status_follow(&o);
	assert_true(dup2(saved, STDOUT_FILENO) >= 0);
	__fpurge(stdout);
	clearerr(stdout);
	close(saved);
	n = pread(out_fd, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(out_fd);
	return text;
}

static const char *toggles(uint64_t s)
{
	return s % 2 ? "" : "a";
}

static const char *others(uint64_t s)
{
	return s < 5 ? "a" : s < 10 ? "b" : "c";
}

static const char *is_long(uint64_t s)
{
	static char text[400];

	(void)s;
	memset(text, 'x', sizeof(text) - 1);
	return text;
}

static bool is_even(uint64_t s)
{
	return s % 2 == 0;
}

/* An alarm that begins and ends every two seconds. */
TEST(test_alarm_toggles)
{
	volume = (typeof(volume)){ toggles, NULL, 130, 200 };
	assert_string_equal(follow(), "vol alarm a\nat 0\nvol alarm-over a\nat 1\n"
				      "vol alarm a\nat 60\nvol alarm-over a\nat 61\n"
				      "vol alarm a\nat 120\nvol alarm-over a\nat 121\n"
				      "vol alarm a\nat 180\n");
}

/* The last one of a minute is told at its end, also if nothing changes then. */
TEST(test_alarm_changes)
{
	volume = (typeof(volume)){ others, NULL, 11, 200 };
	assert_string_equal(follow(), "vol alarm a\nat 0\nvol alarm c\nat 60\n");
}

/* One that is longer than what is remembered is one all the same. */
TEST(test_alarm_is_long)
{
	char told[500];

	snprintf(told, sizeof(told), "vol alarm %s\nat 0\n", is_long(0));
	volume = (typeof(volume)){ is_long, NULL, 130, 200 };
	assert_string_equal(follow(), told);
}

TEST(test_degraded_toggles)
{
	volume = (typeof(volume)){ NULL, is_even, 61, 100 };
	assert_string_equal(follow(), "vol degraded see cowctl status\nat 0\n"
				      "vol healthy see cowctl status\nat 1\n"
				      "vol degraded see cowctl status\nat 60\n"
				      "vol healthy see cowctl status\nat 61\n");
}
