/* SPDX-License-Identifier: MIT */
/*
 * Life cycle of a volume: open, commit thread, status, close. The commit thread runs jobs one after
 * another, in the order of their requests (commit_thread.c). Callers wait on `done`.
 */
#include "volume/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "base/clean.h"
#include "base/invariant.h"
#include "base/msg.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "volume/private.h"
#include "base/path.h"
#include "commit/shrink.h"
#include "fs/fs_ops.h"

#define QUIET_NS (600 * 1000000000ull)
#define RELIEVE_NS (2 * 1000000000ull)
#define TAKE_OVER_TRIES 10

/* ---- open ---- */

static bool is_file(const char *path)
{
	char why[2 * PATH_MAX];
	_cleanup_close_ int fd = path_open(path, O_PATH, why, sizeof(why));
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static int open_device(struct card **ret, const char *path, uint32_t eb_bytes, char *why, size_t n)
{
	struct card_options opt = { .erase_block_bytes = eb_bytes };
	int r = blockdev_open(ret, path, BLOCKDEV_EXCL, &opt);
	char link[2 * PATH_MAX];

	if (r == -ENOTBLK && is_file(path))
		return msg_why(why, n, r,
			       "%s is not a block device (an image file: losetup -f --show %s)",
			       path, path);
	if (r == -ENOTBLK)
		return msg_why(why, n, r, "%s is not a block device", path);
	if (r == -EBUSY)
		return msg_why(why, n, r, "%s is mounted or in use", path);
	if (r == -ENXIO)
		return msg_why(why, n, r, "%s: no card in the reader", path);
	if (r < 0)
		return msg_why(why, n, r, "%s: %s", path,
			       path_strerror(path, r, link, sizeof(link)));
	return 0;
}

static int read_committed(void *ctx, uint64_t blk, uint64_t blks, void *buf)
{
	return view_read_committed(ctx, blk, blks, buf);
}

static const char *explain(int error)
{
	return error == -EOWNERDEAD ? FSINFO_DIED : strerror(-error);
}

/* Finishes a shrink that was interrupted after its commit, before anything else. This is the only
 * case in which an attach writes. */
static int finish_shrink(struct volume *v, struct log_super *super, unsigned *trouble, char *why,
			 size_t n)
{
	const struct commit_options opt = { .cause = CAUSE_RECOVER };
	struct shrink_report rep;
	int r = shrink_finish(v->base, super, 0, &opt, &rep);

	if (r < 0)
		return msg_why(
			why, n, r,
			"%s: a shrink was interrupted after its commit and cannot be finished "
			"(%s): see cowctl check",
			v->device, rep.why);
	msg(MSG_NOTICE, "%s: an interrupted shrink is finished", v->device);
	return super_read(v->base, rep.super.fs_bytes, super, trouble);
}

/* r: return value of super_find. */
static int explain_super(const struct volume *v, const struct log_super *super,
			 const struct fsinfo *fs, unsigned trouble, int r, char *why, size_t n)
{
	const char *where = v->log_card == v->base ? v->device : v->log_device;

	if (r == -ENOENT && (trouble & SUPER_CUT_OFF))
		return msg_why(
			why, n, r,
			"%s: no cowfs log. If you started a shrink, it was interrupted before "
			"its commit and changed nothing: run cowctl format --shrink %s again",
			where, v->device);
	if (r == -ESTALE)
		return msg_why(
			why, n, r,
			"%s: the file system was enlarged without cowfs (%s, was %s) and has "
			"overwritten its log: run cowctl format --shrink %s",
			v->device, FORMAT_MIB(fs->size_bytes), FORMAT_MIB(super->fs_bytes),
			v->device);
	if (r == -ENOENT && v->log_card == v->base && super_log_missing(v->base))
		return msg_why(why, n, r,
			       "%s: no cowfs log, and " SUPER_LOG_MISSING
			       ": name the device that has it with --log. "
			       "If that log is lost: see cowctl format %s",
			       v->device, v->device);
	if (r == -ENOENT && v->log_card == v->base)
		return msg_why(
			why, n, r,
			"%s: no cowfs log: run cowctl format %s first, or name the device that "
			"has the log with --log",
			where, v->device);
	if (r == -ENOENT)
		return msg_why(why, n, r, "%s: no cowfs log for %s", where, v->device);
	if (r == -EBADMSG || r == -EUCLEAN)
		return msg_why(why, n, -EBADMSG, "%s: both superblocks of the log are damaged",
			       where);
	if (r == -EPROTONOSUPPORT)
		return msg_why(
			why, n, r,
			"%s: the log was made by a newer cowfs (format %u, features %llx/%llx)",
			where, super->version, (unsigned long long)super->ro_compat,
			(unsigned long long)super->incompat);
	if (r == -EXDEV)
		return msg_why(why, n, r, SUPER_MEMBER, v->device);
	if (r == -ERANGE)
		return msg_why(why, n, r, "%s: smaller than its log says: %llu bytes", where,
			       (unsigned long long)v->log_card->geo.size_bytes);
	return msg_why(why, n, r, "%s: superblock of the log: %s", where, strerror(-r));
}

static int open_log(struct volume *v, unsigned flags, char *why, size_t n)
{
	struct blk_reader home = super_reader(v->base);
	const char *where = v->log_card == v->base ? v->device : v->log_device;
	const char *p_log = v->log_card == v->base ? NULL : v->log_device;
	struct log_super super;
	struct fsinfo fs;
	unsigned trouble;
	int r = fsinfo_probe(&home, &fs);

	if (r < 0)
		return msg_why(why, n, r, "%s: cannot be read: %s", v->device, explain(r));
	r = super_find(v->base, v->log_card, &fs, 0, &super, &trouble);
	if (r < 0)
		return explain_super(v, &super, &fs, trouble, r, why, n);
	if (super.state == SUPER_PENDING && v->log_card == v->base) {
		r = finish_shrink(v, &super, &trouble, why, n);
		if (r < 0)
			return r;
		r = fsinfo_probe(&home, &fs); /* the file system is smaller now */
		if (r < 0)
			return msg_why(why, n, r, "%s: cannot be read: %s", v->device, explain(r));
	}
	if (super.external != (v->log_card != v->base))
		return msg_why(why, n, -EINVAL,
			       super.external
				       ? "%s: keeps its log on another device: name it with --log"
				       : "%s: its log belongs to its own file system",
			       where);
	if (super.base_bytes > v->base->geo.size_bytes)
		return msg_why(why, n, -ERANGE, "%s: smaller than its log says", v->device);
	r = log_open_lent(&v->log, v->base, v->log_card, &super, flags, v->lent, &v->opened);
	if (r < 0)
		return msg_why(why, n, r, "%s: cannot read the log: %s", where, explain(r));
	if (log_of_another(v->log, &v->opened, &fs))
		return msg_why(
			why, n, -ESTALE,
			"%s: this log belongs to another file system than the one on %s. To use "
			"it for this one: cowctl format --force %s --log %s",
			where, v->device, v->device, where);
	log_mend_super(v->log, trouble);
	if (v->opened.wants_lent)
		return msg_why(
			why, n, -EUCLEAN,
			"%s: %s: name that device or file with cowctl recover --lend DEVICE|FILE %s%s%s; nothing "
			"was written",
			where, v->opened.why, v->device, p_log ? " --log " : "",
			p_log ? p_log : "");
	if (v->opened.wants_joint)
		return msg_why(
			why, n, -EUCLEAN,
			"%s: %s: plug in its card, or decide with cowctl recover --joint accept|reject %s%s%s; nothing "
			"was written",
			where, v->opened.why, v->device, p_log ? " --log " : "",
			p_log ? p_log : "");
	if (v->opened.state == LOG_BROKEN)
		return msg_why(why, n, -EUCLEAN, "%s: the log is damaged (%s): see cowctl check",
			       where, v->opened.why);
	if (!v->base->geo.eb_source)
		v->base->geo.erase_block_bytes = super.erase_block_bytes;
	v->volume_blks = super.fs_bytes / COW_BLK_BYTES;
	return 0;
}

static uint64_t memory_bytes(void)
{
	struct sysinfo si;

	return sysinfo(&si) == 0 ? (uint64_t)si.totalram * si.mem_unit : 0;
}

struct blk_reader volume_committed(struct volume *v)
{
	return (struct blk_reader){ .read = read_committed,
				    .ctx = v->view,
				    .volume_blks = v->volume_blks };
}

int volume_check_fs(const struct volume *v, const struct fsinfo *fs, char *why, size_t n)
{
	const char *refusal = fsinfo_refusal(fs);

	return refusal ? msg_why(why, n, -EOPNOTSUPP, "%s: %s", v->device, refusal) : 0;
}

/* Requirements of the committed file system. */
static int check_fs(struct volume *v, char *why, size_t n)
{
	struct blk_reader r = volume_committed(v);
	int e = fsinfo_probe(&r, &v->fs);

	if (e < 0)
		return msg_why(why, n, e, "%s: cannot be read: %s", v->device, explain(e));
	return volume_check_fs(v, &v->fs, why, n);
}

static bool dirty_can_be_bounded(const struct volume *v)
{
	return !fs_ops(v->fs.kind)->own_dirty_limits && bdi_can_limit();
}

/* At attach. With max_commit_time those in flight must be few, because they are written even if the room of
 * a commit is used up. */
static struct pressure_requests plan_requests(const struct volume *v)
{
	uint64_t blks = monitor_time_blks(v->monitor);

	if (!fs_ops(v->fs.kind)->counts_on_free)
		blks = min_u64(blks, log_capacity_blks(v->log));
	return blks == UINT64_MAX ? (struct pressure_requests){ .kb = PRESSURE_REQUEST_KB,
								.tags = PRESSURE_TAGS }
				  : pressure_requests(blks);
}

struct pressure_requests volume_requests(const struct volume *v)
{
	return v->kept->requests;
}

/* Why a limit of time cannot be kept; "": it can. */
static const char *why_no_limit(const struct volume_params *p, bool bound_dirty)
{
	return p->pressure_fails ? "needs commits under pressure: pressure=fail forbids them"
	       : p->always_checkpoint
		       ? "cannot be kept with checkpoint=always: a checkpoint has no such limit"
	       : bound_dirty ? ""
	       : bdi_can_limit()
		       ? "cannot be kept on btrfs: how much it holds back until a commit is not bounded"
		       : "needs Linux 6.2 or newer: older kernels do not bound what they hold back until "
			 "a commit";
}

static int plan_pressure(struct volume *v, const struct volume_params *p, uint64_t ram_bytes,
			 struct monitor_params *ret, char *why, size_t n)
{
	struct monitor_params mp = { .fail = p->pressure_fails,
				     .bound_dirty = dirty_can_be_bounded(v),
				     .stops = fs_ops(v->fs.kind)->crash_safe,
				     .log_blks = log_capacity_blks(v->log),
				     .retry_ns = p->full_ns,
				     .max_commit_ns = p->max_commit_ns,
				     .times = &v->kept->times };
	uint64_t volume_bytes = blk_to_bytes(v->volume_blks), need;
	uint64_t dirty_bytes =
		mp.bound_dirty ? 0 : pressure_unbounded_bytes(global_dirty_bytes(), volume_bytes);
	const char *no_limit = p->max_commit_ns ? why_no_limit(p, mp.bound_dirty) : "";
	int r;

	if (*no_limit) {
		if (!p->running_root)
			return msg_why(why, n, -EOPNOTSUPP, "max-commit-time %s", no_limit);
		mp.max_commit_ns = 0;
		volume_alarm(v, "max-commit-time %s", no_limit);
	}
	r = pressure_plan(&mp.plan, ram_bytes, v->fs.journal_bytes, dirty_bytes, &need);
	if (r < 0)
		return msg_why(
			why, n, r,
			"the RAM limit of %s cannot hold the journal of %s (%s), the kernel's "
			"dirty pages (%s) and some slack: at least %s are needed%s",
			FORMAT_SIZE(ram_bytes), v->device, FORMAT_SIZE(v->fs.journal_bytes),
			FORMAT_SIZE(pressure_dirty_bytes(ram_bytes)), FORMAT_SIZE(need),
			v->fs.journal_bytes > 16 * MIB
				? ", or a smaller journal (tune2fs -O ^has_journal, then -J size=8)"
				: "");
	if (pressure_plan_exceeds(&mp.plan))
		msg(MSG_NOTICE,
		    "%s: the start of a commit may need up to %s above the RAM limit of %s: only "
		    "vm.dirty_bytes limits the kernel's dirty pages",
		    v->name, FORMAT_SIZE(mp.plan.dirty_bytes), FORMAT_SIZE(ram_bytes));
	v->committed_room_blks = volume_room_blks(v, &v->fs);
	mp.plan.packs = p->compress;
	if (!fs_ops(v->fs.kind)->counts_on_free)
		pressure_plan_ring(&mp.plan, log_capacity_blks(v->log));
	else
		pressure_plan_room(&mp.plan, mp.room_blks = v->committed_room_blks);
	*ret = mp;
	r = ram_store_resize(v->store, pressure_hard_bytes(&mp.plan));
	return r < 0 ? msg_why(why, n, r, "the RAM store: %s", strerror(-r)) : 0;
}

static int open_monitor(struct volume *v, const struct monitor_params *mp, char *why, size_t n)
{
	int r = monitor_new(&v->monitor, v, mp);

	if (r == 0 && !v->kept->requests.tags)
		v->kept->requests = plan_requests(v);
	if (r == 0)
		throttle_set_tags(monitor_throttle(v->monitor), v->kept->requests.tags);
	return r < 0 ? msg_why(why, n, r, "the monitor: %s", strerror(-r)) : 0;
}

/* A profile that is guessed or unconfirmed is used to estimate a dry run, but not to plan. */
static void take_profile(struct volume *v, const struct profile_choice *choice)
{
	if (choice)
		v->choice = *choice;
	if (v->choice.source == PROFILE_NONE)
		return;
	if (v->choice.source == PROFILE_GUESSED)
		flash_profile_guess(&v->choice.profile, v->base->geo.erase_block_bytes,
				    v->base->geo.size_bytes);
	v->price_by = &v->choice.profile;
	v->profile = v->choice.source == PROFILE_GUESSED || v->choice.profile.unconfirmed
			     ? NULL
			     : &v->choice.profile;
}

/* Share of the RAM limit used to count rewrites: with 256 MiB, at most 20,480 blocks are known. */
#define REWRITES_SHARE 1024
#define REWRITES_MAX_BYTES (256 * KIB)

struct scratch *volume_scratch(struct volume *v)
{
	struct scratch *s;

	pthread_mutex_lock(&v->scratch_lock);
	s = v->scratch ? scratch_ref(v->scratch) : NULL;
	pthread_mutex_unlock(&v->scratch_lock);
	return s;
}

/* Commit thread. */
static void before_write(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes)
{
	struct volume *v = ctx;
	struct scratch *s = v->committing ? NULL : volume_scratch(v);

	if (s)
		scratch_end(s);
	scratch_unref(s);
	snapshots_before_write(v->snapshots, c, off_bytes, len_bytes);
}

static int open_snapshots(struct volume *v, char *why, size_t n)
{
	struct card *cards[] = { v->base, v->log_card };
	struct monitor_status m;
	int r;

	monitor_status(v->monitor, &m);
	r = snapshots_new(&v->snapshots, v->name, v->store, v->view, m.plan.ram_bytes.full);
	if (r < 0)
		return msg_why(why, n, r, "no memory");
	for (size_t i = 0; i < ARRAY_SIZE(cards); i++) {
		cards[i]->before_write = before_write;
		cards[i]->before_write_ctx = v;
	}
	return 0;
}

static void keep_attach(struct volume *v, const struct monitor_params *mp);

static uint64_t ram_limit(const struct volume_params *p)
{
	return p->ram_bytes ? p->ram_bytes : memory_bytes() / 2;
}

int volume_prepare(struct volume_prepared *ret, const struct volume_params *p, char *why, size_t n)
{
	uint64_t memory = memory_bytes(), ram = ram_limit(p);
	int r;

	*ret = (struct volume_prepared){ 0 };
	if (memory && ram > memory)
		return msg_why(why, n, -EINVAL,
			       "the RAM limit of %s exceeds the memory of this machine (%s)",
			       FORMAT_SIZE(ram), FORMAT_SIZE(memory));
	if (ram < PRESSURE_MIN_BYTES)
		return msg_why(why, n, -EINVAL, "the RAM limit of %s is too small: at least %s",
			       FORMAT_SIZE(ram), FORMAT_SIZE(PRESSURE_MIN_BYTES));
	r = open_device(&ret->base, p->device, p->erase_block_bytes, why, n);
	if (r == 0)
		blockdev_through_broker(ret->base, 0);
	if (r == 0 && p->log_device) {
		r = open_device(&ret->log, p->log_device, p->erase_block_bytes, why, n);
		if (r == 0)
			blockdev_through_broker(ret->log, 1);
	}
	if (r < 0)
		goto fail;
	r = ram_store_open(&ret->store, ram);
	if (r == 0)
		return 0;
	r = msg_why(why, n, r, "cannot create the RAM store: %s", strerror(-r));
fail:
	volume_unprepare(ret);
	return r;
}

void volume_unprepare(struct volume_prepared *p)
{
	ram_store_close(p->store);
	card_close(p->log);
	card_close(p->base);
	*p = (struct volume_prepared){ 0 };
}

static int open_all(struct volume *v, const struct volume_params *p, char *why, size_t n)
{
	uint64_t ram = ram_limit(p);
	struct monitor_params mp;
	struct log_index *ix;
	int r;

	v->base = p->prepared->base;
	v->log_card = p->prepared->log ? p->prepared->log : v->base;
	v->store = p->prepared->store;
	*p->prepared = (struct volume_prepared){ 0 };
	v->have_kernel = card_counters(v->base, &v->kernel_at_open[0]) == 0 &&
			 (v->log_card == v->base ||
			  card_counters(v->log_card, &v->kernel_at_open[1]) == 0);
	r = open_log(v, 0, why, n);
	if (r < 0)
		return r;
	take_profile(v, p->profile);
	r = ram_store_share(v->store, "volume", sizeof(*v->kept), (void **)&v->kept);
	if (r < 0)
		return msg_why(why, n, r, "cannot create the RAM store: %s", strerror(-r));
	ix = log_index_of(v->log);
	r = view_new(&v->view, v->store, v->base, v->volume_blks, ix);
	log_index_unref(ix);
	if (r < 0)
		return msg_why(why, n, r, "cannot create the merged view: %s", strerror(-r));
	if (rewrites_new(&v->rewrites, (size_t)min_u64(ram / REWRITES_SHARE, REWRITES_MAX_BYTES)) ==
	    0)
		view_set_rewrites(v->view, v->rewrites);
	r = check_fs(v, why, n);
	if (r == 0)
		r = plan_pressure(v, p, ram, &mp, why, n);
	if (r == 0)
		r = open_monitor(v, &mp, why, n);
	if (r == 0)
		r = open_snapshots(v, why, n);
	if (r == 0)
		keep_attach(v, &mp);
	return r;
}

/* ---- taking over from a process that has died ---- */

static void keep_card(struct volume *v, unsigned i, struct card *c)
{
	int none[BLOCKDEV_FDS];

	blockdev_keep(c, &v->kept->card[i], none);
}

/* What a process that takes over cannot find out. */
static void keep_attach(struct volume *v, const struct monitor_params *mp)
{
	struct volume_kept *k = v->kept;

	keep_card(v, 0, v->base);
	k->two_cards = v->log_card != v->base;
	if (k->two_cards)
		keep_card(v, 1, v->log_card);
	k->bound_dirty = mp->bound_dirty;
	k->attached_s = v->attached_s;
	k->opened = v->opened;
	k->fs = v->fs;
	k->choice = v->choice;
	k->plan = mp->plan;
	k->max_commit_ns = mp->max_commit_ns;
	k->room_blks = v->committed_room_blks;
}

void volume_keep(struct volume *v, int ret[VOLUME_FDS])
{
	const struct bdi_limit *bdi = monitor_bdi(v->monitor);
	const int of_bdi[BDI_LIMIT_FDS] = { bdi->max_bytes_fd, bdi->min_bytes_fd, bdi->strict_fd,
					    bdi->max_ratio_fd };
	struct blockdev_kept none;
	int lent_fd[BLOCKDEV_FDS] = { -1 };

	for (unsigned i = 0; i < VOLUME_FDS; i++)
		ret[i] = -1;
	ram_store_fds(v->store, ret + VOLUME_FD_STORE);
	blockdev_keep(v->base, &none, ret + VOLUME_FD_BASE);
	if (v->log_card != v->base)
		blockdev_keep(v->log_card, &none, ret + VOLUME_FD_LOG);
	if (v->lent)
		blockdev_keep(v->lent, &none, lent_fd);
	ret[VOLUME_FD_LENT] = lent_fd[0];
	memcpy(ret + VOLUME_FD_BDI, of_bdi, sizeof(of_bdi));
}

int volume_share(struct volume *v, const char *name, size_t bytes, void **ret)
{
	return ram_store_share(v->store, name, bytes, ret);
}

void volume_keep_state(struct volume *v)
{
	struct volume_kept *k = v->kept;
	uint64_t inhibit_ns = v->monitor ? monitor_inhibit_left_ns(v->monitor) : 0;

	k->discard_armed = v->discard_armed;
	k->inhibit_until_ns = inhibit_ns ? now_ns() + inhibit_ns : 0;
	k->committed_ns = v->committed_ns;
	k->last = v->last;
	memcpy(k->alarm, v->alarm, sizeof(k->alarm));
}

static int take_card(struct card **ret, const struct volume_kept *k, unsigned i, const int *fd)
{
	return blockdev_take_over(ret, &k->card[i], fd, i);
}

/* The state that the process left in memory. */
static void take_state(struct volume *v)
{
	const struct volume_kept *k = v->kept;
	uint64_t now = now_ns();

	v->attached_s = k->attached_s;
	v->opened = k->opened;
	v->committed_room_blks = k->room_blks;
	v->discard_armed = k->discard_armed;
	v->committed_ns = k->committed_ns;
	v->last = k->last;
	v->last.report.profile = NULL;
	memcpy(v->alarm, k->alarm, sizeof(v->alarm) - 1); /* it may be half a text */
	v->last.why[sizeof(v->last.why) - 1] = '\0';
	v->diverged_lost = k->diverged &&
			   diverged_take_over(&v->diverged, v->store, v->volume_blks) < 0;
	v->lost_known = 0 - k->lost; /* modulo 2^64: the counters of this process begin at 0 */
	v->failed_below = view_layers_below(v->view) > 0;
	log_ledger(v->log)->attaches--; /* it is the same attach */
	if (k->inhibit_until_ns > now)
		monitor_inhibit(v->monitor, k->inhibit_until_ns - now);
}

/* What is in RAM belongs to the newest commit that the process before knew. On an older one, or on a
 * file system that was changed without cowfs, it would be a mixture. */
static int check_same_card(const struct volume *v, char *why, size_t n)
{
	const struct log_open_report *then = &v->kept->opened;

	if (v->opened.base_changed && !then->base_changed)
		return msg_why(why, n, -ESTALE, "%s: %s", v->device, v->opened.why);
	if (log_is_beyond(v->log, &v->kept->mark))
		return msg_why(why, n, -ESTALE, "%s: another system has committed to it",
			       v->device);
	if (log_newest(v->log)->seq < max_u64(then->newest.seq, v->kept->mark.newest))
		return msg_why(why, n, -EUCLEAN, "%s: the newest commit cannot be read any more",
			       v->device);
	return 0;
}

/* A record that depends on another log counts if the process before knew that it does. If not, RAM
 * still has its blocks, and the commit thread asks. */
static int open_kept_log(struct volume *v, char *why, size_t n)
{
	int r = open_log(v, LOG_JOINT_COUNTS, why, n);

	if (r < 0 || !v->opened.joint ||
	    v->opened.newest.seq == max_u64(v->kept->opened.newest.seq, v->kept->mark.newest))
		return r;
	log_close(v->log);
	v->log = NULL;
	return open_log(v, LOG_JOINT_UNDECIDED, why, n);
}

/* A read error may pass: the volume ends only if it does not. It also makes a commit seem missing. */
static int open_log_of_same_card(struct volume *v, char *why, size_t n)
{
	const struct timespec pause = { .tv_sec = 1 };
	int r;

	for (unsigned i = 0; i < TAKE_OVER_TRIES; i++) {
		if (i)
			nanosleep(&pause, NULL);
		r = open_kept_log(v, why, n);
		if (r == 0)
			r = check_same_card(v, why, n);
		if (r == 0 || r == -ESTALE)
			break;
		log_close(v->log);
		v->log = NULL;
		msg(MSG_WARN, "taking over: %s", CLEAN(why));
	}
	return r;
}

/*
 * Opens nothing by its name, and no block device: a sync(2) may hold a mutex of the volume's loop
 * device until this process serves.
 */
static int take_over(struct volume *v, const struct volume_params *p, char *why, size_t n)
{
	const int *fd = p->kept;
	struct monitor_params mp = { .fail = p->pressure_fails,
				     .halted = p->halted,
				     .retry_ns = p->full_ns };
	struct volume_kept *k;
	struct log_index *ix;
	struct ram_stack stack;
	bool committed;
	int r = ram_store_take_over(&v->store, fd + VOLUME_FD_STORE);

	if (r == 0)
		r = ram_store_share(v->store, "volume", sizeof(*v->kept), (void **)&v->kept);
	k = v->kept;
	if (r == 0)
		r = take_card(&v->base, k, 0, fd + VOLUME_FD_BASE);
	v->log_card = v->base;
	if (r == 0 && k->two_cards)
		r = take_card(&v->log_card, k, 1, fd + VOLUME_FD_LOG);
	if (r == 0 && fd[VOLUME_FD_LENT] >= 0)
		r = blockdev_adopt(&v->lent, fd[VOLUME_FD_LENT]);
	if (r < 0)
		return msg_why(why, n, r, "what the process kept cannot be used: %s", strerror(-r));
	v->have_kernel = card_counters(v->base, &v->kernel_at_open[0]) == 0 &&
			 (v->log_card == v->base ||
			  card_counters(v->log_card, &v->kernel_at_open[1]) == 0);
	r = open_log_of_same_card(v, why, n);
	if (r < 0)
		return r;
	/* a record that is only in the cache of the card does not count */
	committed = log_settle(v->log) == 0 && (k->durable || log_reached(v->log, &k->mark)) &&
		    !k->keeps;
	/* everything is committed, so what single files left behind is of the past */
	if (committed && ram_store_stack(v->store, &stack) == 0 && stack.sealed)
		k->diverged = false;
	v->choice = k->choice;
	take_profile(v, NULL);
	ix = log_index_of(v->log);
	r = view_adopt(&v->view, v->store, v->base, v->volume_blks, ix, committed);
	log_index_unref(ix);
	if (r < 0)
		return msg_why(why, n, r, "what the process kept in RAM cannot be used: %s",
			       strerror(-r));
	v->fs = k->fs;
	mp.plan = k->plan;
	mp.max_commit_ns = k->max_commit_ns;
	mp.times = &v->kept->times;
	mp.bound_dirty = k->bound_dirty;
	mp.stops = fs_ops(v->fs.kind)->crash_safe;
	mp.log_blks = log_capacity_blks(v->log);
	if (fs_ops(v->fs.kind)->counts_on_free)
		pressure_plan_room(&mp.plan, mp.room_blks = k->room_blks);
	if (rewrites_new(&v->rewrites, (size_t)min_u64(k->plan.limit_bytes / REWRITES_SHARE,
						       REWRITES_MAX_BYTES)) == 0)
		view_set_rewrites(v->view, v->rewrites);
	r = open_monitor(v, &mp, why, n);
	if (r == 0)
		r = open_snapshots(v, why, n);
	if (r == 0 && v->lent) {
		v->lent->before_write = snapshots_before_write;
		v->lent->before_write_ctx = v->snapshots;
	}
	if (r == 0)
		take_state(v);
	if (r == 0)
		memcpy(&v->bdi, fd + VOLUME_FD_BDI, sizeof(v->bdi));
	/* of a commit with --lend, whose client was not answered */
	if (r == 0)
		volume_return_lent(v);
	if (r == 0 && v->lent)
		volume_alarm(v, VOLUME_LENT_NEEDED);
	return r;
}

int volume_open(struct volume **ret, const struct volume_params *p, char *why, size_t why_bytes)
{
	struct volume *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return msg_why(why, why_bytes, -ENOMEM, "no memory");
	pthread_mutex_init(&v->lock, NULL);
	pthread_mutex_init(&v->scratch_lock, NULL);
	pthread_cond_init(&v->work, NULL);
	pthread_cond_init(&v->done, NULL);
	snprintf(v->name, sizeof(v->name), "%s", p->name);
	snprintf(v->device, sizeof(v->device), "%s", p->device);
	snprintf(v->log_device, sizeof(v->log_device), "%s", p->log_device ? p->log_device : "");
	v->loop_fd = -1;
	v->proc_dirfd = p->proc_dirfd;
	v->meminfo_fd = p->meminfo_fd;
	v->always_checkpoint = p->always_checkpoint;
	v->idle_checkpoint = p->idle_checkpoint;
	v->trim.weekly = p->trim_weekly;
	v->relief.compress = p->compress;
	v->relief.every_ns = p->relieve_ns ? p->relieve_ns : RELIEVE_NS;
	v->quiet_ns = p->quiet_ns ? p->quiet_ns : QUIET_NS;
	v->frozen = p->frozen;
	v->frozen_ctx = p->frozen_ctx;
	v->attached_s = (uint64_t)time(NULL);
	v->halted = p->halted;
	v->changed = p->changed;
	v->changed_ctx = p->changed_ctx;
	v->bdi = BDI_LIMIT_CLOSED;
	v->taken_over_ns = p->kept ? now_ns() : 0;
	r = p->kept ? take_over(v, p, why, why_bytes) : open_all(v, p, why, why_bytes);
	if (r == 0)
		log_set_mark(v->log, &v->kept->mark);
	if (r < 0) {
		volume_close(v);
		return r;
	}
	/* it only needs less RAM with it */
	if (v->relief.compress && ram_store_compress(v->store) < 0) {
		v->relief.compress = false;
		msg(MSG_WARN, "%s: no memory for compress: nothing is compressed", v->name);
	}
	volume_publish_log(v);
	if (v->super_trouble & SUPER_COPIES_BAD)
		volume_alarm(v, "one superblock of the log is damaged");
	if (v->super_trouble & SUPER_GROWN)
		msg(MSG_NOTICE, "%s has grown since it was formatted", v->device);
	if (v->opened.state == LOG_FOREIGN)
		volume_alarm(v,
			     "%s; its log is set aside and nothing will be committed: detach, then "
			     "decide with cowctl recover --accept-base or --accept-log",
			     v->opened.why);
	else if (v->opened.base_changed)
		msg(MSG_NOTICE,
		    "%s: was changed without cowfs; its log was empty, so the change is accepted",
		    v->device);
	if (v->opened.clone)
		msg(MSG_NOTICE,
		    "%s: this log was written on another card: its wear ledger restarts",
		    v->device);
	if (v->opened.state == LOG_FELL_BACK)
		msg(MSG_NOTICE,
		    "%s: the newest commit is incomplete (%s); the previous generation is used",
		    v->name, v->opened.why);
	if (v->opened.loader_wrote)
		msg(MSG_NOTICE,
		    "%s: the boot loader has changed its environment block since the last commit; "
		    "the change is kept",
		    v->name);
	if (fsinfo_is_frozen(&v->fs, v->always_checkpoint))
		msg(MSG_NOTICE,
		    "%s: each commit freezes the %s for a moment; a program can delay one by seconds",
		    v->name, v->fs.type);
	*ret = v;
	return 0;
}

void volume_close(struct volume *v)
{
	if (!v)
		return;
	monitor_free(v->monitor);
	log_close(v->log);
	snapshots_free(v->snapshots);
	diverged_free(v->diverged);
	scratch_unref(v->scratch);
	if (v->view)
		view_free(v->view);
	rewrites_free(v->rewrites);
	if (v->kept)
		munmap(v->kept, sizeof(*v->kept));
	ram_store_close(v->store);
	card_close(v->lent);
	if (v->log_card != v->base)
		card_close(v->log_card);
	card_close(v->base);
	free(v->wear);
	pthread_mutex_destroy(&v->lock);
	pthread_mutex_destroy(&v->scratch_lock);
	pthread_cond_destroy(&v->work);
	pthread_cond_destroy(&v->done);
	free(v);
}

struct view *volume_view(struct volume *v)
{
	return v->view;
}

struct throttle *volume_throttle(struct volume *v)
{
	return monitor_throttle(v->monitor);
}

/* ---- the commit thread ---- */

static void set_life(struct volume *v, enum volume_life to)
{
	if (INVARIANT("volume life", to == v->life + 1))
		v->life = to;
}

/* Is its result that of the last commit? */
static bool is_commit(enum volume_job job)
{
	return job == JOB_COMMIT || job == JOB_DETACH || job == JOB_COMMIT_SCRATCH;
}

static void *commit_thread(void *arg)
{
	struct volume *v = arg;

	log_wear_load(v->log);
	if (!v->taken_over_ns && log_wear(v->log))
		monitor_remember(v->monitor, log_wear(v->log));
	if (log_undecided(v->log))
		(void)!volume_decide(v);
	volume_publish_log(v);
	log_relax(v->log);
	pthread_mutex_lock(&v->lock);
	for (;;) {
		struct ticket *t;
		uint64_t commits;

		while (!v->queue && v->life != VOLUME_STOPPING)
			pthread_cond_wait(&v->work, &v->lock);
		if (!v->queue)
			break;
		t = v->queue;
		v->queue = t->next;
		v->busy = true;
		v->idling = t == &v->idle.t || t->rq->job == JOB_TRIM;
		commits = log_ledger(v->log)->commits;
		pthread_mutex_unlock(&v->lock);
		v->progress.start_ns = now_ns();
		v->progress.done_blks = v->progress.total_blks = 0;
		/* a pass has no phases, and no command waits for one */
		v->progress.job = t->rq->job == JOB_RELIEVE ? JOB_NONE : (int)t->rq->job;
		account_check(v); /* I/O since the last job goes into the records of this job */
		volume_do(v, t->rq, t->res);
		account_check(v);
		volume_publish_log(v);
		if (log_ledger(v->log)->commits != commits) {
			v->committed_ns = now_ns();
			v->idle_failed = false;
		}
		/* memory of a large commit stays locked until it is returned */
		malloc_trim(0);
		log_relax(v->log);
		v->progress.job = JOB_NONE;
		pthread_mutex_lock(&v->lock);
		if (is_commit(t->rq->job) && !t->res->not_begun)
			v->last = *t->res;
		volume_keep_state(v);
		v->busy = v->idling = false;
		t->done = true;
		pthread_cond_broadcast(&v->done);
	}
	pthread_mutex_unlock(&v->lock);
	return NULL;
}

int volume_start(struct volume *v, int loop_fd, dev_t loop_rdev, const char *loop_path)
{
	int r;

	v->loop_fd = loop_fd;
	v->loop_rdev = loop_rdev;
	snprintf(v->loop_path, sizeof(v->loop_path), "%s", loop_path);
	r = -pthread_create(&v->thread, NULL, commit_thread, v);
	if (r == 0)
		set_life(v, VOLUME_RUNNING);
	return r < 0 ? r : monitor_start(v->monitor, loop_rdev, v->taken_over_ns ? &v->bdi : NULL);
}

void volume_set_loop_fd(struct volume *v, int loop_fd)
{
	v->loop_fd = loop_fd;
}

void volume_stop(struct volume *v)
{
	if (v->life != VOLUME_RUNNING)
		return;
	monitor_stop(v->monitor);
	pthread_mutex_lock(&v->lock);
	set_life(v, VOLUME_STOPPING);
	pthread_cond_signal(&v->work);
	pthread_mutex_unlock(&v->lock);
	pthread_join(v->thread, NULL);
	set_life(v, VOLUME_STOPPED);
}

/* Lock held. 0, or the reason why a job is not even queued. */
static int refuse(struct volume *v, const struct volume_request *rq, char *why, size_t n)
{
	if (v->life >= VOLUME_STOPPING)
		return msg_why(why, n, -ESHUTDOWN, "the volume is being detached");
	if (rq->no_wait && volume_works(v))
		return msg_why(why, n, -EBUSY, "another commit is under way");
	if (rq->cause == CAUSE_TIMER && monitor_inhibit_left_ns(v->monitor))
		return msg_why(why, n, -EBUSY, "timer commits are inhibited");
	return 0;
}

int volume_run(struct volume *v, const struct volume_request *rq, struct volume_result *ret)
{
	struct ticket t = { .rq = rq, .res = ret };

	*ret = (struct volume_result){ .job = rq->job };
	pthread_mutex_lock(&v->lock);
	ret->error = refuse(v, rq, ret->why, sizeof(ret->why));
	if (!ret->error) {
		volume_enqueue(v, &t);
		while (!t.done)
			pthread_cond_wait(&v->done, &v->lock);
	}
	pthread_mutex_unlock(&v->lock);
	return ret->error;
}

void volume_inhibit(struct volume *v, uint64_t ns)
{
	monitor_inhibit(v->monitor, ns);
	pthread_mutex_lock(&v->lock);
	volume_keep_state(v);
	pthread_mutex_unlock(&v->lock);
}

void volume_arm_discard(struct volume *v, bool armed)
{
	v->discard_armed = armed;
	pthread_mutex_lock(&v->lock);
	volume_keep_state(v);
	pthread_mutex_unlock(&v->lock);
	monitor_wake(v->monitor);
}

void volume_end_view(struct volume *v, struct snapshot *s)
{
	snapshot_end(s);
	snapshots_remove(v->snapshots, s);
	snapshot_unref(s);
	monitor_wake(v->monitor);
}

void volume_end_scratch(struct volume *v, struct scratch *s)
{
	bool last;

	scratch_end(s);
	pthread_mutex_lock(&v->scratch_lock);
	last = v->scratch == s;
	if (last)
		v->scratch = NULL;
	pthread_mutex_unlock(&v->scratch_lock);
	if (last)
		scratch_unref(s);
	scratch_unref(s);
	monitor_wake(v->monitor);
}

/* ---- status ---- */

void volume_publish_log(struct volume *v)
{
	struct wear_ledger totals;
	struct log_index *ix = log_index_of(v->log);

	log_totals(v->log, &totals);
	pthread_mutex_lock(&v->lock);
	v->totals = totals;
	/* together with the totals, so that a reader gets both of one moment */
	account_copy_wear(v);
	log_public_id(v->log, v->log_id); /* the first commit chooses the uuid */
	v->generation = log_ledger(v->log)->commits;
	v->newest_seq = log_newest(v->log)->seq;
	v->newest_s = log_newest(v->log)->time_s;
	v->holds = log_holds(v->log, &v->hold);
	v->live_blks = log_index_data_blks(ix) + log_index_zero_blks(ix);
	v->guarded = log_guarded(v->log);
	v->super_trouble = log_super_trouble(v->log);
	v->room_blks = log_room_blks(v->log);
	v->capacity_blks = log_capacity_blks(v->log);
	pthread_mutex_unlock(&v->lock);
	log_index_unref(ix);
}

static void pressure_status(struct volume *v, struct volume_status *s)
{
	struct monitor_status m;

	monitor_status(v->monitor, &m);
	s->ram_limit_bytes = m.plan.limit_bytes;
	s->pressure = (struct volume_pressure){
		.level = m.level,
		.fails = m.fail,
		.gave_up = m.gave_up,
		.hard_bytes = pressure_hard_bytes(&m.plan),
		.journal_bytes = m.plan.journal_bytes,
		.dirty_bytes = m.plan.dirty_bytes,
		.slack_bytes = m.plan.slack_bytes,
		.rate_bytes_per_s = m.rate_bytes_per_s,
		.throttle = m.throttle,
		.commits = m.commits,
		.inhibit_left_ns = m.inhibit_left_ns,
		.commit_ns = m.commit_ns,
		.max_commit_ns = m.max_commit_ns,
		.too_slow = m.too_slow,
	};
}

void volume_get_status(struct volume *v, struct volume_status *ret)
{
	struct generation_stats active, below;
	struct ram_usage ram;
	bool readonly;

	memset(ret, 0, sizeof(*ret));
	memcpy(ret->name, v->name, sizeof(ret->name));
	memcpy(ret->device, v->device, sizeof(ret->device));
	memcpy(ret->log_device, v->log_device, sizeof(ret->log_device));
	memcpy(ret->loop, v->loop_path, sizeof(ret->loop));
	memcpy(ret->fs_type, v->fs.type, sizeof(ret->fs_type));
	memcpy(ret->identity, v->base->geo.identity, sizeof(ret->identity));
	if (v->loop_fd >= 0 && quiesce_find_mount(v->proc_dirfd, v->loop_rdev, ret->mountpoint,
						  sizeof(ret->mountpoint), &readonly) <= 0)
		ret->mountpoint[0] = '\0';
	ret->volume_bytes = blk_to_bytes(v->volume_blks);
	ret->discard_armed = v->discard_armed;
	ret->halted = v->halted;
	ram_store_usage(v->store, &ram);
	pressure_status(v, ret);
	ret->ram_used_bytes = ram.used_bytes;
	view_dirty(v->view, &active, &below);
	ret->dirty_blks = active.data_blks + below.data_blks;
	ret->hole_blks = active.hole_blks + below.hole_blks;
	ret->compress = v->relief.compress;
	ret->packed_blks = active.packed_blks + below.packed_blks;
	ret->packed_bytes = active.packed_bytes + below.packed_bytes;
	ret->forgotten_blks = v->relief.forgotten_blks;
	ret->readonly = v->opened.state == LOG_FOREIGN;
	ret->base_changed = v->opened.base_changed;
	ret->clone = v->opened.clone;
	ret->log_state_at_attach = v->opened.state;
	ret->lag = log_super(v->log)->lag;
	snprintf(ret->profile, sizeof(ret->profile), "%s", v->price_by ? v->price_by->id : "none");
	ret->profile_guessed = v->price_by && v->price_by->guessed;
	ret->profile_of_another = v->choice.of_another;
	ret->profile_plans = v->profile != NULL;
	ret->attached_s = v->attached_s;
	view_counters(v->view, &ret->counters);
	ret->counters.write_errors += ret->pressure.throttle.refused;
	account_card_status(v, ret);
	snapshots_status(v->snapshots, &ret->views);
	trim_status(v, &ret->trim);
	volume_get_progress(v, &ret->progress);
	pthread_mutex_lock(&v->lock);
	ret->super_trouble = v->super_trouble;
	ret->log_live_blks = v->live_blks;
	ret->log_room_blks = v->room_blks;
	ret->log_capacity_blks = v->capacity_blks;
	memcpy(ret->log_id, v->log_id, sizeof(ret->log_id));
	ret->generation = v->generation;
	ret->holds = v->holds;
	ret->hold = v->hold;
	ret->newest_seq = v->newest_seq;
	ret->newest_s = v->newest_s;
	ret->ledger = v->totals;
	ret->last = v->last;
	/* also while the commit is retried */
	ret->failed_blks = v->failed_below ? below.data_blks : 0;
	memcpy(ret->alarm, v->alarm, sizeof(ret->alarm));
	pthread_mutex_unlock(&v->lock);
	if (invariant_broken())
		snprintf(ret->alarm, sizeof(ret->alarm),
			 "internal error: rule %s violated; no more writes to the card, and "
			 "uncommitted changes exist in RAM only",
			 invariant_broken());
	if (v->halted && !ret->alarm[0])
		snprintf(
			ret->alarm, sizeof(ret->alarm),
			"the daemon has died several times: writes fail, and only a commit by hand "
			"is made");
	if (ret->pressure.throttle.full_errors && !ret->alarm[0])
		snprintf(ret->alarm, sizeof(ret->alarm),
			 "%llu writes failed: RAM was full and no commit was possible",
			 (unsigned long long)ret->pressure.throttle.full_errors);
	if (ret->foreign_bytes && !ret->alarm[0])
		account_foreign_text(ret, ret->alarm, sizeof(ret->alarm));
}
