// SPDX-License-Identifier: MIT
/*
 * boxed.h: what code gets that has taken over a parser. Each attempt is made in a boxed child, which
 * says what came of it; as root, the child would be allowed all of it without the box.
 */
#include "test.h"
#include <poll.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <linux/fs.h>

#include "base/boxed.h"
#include "base/sandbox.h"

struct attempt {
	char name[32];
	int64_t r;
};

struct trial {
	int image, other;
	pid_t parent;
	unsigned heard, succeeded;
	uint64_t bytes;
};

static void made(struct boxed *b, const char *name, long r)
{
	struct attempt a = { .r = r };

	strncpy(a.name, name, sizeof(a.name) - 1);
	boxed_say(b, &a, sizeof(a));
}

/* Arguments that do no harm where there is no box: then the error is another one, or none. */
#define TRY(name, ...) made(b, name, syscall(__VA_ARGS__) == -1 && errno == EPERM ? -1 : 0)

static int hostile(void *ctx, struct boxed *b)
{
	struct trial *t = ctx;
	struct stat st;

	TRY("open", SYS_openat, AT_FDCWD, "/etc/shadow", O_RDONLY);
	TRY("open world-readable", SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY);
	TRY("stat", SYS_newfstatat, AT_FDCWD, "/etc/passwd", &st, 0);
	TRY("socket", SYS_socket, AF_UNIX, SOCK_STREAM, 0);
	TRY("kill parent", SYS_kill, t->parent, 0);
	TRY("ptrace", SYS_ptrace, -1, t->parent, 0, 0);
	TRY("memory of parent", SYS_process_vm_readv, t->parent, NULL, 0, NULL, 0, 0);
	TRY("fork", SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0);
	TRY("execve", SYS_execve, "/nonexistent", NULL, NULL);
	TRY("mount", SYS_mount, "none", "/nonexistent", "tmpfs", 0, NULL);
	TRY("unshare", SYS_unshare, 0);
	TRY("setuid", SYS_setuid, 0);
	TRY("write image", SYS_pwrite64, t->image, "x", 1, 100);
	TRY("write image at offset", SYS_write, t->image, "", 0);
	TRY("truncate image", SYS_ftruncate, t->image, 5);
	TRY("discard", SYS_ioctl, t->image, BLKDISCARD, NULL);
	TRY("flags of image", SYS_fcntl, t->image, F_SETFL, O_APPEND);
	TRY("duplicate", SYS_dup, t->image);
	TRY("memfd", SYS_memfd_create, "x", 0);
	TRY("io_uring", SYS_io_uring_setup, 1, NULL);
	TRY("io_submit", SYS_io_setup, 1, NULL);
	TRY("pidfd", SYS_pidfd_open, t->parent, 0);
	TRY("descriptors", SYS_recvmsg, *(int *)b, NULL, 0);
	TRY("map image", SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, t->image, 0);
	made(b, "another descriptor", fstat(t->other, &st));
	made(b, "standard error", fstat(2, &st));
	return 0;
}

/* Its own geteuid() is no call that it may make. In a user namespace its user may be missing. */
static bool child_is_root(void)
{
	char path[64], text[8192];

	if (io_read_text(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text)) <= 0 ||
	    !strstr(text, " 4294967295") ||
	    io_read_text(AT_FDCWD, "/proc/thread-self/children", text, sizeof(text)) <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/status", atoi(text));
	return io_read_text(AT_FDCWD, path, text, sizeof(text)) > 0 && strstr(text, "\nUid:\t0\t");
}

static int hear(void *ctx, const void *message, size_t bytes)
{
	const struct attempt *a = message;
	struct trial *t = ctx;

	t->bytes += bytes;
	if (bytes != sizeof(*a) && bytes != BOXED_MESSAGE_BYTES)
		return -EPROTO;
	if (!t->heard++ && child_is_root())
		t->succeeded++;
	if (a->r >= 0) {
		fprintf(stderr, "%s: got through\n", a->name);
		t->succeeded++;
	}
	return 0;
}

static int run(struct trial *t, int (*work)(void *ctx, struct boxed *b))
{
	const struct boxed_job job = {
		.work = work, .hear = hear, .ctx = t, .fd = { t->image }, .fds = 1
	};

	return boxed_run(&job);
}

static struct trial setup(void)
{
	char path[] = "/tmp/boxed.XXXXXX";
	struct trial t = { .image = mkstemp(path),
			   .other = open("/dev/zero", O_RDONLY | O_CLOEXEC),
			   .parent = getpid() };

	assert_true(t.image > 2 && t.other > 2);
	assert_int_equal(pwrite(t.image, "image", 5, 0), 5);
	unlink(path);
	return t;
}

static void teardown(struct trial *t)
{
	char text[5];

	assert_int_equal(lseek(t->image, 0, SEEK_END), 5);
	assert_int_equal(pread(t->image, text, 5, 0), 5);
	assert_memory_equal(text, "image", 5);
	close(t->image);
	close(t->other);
	/* no child is left */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

TEST(test_hostile)
{
	struct trial t = setup();

	if (SANDBOX_SANITIZED)
		skip();
	assert_int_equal(run(&t, hostile), 0);
	assert_int_equal(t.heard, 26);
	assert_int_equal(t.succeeded, 0);
	teardown(&t);
}

static int reads(void *ctx, struct boxed *b)
{
	struct trial *t = ctx;
	char text[5];

	made(b, "image", pread(t->image, text, 5, 0) == 5 && !memcmp(text, "image", 5) ? -1 : 0);
	return -EUCLEAN;
}

/* What it is for works, and its result arrives. */
TEST(test_result)
{
	struct trial t = setup();

	assert_int_equal(run(&t, reads), -EUCLEAN);
	assert_int_equal(t.heard, 1);
	assert_int_equal(t.succeeded, 0);
	teardown(&t);
}

static int crashes(void *ctx, struct boxed *b)
{
	signal(SIGSEGV, SIG_DFL);
	__builtin_trap();
}

static int leaves(void *ctx, struct boxed *b)
{
	_exit(0);
}

static int lies(void *ctx, struct boxed *b)
{
	boxed_say(b, "garbage", 7);
	return 0;
}

/* The socket is not this library's alone: the head of a message is garbage as well. */
static int lies_in_head(void *ctx, struct boxed *b)
{
	uint8_t noise[4096];

	memset(noise, 0xff, sizeof(noise));
	for (;;)
		(void)!write(*(int *)b, noise, sizeof(noise));
	return 0;
}

static int positive(void *ctx, struct boxed *b)
{
	return 1;
}

static int talks(void *ctx, struct boxed *b)
{
	static uint8_t huge[BOXED_MESSAGE_BYTES];

	memset(huge, 0xff, sizeof(huge));
	for (;;)
		boxed_say(b, huge, sizeof(huge));
	return 0;
}

static int eats(void *ctx, struct boxed *b)
{
	for (uint64_t all = 0; all < 16 * GIB; all += 16 * MIB) {
		void *p = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		if (p == MAP_FAILED)
			return -ENOMEM;
	}
	made(b, "memory", 0);
	return 0;
}

static int sleeps(void *ctx, struct boxed *b)
{
	uint8_t room;

	for (;;)
		(void)!read(*(int *)b, &room, 1);
	return 0;
}

static int spins(void *ctx, struct boxed *b)
{
	for (;;)
		__asm__ volatile("");
	return 0;
}

TEST(test_ends)
{
	static const struct {
		int (*work)(void *ctx, struct boxed *b);
		int r;
		const char *text;
		bool unsanitized;
	} cases[] = {
		{ crashes, -EOWNERDEAD, "made its reader crash (signal ", false },
		{ leaves, -EOWNERDEAD, "made its reader exit", false },
		{ lies, -EOWNERDEAD, "made its reader send an invalid answer", false },
		{ lies_in_head, -EOWNERDEAD, "made its reader send an invalid answer", false },
		{ positive, -EOWNERDEAD, "made its reader send an invalid answer", false },
		{ talks, -EOWNERDEAD, "made its reader send an invalid answer", true },
		{ eats, -ENOMEM, "Cannot allocate memory", true },
		{ sleeps, -EOWNERDEAD, "made its reader take longer than 1 s", false },
		{ spins, -EOWNERDEAD, "made its reader take longer than 1 s", false },
	};
	unsigned patience = boxed_patience_s;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct trial t = setup();
		int r;

		if (cases[i].unsanitized && SANDBOX_SANITIZED)
			continue;
		boxed_patience_s = cases[i].work == sleeps || cases[i].work == spins ? 1 : 600;
		r = run(&t, cases[i].work);
		assert_int_equal(r, cases[i].r);
		if (!strstr(boxed_error(r), cases[i].text))
			fail_msg("%s, not %s", boxed_error(r), cases[i].text);
		assert_true(t.bytes <= GIB);
		teardown(&t);
	}
	boxed_patience_s = patience;
}

static int says_now(void *ctx, struct boxed *b)
{
	boxed_say(b, "one", 4);
	boxed_say_now(b, "two", 4);
	return spins(ctx, b);
}

static int stops(void *ctx, const void *message, size_t bytes)
{
	return strcmp(message, "two") ? 0 : -ENOMEM;
}

TEST(test_said_now)
{
	const struct boxed_job job = { .work = says_now, .hear = stops };

	assert_int_equal(boxed_run(&job), -ENOMEM);
}

/* Whoever waits for the child is killed: the child, which is in a loop, ends as well. */
TEST(test_parent_dies)
{
	int pair[2];
	struct boxed_job job = { .work = spins, .hear = stops, .fds = 1 };
	struct pollfd p;
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(pair), 0);
	job.fd[0] = pair[1];
	pid = fork();
	if (pid == 0) {
		close(pair[0]);
		_exit(boxed_run(&job) != 0);
	}
	close(pair[1]);
	usleep(300000);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	p = (struct pollfd){ .fd = pair[0], .events = POLLIN };
	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(read(pair[0], &byte, 1), 0);
	close(pair[0]);
}

/* ---- a child that stays ---- */

struct stayer {
	int image, sock; /* of the child */
};

static int sees(void *ctx, struct boxed *b)
{
	boxed_say(b, "seen", 4);
	return 0;
}

static int fails(void *ctx, struct boxed *b)
{
	return -EUCLEAN;
}

static int hears_seen(void *ctx, const void *message, size_t bytes)
{
	return bytes == 4 && !memcmp(message, "seen", 4) ? 0 : -EPROTO;
}

#define REFUSED(...) (syscall(__VA_ARGS__) == -1 && errno == EPERM)

/* For each byte: what is refused, a bit each. */
static void serves(void *ctx)
{
	struct stayer *s = ctx;
	const struct iovec one = { .iov_base = (char[]){ "x" }, .iov_len = 1 };
	char byte;

	while (read(s->sock, &byte, 1) == 1) {
		byte = (char)(REFUSED(SYS_writev, s->image, &one, 1) << 0 |
			      REFUSED(SYS_write, s->sock, "x", 1) << 1 |
			      REFUSED(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY) << 2 |
			      REFUSED(SYS_kill, 1, 0) << 3 | (geteuid() != 0) << 4 |
			      (getsid(0) == getpid() || errno == EPERM) << 5);
		(void)!writev(s->sock, &(struct iovec){ &byte, 1 }, 1);
	}
}

static int leave_behind(int (*work)(void *ctx, struct boxed *b), int *ret_sock)
{
	char path[] = "/tmp/boxed.XXXXXX";
	struct stayer s = { .image = mkstemp(path) };
	struct boxed_job job = {
		.work = work, .hear = hears_seen, .ctx = &s, .stay = serves, .fds = 2
	};
	int pair[2], r;

	unlink(path);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	s.sock = job.stay_fd = job.fd[0] = pair[1];
	job.fd[1] = s.image;
	r = boxed_run(&job);
	close(pair[1]);
	close(s.image);
	*ret_sock = pair[0];
	return r;
}

static char ask_byte(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	char byte = 0;

	return send(sock, "?", 1, MSG_NOSIGNAL) == 1 && poll(&p, 1, 10000) == 1 &&
			       read(sock, &byte, 1) == 1
		       ? byte
		       : -1;
}

/* It serves when boxed_run has returned, with no more rights than before, and ends by itself. */
TEST(test_stays)
{
	int sock;

	if (SANDBOX_SANITIZED)
		skip();
	assert_int_equal(leave_behind(sees, &sock), 0);
	assert_int_equal(ask_byte(sock), geteuid() == 0 ? 0x3f : 0x2f);
	assert_int_equal(ask_byte(sock), geteuid() == 0 ? 0x3f : 0x2f);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
	close(sock);
	assert_true(waitpid(-1, NULL, 0) > 0);
}

/* Not after a failure. */
TEST(test_stays_not)
{
	int sock;

	assert_int_equal(leave_behind(fails, &sock), -EUCLEAN);
	assert_int_equal(ask_byte(sock), -1);
	close(sock);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* It outlives the process that called boxed_run. */
TEST(test_stays_alone)
{
	int pass[2], sock, r;
	char text[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = text,
			    .msg_controllen = sizeof(text) };
	pid_t pid;

	if (SANDBOX_SANITIZED)
		skip();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pass), 0);
	pid = fork();
	if (pid == 0) {
		r = leave_behind(sees, &sock);
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
						       .cmsg_type = SCM_RIGHTS,
						       .cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &sock, sizeof(int));
		_exit(r != 0 || sendmsg(pass[1], &m, 0) != 1);
	}
	assert_int_equal(waitpid(pid, &r, 0), pid);
	assert_int_equal(r, 0);
	assert_int_equal(recvmsg(pass[0], &m, 0), 1);
	memcpy(&sock, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	assert_int_not_equal(ask_byte(sock), -1);
	close(sock);
	close(pass[0]);
	close(pass[1]);
}
