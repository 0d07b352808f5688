/* SPDX-License-Identifier: MIT */
#include "disk.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>

int disk_open(const char *name, size_t *ret_bytes)
{
	char exe[PATH_MAX], path[PATH_MAX + 64], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	struct stat st;
	int fd;

	exe[n < 0 ? 0 : n] = '\0';
	slash = strrchr(exe, '/');
	snprintf(path, sizeof(path), "%.*s/images/%s", (int)(slash ? slash - exe : 0), exe, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(path);
		abort();
	}
	*ret_bytes = (size_t)st.st_size;
	return fd;
}

void disk_load(struct disk *d, const char *name)
{
	_cleanup_close_ int fd = disk_open(name, &d->bytes);
	void *was = mmap(NULL, d->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	void *now = mmap(NULL, d->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd,
			 0);

	if (was == MAP_FAILED || now == MAP_FAILED)
		abort();
	d->was = was;
	d->now = now;
}

void disk_restore(const struct disk *d, size_t off, size_t bytes)
{
	memcpy(d->now + off, d->was + off, min_u64(bytes, d->bytes - off));
}

int disk_read(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	const struct disk *d = ctx;

	FUZZ_PROMISE(blks && blk < d->bytes / COW_BLK_BYTES &&
		     blks <= d->bytes / COW_BLK_BYTES - blk);
	memcpy(buf, d->now + blk_to_bytes(blk), blk_to_bytes(blks));
	return 0;
}

uint64_t disk_map(const struct disk *d, bool runs, uint64_t first,
		  bool (*kept)(const struct disk *d, uint64_t blk))
{
	struct blk_reader r = { disk_read, (void *)d, d->bytes / COW_BLK_BYTES };
	enum blk_use use, one;
	uint64_t n, free_blks = 0;
	struct fsmap *m;

	FUZZ_PROMISE(fsmap_open(&m, &r) == 0);
	for (uint64_t b = 0; b < r.volume_blks + 2; b += n) {
		n = 1;
		if (runs)
			FUZZ_PROMISE(fsmap_run(m, b, r.volume_blks + 2 - b, &use, &n) == 0);
		else
			FUZZ_PROMISE(fsmap_use(m, b, &use) == 0);
		FUZZ_PROMISE(n && n <= r.volume_blks + 2 - b);
		FUZZ_PROMISE(use == USE_USED || (use == USE_FREE && b >= first &&
						 b + n <= r.volume_blks && fsmap_knows(m)));
		FUZZ_PROMISE(fsmap_use(m, b + n - 1, &one) == 0 && one == use);
		if (use != USE_FREE)
			continue;
		free_blks += n;
		for (uint64_t i = b; kept && i < b + n; i++)
			FUZZ_PROMISE(!kept(d, i));
	}
	FUZZ_PROMISE(!fsmap_alarms(m));
	fsmap_close(m);
	return free_blks;
}
