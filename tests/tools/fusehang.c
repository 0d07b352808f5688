/* SPDX-License-Identifier: MIT */
/*
 * What an ordinary user may do with FUSE. Run by root, which only makes a /dev/fuse for everybody
 * (as udev does) and the one mount that fusermount3 would make; everything else happens as nobody.
 *
 * 	fusehang mount DIR FSNAME [UID]
 * 		a FUSE mount of nobody's on DIR, as fusermount3 -o fsname=FSNAME makes it (with DIR on
 * 		the device of a volume). With UID it is that user's, and everybody may use it. It answers.
 * 		Runs until it is unmounted. Stopped (SIGSTOP) it answers nothing, whatever is asked.
 * 	fusehang lie DIR TARGET
 * 		the same, of nobody's, for everybody, and it says that all in it is root's: "page", and
 * 		"link", which leads to TARGET.
 * 	fusehang hold TARGET write|writev|write32|uring|core|sendfile|read|getdents|race [SECONDS]
 * 	fusehang hold TARGET setxattr|removexattr|overlay|setversion [SECONDS]
 * 	fusehang hold TARGET threads|remap
 * 		in a user namespace of its own: a call on TARGET whose other side is a file on a FUSE
 * 		mount that does not answer reads, for SECONDS (default: ever). HOW race: writes that go on,
 * 		slowly, until a freeze waits for one of them; that one hangs. threads: 60 writes to 60
 * 		files (TARGET.N), in a process with as many mappings as one may have. remap: a write whose
 * 		source is something else as soon as it hangs. overlay: copies a file up from FUSE to
 * 		TARGET.upper. Ends when the call ends,
 * 		with status 0 if it failed. Leaves a folder below TMPDIR behind.
 *
 * Prints "ready" when it is so far; hold with the number of its FUSE connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <fuse_lowlevel.h>
#include <linux/fs.h>
#include <linux/io_uring.h>

#include "base/io.h"

#define NOBODY 65534
#define PAGE_INO 2
#define PAGE_NAME "page"
#define LINK_INO 3
#define LINK_NAME "link"
#define PAGE_BYTES (256 << 20)
#define STRIDE_BYTES (1 << 20) /* beyond what the kernel reads ahead */
#define SLOW_MS 200
#define FOREVER_S 1e9
#define THREADS 60
#define MAPPINGS 65000
#ifndef MAP_32BIT
#define MAP_32BIT 0
#endif

static fuse_req_t held; /* the read that waits */
static bool answers;	/* none waits */
static const char *lie; /* where the link leads; NULL: there is none */
/* when the prober's write began that is under way; 0: none. NULL: no race */
static _Atomic uint64_t *probe_ns;

static void die(const char *what)
{
	fprintf(stderr, "fusehang: %s: %s\n", what, strerror(errno));
	_exit(2);
}

/* ---- the file system ---- */

static bool fill_attr(fuse_ino_t ino, struct stat *ret)
{
	*ret = (struct stat){ .st_ino = ino,
			      .st_nlink = 1,
			      .st_uid = lie ? 0 : getuid(),
			      .st_gid = lie ? 0 : getgid() };
	ret->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755
		       : ino == LINK_INO   ? S_IFLNK | 0777
		       : lie		   ? S_IFREG | 0600
					   : S_IFREG | 0644;
	ret->st_size = ino == FUSE_ROOT_ID ? 0 : ino == LINK_INO ? (off_t)strlen(lie) : PAGE_BYTES;
	return ino == FUSE_ROOT_ID || ino == PAGE_INO || (lie && ino == LINK_INO);
}

static void op_init(void *ctx, struct fuse_conn_info *conn)
{
	conn->want = 0; /* no ASYNC_READ: who reads waits in FUSE itself, where no signal ends it */
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = PAGE_INO,
				      .attr_timeout = FOREVER_S,
				      .entry_timeout = FOREVER_S };

	if (lie && !strcmp(name, LINK_NAME))
		e.ino = LINK_INO;
	if (parent == FUSE_ROOT_ID && (e.ino == LINK_INO || !strcmp(name, PAGE_NAME)) &&
	    fill_attr(e.ino, &e.attr))
		fuse_reply_entry(req, &e);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	if (fill_attr(ino, &st))
		fuse_reply_attr(req, &st, FOREVER_S);
	else
		fuse_reply_err(req, ENOENT);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	op_getattr(req, ino, fi);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	if (lie && ino == LINK_INO)
		fuse_reply_readlink(req, lie);
	else
		fuse_reply_err(req, EINVAL);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	static char zeros[1 << 20];

	for (int ms = 0; probe_ns && ms < SLOW_MS; ms += 10) {
		uint64_t since_ns = *probe_ns;

		usleep(10000);
		if (since_ns && now_ns() > since_ns + 100000000)
			probe_ns = NULL; /* a freeze waits for this read: now is the time */
	}
	if (probe_ns || answers)
		fuse_reply_buf(req, zeros, size);
	else if (held)
		fuse_reply_err(req, EIO);
	else
		held = req;
}

static const struct fuse_lowlevel_ops ops = { .init = op_init,
					      .lookup = op_lookup,
					      .getattr = op_getattr,
					      .setattr = op_setattr,
					      .readlink = op_readlink,
					      .open = op_open,
					      .read = op_read };

static void on_alarm(int signal)
{
	if (held)
		fuse_reply_err(held, EIO);
}

static int serve(int fuse_fd)
{
	char *argv[] = { (char *)"fusehang", NULL }, path[32];
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_session *s = fuse_session_new(&args, &ops, sizeof(ops), NULL);

	snprintf(path, sizeof(path), "/dev/fd/%d", fuse_fd);
	if (!s || fuse_session_mount(s, path) < 0)
		die("no session");
	return fuse_session_loop(s) < 0;
}

static void mount_fuse(int fuse_fd, const char *fsname, const char *dir, unsigned id,
		       const char *more)
{
	char opts[96];

	snprintf(opts, sizeof(opts), "fd=%d,rootmode=40000,user_id=%u,group_id=%u%s", fuse_fd, id,
		 id, more);
	if (mount(fsname, dir, "fuse", MS_NOSUID | MS_NODEV, opts) < 0)
		die("mount");
}

static void become(unsigned id)
{
	if (setgroups(0, NULL) < 0 || setgid(id) < 0 || setuid(id) < 0)
		die("setuid");
	prctl(PR_SET_DUMPABLE, 1); /* as after an execve: /proc/self belongs to the user */
}

/* ---- the call that hangs ---- */

static void write_self(const char *name, const char *text)
{
	if (io_write_text(AT_FDCWD, name, text) < 0)
		die(name);
}

static void enter_namespace(void)
{
	char map[32];

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		die("unshare");
	write_self("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", NOBODY);
	write_self("/proc/self/uid_map", map);
	write_self("/proc/self/gid_map", map);
}

/* The number of the connection in fusectl, for who has to end it. */
static unsigned conn_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		die("stat");
	return minor(st.st_dev);
}

#ifdef __x86_64__
/* By the table of 32-bit programs. */
static long write_as_32_bit(int fd, const void *page)
{
	long r;

	__asm__ volatile("int $0x80"
			 : "=a"(r)
			 : "a"(4l), "b"((long)fd), "c"(page), "d"(4096l)
			 : "memory", "r8", "r9", "r10", "r11");
	return r;
}
#else
static long write_as_32_bit(int fd, const void *page)
{
	return write(fd, page, 4096);
}
#endif

/* By io_uring; page NULL: only waits. */
static long write_by_ring(int fd, const void *page)
{
	struct io_uring_params p = { 0 };
	int ring_fd = (int)syscall(SYS_io_uring_setup, 2, &p);
	struct io_uring_sqe *sqe;
	char *ring;

	if (ring_fd < 0)
		die("io_uring");
	ring = mmap(NULL, p.sq_off.array + p.sq_entries * 4 + 4096, PROT_READ | PROT_WRITE,
		    MAP_SHARED, ring_fd, IORING_OFF_SQ_RING);
	sqe = mmap(NULL, p.sq_entries * sizeof(*sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd,
		   IORING_OFF_SQES);
	if (ring == MAP_FAILED || sqe == MAP_FAILED)
		die("io_uring");
	*sqe = (struct io_uring_sqe){
		.opcode = IORING_OP_WRITE, .fd = fd, .addr = (uintptr_t)page, .len = 4096
	};
	*(unsigned *)(ring + p.sq_off.array) = 0;
	__atomic_store_n((unsigned *)(ring + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	(void)syscall(SYS_io_uring_enter, ring_fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	return -1;
}

/* The core file lies in the target's folder, and holds a page that does not come. */
static void dump_core(const char *target)
{
	const struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
	char dir[256];

	snprintf(dir, sizeof(dir), "%s", target);
	*strrchr(dir, '/') = '\0';
	write_self("/proc/self/coredump_filter", "0x7f");
	if (setrlimit(RLIMIT_CORE, &all) < 0 || chdir(dir) < 0)
		die("core");
	abort();
}

struct writer {
	const char *target;
	const void *page;
	unsigned nr;
};

static void *write_one(void *arg)
{
	struct writer *w = arg;
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s.%u", w->target, w->nr);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	return (void *)(intptr_t)(fd < 0 ? -1 : write(fd, w->page, 4096));
}

/* Each to a file of its own, so none waits for another's lock. */
static long write_all(const char *target, int page_fd, const void *page)
{
	static struct writer writers[THREADS];
	pthread_t threads[THREADS];
	void *r;

	/* not next to each other in the file: the kernel joins none of them */
	for (size_t i = 0; i < MAPPINGS; i++)
		if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, page_fd,
			 (off_t)(i * 2 % 65536) * 4096) == MAP_FAILED)
			break;
	for (unsigned i = 0; i < THREADS; i++) {
		writers[i] = (struct writer){ target, page, i };
		if (pthread_create(&threads[i], NULL, write_one, &writers[i]) != 0)
			die("thread");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], &r);
	return (long)(intptr_t)r;
}

static void *remap(void *page)
{
	usleep(200000);
	if (mmap(page, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) == MAP_FAILED)
		die("remap");
	return NULL;
}

static long write_remapped(int target_fd, void *page)
{
	pthread_t thread;
	long r;

	if (pthread_create(&thread, NULL, remap, page) != 0)
		die("thread");
	r = write(target_fd, page, 4096);
	pthread_join(thread, NULL);
	return r;
}

static long copy_up(const char *target)
{
	char upper[128], work[128], opts[320];

	snprintf(upper, sizeof(upper), "%s.upper", target);
	snprintf(work, sizeof(work), "%s.work", target);
	snprintf(opts, sizeof(opts), "lowerdir=mnt,upperdir=%s,workdir=%s,userxattr", upper, work);
	if (mkdir(upper, 0777) < 0 || mkdir(work, 0777) < 0 ||
	    mount("overlay", "merged", "overlay", 0, opts) < 0)
		die("overlay");
	return open("merged/" PAGE_NAME, O_WRONLY);
}

static long call(const char *how, int target_fd, int page_fd, void *page)
{
	const struct iovec iov = { .iov_base = page, .iov_len = 4096 };

	if (!strcmp(how, "writev"))
		return writev(target_fd, &iov, 1);
	if (!strcmp(how, "write32"))
		return write_as_32_bit(target_fd, page);
	if (!strcmp(how, "remap"))
		return write_remapped(target_fd, page);
	if (!strcmp(how, "uring"))
		return write_by_ring(target_fd, page);
	if (!strcmp(how, "sendfile"))
		return sendfile(target_fd, page_fd, NULL, 4096);
	if (!strcmp(how, "read"))
		return read(target_fd, page, 4096);
	if (!strcmp(how, "setxattr"))
		return fsetxattr(target_fd, "user.x", page, 4096, 0);
	if (!strcmp(how, "removexattr"))
		return fremovexattr(target_fd, page);
	if (!strcmp(how, "setversion"))
		return ioctl(target_fd, FS_IOC_SETVERSION, page);
	if (!strcmp(how, "getdents"))
		return syscall(SYS_getdents64, target_fd, page, 4096);
	return write(target_fd, page, 4096);
}

/* A folder of nobody's with a /dev/fuse that everybody may open, and a mount point. */
static void make_dir(char *dir)
{
	struct stat st;

	if (!mkdtemp(dir) || chdir(dir) < 0 || stat("/dev/fuse", &st) < 0)
		die(dir);
	umask(0);
	if (mknod("fuse", S_IFCHR | 0666, st.st_rdev) < 0 || mkdir("mnt", 0777) < 0 ||
	    mkdir("merged", 0777) < 0 || chmod(dir, 0755) < 0)
		die(dir);
}

/* Writes to the same file system all the time, and notes since when one has been under way. */
static void probe(const char *target)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s.probe", target);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	while (fd >= 0) {
		*probe_ns = now_ns();
		if (pwrite(fd, "x", 1, 0) < 0)
			break;
		*probe_ns = 0;
		usleep(10000);
	}
	_exit(1);
}

static void start_prober(const char *target)
{
	probe_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		probe(target);
	}
}

static long race(int target_fd, const char *page)
{
	long r = 1;

	for (size_t i = 0; r > 0 && i < PAGE_BYTES; i += STRIDE_BYTES)
		r = write(target_fd, page + i, 4096);
	return r;
}

static int hold(const char *target, const char *how, const char *arg)
{
	const char *tmp = getenv("TMPDIR");
	char dir[256];
	bool reads = !strcmp(how, "read") || !strcmp(how, "getdents") || !strcmp(how, "setversion");
	int target_fd, page_fd, fuse_fd;
	pid_t server;
	void *page;
	long r;

	snprintf(dir, sizeof(dir), "%s/fusehang.XXXXXX", tmp ? tmp : "/tmp");
	make_dir(dir);
	become(NOBODY);
	target_fd = open(target, reads ? O_RDONLY : O_WRONLY | O_CREAT, 0600);
	if (target_fd < 0)
		die(target);
	enter_namespace();
	fuse_fd = open("fuse", O_RDWR);
	if (fuse_fd < 0)
		die("fuse");
	mount_fuse(fuse_fd, "page", "mnt", 0, "");
	if (!strcmp(how, "race"))
		start_prober(target);
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGALRM, on_alarm);
		alarm((unsigned)atoi(arg));
		_exit(serve(fuse_fd));
	}
	close(fuse_fd);
	page_fd = open("mnt/" PAGE_NAME, O_RDWR);
	page = page_fd < 0 ? MAP_FAILED
			   : mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
				  reads ? MAP_SHARED : MAP_PRIVATE | MAP_32BIT, page_fd, 0);
	if (page == MAP_FAILED)
		die("page");
	printf("ready %u\n", conn_of(page_fd));
	fflush(stdout);
	if (!strcmp(how, "core"))
		dump_core(target);
	if (!strcmp(how, "race"))
		r = race(target_fd, page);
	else if (!strcmp(how, "threads"))
		r = write_all(target, page_fd, page);
	else if (!strcmp(how, "overlay"))
		r = copy_up(target);
	else
		r = call(how, target_fd, page_fd, page);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	return r < 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	unsigned id = NOBODY;
	int fuse_fd;

	if (argc >= 4 && !strcmp(argv[1], "hold"))
		return hold(argv[2], argv[3], argc > 4 ? argv[4] : "0");
	if (argc == 4 && !strcmp(argv[1], "lie"))
		lie = argv[3];
	if ((argc != 4 && argc != 5) || (!lie && strcmp(argv[1], "mount"))) {
		fprintf(stderr,
			"usage: fusehang mount DIR FSNAME [UID] | lie DIR TARGET | hold TARGET HOW "
			"[SECONDS]\n");
		return 2;
	}
	fuse_fd = open("/dev/fuse", O_RDWR);
	if (fuse_fd < 0)
		die("/dev/fuse");
	if (argc == 5)
		id = (unsigned)atoi(argv[4]);
	mount_fuse(fuse_fd, lie ? "lie" : argv[3], argv[2], id,
		   lie || argc == 5 ? ",allow_other" : "");
	become(id);
	answers = true;
	puts("ready");
	fflush(stdout);
	return serve(fuse_fd);
}
