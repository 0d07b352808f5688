/* SPDX-License-Identifier: MIT */
/*
 * Tests of card/blockdev on image files and, as root, on loop devices; of card/sysfs on a tree
 * of files that looks like a card's. Loop devices are made with AUTOCLEAR: they vanish with
 * their last descriptor, also when a test fails.
 */
#include "test.h"
#include <linux/blkpg.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "card/find.h"
#include "card/sysfs.h"
#include "workdir.h"

#define IMAGE_BYTES (8 * MIB)

static _Alignas(COW_BLK_BYTES) uint8_t buf[16 * COW_BLK_BYTES];

static const char *scratch(const char *name)
{
	static char path[4][128];
	static unsigned turn;

	turn = (turn + 1) % ARRAY_SIZE(path);
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
	return path[turn];
}

static void write_scratch(const char *name, const char *text)
{
	int fd = open(scratch(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, text, strlen(text)), 0);
	close(fd);
}

static void make_image(const char *name, uint64_t size_bytes)
{
	write_scratch(name, "");
	assert_int_equal(truncate(scratch(name), (off_t)size_bytes), 0);
}

/* ---- image files ---- */

TEST(test_refusals)
{
	struct card_options odd = { .erase_block_bytes = 1000 };
	struct card *c = NULL;

	make_image("image", IMAGE_BYTES);
	make_image("small", 4095);
	assert_int_equal(mkfifo(scratch("fifo"), 0600), 0);
	assert_int_equal(blockdev_open(&c, scratch("none"), 0, NULL), -ENOENT);
	assert_int_equal(blockdev_open(&c, scratch("image"), 0, NULL), -ENOTBLK);
	assert_int_equal(blockdev_open(&c, dir, BLOCKDEV_ALLOW_FILE, NULL), -ENOTBLK);
	assert_int_equal(blockdev_open(&c, "/dev/null", BLOCKDEV_ALLOW_FILE, NULL), -ENOTBLK);
	assert_int_equal(blockdev_open(&c, scratch("fifo"), BLOCKDEV_ALLOW_FILE, NULL), -ENOTBLK);
	assert_int_equal(blockdev_open(&c, scratch("small"), BLOCKDEV_ALLOW_FILE, NULL), -ENXIO);
	assert_int_equal(blockdev_open(&c, scratch("image"), BLOCKDEV_ALLOW_FILE, &odd), -EINVAL);
	assert_null(c);
}

TEST(test_image_file)
{
	struct card_options opt = { .erase_block_bytes = 3 * MIB };
	struct card_counters k;
	struct card *c, *d;

	make_image("image", IMAGE_BYTES + 4095);
	assert_int_equal(
		blockdev_open(&c, scratch("image"), BLOCKDEV_ALLOW_FILE | BLOCKDEV_EXCL, &opt), 0);
	assert_int_equal(
		blockdev_open(&d, scratch("image"), BLOCKDEV_ALLOW_FILE | BLOCKDEV_EXCL, NULL),
		-EBUSY);
	assert_int_equal(c->geo.size_bytes, IMAGE_BYTES);
	assert_int_equal(c->geo.erase_block_bytes, 3 * MIB);
	assert_int_equal(c->geo.eb_source, CARD_EB_CONFIGURED);
	assert_int_equal(c->geo.disk_off_bytes, 0);
	assert_string_equal(c->geo.identity, "");
	assert_string_equal(c->geo.path, scratch("image"));
	assert_int_equal(card_counters(c, &k), -ENOTSUP);
	memset(buf, 0x5a, COW_BLK_BYTES);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(card_write(c, IMAGE_BYTES - COW_BLK_BYTES, buf, COW_BLK_BYTES), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(card_set_writable(c, false), 0);
	card_close(c);

	assert_int_equal(
		blockdev_open(&c, scratch("image"), BLOCKDEV_ALLOW_FILE | BLOCKDEV_RDONLY, NULL),
		0);
	assert_int_equal(c->geo.erase_block_bytes, 4 * MIB);
	assert_int_equal(c->geo.eb_source, CARD_EB_GUESSED);
	assert_int_equal(card_read(c, IMAGE_BYTES - 2 * COW_BLK_BYTES, buf, 2 * COW_BLK_BYTES), 0);
	assert_int_equal(buf[COW_BLK_BYTES - 1], 0);
	assert_int_equal(buf[COW_BLK_BYTES], 0x5a);
	assert_int_equal(card_set_writable(c, true), -EROFS);
	assert_int_equal(card_write(c, 0, buf, COW_BLK_BYTES), -EROFS);
	card_close(c);
}

/* the file shrank while open: an error, never a short read */
TEST(test_image_truncated)
{
	struct card *c;

	make_image("image", IMAGE_BYTES);
	assert_int_equal(blockdev_open(&c, scratch("image"), BLOCKDEV_ALLOW_FILE, NULL), 0);
	assert_int_equal(truncate(scratch("image"), COW_BLK_BYTES), 0);
	assert_int_equal(card_read(c, 0, buf, 2 * COW_BLK_BYTES), -EIO);
	card_close(c);
}

/* ---- sysfs, on a tree made by the test ---- */

/* Makes a disk in dir/sys with a partition p1; subsystem NULL: it has no device. */
static void make_sysfs(const char *subsystem)
{
	assert_true(mkdir(scratch("sys"), 0700) == 0 || errno == EEXIST);
	assert_true(mkdir(scratch("sys/p1"), 0700) == 0 || errno == EEXIST);
	assert_true(mkdir(scratch("sys/queue"), 0700) == 0 || errno == EEXIST);
	assert_true(mkdir(scratch("sys/device"), 0700) == 0 || errno == EEXIST);
	(void)unlink(scratch("sys/device/subsystem"));
	(void)unlink(scratch("sys/device/preferred_erase_size"));
	(void)unlink(scratch("sys/device/cid"));
	(void)unlink(scratch("sys/device/wwid"));
	if (subsystem)
		assert_int_equal(symlink(subsystem, scratch("sys/device/subsystem")), 0);
	write_scratch("sys/p1/partition", "1\n");
	write_scratch("sys/p1/start", "8192\n");
	write_scratch("sys/queue/discard_granularity", "8388608\n");
}

static struct card_geometry geometry_of(const char *name)
{
	struct card_geometry geo;
	int fd = open(scratch(name), O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	memset(&geo, 0xee, sizeof(geo));
	assert_int_equal(sysfs_geometry(fd, &geo), 0);
	close(fd);
	return geo;
}

TEST(test_sysfs_mmc)
{
	static const char *const rubbish[] = { "0", "512", "4097000", "99999999999", "none", "" };
	struct card_geometry geo;

	make_sysfs("../../../bus/mmc");
	write_scratch("sys/device/preferred_erase_size", "12582912\n");
	write_scratch("sys/device/cid", "035344534331364780abcdef01234500\n");
	geo = geometry_of("sys/p1");
	assert_int_equal(geo.disk_off_bytes, 8192 * 512);
	assert_int_equal(geo.erase_block_bytes, 12 * MIB);
	assert_int_equal(geo.eb_source, CARD_EB_REPORTED);
	assert_string_equal(geo.identity, "035344534331364780abcdef01234500");
	geo = geometry_of("sys");
	assert_int_equal(geo.disk_off_bytes, 0);
	assert_int_equal(geo.erase_block_bytes, 12 * MIB);
	for (size_t i = 0; i < ARRAY_SIZE(rubbish); i++) {
		write_scratch("sys/device/preferred_erase_size", rubbish[i]);
		assert_int_equal(geometry_of("sys/p1").erase_block_bytes, 8 * MIB);
	}
	write_scratch("sys/queue/discard_granularity", "512");
	geo = geometry_of("sys/p1");
	assert_int_equal(geo.erase_block_bytes, 4 * MIB);
	assert_int_equal(geo.eb_source, CARD_EB_GUESSED);
}

TEST(test_sysfs_discard)
{
	static const struct {
		const char *name, *manfid, *oemid;
		uint64_t bytes;
	} cards[] = {
		{ "SD128", "0x000003", "0x5344", 8 * MIB }, /* as Linux prints them */
		{ "SD128", "0x000027", "0x5048", 0 },
		{ "SD16G", "0x000027", "0x5048", 8 * MIB },
		{ "SD16G", "0x000041", "0x3432", 0 },
		{ "SD16GX", "0x000041", "0x3432", 8 * MIB },
		{ "SD16G", "0x000041", "", 8 * MIB },
	};

	make_sysfs("../../../bus/mmc");
	assert_int_equal(geometry_of("sys").discard_bytes, 0); /* not announced */
	write_scratch("sys/queue/discard_max_bytes", "2147483648\n");
	assert_int_equal(geometry_of("sys").discard_bytes, 8 * MIB);
	for (size_t i = 0; i < ARRAY_SIZE(cards); i++) {
		write_scratch("sys/device/name", cards[i].name);
		write_scratch("sys/device/manfid", cards[i].manfid);
		write_scratch("sys/device/oemid", cards[i].oemid);
		assert_int_equal(geometry_of("sys").discard_bytes, cards[i].bytes);
		assert_int_equal(geometry_of("sys/p1").discard_bytes, cards[i].bytes);
	}
	write_scratch("sys/device/oemid", "0x3432\n");
	assert_int_equal(geometry_of("sys").discard_bytes, 0);
	make_sysfs("../../../bus/scsi");
	assert_int_equal(geometry_of("sys").discard_bytes, 8 * MIB);
	assert_int_equal(unlink(scratch("sys/queue/discard_max_bytes")), 0);
	assert_int_equal(unlink(scratch("sys/device/name")), 0);
}

TEST(test_sysfs_other)
{
	struct card_geometry geo, other;

	make_sysfs("../../../bus/scsi"); /* its discard_granularity is no erase block */
	write_scratch("sys/device/wwid", "t10.ATA\x01  some disk");
	geo = geometry_of("sys/p1");
	assert_int_equal(geo.erase_block_bytes, 4 * MIB);
	assert_int_equal(geo.eb_source, CARD_EB_GUESSED);
	assert_string_equal(geo.identity, "t10.ATA_  some disk");
	/* the middle makes it too long: it still differs by its end */
	write_scratch("sys/device/wwid", "t10.ATA                                             "
					 "                    serial 1");
	geo = geometry_of("sys");
	write_scratch("sys/device/wwid", "t10.ATA                                             "
					 "                    serial 2");
	other = geometry_of("sys");
	assert_int_equal(strlen(geo.identity), 63);
	assert_string_not_equal(geo.identity, other.identity);
	make_sysfs(NULL);
	assert_string_equal(geometry_of("sys/p1").identity, "");
	write_scratch("sys/p1/start", "x");
	int fd = open(scratch("sys/p1"), O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(sysfs_geometry(fd, &geo), -EINVAL);
	close(fd);
}

static const char *layer_of(const char *name)
{
	_cleanup_close_ int fd = open(scratch(name), O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return sysfs_layer(fd);
}

TEST(test_sysfs_layer)
{
	static const char *const of[][2] = {
		{ "CRYPT-LUKS2-8d0f-root\n", "LUKS (dm-crypt)" },
		{ "CRYPT-PLAIN-swap\n", "LUKS (dm-crypt)" },
		{ "LVM-abcdefvgroot\n", "LVM" },
		{ "mpath-360000\n", "the device mapper" },
		{ "\n", "the device mapper" },
	};

	make_sysfs("../../../bus/scsi");
	assert_null(layer_of("sys"));
	assert_null(layer_of("sys/p1"));
	assert_int_equal(mkdir(scratch("sys/md"), 0700), 0);
	assert_string_equal(layer_of("sys"), "RAID (md)");
	assert_string_equal(layer_of("sys/p1"), "RAID (md)");
	assert_int_equal(rmdir(scratch("sys/md")), 0);
	assert_int_equal(mkdir(scratch("sys/dm"), 0700), 0);
	assert_string_equal(layer_of("sys"), "the device mapper"); /* without a name */
	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		write_scratch("sys/dm/uuid", of[i][0]);
		assert_string_equal(layer_of("sys"), of[i][1]);
	}
	assert_int_equal(unlink(scratch("sys/dm/uuid")), 0);
	assert_int_equal(rmdir(scratch("sys/dm")), 0);
}

static const char *model_of(const char *name, size_t size_bytes)
{
	static char text[192];
	int fd = open(scratch(name), O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	memset(text, 0xee, sizeof(text));
	sysfs_model(fd, text, size_bytes);
	close(fd);
	return text;
}

TEST(test_sysfs_model)
{
	make_sysfs("../../../bus/mmc");
	assert_string_equal(model_of("sys/p1", 192), "");
	write_scratch("sys/device/name", "SA04G\n");
	assert_string_equal(model_of("sys/p1", 192), "SA04G");
	assert_string_equal(model_of("sys", 192), "SA04G");
	assert_int_equal(unlink(scratch("sys/device/name")), 0);
	/* the model of an ATA disk is cut at 16; its identification has 40, and the serial number behind them */
	write_scratch("sys/device/model", "SanDisk SDCFH-00\n");
	write_scratch("sys/device/wwid",
		      "t10.ATA     SanDisk SDCFH-004G                      114211D1703G8596    \n");
	assert_string_equal(model_of("sys/p1", 192), "SanDisk SDCFH-004G");
	assert_string_equal(model_of("sys/p1", 18), "SanDisk SDCFH-004");
	assert_string_equal(model_of("sys/p1", 10), "SanDisk S");
	write_scratch("sys/device/wwid", "naa.5001b44a\n");
	assert_string_equal(model_of("sys/p1", 192), "SanDisk SDCFH-00");
	assert_int_equal(unlink(scratch("sys/device/model")), 0);
}

TEST(test_sysfs_stat)
{
	struct card_counters k = { 0 };
	int dirfd, fd;

	make_sysfs(NULL);
	write_scratch("sys/p1/stat", "  1 2 3 4  5 6 7 8  9 10 11 12  13 14 15 16 17\n");
	write_scratch("sys/queue/iostats", "1\n");
	dirfd = open(scratch("sys/p1"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = sysfs_open_stat(dirfd);
	assert_true(fd >= 0);
	assert_int_equal(sysfs_counters(fd, &k), 0);
	assert_int_equal(k.write_ios, 5);
	assert_int_equal(k.written_bytes, 7 * 512);
	assert_int_equal(k.discard_ios, 12);
	assert_int_equal(k.discarded_bytes, 14 * 512);
	assert_int_equal(k.flushes, 16);
	write_scratch("sys/p1/stat", "1 2 3 4 5 6 8 8 9 10 11\n"); /* before 4.18 */
	assert_int_equal(sysfs_counters(fd, &k), 0);
	assert_int_equal(k.written_bytes, 8 * 512);
	assert_int_equal(k.discard_ios, 0);
	assert_int_equal(k.flushes, 0);
	write_scratch("sys/p1/stat", "1 2 3 4 5 6\n");
	assert_int_equal(sysfs_counters(fd, &k), -EIO);
	assert_int_equal(k.written_bytes, 8 * 512);
	close(fd);
	write_scratch("sys/queue/iostats", "0\n"); /* zeroes would prove nothing */
	assert_int_equal(sysfs_open_stat(dirfd), -ENOTSUP);
	close(dirfd);
}

/* ---- loop devices ---- */

struct loop {
	int fd;
	char path[32];
};

/* Another program may take the free device first: then the next one. */
static bool loop_new(struct loop *l, uint64_t size_bytes, uint32_t flags)
{
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR | flags };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), image, n, readonly = 0;
	bool ok = false;

	make_image("loop", size_bytes);
	image = open(scratch("loop"), O_RDWR | O_CLOEXEC);
	unlink(scratch("loop")); /* the next one has a file of its own */
	config.fd = (uint32_t)image;
	for (int tries = 0; control >= 0 && image >= 0 && !ok && tries < 100; tries++) {
		n = ioctl(control, LOOP_CTL_GET_FREE);
		snprintf(l->path, sizeof(l->path), "/dev/loop%d", n);
		l->fd = open(l->path, O_RDWR | O_CLOEXEC);
		if (l->fd < 0)
			continue;
		ok = ioctl(l->fd, LOOP_CONFIGURE, &config) == 0;
		if (!ok)
			close(l->fd); /* another program was faster */
	}
	if (ok)
		(void)ioctl(l->fd, BLKROSET, &readonly);
	close(control);
	close(image);
	return ok;
}

static void loop_end(struct loop *l)
{
	(void)ioctl(l->fd, BLKROSET, &(int){ 0 });
	close(l->fd);
}

static struct loop loop_or_skip(uint32_t flags)
{
	struct loop l = { .fd = -1 };

	if (geteuid() != 0) {
		print_message("skipped: loop devices need root\n");
		skip();
	}
	assert_true(loop_new(&l, IMAGE_BYTES + 512, flags));
	return l;
}

static bool is_readonly(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), on = -1;

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, BLKROGET, &on), 0);
	close(fd);
	return on;
}

static void set_readonly(const char *path, int on)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, BLKROSET, &on), 0);
	close(fd);
}

/* 0 or the errno of a write by another program */
static int foreign_write(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);

	memset(buf, 0xbb, COW_BLK_BYTES);
	if (fd < 0 || pwrite(fd, buf, COW_BLK_BYTES, 0) < 0)
		return errno;
	return 0;
}

static int exclusive_open(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);

	return fd < 0 ? errno : 0;
}

TEST(test_loop_life)
{
	struct loop l = loop_or_skip(0);
	struct card *c, *d;

	assert_int_equal(blockdev_open(&c, l.path, BLOCKDEV_EXCL, NULL), 0);
	assert_int_equal(c->geo.size_bytes, IMAGE_BYTES);
	assert_int_equal(c->geo.erase_block_bytes, 4 * MIB);
	assert_int_equal(c->geo.eb_source, CARD_EB_GUESSED);
	assert_string_equal(c->geo.identity, "");
	assert_string_equal(c->geo.path, l.path);
	assert_true(c->ops->answers(c));
	assert_true(is_readonly(l.path));
	assert_int_equal(exclusive_open(l.path), EBUSY);
	assert_int_equal(blockdev_open(&d, l.path, BLOCKDEV_EXCL, NULL), -EBUSY);
	assert_int_equal(blockdev_open(&d, l.path, BLOCKDEV_EXCL | BLOCKDEV_RDONLY, NULL), -EBUSY);
	assert_true(is_readonly(l.path));
	assert_int_not_equal(foreign_write(l.path), 0);

	memset(buf, 0xaa, COW_BLK_BYTES);
	assert_int_equal(card_write(c, 0, buf, COW_BLK_BYTES), -EROFS);
	assert_int_not_equal(c->ops->write(c, 0, buf, COW_BLK_BYTES), 0); /* the kernel refuses */
	assert_int_equal(card_set_writable(c, true), 0);
	assert_false(is_readonly(l.path));
	assert_int_equal(card_write(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(card_set_writable(c, false), 0);
	assert_true(is_readonly(l.path));
	memset(buf, 0, COW_BLK_BYTES);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(buf[17], 0xaa);
	card_close(c);
	assert_false(is_readonly(l.path));
	assert_int_equal(exclusive_open(l.path), 0);
	assert_int_equal(foreign_write(l.path), 0);
	loop_end(&l);
}

TEST(test_loop_without_excl)
{
	struct loop l = loop_or_skip(0);
	struct card *c, *holder;

	assert_int_equal(blockdev_open(&c, l.path, 0, NULL), 0);
	assert_false(is_readonly(l.path));
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(card_write(c, 0, buf, COW_BLK_BYTES), 0);
	card_close(c);
	/* beside the daemon: opening to inspect is allowed, and changes nothing */
	assert_int_equal(blockdev_open(&holder, l.path, BLOCKDEV_EXCL, NULL), 0);
	assert_int_equal(blockdev_open(&c, l.path, 0, NULL), -EROFS);
	assert_int_equal(blockdev_open(&c, l.path, BLOCKDEV_RDONLY, NULL), 0);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(card_set_writable(c, true), -EROFS);
	card_close(c);
	assert_true(is_readonly(l.path));
	card_close(holder);
	loop_end(&l);
}

TEST(test_loop_rdonly_excl_sets_nothing)
{
	struct loop l = loop_or_skip(0);
	struct card *c;

	for (int found = 0; found <= 1; found++) {
		set_readonly(l.path, found);
		assert_int_equal(blockdev_open(&c, l.path, BLOCKDEV_EXCL | BLOCKDEV_RDONLY, NULL),
				 0);
		assert_int_equal(is_readonly(l.path), found);
		assert_int_equal(exclusive_open(l.path), EBUSY);
		assert_int_equal(card_set_writable(c, true), -EROFS);
		card_close(c);
		assert_int_equal(is_readonly(l.path), found);
	}
	loop_end(&l);
}

TEST(test_loop_left_readonly_by_a_crash)
{
	struct loop l = loop_or_skip(0);
	struct card *c;
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(blockdev_open(&c, l.path, BLOCKDEV_EXCL, NULL) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(is_readonly(l.path));
	assert_int_equal(blockdev_open(&c, l.path, BLOCKDEV_EXCL, NULL), 0);
	assert_true(is_readonly(l.path));
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(card_write(c, 0, buf, COW_BLK_BYTES), 0);
	card_close(c); /* also while writable */
	assert_false(is_readonly(l.path));
	loop_end(&l);
}

TEST(test_loop_write_protected)
{
	struct loop l = loop_or_skip(LO_FLAGS_READ_ONLY);
	struct card *c;

	assert_int_equal(blockdev_open(&c, l.path, BLOCKDEV_EXCL, NULL), -EROFS);
	assert_int_equal(blockdev_open(&c, l.path, 0, NULL), -EROFS);
	assert_int_equal(exclusive_open(l.path), 0);
	assert_int_equal(blockdev_open(&c, l.path, BLOCKDEV_EXCL | BLOCKDEV_RDONLY, NULL), 0);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), 0);
	card_close(c);
	assert_true(is_readonly(l.path));
	loop_end(&l);
}

/* a device with a number far above those in use, made for this test alone and bound to nothing */
TEST(test_loop_without_medium)
{
	struct loop l = loop_or_skip(0);
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), n, r = 0;
	struct card *c;

	n = ioctl(control, LOOP_CTL_ADD, 1000 + getpid() % 10000);
	assert_true(n >= 0);
	if (mknod(scratch("unbound"), S_IFBLK | 0600, makedev(7, (unsigned)n)) == 0)
		r = blockdev_open(&c, scratch("unbound"), BLOCKDEV_EXCL, NULL);
	while (ioctl(control, LOOP_CTL_REMOVE, n) < 0 && errno == EBUSY)
		usleep(10000); /* udev looks at it */
	assert_int_equal(r, -ENXIO);
	close(control);
	loop_end(&l);
}

/* The kernel's counts of bytes and flushes equal those of the account; nothing is opened by path
 * after the open. */
TEST(test_loop_counters)
{
	struct loop l = loop_or_skip(0);
	struct card_counters before, after;
	struct card *c;

	assert_int_equal(symlink(l.path, scratch("link")), 0);
	assert_int_equal(blockdev_open(&c, scratch("link"), BLOCKDEV_EXCL, NULL), 0);
	assert_int_equal(unlink(scratch("link")), 0);
	assert_int_equal(card_counters(c, &before), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	for (unsigned i = 1; i <= 5; i++)
		assert_int_equal(card_write(c, i * 16 * COW_BLK_BYTES, buf, i * COW_BLK_BYTES), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(card_read(c, 0, buf, 4 * COW_BLK_BYTES), 0);
	assert_int_equal(card_counters(c, &after), 0);
	assert_int_equal(after.written_bytes - before.written_bytes, c->account.written_bytes);
	assert_int_equal(after.written_bytes - before.written_bytes, 15 * COW_BLK_BYTES);
	assert_in_range(after.write_ios - before.write_ios, 5, 7); /* kernels count flushes, too */
	assert_int_equal(after.flushes - before.flushes, 2);
	assert_int_equal(foreign_write(l.path), 0); /* the card is writable now */
	assert_int_equal(card_counters(c, &after), 0);
	assert_int_equal(after.written_bytes - before.written_bytes,
			 c->account.written_bytes + COW_BLK_BYTES);
	card_close(c);
	loop_end(&l);
}

/* only the partition is read-only, and it has its own counters */
TEST(test_loop_partition)
{
	struct loop l = loop_or_skip(LO_FLAGS_PARTSCAN);
	struct blkpg_partition part = { .start = 3 * 512 * 5, .length = 5 * MIB, .pno = 1 };
	struct blkpg_ioctl_arg arg = { .op = BLKPG_ADD_PARTITION,
				       .datalen = sizeof(part),
				       .data = &part };
	const char *name = l.path + strlen("/dev/");
	struct card_counters before, after;
	char sysfs[128], text[32], node[128];
	unsigned major, minor;
	struct card *c;

	assert_int_equal(ioctl(l.fd, BLKPG, &arg), 0);
	snprintf(sysfs, sizeof(sysfs), "/sys/block/%s/%sp1/dev", name, name);
	assert_true(io_read_text(AT_FDCWD, sysfs, text, sizeof(text)) > 0);
	assert_int_equal(sscanf(text, "%u:%u", &major, &minor), 2);
	snprintf(node, sizeof(node), "%s", scratch("part"));
	assert_int_equal(mknod(node, S_IFBLK | 0600, makedev(major, minor)), 0);

	assert_int_equal(blockdev_open(&c, node, BLOCKDEV_EXCL, NULL), 0);
	assert_int_equal(c->geo.disk_off_bytes, 3 * 512 * 5);
	assert_int_equal(c->geo.size_bytes, 5 * MIB);
	assert_true(is_readonly(node));
	assert_false(is_readonly(l.path));
	assert_int_equal(exclusive_open(l.path), EBUSY); /* the disk cannot be claimed over it */
	assert_int_equal(card_counters(c, &before), 0);
	assert_int_equal(card_set_writable(c, true), 0);
	assert_int_equal(card_write(c, MIB, buf, 3 * COW_BLK_BYTES), 0);
	assert_int_equal(card_flush(c), 0);
	assert_int_equal(card_counters(c, &after), 0);
	assert_int_equal(after.written_bytes - before.written_bytes, 3 * COW_BLK_BYTES);
	card_close(c);
	assert_false(is_readonly(node));

	/* the whole disk set read-only covers it, like a card's slider: cowfs must not undo that */
	set_readonly(l.path, 1);
	assert_int_equal(blockdev_open(&c, node, BLOCKDEV_EXCL, NULL), -EROFS);
	set_readonly(l.path, 0);
	assert_int_equal(blockdev_open(&c, node, BLOCKDEV_EXCL, NULL), 0);
	set_readonly(l.path, 1);
	assert_int_equal(card_set_writable(c, true), -EROFS);
	assert_false(c->writable);
	card_close(c);
	set_readonly(l.path, 0);
	arg.op = BLKPG_DEL_PARTITION;
	for (; ioctl(l.fd, BLKPG, &arg) < 0; usleep(10000))
		assert_int_equal(errno, EBUSY);
	loop_end(&l);
}

/* An odd size, so that no other device of the machine has it. */
#define FIND_BYTES (IMAGE_BYTES + (13 + 16 * (uint64_t)(getpid() % 1000)) * COW_BLK_BYTES)

static void close_found(int fd[BLOCKDEV_FDS])
{
	for (unsigned i = 0; i < BLOCKDEV_FDS; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

/* How many devices may be the card; those that cannot be claimed have ret_error. */
static unsigned count_found(const struct find *f, int *ret_error)
{
	struct find_result found;
	int fd[BLOCKDEV_FDS];
	unsigned n = 0;

	*ret_error = 0;
	while (find_next(f, n, &found, fd) == 0) {
		if (found.error)
			*ret_error = found.error;
		else
			assert_int_equal(blockdev_fd_set_writable(fd[0], true), 0);
		close_found(fd);
		n++;
	}
	return n;
}

TEST(test_loop_found)
{
	struct find f = { .dev_dirfd = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			  .sys_dirfd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	struct loop a = loop_or_skip(LO_FLAGS_AUTOCLEAR), b, other;
	struct find_result found;
	int fd[BLOCKDEV_FDS], error, claim;
	unsigned fds;
	bool readonly;

	loop_end(&a);
	assert_true(loop_new(&a, FIND_BYTES, LO_FLAGS_AUTOCLEAR));
	assert_true(loop_new(&b, FIND_BYTES, LO_FLAGS_AUTOCLEAR));
	assert_true(loop_new(&other, FIND_BYTES + COW_BLK_BYTES, LO_FLAGS_AUTOCLEAR));
	assert_int_equal(find_init(&f, a.fd), 0);
	assert_int_equal(f.size_bytes, FIND_BYTES);
	fds = count_fds();
	assert_int_equal(count_found(&f, &error), 2);
	assert_int_equal(error, 0);
	/* the name is that of another device by now, which stays as it is */
	assert_int_equal(
		blockdev_claim(f.dev_dirfd, a.path + strlen("/dev/"), 0, -1, &readonly, fd),
		-ESTALE);
	assert_false(readonly || is_readonly(a.path));
	assert_int_equal(exclusive_open(a.path), 0);

	/* it is claimed, and set read-only */
	assert_int_equal(find_next(&f, 0, &found, fd), 0);
	assert_int_equal(found.error, 0);
	assert_int_equal(count_found(&f, &error), 2);
	assert_int_equal(error, -EBUSY);
	claim = exclusive_open(strstr(a.path, found.name) ? a.path : b.path);
	assert_int_equal(claim, EBUSY);
	assert_true(is_readonly(strstr(a.path, found.name) ? a.path : b.path));
	assert_false(blockdev_gone(fd[0], fd[2]));
	assert_int_equal(blockdev_fd_set_writable(fd[0], true), 0);
	close_found(fd);

	find_skip(&f, found.number + 1);
	find_skip(&f, found.number);
	assert_int_equal(count_found(&f, &error), 1);
	snprintf(f.identity, sizeof(f.identity), "another serial number");
	assert_int_equal(find_next(&f, 0, &found, fd), 0);
	assert_int_equal(found.likeness, 1);
	assert_int_equal(blockdev_fd_set_writable(fd[0], true), 0);
	close_found(fd);
	/* a partition at another place of the disk */
	f.disk_off_bytes = MIB;
	assert_int_equal(find_next(&f, 0, &found, fd), 0);
	assert_int_equal(found.likeness, 0);
	assert_int_equal(blockdev_fd_set_writable(fd[0], true), 0);
	close_found(fd);
	assert_int_equal(count_fds(), fds);
	loop_end(&a);
	loop_end(&b);
	loop_end(&other);
	close(f.dev_dirfd);
	close(f.sys_dirfd);
}

/* Another device in the place of a card keeps the number of its descriptor. */
TEST(test_loop_exchange)
{
	struct loop a = loop_or_skip(LO_FLAGS_AUTOCLEAR), b;
	int fd[BLOCKDEV_FDS] = { -1, -1, -1 }, before[BLOCKDEV_FDS], after[BLOCKDEV_FDS];
	int none[BLOCKDEV_FDS] = { -1, -1, -1 };
	struct card_counters counters;
	struct blockdev_kept kept;
	struct card *c, *d;

	assert_true(loop_new(&b, IMAGE_BYTES, LO_FLAGS_AUTOCLEAR));
	assert_int_equal(blockdev_open(&c, a.path, BLOCKDEV_EXCL, NULL), 0);
	assert_int_equal(blockdev_open(&d, b.path, BLOCKDEV_EXCL, NULL), 0);
	blockdev_keep(c, &kept, before);
	blockdev_keep(d, &kept, after);
	for (unsigned i = 0; i < BLOCKDEV_FDS; i++)
		fd[i] = fcntl(after[i], F_DUPFD_CLOEXEC, 0);
	assert_int_equal(pwrite(b.fd, "b", 1, 0), -1); /* read-only */
	assert_int_equal(card_set_writable(d, true), 0);
	memset(buf, 'b', COW_BLK_BYTES);
	assert_int_equal(card_write(d, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(card_set_writable(d, false), 0);
	assert_int_equal(blockdev_exchange(c, fd), 0);
	blockdev_keep(c, &kept, after);
	assert_int_equal(before[0], after[0]);
	memset(buf, 0, COW_BLK_BYTES);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(buf[0], 'b');
	assert_int_equal(blockdev_exchange(c, fd), 0); /* and back */
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), 0);
	assert_int_equal(buf[0], 0);
	/* one that is gone by now has no counters */
	close(steal_fd(&fd[2]));
	assert_int_equal(blockdev_exchange(c, fd), 0);
	assert_int_equal(card_counters(c, &counters), -ENOTSUP);
	assert_int_equal(blockdev_exchange(c, fd), 0);
	assert_int_equal(fd[2], -1);
	assert_int_equal(card_counters(c, &counters), 0);
	/* an error changes nothing */
	assert_int_equal(blockdev_exchange(c, none), -EBADF);
	blockdev_keep(c, &kept, after);
	assert_int_equal(before[0], after[0]);
	assert_int_equal(card_read(c, 0, buf, COW_BLK_BYTES), 0);
	close_found(fd);
	card_close(c);
	card_close(d);
	loop_end(&a);
	loop_end(&b);
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/cowfs-card-XXXXXX", tmp && strlen(tmp) < 32 ? tmp : "/tmp");
	return mkdtemp(dir) ? 0 : -1;
}

TEST_GROUP(setup, workdir_remove)
