/* SPDX-License-Identifier: MIT */
/*
 * cowctl commit PATH: copies the files from a snapshot of now into a writable image of the
 * committed generation, and commits that image alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "attach/compose.h"
#include "attach/view_mount.h"
#include "base/parse.h"
#include "base/path.h"
#include "cli/cmd.h"
#include "cli/place.h"
#include "cli/top.h"
#include "files/copy.h"

#define TRIES 5 /* another commit may come first, or the worker may die */
#define WAIT_NS 60000000000ull
#define WAIT_STEP_US 50000

struct job {
	const struct options *o;
	const struct places *places;
	struct client client;
	struct view_mount scratch, now;
	/* of the root on these, which is composed; else -1 */
	int to_root_fd, from_root_fd, from_upper_fd;
	struct sample sample; /* runs: what differs between both */
	struct touched touched;
	bool found; /* touched is set */
	struct failure *err;
	bool again; /* the image has ended: nothing was committed */
	bool same;  /* the card has these files already */
};

static int interrupted(struct job *j)
{
	return failure(j->err, -EINTR, "interrupted; nothing was committed");
}

static void on_problem(void *ctx, const char *path, int error, const char *what)
{
	struct job *j = ctx;

	if (!j->err->why[0])
		failure(j->err, error, "%s: %s (%s); nothing was committed", path, what,
			place_copy_error(error));
}

static int look_for(int root_fd, const char *path)
{
	_cleanup_close_ int fd = path_open_below(root_fd, path, O_PATH | O_NOFOLLOW);

	return fd < 0 ? fd : 0;
}

/* The files that are asked for are put on the list. */
static int plan(struct job *j, struct copy *c, int from_fd)
{
	char why[2 * PATH_MAX];
	int e = 0;

	for (size_t i = 0; i < j->places->n && e == 0; i++) {
		const struct place *p = &j->places->p[i];

		e = j->places->must_exist ? look_for(from_fd, p->path) : 0;
		if (e == 0)
			e = copy_plan(c, p->path);
		if (e == -ENOENT && j->places->must_exist)
			failure(j->err, e, "%s: %s", p->operand, strerrordesc_np(ENOENT));
		else if (e == -ELOOP && path_link_below(from_fd, p->path, why, sizeof(why)))
			failure(j->err, e, "%s: %s; nothing was committed", p->operand, why);
		else if (e == -ENOENT)
			failure_set(j->err, EXIT_USAGE, e,
				    "%s: exists neither now nor in generation %s", p->operand,
				    with_commas(j->scratch.generation));
		else if (e < 0 && e != -EINTR && !j->err->why[0])
			failure(j->err, e, "%s: %s; nothing was committed", p->operand,
				strerrordesc_np(-e));
	}
	return e;
}

/* The scratch image ends when RAM runs short: that is said before. */
static int check_ram(struct job *j, uint64_t need_bytes)
{
	struct json_object *status = client_ask(&j->client, COMMAND_STATUS, j->err);
	uint64_t full, used;

	if (!status)
		return j->err->error;
	full = json_u64(status, "ram_limit_bytes");
	used = json_u64(status, "ram_used_bytes");
	json_object_put(status);
	if (used + need_bytes <= full)
		return 0;
	return failure(
		j->err, -ENOSPC,
		"these files need %s of RAM, of which %s (of %s) are free: commit everything, or attach with more --ram; nothing was committed",
		FORMAT_SIZE(need_bytes), FORMAT_SIZE(full > used ? full - used : 0),
		FORMAT_SIZE(full));
}

static int copy_all(struct job *j)
{
	bool overlay = j->places->composed;
	const struct copy_options opt = { .trusted = true,
					  .overlay = overlay,
					  .upper_fd = j->from_upper_fd,
					  .touched = j->found ? &j->touched : NULL,
					  .stop = &interrupt_stop,
					  .problem = on_problem,
					  .ctx = j };
	int from_fd = overlay ? j->from_root_fd : j->now.dir_fd;
	struct copy_report rep = { 0 };
	struct copy *c;
	int e = copy_new(&c, from_fd, overlay ? j->to_root_fd : j->scratch.dir_fd, &opt);

	if (e < 0)
		return failure(j->err, e, "out of memory");
	e = plan(j, c, from_fd);
	if (e == 0)
		e = copy_planned(c, &rep);
	if (e == 0)
		e = check_ram(j, rep.bytes);
	if (e == 0)
		e = copy_apply(c, &rep);
	/* before the blocks of what has gone are free */
	if (e == 0)
		e = view_mount_sync(&j->scratch, j->err);
	if (e == -EINTR)
		(void)interrupted(j);
	/* a scratch image that has ended answers with I/O errors */
	j->again = e == -EIO || e == -EROFS;
	if (e < 0 && !j->err->why[0])
		failure(j->err, e, "%s; nothing was committed", strerrordesc_np(-e));
	j->same = !(rep.created + rep.replaced + rep.updated + rep.removed);
	copy_free(c);
	return e;
}

static int compose_both(struct job *j)
{
	int e = compose_adopt(j->scratch.dir_fd, j->now.dir_fd, j->err);

	if (e == 0)
		e = j->to_root_fd = compose_open(j->scratch.dir_fd, true, j->err);
	if (e >= 0)
		e = j->from_root_fd = compose_open(j->now.dir_fd, false, j->err);
	if (e < 0)
		return e;
	j->from_upper_fd = openat(j->now.dir_fd, "upper", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return j->from_upper_fd < 0 ? failure(j->err, -errno, "upper: %s", strerrordesc_np(errno))
				    : 0;
}

static void close_composed(struct job *j)
{
	cleanup_closep(&j->to_root_fd);
	cleanup_closep(&j->from_root_fd);
	cleanup_closep(&j->from_upper_fd);
	j->to_root_fd = j->from_root_fd = j->from_upper_fd = -1;
}

/* Files that were written before may be missing there: none of them is committed, nor called the same. */
static int check_now(struct job *j)
{
	if (!j->now.unsynced)
		return 0;
	j->again = true;
	return failure(
		j->err, -EAGAIN,
		"the file system could not be synced: commit everything first; nothing was committed");
}

static int fill(struct job *j)
{
	/* the image first: a commit in between could have newer files than the snapshot */
	uint64_t end_ns = now_ns() + WAIT_NS;
	int e;

	/* another one may be under way, or just ending */
	while ((e = view_mount_open(&j->client, VIEW_SCRATCH, &j->scratch, j->err)) == -EBUSY &&
	       !interrupt_stop && !has_option(j->o, OPT_NO_WAIT) && now_ns() < end_ns)
		usleep(WAIT_STEP_US);
	if (e == 0)
		e = view_mount_open(&j->client, VIEW_NOW, &j->now, j->err);
	if (e == 0 && j->places->composed)
		e = compose_both(j);
	j->again = e == -EIO || e == -EROFS;
	if (e == 0)
		e = check_now(j);
	if (e == 0) {
		j->found = !j->places->composed && touched_between(&j->client, &j->scratch, &j->now,
								   &j->sample, &j->touched);
		e = copy_all(j);
		touched_clear(&j->touched);
		j->found = false;
		top_sample_clear(&j->sample);
	}
	close_composed(j);
	view_mount_close(&j->now);
	/* also when nothing will be committed: what is mounted must not outlive the command */
	if (e == 0) {
		e = view_mount_unmount(&j->scratch, j->err);
		j->again = e == -EIO;
	}
	return e;
}

static int commit(struct job *j, struct json_object **ret)
{
	const struct request rq = { .command = COMMAND_COMMIT,
				    .scratch = true,
				    .checkpoint = has_option(j->o, OPT_CHECKPOINT) };
	struct progress progress;
	struct json_object *answer;

	progress_start(&progress);
	answer = client_call(&j->client, &rq, progress_event, &progress, j->err);
	progress_end(&progress);
	if (!answer)
		return j->err->error;
	if (json_true(answer, "ok")) {
		*ret = answer;
		return 0;
	}
	j->again = !strcmp(json_text(answer, "code"), "EAGAIN");
	failure(j->err, -EIO, "%s", json_text(answer, "error"));
	json_object_put(answer);
	return -EIO;
}

/* The mount alone changes the image: not worth a commit. */
static struct json_object *nothing_committed(const struct job *j)
{
	struct json_object *answer = json_answer(true), *report = json_object_new_object();

	json_object_object_add(report, "written_bytes", json_object_new_uint64(0));
	json_object_object_add(answer, "job", json_object_new_string("commit-files"));
	json_object_object_add(answer, "generation", json_object_new_uint64(j->scratch.generation));
	json_object_object_add(answer, "remark", json_object_new_string(""));
	json_object_object_add(answer, "report", report);
	return answer;
}

static int try_once(struct job *j, struct json_object **ret)
{
	pid_t worker;
	int e;

	*j->err = (struct failure){ 0 };
	j->again = false;
	j->scratch = j->now = (struct view_mount){ .dir_fd = -1, .disk_fd = -1 };
	e = client_open(&j->client, places_volume(j->places), j->err);
	if (e < 0)
		return e;
	worker = client_worker(j->client.name);
	e = fill(j);
	if (e == 0 && j->same && !has_option(j->o, OPT_CHECKPOINT))
		*ret = nothing_committed(j);
	else if (e == 0)
		e = interrupt_stop ? interrupted(j) : commit(j, ret);
	view_mount_close(&j->now);
	view_mount_close(&j->scratch);
	client_close(&j->client);
	/* The worker died, and with it the image. If that was after the commit, the card has the files. */
	j->again |= e < 0 && client_worker(j->client.name) != worker;
	return e;
}

int commit_files(const struct options *o, const struct places *p, struct json_object **ret,
		 char name[RUNDIR_NAME_BYTES], struct failure *err)
{
	struct job j = { .o = o,
			 .places = p,
			 .err = err,
			 .to_root_fd = -1,
			 .from_root_fd = -1,
			 .from_upper_fd = -1 };
	int e = -EAGAIN;

	if (interrupt_stop)
		return interrupted(&j);
	interrupt_catch();
	for (unsigned i = 0; i < TRIES && e < 0 && (i == 0 || j.again) && !interrupt_stop; i++)
		e = try_once(&j, ret);
	snprintf(name, RUNDIR_NAME_BYTES, "%s", j.client.name);
	return e;
}
