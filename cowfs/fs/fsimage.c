// SPDX-License-Identifier: MIT
#include "fs/fsimage.h"

#include <errno.h>

#include "fs/fs_ops.h"

int fsimage_open(struct fsimage *im, const struct blk_reader *r, enum fs_kind kind, unsigned ask,
		 struct fsimage_facts *f)
{
	const struct fsimage_ops *ops = fs_ops(kind)->image;
	int err = ops ? ops->open(&im->image, r, ask, f) : -EOPNOTSUPP;

	if (err)
		return err;
	im->ops = ops;
	im->blocks = f->blocks;
	im->bitmap_bytes = 1u << f->block_shift;
	return 0;
}

int fsimage_group(struct fsimage *im, uint64_t nr, uint8_t *bits)
{
	return im->ops->group(im->image, nr, im->blocks, bits);
}

int fsimage_log(struct fsimage *im, const struct fsimage_journal *j, struct fsimage_range **ret,
		size_t *ret_n)
{
	return im->ops->log ? im->ops->log(im->image, j, ret, ret_n) : -EINVAL;
}

const struct fsimage_move *fsimage_replay(struct fsimage *im, size_t *ret_n)
{
	*ret_n = 0;
	return im->ops->replay ? im->ops->replay(im->image, ret_n) : NULL;
}

void fsimage_close(struct fsimage *im)
{
	if (im->ops)
		im->ops->close(im->image);
}
