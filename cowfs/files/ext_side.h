/* SPDX-License-Identifier: MIT */
/*
 * Private to files/: one state of an ext2/3/4, read from its blocks: inodes, where their content
 * lies, names of directories, extended attributes.
 *
 * The maker of the card may have chosen every byte. Whatever does not parse is -EUCLEAN. A budget of
 * steps, which follows from the size, bounds the work on blocks that are mapped repeatedly.
 */
#ifndef COWFS_FILES_EXT_SIDE_H
#define COWFS_FILES_EXT_SIDE_H

#include "fs/ext4.h"
#include "fs/extents.h"

#define EXT_INODE_MAX 4096 /* bytes; the largest block of a valid image may be 64 KiB */

struct ext_side {
	struct ext4_image *e;
	ext2_filsys fs;
	uint64_t steps;	      /* left */
	uint8_t *table;	      /* a block of an inode table */
	uint64_t table_block; /* its number, 0: none */
};

/* Ascending, without overlaps. */
struct ext_piece {
	uint64_t lblk, pblk, blks;
	bool unwritten; /* reads as zeros */
};

/* Where the content of an inode lies. Zero-initialise; ext_map_clear frees. */
struct ext_map {
	struct ext_piece *p;
	size_t n, cap;
	uint64_t *meta; /* blocks of the map itself */
	size_t metas, meta_cap;
};

/* An inode, and where its content lies. */
struct ext_node {
	uint32_t ino;
	bool used; /* false: all else is 0 */
	struct ext_map map;
	_Alignas(8) uint8_t raw[EXT_INODE_MAX];
};

/* Errors as for ext4_open; -EOPNOTSUPP also if the journal must be replayed first. */
int ext_side_open(struct ext_side *ret, const struct blk_reader *r) MUST_CHECK;
void ext_side_close(struct ext_side *s); /* allowed for zeros */

/* -EUCLEAN: no block of the file system. */
int ext_side_block(struct ext_side *s, uint64_t block, void *buf) MUST_CHECK;
/* The number of inodes of a group that were used at some time. */
uint64_t ext_side_group_inodes(const struct ext_side *s, dgrp_t nr);
/*
 * The inode's bytes, EXT2_INODE_SIZE of them; *ret is valid until the next call. NULL in *ret: it is
 * not in use (or has no name any more).
 */
int ext_side_inode(struct ext_side *s, uint32_t ino, const uint8_t **ret) MUST_CHECK;
/* The same as a copy, with its map. ret: new, or cleared. On failure it is cleared. */
int ext_node_load(struct ext_side *s, uint32_t ino, struct ext_node *ret) MUST_CHECK;
void ext_node_clear(struct ext_node *n);
int ext_map_load(struct ext_side *s, const uint8_t *raw, struct ext_map *ret) MUST_CHECK;
void ext_map_clear(struct ext_map *m);

static inline const struct ext2_inode_large *ext_inode(const uint8_t *raw)
{
	return (const struct ext2_inode_large *)raw;
}

/* The physical block of lblk; 0: a hole, or not written. *ret_blks: how many follow likewise. */
uint64_t ext_map_find(const struct ext_map *m, uint64_t lblk, uint64_t *ret_blks);
/* Block lblk of the content (also of a short symbolic link, a device, a file inside its inode). */
int ext_node_read(struct ext_side *s, const struct ext_node *n, uint64_t lblk,
		  uint8_t *buf) MUST_CHECK;
uint64_t ext_node_bytes(const struct ext_node *n); /* its size */
bool ext_node_is_inside(const struct ext_node *n); /* the content lies inside the inode */

/* ---- names ---- */

struct ext_name {
	uint32_t dir, ino;
	bool maybe_dir;	  /* it is a directory, or the entry does not say */
	const char *name; /* not terminated */
	size_t len;
};

typedef int ext_each_name(void *ctx, const struct ext_name *n);

/*
 * Calls each for the names of a directory, except "." and "..". skip may be NULL; it is asked for
 * every block. Ends when each returns a value other than 0, and returns it. -EUCLEAN.
 */
int ext_side_names(struct ext_side *s, const struct ext_node *dir,
		   bool (*skip)(void *ctx, uint64_t lblk, uint64_t pblk), ext_each_name *each,
		   void *ctx) MUST_CHECK;
/* The inode number of "..". */
int ext_side_parent(struct ext_side *s, const struct ext_node *dir, uint32_t *ret) MUST_CHECK;

/* ---- extended attributes ---- */

struct ext_xattr {
	uint8_t index;
	uint8_t name_bytes;
	const char *name; /* not terminated */
	const uint8_t *value;
	uint32_t value_bytes;
	uint32_t value_ino; /* the value is the content of this inode; value is NULL */
};

struct ext_xattrs {
	struct ext_xattr *x; /* ascending by index and name; without "system.data" */
	size_t n, cap;
	uint8_t *block; /* the block that values lie in */
};

/* Points into n. Zero-initialise ret; on failure, too, it is to be cleared. */
int ext_xattrs_load(struct ext_side *s, const struct ext_node *n,
		    struct ext_xattrs *ret) MUST_CHECK;
void ext_xattrs_clear(struct ext_xattrs *x);

#endif
