/* SPDX-License-Identifier: MIT */
/*
 * prepare --shrink: e2fsck, resize2fs and tune2fs work on a loop device whose writes stay in RAM.
 * The resulting file system then goes to the card as one commit (commit/shrink.h).
 */
#include "offline/shrink_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include "base/clean.h"
#include "base/parse.h"
#include "base/program.h"
#include "daemon/harden.h"
#include "export/transport.h"
#include "export/view.h"
#include "fs/fs_ops.h"

#define DEFAULT_JOURNAL_BYTES (16 * MIB)

struct session {
	const struct format_options *opt;
	struct offline *f;
	struct failure *fail;
	struct ram_store *store;
	struct view *view;
	struct transport *transport;
	/* held by another program: it stays, and returns errors once this process has ended */
	bool held;
	int said_fd; /* output of the programs */
};

/* ---- the programs ---- */

static bool is_stopped(const struct session *s)
{
	return s->opt->stop && s->opt->stop->wanted;
}

static int explain_stopped(const struct session *s)
{
	return failure(s->fail, -ECANCELED, "%s: stopped; nothing was written to it", s->f->device);
}

/* Returns the exit code of the program, or -errno. */
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
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	e = posix_spawnp(&pid, argv[0], &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	if (e)
		return -e;
	if (s->opt->stop)
		s->opt->stop->program = pid;
	if (is_stopped(s))
		kill(pid, SIGTERM); /* the handler may not have seen it */
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (s->opt->stop)
		s->opt->stop->program = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

/* Runs a program of e2fsprogs on the loop device. The last argument, if any, follows the device. */
static int tool(struct session *s, const char *what, const char *name, const char *option,
		char *last)
{
	char prog[16], opt[64];
	char *argv[] = { prog, opt, (char *)transport_disk(s->transport)->path, last, NULL };
	int e;

	snprintf(prog, sizeof(prog), "%s", name);
	snprintf(opt, sizeof(opt), "%s", option);
	e = spawn(s, argv);
	if (is_stopped(s))
		return explain_stopped(s);
	if (e == 0)
		return 0;
	if (e == -ENOENT)
		return failure(s->fail, e, "%s is missing: install e2fsprogs", name);
	if (e < 0)
		return failure(s->fail, e, "%s failed: %s", name, strerrordesc_np(-e));
	e = failure(s->fail, -EUCLEAN, "%s; nothing was written to %s (%s ended with %d)", what,
		    s->f->device, name, e);
	program_output(s->said_fd, transport_disk(s->transport)->path, s->f->device, s->fail->said,
		       sizeof(s->fail->said));
	return e;
}

static int run_tools(struct session *s, uint64_t fs_bytes)
{
	uint64_t journal_bytes = s->opt->journal_bytes ? s->opt->journal_bytes
						       : DEFAULT_JOURNAL_BYTES;
	bool small_journal = s->f->fs.journal_bytes > journal_bytes;
	char size[32], journal[64], what[256];
	int e = tool(s, "the file system has errors: run e2fsck -f first", "e2fsck", "-fp", NULL);

	snprintf(size, sizeof(size), "%lluK", (unsigned long long)(fs_bytes / KIB));
	snprintf(journal, sizeof(journal), "-Jsize=%llu",
		 (unsigned long long)(journal_bytes / MIB));
	snprintf(what, sizeof(what),
		 "the file system cannot shrink to %s: delete files, or use a smaller --log-size",
		 FORMAT_SIZE(fs_bytes));
	if (e == 0 && small_journal)
		e = tool(s, "the journal cannot be removed", "tune2fs", "-O^has_journal", NULL);
	if (e == 0)
		e = tool(s, what, "resize2fs", "-f", size);
	if (e == 0 && small_journal)
		e = tool(s,
			 "the file system is too full for a new journal, which needs twice its "
			 "size free: try a smaller --journal-size",
			 "tune2fs", journal, NULL);
	if (e == 0)
		e = tool(s, "the shrunk file system has errors", "e2fsck", "-fp", NULL);
	return e;
}

/* ---- the card as a disk ---- */

static int start_session(struct session *s)
{
	_cleanup_close_ int kernel_fd = transport_open();
	uint64_t blks = round_up_u64(s->f->fs.size_bytes, COW_BLK_BYTES) / COW_BLK_BYTES;
	struct log_index *ix = log_index_empty();
	char why[256] = "no memory";
	struct sysinfo si;
	int e = ix && sysinfo(&si) == 0 ? 0 : -ENOMEM;

	if (kernel_fd < 0) {
		log_index_unref(ix);
		return failure(s->fail, kernel_fd, "no FUSE (/dev/fuse): %s",
			       strerrordesc_np(-kernel_fd));
	}
	s->said_fd = memfd_create("output", MFD_CLOEXEC);
	/* the programs' writes must never wait for memory that only more writes would free */
	(void)!harden_process(HARDEN_IO_FLUSHER | HARDEN_MEMLOCK, NULL);
	if (s->said_fd < 0)
		e = -errno;
	if (e == 0)
		e = ram_store_open(&s->store, (uint64_t)si.totalram * si.mem_unit / 2);
	if (e == 0)
		e = view_new(&s->view, s->store, s->f->base, blks, ix);
	log_index_unref(ix);
	if (e == 0) {
		const struct transport_params p = { .kernel_fd = kernel_fd,
						    .view = s->view,
						    .label = "cowfs:shrink",
						    .limits = { 1024, LOOP_REQUEST_KB,
								LOOP_REQUESTS },
						    .temporary = true };

		e = transport_start(&s->transport, &p, why, sizeof(why));
	}
	if (e < 0)
		return failure(s->fail, e, "%s: %s", s->f->device, why);
	return 0;
}

/* Afterwards the view holds everything that the programs wrote, and can no longer change. */
static int stop_session(struct session *s, struct failure *fail)
{
	int e = 0;

	if (s->transport) {
		e = fsync(transport_disk(s->transport)->fd) < 0 ? -errno : 0;
		s->held = transport_detach(s->transport) < 0;
		if (s->held)
			return failure(fail, -EBUSY,
				       "%s is held by another program; nothing was written to %s",
				       transport_disk(s->transport)->path, s->f->device);
	}
	transport_stop(s->transport);
	s->transport = NULL;
	if (e < 0)
		return failure(fail, e, "the changes did not fit in RAM: %s", strerrordesc_np(-e));
	return 0;
}

static void free_session(struct session *s)
{
	if (s->held || (s->transport && transport_detach(s->transport) < 0))
		return;
	transport_stop(s->transport);
	if (s->view)
		view_free(s->view);
	ram_store_close(s->store);
	cleanup_closep(&s->said_fd);
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

static int explain(const struct session *s, int e, const struct shrink_report *rep)
{
	if (rep->committed)
		return failure(s->fail, e,
			       "%s: %s. The shrink is committed: run it again, or 'cowctl "
			       "release', to finish it",
			       s->f->device, rep->why);
	return failure(s->fail, e, "%s: %s. The file system is unchanged", s->f->device, rep->why);
}

static int commit(struct session *s, struct shrink_report *rep)
{
	struct shrink_image img = { .ctx = s->view, .next = next_sealed, .read = read_sealed };
	struct blk_reader r = { .read = read_sealed,
				.ctx = s->view,
				.volume_blks = view_volume_blks(s->view) };
	const struct commit_options co = { .cause = CAUSE_MANUAL,
					   .progress = s->opt->progress,
					   .progress_ctx = s->opt->progress_ctx };
	struct fsinfo fs;
	int e = view_seal(s->view);

	if (s->opt->stop)
		s->opt->stop->committing = true; /* before the last look, as the handler has it */
	if (is_stopped(s))
		return explain_stopped(s);
	if (e == 0)
		e = fsinfo_probe(&r, &fs);
	if (e < 0)
		return failure(s->fail, e, "%s cannot be read: %s", s->f->device,
			       strerrordesc_np(-e));
	img.fs_bytes = fs.size_bytes;
	img.lag = s->opt->lag;
	e = shrink_commit(s->f->base, &img, &co, rep);
	return e < 0 ? explain(s, e, rep) : 0;
}

static int check_fs(const struct offline *f, uint64_t fs_bytes, struct failure *fail)
{
	const char *device = f->device;

	if (!fs_ops(f->fs.kind)->can_shrink)
		return failure(fail, -EOPNOTSUPP,
			       "%s: only ext2, ext3 and ext4 can be shrunk, this is %s", device,
			       f->fs.type);
	if (!fs_bytes)
		return failure(fail, -ENOSPC, "%s: too small (%s) for a log of this size", device,
			       FORMAT_SIZE(f->base->geo.size_bytes));
	if (f->fs.size_bytes > f->base->geo.size_bytes)
		return failure(fail, -ERANGE, "%s is smaller than its file system", device);
	if (f->fs.needs_recovery || !f->fs.clean || f->fs.error_flag)
		return failure(
			fail, -EUCLEAN,
			"%s: the file system was not unmounted cleanly or has errors: run e2fsck "
			"-f %s first",
			device, device);
	return 0;
}

static void ignore_signals(bool int_too)
{
	static const int signals[] = { SIGTERM, SIGHUP, SIGPIPE, SIGINT };

	/* an interrupted program fails, and this process then ends in order */
	for (size_t i = 0; i < ARRAY_SIZE(signals) - !int_too; i++)
		(void)signal(signals[i], SIG_IGN);
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
}

int shrink_with_tools(struct offline *f, const struct format_options *opt,
		      struct shrink_report *ret, struct failure *fail)
{
	struct session s = { .opt = opt, .f = f, .fail = fail, .said_fd = -1 };
	uint64_t fs_bytes = offline_room_for_fs(f, opt->log_bytes);
	struct failure second; /* the first failure is the reason */
	int e = check_fs(f, fs_bytes, fail), stopped;

	if (e < 0)
		return e;
	ignore_signals(!opt->stop);
	e = start_session(&s);
	if (e == 0)
		e = run_tools(&s, fs_bytes);
	stopped = stop_session(&s, e < 0 ? &second : fail);
	if (e == 0)
		e = stopped;
	if (e == 0)
		e = commit(&s, ret);
	free_session(&s);
	return e;
}
