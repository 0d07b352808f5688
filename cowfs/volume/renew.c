/* SPDX-License-Identifier: MIT */
/*
 * A block that the card could read only after a retry, as cowctl scrub finds it. It is read once more and is dirty
 * from then on, so the next commit writes it like any other, and its checkpoint gives it new cells. The commit does
 * not compare it, because it is the same as on the card. view_fill holds the stripe of the block meanwhile, so what was
 * read never replaces what a program writes.
 */
#include <errno.h>

#include "base/msg.h"
#include "volume/private.h"

#define TRIES 4u

int renew_do(struct volume *v, uint64_t blk, char *why, size_t n)
{
	struct extents one = { 0 };
	int r = blk < v->volume_blks ? -EIO : -EINVAL;

	for (unsigned i = 0; i < TRIES && r == -EIO; i++)
		r = view_fill(v->view, blk);
	if (r == 0 &&
	    !extents_covered_bytes(&v->renewed, blk_to_bytes(blk), blk_to_bytes(blk + 1))) {
		r = extents_add(&one, blk, 1);
		if (r == 0)
			r = extents_merge(&v->renewed, &one);
		extents_clear(&one);
	}
	return r < 0 ? msg_why(why, n, r, "block %llu cannot be read: %s", (unsigned long long)blk,
			       strerrordesc_np(-r))
		     : 0;
}
