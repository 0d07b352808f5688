// SPDX-License-Identifier: MIT
/* The table of file systems: each entry is complete, and its capabilities fit together. */
#include "test.h"
#include "fs/fs_ops.h"

#define KIND(kind, number, ops) kind,

static const enum fs_kind kinds[] = { FS_KINDS(KIND) };

/* The fingerprint of each record has them. */
TEST(test_numbers)
{
	assert_int_equal(FS_UNKNOWN, 0);
	assert_int_equal(FS_EXT, 1);
	assert_int_equal(FS_XFS, 2);
	assert_int_equal(FS_BTRFS, 3);
	assert_int_equal(FS_F2FS, 4);
	assert_int_equal(FS_VFAT, 5);
	assert_int_equal(FS_EXFAT, 6);
	assert_int_equal(FS_NILFS2, 7);
}

TEST(test_complete)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct fs_ops *o = fs_ops(kinds[i]);

		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(kinds[k], kinds[i]);
		assert_ptr_not_equal(o, fs_ops(FS_UNKNOWN));
		assert_non_null(o->names[0]);
		assert_true(strlen(o->names[0]) < sizeof(((struct fsinfo *)0)->type));
		for (size_t k = 0; k < ARRAY_SIZE(o->names) && o->names[k]; k++)
			assert_ptr_equal(fs_ops_named(o->names[k]), o);
		assert_non_null(o->probe);
		assert_non_null(o->readonly_options);
		assert_memory_equal(o->readonly_options, "ro", 2);
	}
}

TEST(test_consistent)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct fs_ops *o = fs_ops(kinds[i]);

		if (o->image)
			assert_true(o->image->open && o->image->group && o->image->close &&
				    o->image->reads_blks);
		/* a file system that cowfs relies on must report when it is damaged */
		assert_true(!o->counts_on_free || (o->image && o->image->alarms));
		assert_true(!o->facts || o->image);
		assert_true(!o->reads_lost_transaction || o->image);
		/* the times come from the superblock */
		assert_true(!o->tells_mounts || o->fields);
		/* what bears a power cut needs no replay here */
		assert_true(!o->settle || (o->image && o->image->replay && !o->crash_safe));
		assert_true(!o->log_hides || o->crash_safe);
		/* by the same programs */
		assert_true(!o->can_shrink || (o->checker && o->counts_on_free));
	}
}

TEST(test_unknown)
{
	const struct fs_ops *o = fs_ops(FS_UNKNOWN);

	assert_ptr_equal(fs_ops((enum fs_kind)0xffffffff), o);
	assert_ptr_equal(fs_ops((enum fs_kind)99), o);
	assert_ptr_equal(fs_ops_named("ntfs"), o);
	assert_ptr_equal(fs_ops_named(""), o);
	assert_true(!o->probe && !o->units && !o->image && !o->counts_on_free && o->crash_safe);
	assert_string_equal(o->readonly_options, "ro");
}
