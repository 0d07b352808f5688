/* SPDX-License-Identifier: MIT */
/*
 * The server of requests with a simulated volume: several clients that connect, send whole and half
 * requests, pass descriptors, do not read and leave, in the order of the input. Then a client gets
 * its status, and no descriptor is left.
 *
 * Input: steps. A step: what u8 (low three bits: see enum step, the others: which client), then
 * what the step takes.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/passfd.h"
#include "daemon/server.h"
#include "fuzz.h"
#include "wire/proto.h"

enum step { CONNECT, SEND, REQUEST, HALF, PASS, READ, SHUTDOWN, LEAVE };
enum { PEERS = 32, MAX_STEPS = 256, WAIT_MS = 5000 };

static struct rundir dir = { -1, -1, -1, "" };
static struct server *server;
static int peer[PEERS];

/* ---- the simulated volume ---- */

int volume_run(struct volume *v, const struct volume_request *rq, struct volume_result *ret)
{
	*ret = (struct volume_result){ .job = rq->job, .error = -EROFS };
	snprintf(ret->why, sizeof(ret->why), "simulated");
	return ret->error;
}

void volume_get_status(struct volume *v, struct volume_status *ret)
{
	*ret = (struct volume_status){
		.name = "vol", .device = "/dev/null", .loop = "/dev/null", .mountpoint = "/"
	};
}

void volume_get_changes(struct volume *v, uint64_t first_blk, struct volume_changes *ret)
{
	*ret = (struct volume_changes){ .generation = first_blk };
}

void volume_get_wear(struct volume *v, uint32_t first, struct volume_wear *ret)
{
	memset(ret, 0, sizeof(*ret));
}

void volume_get_progress(const struct volume *v, struct volume_progress *ret)
{
	*ret = (struct volume_progress){ .job = JOB_NONE };
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
}

int transport_in_use(const struct transport *t)
{
	return 1;
}

bool transport_loops(struct transport *t, uint64_t cpu_ns)
{
	return false;
}

const struct loop_dev *transport_disk(const struct transport *t)
{
	static const struct loop_dev disk = { .path = "/dev/null" };

	return &disk;
}

/* ---- the server ---- */

static char run_path[] = "/dev/shm/cowfs-fuzz-XXXXXX";

static void stop(void)
{
	server_stop(server);
	rundir_release(&dir);
	server_farewell(server, 0, NULL);
	rmdir(run_path);
}

static void start(void)
{
	const struct server_params p = {
		.dir = &dir, .listen_fd = -1, .on_crash = "stop", .on_crash_why = ""
	};

	if (!mkdtemp(run_path) || setenv("COWFS_RUNDIR", run_path, 1) < 0 ||
	    rundir_claim(&dir, "vol") < 0 || server_start(&server, &p) < 0 || atexit(stop) != 0 ||
	    signal(SIGINT, exit) == SIG_ERR || signal(SIGTERM, exit) == SIG_ERR)
		abort();
	for (unsigned i = 0; i < PEERS; i++)
		peer[i] = -1;
}

static int join(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const struct timeval limit = { .tv_sec = WAIT_MS / 1000 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/vol/" RUNDIR_SOCKET, run_path);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
		abort();
	FUZZ_PROMISE(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static void leave(unsigned i)
{
	if (peer[i] >= 0)
		close(steal_fd(&peer[i]));
}

/* ---- steps ---- */

static size_t some_request(struct fuzz_input *in, char *text, size_t bytes)
{
	struct request rq = { .command = (enum proto_command)(fuzz_uint(in, 1) % 13) };
	unsigned bits = (unsigned)fuzz_uint(in, 2);
	size_t n;

	rq.dry_run = bits & 1;
	rq.checkpoint = bits & 2;
	rq.force = bits & 4;
	rq.no_wait = bits & 8;
	rq.timer = bits & 32;
	rq.cancel = bits & 64;
	rq.discard = bits & 256;
	rq.now = bits & 512;
	rq.scratch = bits & 1024;
	rq.first = bits >> 11;
	rq.seconds = bits >> 13;
	rq.deadline_ms = bits >> 14;
	n = request_render(&rq, text, bytes - 1);
	if (n && text[n - 1] != '\n')
		text[n++] = '\n';
	return n;
}

static int some_fd(unsigned kind, int sock_fd)
{
	switch (kind % 5) {
	case 0:
		return memfd_create("passed", MFD_CLOEXEC);
	case 1:
		return dup(sock_fd);
	case 2:
		return eventfd(0, EFD_CLOEXEC);
	case 3:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	default:
		return open(run_path, O_PATH | O_CLOEXEC);
	}
}

static void pass(struct fuzz_input *in, int sock_fd)
{
	unsigned n = 1 + (unsigned)fuzz_uint(in, 1) % PASSFD_MAX;
	unsigned kind = (unsigned)fuzz_uint(in, 1);
	size_t len;
	char text[1024];
	int fd[PASSFD_MAX];

	len = kind & 128 ? some_request(in, text, sizeof(text)) : 1;
	if (!(kind & 128))
		text[0] = (char)fuzz_uint(in, 1);
	for (unsigned i = 0; i < n; i++) {
		fd[i] = some_fd(kind + i, sock_fd);
		if (fd[i] < 0)
			abort();
	}
	(void)!passfd_send(sock_fd, text, len, fd, n, MSG_DONTWAIT);
	for (unsigned i = 0; i < n; i++)
		close(fd[i]);
}

static void send_text(int fd, const char *text, size_t len)
{
	(void)!send(fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_step(struct fuzz_input *in)
{
	unsigned what = (unsigned)fuzz_uint(in, 1), i = what >> 3;
	char text[4096];
	size_t n;

	if (peer[i] < 0)
		peer[i] = join();
	switch ((enum step)(what & 7)) {
	case CONNECT:
		break;
	case SEND:
		n = fuzz_uint(in, 1);
		n = min_u64(n, in->left);
		send_text(peer[i], (const char *)in->p, n);
		in->p += n;
		in->left -= n;
		break;
	case REQUEST:
		n = some_request(in, text, sizeof(text));
		for (unsigned k = (unsigned)fuzz_uint(in, 1) % 64; k; k--)
			send_text(peer[i], text, n);
		send_text(peer[i], text, n);
		break;
	case HALF:
		n = some_request(in, text, sizeof(text));
		send_text(peer[i], text, n * fuzz_uint(in, 1) / 256);
		break;
	case PASS:
		pass(in, peer[i]);
		break;
	case READ:
		(void)!recv(peer[i], text, sizeof(text), MSG_DONTWAIT);
		break;
	case SHUTDOWN:
		shutdown(peer[i], SHUT_WR);
		break;
	case LEAVE:
		leave(i);
		break;
	}
}

static void status_is_answered(void)
{
	static const char rq[] = "{\"version\":1,\"command\":\"status\"}\n";
	char answer[16384];
	size_t len = 0;
	int fd = join();

	send_text(fd, rq, sizeof(rq) - 1);
	while (!len || answer[len - 1] != '\n') {
		ssize_t n = recv(fd, answer + len, sizeof(answer) - len, 0);

		FUZZ_PROMISE(n > 0);
		len += (size_t)n;
	}
	FUZZ_PROMISE(len > 10 && !memcmp(answer, "{\"ok\":true", 10));
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	unsigned before;

	if (!server)
		start();
	before = fuzz_fds();
	for (unsigned n = 0; in.left && n < MAX_STEPS; n++)
		take_step(&in);
	for (unsigned i = 0; i < PEERS; i++)
		leave(i);
	status_is_answered();
	for (uint64_t until_ns = now_ns() + WAIT_MS * 1000000ull; fuzz_fds() > before;) {
		FUZZ_PROMISE(now_ns() < until_ns);
		usleep(200);
	}
	return 0;
}
