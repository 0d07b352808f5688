/* SPDX-License-Identifier: MIT */
/*
 * cowctl import: commits what cowctl export wrote, as one generation that the next attach or boot has.
 *
 * It is written into a scratch image of the committed generation. That is in RAM, and nothing reaches the card before
 * all of the file has been compared with its checksums. What is mounted meanwhile does not see it, and is lost.
 */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/view_mount.h"
#include "base/boxed.h"
#include "base/clean.h"
#include "base/io.h"
#include "base/parse.h"
#include "base/path.h"
#include "card/blockdev.h"
#include "cli/delta_sign.h"
#include "config/conf.h"
#include "offline/offline.h"

struct job {
	const struct options *o;
	const char *path;
	int fd;
	struct client c;
	uint8_t raw[DELTA_HEAD_BYTES];
	char signature[DELTA_SIGNATURE_BYTES];
	struct delta_head head;
	bool verified, mounted, waits; /* waits: an import of before does */
	uint64_t trial, imported_s, generation, time_s;
	struct view_mount scratch;
	struct delta_apply apply;
	struct progress progress;
	struct failure *fail;
};

static int refuse(struct job *j, int error, const char *why)
{
	return failure(j->fail, error, "%s: %s", j->path, why);
}

/* ---- the file ---- */

static int read_ends(struct job *j)
{
	char why[2 * PATH_MAX];
	struct stat st;
	int r;

	j->fd = path_open(j->path, O_RDONLY | O_NONBLOCK, why, sizeof(why));
	if (j->fd < 0)
		return refuse(j, j->fd, path_strerror(j->path, j->fd, why, sizeof(why)));
	if (fstat(j->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return refuse(j, -EINVAL, "is not a regular file");
	if (st.st_size < (off_t)(sizeof(j->raw) + sizeof(j->signature)))
		return refuse(j, -EBADMSG, "is not what cowctl export writes, or was cut off");
	r = io_pread_full(j->fd, j->raw, sizeof(j->raw), 0);
	if (r == 0)
		r = io_pread_full(j->fd, j->signature, sizeof(j->signature), sizeof(j->raw));
	if (r < 0)
		return refuse(j, r, strerrordesc_np(-r));
	j->signature[sizeof(j->signature) - 1] = '\0';
	r = delta_get_head(j->raw, &j->head);
	if (r < 0)
		return refuse(
			j, r,
			r == -ENOMSG		? "is not what cowctl export writes"
			: r == -EPROTONOSUPPORT ? "was written by a newer cowfs"
			: r == -EPROTO
				? "was written by an older cowfs, and does not say what it replaces: export it again"
				: "is damaged: fetch it again; nothing was written");
	if ((uint64_t)st.st_size == j->head.file_bytes)
		return 0;
	return failure(j->fail, -EBADMSG,
		       "%s: has %s bytes, and should have %s: fetch the rest; nothing was written",
		       j->path, with_commas((uint64_t)st.st_size), with_commas(j->head.file_bytes));
}

static int check_signature(struct job *j)
{
	struct conf *conf = NULL;
	char why[512];
	const char *keys;
	int r = conf_load(&conf, why, sizeof(why));

	if (r < 0)
		return failure(j->fail, r, "%s", why);
	keys = conf_text(conf, j->c.name, ROOTOPT_IMPORT_KEYS);
	j->verified = *keys;
	if (*keys)
		r = delta_verify(j->raw, j->signature, keys, j->path, j->fail);
	conf_free(conf);
	return r;
}

/* ---- the volume ---- */

static int look_at_volume(struct job *j)
{
	struct json_object *status = client_ask(&j->c, COMMAND_STATUS, j->fail);

	if (!status)
		return j->fail->error;
	j->mounted = *json_text(status, "mountpoint");
	j->imported_s = json_u64(status, "imported_unix_seconds");
	j->generation = json_u64(status, "generation");
	j->time_s = json_u64(status, "generation_unix_seconds");
	j->waits = json_u64(status, "replaced_by");
	json_object_put(status);
	return 0;
}

/* Of an xfs, a block on the card may be from a later time than the file. Its replay would take that for newer. */
static int check_time(struct job *j)
{
	bool xfs = !strcmp(j->head.fs_type, "xfs"), older = j->head.time_s < j->imported_s;

	if (older && !has_option(j->o, OPT_OLDER))
		return failure(j->fail, -ERANGE,
			       "%s: is of %s, and older than what was imported last: --older",
			       j->path, format_time(j->head.time_s));
	if (xfs && (older || j->head.whole))
		return refuse(j, -EOPNOTSUPP,
			      "an xfs can only go on, from its base: neither back nor as a whole");
	return 0;
}

static int check_same_fs(struct job *j)
{
	struct offline f = { 0 };
	int r = offline_open(&f, j->scratch.disk, NULL, BLOCKDEV_RDONLY, 0, j->fail);
	bool same = r == 0 && f.base->geo.size_bytes == blk_to_bytes(j->head.volume_blks) &&
		    !memcmp(f.fs.uuid, j->head.fs_uuid, sizeof(f.fs.uuid));

	offline_close(&f);
	if (r < 0 || same)
		return r;
	return failure(j->fail, -EXDEV,
		       "%s: is of another file system than that of %s: a clone of it, or of one "
		       "image, is needed",
		       j->path, j->c.name);
}

/* ---- the blocks ---- */

static int explain_apply(struct job *j, int r)
{
	char of[64], here[64];

	switch (-r) {
	case EBADMSG:
		return refuse(j, r, "is damaged: fetch it again; nothing was written");
	case ENOSPC:
	case EIO:
		return failure(
			j->fail, -ENOSPC,
			"%s: nothing was imported: it needs up to %s of the RAM of %s (ram=), or the "
			"file or the card cannot be read",
			j->path, FORMAT_SIZE(blk_to_bytes(j->head.data_blks)), j->c.name);
	case ESTALE:
		snprintf(of, sizeof(of), "%s", format_time(j->head.base_s));
		snprintf(here, sizeof(here), "generation %llu of %s",
			 (unsigned long long)j->generation, format_time(j->time_s));
		return failure(
			j->fail, r,
			"%s: is for generation %llu of %s. %s has %s, which is another one from block %llu on; nothing was "
			"written",
			j->path, (unsigned long long)j->head.base_generation, of, j->c.name,
			j->generation ? here : "no commit, but what it was made with",
			(unsigned long long)j->apply.other_blk);
	}
	return failure(j->fail, r, "%s: %s; nothing was written", j->path, boxed_error(r));
}

static int apply(struct job *j)
{
	_cleanup_close_ int disk_fd = open(j->scratch.disk, O_RDWR | O_DIRECT | O_CLOEXEC);
	int r = disk_fd < 0 ? -errno : 0;

	j->apply = (struct delta_apply){ .head = &j->head,
					 .fd = j->fd,
					 .disk_fd = disk_fd,
					 .progress = progress_show,
					 .ctx = &j->progress };
	progress_start(&j->progress);
	if (r == 0)
		r = delta_apply(&j->apply);
	if (r == 0 && fsync(disk_fd) < 0)
		r = -errno;
	progress_end(&j->progress);
	return r < 0 ? explain_apply(j, r) : 0;
}

/* The boot loader starts one kernel for the generation before and for this one. */
static int check_kernel(struct job *j)
{
	_cleanup_close_ int dir_fd = -1;
	int r = j->trial && !has_option(j->o, OPT_FORCE)
			? view_mount_look(&j->scratch, &dir_fd, j->fail)
			: 0;

	if (r == 0 && dir_fd >= 0 && commit_trial_check(j->o, dir_fd) != EXIT_OK) {
		j->fail->why[0] = '\0'; /* it is printed */
		r = -EBUSY;
	}
	return r;
}

/* ---- the commit ---- */

static int commit(struct job *j, struct json_object **ret)
{
	const struct request rq = { .command = COMMAND_COMMIT,
				    .scratch = true,
				    .trial = j->trial,
				    .replaces = max_u64(j->head.time_s, 1) };
	struct json_object *answer;

	progress_start(&j->progress);
	answer = client_call(&j->c, &rq, progress_event, &j->progress, j->fail);
	progress_end(&j->progress);
	if (!answer)
		return j->fail->error;
	*ret = answer;
	return json_true(answer, "ok") ? 0
				       : failure(j->fail, -EIO, "%s", json_text(answer, "error"));
}

/* Nothing is mounted: it need not stay with what it has. */
static bool detach(struct job *j)
{
	if (j->mounted || !strcmp(j->c.name, ROOT_NAME))
		return false;
	view_mount_close(&j->scratch);
	return detach_volume(&j->c);
}

static void print_json(const struct job *j, struct json_object *answer, bool detached)
{
	struct json_object *report = json_object_object_get(answer, "report");
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "name", j->c.name);
	jsonw_bool(w, "imported", answer);
	jsonw_bool(w, "signature_verified", j->verified);
	jsonw_u64(w, "generation", answer ? json_u64(answer, "generation") : j->generation);
	jsonw_u64(w, "time_unix_seconds", j->head.time_s);
	jsonw_u64(w, "trial_boots", j->trial);
	jsonw_u64(w, "changed_bytes", blk_to_bytes(j->apply.written_blks));
	jsonw_u64(w, "written_bytes", json_u64(report, "written_bytes"));
	jsonw_u64(w, "erase_blocks", json_u64(report, "erase_blocks"));
	jsonw_bool(w, "detached", detached);
	json_end(w);
}

static void print_text(const struct job *j, struct json_object *answer, bool detached)
{
	struct json_object *report = json_object_object_get(answer, "report");
	bool root = !strcmp(j->c.name, ROOT_NAME);

	if (!answer) {
		printf("%s: has this already; nothing was written%s\n", CLEAN(j->c.name),
		       detached ? "; detached" : "");
		return;
	}
	printf("%s: generation %s: %s changed, %s written\n", CLEAN(j->c.name),
	       with_commas(json_u64(answer, "generation")),
	       FORMAT_SIZE(blk_to_bytes(j->apply.written_blks)),
	       FORMAT_SIZE(json_u64(report, "written_bytes")));
	if (!j->verified)
		printf("  its signature was not checked: cowfs.conf has no import-keys\n");
	if (detached)
		printf("  detached, because nothing was mounted\n");
	else
		printf("  %s has it. What is mounted now goes on, and all that is not committed is lost\n",
		       root ? "The next boot" : "The next attach");
	if (j->trial)
		printf("  On trial: after %llu boot%s without cowctl accept it goes back\n",
		       (unsigned long long)j->trial, plural(j->trial));
}

static int import(struct job *j)
{
	struct json_object *answer = NULL;
	bool detached = false;
	int r = read_ends(j);

	if (r == 0)
		r = check_signature(j);
	if (r == 0)
		r = look_at_volume(j);
	if (r == 0)
		r = check_time(j);
	if (r == 0)
		r = view_mount_disk(&j->c, VIEW_IMPORT, &j->scratch, j->fail);
	if (r == 0)
		r = check_same_fs(j);
	if (r == 0)
		r = apply(j);
	if (r == 0)
		r = check_kernel(j);
	if (r == 0 && j->apply.written_blks)
		r = commit(j, &answer);
	if (r == 0 && (answer || j->waits))
		detached = detach(j);
	if (r == 0)
		(has_option(j->o, OPT_JSON) ? print_json : print_text)(j, answer, detached);
	json_object_put(answer);
	return r;
}

int cmd_import(const struct options *o)
{
	struct failure fail = { 0 };
	struct job j = { .o = o,
			 .path = o->operand[o->operands - 1],
			 .fd = -1,
			 .scratch = { .dir_fd = -1, .disk_fd = -1 },
			 .fail = &fail };
	int e, exit = EXIT_OK;

	e = client_open(&j.c, o->operands == 2 ? o->operand[0] : NULL, &fail);
	if (e < 0)
		return cmd_failed(o, &fail);
	if (has_option(o, OPT_TRIAL) && strcmp(j.c.name, ROOT_NAME))
		exit = cmd_usage(o, "--trial is for the root alone");
	else
		exit = trial_boots(o, &j.trial);
	e = exit == EXIT_OK ? import(&j) : 0;
	view_mount_close(&j.scratch);
	cleanup_closep(&j.fd);
	client_close(&j.c);
	if (e < 0 && !fail.why[0])
		return EXIT_FAILED;
	return e < 0 ? cmd_failed(o, &fail) : exit;
}
