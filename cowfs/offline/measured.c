/* SPDX-License-Identifier: MIT */
#include "offline/measured.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/boxed.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "fs/fsproc.h"
#include "log/log.h"
#include "offline/offline.h"
#include "offline/signature.h"
#include "wire/client.h"

struct measured_card {
	struct offline f;
	struct log_scratch scratch;
};

void measured_start(void)
{
	client_no_seed();
	fsproc_start(true, false);
}

void measured_model(const char *device, char *ret, size_t size_bytes)
{
	blockdev_model(device, ret, size_bytes);
}

static void take_facts(const char *device, const struct card *c, struct measured_facts *ret)
{
	*ret = (struct measured_facts){
		.size_bytes = c->geo.size_bytes,
		.disk_off_bytes = c->geo.disk_off_bytes,
		.erase_block_bytes = c->geo.erase_block_bytes,
		.reports_erase_block = c->geo.eb_source == CARD_EB_REPORTED,
		.guessed_erase_block = c->geo.eb_source == CARD_EB_GUESSED,
	};
	memcpy(ret->identity, c->geo.identity, sizeof(ret->identity));
	blockdev_model(device, ret->model, sizeof(ret->model));
}

int measured_look(const char *device, struct measured_facts *ret)
{
	struct card *c;
	int e = blockdev_open(&c, device, BLOCKDEV_RDONLY, NULL);

	if (e < 0)
		return e;
	take_facts(device, c, ret);
	card_close(c);
	return 0;
}

/* blkid(3) does not know the log of a volume, which may fill a device of its own. */
static int has_log(const char *device, bool *ret)
{
	struct log_super super;
	unsigned trouble;
	struct card *c;
	int e = blockdev_open(&c, device, BLOCKDEV_RDONLY, NULL);

	if (e < 0)
		return e;
	e = super_read(c, 0, &super, &trouble);
	card_close(c);
	*ret = e != -ENOENT;
	return e == -ENOENT || e == -EBADMSG || e == -EPROTONOSUPPORT || e == -ERANGE ||
			       e == -ESTALE
		       ? 0
		       : e;
}

/* By the descriptor: the path may lead elsewhere now. Every signature counts. */
static int find_signatures(int fd, const struct fsinfo *known, struct signatures *ret)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return signatures_find(path, known, ret);
}

int measured_content(const char *device, int fd, char *ret, size_t size_bytes)
{
	const struct fsinfo none = { .kind = FS_UNKNOWN };
	struct signatures s;
	bool log = false;
	int e = has_log(device, &log);

	if (e == 0)
		e = find_signatures(fd, &none, &s);
	if (e == 0)
		snprintf(ret, size_bytes, "%s%s%s", log ? "a log of cowfs" : "",
			 log && s.n ? " and " : "", s.n ? s.text : "");
	return e;
}

int measured_open(struct measured_card **ret, const char *device, bool in_log,
		  struct measured_facts *facts, struct failure *fail)
{
	unsigned flags = BLOCKDEV_EXCL | BLOCKDEV_ALLOW_FILE | (in_log ? 0 : BLOCKDEV_RDONLY);
	struct measured_card *m = calloc(1, sizeof(*m));
	int e = m ? offline_open(&m->f, device, NULL, flags, 0, fail)
		  : failure(fail, -ENOMEM, "%s: no memory", device);

	*ret = m;
	if (e == 0)
		take_facts(device, m->f.base, facts);
	return e;
}

void measured_close(struct measured_card *m)
{
	if (m)
		offline_close(&m->f);
	free(m);
}

int measured_fd(const struct measured_card *m)
{
	struct blockdev_kept kept;
	int fd[BLOCKDEV_FDS];

	blockdev_keep(m->f.base, &kept, fd);
	return fd[0];
}

int measured_check_log(struct measured_card *m, struct failure *fail)
{
	const struct log_open_report *rep = &m->f.report;
	const char *device = m->f.device;
	int e = offline_open_log(&m->f, fail);

	if (e < 0 && m->f.super.external)
		return failure(fail, e, "%s: holds the log of another device", device);
	if (e == -ENOENT)
		return failure(fail, e,
			       "%s: has no log of cowfs whose room could be used. Writes are "
			       "measured, too: name the part that may be overwritten, "
			       "--write-area START+LENGTH, or all for a scratch partition",
			       device);
	if (e < 0)
		return e;
	if (rep->state >= LOG_FELL_BACK && rep->state != LOG_RETIRED)
		return failure(fail, -EUCLEAN,
			       "%s: its log is not in order (%s): see 'cowctl check %s'", device,
			       rep->why, device);
	if (rep->base_changed)
		return failure(fail, -ESTALE,
			       "%s: %s. Attach it once, or run 'cowctl "
			       "release %s'",
			       device, rep->why, device);
	return 0;
}

static bool overlaps(uint64_t start_bytes, uint64_t end_bytes, uint64_t at_bytes,
		     uint64_t len_bytes)
{
	return start_bytes < at_bytes + len_bytes && at_bytes < end_bytes;
}

/* The area must not touch a log. */
static int check_log(struct measured_card *m, uint64_t start, uint64_t end, struct failure *fail)
{
	const char *device = m->f.device;
	const struct log_super *s = &m->f.super;
	int e = super_find(m->f.base, m->f.base, &m->f.fs, 0, &m->f.super, &m->f.trouble);
	uint64_t copy_bytes = max_u64(s->erase_block_bytes, COW_BLK_BYTES),
		 ring_bytes = (uint64_t)s->seg_bytes * s->seg_count;

	if (e == -ENOENT && !(m->f.trouble & SUPER_CUT_OFF))
		return 0;
	if (e < 0)
		return failure(fail, e,
			       "%s: holds a cowfs log that cannot be read: run 'cowctl check %s'",
			       device, device);
	if (overlaps(start, end, s->copy_off_bytes[0], copy_bytes) ||
	    overlaps(start, end, s->copy_off_bytes[1], copy_bytes) ||
	    overlaps(start, end, s->ring_off_bytes, ring_bytes))
		return failure(fail, -EEXIST,
			       "%s: the area overlaps the log of cowfs, which lies from %llu to "
			       "%llu, with superblocks at %llu and %llu: choose another area",
			       device, (unsigned long long)s->ring_off_bytes,
			       (unsigned long long)(s->ring_off_bytes + ring_bytes),
			       (unsigned long long)s->copy_off_bytes[0],
			       (unsigned long long)s->copy_off_bytes[1]);
	return 0;
}

int measured_check_area(struct measured_card *m, int fd, uint64_t start_bytes, uint64_t *end_bytes,
			struct failure *fail)
{
	const struct fsinfo *fs = &m->f.fs;
	const char *device = m->f.device;
	uint64_t size = m->f.base->geo.size_bytes;
	struct signatures s;
	int e = find_signatures(fd, fs, &s);

	if (e < 0)
		return offline_cannot_read(device, e, fail);
	if (*end_bytes == UINT64_MAX)
		*end_bytes = size;
	if (s.n)
		return failure(fail, -EEXIST,
			       "%s: holds %s. Name a partition without content, or remove it "
			       "with wipefs",
			       device, s.text);
	if (*end_bytes > size)
		return failure(fail, -ERANGE, "%s: the area ends behind the device (%s)", device,
			       FORMAT_SIZE(size));
	if (fs->kind != FS_UNKNOWN && (!fs->size_bytes || start_bytes < fs->size_bytes))
		return failure(fail, -EEXIST,
			       "%s: holds a file system (%s) of %llu bytes: the area must lie "
			       "behind it",
			       device, fs->type, (unsigned long long)fs->size_bytes);
	return check_log(m, start_bytes, *end_bytes, fail);
}

void measured_unclaim(struct measured_card *m)
{
	const char *device = m->f.device;

	offline_close(&m->f);
	m->f = (struct offline){ .device = device };
	if (blockdev_open(&m->f.base, device, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL) == 0)
		m->f.log_card = m->f.base;
}

bool measured_lost(struct measured_card *m, int e, const char *now, struct failure *fail)
{
	if (!m || !m->f.base || !card_lost(m->f.base, e))
		return false;
	failure_set(fail, EXIT_AWAY, -ENOMEDIUM, CARD_LOST, m->f.device, now);
	return true;
}

int measured_begin(struct measured_card *m, uint64_t enough_bytes, uint64_t least_bytes,
		   uint64_t *ret_start_bytes, uint64_t *ret_end_bytes, struct failure *fail)
{
	const char *device = m->f.device;
	int e = card_set_writable(m->f.base, true);

	if (e == 0)
		e = log_scratch_begin(m->f.log, enough_bytes, &m->scratch);
	if (e == -EBUSY)
		return failure(fail, e,
			       "%s: committed blocks are only in its log: 'cowctl release %s' "
			       "writes them home",
			       device, device);
	if (e < 0 && e != -ENOSPC)
		return failure(fail, e, "%s: %s", device, strerrordesc_np(-e));
	if (e == -ENOSPC || m->scratch.bytes < least_bytes)
		return failure(fail, -ENOSPC,
			       "%s: its log has only %s of room, and %s is the least. Name "
			       "another part of the card with --write-area",
			       device, FORMAT_MIB(e < 0 ? 0 : m->scratch.bytes),
			       FORMAT_MIB(least_bytes));
	*ret_start_bytes = m->scratch.off_bytes;
	*ret_end_bytes = m->scratch.off_bytes + m->scratch.bytes;
	return 0;
}

int measured_write(struct measured_card *m, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return card_write(m->f.base, off_bytes, buf, len_bytes);
}

int measured_flush(struct measured_card *m)
{
	return card_flush(m->f.base);
}

int measured_end(struct measured_card *m, uint64_t *ret_written_bytes)
{
	enum log_state state = m->f.report.state;
	/* the base of a volume that is not in use may be changed without cowfs */
	bool retired = state == LOG_EMPTY || state == LOG_RETIRED;
	int e = log_scratch_end(m->f.log, &m->scratch, retired ? RECORD_RETIRED : RECORD_TAIL,
				RECORD_CLEAN);

	*ret_written_bytes = offline_written_bytes(&m->f);
	return e;
}
