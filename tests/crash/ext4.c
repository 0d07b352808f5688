/* SPDX-License-Identifier: MIT */
/*
 * Worlds with a real file system: small ext2 and ext4 images, changed through libext2fs between the
 * commits. So each generation could be mounted, with its journal empty, as after a freeze.
 *
 * The image lies in a memory file. The use of its blocks comes from cowfs's own map, once for all
 * generations (that map is under test). The verdict on a sample of the recovered volumes comes from
 * e2fsck and the tree, which are independent of cowfs.
 */
#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "crash.h"

enum { EXT_BLKS = 640, FILES = 24, FAKE_TIME = 1700000000 };

static const char *const kinds[] = {
	"-t ext4 -b 1024 -J size=1 -O ^resize_inode",
	"-t ext4 -b 4096 -O ^has_journal,^resize_inode -N 64",
	"-t ext2 -b 1024",
	"-t ext4 -b 2048 -O ^has_journal,^64bit,bigalloc -C 8192",
	"-t ext4 -b 1024 -g 1024 -O ^has_journal,uninit_bg,^metadata_csum,^resize_inode -E lazy_itable_init=1",
};

static int memory = -1; /* the live image */
static char path[40];

/* ---- contents ---- */

enum { INTERNED_MAX = 60000, TABLE = 1 << 17 };

static uint8_t *interned[INTERNED_MAX];
static unsigned n_interned;
static uint16_t table[TABLE]; /* 0: none; else number + 1 */

const uint8_t *ext4_content(unsigned id)
{
	return interned[id - CONTENTS];
}

static uint16_t intern(const uint8_t *blk)
{
	uint32_t at_slot = crc32c(0, blk, COW_BLK_BYTES) % TABLE;
	uint8_t *copy;

	for (; table[at_slot]; at_slot = (at_slot + 1) % TABLE)
		if (!memcmp(interned[table[at_slot] - 1], blk, COW_BLK_BYTES))
			return (uint16_t)(CONTENTS + table[at_slot] - 1);
	copy = io_alloc(COW_BLK_BYTES);
	if (!copy || n_interned == INTERNED_MAX)
		fail("too much content");
	memcpy(copy, blk, COW_BLK_BYTES);
	interned[n_interned] = copy;
	table[at_slot] = (uint16_t)++n_interned;
	return (uint16_t)(CONTENTS + n_interned - 1);
}

static void forget_contents(void)
{
	while (n_interned)
		free(interned[--n_interned]);
	memset(table, 0, sizeof(table));
}

/* ---- the tree ---- */

static uint32_t file_digest(ext2_filsys fs, ext2_ino_t ino)
{
	static uint8_t buf[64 * KIB];
	uint32_t crc = 0;
	ext2_file_t f;
	unsigned got;

	if (ext2fs_file_open(fs, ino, 0, &f))
		fail("a file of the recovered volume cannot be opened");
	do {
		if (ext2fs_file_read(f, buf, sizeof(buf), &got))
			fail("a file of the recovered volume cannot be read");
		crc = crc32c(crc, buf, got);
	} while (got);
	ext2fs_file_close(f);
	return crc;
}

struct walk {
	ext2_filsys fs;
	uint32_t sum;
};

static int walk_entry(ext2_ino_t dir, int entry, struct ext2_dir_entry *d, int offset,
		      int blocksize, char *buf, void *ctx)
{
	unsigned len = (unsigned)ext2fs_dirent_name_len(d);
	struct walk *w = ctx;
	uint32_t crc;

	if (entry == DIRENT_DOT_FILE || entry == DIRENT_DOT_DOT_FILE || !d->inode)
		return 0;
	crc = crc32c(dir, (const uint8_t *)d->name, len);
	if (ext2fs_dirent_file_type(d) == EXT2_FT_DIR) {
		if (ext2fs_dir_iterate2(w->fs, d->inode, 0, NULL, walk_entry, w))
			fail("a directory of the recovered volume cannot be read");
	} else {
		crc ^= file_digest(w->fs, d->inode);
	}
	w->sum += crc * 2654435761u;
	return 0;
}

static ext2_filsys open_fs(const char *file, int flags)
{
	ext2_filsys fs;

	if (ext2fs_open(file, flags, 0, 0, unix_io_manager, &fs))
		fail("the image cannot be opened");
	fs->now = FAKE_TIME;
	return fs;
}

static uint32_t tree_digest(const char *file)
{
	struct walk w = { .fs = open_fs(file, EXT2_FLAG_64BITS) };

	if (ext2fs_dir_iterate2(w.fs, EXT2_ROOT_INO, 0, NULL, walk_entry, &w))
		fail("the root of the recovered volume cannot be read");
	ext2fs_close(w.fs);
	return w.sum;
}

/* ---- between the memory file and an image ---- */

static int read_memory(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return io_pread_full(memory, buf, blk_to_bytes(blks), blk_to_bytes(blk));
}

static void take_in(struct image *im)
{
	struct blk_reader r = { .read = read_memory, .volume_blks = EXT_BLKS };
	_cleanup_free_ uint8_t *blk = io_alloc(COW_BLK_BYTES);
	struct fsmap *map;

	if (!blk || fsmap_open(&map, &r) < 0 || !fsmap_knows(map) || fsmap_alarms(map))
		fail("the image is not as it should be");
	for (unsigned b = 0; b < EXT_BLKS; b++) {
		enum blk_use use;

		if (read_memory(NULL, b, 1, blk) < 0 || fsmap_use(map, b, &use) < 0)
			fail("the image cannot be read");
		im->use[b] = (uint8_t)use;
		im->content[b] = intern(blk);
	}
	if (fsmap_alarms(map))
		fail("the image is not as it should be");
	fsmap_close(map);
	im->digest = tree_digest(path);
}

void ext4_revert(struct world *w)
{
	for (unsigned b = 0; b < EXT_BLKS; b++)
		if (pwrite(memory, content_of(w->live.content[b]), COW_BLK_BYTES,
			   (off_t)blk_to_bytes(b)) != COW_BLK_BYTES)
			fail("memory file");
}

void ext4_begin(struct world *w)
{
	char cmd[400];

	forget_contents();
	if (memory < 0)
		memory = memfd_create("ext4", 0);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), memory);
	if (memory < 0 || ftruncate(memory, 0) < 0 ||
	    ftruncate(memory, (off_t)blk_to_bytes(EXT_BLKS)) < 0)
		fail("memory file");
	snprintf(
		cmd, sizeof(cmd),
		"E2FSPROGS_FAKE_TIME=%d mke2fs -q -F %s -U 6b0bd3a2-0000-4000-8000-00000000c0f5 -E "
		"hash_seed=6b0bd3a2-0000-4000-8000-00000000c0f6,nodiscard %s %uk >/dev/null 2>&1",
		FAKE_TIME, kinds[w->shape.ext4 - 1], path, EXT_BLKS * 4);
	if (system(cmd))
		fail("mke2fs failed: %s", cmd);
	take_in(&w->n);
}

/* ---- changes ---- */

static void write_file(struct world *w, ext2_filsys fs, const char *name)
{
	static uint8_t data[48 * KIB];
	struct ext2_inode inode = { .i_mode = LINUX_S_IFREG | 0644, .i_links_count = 1 };
	uint64_t seed = rnd_next(&w->rnd),
		 bytes = 1 + rnd_below(w, rnd_below(w, 4) ? 6000 : sizeof(data));
	unsigned put;
	ext2_ino_t ino;
	ext2_file_t f;
	errcode_t e;

	if (ext2fs_new_inode(fs, EXT2_ROOT_INO, LINUX_S_IFREG, NULL, &ino))
		return;
	/* a full directory block */
	if (ext2fs_link(fs, EXT2_ROOT_INO, name, ino, EXT2_FT_REG_FILE))
		return;
	ext2fs_inode_alloc_stats2(fs, ino, 1, 0);
	if (ext2fs_has_feature_extents(fs->super)) {
		ext2_extent_handle_t h;

		inode.i_flags |= EXT4_EXTENTS_FL;
		if (ext2fs_extent_open2(fs, ino, &inode, &h) == 0)
			ext2fs_extent_free(h);
	}
	for (uint64_t i = 0; i < bytes; i += 8)
		memcpy(data + i, &(uint64_t){ rnd_next(&seed) }, 8);
	if (ext2fs_write_new_inode(fs, ino, &inode) ||
	    ext2fs_file_open(fs, ino, EXT2_FILE_WRITE, &f))
		fail("a file cannot be made");
	e = ext2fs_file_write(f, data, (unsigned)bytes, &put); /* no room left: a part is enough */
	if ((e && e != EXT2_ET_BLOCK_ALLOC_FAIL) || ext2fs_file_close(f))
		fail("a file cannot be written: %ld", (long)e);
}

static bool remove_file(ext2_filsys fs, const char *name)
{
	struct ext2_inode inode;
	ext2_ino_t ino;

	if (ext2fs_lookup(fs, EXT2_ROOT_INO, name, (int)strlen(name), NULL, &ino))
		return false;
	if (ext2fs_unlink(fs, EXT2_ROOT_INO, name, ino, 0) || ext2fs_read_inode(fs, ino, &inode) ||
	    ext2fs_punch(fs, ino, &inode, NULL, 0, ~0ull))
		fail("a file cannot be removed");
	inode.i_links_count = 0;
	inode.i_dtime = FAKE_TIME;
	if (ext2fs_write_inode(fs, ino, &inode))
		fail("a file cannot be removed");
	ext2fs_inode_alloc_stats2(fs, ino, -1, 0);
	return true;
}

/* Nothing reads the content that the kernel leaves in free blocks and in the journal's log. */
static void noise(struct world *w)
{
	for (unsigned b = 0; b < EXT_BLKS; b++)
		if (w->live.use[b] != USE_USED && rnd_below(w, 12) == 0) {
			w->live.content[b] = (uint16_t)rnd_below(w, CONTENTS);
			w->dirty[b] = true;
		}
}

void ext4_change(struct world *w)
{
	struct image was = w->live;
	ext2_filsys fs = open_fs(path, EXT2_FLAG_RW | EXT2_FLAG_64BITS);
	char name[8];

	if (ext2fs_read_bitmaps(fs))
		fail("bitmaps");
	for (uint64_t n = 1 + rnd_below(w, 5); n; n--) {
		snprintf(name, sizeof(name), "f%u", (unsigned)rnd_below(w, FILES));
		if (!remove_file(fs, name) || rnd_below(w, 2))
			write_file(w, fs, name);
	}
	if (ext2fs_close(fs))
		fail("the image cannot be written");
	take_in(&w->live);
	for (unsigned b = 0; b < EXT_BLKS; b++)
		/* free blocks are not on the card: a block that becomes used is written, even with
		 * its old content */
		if (w->live.content[b] != was.content[b] ||
		    (w->live.use[b] == USE_USED && was.use[b] != USE_USED)) {
			w->dirty[b] = true;
			w->hole[b] = false;
		}
	noise(w);
}

/* ---- the independent oracles ---- */

void ext4_check(const struct image *im, const uint8_t *volume)
{
	char file[40], cmd[80];
	int fd = memfd_create("recovered", 0), code;

	if (fd < 0 || io_pwrite_full(fd, volume, blk_to_bytes(EXT_BLKS), 0) < 0)
		fail("memory file");
	snprintf(file, sizeof(file), "/proc/%d/fd/%d", getpid(), fd);
	snprintf(cmd, sizeof(cmd), "e2fsck -fn %s >/dev/null 2>&1", file);
	code = system(cmd);
	if (code)
		fail("e2fsck -fn of a recovered volume: %d",
		     WIFEXITED(code) ? WEXITSTATUS(code) : -1);
	if (tree_digest(file) != im->digest)
		fail("the tree of a recovered volume is not that of its generation");
	close(fd);
	total.fscks++;
}
