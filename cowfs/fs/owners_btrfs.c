// SPDX-License-Identifier: MIT
/*
 * Which inodes differ between two mounted states of a btrfs. It reads the leaves that were written since the older one.
 *
 * Each change of a file or folder writes its inode item, which then has the number of the transaction, and a transaction writes
 * each block that it changes to another place, with its number. So the trees of one state that no transaction behind the
 * common one has written are those of the other. The numbers of the maker of a card do not count: what is
 * written in front of the common transaction was in it.
 *
 * An inode is a number here, of whatever subvolume: that of one counts for all.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/array.h"
#include "fs/btrfs.h"
#include "fs/owners.h"

struct state {
	struct owners w;
	int fd;
	uint64_t common;
	uint64_t *root;
	size_t n, cap;
};

static int take_inode(void *ctx, const struct btrfs_ioctl_search_header *h, const uint8_t *item)
{
	struct state *s = ctx;
	struct owner o = { .kind = OWNER_FILE, .differs = OWNER_TOUCHED, .ino = h->objectid };
	struct btrfs_inode_item inode;

	if (h->type != BTRFS_INODE_ITEM_KEY)
		return 0;
	if (h->len < sizeof(inode))
		return -EUCLEAN;
	memcpy(&inode, item, sizeof(inode));
	s->w.looked_at++;
	return le64toh(inode.transid) > s->common ? owners_keep(&s->w, &o) : 0;
}

/* Trees with files */
static int take_root(void *ctx, const struct btrfs_ioctl_search_header *h, const uint8_t *item)
{
	struct state *s = ctx;

	(void)item;
	if (h->type != BTRFS_ROOT_ITEM_KEY ||
	    (h->objectid != BTRFS_FS_TREE_OBJECTID && h->objectid < BTRFS_FIRST_FREE_OBJECTID))
		return 0;
	return ARRAY_ADD(s->root, s->n, s->cap, h->objectid);
}

static int search(struct state *s, uint64_t tree, btrfs_take *take)
{
	bool files = tree != BTRFS_ROOT_TREE_OBJECTID;
	const struct btrfs_ioctl_search_key what = {
		.tree_id = tree,
		/* a crafted tree may have other numbers of inodes than a kernel gives */
		.min_objectid = files ? 1 : BTRFS_FS_TREE_OBJECTID,
		.max_objectid = files ? UINT64_MAX : BTRFS_LAST_FREE_OBJECTID,
		.max_type = files ? BTRFS_INODE_ITEM_KEY : BTRFS_ROOT_ITEM_KEY,
		.min_transid = s->common + 1,
	};

	return btrfs_search(s->fd, &what, take, s);
}

static int add_state(struct state *s, int dir_fd, uint64_t transaction)
{
	struct btrfs_ioctl_fs_info_args info = { .flags = BTRFS_FS_INFO_FLAG_GENERATION };
	/* that of a mount is O_PATH */
	_cleanup_close_ int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int e;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) < 0)
		return -errno;
	/* a replay is one transaction */
	if (info.generation < transaction || info.generation - transaction > 1)
		return -ESTALE;
	s->fd = fd;
	s->n = 0;
	e = search(s, BTRFS_ROOT_TREE_OBJECTID, take_root);
	for (size_t i = 0; i < s->n && e == 0; i++) {
		e = search(s, s->root[i], take_inode);
		/* a subvolume that is gone, and is not removed yet */
		e = e == -ENOENT ? 0 : e;
	}
	return e;
}

int owners_btrfs(struct owners *ret, int old_dir_fd, const struct btrfs_mark *old, int new_dir_fd,
		 const struct btrfs_mark *new)
{
	struct state s = { .w = { .complete = true }, .common = old->transaction };
	int e = 0;

	if (memcmp(old->uuid, new->uuid, sizeof(old->uuid)) ||
	    old->transaction > new->transaction || old->transaction == UINT64_MAX)
		return -EOPNOTSUPP;
	e = add_state(&s, old_dir_fd, old->transaction);
	if (e == 0)
		e = add_state(&s, new_dir_fd, new->transaction);
	free(s.root);
	if (e < 0)
		owners_clear(&s.w);
	else
		*ret = s.w;
	return e;
}
