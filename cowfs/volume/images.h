/* SPDX-License-Identifier: MIT */
/*
 * What a commit asks of the images of the file system: the sealed one, the committed one, and with lag an older one. Each has
 * a map of its free blocks. Commit thread.
 */
#ifndef COWFS_VOLUME_IMAGES_H
#define COWFS_VOLUME_IMAGES_H

#include "volume/private.h"

/* Images that are no longer read, because reading them kills the reader process. */
enum unread { UNREAD_NOTHING, UNREAD_SEALED, UNREAD_ALL };

/* Another image that recovery may choose besides the committed one; map NULL: there is none. */
struct past_image {
	struct card *base;
	struct log_index *index;
	struct fsmap *map;
};

struct images {
	struct volume *v;
	bool clean;	   /* of the sealed image: as v->replay leaves it */
	struct view *from; /* of the sealed image: the volume's, or that of the scratch */
	struct fsmap *sealed, *committed;
	struct past_image older, held; /* with lag; the generation that is held */
	struct fsinfo fs;	       /* of the sealed image */
	bool force, dry;
	bool shut_out; /* writers wait for the RAM of this commit */
	enum unread unread;
	bool raw; /* of the sealed image: as in struct quiesce_report */
	enum { ASK_LATER, ASK_KNOWN, ASK_UNKNOWN } ask; /* images_free_when_asked */
	bool ask_sealed;
	uint64_t room_blks; /* of the commit after this one of single files (note_room) */
};

/*
 * Opens the maps of the sealed and of the committed image, and the older image. im has its first fields, force, dry, unread and
 * raw. -EUCLEAN, -EOPNOTSUPP with res->why: what forbids a commit; errors of fsmap_open. images_close in any case.
 */
int images_open(struct images *im, struct volume_result *res) MUST_CHECK;
/* What commit_run asks; lives as long as im. Without maps that can be believed all blocks are in use. */
void images_source(struct images *im, const struct volume_result *res, struct commit_source *ret);
/*
 * Opens the map of free blocks of the newest commit, so that gaps may be written over, and fills run_committed and run_older of
 * *ret. sealed: it is still in RAM. False: not known.
 */
bool images_open_free(struct images *im, bool sealed, struct commit_source *ret);
/* The same once the first question comes: for few blocks. What is not known is in use. */
void images_free_when_asked(struct images *im, bool sealed, struct commit_source *ret);
void images_close(struct images *im);
/* Bitmaps are only valid while the journal is empty. m may be NULL. */
bool images_tells_truth(struct fsmap *m);
int images_read_live(void *im, uint64_t blk, uint64_t blks, void *buf);

#endif
