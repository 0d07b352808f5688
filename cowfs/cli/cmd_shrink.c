/* SPDX-License-Identifier: MIT */
/*
 * cowctl format --shrink: e2fsck, resize2fs and tune2fs work on a loop device whose writes stay in
 * RAM; what they made of the file system then goes to the card as one commit (commit/shrink.h).
 */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include "base/clean.h"
#include "base/parse.h"
#include "daemon/harden.h"
#include "export/fuse.h"
#include "export/loop.h"
#include "export/view.h"
#include "commit/shrink.h"
#include "fs/fs_ops.h"

#define SHOWN_BYTES 1500 /* of what a program said */

struct session {
	const struct options *o;
	struct offline *f;
	struct ram_store *store;
	struct view *view;
	struct fuse_export *export;
	struct loop_dev loop;
	bool have_loop;
	int said_fd; /* output of the programs */
};

/* ---- the programs ---- */

/* What they said last, indented, to stderr. */
static void show_output(int fd)
{
	off_t end = lseek(fd, 0, SEEK_END), start = end > SHOWN_BYTES ? end - SHOWN_BYTES : 0;
	char text[SHOWN_BYTES + 1];
	ssize_t n = pread(fd, text, SHOWN_BYTES, start);
	char *save = NULL;

	if (n <= 0)
		return;
	text[n] = '\0';
	for (char *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
		fprintf(stderr, "    %s\n", clean_text(line));
}

/* Exit code of the program, or -errno. */
static int spawn(struct session *s, char *const *argv)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t all;
	pid_t pid;
	int e, status;

	dprintf(s->said_fd, "# %s %s %s %s\n", argv[0], argv[1], argv[2], argv[3] ? argv[3] : "");
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, s->said_fd, 1);
	posix_spawn_file_actions_adddup2(&files, s->said_fd, 2);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF);
	e = posix_spawnp(&pid, argv[0], &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	if (e)
		return -e;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

/* Runs a program of e2fsprogs on the loop device; its last argument, if any, comes behind that. */
static int tool(struct session *s, const char *what, const char *name, const char *option,
		char *last)
{
	char prog[16], opt[64];
	char *argv[] = { prog, opt, s->loop.path, last, NULL };
	int e;

	snprintf(prog, sizeof(prog), "%s", name);
	snprintf(opt, sizeof(opt), "%s", option);
	e = spawn(s, argv);
	if (e == 0)
		return EXIT_OK;
	if (e == -ENOENT)
		return cmd_fail(s->o, EXIT_FAILED, e, "%s is not there: install e2fsprogs", name);
	if (e < 0)
		return cmd_fail(s->o, EXIT_FAILED, e, "%s did not end well: %s", name,
				strerrordesc_np(-e));
	e = cmd_fail(s->o, EXIT_FAILED, -EUCLEAN,
		     "%s; nothing was written to %s (%s ended with %d)", what, s->o->operand[0],
		     name, e);
	if (!has_option(s->o, OPT_JSON))
		show_output(s->said_fd);
	return e;
}

static int run_tools(struct session *s, uint64_t fs_bytes, uint64_t journal_bytes)
{
	bool small_journal = s->f->fs.journal_bytes > journal_bytes;
	char size[32], journal[64], what[256];
	int exit = tool(
		s, "the file system has errors, which e2fsck would correct: e2fsck -f it first",
		"e2fsck", "-fp", NULL);

	snprintf(size, sizeof(size), "%lluK", (unsigned long long)(fs_bytes / KIB));
	snprintf(journal, sizeof(journal), "-Jsize=%llu",
		 (unsigned long long)(journal_bytes / MIB));
	snprintf(what, sizeof(what),
		 "the file system cannot be made as small as %s: it holds too much, or a smaller "
		 "--log-size is needed",
		 FORMAT_SIZE(fs_bytes));
	if (exit == EXIT_OK && small_journal)
		exit = tool(s, "the journal cannot be removed", "tune2fs", "-O^has_journal", NULL);
	if (exit == EXIT_OK)
		exit = tool(s, what, "resize2fs", "-f", size);
	if (exit == EXIT_OK && small_journal)
		exit = tool(s,
			    "the file system is too full for a new journal, which wants twice its "
			    "size free: a smaller "
			    "--journal-size may do",
			    "tune2fs", journal, NULL);
	if (exit == EXIT_OK)
		exit = tool(s, "the smaller file system has errors", "e2fsck", "-fp", NULL);
	return exit;
}

/* ---- the loop device over the card ---- */

static int start_session(struct session *s)
{
	_cleanup_close_ int fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), file_fd = -1;
	uint64_t blks = round_up_u64(s->f->fs.size_bytes, COW_BLK_BYTES) / COW_BLK_BYTES;
	struct log_index *ix = log_index_empty();
	struct sysinfo si;
	int e = fuse_fd < 0 ? -errno : ix && sysinfo(&si) == 0 ? 0 : -ENOMEM;

	if (e < 0) {
		log_index_unref(ix);
		return cmd_fail(s->o, EXIT_FAILED, e, "no FUSE here (/dev/fuse): %s",
				strerrordesc_np(-e));
	}
	s->said_fd = memfd_create("output", MFD_CLOEXEC);
	/* the programs' writes must never wait for memory that only more writes would free */
	(void)!harden_process(HARDEN_IO_FLUSHER | HARDEN_MEMLOCK, NULL);
	e = s->said_fd < 0 ? -errno
			   : ram_store_open(&s->store, (uint64_t)si.totalram * si.mem_unit / 2);
	if (e == 0)
		e = view_new(&s->view, s->store, s->f->base, blks, ix);
	log_index_unref(ix);
	if (e == 0)
		e = fuse_export_start(&s->export, s->view, fuse_fd, &file_fd);
	if (e == 0)
		e = loop_attach(&s->loop, file_fd, 1024, "cowfs:shrink");
	s->have_loop = e == 0;
	if (e == 0) /* should this process be killed */
		e = loop_set_autoclear(&s->loop);
	if (e < 0)
		return cmd_fail(s->o, EXIT_FAILED, e, "%s cannot be shown as a loop device: %s",
				s->o->operand[0], strerrordesc_np(-e));
	return EXIT_OK;
}

/* What the programs wrote is in the view then, and nobody can change it any more. */
static int stop_session(struct session *s)
{
	int e = 0;

	if (s->have_loop) {
		e = fsync(s->loop.fd) < 0 ? -errno : 0;
		if (loop_detach(&s->loop) < 0)
			return cmd_fail(s->o, EXIT_FAILED, -EBUSY,
					"%s is held by another program; nothing was written to %s",
					s->loop.path, s->o->operand[0]);
	}
	s->have_loop = false;
	if (s->export)
		fuse_export_stop(s->export);
	s->export = NULL;
	if (e < 0)
		return cmd_fail(s->o, EXIT_FAILED, e, "the changes could not be kept in RAM: %s",
				strerrordesc_np(-e));
	return EXIT_OK;
}

static void free_session(struct session *s)
{
	if (s->have_loop) /* held by somebody: it stays, and answers with errors once we are gone */
		return;
	if (s->export)
		fuse_export_stop(s->export);
	if (s->view)
		view_free(s->view);
	ram_store_close(s->store);
	if (s->said_fd >= 0)
		close(s->said_fd);
}

/* ---- the commit ---- */

static bool next_sealed(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
			enum blk_state *state)
{
	return view_next_sealed(ctx, blk, max_blks, ret_blks, state);
}

static int read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_sealed(ctx, blk, blks, buf);
}

static void on_progress(void *ctx, enum commit_phase phase, uint64_t done_blks, uint64_t total_blks)
{
	static const char *const names[] = { "sorting", "writing", "log", "home" };

	progress_show(ctx, names[phase], blk_to_bytes(done_blks), blk_to_bytes(total_blks));
}

static int explain(const struct options *o, int e, const struct shrink_report *rep)
{
	if (rep->committed)
		return cmd_fail(o, EXIT_FAILED, e,
				"%s: %s. The smaller file system is committed: run it again, or "
				"'cowctl recover', to "
				"finish",
				o->operand[0], rep->why);
	return cmd_fail(o, EXIT_FAILED, e, "%s: %s. The file system is as it was", o->operand[0],
			rep->why);
}

static int commit(struct session *s, struct shrink_report *rep)
{
	struct shrink_image img = { .ctx = s->view, .next = next_sealed, .read = read_sealed };
	struct blk_reader r = { .read = read_sealed,
				.ctx = s->view,
				.volume_blks = view_volume_blks(s->view) };
	struct progress progress;
	struct commit_options opt = { .cause = CAUSE_MANUAL,
				      .progress = on_progress,
				      .progress_ctx = &progress };
	struct fsinfo fs;
	int e = view_seal(s->view);

	if (e == 0)
		e = fsinfo_probe(&r, &fs);
	if (e < 0)
		return cmd_fail(s->o, EXIT_FAILED, e, "%s cannot be read: %s", s->o->operand[0],
				strerrordesc_np(-e));
	img.fs_bytes = fs.size_bytes;
	img.lag = format_lag(s->o);
	progress_start(&progress);
	e = shrink_commit(s->f->base, &img, &opt, rep);
	progress_end(&progress);
	return e < 0 ? explain(s->o, e, rep) : EXIT_OK;
}

static int check_fs(const struct options *o, const struct offline *f, uint64_t fs_bytes)
{
	const char *device = o->operand[0];

	if (!fs_ops(f->fs.kind)->can_shrink)
		return cmd_fail(o, EXIT_FAILED, -EOPNOTSUPP,
				"only ext2, ext3 and ext4 can be shrunk; on %s is %s", device,
				f->fs.type);
	if (!fs_bytes)
		return cmd_fail(o, EXIT_FAILED, -ENOSPC,
				"%s (%s) is too small for a log of this size", device,
				FORMAT_SIZE(f->base->geo.size_bytes));
	if (f->fs.size_bytes > f->base->geo.size_bytes)
		return cmd_fail(o, EXIT_FAILED, -ERANGE, "%s is smaller than its file system",
				device);
	if (f->fs.needs_recovery || !f->fs.clean || f->fs.error_flag)
		return cmd_fail(o, EXIT_FAILED, -EUCLEAN,
				"the file system on %s was not unmounted cleanly, or has errors: "
				"e2fsck -f %s first",
				device, device);
	return EXIT_OK;
}

static void ignore_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };

	/* a program that is interrupted fails, and then we end in order */
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		(void)signal(signals[i], SIG_IGN);
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
}

int shrink_run(const struct options *o, struct offline *f, uint64_t fs_bytes,
	       uint64_t journal_bytes, struct shrink_report *rep)
{
	struct session s = { .o = o, .f = f, .said_fd = -1 };
	int exit = check_fs(o, f, fs_bytes), e;

	if (exit != EXIT_OK)
		return exit;
	ignore_signals();
	exit = start_session(&s);
	if (exit == EXIT_OK)
		exit = run_tools(&s, fs_bytes, journal_bytes);
	e = stop_session(&s);
	if (exit == EXIT_OK)
		exit = e;
	if (exit == EXIT_OK)
		exit = commit(&s, rep);
	free_session(&s);
	return exit;
}
