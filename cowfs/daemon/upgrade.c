/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The root of process 1 has the installed program. The daemon may have another root: that of an
 *   initramfs, which is empty by now. The copy gets the daemon's root again, where the kernel shows it
 *   the same mounts as before.
 * - The copy lies on a tmpfs that is not attached anywhere, and finds its libraries in its working
 *   directory: there is no path to them. So its dynamic linker is executed, and gets a relative path.
 *   When all is mapped and locked, the spare leaves that directory.
 * - The linker names the libraries that are mapped (dl_iterate_phdr): those that this program needs on
 *   this system.
 */
#include "daemon/upgrade.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/io.h"

#define VARIABLE "COWFS_PROGRAM"
#define ARGS_MAX 64
#define STARTED "cowfs"	  /* the file that is executed: it gives the process its name */
#define PROGRAM "program" /* with a dynamic linker */

/* The environment outlives the copies, whose own path is nothing. */
int upgrade_remember_program(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n < 0)
		return -errno;
	path[n] = '\0';
	return setenv(VARIABLE, path, 0) < 0 ? -errno : 0; /* tests set another one */
}

const char *upgrade_program(void)
{
	const char *path = secure_getenv(VARIABLE);

	return path ? path : "cowfs";
}

static bool same_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

static int change_root(int fd)
{
	_cleanup_close_ int here_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	/* the unit cowfs@ may not call chroot, and need not */
	if (here_fd >= 0 && same_file(fd, here_fd))
		return 0;
	return fchdir(fd) < 0 || chroot(".") < 0 ? -errno : 0;
}

void upgrade_exec(const int fd[UPGRADE_FDS], char *const *argv)
{
	int high[UPGRADE_FDS + 1], root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int system_fd = openat(fd[UPGRADE_PROC - UPGRADE_LINK], "1/root",
			       O_PATH | O_DIRECTORY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(UPGRADE_MS / 1000); /* whatever goes wrong */
	/* a container may refuse the root of process 1: then that of the daemon is the same */
	if (root_fd < 0 || (system_fd >= 0 && change_root(system_fd) < 0))
		_exit(1);
	for (int i = 0; i <= UPGRADE_FDS; i++) {
		int from = i == UPGRADE_FDS ? root_fd : fd[i];

		high[i] = fcntl(from >= 0 ? from : STDERR_FILENO, F_DUPFD_CLOEXEC, UPGRADE_END);
	}
	for (int i = 0; i <= UPGRADE_FDS; i++)
		if (high[i] < 0 || dup2(high[i], UPGRADE_LINK + i) < 0)
			_exit(1);
	close_range(UPGRADE_END, ~0u, 0);
	execve(upgrade_program(), argv, environ);
	_exit(1);
}

/* ---- the copy ---- */

static int new_folder(void)
{
	_cleanup_close_ int fs_fd = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int fd;

	if (fs_fd < 0 || fsconfig(fs_fd, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0 ||
	    fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return fd < 0 ? -errno : fd;
}

static int copy_file(int from_dirfd, const char *path, int to_dirfd, const char *name)
{
	_cleanup_close_ int from = openat(from_dirfd, path, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int to = openat(to_dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
					0700);
	static char buf[64 * KIB];
	ssize_t n;

	if (from < 0 || to < 0)
		return errno == EEXIST ? 0 : -errno;
	while ((n = read(from, buf, sizeof(buf))) > 0) {
		int r = io_write_full(to, buf, (size_t)n);

		if (r < 0)
			return r;
	}
	return n < 0 ? -errno : 0;
}

struct copy {
	int dir_fd;
	bool dynamic;
};

/* The first one is the program. That of the kernel (vdso) has no path. */
static int copy_object(struct dl_phdr_info *info, size_t bytes, void *ctx)
{
	struct copy *c = ctx;
	const char *slash = strrchr(info->dlpi_name, '/'), *linker = NULL;
	int r;

	(void)bytes;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_INTERP)
			linker = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (linker && !c->dynamic) {
		c->dynamic = true;
		r = copy_file(UPGRADE_PROC, "self/exe", c->dir_fd, PROGRAM);
		return r < 0 ? r : copy_file(AT_FDCWD, linker, c->dir_fd, STARTED);
	}
	return slash && c->dynamic ? copy_file(AT_FDCWD, info->dlpi_name, c->dir_fd, slash + 1) : 0;
}

/* argv[1] is --spare=load...; the copy gets --spare=run... */
static void run_copy(char *const *argv, bool dynamic)
{
	static char started[] = STARTED, option[] = "--library-path", here[] = ".",
		    program[] = "./" PROGRAM, spare[96];
	char *args[ARGS_MAX + 8];
	unsigned n = 0;

	args[n++] = argv[0] ? argv[0] : started;
	if (dynamic) {
		args[n++] = option;
		args[n++] = here;
		args[n++] = program;
	}
	snprintf(spare, sizeof(spare), "--spare=" UPGRADE_RUN "%.60s",
		 argv[1] + strlen("--spare=" UPGRADE_LOAD));
	args[n++] = spare;
	for (unsigned i = 2; argv[i] && i < ARGS_MAX; i++)
		args[n++] = argv[i];
	args[n] = NULL;
	execve("./" STARTED, args, environ);
}

int upgrade_load(char *const *argv)
{
	struct copy c = { .dir_fd = new_folder() };
	int r = c.dir_fd;

	if (r >= 0)
		r = dl_iterate_phdr(copy_object, &c);
	if (r >= 0 && !c.dynamic)
		r = copy_file(UPGRADE_PROC, "self/exe", c.dir_fd, STARTED);
	if (r >= 0)
		r = change_root(UPGRADE_ROOT);
	if (r < 0)
		return r;
	if (close(UPGRADE_ROOT) < 0 || fchdir(c.dir_fd) < 0)
		return -errno;
	run_copy(argv, c.dynamic);
	return -errno;
}
