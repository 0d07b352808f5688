/* SPDX-License-Identifier: MIT */
/* The images that a commit reads: which blocks they have, and which of them are free. */
#include "volume/images.h"

#include <errno.h>
#include <stdio.h>

#include "fs/fs_ops.h"

static int img_read_sealed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct images *im = ctx;

	return im->clean ? im->v->clean.read(im->v->clean.ctx, blk, blks, buf)
			 : view_read_sealed(im->from, blk, blks, buf);
}

static int img_read_loose(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_sealed(((struct images *)ctx)->from, blk, blks, buf);
}

static int img_run_loose(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks)
{
	enum blk_state state;

	*ret_blks = generation_run(((struct images *)ctx)->v->loose, blk, max_blks, &state);
	*ret = state == BLK_ABSENT ? USE_FREE : USE_USED;
	return 0;
}

static int img_note_loose(void *ctx, uint64_t blk, uint64_t blks)
{
	struct volume *v = ((struct images *)ctx)->v;

	return v->loose ? generation_mark(v->loose, blk, blks, BLK_HOLE) : 0;
}

static void img_wrote_loose(void *ctx, uint64_t blk, uint64_t blks)
{
	overlap_forget(((struct images *)ctx)->v, blk, blks);
}

int images_read_live(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_live(((struct images *)ctx)->v->view, blk, blks, buf);
}

static int img_read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_committed(((struct images *)ctx)->v->view, blk, blks, buf);
}

static bool img_next_sealed(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
			    enum blk_state *state)
{
	const struct images *im = ctx;

	return im->clean ? replayed_next(im->v, blk, max_blks, ret_blks, state)
			 : view_next_sealed(im->from, blk, max_blks, ret_blks, state);
}

static bool img_next_live(void *ctx, uint64_t *blk, uint64_t max_blks, uint64_t *ret_blks,
			  enum blk_state *state)
{
	return view_next_live(((struct images *)ctx)->v->view, blk, max_blks, ret_blks, state);
}

static int img_run_sealed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			  uint64_t *ret_blks)
{
	struct images *im = ctx;
	int r = fsmap_run_after(im->sealed, im->committed, blk, max_blks, ret, ret_blks);

	if (r == 0 && *ret == USE_FREE && im->v->diverged && !im->v->committing &&
	    diverged_must_write(im->v->diverged, blk, *ret_blks, ret_blks))
		*ret = USE_USED;
	if (r == 0 && *ret != USE_USED)
		r = overlap_note(im->v, blk, *ret_blks);

	/* a damaged bitmap in the image to be committed: only with force */
	return r == 0 && !im->force && (fsmap_alarms(im->sealed) & FSMAP_BAD_CHECKSUM) ? -EUCLEAN
										       : r;
}

static int img_run_committed(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			     uint64_t *ret_blks)
{
	return fsmap_run(((struct images *)ctx)->committed, blk, max_blks, ret, ret_blks);
}

static int img_run_older(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			 uint64_t *ret_blks)
{
	return fsmap_run(((struct images *)ctx)->older.map, blk, max_blks, ret, ret_blks);
}

static int img_run_held(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			uint64_t *ret_blks)
{
	return fsmap_run(((struct images *)ctx)->held.map, blk, max_blks, ret, ret_blks);
}

static int open_map(struct fsmap **ret, const struct blk_reader *r, bool unread)
{
	return unread ? fsmap_open_unread(ret, r) : fsmap_open(ret, r);
}

/* Opens the block maps of both images and checks for anything that forbids a commit. If the
 * journal is to be replayed, the home locations may hold half of a change, checksums included. */
static int open_maps(struct images *im, struct volume_result *res)
{
	struct blk_reader sealed = { .read = im->dry ? images_read_live : img_read_sealed,
				     .ctx = im,
				     .volume_blks = im->v->volume_blks };
	struct blk_reader committed = volume_committed(im->v);
	unsigned a, b;
	int r;

	im->clean = !im->dry && im->v->replay && im->from == im->v->view;
	r = im->clean ? fsmap_open_replayed(&im->sealed, im->v->replay)
		      : open_map(&im->sealed, &sealed, im->unread >= UNREAD_SEALED);
	if (r == 0)
		r = open_map(&im->committed, &committed, im->unread >= UNREAD_ALL);
	if (r == 0)
		r = fsinfo_probe_super(&sealed, &im->fs);
	if (r < 0)
		return r;
	/* changed since the attach: a device was added, for example */
	r = volume_check_fs(im->v, &im->fs, res->why, sizeof(res->why));
	if (r < 0)
		return r;
	if (im->dry)
		fsmap_assume_empty_journal(im->sealed);
	a = fsmap_alarms(im->sealed);
	b = fsmap_alarms(im->committed);
	if (!im->force && (a & FSMAP_ERROR_FLAG) && !(b & FSMAP_ERROR_FLAG))
		return volume_why(
			res, -EUCLEAN,
			"the file system has recorded errors: not committed (commit --force "
			"overrides)");
	if (!im->force && !im->raw && (a & FSMAP_BAD_CHECKSUM))
		return -EUCLEAN;
	return 0;
}

/* Bitmaps are only valid while the journal is empty. */
bool images_tells_truth(struct fsmap *m)
{
	return m && fsmap_knows(m) && !(fsmap_alarms(m) & FSMAP_NEEDS_RECOVERY);
}

/* The same for an image that is read after a power cut only. Its blocks may be written over with a newer
 * content of their own, and with nothing else: something that nobody sees may have mounted it. */
static bool tells_after_cut(struct fsmap *m)
{
	return images_tells_truth(m) || (m && fsmap_replayed(m));
}

/* After such a failure it reads blocks that no tree on the device contains. */
static bool gave_up(const struct images *im, const struct volume_result *res)
{
	return fs_ops(im->fs.kind)->reads_lost_transaction && res->quiesce.mounted &&
	       res->quiesce.readonly;
}

static int read_past(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct past_image *p = ctx;

	return log_index_read_volume(p->index, p->base, blk, blks, buf);
}

/* index NULL: there is no such image. */
static int open_past(struct images *im, struct past_image *p, struct log_index *index)
{
	struct blk_reader r = { .read = read_past, .ctx = p, .volume_blks = im->v->volume_blks };

	p->base = im->v->base;
	p->index = index;
	return index ? open_map(&p->map, &r, im->unread >= UNREAD_ALL) : 0;
}

int images_open(struct images *im, struct volume_result *res)
{
	int r = open_maps(im, res);

	if (r == 0)
		r = open_past(im, &im->older, log_older_index(im->v->log));
	if (r == 0)
		r = open_past(im, &im->held, log_hold_index(im->v->log));
	return r;
}

void images_close(struct images *im)
{
	fsmap_close(im->sealed);
	fsmap_close(im->committed);
	fsmap_close(im->older.map);
	fsmap_close(im->held.map);
	log_index_unref(im->older.index);
	log_index_unref(im->held.index);
}

void images_source(struct images *im, const struct volume_result *res, struct commit_source *ret)
{
	bool believed = !im->raw && !im->unread && !im->v->diverged_lost && !gave_up(im, res);

	*ret = (struct commit_source){
		.ctx = im,
		.volume_blks = im->v->volume_blks,
		.next = im->dry ? img_next_live : img_next_sealed,
		.read_sealed = im->dry ? images_read_live : img_read_sealed,
		.read_committed = img_read_committed,
		.run_sealed = believed && images_tells_truth(im->sealed) ? img_run_sealed : NULL,
		/* blocks that are free in the committed image may be written in place, whatever the sealed image is */
		.run_committed = tells_after_cut(im->committed) ? img_run_committed : NULL,
		.run_older = tells_after_cut(im->older.map) ? img_run_older : NULL,
		.run_held = tells_after_cut(im->held.map) ? img_run_held : NULL,
		.metadata_uuid = im->fs.has_metadata_uuid ? im->fs.metadata_uuid : NULL,
		.loose = im->clean && im->v->unsynced,
		.run_loose = im->v->loose ? img_run_loose : NULL,
		.read_loose = im->clean && im->v->unsynced && im->shut_out ? img_read_loose : NULL,
		.note_loose = img_note_loose,
		.wrote_loose = img_wrote_loose,
	};
}

/* Without the map a checkpoint is only slower. Not used after a commit of single files: the live file system may read blocks
 * from the card that are free there. So it may after a seal without a sync: a gap may hold data of its next transaction. */
bool images_open_free(struct images *im, bool sealed, struct commit_source *ret)
{
	struct blk_reader r = { .read = sealed ? img_read_sealed : img_read_committed,
				.ctx = im,
				.volume_blks = im->v->volume_blks };

	im->clean = sealed && im->v->replay;
	*ret = (struct commit_source){ .ctx = im,
				       .run_committed = img_run_committed,
				       .run_older = img_run_older };
	return !im->v->diverged && !im->v->diverged_lost && !im->v->kept->loose &&
	       fsmap_open(&im->committed, &r) == 0 && images_tells_truth(im->committed) &&
	       open_past(im, &im->older, log_older_index(im->v->log)) == 0 &&
	       (!im->older.map || images_tells_truth(im->older.map));
}

static int run_when_asked(void *ctx, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
			  uint64_t *ret_blks)
{
	struct images *im = ctx;
	struct commit_source src;

	if (im->ask == ASK_LATER)
		im->ask = images_open_free(im, im->ask_sealed, &src) ? ASK_KNOWN : ASK_UNKNOWN;
	if (im->ask == ASK_KNOWN)
		return img_run_committed(im, blk, max_blks, ret, ret_blks);
	*ret = USE_USED;
	*ret_blks = max_blks;
	return 0;
}

void images_free_when_asked(struct images *im, bool sealed, struct commit_source *ret)
{
	im->ask_sealed = sealed;
	*ret = (struct commit_source){ .ctx = im,
				       .run_committed = run_when_asked,
				       .run_older = img_run_older };
}

int volume_free_everywhere(struct volume *v, struct extents *ret, bool (*stop)(void *ctx),
			   void *ctx)
{
	struct images im = { .v = v, .from = v->view };
	struct commit_source src;
	int r = images_open_free(&im, false, &src) && !log_older_unknown(v->log) ? 0 : -ENODATA;
	enum blk_use use;
	uint64_t n;

	for (uint64_t blk = 0; r == 0 && blk < v->volume_blks; blk += n) {
		bool held = false;

		r = stop(ctx) ? -EINTR
			      : img_run_committed(&im, blk, v->volume_blks - blk, &use, &n);
		if (r == 0 && use == USE_FREE && im.older.map)
			r = img_run_older(&im, blk, n, &use, &n);
		if (r == 0 && use == USE_FREE)
			n = log_held_run(v->log, blk, n, &held);
		if (r == 0 && use == USE_FREE && !held)
			r = extents_add(ret, blk, n);
	}
	if (r == 0 && (fsmap_alarms(im.committed) || (im.older.map && fsmap_alarms(im.older.map))))
		r = -EUCLEAN;
	images_close(&im);
	return r;
}
