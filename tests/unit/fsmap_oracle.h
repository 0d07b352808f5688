/* SPDX-License-Identifier: MIT */
/* e2fsprogs' view of an image, compared with fsmap. Behind cmocka.h. */
#ifndef COWFS_TESTS_FSMAP_ORACLE_H
#define COWFS_TESTS_FSMAP_ORACLE_H

#include "test.h"
#include "base/crc32c.h"
#include "fs/fsinfo.h"
#include "image.h"

/* of the jbd2 superblock, in an image of 1 KiB blocks */
static inline uint64_t jsb_offset(const struct image *im)
{
	for (uint64_t off = 0; off < im->size_bytes; off += 1024)
		if (!memcmp(im->p + off, "\xc0\x3b\x39\x98\0\0\0\4", 8))
			return off;
	fail_msg("no journal in %s", im->path);
	return 0;
}

/* ---- the oracle ---- */

struct oracle {
	uint64_t blocks, block_bytes, ratio, uninit_groups, free_blocks, journal_blocks,
		journal_meta;
	uint8_t *use; /* enum blk_use of each block of the file system */
};

static inline void oracle_header(struct oracle *o, const char *line)
{
	unsigned long long v;

	if (sscanf(line, "Block count: %llu", &v) == 1)
		o->blocks = v;
	if (sscanf(line, "Block size: %llu", &v) == 1)
		o->block_bytes = v;
	if (sscanf(line, "Cluster size: %llu", &v) == 1)
		o->ratio = v / o->block_bytes;
}

/* "  Free blocks: 4690-8192, 8200": of a bigalloc range, the first block of the last cluster
 * (e2fsprogs 1.47.0) or its last one (1.47.2) */
static inline void oracle_free(struct oracle *o, char *list)
{
	for (char *p = strtok(list, ", \n"); p; p = strtok(NULL, ", \n")) {
		unsigned long long first, last;

		if (sscanf(p, "%llu-%llu", &first, &last) != 2)
			last = first = strtoull(p, NULL, 10);
		if (last % o->ratio == 0)
			last += o->ratio - 1;
		for (uint64_t b = first; b <= last && b < o->blocks; b++, o->free_blocks++)
			o->use[b] = USE_FREE;
	}
}

static inline void oracle_journal(struct oracle *o, const char *name)
{
	FILE *f = sh_read("debugfs -R 'stat <8>' %s 2>/dev/null", name);
	char tok[256];

	while (fscanf(f, " %255[^ ,\n]", tok) == 1 || fscanf(f, "%*[,]") != EOF) {
		unsigned long long l0, l1, b;
		int n;

		if (!strncmp(tok, "(IND)", 5) || !strncmp(tok, "(DIND)", 6) ||
		    !strncmp(tok, "(ETB", 4))
			o->journal_meta++;
		n = sscanf(tok, "(%llu-%llu):%llu", &l0, &l1, &b);
		if (n != 3) {
			n = sscanf(tok, "(%llu):%llu", &l0, &b);
			l1 = l0;
		}
		if (n >= 2)
			for (uint64_t l = l0; l <= l1; l++, b++)
				if (l) {
					o->use[b] = USE_JOURNAL;
					o->journal_blocks++;
				}
		tok[0] = 0;
	}
	pclose(f);
}

static inline void oracle_read(struct oracle *o, const char *name)
{
	FILE *f = sh_read("dumpe2fs %s 2>/dev/null", name);
	_cleanup_free_ char *line = NULL;
	size_t alloc = 0;

	memset(o, 0, sizeof(*o));
	o->ratio = 1;
	while (getline(&line, &alloc, f) > 0) {
		if (!strncmp(line, "Group ", 6)) {
			if (!o->use)
				o->use = calloc(o->blocks, 1);
			o->uninit_groups += strstr(line, "BLOCK_UNINIT") != NULL;
		} else if (!o->use) {
			oracle_header(o, line);
		} else if (!strncmp(line, "  Free blocks: ", 15)) {
			oracle_free(o, line + 15);
		}
	}
	pclose(f);
	assert_non_null(o->use);
	oracle_journal(o, name);
}

static inline enum blk_use oracle_unit(const struct oracle *o, uint64_t blk)
{
	uint64_t first = blk_to_bytes(blk) / o->block_bytes;
	uint64_t n = o->block_bytes < COW_BLK_BYTES ? COW_BLK_BYTES / o->block_bytes : 1;

	if (first + n > o->blocks || !blk)
		return USE_USED;
	for (uint64_t i = 1; i < n; i++)
		if (o->use[first + i] != o->use[first])
			return USE_USED;
	return (enum blk_use)o->use[first];
}

/* From many places, with many limits: the answer of a run is the answer of each of its units. */
static inline void runs_compare(struct fsmap *m, const struct image *im, const struct oracle *o)
{
	static const uint64_t steps[] = { 1, 7, 333, UINT64_MAX },
			      limits[] = { 1, 2, 60, UINT64_MAX };
	uint64_t runs = 0, changes = 0, n;
	enum blk_use use;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		for (uint64_t blk = 0; blk < im->r.volume_blks; blk += min_u64(n, steps[i])) {
			assert_int_equal(fsmap_run(m, blk, limits[i], &use, &n), 0);
			assert_true(n >= 1 && n <= limits[i]);
			for (uint64_t b = blk; b < blk + n && b < im->r.volume_blks; b++)
				if (use != oracle_unit(o, b))
					fail_msg(
						"%s: unit %llu of run %llu+%llu is %d, e2fsprogs says %d",
						im->path, (unsigned long long)b,
						(unsigned long long)blk, (unsigned long long)n, use,
						oracle_unit(o, b));
		}
	for (uint64_t blk = 0; blk < im->r.volume_blks; blk += n, runs++)
		assert_int_equal(fsmap_run(m, blk, UINT64_MAX, &use, &n), 0);
	for (uint64_t blk = 1; blk < im->r.volume_blks; blk++)
		changes += oracle_unit(o, blk) != oracle_unit(o, blk - 1);
	/* and runs are long: cut only at changes and at groups; units of small blocks may have
	 * several uses each */
	if (o->block_bytes == COW_BLK_BYTES && runs > 2 * changes + im->r.volume_blks / 512 + 3)
		fail_msg("%s: %llu runs for %llu changes in %llu units", im->path,
			 (unsigned long long)runs, (unsigned long long)changes,
			 (unsigned long long)im->r.volume_blks);
}

static inline void map_compare(struct image *im, const struct oracle *o, unsigned alarms)
{
	uint64_t seen[3] = { 0 };
	struct fsmap *m;
	enum blk_use use;

	assert_int_equal(fsmap_open(&m, &im->r), 0);
	assert_true(fsmap_knows(m));
	for (uint64_t blk = 0; blk < im->r.volume_blks; blk++) {
		assert_int_equal(fsmap_use(m, blk, &use), 0);
		if (use != oracle_unit(o, blk))
			fail_msg("%s: unit %llu is %d, e2fsprogs says %d", im->path,
				 (unsigned long long)blk, use, oracle_unit(o, blk));
		seen[use]++;
	}
	runs_compare(m, im, o);
	assert_true(seen[USE_USED] && seen[USE_FREE]);
	assert_true(!seen[USE_JOURNAL] == !o->journal_blocks);
	/* far out of range */
	static const uint64_t far[] = { 1ull << 32, 1ull << 52, UINT64_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(far); i++) {
		assert_int_equal(fsmap_use(m, far[i], &use), 0);
		assert_int_equal(use, USE_USED);
	}
	assert_int_equal(fsmap_alarms(m), alarms);
	fsmap_close(m);
}

/* ---- configurations ---- */

static inline void small_image(const char *name, const char *args)
{
	assert_int_equal(
		sh("rm -f %s && truncate -s 40M %s && mke2fs -q -F -b 1024 %s -d files %s && "
		   "debugfs -w -f holes %s",
		   name, name, args, name, name),
		0);
}

static inline uint64_t units_of(struct fsmap *m, const struct image *im, enum blk_use want)
{
	uint64_t n = 0;
	enum blk_use use;

	for (uint64_t blk = 0; blk < im->r.volume_blks; blk++) {
		assert_int_equal(fsmap_use(m, blk, &use), 0);
		n += use == want;
	}
	return n;
}

static inline uint64_t field_of(const char *name, uint64_t group, const char *field)
{
	FILE *f = sh_read("dumpe2fs %s 2>/dev/null | sed -n '/^Group %d:/,/^Group %d:/s/.*%s at "
			  "\\([0-9]*\\).*/\\1/p'",
			  name, (int)group, (int)group + 1, field);
	unsigned long long v = 0;

	assert_int_equal(fscanf(f, "%llu", &v), 1);
	pclose(f);
	return v;
}

/* ---- hostile images ---- */

static inline int setup(void **state)
{
	if (workdir_new("ext4") < 0)
		return -1;
	alarm(1200); /* a hang is a failure: of a build for coverage or with a sanitizer, too */
	return sh("mkdir files && for i in $(seq 40); do head -c $((i * 3000)) /dev/urandom "
		  ">files/$i; done && for i in $(seq 1 3 40); do echo rm $i; done >holes");
}

#endif
