/* SPDX-License-Identifier: MIT */
#include "daemon/views.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/thread.h"
#include "export/fuse.h"

#define FUSE_MAJOR 10u
#define FUSE_MINOR 229u

struct one {
	struct views *views;
	struct snapshot *snapshot; /* both NULL: free, or being opened */
	struct scratch *scratch;
	struct fuse_export *fuse;
	_Atomic unsigned reads; /* under way */
	_Atomic bool serving;	/* fuse is valid */
	_Atomic bool gone;	/* without a mount */
};

struct views {
	struct volume *volume;
	void (*gone)(void *ctx);
	void *ctx;
	pthread_mutex_t lock; /* of what is in use; held for moments */
	struct one one[VOLUME_VIEWS];
};

int views_new(struct views **ret, struct volume *v, void (*gone)(void *ctx), void *ctx)
{
	struct views *vs = calloc(1, sizeof(*vs));

	if (!vs)
		return -ENOMEM;
	vs->volume = v;
	vs->gone = gone;
	vs->ctx = ctx;
	pthread_mutex_init(&vs->lock, NULL);
	*ret = vs;
	return 0;
}

/* Nothing else uses it. */
static void end_one(struct one *o)
{
	struct snapshot *s = o->snapshot;
	struct scratch *scratch = o->scratch;

	fuse_export_end(o->fuse);
	o->serving = false;
	/* the place first: the volume may let the next view in once it has forgotten this one */
	pthread_mutex_lock(&o->views->lock);
	o->snapshot = NULL;
	o->scratch = NULL;
	pthread_mutex_unlock(&o->views->lock);
	if (scratch)
		volume_end_scratch(o->views->volume, scratch);
	else
		volume_end_view(o->views->volume, s);
}

void views_free(struct views *vs)
{
	if (!vs)
		return;
	for (struct one *o = vs->one; o < vs->one + VOLUME_VIEWS; o++)
		if (o->serving)
			end_one(o);
	pthread_mutex_destroy(&vs->lock);
	free(vs);
}

static int read_image(void *ctx, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct one *o = ctx;
	int r;

	o->reads++;
	r = o->scratch ? scratch_read(o->scratch, off_bytes, buf, len_bytes)
		       : snapshot_read(o->snapshot, off_bytes, buf, len_bytes);
	o->reads--;
	return r;
}

static int write_image(void *ctx, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	struct one *o = ctx;
	int r;

	o->reads++;
	r = o->scratch ? scratch_write(o->scratch, off_bytes, buf, len_bytes)
		       : snapshot_write(o->snapshot, off_bytes, buf, len_bytes);
	o->reads--;
	return r;
}

static int punch_image(void *ctx, uint64_t off_bytes, uint64_t len_bytes)
{
	struct one *o = ctx;
	int r;

	o->reads++;
	r = scratch_punch(o->scratch, off_bytes, len_bytes);
	o->reads--;
	return r;
}

static void lost_mount(void *ctx)
{
	struct one *o = ctx;

	o->gone = true;
	o->views->gone(o->views->ctx);
}

/* A view that has lost its mount may still have its place for a moment. */
static struct one *free_place(struct views *vs)
{
	LOCKED(&vs->lock);

	for (struct one *o = vs->one; o < vs->one + VOLUME_VIEWS; o++)
		if (!o->snapshot && !o->scratch)
			return o;
	return NULL;
}

static bool is_fuse(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR);
}

static int serve(struct views *vs, int fuse_fd, struct volume_image *im)
{
	struct one *o = free_place(vs);
	struct fuse_image image = {
		.ctx = o, .read = read_image, .write = write_image, .gone = lost_mount
	};
	int r;

	if (!o)
		return -EMFILE;
	image.volume_blks = im->scratch ? scratch_volume_blks(im->scratch)
					: snapshot_volume_blks(im->snapshot);
	if (im->scratch)
		image.punch = punch_image;
	o->views = vs;
	o->gone = false;
	pthread_mutex_lock(&vs->lock);
	o->snapshot = im->snapshot;
	o->scratch = im->scratch;
	pthread_mutex_unlock(&vs->lock);
	r = fuse_export_image(&o->fuse, &image, fuse_fd);
	if (r < 0) {
		pthread_mutex_lock(&vs->lock);
		o->snapshot = NULL;
		o->scratch = NULL;
		pthread_mutex_unlock(&vs->lock);
		return r;
	}
	o->serving = true;
	if (o->gone) /* too early to be reaped */
		vs->gone(vs->ctx);
	return 0;
}

int views_open(struct views *vs, int fuse_fd, struct volume_image *im, struct volume_result *res)
{
	const struct volume_request rq = { .job = JOB_VIEW, .image = im, .cause = CAUSE_MANUAL };
	int r;

	if (!is_fuse(fuse_fd))
		return volume_why(res, -EBADF, "a view needs a descriptor of /dev/fuse");
	r = volume_run(vs->volume, &rq, res);
	if (r < 0)
		return r;
	r = serve(vs, fuse_fd, im);
	if (r == 0)
		return 0;
	if (im->scratch)
		volume_end_scratch(vs->volume, im->scratch);
	else
		volume_end_view(vs->volume, im->snapshot);
	return volume_why(res, r, "cannot serve the view through FUSE: %s", strerrordesc_np(-r));
}

void views_reap(struct views *vs)
{
	for (struct one *o = vs->one; o < vs->one + VOLUME_VIEWS; o++)
		if (o->serving && o->gone && !o->reads)
			end_one(o);
}
