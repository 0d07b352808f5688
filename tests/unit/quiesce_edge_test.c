// SPDX-License-Identifier: MIT
/* Quiesce without memory, with a strange list of mounts, and what its callbacks can say. */
#include "test.h"

#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/mounts.h"
#include "fs/find_mount.h"
#include "fs/quiesce.h"
#include "export/fuse_mount.h"
#include "scratch.h"
#include "quiesce.h"

/* ---- a /proc made by the test ---- */

/* Invalid lines, and one with a strange path: it is found, and used only if the file system there
 * is the right one. */
TEST(test_strange_mountinfo, setup_ext4, teardown)
{
	char path[160], where[256];
	static char info[24000];
	bool readonly = true;
	size_t n;

	t.proc_dirfd = fake_proc(path);
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), -ENOENT);
	/* could not check: nothing is sealed */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENOENT);
	fake_put(t.proc_dirfd, "self/mountinfo", "");
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), -ENOENT);
	assert_int_equal(symlinkat("/", t.proc_dirfd, "self/root"), 0);
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	n = (size_t)snprintf(
		info, sizeof(info),
		"nothing\n1 2 %u:%u / /x rw ext4 /dev/x rw\n"
		"1 2 %u:%u - ext4 /dev/x rw\n1 2 %u:%u / /x rw - ext4\n1 2 seven / /x rw - ext4 /dev/x rw\n"
		"9 1 0:55 / /x rw - tmpfs none rw\n9 1 0:55 / /x rw - btrfs /dev/not/there rw\n"
		"9 1 0:55 / /x rw - btrfs /dev/null rw\n9 1 %u:%u / ",
		major(t.dev), minor(t.dev), major(t.dev), minor(t.dev), major(t.dev), minor(t.dev),
		major(t.dev), minor(t.dev));
	memset(info + n, 'x', 20000); /* longer than any line is allowed to be */
	n += 20000;
	snprintf(info + n, sizeof(info) - n, " rw - ext4 /dev/x rw\n");
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	snprintf(info + n, sizeof(info) - n,
		 " rw - ext4 /dev/x rw\n"
		 "9 1 %u:%u / /a\\040b\\134c\\9\\04 rw - ext4 /dev/x root=ro\n",
		 major(t.dev), minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), &readonly), 1);
	assert_string_equal(where, "/a b\\c\\9\\04");
	assert_false(readonly);
	/* not there, but mounted elsewhere */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 1);
	/* another block device, and words that end within an escape */
	snprintf(info, sizeof(info),
		 "9 1 0:55 / /x rw - btrfs %s rw\n9 1 0:55 / /x\\!22 rw - btrfs /dev/x\\0 rw\n",
		 s.loop.path);
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	/* the driver of btrfs gives the source */
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 1);
	assert_int_equal(find_mount(t.proc_dirfd, makedev(1, 250), where, sizeof(where), NULL), 0);
	/* the user who mounts chooses the source and the rest of the line, except the device
	 * number */
	snprintf(
		info, sizeof(info),
		"9 1 0:55 / /x rw - fuse %s rw\n9 1 0:55 / /x rw - fuse.btrfs %s rw\n"
		"9 1 0:55 / /x\\012 rw - fuse x\\0409\\0401\\040%u:%u\\040/\\040/\\040rw\\040-\\040ext4 rw\n",
		s.loop.path, s.loop.path, major(t.dev), minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), NULL), 0);
	snprintf(info, sizeof(info), "9 1 %u:%u / / rw - ext4 /dev/x ro,noatime\n", major(t.dev),
		 minor(t.dev));
	fake_put(t.proc_dirfd, "self/mountinfo", info);
	assert_int_equal(find_mount(t.proc_dirfd, t.dev, where, sizeof(where), &readonly), 1);
	assert_true(readonly);
	/* nothing is asked of a file system that says it is mounted read-only */
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 2 && rep.readonly && rep.instant);
	fake_end(path, t.proc_dirfd);
}

static bool never(void *ctx)
{
	((struct probe *)ctx)->calls += 100;
	return false;
}

static bool always(void *ctx)
{
	((struct probe *)ctx)->calls += 10;
	return true;
}

/* The callback comes after the sync, and returns yes. */
TEST(test_needed, setup_ext4, teardown)
{
	t.needed = always;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 11 && rep.instant);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), 0);
	assert_true(p.calls == 32 && !rep.mounted);
}

/* The callback comes after the sync, and returns no. */
TEST(test_not_needed, setup_ext4, teardown)
{
	t.needed = never;
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENODATA);
	assert_true(p.calls == 100 && !rep.instant);
	assert_int_equal(umount(s.mnt), 0);
	assert_int_equal(quiesce_run(&t, seal, &p, &rep), -ENODATA);
	assert_int_equal(p.calls, 200);
}

TEST_GROUP_OF_ROOT(open_proc, NULL)
