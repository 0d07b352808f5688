/* SPDX-License-Identifier: MIT */
/* Server and client over a real socket, with a simulated volume. */
#include "test.h"

#include <semaphore.h>
#include <sys/un.h>

#include "wire/client.h"
#include "daemon/server.h"

#define MS 1000000ull

/* ---- the simulated volume ---- */

static atomic_int in_use, armed, running, job_result;
static atomic_bool looping, held;
static atomic_uint job_ms, runs, most_at_once;
static struct volume_request last_request;

int volume_run(struct volume *v, const struct volume_request *rq, struct volume_result *ret)
{
	unsigned now = (unsigned)atomic_fetch_add(&running, 1) + 1;

	if (now > most_at_once)
		most_at_once = now;
	last_request = *rq;
	do
		usleep(job_ms * 1000 + 1000);
	while (held);
	*ret = (struct volume_result){ .job = rq->job, .error = job_result, .generation = ++runs };
	ret->report.need_blks = 77;
	if (job_result)
		snprintf(ret->why, sizeof(ret->why), "the ring cannot hold it");
	running--;
	return ret->error;
}

void volume_get_status(struct volume *v, struct volume_status *ret)
{
	*ret = (struct volume_status){ .name = "vol",
				       .device = "/dev/null",
				       .loop = "/dev/loop99" };
	ret->log.generation = runs;
	ret->discard_armed = armed;
}

/* as if every other block of this number were uncommitted */
enum { PRETENDED_BLKS = 2000 };

void volume_get_changes(struct volume *v, uint64_t first_blk, struct volume_changes *ret)
{
	*ret = (struct volume_changes){ .generation = 5 };
	for (uint64_t blk = first_blk + first_blk % 2; blk < PRETENDED_BLKS; blk += 2) {
		if (ret->runs == VOLUME_CHANGES_RUNS) {
			ret->next_blk = blk;
			return;
		}
		/* with the longest numbers */
		ret->run[ret->runs].blk = UINT32_MAX - PRETENDED_BLKS + blk;
		ret->run[ret->runs++].blks = UINT32_MAX;
	}
}

void volume_get_progress(const struct volume *v, struct volume_progress *ret)
{
	*ret = (struct volume_progress){ .job = running ? JOB_COMMIT : JOB_NONE,
					 .phase = PHASE_LOG };
}

void volume_end_view(struct volume *v, struct snapshot *s)
{
}

void volume_end_scratch(struct volume *v, struct scratch *s)
{
}

void volume_inhibit(struct volume *v, uint64_t ns)
{
}

void volume_detach_later(struct volume *v)
{
}

void volume_arm_discard(struct volume *v, bool on)
{
	armed = on;
}

int transport_in_use(const struct transport *t)
{
	return in_use;
}

bool transport_loops(struct transport *t, uint64_t cpu_ns)
{
	return looping && cpu_ns == 7;
}

const struct loop_dev *transport_disk(const struct transport *t)
{
	static const struct loop_dev disk = { .path = "/dev/loop99" };

	return &disk;
}

/* ---- fixture ---- */

static char run_path[] = "/dev/shm/cowfs-server-test-XXXXXX";
static struct rundir dir = { -1, -1, -1, "" };
static struct server *server;
static atomic_int ended, let_go_result;
static struct signs signs;

static int let_go(void *ctx)
{
	return let_go_result;
}

static void on_ended(void *ctx)
{
	ended = 1;
}

static int setup(void **state)
{
	const struct server_params p = { .dir = &dir,
					 .listen_fd = -1,
					 .on_crash = "stop",
					 .on_crash_why = "",
					 .signs = &signs,
					 .stuck_ns = 7,
					 .let_go = let_go,
					 .ended = on_ended };

	in_use = armed = job_result = ended = let_go_result = 0;
	job_ms = runs = most_at_once = 0;
	if (rundir_claim(&dir, "vol") < 0)
		return -1;
	return server_start(&server, &p);
}

static int teardown(void **state)
{
	held = false;
	server_stop(server);
	rundir_release(&dir);
	server_farewell(server, 0, NULL);
	return 0;
}

static struct json_object *call(enum proto_command command, struct request rq, client_event *event,
				void *ctx)
{
	struct failure err = { 0 };
	struct json_object *o;
	struct client c;

	rq.command = command;
	if (client_open(&c, "vol", &err) < 0)
		fail_msg("%s", err.why);
	o = client_call(&c, &rq, event, ctx, &err);
	if (!o)
		fail_msg("%s", err.why);
	client_close(&c);
	return o;
}

static int code_of(struct json_object *o) /* of an answer, which it releases */
{
	bool ok = json_object_get_boolean(json_object_object_get(o, "ok"));
	const char *code = json_object_get_string(json_object_object_get(o, "code"));
	int e = ok ? 0 : !strcmp(code, "EBUSY") ? -EBUSY : !strcmp(code, "EFBIG") ? -EFBIG : -EIO;

	json_object_put(o);
	return e;
}

static void *commit_thread(void *arg)
{
	atomic_store((atomic_int *)arg,
		     1 + code_of(call(COMMAND_COMMIT, (struct request){ 0 }, NULL, NULL)));
	return NULL;
}

static uint64_t status_ns(void)
{
	uint64_t start = now_ns();

	assert_int_equal(code_of(call(COMMAND_STATUS, (struct request){ 0 }, NULL, NULL)), 0);
	return now_ns() - start;
}

/* One that waits for others waits each time; a busy machine does not. */
static bool status_soon(void)
{
	return status_ns() < 500 * MS || status_ns() < 500 * MS || status_ns() < 500 * MS;
}

static int raw_connect(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/vol/control", run_path);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* A client that says all that it has to say; then all that it hears. */
static int says(const char *text)
{
	int fd = raw_connect();

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	shutdown(fd, SHUT_WR);
	return fd;
}

static const char *hears(int fd)
{
	static char answer[16384];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, answer + len, sizeof(answer) - 1 - len)) > 0)
		len += (size_t)n;
	answer[len] = '\0';
	close(fd);
	return answer;
}

/* ---- tests ---- */

TEST(test_status, setup, teardown)
{
	struct json_object *o = call(COMMAND_STATUS, (struct request){ 0 }, NULL, NULL);
	struct failure err;
	char path[128];
	struct stat st;

	assert_string_equal(json_object_get_string(json_object_object_get(o, "name")), "vol");
	json_object_put(o);
	assert_int_equal(code_of(call(COMMAND_DISCARD, (struct request){ 0 }, NULL, NULL)), 0);
	assert_int_equal(armed, 1);
	for (bool there = false; !there; json_object_put(o)) { /* the change comes into the file */
		usleep(10000);
		o = client_status_file(NULL, &err);
		assert_non_null(o);
		there = json_object_get_boolean(json_object_object_get(o, "discard_armed"));
	}
	snprintf(path, sizeof(path), "%s/vol/control", run_path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	snprintf(path, sizeof(path), "%s/vol/status.json", run_path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
}

static bool count_events(void *ctx, struct json_object *event)
{
	held = ++*(int *)ctx < 4;
	return true;
}

static bool wait_no_longer(void *ctx, struct json_object *event)
{
	return !running || ++*(int *)ctx < 2; /* one that only waits would not be made */
}

/* A list of any length comes in parts that fit into an answer. */
TEST(test_changes, setup, teardown)
{
	unsigned runs_seen = 0, parts = 0;
	uint64_t next = 0;

	do {
		struct json_object *o = call(COMMAND_CHANGES, (struct request){ .first = next },
					     NULL, NULL);
		struct json_object *list = json_object_object_get(o, "runs");

		assert_true(json_object_get_boolean(json_object_object_get(o, "ok")));
		assert_int_equal(
			json_object_get_uint64(json_object_object_get(o, "newest_generation")), 5);
		for (size_t i = 0; i < json_object_array_length(list); i += 2, runs_seen++)
			assert_int_equal(json_object_get_uint64(json_object_array_get_idx(list, i)),
					 UINT32_MAX - PRETENDED_BLKS + 2 * runs_seen);
		next = json_object_get_uint64(json_object_object_get(o, "next"));
		json_object_put(o);
		parts++;
	} while (next);
	assert_int_equal(runs_seen, PRETENDED_BLKS / 2);
	assert_int_equal(parts, 2);
}

TEST(test_status_during_commit, setup, teardown)
{
	pthread_t first, second;
	atomic_int one = 5, two = 5;

	held = true;
	pthread_create(&first, NULL, commit_thread, &one);
	pthread_create(&second, NULL, commit_thread, &two);
	while (!running)
		usleep(1000);
	for (int i = 0; i < 20; i++)
		(void)status_ns();
	assert_int_equal(
		code_of(call(COMMAND_COMMIT, (struct request){ .no_wait = true }, NULL, NULL)),
		-EBUSY);
	held = false;
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	assert_int_equal(one, 1);
	assert_int_equal(two, 1);
	assert_int_equal(runs, 2);
	assert_int_equal(most_at_once, 1);
}

TEST(test_progress, setup, teardown)
{
	uint64_t begin_ns = now_ns();
	int events = 0;

	held = true;
	assert_int_equal(code_of(call(COMMAND_COMMIT, (struct request){ .checkpoint = true },
				      count_events, &events)),
			 0);
	assert_true(last_request.checkpoint && last_request.job == JOB_COMMIT);
	assert_true(events >= 4 && now_ns() - begin_ns > 600 * MS); /* five a second */
}

/* The client leaves, and the daemon goes on. */
TEST(test_wait_ends, setup, teardown)
{
	const struct request rq = { .command = COMMAND_COMMIT };
	struct failure err = { 0 };
	struct client c;
	int events = 0;

	held = true;
	assert_int_equal(client_open(&c, "vol", &err), 0);
	assert_null(client_call(&c, &rq, wait_no_longer, &events, &err));
	assert_int_equal(err.error, -ETIMEDOUT);
	assert_int_equal(events, 2);
	client_close(&c);
	assert_int_equal(
		code_of(call(COMMAND_COMMIT, (struct request){ .no_wait = true }, NULL, NULL)),
		-EBUSY);
	held = false;
	assert_int_equal(code_of(call(COMMAND_COMMIT, (struct request){ 0 }, NULL, NULL)), 0);
	assert_int_equal(runs, 2);
}

TEST(test_commit_error, setup, teardown)
{
	struct json_object *o, *report;

	job_result = -EFBIG;
	o = call(COMMAND_COMMIT, (struct request){ .dry_run = true }, NULL, NULL);
	assert_int_equal(last_request.job, JOB_DRY_RUN);
	assert_string_equal(json_object_get_string(json_object_object_get(o, "error")),
			    "the ring cannot hold it");
	report = json_object_object_get(o, "report"); /* with the numbers */
	assert_int_equal(json_object_get_int(json_object_object_get(report, "log_need_blocks")),
			 77);
	assert_int_equal(code_of(o), -EFBIG);
}

TEST(test_silent_clients, setup, teardown)
{
	uint64_t begin_ns = now_ns();
	int fds[200];
	char c;

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = raw_connect();
		usleep(200); /* the backlog is limited */
	}
	assert_true(now_ns() - begin_ns > 300 * MS); /* each of 32 has its place for 100 ms */
	assert_true(status_soon());
	assert_int_equal(recv(fds[0], &c, 1, MSG_DONTWAIT), 0); /* the oldest was dropped */
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	assert_true(status_soon());
}

TEST(test_client_that_never_reads, setup, teardown)
{
	static const char rq[] = "{\"version\":1,\"command\":\"status\"}\n";
	int fd = raw_connect(), sent = 0;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 20000; i++) {
		ssize_t n = send(fd, rq, sizeof(rq) - 1, MSG_NOSIGNAL);

		if (n < 0 && errno == EPIPE)
			break;
		if (n < 0)
			usleep(1000);
		if (++sent % 1000 == 0)
			assert_true(status_soon());
	}
	assert_true(send(fd, rq, sizeof(rq) - 1, MSG_NOSIGNAL) < 0 && errno == EPIPE); /* dropped */
	close(fd);
}

TEST(test_long_line, setup, teardown)
{
	static char junk[PROTO_LINE_BYTES + 1000];
	int fd = raw_connect();
	char answer[512];
	ssize_t n;

	memset(junk, 'x', sizeof(junk));
	for (size_t i = 0; i < sizeof(junk); i += 1000)
		if (send(fd, junk, 1000, MSG_NOSIGNAL) < 0)
			break;
	n = read(fd, answer, sizeof(answer) - 1);
	assert_true(n > 0);
	answer[n] = '\0';
	assert_non_null(strstr(answer, "E2BIG"));
	assert_true(read(fd, answer, sizeof(answer)) <= 0); /* and closed */
	close(fd);
}

TEST(test_half_closed, setup, teardown)
{
	static const char rq[] =
		"{\"version\":1,\"command\":\"commit\"}\n{\"version\":1,\"command\":\"status\"}\n";
	const char *answer;

	job_ms = 300;
	answer = hears(says(rq));
	assert_non_null(strstr(answer, "\"generation\":1,"));
	assert_non_null(strstr(answer, "\"ram_limit_bytes\"")); /* the second one was also served */
}

/* They are served as they came. Who has asked for nothing hears nothing. */
TEST(test_many, setup, teardown)
{
	int fd[12], idle = raw_connect();
	char expected[32];

	job_ms = 100;
	for (unsigned i = 0; i < ARRAY_SIZE(fd); i++)
		fd[i] = says("{\"version\":1,\"command\":\"commit\"}\n");
	for (unsigned i = 0; i < ARRAY_SIZE(fd); i++) {
		snprintf(expected, sizeof(expected), "\"generation\":%u,", i + 1);
		assert_non_null(strstr(hears(fd[i]), expected));
	}
	assert_int_equal(recv(idle, expected, 1, MSG_DONTWAIT), -1);
	close(idle);
}

TEST(test_gone_before_its_turn, setup, teardown)
{
	static const char rq[] = "{\"version\":1,\"command\":\"commit\"}\n";
	int first = raw_connect(), second = raw_connect();

	held = true;
	assert_int_equal(write(first, rq, sizeof(rq) - 1), sizeof(rq) - 1);
	while (!running)
		usleep(1000);
	assert_int_equal(write(second, rq, sizeof(rq) - 1), sizeof(rq) - 1);
	status_ns();   /* now the server has it */
	close(second); /* waiting: not started */
	close(first);  /* running: continues */
	status_ns();
	held = false;
	assert_int_equal(code_of(call(COMMAND_COMMIT, (struct request){ 0 }, NULL, NULL)), 0);
	assert_int_equal(runs, 2);
}

TEST(test_other_user, setup, teardown)
{
	int status;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	assert_int_equal(fchmodat(dir.fd, RUNDIR_SOCKET, 0666, 0), 0);
	chmod(run_path, 0755);
	pid = fork();
	if (pid == 0) {
		struct request rq = { .command = COMMAND_COMMIT };
		struct failure err;
		struct client c;
		struct json_object *o = NULL;

		if (setgid(65534) == 0 && setuid(65534) == 0 && client_open(&c, "vol", &err) == 0)
			o = client_call(&c, &rq, NULL, NULL, &err);
		_exit(o && strstr(json_object_to_json_string(o), "only root") ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(runs, 0);
	assert_int_equal(fchmodat(dir.fd, RUNDIR_SOCKET, 0600, 0), 0);
	pid = fork();
	if (pid == 0) {
		struct failure err = { 0 };
		struct client c;
		bool ok = setgid(65534) == 0 && setuid(65534) == 0 &&
			  client_open(&c, NULL, &err) < 0 && err.exit == EXIT_FAILED &&
			  strstr(err.why, "permission");
		struct json_object *o = client_status_file(NULL, &err);

		_exit(ok && o ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

TEST(test_names, setup, teardown)
{
	struct rundir other = { -1, -1, -1, "" };
	struct failure err;
	char name[RUNDIR_NAME_BYTES];
	struct client c;

	assert_int_equal(rundir_claim(&other, "vol"), -EBUSY);
	assert_int_equal(rundir_claim(&other, "../x"), -EINVAL);
	assert_int_equal(client_open(&c, NULL, &err), 0);
	assert_string_equal(c.name, "vol");
	client_close(&c);
	assert_int_equal(client_open(&c, "/dev/loop99", &err), 0);
	client_close(&c);
	client_find_device("/dev/null", name);
	assert_string_equal(name, "vol");
	assert_int_equal(client_open(&c, "nobody", &err), -ESRCH);
	assert_int_equal(err.exit, EXIT_NOT_RUNNING);
	/* neither a start that was cut nor a volume whose daemon has died is counted; that is reported if it is addressed */
	assert_int_equal(rundir_claim(&other, "dead"), 0);
	assert_int_equal(client_open(&c, NULL, &err), 0);
	client_close(&c);
	assert_int_equal(client_open(&c, "dead", &err), -ESRCH);
	assert_int_equal(err.exit, EXIT_NOT_RUNNING);
	assert_non_null(strstr(err.why, "no volume"));
	assert_int_equal(rundir_publish(&other, RUNDIR_STATUS, "{}", 2), 0);
	assert_int_equal(client_open(&c, "dead", &err), -ESRCH);
	assert_non_null(strstr(err.why, "died"));
	rundir_release(&other);
}

TEST(test_detach_refused, setup, teardown)
{
	in_use = 1;
	assert_int_equal(
		code_of(call(COMMAND_DETACH, (struct request){ .discard = true }, NULL, NULL)),
		-EBUSY);
	assert_int_equal(runs, 0);
	assert_int_equal(armed, 0);
	in_use = 0;
	job_result = -EIO; /* the commit fails: the discard that was not asked for stays disabled */
	assert_int_equal(
		code_of(call(COMMAND_DETACH, (struct request){ .discard = true }, NULL, NULL)),
		-EIO);
	assert_int_equal(armed, 0);
	job_result = 0;
	let_go_result = -EBUSY;
	assert_int_equal(
		code_of(call(COMMAND_DETACH, (struct request){ .discard = true }, NULL, NULL)),
		-EBUSY);
	assert_int_equal(armed, 0);
	assert_int_equal(ended, 0);
	assert_true(status_soon());
}

static void *detach_thread(void *arg)
{
	atomic_store(
		(atomic_int *)arg,
		1 + code_of(call(COMMAND_DETACH, (struct request){ .discard = true }, NULL, NULL)));
	return NULL;
}

TEST(test_detach, setup, teardown)
{
	atomic_int result = 5;
	pthread_t thread;

	pthread_create(&thread, NULL, detach_thread, &result);
	while (!ended)
		usleep(1000);
	assert_int_equal(armed, 1);
	assert_int_equal(last_request.job, JOB_DETACH);
	usleep(100000);
	assert_int_equal(result, 5); /* not before everything is released */
	teardown(state);
	pthread_join(thread, NULL);
	assert_int_equal(result, 1);
	setup(state);
}

/* The parent process sees no sign of life while a request loops. Status is answered. */
TEST(test_loops, setup, teardown)
{
	uint32_t seen = signs.alive;

	for (unsigned i = 0; i < 5; i++)
		code_of(call(COMMAND_STATUS, (struct request){ 0 }, NULL, NULL));
	assert_int_not_equal(signs.alive, seen);
	looping = true;
	usleep(50000); /* the round that is under way */
	code_of(call(COMMAND_STATUS, (struct request){ 0 }, NULL, NULL));
	seen = signs.alive;
	for (unsigned i = 0; i < 5; i++)
		code_of(call(COMMAND_STATUS, (struct request){ 0 }, NULL, NULL));
	assert_int_equal(signs.alive, seen);
	looping = false;
	for (unsigned i = 0; i < 5; i++)
		code_of(call(COMMAND_STATUS, (struct request){ 0 }, NULL, NULL));
	assert_int_not_equal(signs.alive, seen);
}

static int make_run_path(void **state)
{
	return mkdtemp(run_path) && setenv("COWFS_RUNDIR", run_path, 1) == 0 ? 0 : -1;
}

static int remove_run_path(void **state)
{
	return rmdir(run_path); /* nothing is left */
}

TEST_GROUP(make_run_path, remove_run_path)
