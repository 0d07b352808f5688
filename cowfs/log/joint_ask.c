/* SPDX-License-Identifier: MIT */
/*
 * A record that depends on another log: finds that log on the block devices of the machine, and
 * follows its records back. Only reads. A log of a running daemon can change meanwhile, but its
 * records cannot.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "card/blockdev.h"
#include "log/scan.h"

/* A daemon that has the leader may be about to write its record. */
#define WAIT_NS (10 * 1000000000ull)
#define LOOK_NS 200000000

static int (*asked)(const struct log_joint *j, char *why, size_t why_bytes);

void log_set_joint_ask(int (*ask)(const struct log_joint *j, char *why, size_t why_bytes))
{
	asked = ask;
}

int joint_ask(const struct log_joint *j, char *why, size_t why_bytes)
{
	return asked ? asked(j, why, why_bytes) : log_joint_ask(j, why, why_bytes);
}

/* A checkpoint record takes the place of the commit that it copies, and prev of a later one leads
 * past that. */
static bool stands_for(const struct log_record *r, uint64_t epoch, uint64_t seq)
{
	return (r->type == RECORD_COMMIT && r->seq == seq && r->epoch == epoch) ||
	       (r->type == RECORD_CHECKPOINT && r->desc_seq == seq && r->desc_epoch == epoch);
}

int log_has_record(struct log *l, uint64_t epoch, uint64_t seq)
{
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);
	struct log_record r = l->newest, prev;

	if (!buf)
		return -ENOMEM;
	if (l->state == EPOCH_BROKEN)
		return -ENOLINK;
	for (unsigned n = 0; !stands_for(&r, epoch, seq) && r.seq > seq; n++) {
		if (n == CHAIN_MAX || r.prev.seq >= r.seq)
			return -ENOLINK;
		/* of a log that was set aside once, see log_accept_base */
		if (!r.prev.seq)
			return -ENOLINK;
		if (ring_read_record(l, r.prev.lblk, buf, &prev) < 0 || prev.seq != r.prev.seq ||
		    prev.epoch != r.prev.epoch)
			return -ENOLINK;
		r = prev;
	}
	return stands_for(&r, epoch, seq);
}

/* One log that is looked for. */
struct search {
	const struct log_joint *j;
	bool running; /* a daemon has it */
	bool older;   /* it has written nothing as new as that record */
	int answer;   /* -ENODEV: not found */
};

/* Is the log of these the one? */
static bool find(const struct search *s, struct card *base, struct card *card,
		 struct log_super *ret)
{
	struct blk_reader home = super_reader(base);
	uint8_t id[16];
	unsigned trouble;
	struct fsinfo fs;

	if (fsinfo_probe(&home, &fs) < 0 || super_find(base, card, &fs, 0, ret, &trouble) < 0)
		return false;
	super_public_id(ret, id);
	return !memcmp(id, s->j->log_id, sizeof(id));
}

static void ask_log(struct search *s, struct card *base, struct card *card,
		    const struct log_super *super)
{
	struct log_open_report rep;
	struct log *l;
	int r;

	if (log_open(&l, base, card, super, LOG_JOINT_REJECTED, NULL, &rep) < 0)
		return;
	r = log_has_record(l, s->j->epoch, s->j->seq);
	s->older |= log_newest(l)->seq < s->j->seq;
	log_close(l);
	/* it may be in the cache of the card only, if just its daemon has died */
	if (r == 1 && (card_flush(base) < 0 || card_flush(card) < 0))
		r = -ENOLINK;
	/* its newest record depends on a third log */
	if (r == 0 && rep.joint)
		r = -ENOLINK;
	/* two cards that say different things: one is a copy */
	s->answer = s->answer == -ENODEV || s->answer == r ? r : -ENOLINK;
}

/* Reads an attribute of a block device into text (PATH_MAX). */
static bool read_attr(int dirfd, const char *name, const char *attr, char *text)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", name, attr);
	return io_read_text(dirfd, path, text, PATH_MAX) >= 0;
}

/*
 * Desktops make loop devices for users, and only the text of a name says of which file: one of root
 * may have that name in another mount namespace. So a loop device is not asked, but the file of this
 * name, if nobody but root can change it or put another one there. This also leaves out the loop
 * devices of cowfs, whose daemon may be dead or stopped.
 */
static int open_file(const char *file, struct card **ret)
{
	_cleanup_close_ int path_fd = path_open_owned(file), fd = -1;
	struct stat st;
	int e;

	if (path_fd < 0 || fstat(path_fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -ENOENT;
	fd = path_reopen(path_fd, O_RDONLY);
	e = fd < 0 ? fd : blockdev_adopt(ret, fd);
	if (e == 0)
		(void)steal_fd(&fd);
	return e;
}

/* Not devices that hang without a medium, or that a user can write to. */
static int open_one(int dirfd, const char *name, const char *path, struct card **ret)
{
	static const char *const never[] = { "fd", "sr", "nbd", "ram", "zram", "ublkb" };
	char text[PATH_MAX], file[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if (!strncmp(name, never[i], strlen(never[i])))
			return -ENOENT;
	if (read_attr(dirfd, name, "dm/suspended", text) && strcmp(text, "0"))
		return -ENOENT;
	/* a partition of one */
	if (read_attr(dirfd, name, "../loop/backing_file", text))
		return -ENOENT;
	if (!read_attr(dirfd, name, "loop/backing_file", file))
		return blockdev_open(ret, path, BLOCKDEV_RDONLY, NULL);
	if (!read_attr(dirfd, name, "loop/offset", text) || strcmp(text, "0") ||
	    !read_attr(dirfd, name, "loop/sizelimit", text) || strcmp(text, "0"))
		return -ENOENT;
	return open_file(file, ret);
}

/* Calls fn for each block device. */
static int each_device(void (*fn)(struct search *s, struct card *c, const char *path,
				  struct card *other),
		       struct search *s, struct card *other)
{
	DIR *d = opendir("/sys/class/block");
	struct dirent *e;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		char path[sizeof(e->d_name) + 8];
		struct card *c;

		snprintf(path, sizeof(path), "/dev/%s", e->d_name);
		for (char *p = path; *p; p++) /* sysfs has ! for it */
			*p = *p == '!' ? '/' : *p;
		if (e->d_name[0] == '.' || open_one(dirfd(d), e->d_name, path, &c) < 0)
			continue;
		fn(s, c, path, other);
		card_close(c);
	}
	closedir(d);
	return 0;
}

static void as_base(struct search *s, struct card *base, const char *path, struct card *card)
{
	struct log_super super;

	(void)path;
	if (find(s, base, card, &super))
		ask_log(s, base, card, &super);
}

static void as_log(struct search *s, struct card *c, const char *path, struct card *none)
{
	int before = s->answer, fd;
	struct log_super super;

	(void)none;
	if (!find(s, c, c, &super))
		return;
	if (super.external) /* only for this one all devices are tried */
		(void)!each_device(as_base, s, c);
	else
		ask_log(s, c, c, &super);
	if (s->answer == before)
		return;
	fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	s->running |= fd < 0 && errno == EBUSY;
	if (fd >= 0)
		close(fd);
}

int log_joint_ask(const struct log_joint *j, char *why, size_t why_bytes)
{
	const struct timespec nap = { .tv_nsec = LOOK_NS };
	uint64_t until_ns = now_ns() + WAIT_NS;
	struct search s;
	int r;

	do {
		s = (struct search){ .j = j, .answer = -ENODEV };
		r = each_device(as_log, &s, NULL);
		if (r < 0 || s.answer != 0 || !s.running || !s.older)
			break;
		nanosleep(&nap, NULL);
	} while (now_ns() < until_ns);
	if (r == 0 && s.answer >= 0)
		return s.answer;
	snprintf(why, why_bytes, "%s",
		 s.answer == -ENODEV ? "the volume that knows is missing"
				     : "the volume that knows cannot tell");
	return -ENOLINK;
}
