// SPDX-License-Identifier: MIT
/*
 * Whose blocks: owners_ext against images of mke2fs, its lists of runs, and owners_tree. The oracle
 * is debugfs's list of each file's blocks. owners_tree asks the file system of /tmp, and FIBMAP
 * replaces debugfs.
 */
#include "test.h"
#include <sys/ioctl.h>
#include <linux/fs.h>

#include "fs/btrfs.h"
#include "fs/owners.h"
#include "workdir.h"

/* ---- lists of runs ---- */

enum { BITS = 200 };

static void fill(struct extents *x, bool *bit)
{
	for (unsigned i = 0; i < BITS; i++) {
		bit[i] = rnd(3) == 0;
		if (bit[i])
			assert_int_equal(extents_add(x, i, 1), 0);
	}
}

TEST(test_extents)
{
	rnd_begin(1);
	for (int round = 0; round < 200; round++) {
		struct extents x = { 0 }, y = { 0 }, less = { 0 };
		bool in_x[BITS], in_y[BITS], in_less[BITS] = { 0 };
		uint64_t start = rnd(BITS * 4096), end, sum = 0;

		end = start + rnd(BITS * 4096 - start + 1);
		fill(&x, in_x);
		fill(&y, in_y);
		if (round == 0)
			extents_clear(&y), memset(in_y, 0, sizeof(in_y));
		for (uint64_t b = start; b < end; b++)
			sum += in_x[b / 4096];
		assert_int_equal(extents_covered_bytes(&x, start, end), sum);
		assert_int_equal(extents_without(&less, &x, &y), 0);
		for (size_t i = 0; i < less.n; i++)
			for (uint64_t b = 0; b < less.e[i].blks; b++)
				in_less[less.e[i].blk + b] = true;
		for (unsigned i = 0; i < BITS; i++)
			assert_int_equal(in_less[i], in_x[i] && !in_y[i]);
		extents_clear(&x);
		extents_clear(&y);
		extents_clear(&less);
	}
}

/* ---- ext ---- */

struct image {
	char path[128];
	uint64_t block_bytes, size_bytes;
};

static const struct owner *find_path(const struct owners *w, const char *path)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->o[i].path && !strcmp(w->o[i].path, path))
			return &w->o[i];
	return NULL;
}

static const struct owner *find_kind(const struct owners *w, enum owner_kind kind)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->o[i].kind == kind)
			return &w->o[i];
	return NULL;
}

static uint64_t bytes_of(const struct owner *o)
{
	return o ? o->bytes : 0;
}

/* debugfs's answer for a file (a path, or <inode>), within a list of runs. */
static uint64_t oracle(const struct image *im, const char *file, const struct extents *x)
{
	unsigned long long block;
	uint64_t sum = 0;
	FILE *f;

	f = sh_read("debugfs -R 'blocks %s' %s", file, im->path);
	while (fscanf(f, "%llu", &block) == 1)
		sum += extents_covered_bytes(x, block * im->block_bytes,
					     (block + 1) * im->block_bytes);
	assert_int_equal(pclose(f), 0);
	return sum;
}

static void image_make(struct image *im, const char *options, uint64_t block_bytes)
{
	snprintf(im->path, sizeof(im->path), "%s/image", dir);
	im->block_bytes = block_bytes;
	im->size_bytes = 96 * MIB;
	assert_int_equal(
		sh("rm -f image && mke2fs -q -F %s -b %llu -E lazy_itable_init=0,root_owner=0:0 -d files image 96M && "
		   "debugfs -w -f changes image",
		   options, (unsigned long long)block_bytes),
		0);
}

static const char *const files[] = { "/one",
				     "/folder/two",
				     "/folder/deep/er/holes",
				     "/folder/big",
				     "/folder/many/17",
				     "/folder/many/name with spaces",
				     "/folder/many/long-symlink" };
static const char *const folders[] = { "/", "/folder/", "/folder/deep/er/", "/folder/many/" };

/* Compares every file with debugfs. ret: for the caller, who clears it. */
static void check_image(const struct image *im, const struct extents *all,
			const struct extents *fresh, struct owners *ret)
{
	const struct owners_query q = { .all = all, .fresh = fresh };
	uint64_t sum = 0;

	assert_int_equal(owners_ext(ret, im->path, &q), 0);
	assert_true(ret->complete);
	assert_int_equal(ret->unreadable, 0);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const struct owner *o = find_path(ret, files[i]);
		char quoted[64];

		snprintf(quoted, sizeof(quoted), "\"%s\"", files[i]);
		assert_int_equal(bytes_of(o), oracle(im, quoted, all));
		assert_int_equal(o ? o->fresh_bytes : 0, o ? oracle(im, quoted, fresh) : 0);
		assert_true(!o || o->kind == OWNER_FILE);
	}
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		assert_int_equal(bytes_of(find_path(ret, folders[i])), oracle(im, folders[i], all));
	if (find_kind(ret, OWNER_DELETED)) {
		char inode[32];

		snprintf(inode, sizeof(inode), "<%llu>",
			 (unsigned long long)find_kind(ret, OWNER_DELETED)->ino);
		assert_int_equal(bytes_of(find_kind(ret, OWNER_DELETED)), oracle(im, inode, all));
	}
	assert_int_equal(bytes_of(find_kind(ret, OWNER_JOURNAL)), oracle(im, "<8>", all));
	for (size_t i = 0; i < ret->n; i++) {
		assert_true(ret->o[i].bytes);
		sum += ret->o[i].bytes;
	}
	assert_int_equal(sum, blk_to_bytes(all->blks));
}

static uint64_t dumpe2fs_number(const struct image *im, const char *key)
{
	unsigned long long v = 0;
	FILE *f;

	f = sh_read("dumpe2fs -h %s | sed -n 's/^%s: *//p'", im->path, key);
	assert_int_equal(fscanf(f, "%llu", &v), 1);
	pclose(f);
	return v;
}

TEST(test_ext)
{
	static const struct {
		const char *options;
		uint64_t block_bytes;
		bool journal;
	} images[] = {
		/* an orphan file, the default of newer versions, has blocks that are in no folder */
		{ "-t ext4 -O ^orphan_file", 4096, true },
		{ "-t ext4 -O ^orphan_file", 1024, true },
		{ "-t ext4 -O ^64bit,^metadata_csum,^flex_bg,^orphan_file -I 128", 4096, true },
		{ "-t ext4 -O meta_bg,^orphan_file,^resize_inode", 1024, true },
		{ "-t ext4 -O bigalloc,^orphan_file -C 16384", 4096, true },
		{ "-t ext3", 1024, true },
		{ "-t ext2", 1024, false },
		{ "-t ext2", 4096, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
		struct extents none = { 0 }, all = { 0 }, some = { 0 }, fewer = { 0 };
		struct owners w = { 0 };
		struct image im;

		image_make(&im, images[i].options, images[i].block_bytes);
		assert_int_equal(extents_add(&all, 0, im.size_bytes / COW_BLK_BYTES), 0);
		check_image(&im, &all, &none, &w);
		assert_int_equal(find_kind(&w, OWNER_JOURNAL) != NULL, images[i].journal);
		/* with its indirect block */
		assert_in_range(bytes_of(find_kind(&w, OWNER_DELETED)), 20 * KIB, 21 * KIB);
		assert_int_equal(find_path(&w, "/one")->links, 2);
		assert_null(find_path(&w, "/folder/gone"));
		if (!strstr(images[i].options, "bigalloc")) {
			/* blocks that are in no file: a few of the resize inode */
			assert_int_equal(bytes_of(find_kind(&w, OWNER_FREE)),
					 dumpe2fs_number(&im, "Free blocks") * im.block_bytes);
			assert_in_range(bytes_of(find_kind(&w, OWNER_OTHER)), 0, im.block_bytes);
			assert_int_equal(bytes_of(find_kind(&w, OWNER_XATTRS)), 2 * im.block_bytes);
		}
		assert_int_equal(bytes_of(find_kind(&w, OWNER_INODES)),
				 dumpe2fs_number(&im, "Inode count") *
					 dumpe2fs_number(&im, "Inode size"));
		owners_clear(&w);

		rnd_begin(i);
		for (uint64_t b = 0; b < im.size_bytes / COW_BLK_BYTES; b++) {
			if (rnd(3))
				continue;
			assert_int_equal(extents_add(&some, b, 1), 0);
			if (rnd(2))
				assert_int_equal(extents_add(&fewer, b, 1), 0);
		}
		check_image(&im, &some, &fewer, &w);
		owners_clear(&w);
		check_image(&im, &none, &none, &w);
		assert_int_equal(w.n, 0);
		owners_clear(&w);
		extents_clear(&all);
		extents_clear(&some);
		extents_clear(&fewer);
	}
}

/* A superblock without a checksum may contain anything: a value that would lead the library out of
 * its own memory is refused. */
TEST(test_ext_geometry)
{
	static const struct {
		const char *what;
		unsigned off, width;
		uint32_t value;
	} fields[] = {
		{ "first data block", 20, 4, 8 },
		{ "first data block", 20, 4, 0 },
		{ "first data block", 20, 4, 98303 },
		{ "block size", 24, 4, 2 },
		{ "block size", 24, 4, 40 },
		{ "cluster size", 28, 4, 4 },
		{ "blocks per group", 32, 4, 8 },
		{ "blocks per group", 32, 4, 8200 },
		{ "blocks per group", 32, 4, 0x80002000 },
		{ "clusters per group", 36, 4, 16384 },
		{ "inodes per group", 40, 4, 0 },
		{ "inodes per group", 40, 4, 16384 },
		{ "inodes per group", 40, 4, 0x02000008 },
		{ "inode count", 0, 4, 1 },
		{ "inode count", 0, 4, 0xffffffff },
		{ "block count", 4, 4, 1 },
		{ "block count", 4, 4, 0x7fffffff },
		{ "first inode", 84, 4, 1 },
		{ "first inode", 84, 4, 0xfffffff0 },
		{ "inode size", 88, 2, 0 },
		{ "inode size", 88, 2, 160 },
		{ "inode size", 88, 2, 2048 },
		{ "reserved descriptors", 206, 2, 0xffff },
		{ "first meta group", 260, 4, 0x7fffffff },
		{ "groups per flex", 372, 1, 200 },
	};
	struct extents all = { 0 }, none = { 0 };
	const struct owners_query q = { .all = &all, .fresh = &none };
	struct image im;
	int fd;

	image_make(&im, "-t ext2 -O meta_bg,^resize_inode", 1024);
	assert_int_equal(extents_add(&all, 0, im.size_bytes / COW_BLK_BYTES), 0);
	fd = open(im.path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		struct owners w = { 0 };
		off_t at = 1024 + fields[i].off;
		uint32_t was;
		int e;

		assert_int_equal(pread(fd, &was, fields[i].width, at), fields[i].width);
		assert_int_equal(pwrite(fd, &fields[i].value, fields[i].width, at),
				 fields[i].width);
		e = owners_ext(&w, im.path, &q);
		if (e != -EUCLEAN)
			fail_msg("%s %u: %d", fields[i].what, fields[i].value, e);
		assert_int_equal(pwrite(fd, &was, fields[i].width, at), fields[i].width);
	}
	close(fd);
	extents_clear(&all);
}

/* With its descriptors at the place in such a superblock, the library's bitmap of all blocks
 * overflows. */
TEST(test_ext_overflow)
{
	struct extents all = { 0 }, none = { 0 };
	const struct owners_query q = { .all = &all, .fresh = &none };
	struct owners w = { 0 };
	struct image im;

	image_make(&im, "-t ext2", 1024);
	assert_int_equal(sh("dd if=image of=image bs=1k skip=2 seek=9 count=4 conv=notrunc && "
			    "printf '\\010' | dd of=image bs=1 seek=1044 conv=notrunc"),
			 0);
	assert_int_equal(extents_add(&all, 0, im.size_bytes / COW_BLK_BYTES), 0);
	assert_int_equal(owners_ext(&w, im.path, &q), -EUCLEAN);
	extents_clear(&all);
}

/* The number after a text in debugfs's output. */
static uint64_t debugfs_number(const struct image *im, const char *request, const char *behind)
{
	char line[512];
	uint64_t v = UINT64_MAX;
	FILE *f;

	f = sh_read("debugfs -R '%s' %s", request, im->path);
	while (fgets(line, sizeof(line), f))
		if (strstr(line, behind))
			v = strtoull(strstr(line, behind) + strlen(behind), NULL, 0);
	pclose(f);
	assert_true(v != UINT64_MAX);
	return v;
}

/* n extents, or indices of a lower level, all to the same block; after a header. */
static void fill_node(uint8_t *p, unsigned n, uint16_t depth, uint32_t block)
{
	const uint16_t head[6] = { 0xf30a, (uint16_t)n, (uint16_t)n, depth };

	memcpy(p, head, sizeof(head));
	for (unsigned i = 0; i < n; i++) {
		const uint32_t leaf[3] = { i, 1, block }, index[3] = { i, block, 0 };

		memcpy(p + 12 + 12 * i, depth ? index : leaf, 12);
	}
}

/* A tree of six blocks that leads 160 million times to the same one; and a directory that contains
 * it: both end. */
TEST(test_ext_endless)
{
	static const char *const victims[] = { "/folder/big", "/folder/many" };
	struct extents all = { 0 }, none = { 0 };
	const struct owners_query q = { .all = &all, .fresh = &none };

	for (size_t v = 0; v < ARRAY_SIZE(victims); v++) {
		struct owners w = { 0 };
		uint8_t node[1024], inode[60];
		uint64_t block, at;
		char request[64];
		struct image im;
		int fd;

		image_make(&im, "-t ext4 -O ^metadata_csum", 1024);
		fd = open(im.path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		block = debugfs_number(&im, "bmap /folder/big 100", "");
		snprintf(request, sizeof(request), "imap %s", victims[v]);
		at = debugfs_number(&im, request, "at block ") * 1024;
		at += debugfs_number(&im, request, "offset ");
		for (uint16_t depth = 0; depth < 5; depth++) {
			fill_node(node, 84, depth, (uint32_t)(block + depth - (depth > 0)));
			assert_int_equal(
				pwrite(fd, node, sizeof(node), (off_t)((block + depth) * 1024)),
				sizeof(node));
		}
		fill_node(inode, 4, 5, (uint32_t)block + 4);
		assert_int_equal(pwrite(fd, inode, sizeof(inode), (off_t)at + 40), sizeof(inode));
		close(fd);
		assert_int_equal(extents_add(&all, 0, im.size_bytes / COW_BLK_BYTES), 0);
		assert_int_equal(owners_ext(&w, im.path, &q), 0);
		assert_false(w.complete);
		owners_clear(&w);
		extents_clear(&all);
	}
}

TEST(test_ext_refusals)
{
	struct extents none = { 0 };
	const struct owners_query q = { .all = &none, .fresh = &none };
	struct owners w = { 0 };
	char path[128];

	snprintf(path, sizeof(path), "%s/nothing", dir);
	assert_int_equal(owners_ext(&w, path, &q), -ENOENT);
	assert_int_equal(sh("truncate -s 1M nothing"), 0);
	assert_int_equal(owners_ext(&w, path, &q), -EOPNOTSUPP);
	assert_int_equal(owners_tree(&w, "/no/such/tree", 10, 1000000000, &q), -ENOENT);
	assert_null(w.o);
}

/* ---- btrfs's addresses ---- */

enum { SPACE = 100 };

struct places {
	unsigned n[10 * SPACE];
};

static void note_place(void *ctx, uint64_t start, uint64_t end)
{
	struct places *p = ctx;

	assert_true(start < end && end <= ARRAY_SIZE(p->n));
	for (; start < end; start++)
		p->n[start]++;
}

/* Chunks with gaps between them, once or twice on the device, against a table of each byte. */
TEST(test_btrfs_map)
{
	rnd_begin(5);
	for (int round = 0; round < 2000; round++) {
		struct btrfs_chunk_place c[8];
		struct btrfs_chunks x = { .c = c };
		struct places got = { 0 }, want = { 0 };
		uint64_t at = rnd(10), start = rnd(SPACE), len = rnd(SPACE);

		for (; x.n < ARRAY_SIZE(c) && at < SPACE - 20; x.n++) {
			struct btrfs_chunk_place *p = &c[x.n];

			*p = (struct btrfs_chunk_place){ .logical = at,
							 .len_bytes = 1 + rnd(20),
							 .copies = 1 + rnd(2),
							 .place = { 200 + 30 * x.n,
								    600 + 30 * x.n } };
			at += p->len_bytes + (rnd(3) ? 0 : rnd(9));
		}
		for (uint64_t b = start; b < start + len; b++)
			for (size_t i = 0; i < x.n; i++)
				for (unsigned k = 0;
				     b >= c[i].logical && b - c[i].logical < c[i].len_bytes &&
				     k < c[i].copies;
				     k++)
					want.n[c[i].place[k] + b - c[i].logical]++;
		btrfs_map(&x, start, len, note_place, &got);
		assert_memory_equal(&got, &want, sizeof(got));
	}
}

/* ---- a mounted tree ---- */

static int block_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* The first 4 KiB blocks of a file, by FIBMAP; every other one is in the list. */
TEST(test_tree)
{
	enum { BLKS = 64 };
	struct extents all = { 0 }, none = { 0 };
	const struct owners_query q = { .all = &all, .fresh = &none };
	struct owners w = { 0 };
	uint64_t place[BLKS];
	char path[128], tree[] = "/tmp/cowfs-tree-XXXXXX";
	struct stat st;
	int fd;

	assert_non_null(mkdtemp(tree));
	snprintf(path, sizeof(path), "%s/sub", tree);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/sub/file", tree);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	for (int i = 0; i < BLKS; i++)
		assert_int_equal(pwrite(fd, tree, 4, i * 4096), 4);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	for (int i = 0; i < BLKS; i++) {
		int block = i;

		if (st.st_blksize != 4096 || ioctl(fd, FIBMAP, &block) < 0 || block <= 0) {
			print_message(
				"no FIBMAP for /tmp: owners_tree is tested by top.bats only\n");
			goto out;
		}
		place[i] = (uint64_t)block;
	}
	qsort(place, BLKS, sizeof(*place), block_compare);
	for (int i = 0; i < BLKS; i += 2)
		assert_int_equal(extents_add(&all, place[i], 1), 0);
	assert_int_equal(owners_tree(&w, tree, 100, UINT64_MAX / 2, &q), 0);
	assert_true(w.complete);
	assert_int_equal(w.n, 1);
	assert_string_equal(w.o[0].path, "/sub/file");
	assert_int_equal(w.o[0].bytes, BLKS / 2 * 4096);
	owners_clear(&w);
	assert_int_equal(owners_tree(&w, tree, 0, 10000000000, &q), 0);
	assert_false(w.complete);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.o[0].kind, OWNER_OTHER);
	owners_clear(&w);
out:
	close(fd);
	extents_clear(&all);
	snprintf(path, sizeof(path), "rm -rf %s", tree);
	assert_int_equal(system(path), 0);
}

/* ---- the files of the images ---- */

static int setup(void **state)
{
	if (workdir_new("owners") < 0)
		return -1;
	alarm(1200);
	/* holes: more extents than an inode has room for, and more than one block of them at 1 KiB;
	 * gone: 20 blocks of 1 KiB or 5 of 4 KiB, without a name */
	return sh(
		"mkdir -p files/folder/deep/er files/folder/many && cd files && head -c 9000 /dev/urandom >one && "
		"head -c 70000 /dev/urandom >folder/two && head -c 9000000 /dev/urandom >folder/big && "
		"for i in $(seq 0 2 398); do head -c 4096 /dev/urandom | "
		"dd of=folder/deep/er/holes bs=4096 seek=$i conv=notrunc status=none; done && "
		"for i in $(seq 400); do echo $i >folder/many/$i; done && echo x >'folder/many/name with spaces' && "
		"ln -s $(printf %%0200d 1) folder/many/long-symlink && head -c 20480 /dev/urandom >folder/gone && cd .. && "
		"printf '%%s\\n' \"ea_set /folder/two user.a $(printf %%0300d)\" \"ea_set /folder/many/17 user.b $(printf %%0300d)\" "
		"'ln /one /second' 'sif /one links_count 2' 'sif /folder/gone links_count 0' 'unlink /folder/gone' >changes");
}

TEST_GROUP(setup, workdir_remove)
