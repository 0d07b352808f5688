/* SPDX-License-Identifier: MIT */
/* A device or file that is measured, by the monotonic clock. */
#include "measure/target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "offline/measured.h"

#define SCRATCH_BYTES (16 * MIB)

struct real_target {
	struct target t; /* must be first */
	int fd;
	struct measured_card *card; /* NULL: writes go through fd, too */
	bool is_file;
	unsigned char *scratch; /* for reads whose content does not matter */
};

static struct real_target *real_of(struct target *t)
{
	return (struct real_target *)t;
}

/* ---- the checks that every target shares ---- */

static bool in_area(const struct target *t, uint64_t off_bytes, uint64_t len_bytes)
{
	return off_bytes % t->sector_bytes == 0 && len_bytes % t->sector_bytes == 0 &&
	       off_bytes >= t->start_bytes && off_bytes <= t->end_bytes &&
	       len_bytes <= t->end_bytes - off_bytes;
}

int64_t target_read(struct target *t, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	if (off_bytes % t->sector_bytes || len_bytes % t->sector_bytes ||
	    !range_fits(off_bytes, len_bytes, t->size_bytes))
		return -EINVAL;
	return t->ops->read(t, off_bytes, buf, len_bytes);
}

int64_t target_write(struct target *t, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return in_area(t, off_bytes, len_bytes) ? t->ops->write(t, off_bytes, buf, len_bytes)
						: -EINVAL;
}

int64_t target_flush(struct target *t)
{
	return t->ops->flush(t);
}

int64_t target_discard(struct target *t, uint64_t off_bytes, uint64_t len_bytes)
{
	return in_area(t, off_bytes, len_bytes) ? t->ops->discard(t, off_bytes, len_bytes)
						: -EINVAL;
}

void target_close(struct target *t)
{
	if (t)
		t->ops->close(t);
}

/* ---- a device or a file ---- */

static int64_t since(uint64_t from_ns, int r)
{
	return r < 0 ? r : (int64_t)(now_ns() - from_ns);
}

static int64_t real_read(struct target *t, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	struct real_target *r = real_of(t);
	uint64_t from = now_ns();

	if (!buf && len_bytes > SCRATCH_BYTES)
		return -EINVAL;
	return since(from, io_pread_full(r->fd, buf ? buf : r->scratch, len_bytes, off_bytes));
}

static int64_t real_write(struct target *t, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	struct real_target *r = real_of(t);
	uint64_t from = now_ns();

	return since(from, r->card ? measured_write(r->card, off_bytes, buf, len_bytes)
				   : io_pwrite_full(r->fd, buf, len_bytes, off_bytes));
}

static int64_t real_flush(struct target *t)
{
	struct real_target *r = real_of(t);
	uint64_t from = now_ns();

	return since(from, r->card ? measured_flush(r->card) : fdatasync(r->fd) < 0 ? -errno : 0);
}

static int64_t real_discard(struct target *t, uint64_t off_bytes, uint64_t len_bytes)
{
	struct real_target *r = real_of(t);
	uint64_t range[2] = { off_bytes, len_bytes }, from = now_ns();

	if (r->is_file)
		return since(from, fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					     (off_t)off_bytes, (off_t)len_bytes) < 0
					   ? -errno
					   : 0);
	return since(from, ioctl(r->fd, BLKDISCARD, range) < 0 ? -errno : 0);
}

static void real_close(struct target *t)
{
	struct real_target *r = real_of(t);

	close(r->fd);
	free(r->scratch);
	free(r);
}

static const struct target_ops real_ops = {
	.read = real_read,
	.write = real_write,
	.flush = real_flush,
	.discard = real_discard,
	.close = real_close,
};

static int geometry(struct real_target *r)
{
	int sector = 512;
	struct stat st;

	if (fstat(r->fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode)) {
		r->is_file = true;
		r->t.size_bytes = (uint64_t)st.st_size;
#ifdef STATX_DIOALIGN
		struct statx x;

		/* that of the disk below the file system */
		if (statx(r->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 &&
		    (x.stx_mask & STATX_DIOALIGN) && (int)x.stx_dio_offset_align > sector)
			sector = (int)x.stx_dio_offset_align;
#endif
	} else if (!S_ISBLK(st.st_mode)) {
		return -ENOTBLK;
	} else if (ioctl(r->fd, BLKGETSIZE64, &r->t.size_bytes) < 0 ||
		   ioctl(r->fd, BLKSSZGET, &sector) < 0) {
		return -errno;
	}
	r->t.sector_bytes = (uint64_t)sector;
	return 0;
}

int target_open_fd(struct target **ret, int fd, uint64_t start_bytes, uint64_t end_bytes)
{
	struct real_target *r = calloc(1, sizeof(*r));
	int flags = fcntl(fd, F_GETFL), e = -ENOMEM;

	if (!r)
		return e;
	r->t.ops = &real_ops;
	r->fd = fd;
	r->scratch = io_alloc(SCRATCH_BYTES);
	if (r->scratch)
		e = geometry(r);
	if (e < 0) {
		free(r->scratch);
		free(r);
		return e;
	}
	/* some file systems have no direct I/O */
	if (flags >= 0 && !(flags & O_DIRECT) && fcntl(fd, F_SETFL, flags | O_DIRECT) < 0)
		errno = 0;
	r->t.start_bytes = start_bytes;
	r->t.end_bytes = end_bytes;
	*ret = &r->t;
	return 0;
}

void target_write_through(struct target *t, struct measured_card *card)
{
	real_of(t)->card = card;
}
