// SPDX-License-Identifier: MIT
/* Tasks and FUSE connections that block a freeze, in a /proc and a fusectl made by the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "base/mounts.h"
#include "fs/bounce.h"
#include "fs/quiesce.h"
#include "fs/stuck.h"
#include "export/fuse_mount.h"
#include "scratch.h"
#include "quiesce.h"

/* ---- a /proc made by the test ---- */

/* Invalid lines, and one with a strange path: it is found, and used only if the file system there
 * is the right one. */
static void test_strange_mountinfo(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	char path[160], where[256];
	static char info[24000];
	bool readonly = true;
	size_t n;

	(void)state;
	t.proc_dirfd = fake_proc(path);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL),
			 -ENOENT);
	/* could not check: nothing is sealed */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOENT);
	fake_put(t.proc_dirfd, "self/mountinfo", "");
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL),
			 -ENOENT);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "self/root"), 0);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	n = (size_t)snprintf(
		info, sizeof(info),
		"nothing\n1 2 %u:%u / /x rw ext4 /dev/x rw\n"
		"1 2 %u:%u - ext4 /dev/x rw\n1 2 %u:%u / /x rw - ext4\n1 2 seven / /x rw - ext4 /dev/x rw\n"
		"9 1 0:55 / /x rw - tmpfs none rw\n9 1 0:55 / /x rw - btrfs /dev/not/there rw\n"
		"9 1 0:55 / /x rw - btrfs /dev/null rw\n9 1 %u:%u / ",
		major(t.dev), minor(t.dev), major(t.dev), minor(t.dev), major(t.dev), minor(t.dev),
		major(t.dev), minor(t.dev));
	memset(info + n, 'x', 20000); /* longer than any line is allowed to be */
	n += 20000;
	snprintf(info + n, sizeof(info) - n, " rw - ext4 /dev/x rw\n");
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	snprintf(info + n, sizeof(info) - n,
		 " rw - ext4 /dev/x rw\n"
		 "9 1 %u:%u / /a\\040b\\134c\\9\\04 rw - ext4 /dev/x root=ro\n",
		 major(t.dev), minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), &readonly),
			 1);
	assert_string_equal(where, "/a b\\c\\9\\04");
	assert_false(readonly);
	/* not there, but mounted elsewhere */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1 && p.was_frozen);
	/* another block device, and words that end within an escape */
	snprintf(info, sizeof(info),
		 "9 1 0:55 / /x rw - btrfs %s rw\n9 1 0:55 / /x\\!22 rw - btrfs /dev/x\\0 rw\n",
		 s.loop.path);
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	assert_int_equal(
		quiesce_find_mount(t.proc_dirfd, makedev(1, 250), where, sizeof(where), NULL), 0);
	/* the user who mounts chooses the source and the rest of the line, except the device
	 * number */
	snprintf(
		info, sizeof(info),
		"9 1 0:55 / /x rw - fuse %s rw\n9 1 0:55 / /x rw - fuse.btrfs %s rw\n"
		"9 1 0:55 / /x\\012 rw - fuse x\\0409\\0401\\040%u:%u\\040/\\040/\\040rw\\040-\\040ext4 rw\n",
		s.loop.path, s.loop.path, major(t.dev), minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	snprintf(info, sizeof(info), "9 1 %u:%u / / rw - ext4 /dev/x ro,noatime\n", major(t.dev),
		 minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(quiesce_find_mount(t.proc_dirfd, t.dev, where, sizeof(where), &readonly),
			 1);
	assert_true(readonly);
	/* something else, and it is not mounted there */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ESTALE);
	assert_int_equal(p.calls, 1);
	fake_end(path, t.proc_dirfd);
}

/* Puts the file `syscall` of a task: text is as on x86-64, and write and splice get their numbers of this architecture. */
static void put_call(int dirfd, const char *path, const char *text)
{
	long number = !strncmp(text, "1 ", 2)	  ? SYS_write
		      : !strncmp(text, "275 ", 4) ? SYS_splice
						  : -1;
	char native[256];

	if (number < 0)
		snprintf(native, sizeof(native), "%s", text);
	else
		snprintf(native, sizeof(native), "%ld%s", number, strchr(text, ' '));
	fake_put(dirfd, path, native);
}

/* Tasks that almost look like a writer that sleeps on the file system, and one that is such a
 * writer but has ended. */
static void test_bounce_nobody(void **state)
{
	static const char task[] = "99999999/task/99999999"; /* higher than any pid */
	static const struct {
		const char *stat, *syscall;
	} cases[] = {
		{ "99999999 (a) b) R 1", "275 0x3 0x0 0x3" },
		{ "99999999 (a S 1", "275 0x3 0x0 0x3" },
		{ "99999999 (a)S", "275 0x3 0x0 0x3" },
		{ "99999999 (a) S 1", "running" },
		{ "99999999 (a) S 1", "-1 0x3 0x3" },
		{ "99999999 (a) S 1", "202 0x3 0x3 0x3 0x3" },
		{ "99999999 (a) S 1", "1 0x9 0x3 0x3" },
		{ "99999999 (a) S 1", "1 0x5 0x3 0x3" },
		{ "99999999 (a) S 1", "1 0x3 0x0 0x0" },
	};
	char path[160], name[160], culprit[64] = "";
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(bounce_writers(-1, 0, NULL, NULL, culprit, sizeof(culprit)), 0);
	fd = fake_proc(path);
	assert_int_equal(fstat(fd, &st), 0);
	fake_put(fd, "99999998/task", "no folder");
	fake_put(fd, "99999997/task/99999997", "no folder");
	fake_put(fd, "99999996", "no folder");
	fake_put(fd, "0/task/0/stat", "0 (a) S 1");
	fake_put(fd, "-7/task/0/stat", "0 (a) S 1");
	fake_put(fd, "12x/task/0/stat", "0 (a) S 1");
	snprintf(name, sizeof(name), "%s/comm", task);
	fake_put(fd, name, "a");
	snprintf(name, sizeof(name), "%s/fd/3", task);
	fake_put(fd, name, "on the file system");
	snprintf(name, sizeof(name), "%s/fd/5", task);
	assert_int_equal(symlinkat("/dev/null", fd, name), 0);
	/* neither stat nor syscall */
	assert_int_equal(bounce_writers(fd, st.st_dev, NULL, NULL, culprit, sizeof(culprit)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(name, sizeof(name), "%s/stat", task);
		fake_put(fd, name, cases[i].stat);
		snprintf(name, sizeof(name), "%s/syscall", task);
		put_call(fd, name, cases[i].syscall);
		assert_int_equal(
			bounce_writers(fd, st.st_dev, NULL, NULL, culprit, sizeof(culprit)), 0);
		assert_string_equal(culprit, "");
	}
	fake_end(path, fd);
}

/* A task in a /proc made by the test that always sleeps in write(3, ...). */
static void fake_sleeper(int dirfd, pid_t pid, int tid, const char *comm)
{
	char task[64], name[96];

	snprintf(task, sizeof(task), "%d/task/%d", pid, tid);
	snprintf(name, sizeof(name), "%s/stat", task);
	fake_put(dirfd, name, "1 (a) S 1");
	snprintf(name, sizeof(name), "%s/syscall", task);
	put_call(dirfd, name, "1 0x3 0x0 0x0");
	snprintf(name, sizeof(name), "%s/fd/3", task);
	fake_put(dirfd, name, "on the file system");
	snprintf(name, sizeof(name), "%s/comm", task);
	if (comm)
		fake_put(dirfd, name, comm);
}

static pid_t idle_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	return pid;
}

/* Tasks whose sleep does not end when they are stopped: at most 200 ms each, and none stays
 * stopped. */
static void test_bounce_in_vain(void **state)
{
	pid_t two = idle_child(), nameless = idle_child(), other = idle_child();
	const pid_t pids[] = { two, nameless, other };
	char path[160], culprit[64] = "", want[2][64];
	uint64_t start_ns;
	struct stat st;
	int fd = fake_proc(path), status;

	(void)state;
	assert_int_equal(fstat(fd, &st), 0);
	fake_sleeper(fd, two, 1, "writer");
	fake_sleeper(fd, two, 2, "writer");
	fake_sleeper(fd, nameless, 1, NULL);
	fake_sleeper(fd, other, 1, "other");
	snprintf(want[0], sizeof(want[0]), "writer[%d]", two);
	snprintf(want[1], sizeof(want[1]), "other[%d]", other);
	start_ns = now_ns();
	assert_int_equal(bounce_writers(fd, st.st_dev, NULL, NULL, culprit, sizeof(culprit)), 4);
	assert_true(now_ns() - start_ns >= 4 * 200000000ull);
	/* the first one that has a name, in the order of the folder */
	assert_true(!strcmp(culprit, want[0]) || !strcmp(culprit, want[1]));
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		assert_int_equal(waitpid(pids[i], &status, WUNTRACED | WCONTINUED), pids[i]);
		assert_true(WIFCONTINUED(status));
		assert_int_equal(waitpid(pids[i], &status, WUNTRACED | WCONTINUED | WNOHANG), 0);
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	fake_end(path, fd);
}

/* A process that blocks readers of its files: it is named, no thread waits for it, and the next
 * look comes when the first one has returned. */
static void test_look_left_behind(void **state)
{
	static const char task[] = "99999999/task/99999999";
	char path[160], name[160];
	struct stuck *st = calloc(1, sizeof(*st));
	uint64_t start_ns = now_ns();
	unsigned fds;
	int fd, fifo_fd, r;

	(void)state;
	fd = fake_proc(path);
	snprintf(name, sizeof(name), "%s/stat", task);
	fake_put(fd, name, "99999999 (a) D 1 2 3 4 5 6");
	snprintf(name, sizeof(name), "%s/syscall", task);
	assert_int_equal(mkfifoat(fd, name, 0600), 0);
	fds = count_fds();
	*st = (struct stuck){ .proc_dirfd = fd, .fuse_dirfd = -1 };
	assert_int_equal(stuck_look(st, 100000000), 0);
	assert_true(st->n == 1 && st->suspects == 1 && st->task[0].pid == 99999999);
	assert_null(stuck_for_long(st)); /* it gets a second */
	assert_string_equal(st->task[0].name, "process 99999999");
	assert_int_equal(stuck_look(st, 100000000000), 0); /* at once */
	assert_true(now_ns() - start_ns < 5000000000);
	while (!stuck_for_long(st)) {
		usleep(1000);
		assert_int_equal(stuck_look(st, 100000000000), 0);
		assert_int_equal(st->n, 1);
	}
	fifo_fd = openat(fd, name, O_WRONLY | O_CLOEXEC);
	assert_true(fifo_fd >= 0);
	close(fifo_fd);
	unlinkat(fd, name, 0);
	for (int i = 0; (r = stuck_look(st, 1000000000)) == 0 && st->n && i < 2000; i++)
		usleep(1000);
	assert_int_equal(r, 0);
	assert_int_equal(st->n, 0);
	assert_int_equal(count_fds(), fds);
	stuck_free(st);
	free(st);
	fake_end(path, fd);
}

/* ---- tasks that are stuck, in a /proc and a fusectl made by the test ---- */

#define FAULT                                                                                      \
	"[<0>] folio_wait_bit_common+0x1/0x2\n[<0>] __handle_mm_fault+0x1/0x2\n[<0>] handle_mm_fault+0x1/0x2\n"
#define REQUEST "[<0>] request_wait_answer+0x1/0x2\n" FAULT
#define OWN 77 /* a FUSE connection of the user of the tasks; so is the next one */
#define THEIRS 80
#define ROOTS 90

struct fake {
	char path[160]; /* of the /proc */
	int fd, fuse_dirfd;
	struct stuck st;
};

static void fake_task(const struct fake *f, int pid, const char *syscall, const char *wchan,
		      const char *stack, const char *maps)
{
	const struct {
		const char *name, *text;
	} files[] = {
		{ "stat", "1 (a) b) D 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711" },
		{ "syscall", syscall },
		{ "wchan", wchan },
		{ "stack", stack },
		{ "maps", maps },
		{ "comm", "a" },
		{ "fd/3", "on the file system" },
		{ "status", "Name:\ta\nUid:\t1000\t0\t0\t0\nvoluntary_ctxt_switches:\t7" },
	};
	char name[96];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(name, sizeof(name), "%d/task/%d/%s", pid, pid, files[i].name);
		if (files[i].text && files[i].text == syscall)
			put_call(f->fd, name, syscall);
		else if (files[i].text)
			fake_put(f->fd, name, files[i].text);
		else
			unlinkat(f->fd, name, 0);
	}
	snprintf(name, sizeof(name), "%d/stat", pid);
	fake_put(f->fd, name, files[0].text);
}

static void fake_conn(const struct fake *f, unsigned nr, uid_t uid)
{
	char name[32];

	snprintf(name, sizeof(name), "%u/abort", nr);
	fake_put(f->fuse_dirfd, name, "");
	snprintf(name, sizeof(name), "%u", nr);
	assert_int_equal(fchownat(f->fuse_dirfd, name, uid, 0, 0), 0);
}

static bool is_aborted(const struct fake *f, unsigned nr)
{
	char name[32], text[8];

	snprintf(name, sizeof(name), "%u/abort", nr);
	return io_read_text(f->fuse_dirfd, name, text, sizeof(text)) == 1;
}

static void fake_begin(struct fake *f)
{
	struct stat st;

	f->fd = fake_proc(f->path);
	fake_put(f->fd, "fuse/none", "");
	f->fuse_dirfd = openat(f->fd, "fuse", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fstat(f->fd, &st), 0);
	f->st = (struct stuck){ .proc_dirfd = f->fd,
				.fuse_dirfd = f->fuse_dirfd,
				.st_dev = st.st_dev };
	for (unsigned i = 0; i < 2; i++) {
		fake_conn(f, OWN + i, 1000);
		fake_conn(f, THEIRS + i, 1001);
	}
	fake_conn(f, ROOTS, 0);
}

static void fake_finish(struct fake *f)
{
	stuck_free(&f->st);
	close(f->fuse_dirfd);
	fake_end(f->path, f->fd);
}

#define WRITE "1 0x3 0x10001000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00"
#define MAP(at, minor) #at "000-" #at "fff r--p 00000000 00:" #minor " 5 /x\n"

/* Which of them are found: with the stack, and without it as on older kernels. */
static void test_look(void **state)
{
	static const struct {
		const char *syscall, *wchan, *stack, *maps;
		bool stuck, fuse;
	} cases[] = {
		{ WRITE, "", NULL, MAP(10001, 4d), true, true },
		{ WRITE, "", NULL, "0fffe000-11000000 r--p 00000000 00:4d 5 /x\n", true, true },
		/* beside the source */
		{ WRITE, "", NULL, MAP(10000, 4d) MAP(10002, 4d), false, false },
		{ WRITE, "", NULL, "10001000-10002000 r--p 00000000 08:01 5 /x\n", true, false },
		{ WRITE, "", NULL, "10001000-10002000 rw-p 00000000 00:00 0\n", false, false },
		{ WRITE, "", NULL, "10001000 what\n\n10001000-10002000 r--p 00000000 00:4d", true,
		  true },
		{ WRITE, "handle_userfault", NULL, "", true, false },
		{ "1 0x4 0x10001000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", NULL, MAP(10001, 4d),
		  false, false },
		{ "running", "", NULL, MAP(10001, 4d), false, false },
		{ WRITE, "percpu_rwsem_wait", NULL, MAP(10001, 4d), false, false },
		/* io_uring_enter: it waits for completions, or in a call of its own */
		{ "426 0x9 0x0 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "io_cqring_wait", NULL,
		  MAP(20000, 4d), false, false },
		{ "426 0x9 0x0 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "io_cqring_wait", REQUEST,
		  MAP(20000, 4d), false, false },
		{ "426 0x9 0x1 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "folio_wait", NULL, MAP(20000, 4d),
		  true, true },
		{ "426 0x9 0x1 0x1 0x1 0x0 0x0 0x7ffc 0x7f00", "folio_wait", NULL,
		  "20000000-20001000 r--p 0 08:01 5 /x\n", false, false },
		/* the stack takes precedence over the mappings */
		{ WRITE, "", FAULT, MAP(10001, 4d), true, true },
		{ WRITE, "", FAULT, "", true, false },
		{ WRITE, "", REQUEST, "", true, true },
		{ WRITE, "", "[<0>] rwsem_down_write_slowpath+0x1/0x2\n", MAP(10001, 4d), false,
		  false },
		/* no names: as without a stack */
		{ WRITE, "", "[<0>] 0xffffffff81000000\n", MAP(10001, 4d), true, true },
	};
	struct fake f;

	(void)state;
	fake_begin(&f);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_task(&f, 99999999, cases[i].syscall, cases[i].wchan, cases[i].stack,
			  cases[i].maps);
		assert_int_equal(stuck_look(&f.st, 60000000000), 0);
		if (f.st.n != cases[i].stuck || (f.st.n && f.st.task[0].fuse != cases[i].fuse))
			fail_msg("case %zu", i);
		assert_int_equal(f.st.suspects, 0);
	}
	fake_finish(&f);
}

/* What holds the write count on older kernels only. */
static void test_look_old_kernel(void **state)
{
	static const struct {
		long number;
		const char *wchan, *stack;
		bool stuck, fuse;
	} cases[] = {
		{ SYS_setxattr, "folio_wait_bit_common", FAULT, true, true },
		{ SYS_fremovexattr, "request_wait_answer", REQUEST, true, true },
		{ SYS_lsetxattr, "rwsem_down_write", "[<0>] rwsem_down_write+0x1/0x2\n", false,
		  false },
		{ SYS_openat, "request_wait_answer",
		  "[<0>] request_wait_answer+0x1/0x2\n[<0>] ovl_copy_up_one+0x1/0x2\n", true,
		  true },
		{ SYS_truncate, "folio_wait_bit_common",
		  "[<0>] folio_wait_bit_common+0x1/0x2\n[<0>] ovl_copy_up_flags+0x1/0x2\n", true,
		  false },
		{ SYS_openat, "request_wait_answer", "[<0>] request_wait_answer+0x1/0x2\n", false,
		  false },
		/* for the upper file system, not for FUSE */
		{ SYS_openat, "jbd2_log_wait_commit", "[<0>] ovl_copy_up_one+0x1/0x2\n", false,
		  false },
	};
	char call[96];
	struct fake f;

	(void)state;
	fake_begin(&f);
	for (size_t i = 0; i < ARRAY_SIZE(cases) * 2; i++) {
		size_t nr = i / 2;
		bool old = i % 2;

		snprintf(call, sizeof(call), "%ld 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f00",
			 cases[nr].number);
		fake_task(&f, 99999999, call, cases[nr].wchan, cases[nr].stack, MAP(10001, 4d));
		/* Linux calls itself 2.6 */
		assert_true(personality(old ? UNAME26 : 0) >= 0);
		assert_int_equal(stuck_look(&f.st, 60000000000), 0);
		assert_true(personality(0) >= 0);
		if (f.st.n != (old && cases[nr].stuck) ||
		    (f.st.n && f.st.task[0].fuse != cases[nr].fuse))
			fail_msg("case %zu, old %d", nr, old);
	}
	fake_finish(&f);
}

static void look_until_long(struct fake *f, size_t n)
{
	do {
		usleep(10000);
		assert_int_equal(stuck_look(&f->st, 60000000000), 0);
		assert_int_equal(f->st.n, n);
	} while (!stuck_for_long(&f->st));
}

/* Connections of the user first, one step at a time; another user's only if the task waits for
 * nothing else. */
static void test_cure(void **state)
{
	struct fake f;

	(void)state;
	fake_begin(&f);
	fake_task(&f, 99999999, "1 0x3 0x10000000 0x9000 0x0 0x0 0x0 0x7ffc 0x7f00", "", REQUEST,
		  MAP(10001, 4d) MAP(10002, 50) MAP(10003, 5a));
	assert_int_equal(stuck_look(&f.st, 60000000000), 0);
	assert_int_equal(stuck_cure(&f.st, true), 0); /* not stuck for long */
	look_until_long(&f, 1);
	assert_int_equal(stuck_cure(&f.st, false), 1);
	assert_true(is_aborted(&f, OWN) && !is_aborted(&f, OWN + 1) && !is_aborted(&f, THEIRS) &&
		    !is_aborted(&f, ROOTS));
	for (int i = 0; i < 3; i++) { /* once; the step is kept from look to look */
		assert_int_equal(stuck_look(&f.st, 60000000000), 0);
		assert_int_equal(stuck_cure(&f.st, false), 0);
	}
	assert_int_equal(stuck_cure(&f.st, true), 0); /* the kill */
	assert_false(is_aborted(&f, OWN + 1));
	assert_true(stuck_cure(&f.st, true) > 0);
	assert_true(is_aborted(&f, OWN + 1));
	for (int i = 0; i < 3; i++)
		assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_true(!is_aborted(&f, THEIRS) && !is_aborted(&f, ROOTS));
	/* it maps nothing else, and its user has no connection */
	for (unsigned i = 0; i < 2; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%u/abort", OWN + i);
		assert_int_equal(unlinkat(f.fuse_dirfd, name, 0), 0);
		*strchr(name, '/') = '\0';
		assert_int_equal(unlinkat(f.fuse_dirfd, name, AT_REMOVEDIR), 0);
	}
	fake_task(&f, 99999999, "1 0x3 0x10002000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", FAULT,
		  MAP(10002, 50));
	look_until_long(&f, 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(stuck_cure(&f.st, true), 0); /* not in a request to FUSE */
	fake_task(&f, 99999999, "1 0x3 0x10003000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", REQUEST,
		  MAP(10003, 5a));
	look_until_long(&f, 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_true(!is_aborted(&f, THEIRS) && !is_aborted(&f, ROOTS));
	fake_task(&f, 99999999, "1 0x3 0x10002008 0x1000 0x0 0x0 0x0 0x7ffc 0x7f00", "", REQUEST,
		  MAP(10002, 50));
	look_until_long(&f, 1);
	/* it was killed before, in its previous call */
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_int_equal(stuck_cure(&f.st, true), 1);
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_true(is_aborted(&f, THEIRS) && !is_aborted(&f, THEIRS + 1) &&
		    !is_aborted(&f, ROOTS));
	fake_finish(&f);
}

/* A new process with the same pid is not killed. */
static void test_cure_kills(void **state)
{
	pid_t pid = idle_child();
	char name[32];
	struct fake f;
	int status;

	(void)state;
	fake_begin(&f);
	fake_task(&f, pid, WRITE, "", REQUEST, "");
	look_until_long(&f, 1);
	snprintf(name, sizeof(name), "%d/stat", pid);
	fake_put(f.fd, name, "1 (a) b) D 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4712");
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	look_until_long(&f, 1);
	assert_int_equal(stuck_cure(&f.st, true), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	fake_finish(&f);
}

/* The task that sleeps in a fault is the cause, not the one that waits for it; there may be any
 * number of them. */
static void test_many_stuck(void **state)
{
	const unsigned n = 600;
	struct fake f;

	(void)state;
	fake_begin(&f);
	for (unsigned i = 0; i < n; i++)
		fake_task(&f, 80000000 + (int)i, WRITE, "", NULL,
			  "10001000-10002000 r--p 00000000 08:01 5 /x\n");
	fake_task(&f, 99999999, WRITE, "", REQUEST, MAP(10001, 4d));
	do
		look_until_long(&f, n + 1);
	while (now_ns() < f.st.task[0].since_ns + 3100000000); /* all of them by now */
	assert_int_equal(stuck_for_long(&f.st)->pid, 99999999);
	assert_int_equal(stuck_cure(&f.st, false), 1);
	assert_true(is_aborted(&f, OWN));
	fake_finish(&f);
}

static bool never(void *ctx)
{
	((struct probe *)ctx)->calls += 100;
	return false;
}

static bool always(void *ctx)
{
	((struct probe *)ctx)->calls += 10;
	return true;
}

/* The callback comes after the sync, and returns yes. */
static void test_needed(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	t.needed = always;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 11 && rep.frozen && p.was_frozen);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 22 && !rep.mounted);
}

/*
 * No memory for the freezer; then none for a thread's stack, with the sync and without: nothing was
 * frozen, nothing stays open. Comes first: the C library keeps stacks of threads that have ended.
 */
static void test_no_memory(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)state;
	skip(); /* they end a program without memory */
#else
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;
	struct rlimit old, none;
	unsigned fds = count_fds();
	void **list = NULL, **more;
	int r[3];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
	while ((more = malloc(160))) {
		*more = list;
		list = more;
	}
	t.no_sync = true;
	r[0] = quiesce_run(&t, seal, &p, &rep);
	t.no_sync = false;
	while ((more = list)) {
		list = *more;
		free(more);
	}
	r[1] = quiesce_run(&t, seal, &p, &rep);
	t.no_sync = true;
	r[2] = quiesce_run(&t, seal, &p, &rep);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_int_equal(r[0], -ENOMEM);
	assert_int_equal(r[1], -EAGAIN);
	assert_int_equal(r[2], -EAGAIN);
	assert_int_equal(p.calls, 0);
	/* the first one ends before or after its freeze begins, by what the heap has in small pieces */
	assert_true(!strcmp(p.told, "FT") || !strcmp(p.told, "FTFT"));
	assert_false(is_frozen());
	assert_int_equal(count_fds(), fds);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.was_frozen);
#endif
}

/* The callback comes after the sync, and returns no: then nothing is frozen. */
static void test_not_needed(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	t.needed = never;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENODATA);
	assert_true(p.calls == 100 && !rep.frozen);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENODATA);
	assert_int_equal(p.calls, 200);
}

/* No callback for descriptors, and the caller has already synced. */
static void test_quiet(void **state)
{
	struct probe p = { 0 };
	struct quiesce_target t = target(&p);
	struct quiesce_report rep;

	(void)state;
	t.frozen = NULL;
	t.no_sync = true;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.was_frozen && !p.needs_recovery);
	assert_string_equal(p.told, "");
	assert_int_equal(mount(NULL, s.mnt, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(rep.readonly && p.calls == 2);
	/* the seal fails and another program has thawed the file system: the seal's error is
	 * returned */
	p.thaw = true;
	p.result = -ENOSPC;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOSPC);
	/* not mounted, and no device to find its holder */
	assert_int_equal(umount(s.mnt), 0);
	t.loop_fd = -1;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOENT);
	assert_int_equal(p.calls, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_memory, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_strange_mountinfo, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_bounce_nobody, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_bounce_in_vain, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_look_left_behind, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_look, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_look_old_kernel, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_cure, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_cure_kills, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_many_stuck, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_needed, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_quiet, setup_ext4, teardown),
		cmocka_unit_test_setup_teardown(test_not_needed, setup_ext4, teardown),
	};

	if (scratch_not_root("stuck_test"))
		return 0;
	proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuse_dirfd = mounts_open_fusectl();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
