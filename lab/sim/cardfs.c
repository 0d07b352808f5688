/* SPDX-License-Identifier: MIT */
/*
 * A simulated card as files. Single-threaded: a card does one thing at a time, and has one clock.
 */
#include "sim/cardfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <fuse_lowlevel.h>
#include <linux/falloc.h>

#include "base/bytes.h"
#include "base/io.h"
#include "base/path.h"
#include "base/parse.h"
#include "sim/sim.h"

#define MAX_BYTES (1u << 20)
#define TEXT_BYTES 4096u
#define COMMAND_BYTES 4200u
#define FOREVER_S 1e9

enum { INO_CARD = 2, INO_STAT, INO_JSON, INO_CONTROL, INO_END };

static const struct {
	const char *name;
	mode_t mode;
} files[INO_END] = { [INO_CARD] = { "card", 0600 },
		     [INO_STAT] = { "stat", 0444 },
		     [INO_JSON] = { "stat.json", 0444 },
		     [INO_CONTROL] = { "control", 0200 } };

/* The only session of this program */
static struct {
	struct cardfs *f;
	uint8_t *buf; /* holds the whole blocks around any request */
} serving;

/* ---- contents ---- */

static uint64_t clock_ns(const struct card *c)
{
	struct flash_stats st;

	flash_model_stats(sim_model(c), &st);
	return st.clock_ns;
}

static void spend(uint64_t since_ns)
{
	uint64_t ns = clock_ns(serving.f->card) - since_ns;
	struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000u),
			       .tv_nsec = (long)(ns % 1000000000u) };

	while (serving.f->real_time && nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

static int trace(enum flash_trace_op op, uint64_t off_bytes, uint64_t len_bytes, const void *buf)
{
	struct flash_trace_record rec = { .op = (uint8_t)op,
					  .time_ns = clock_ns(serving.f->card),
					  .off_bytes = off_bytes };
	int r = 0;

	if (!serving.f->trace)
		return 0;
	do { /* a length has 32 bits */
		rec.len_bytes = (uint32_t)min_u64(len_bytes, 2 * GIB);
		r = flash_trace_add(serving.f->trace, &rec, buf);
		rec.off_bytes += rec.len_bytes;
		len_bytes -= rec.len_bytes;
	} while (len_bytes && !r);
	return r;
}

static bool in_range(uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t size = serving.f->card->geo.size_bytes;

	return off_bytes <= size && len_bytes <= size - off_bytes;
}

/* Places the data at serving.buf + off % 4 KiB. */
static int read_card(uint64_t off_bytes, size_t len_bytes)
{
	uint64_t from = round_down_u64(off_bytes, COW_BLK_BYTES), since = clock_ns(serving.f->card);
	int r = card_read(serving.f->card, from, serving.buf,
			  round_up_u64(off_bytes + len_bytes, COW_BLK_BYTES) - from);

	spend(since);
	return r;
}

static int write_card(uint64_t off_bytes, const void *data, size_t len_bytes)
{
	struct card *c = serving.f->card;
	uint64_t from = round_down_u64(off_bytes, COW_BLK_BYTES), since = clock_ns(c);
	size_t len = round_up_u64(off_bytes + len_bytes, COW_BLK_BYTES) - from;
	struct flash_stats st;
	int r = 0;

	serving.f->changes++;
	flash_model_stats(sim_model(c), &st);
	if (st.read_only)
		return -EIO;
	if (off_bytes != from)
		r = sim_look(c, from, serving.buf, COW_BLK_BYTES);
	if (!r && (off_bytes + len_bytes) % COW_BLK_BYTES)
		r = sim_look(c, from + len - COW_BLK_BYTES, serving.buf + len - COW_BLK_BYTES,
			     COW_BLK_BYTES);
	if (r < 0)
		return r;
	if (data)
		memcpy(serving.buf + off_bytes - from, data, len_bytes);
	else
		memset(serving.buf + off_bytes - from, 0, len_bytes);
	r = card_write(c, from, serving.buf, len);
	if (!r)
		r = trace(FLASH_TRACE_WRITE, off_bytes, len_bytes, data);
	spend(since);
	return r;
}

static int flush_card(void)
{
	uint64_t since = clock_ns(serving.f->card);
	int r = card_flush(serving.f->card);

	serving.f->changes++;
	if (!r)
		r = trace(FLASH_TRACE_FLUSH, 0, 0, NULL);
	spend(since);
	return r;
}

/* Discards whole blocks, and writes zeroes to parts of blocks. */
static int punch_card(uint64_t off_bytes, uint64_t len_bytes)
{
	uint64_t end = off_bytes + len_bytes, first = round_up_u64(off_bytes, COW_BLK_BYTES),
		 last = round_down_u64(end, COW_BLK_BYTES), since;
	int r = 0;

	serving.f->changes++;
	if (first >= last) {
		if (off_bytes / COW_BLK_BYTES == (end - 1) / COW_BLK_BYTES)
			return write_card(off_bytes, NULL, len_bytes);
		first = last = round_down_u64(end, COW_BLK_BYTES);
	}
	if (off_bytes < first)
		r = write_card(off_bytes, NULL, first - off_bytes);
	if (!r && last < end)
		r = write_card(last, NULL, end - last);
	since = clock_ns(serving.f->card);
	if (!r && first < last)
		r = sim_discard(serving.f->card, first, last - first);
	spend(since);
	return !r && first < last ? trace(FLASH_TRACE_DISCARD, first, last - first, NULL) : r;
}

/* ---- images ---- */

int cardfs_load(struct card *c, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ uint8_t *buf = io_alloc(MAX_BYTES);
	off_t at = 0, end;
	struct stat st;

	if (!buf)
		return -ENOMEM;
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > c->geo.size_bytes)
		return -EFBIG;
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		while (at < end) {
			size_t len = min_u64((uint64_t)(end - at), MAX_BYTES);
			int r = io_pread_full(fd, buf, len, (uint64_t)at);

			if (!r)
				r = sim_poke(c, (uint64_t)at, buf, len);
			if (r < 0)
				return r;
			at += (off_t)len;
		}
	}
	return errno == ENXIO ? 0 : -errno;
}

int cardfs_save(const struct card *c, const char *path)
{
	char why[2 * PATH_MAX];
	_cleanup_close_ int fd = path_create_file(path, 0600, why, sizeof(why));
	_cleanup_free_ uint8_t *buf = io_alloc(COW_BLK_BYTES);

	if (!buf)
		return -ENOMEM;
	if (fd < 0 || ftruncate(fd, (off_t)c->geo.size_bytes) < 0)
		return fd < 0 ? fd : -errno;
	for (uint64_t at = 0; at < c->geo.size_bytes; at += COW_BLK_BYTES) {
		int r = sim_peek(c, at, buf, COW_BLK_BYTES);

		if (!r && !bytes_all_zero(buf, COW_BLK_BYTES))
			r = io_pwrite_full(fd, buf, COW_BLK_BYTES, at);
		if (r < 0)
			return r;
	}
	return close(steal_fd(&fd)) < 0 ? -errno : 0;
}

/* ---- control ---- */

static enum sim_fate all(void *arg, size_t i)
{
	(void)i;
	return *(enum sim_fate *)arg;
}

static int power(const char *what)
{
	static const char *const names[] = { [SIM_DONE] = "kept",
					     [SIM_DROPPED] = "undone",
					     [SIM_TORN] = "torn",
					     [SIM_GARBAGE] = "garbage" };
	struct card *c = serving.f->card;

	if (!strcmp(what, "random")) {
		sim_power_cycle(c, NULL, NULL);
		return card_set_writable(c, true);
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		enum sim_fate fate = (enum sim_fate)i;

		if (strcmp(what, names[i]))
			continue;
		sim_power_cycle(c, all, &fate);
		return card_set_writable(c, true);
	}
	return -EINVAL;
}

static int fail(char *kinds, const char *count, const char *often)
{
	static const struct {
		const char *name;
		enum sim_op op;
	} ops[] = { { "read", SIM_READ }, { "write", SIM_WRITE }, { "flush", SIM_FLUSH } };
	bool forever = !strcmp(often, "forever");
	unsigned mask = 0;
	uint64_t n;
	char *save;

	if (parse_u64(count, &n) < 0 || (!forever && strcmp(often, "once")))
		return -EINVAL;
	for (char *k = strtok_r(kinds, ",", &save); k; k = strtok_r(NULL, ",", &save)) {
		unsigned before = mask;

		for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
			mask |= strcmp(k, ops[i].name) ? 0 : ops[i].op;
		if (mask == before)
			return -EINVAL;
	}
	if (!mask)
		return -EINVAL;
	sim_fail_at(serving.f->card, mask, n, -EIO, forever);
	return 0;
}

static int mark(const char *what)
{
	int r = -EINVAL;

	if (!serving.f->trace)
		return -ENODATA;
	if (!strcmp(what, "commit"))
		r = trace(FLASH_TRACE_COMMIT, 0, 0, NULL);
	else if (!strcmp(what, "sync"))
		r = trace(FLASH_TRACE_SYNC, 0, 0, NULL);
	return r ? r : flash_trace_flush(serving.f->trace);
}

static int control(char *line)
{
	struct card *c = serving.f->card;
	char *save, *word[4] = { NULL };
	unsigned n = 0;
	uint64_t v;

	if (!strncmp(line, "save /", 6))
		return cardfs_save(c, line + 5);
	for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		if (n == ARRAY_SIZE(word))
			return -EINVAL;
		word[n++] = w;
	}
	if (n == 1 && !strcmp(word[0], "finish"))
		return serving.f->finish(serving.f);
	serving.f->changes++;
	if (n == 1 && !strcmp(word[0], "reset")) {
		flash_model_reset(sim_model(c));
		return 0;
	}
	if (n == 1 && !strcmp(word[0], "settle")) {
		flash_model_settle(sim_model(c));
		return 0;
	}
	if (n == 4 && !strcmp(word[0], "fail"))
		return fail(word[1], word[2], word[3]);
	if (n != 2)
		return -EINVAL;
	if (!strcmp(word[0], "power"))
		return power(word[1]);
	if (!strcmp(word[0], "mark"))
		return mark(word[1]);
	if (!strcmp(word[0], "collateral")) {
		bool on = !strcmp(word[1], "on");

		if (!on && strcmp(word[1], "off"))
			return -EINVAL;
		sim_set_collateral(c, on ? 0 : UINT64_MAX);
		return 0;
	}
	if (parse_u64(word[1], &v) < 0)
		return -EINVAL;
	if (!strcmp(word[0], "cut"))
		sim_cut_at(c, v);
	else if (!strcmp(word[0], "lie") && v <= 1000)
		sim_set_lie(c, (unsigned)v);
	else
		return -EINVAL;
	return 0;
}

/* ---- FUSE ---- */

static bool fill_attr(fuse_ino_t ino, struct stat *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->st_ino = ino;
	ret->st_nlink = 1;
	ret->st_blksize = COW_BLK_BYTES;
	if (ino == FUSE_ROOT_ID) {
		ret->st_mode = S_IFDIR | 0755;
		ret->st_nlink = 2;
		return true;
	}
	if (ino < INO_CARD || ino >= INO_END)
		return false;
	ret->st_mode = S_IFREG | files[ino].mode;
	if (ino == INO_CARD) {
		ret->st_size = (off_t)serving.f->card->geo.size_bytes;
		ret->st_blocks = ret->st_size / 512;
	}
	return true;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->want = conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
	conn->max_write = MAX_BYTES;
	conn->max_background = 128;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S };

	for (e.ino = INO_CARD; e.ino < INO_END; e.ino++)
		if (parent == FUSE_ROOT_ID && !strcmp(name, files[e.ino].name) &&
		    fill_attr(e.ino, &e.attr)) {
			fuse_reply_entry(req, &e);
			return;
		}
	fuse_reply_err(req, ENOENT);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (fill_attr(ino, &st))
		fuse_reply_attr(req, &st, FOREVER_S);
	else
		fuse_reply_err(req, ENOENT);
}

/* A shell truncates the file when it opens it; like a block device it keeps its content. */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	(void)attr;
	if (to_set & ~(FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW |
		       FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_CTIME))
		fuse_reply_err(req, EPERM);
	else
		op_getattr(req, ino, fi);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	char buf[1024];
	size_t n = 0;

	(void)fi;
	if (ino != FUSE_ROOT_ID) {
		fuse_reply_err(req, ENOTDIR);
		return;
	}
	for (fuse_ino_t i = INO_CARD + (fuse_ino_t)off; i < INO_END; i++) {
		size_t room = min_u64(size, sizeof(buf)) - n, need;
		struct stat st;

		fill_attr(i, &st);
		need = fuse_add_direntry(req, buf + n, room, files[i].name, &st,
					 (off_t)(i - INO_CARD + 1));
		if (need > room)
			break;
		n += need;
	}
	fuse_reply_buf(req, buf, n);
}

/* stat shows the state at the time of its opening. */
static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	if (ino == INO_STAT || ino == INO_JSON) {
		char *text = malloc(TEXT_BYTES);

		if (!text) {
			fuse_reply_err(req, ENOMEM);
			return;
		}
		text[serving.f->tell(serving.f->card, ino == INO_JSON, text, TEXT_BYTES)] = 0;
		fi->fh = (uint64_t)(uintptr_t)text;
	}
	if (fuse_reply_open(req, fi) < 0 && fi->fh)
		free((void *)(uintptr_t)fi->fh);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	free((void *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	uint64_t card_bytes = serving.f->card->geo.size_bytes;
	int r;

	if (fi->fh) {
		const char *text = (const char *)(uintptr_t)fi->fh;
		size_t len = strlen(text), from = min_u64((uint64_t)off, len);

		fuse_reply_buf(req, text + from, min_u64(size, len - from));
		return;
	}
	if (ino != INO_CARD || size > MAX_BYTES) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	size = (uint64_t)off >= card_bytes ? 0 : min_u64(size, card_bytes - (uint64_t)off);
	r = size ? read_card((uint64_t)off, size) : 0;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, (const char *)serving.buf + (uint64_t)off % COW_BLK_BYTES,
			       size);
}

static int write_control(const char *buf, size_t size)
{
	char line[COMMAND_BYTES];

	if (size >= sizeof(line) || memchr(buf, 0, size))
		return -EINVAL;
	memcpy(line, buf, size);
	line[size] = 0;
	if (size && line[size - 1] == '\n')
		line[size - 1] = 0;
	return control(line);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	int r = -EINVAL;

	(void)fi;
	if (ino == INO_CONTROL)
		r = write_control(buf, size);
	else if (ino == INO_CARD && !in_range((uint64_t)off, size))
		r = -ENOSPC;
	else if (ino == INO_CARD && size <= MAX_BYTES)
		r = size ? write_card((uint64_t)off, buf, size) : 0;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_write(req, size);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync, (void)fi;
	fuse_reply_err(req, ino == INO_CARD ? -flush_card() : 0);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			 struct fuse_file_info *fi)
{
	int r = -EOPNOTSUPP;

	(void)fi;
	if (ino == INO_CARD && mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) &&
	    !serving.f->no_discard)
		r = len > 0 && in_range((uint64_t)off, (uint64_t)len)
			    ? punch_card((uint64_t)off, (uint64_t)len)
			    : -EINVAL;
	fuse_reply_err(req, -r);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st = { .f_bsize = COW_BLK_BYTES,
			      .f_frsize = COW_BLK_BYTES,
			      .f_blocks = serving.f->card->geo.size_bytes / COW_BLK_BYTES,
			      .f_files = INO_END - INO_CARD,
			      .f_namemax = 255 };

	(void)ino;
	fuse_reply_statfs(req, &st);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readdir = op_readdir,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
	.statfs = op_statfs,
};

int cardfs_serve(struct cardfs *f, const char *dir, void (*ready)(void *ctx), void *ctx)
{
	char *argv[] = { (char *)"cowfs-cardsim", (char *)"-ofsname=cowfs-cardsim,subtype=cardsim",
			 NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	/* The last process of a mount namespace unmounts before it closes its files, and what stands on the card waits for this one
	 * then. So the namespace lasts as long as a file that is closed after /dev/fuse: the highest number comes first. */
	_cleanup_close_ int last_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	struct fuse_session *se;
	int r = 0;

	(void)last_fd;
	serving.f = f;
	serving.buf = io_alloc(MAX_BYTES + 2 * COW_BLK_BYTES);
	if (!serving.buf)
		return -ENOMEM;
	se = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	fuse_opt_free_args(&args);
	if (!se || fuse_set_signal_handlers(se) < 0)
		r = -ENOMEM;
	else if (fuse_session_mount(se, dir) < 0)
		r = -EBUSY;
	if (!r) {
		ready(ctx);
		r = fuse_session_loop(se);
		/*
		 * or the number of a signal; an unmount while the kernel has a request for this
		 * process ends like an abort
		 */
		r = r < 0 && r != -ECONNABORTED ? r : 0;
		fuse_session_unmount(se);
	}
	if (se) {
		fuse_remove_signal_handlers(se);
		fuse_session_destroy(se);
	}
	free(serving.buf);
	return r;
}
