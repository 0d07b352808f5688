// SPDX-License-Identifier: MIT
/*
 * Prints what fsinfo and fsmap say of an image file or device, for the shell tests.
 *   fsmap_dump IMAGE     one line per run of 4 KiB units: FIRST COUNT used|free|journal
 *   fsmap_dump -i IMAGE  KEY VALUE lines: file system, alarms, fingerprint
 *   fsmap_dump -r IMAGE COPY  makes COPY, which is equal to IMAGE, the image after the replay of its journal. Prints the
 *                        microseconds of CPU for its list, and the number of units written
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "fs/replay.h"

static int file_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return io_pread_full(*(int *)ctx, buf, blk_to_bytes(blks), blk_to_bytes(blk));
}

static int dump_info(const struct blk_reader *r, const struct fsmap *m)
{
	struct fs_fingerprint fp;
	struct fsinfo f;
	int err = fsinfo_probe(r, &f);

	if (!err)
		err = fsinfo_fingerprint(r, &fp);
	if (err)
		return err;
	printf("type %s\nsize_bytes %" PRIu64 "\nblock_bytes %u\njournal_bytes %" PRIu64 "\n",
	       f.type, f.size_bytes, f.block_bytes, f.journal_bytes);
	printf("uuid ");
	for (size_t i = 0; i < sizeof(f.uuid); i++)
		printf("%02x", f.uuid[i]);
	printf("\nexternal_journal %d\nmmp %d\nhas_journal %d\nneeds_recovery %d\n"
	       "error_flag %d\nclean %d\n",
	       f.external_journal, f.mmp, f.has_journal, f.needs_recovery, f.error_flag, f.clean);
	printf("alarms%s%s%s\n", fsmap_alarms(m) & FSMAP_BAD_CHECKSUM ? " bad-checksum" : "",
	       fsmap_alarms(m) & FSMAP_ERROR_FLAG ? " error-flag" : "",
	       fsmap_alarms(m) & FSMAP_NEEDS_RECOVERY ? " needs-recovery" : "");
	printf("fingerprint %u %u %u %u %u %" PRIu64 " %u %08x %08x\n", fp.kind, fp.mtime, fp.wtime,
	       fp.mnt_count, fp.state, fp.kbytes_written, fp.journal_seq, fp.sb_crc, fp.gdt_crc);
	return 0;
}

static int dump_map(const struct blk_reader *r, struct fsmap *m)
{
	static const char *const names[] = { "used", "free", "journal" };
	enum blk_use use, run_use = USE_USED;
	uint64_t run_start = 0;

	for (uint64_t blk = 0; blk < r->volume_blks; blk++) {
		int err = fsmap_use(m, blk, &use);

		if (err)
			return err;
		if (use != run_use && blk > run_start) {
			printf("%" PRIu64 " %" PRIu64 " %s\n", run_start, blk - run_start,
			       names[run_use]);
			run_start = blk;
		}
		run_use = use;
	}
	if (r->volume_blks > run_start)
		printf("%" PRIu64 " %" PRIu64 " %s\n", run_start, r->volume_blks - run_start,
		       names[run_use]);
	return 0;
}

static int replay_into(const struct blk_reader *r, int fd)
{
	_cleanup_free_ void *buf = io_alloc(COW_BLK_BYTES);
	struct blk_reader after;
	struct replay *y;
	uint64_t n = 0;
	int err = buf ? replay_open(&y, r, NULL) : -ENOMEM;

	if (err == -ENOENT)
		printf("0 0\n");
	if (err)
		return err == -ENOENT ? 0 : err;
	printf("%ld ", clock());
	after = replay_reader(y);
	for (uint64_t blk = 0; !err && (blk = replay_next(y, blk)) != UINT64_MAX; blk++, n++) {
		err = after.read(after.ctx, blk, 1, buf);
		if (!err)
			err = io_pwrite_full(fd, buf, COW_BLK_BYTES, blk_to_bytes(blk));
	}
	printf("%" PRIu64 "\n", n);
	replay_close(y);
	return err;
}

/* -r IMAGE COPY */
static int replay_main(char **argv)
{
	int fd = open(argv[2], O_RDONLY | O_CLOEXEC), copy = open(argv[3], O_WRONLY | O_CLOEXEC);
	struct blk_reader r = { .read = file_read, .ctx = &fd };
	int err = fd < 0 || copy < 0 ? -errno : 0;

	if (!err)
		r.volume_blks = (uint64_t)lseek(fd, 0, SEEK_END) >> COW_BLK_SHIFT;
	if (!err)
		err = replay_into(&r, copy);
	if (err)
		fprintf(stderr, "fsmap_dump: %s: %s\n", argv[2], strerror(-err));
	return err ? 1 : 0;
}

int main(int argc, char **argv)
{
	bool info = argc == 3 && !strcmp(argv[1], "-i");
	struct fsmap *m;
	struct blk_reader r = { .read = file_read };
	off_t end;
	int fd, err;

	if (argc == 4 && !strcmp(argv[1], "-r"))
		return replay_main(argv);
	if (argc != 2 + info) {
		fprintf(stderr, "usage: fsmap_dump [-i] IMAGE | -r IMAGE COPY\n");
		return 2;
	}
	fd = open(argv[argc - 1], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || (end = lseek(fd, 0, SEEK_END)) < 0) {
		perror(argv[argc - 1]);
		return 1;
	}
	r.ctx = &fd;
	r.volume_blks = (uint64_t)end >> COW_BLK_SHIFT;
	err = fsmap_open(&m, &r);
	if (!err) {
		err = info ? dump_info(&r, m) : dump_map(&r, m);
		fsmap_close(m);
	}
	if (err)
		fprintf(stderr, "fsmap_dump: %s: %s\n", argv[argc - 1], strerror(-err));
	close(fd);
	return err ? 1 : 0;
}
