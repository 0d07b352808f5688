/* SPDX-License-Identifier: MIT */
/*
 * A view of a card that no daemon serves: the log over the base, as one file.
 *
 * A boxed child (base/boxed.h) opens the log, says what it found and stays to serve the file. So
 * everything that the records of the log say is read without privileges. The child has the only
 * descriptors of the card, which are read-only, and its claim. It knows of no path and ends when
 * the kernel ends the connection.
 */
#include "offline/offline.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

#include "base/boxed.h"
#include "card/blockdev.h"
#include "export/fuse.h"
#include "export/layers.h"
#include "fs/fs_ops.h"
#include "fs/fsproc.h"

struct found {
	int error;    /* of log_open, or of reading the file system */
	bool another; /* log_of_another */
	struct log_open_report log;
	struct fsinfo fs; /* of the image */
	uint64_t generation, time_s;
};
_Static_assert(sizeof(struct found) <= BOXED_MESSAGE_BYTES, "one message");

struct written {
	uint64_t blk;
	uint8_t content[COW_BLK_BYTES];
};

struct server {
	struct offline f;
	struct fuse_export *fuse;
	struct layers *layers;
	void *written; /* tsearch(3): blocks that the view wrote */
	bool heard;
	enum offline_image which;
	struct found found;
};

/* ---- the child ---- */

static int read_blocks(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return layers_read(ctx, LAYER_ACTIVE, blk_to_bytes(blk), buf, blk_to_bytes(blks));
}

static uint64_t volume_blks(const struct server *s)
{
	return s->f.super.fs_bytes / COW_BLK_BYTES;
}

static int look_at_image(struct server *s, struct log *l)
{
	struct blk_reader r = { .read = read_blocks, .volume_blks = volume_blks(s) };

	s->layers = layers_alloc(0);
	if (!s->layers)
		return -ENOMEM;
	s->layers->base = s->f.base;
	s->layers->index = s->which >= OFFLINE_HELD ? log_hold_index(l) : log_index_of(l);
	if (!s->layers->index)
		return -ENOENT;
	r.ctx = s->layers;
	return fsinfo_probe(&r, &s->found.fs);
}

static void name_generation(struct server *s, const struct log *l)
{
	const struct log_open_report *log = &s->found.log;
	struct log_hold h = { .generation = log->newest.ledger.commits,
			      .time_s = log->newest.time_s };

	if (s->which >= OFFLINE_HELD)
		(void)log_holds(l, &h);
	s->found.generation = log->back_seq ? log->back_generation : h.generation;
	s->found.time_s = log->back_seq ? log->back_s : h.time_s;
}

static int work(void *ctx, struct boxed *b)
{
	struct server *s = ctx;
	struct found *found = &s->found;
	struct log *l = NULL;

	fsproc_leave();
	found->error = log_open(&l, s->f.base, s->f.log_card, &s->f.super,
				s->which == OFFLINE_NEXT ? 0 : LOG_NOT_BACK, NULL, &found->log);
	if (found->error == 0)
		found->another = log_of_another(l, &found->log, &s->f.fs);
	if (found->error == 0 && !found->another && found->log.state < LOG_BROKEN)
		found->error = look_at_image(s, l);
	if (found->error == 0)
		name_generation(s, l);
	log_close(l); /* the index stays */
	boxed_say(b, found, sizeof(*found));
	return s->layers ? found->error : -ENODATA;
}

static int compare(const void *a, const void *b)
{
	const struct written *x = a, *y = b;

	return x->blk < y->blk ? -1 : x->blk > y->blk;
}

static struct written *find_written(struct server *s, uint64_t off_bytes)
{
	const struct written key = { .blk = off_bytes >> COW_BLK_SHIFT };
	struct written **w = tfind(&key, &s->written, compare);

	return w ? *w : NULL;
}

static int read_image(void *ctx, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct server *s = ctx;
	const struct written *w;
	uint8_t *to = buf;
	int r;

	if (!range_fits(off_bytes, len_bytes, blk_to_bytes(volume_blks(s))))
		return -EINVAL;
	r = layers_read(s->layers, LAYER_ACTIVE, off_bytes, buf, len_bytes);
	for (size_t n; len_bytes && s->written; off_bytes += n, to += n, len_bytes -= n) {
		n = min_u64(len_bytes, COW_BLK_BYTES - off_bytes % COW_BLK_BYTES);
		w = find_written(s, off_bytes);
		if (w)
			memcpy(to, w->content + off_bytes % COW_BLK_BYTES, n);
	}
	return r;
}

/* The block with the content that the image has. */
static int add_written(struct server *s, uint64_t off_bytes, struct written **ret)
{
	struct written *w = malloc(sizeof(*w));
	int r = -ENOMEM;

	if (w) {
		w->blk = off_bytes >> COW_BLK_SHIFT;
		r = layers_read(s->layers, LAYER_ACTIVE, blk_to_bytes(w->blk), w->content,
				COW_BLK_BYTES);
	}
	if (r == 0 && !tsearch(w, &s->written, compare))
		r = -ENOMEM;
	if (r < 0)
		free(w);
	else
		*ret = w;
	return r;
}

/* In memory, which a limit of this process bounds. */
static int write_image(void *ctx, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	struct server *s = ctx;
	const uint8_t *from = buf;

	if (!range_fits(off_bytes, len_bytes, blk_to_bytes(volume_blks(s))))
		return -EINVAL;
	for (size_t n; len_bytes; off_bytes += n, from += n, len_bytes -= n) {
		struct written *w = find_written(s, off_bytes);
		int r = w ? 0 : add_written(s, off_bytes, &w);

		if (r < 0)
			return r;
		n = min_u64(len_bytes, COW_BLK_BYTES - off_bytes % COW_BLK_BYTES);
		memcpy(w->content + off_bytes % COW_BLK_BYTES, from, n);
	}
	return 0;
}

static void stay(void *ctx)
{
	struct server *s = ctx;
	const struct fuse_image image = {
		.ctx = s, .volume_blks = volume_blks(s), .read = read_image, .write = write_image
	};

	fuse_image_serve(s->fuse, &image);
}

/* ---- this process ---- */

static bool ends(const char *text, size_t bytes)
{
	return memchr(text, '\0', bytes);
}

/* The type goes to mount(2). */
static bool makes_sense(const struct found *x)
{
	const struct fs_ops *ops = fs_ops(x->fs.kind);

	return x->error <= 0 && x->error >= -4095 && (unsigned)x->log.state <= LOG_FOREIGN &&
	       ends(x->log.why, sizeof(x->log.why)) && ends(x->fs.type, sizeof(x->fs.type)) &&
	       (x->fs.kind == FS_UNKNOWN || (ops->probe && fs_has_name(ops, x->fs.type)));
}

static int hear(void *ctx, const void *message, size_t bytes)
{
	struct server *s = ctx;

	if (bytes != sizeof(s->found) || s->heard)
		return -EPROTO;
	memcpy(&s->found, message, sizeof(s->found));
	s->heard = true;
	return makes_sense(&s->found) ? 0 : -EPROTO;
}

static int run(struct server *s, int fuse_fd)
{
	struct boxed_job job = {
		.work = work, .hear = hear, .ctx = s, .stay = stay, .stay_fd = fuse_fd
	};
	struct card *const cards[] = { s->f.base, s->f.log_card };

	for (size_t i = 0; i < (s->f.log_device ? 2 : 1); i++) {
		struct blockdev_kept kept;
		int fd[BLOCKDEV_FDS];

		blockdev_keep(cards[i], &kept, fd);
		job.fd[job.fds++] = fd[0];
	}
	job.fd[job.fds++] = fuse_fd;
	return boxed_run(&job);
}

static int explain_state(const struct server *s, struct failure *fail)
{
	const struct log_open_report *log = &s->found.log;
	const char *device = s->f.device, *of_log = s->f.log_device ? s->f.log_device : "",
		   *option = s->f.log_device ? " --log " : "";

	if (log->needs_older)
		return failure(fail, -EUCLEAN, "%s: %s", device, log->why);
	if (log->state == LOG_FOREIGN)
		return failure(
			fail, -ESTALE,
			"%s: %s, and its log holds blocks that are not checkpointed: there is no "
			"whole generation to show. Decide with " COWCTL " release --accept base or "
			"--accept log %s%s%s",
			device, log->why, device, option, of_log);
	return failure(
		fail, -EUCLEAN,
		"%s: the log is damaged (%s): there is no whole generation to show. See " COWCTL
		" check %s%s%s",
		device, log->why, device, option, of_log);
}

/* r: of boxed_run */
static int explain(const struct server *s, int r, struct failure *fail)
{
	const struct found *x = &s->found;

	if (r == -ENODATA && s->heard && x->error)
		r = x->error;
	else if (r == -ENODATA && s->heard && x->another)
		return offline_explain_another(&s->f, fail);
	else if (r == -ENODATA && s->heard && x->log.state >= LOG_BROKEN)
		return explain_state(s, fail);
	if (r == 0 && !s->heard)
		r = -EOWNERDEAD;
	if (r < 0)
		return offline_cannot_read(s->f.device, r, fail);
	if (x->fs.kind == FS_UNKNOWN)
		return failure(fail, -ENODEV, "%s: holds no file system that cowfs knows",
			       s->f.device);
	return 0;
}

static int serve(struct server *s, int fuse_fd, struct offline_view *ret, struct failure *fail)
{
	int fd, r;

	r = fuse_image_open(&s->fuse, fuse_fd, &fd);
	if (r < 0)
		return failure(fail, r, "cannot serve through FUSE: %s", strerrordesc_np(-r));
	r = explain(s, run(s, fd), fail);
	fuse_image_close(s->fuse);
	if (r < 0)
		return r; /* the child ends with the connection */
	ret->log = s->found.log;
	ret->generation = s->found.generation;
	ret->time_s = s->found.time_s;
	memcpy(ret->fs_type, s->found.fs.type, sizeof(ret->fs_type));
	return 0;
}

int offline_view(const char *device, const char *log_device, enum offline_image which, int fuse_fd,
		 struct offline_view *ret, struct failure *fail)
{
	const unsigned flags = BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE |
			       (which == OFFLINE_HELD_BESIDE ? 0 : BLOCKDEV_EXCL);
	struct server *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return failure(fail, -ENOMEM, "no memory");
	s->which = which;
	r = offline_open(&s->f, device, log_device, flags, 0, fail);
	if (r == 0)
		r = offline_find_log(&s->f, fail);
	if (r == 0)
		r = serve(s, fuse_fd, ret, fail);
	r = offline_end(&s->f, r, "Nothing was written", fail);
	free(s);
	return r;
}
