/* SPDX-License-Identifier: MIT */
#include "fs/btrfs.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/io.h"

/* ---- which device ---- */

bool btrfs_lies_on(const char *dir, dev_t rdev)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct btrfs_ioctl_fs_info_args fs = { 0 };
	struct btrfs_ioctl_dev_info_args dev = { 0 };
	struct stat st;

	if (fd < 0 || ioctl(fd, BTRFS_IOC_FS_INFO, &fs) < 0 || fs.num_devices != 1)
		return false;
	dev.devid = fs.max_id;
	if (ioctl(fd, BTRFS_IOC_DEV_INFO, &dev) < 0)
		return false;
	dev.path[sizeof(dev.path) - 1] = '\0';
	return !stat((const char *)dev.path, &st) && st.st_rdev == rdev;
}

/* ---- trees ---- */

/* Takes all items of one answer; moves the begin of the next search behind them. */
static int take_items(const struct btrfs_ioctl_search_args *a, struct btrfs_ioctl_search_key *next,
		      btrfs_take *take, void *ctx)
{
	size_t pos = 0;
	int r = 0;

	for (uint32_t i = 0; i < a->key.nr_items && r == 0; i++) {
		struct btrfs_ioctl_search_header h;

		if (pos + sizeof(h) > sizeof(a->buf))
			return -EUCLEAN;
		memcpy(&h, a->buf + pos, sizeof(h));
		pos += sizeof(h);
		if (h.len > sizeof(a->buf) - pos)
			return -EUCLEAN;
		r = take(ctx, &h, (const uint8_t *)a->buf + pos);
		pos += h.len;
		next->min_offset = h.offset + 1;
		next->min_type = h.type + !next->min_offset;
		next->min_objectid = h.objectid + (next->min_type > UINT8_MAX);
		next->min_type &= UINT8_MAX;
	}
	return r;
}

int btrfs_search(int fd, const struct btrfs_ioctl_search_key *what, btrfs_take *take, void *ctx)
{
	struct btrfs_ioctl_search_args a = { 0 };
	struct btrfs_ioctl_search_key next = *what;
	int r = 0;

	next.max_offset = next.max_transid = UINT64_MAX;
	next.nr_items = UINT32_MAX;
	do {
		a.key = next;
		r = ioctl(fd, BTRFS_IOC_TREE_SEARCH, &a) < 0 ? -errno
							     : take_items(&a, &next, take, ctx);
	} while (r == 0 && a.key.nr_items && next.min_objectid >= what->min_objectid &&
		 next.min_objectid <= what->max_objectid);
	return r;
}

/* ---- the chunk tree ---- */

static int add_chunk(struct btrfs_chunks *x, uint64_t logical, const struct btrfs_chunk *c,
		     size_t len_bytes)
{
	const struct btrfs_stripe *s = &c->stripe;
	struct btrfs_chunk_place place = { .logical = logical };
	uint64_t type, profile;

	if (len_bytes < sizeof(*c))
		return -EUCLEAN;
	type = le64toh(c->type);
	profile = type & BTRFS_BLOCK_GROUP_PROFILE_MASK;
	place.len_bytes = le64toh(c->length);
	place.metadata = !(type & BTRFS_BLOCK_GROUP_DATA);
	place.copies = le16toh(c->num_stripes);
	if ((profile && profile != BTRFS_BLOCK_GROUP_DUP) || place.copies != (profile ? 2u : 1u) ||
	    len_bytes < sizeof(*c) + (place.copies - 1) * sizeof(*s))
		return -EOPNOTSUPP;
	for (unsigned i = 0; i < place.copies; i++)
		place.place[i] = le64toh(s[i].offset);
	return ARRAY_ADD(x->c, x->n, x->cap, place);
}

static int take_chunk(void *ctx, const struct btrfs_ioctl_search_header *h, const uint8_t *item)
{
	return h->type == BTRFS_CHUNK_ITEM_KEY
		       ? add_chunk(ctx, h->offset, (const struct btrfs_chunk *)item, h->len)
		       : 0;
}

int btrfs_chunks_read(struct btrfs_chunks *ret, int fd)
{
	const struct btrfs_ioctl_search_key chunks = {
		.tree_id = BTRFS_CHUNK_TREE_OBJECTID,
		.min_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
		.max_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
		.min_type = BTRFS_CHUNK_ITEM_KEY,
		.max_type = BTRFS_CHUNK_ITEM_KEY,
	};
	struct btrfs_chunks x = { 0 };
	int r = btrfs_search(fd, &chunks, take_chunk, &x);

	if (r < 0)
		btrfs_chunks_clear(&x);
	else
		*ret = x;
	return r;
}

void btrfs_chunks_clear(struct btrfs_chunks *x)
{
	free(x->c);
	*x = (struct btrfs_chunks){ 0 };
}

/* ---- addresses ---- */

void btrfs_map(const struct btrfs_chunks *x, uint64_t logical, uint64_t len_bytes,
	       void (*take)(void *ctx, uint64_t start_bytes, uint64_t end_bytes), void *ctx)
{
	size_t at = ARRAY_FIRST(i, x->n, x->c[i].logical > logical);

	/* from the last chunk on that begins at or before logical */
	for (at -= at > 0; at < x->n && len_bytes; at++) {
		const struct btrfs_chunk_place *c = &x->c[at];
		uint64_t gap = c->logical > logical ? min_u64(len_bytes, c->logical - logical) : 0,
			 in, here;

		logical += gap; /* no chunk is there */
		len_bytes -= gap;
		in = logical - c->logical;
		if (!len_bytes || in >= c->len_bytes)
			continue;
		here = min_u64(len_bytes, c->len_bytes - in);
		for (unsigned i = 0; i < c->copies; i++)
			take(ctx, c->place[i] + in, c->place[i] + in + here);
		logical += here;
		len_bytes -= here;
	}
}

int btrfs_mark_read(struct btrfs_mark *ret, int disk_fd)
{
	uint8_t sb[COW_BLK_BYTES];
	int r = io_pread_full(disk_fd, sb, sizeof(sb), 64 * KIB);

	if (r < 0)
		return r;
	memcpy(ret->uuid, sb + 0x20, 16);
	memcpy(ret->uuid + 16, sb + 0x10b, 16); /* of the device */
	ret->transaction = le_at(sb, 0x48, 8);
	return 0;
}

uint64_t btrfs_extent_bytes(int fd, uint64_t logical)
{
	struct btrfs_ioctl_search_args a = { .key = { .tree_id = BTRFS_EXTENT_TREE_OBJECTID,
						      .min_objectid = logical,
						      .max_objectid = logical,
						      .min_type = BTRFS_EXTENT_ITEM_KEY,
						      .max_type = BTRFS_EXTENT_ITEM_KEY,
						      .max_offset = UINT64_MAX,
						      .max_transid = UINT64_MAX,
						      .nr_items = 1 } };
	struct btrfs_ioctl_search_header h;

	if (ioctl(fd, BTRFS_IOC_TREE_SEARCH, &a) < 0 || !a.key.nr_items)
		return 0;
	memcpy(&h, a.buf, sizeof(h));
	return h.objectid == logical && h.type == BTRFS_EXTENT_ITEM_KEY ? h.offset : 0;
}
