// SPDX-License-Identifier: MIT
/*
 * Prints what fsinfo and fsmap say of an image file or device, for the shell tests.
 *   fsmap_dump IMAGE     one line per run of 4 KiB units: FIRST COUNT used|free|journal
 *   fsmap_dump -i IMAGE  KEY VALUE lines: file system, alarms, fingerprint
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "fs/fsinfo.h"

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
	printf("\ncan_freeze %d\nexternal_journal %d\nmmp %d\nhas_journal %d\nneeds_recovery %d\n"
	       "error_flag %d\nclean %d\n",
	       f.can_freeze, f.external_journal, f.mmp, f.has_journal, f.needs_recovery,
	       f.error_flag, f.clean);
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

int main(int argc, char **argv)
{
	bool info = argc == 3 && !strcmp(argv[1], "-i");
	struct fsmap *m;
	struct blk_reader r = { .read = file_read };
	off_t end;
	int fd, err;

	if (argc != 2 + info) {
		fprintf(stderr, "usage: fsmap_dump [-i] IMAGE\n");
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
