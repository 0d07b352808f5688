// SPDX-License-Identifier: MIT
/*
 * Notes on the design
 * - A process of its own, beside the supervisor: that one stays as small as it is, and a volume whose
 *   supervisor was killed can still commit.
 * - It is forked before the worker reads anything of a card. What it acts on are descriptors from then:
 *   no message names a device, a path or a process. So a worker that was taken over can ask for the
 *   same calls as before, on its own volume.
 * - A worker that takes over gives its broker what the supervisor keeps, before it drops its privileges. That came from the first
 *   worker while it was root, and from brokers. The numbers of card and disk are compared with the facts all the same, and the
 *   disk's file with the label.
 * - It opens nothing by a path that begins at the root but what limits dirty pages (export/bdi.c).
 * - A worker that was taken over must not use up processors as root, or let the system see a storm of
 *   syncs and disks. So calls cost time (allowance.h).
 */
#include "daemon/broker_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/allowance.h"
#include "base/holder.h"
#include "base/io.h"
#include "base/msg.h"
#include "base/thread.h"
#include "card/find.h"
#include "daemon/confine.h"
#include "daemon/harden.h"
#include "daemon/link.h"
#include "export/bdi.h"
#include "export/disk_serve.h"
#include "fs/free_space.h"
#include "fs/fsproc.h"
#include "fs/find_mount.h"
#include "fs/quiesce.h"
#include "ram/generation.h"
#include "wire/rundir.h"

#define STACK_BYTES MIB /* a session parses on a copy of one */
#define OFFERS 2	/* of one that is looked at, and the best so far */

static struct {
	struct broker_facts f;
	int lane_fd[BROKER_LANES];
	struct disk_serve disk; /* disk_lock */
	_Atomic dev_t device;	/* of the disk; 0: there is none */
	pthread_mutex_t disk_lock, run_lock, limit_lock;
	/* limit_lock */
	struct bdi_limit limit;
	bool detaches;
	bool released; /* run_lock, with the folders in /run */
	/* devices that the worker looks at */
	struct offer {
		struct find_result found;
		int fd[BLOCKDEV_FDS];
	} offer[OFFERS];
	bool stale; /* run_lock: the facts are not in /run yet, which was full */
	pid_t worker;
	/* of the store: what root allowed, thrice for journal and slack, and dirty pages */
	uint64_t most_bytes;
} own = { .disk_lock = PTHREAD_MUTEX_INITIALIZER,
	  .run_lock = PTHREAD_MUTEX_INITIALIZER,
	  .limit_lock = PTHREAD_MUTEX_INITIALIZER,
	  .limit = { -1, -1, -1, -1, false } };

/* ---- the file system ---- */

static dev_t device(void)
{
	return own.device;
}

static void note_device(void)
{
	own.device = own.disk.have_loop ? own.disk.loop.rdev : 0;
}

/* ---- what the supervisor keeps ---- */

/* Without a supervisor nothing is kept. */
static void keep(unsigned slot, const int *fd, unsigned n)
{
	int all[SUPERVISOR_KEPT_MAX];

	if (own.f.keep_fd < 0)
		return;
	for (unsigned i = 0; i < SUPERVISOR_KEPT_MAX; i++)
		all[i] = i >= slot && i < slot + n ? fd[i - slot] : -1;
	(void)!supervisor_keep(own.f.keep_fd, all, 0);
}

/* Before this process closes them: its close, not that of the supervisor, is the one that may wait for the worker. */
static void keep_no_more(uint32_t slots)
{
	if (own.f.keep_fd >= 0)
		(void)!supervisor_keep(own.f.keep_fd, NULL, slots);
}

/* ---- */

/* A descriptor for the caller: a detach closes that of the loop device at any moment. */
static int open_disk(void)
{
	LOCKED(&own.disk_lock);
	return device() ? fcntl(own.disk.loop.fd, F_DUPFD_CLOEXEC, 3) : -1;
}

static int flush(struct broker_message *m)
{
	_cleanup_close_ int fd = open_disk();

	return fd < 0 ? -ENODEV
		      : disk_sync(own.f.proc_dirfd, own.f.sys_dirfd, device(), fd,
				  m->n[0] ? SYNC_FSYNC : SYNC_FLUSH);
}

static int look_for_claim(struct broker_message *m)
{
	_cleanup_close_ int fd = open_disk();
	bool mounted = false, claimed = fd >= 0 && disk_claimed(own.f.proc_dirfd, own.f.sys_dirfd,
								device(), fd, &mounted);

	m->n[0] = mounted;
	return claimed;
}

static int tell_mount(struct broker_message *m)
{
	bool readonly = false;
	int r;

	m->data[0] = '\0';
	r = device() ? find_mount(own.f.proc_dirfd, device(), m->data, PATH_MAX, &readonly) : 0;
	m->n[0] = readonly;
	m->bytes = (uint32_t)strlen(m->data);
	return r;
}

static int find_holder(struct broker_message *m)
{
	bool found;

	m->data[0] = '\0';
	found = device() && holder_find(own.f.proc_dirfd, device(), m->data, 64);
	m->bytes = (uint32_t)strlen(m->data);
	return found;
}

/* ---- processes ---- */

static int start_session(struct broker_message *m, int ret_fd[BROKER_FDS])
{
	pid_t pid = 0;

	ret_fd[0] = fsproc_fork(own.f.proc_dirfd, own.f.keep_root, &pid);
	m->n[0] = (uint64_t)pid;
	return ret_fd[0] < 0 ? ret_fd[0] : 0;
}

static int end_session(struct broker_message *m)
{
	return m->n[0] <= INT_MAX ? fsproc_reap((pid_t)m->n[0]) : -EPERM;
}

/* ---- /run ---- */

static int publish(struct broker_message *m)
{
	const struct rundir d = { own.f.run_parent_fd, own.f.run_fd, -1, "" };
	int r = -ESHUTDOWN;

	pthread_mutex_lock(&own.run_lock);
	if (!own.released && own.stale)
		own.stale = facts_write(&d, &own.f.root->facts) < 0;
	if (!own.released)
		r = m->n[0] ? rundir_publish_pid(&d, own.worker)
			    : rundir_publish_status(&d, m->data, m->bytes);
	pthread_mutex_unlock(&own.run_lock);
	m->bytes = 0;
	return r;
}

static int note_fact(enum fact which, const char *path, dev_t rdev, uint64_t bytes)
{
	const struct rundir d = { own.f.run_parent_fd, own.f.run_fd, -1, "" };
	int r = -ESHUTDOWN;

	LOCKED(&own.run_lock);
	facts_set(&own.f.root->facts, which, path, rdev, bytes);
	if (!own.released)
		r = facts_write(&d, &own.f.root->facts);
	own.stale = r < 0;
	return r;
}

/* Whoever clears up behind dead processes knows it before there is one. Whether it is ours, its label says. */
static int note_loop(const char *path, dev_t rdev)
{
	return note_fact(FACT_LOOP, path, rdev, 0);
}

static int note_disk(void)
{
	return note_loop(device() ? own.disk.loop.path : NULL, device());
}

static bool release_run(void)
{
	struct rundir d = { own.f.run_parent_fd, own.f.run_fd, -1, "" };
	bool first;

	pthread_mutex_lock(&own.run_lock);
	first = !own.released;
	own.released = true;
	pthread_mutex_unlock(&own.run_lock);
	if (!first)
		return false;
	snprintf(d.name, sizeof(d.name), "%s", own.f.name);
	unlinkat(d.fd, BROKER_SOCKET_NEW, 0);
	rundir_release(&d);
	return true;
}

/* Everything that keeps the card or the disk in use. */
static int release(struct broker_message *m)
{
	(void)m;
	if (!release_run())
		return -EALREADY;
	keep_no_more(SUPERVISOR_ALL);
	cleanup_closep(&own.f.card_fd[0]);
	cleanup_closep(&own.f.card_fd[1]);
	cleanup_closep(&own.f.stat_fd[0]);
	cleanup_closep(&own.f.stat_fd[1]);
	cleanup_closep(&own.f.store_fd);
	cleanup_closep(&own.f.side_fd);
	pthread_mutex_lock(&own.disk_lock);
	disk_serve_close(&own.disk);
	note_device();
	pthread_mutex_unlock(&own.disk_lock);
	return 0;
}

/* ---- serving ---- */

static int limit_dirty(struct broker_message *m)
{
	int r = 0;

	LOCKED(&own.limit_lock);
	if (own.detaches || !device())
		return -ENODEV;
	if (own.limit.max_bytes_fd < 0)
		r = bdi_limit_open(&own.limit, device());
	return r < 0 ? r : bdi_limit_set(&own.limit, m->n[0]);
}

/* The limit is lifted while the number is still ours. */
static void set_detaches(bool on)
{
	LOCKED(&own.limit_lock);
	own.detaches = on;
	if (on)
		bdi_limit_close(&own.limit);
}

static int serve_disk(struct broker_message *m, int ret_fd[BROKER_FDS])
{
	pthread_mutex_lock(&own.disk_lock);
	if (m->op == BROKER_DETACH) {
		set_detaches(true);
		keep_no_more(UINT32_C(1) << own.f.disk_slot);
	}
	disk_serve(&own.disk, m, ret_fd);
	note_device();
	if (own.disk.have_loop && m->op != BROKER_IN_USE) {
		keep(own.f.disk_slot, &own.disk.loop.fd, 1);
		set_detaches(false);
	}
	if (m->op == BROKER_DETACH || (m->op == BROKER_ATTACH && m->result < 0))
		(void)!note_disk();
	pthread_mutex_unlock(&own.disk_lock);
	return m->result;
}

static int free_bytes(struct broker_message *m)
{
	m->n[0] = device() ? free_space_now(own.f.proc_dirfd, device()) : UINT64_MAX;
	return 0;
}

static int set_writable(struct broker_message *m)
{
	uint64_t card = m->n[0];

	return card < 2 && own.f.card_fd[card] >= 0
		       ? blockdev_fd_set_writable(own.f.card_fd[card], m->n[1])
		       : -EBADF;
}

static int resize(struct broker_message *m)
{
	return own.f.store_fd < 0	  ? -EBADF
	       : m->n[0] > own.most_bytes ? -EINVAL
					  : ram_store_resize_mount(own.f.store_fd, m->n[0]);
}

/* ---- a card that is away ---- */

/*
 * By which bytes a device is the card: those at fixed places of one block. No worker can have written them to another device. The
 * first row is the superblock of a log: uuid of the file system and time of formatting, and the uuid of the ring if it had one. The
 * others are uuids, at last serial numbers and labels, of a base whose log is on another device. What says whose it is comes first: a card
 * whose field is plain has no mark, and is not found again.
 */
static const struct mark {
	const char *magic;
	struct {
		unsigned at, bytes;
	} place, same[2];
} marks[] = {
	{ "COWFSSUP", { 0, 8 }, { { 152, 24 }, { 16, 16 } } },
	{ "_BHRfS_M", { 64, 8 }, { { 32, 16 } } },
	{ "\x53\xef", { 1080, 2 }, { { 1128, 16 } } },
	{ "XFSB", { 0, 4 }, { { 32, 16 } } },
	{ "\x10\x20\xf5\xf2", { 1024, 4 }, { { 1132, 16 } } },
	{ "\x34\x34", { 1030, 2 }, { { 1176, 16 } } },
	{ "FAT32   ", { 82, 8 }, { { 67, 4 }, { 71, 11 } } },
	{ "FAT1", { 54, 4 }, { { 39, 4 }, { 43, 11 } } },
	{ "NTFS    ", { 3, 8 }, { { 72, 8 } } },
};

static bool is_plain(const uint8_t *p, unsigned bytes)
{
	return !bytes || (p[0] == 0 && !memcmp(p, p + 1, bytes - 1));
}

/* NULL: nothing in it says whose it is. */
static const struct mark *mark_of(const uint8_t *blk, bool of_log)
{
	for (const struct mark *m = marks + !of_log; m < marks + (of_log ? 1 : ARRAY_SIZE(marks));
	     m++)
		if (!memcmp(blk + m->place.at, m->magic, m->place.bytes))
			return is_plain(blk + m->same[0].at, m->same[0].bytes) ? NULL : m;
	return NULL;
}

static bool holds_log(unsigned card)
{
	return card || own.f.card_fd[1] < 0;
}

/* One lane asks. NULL: it cannot be read */
static const uint8_t *read_block(int fd, uint64_t at_bytes)
{
	static _Alignas(COW_BLK_BYTES) uint8_t blk[COW_BLK_BYTES];

	return pread(fd, blk, sizeof(blk), (off_t)at_bytes) == sizeof(blk) ? blk : NULL;
}

/* 1, 0 or -errno */
static int is_card(const struct find *f, int fd)
{
	const struct broker_card *c = (const struct broker_card *)f;
	const struct mark *m = mark_of(c->blk, holds_log((unsigned)(c - own.f.root->card)));
	bool same = false;

	for (unsigned i = 0; m && !same && i < ARRAY_SIZE(c->place); i++) {
		const uint8_t *blk = read_block(fd, c->place[i]);

		if (!blk)
			return -EIO;
		same = !memcmp(blk + m->place.at, m->magic, m->place.bytes);
		for (unsigned k = 0; k < ARRAY_SIZE(m->same); k++) {
			const uint8_t *was = c->blk + m->same[k].at;

			same &= is_plain(was, m->same[k].bytes) ||
				!memcmp(blk + m->same[k].at, was, m->same[k].bytes);
		}
	}
	return same;
}

/* At the attach. What the worker says is the place only. */
static int know(struct broker_message *m)
{
	unsigned card = m->n[0] != 0;
	struct broker_card *c = &own.f.root->card[card];
	bool of_log = holds_log(card);

	if (c->known || own.f.card_fd[card] < 0)
		return -EALREADY;
	for (unsigned i = 0; i < 2; i++)
		c->place[i] = of_log ? m->n[1 + i] : i * 64 * KIB;
	for (unsigned i = 0; i < 2 && !c->known; i++) {
		const uint8_t *blk = read_block(own.f.card_fd[card], c->place[i]);

		c->known = blk && mark_of(blk, of_log);
		if (c->known)
			memcpy(c->blk, blk, sizeof(c->blk));
	}
	return c->known ? 0 : -ENOENT;
}

static void init_card(unsigned card)
{
	struct find *f = &own.f.root->card[card].find;

	f->dev_dirfd = own.f.dev_dirfd;
	f->sys_dirfd = own.f.sys_dirfd;
	f->is_it = is_card;
	if (!f->size_bytes && own.f.card_fd[card] >= 0 && find_init(f, own.f.card_fd[card]) < 0)
		f->size_bytes = 0;
}

static void end_offer(struct offer *o)
{
	if (o->fd[0] >= 0)
		(void)!blockdev_fd_set_writable(o->fd[0], !o->found.readonly);
	for (unsigned i = 0; i < BLOCKDEV_FDS; i++)
		cleanup_closep(&o->fd[i]);
	o->found.number = 0;
}

/* Not while the card is there. */
static int search(struct broker_message *m, int ret_fd[BROKER_FDS])
{
	uint64_t card = m->n[0], i = m->n[1];
	struct offer *o = own.offer;
	struct find *f;
	int r;

	m->bytes = 0;
	if (card >= 2 || own.f.card_fd[card] < 0 || !own.f.root->card[card].known || i > UINT_MAX)
		return -EBADF;
	if (!blockdev_gone(own.f.card_fd[card], own.f.stat_fd[card]))
		return -EBUSY;
	while (o < own.offer + OFFERS - 1 && o->found.number)
		o++;
	end_offer(o);
	f = &own.f.root->card[card].find;
	r = find_next(f, (unsigned)i, &o->found, o->fd);
	memcpy(m->data, &o->found, sizeof(o->found));
	m->bytes = sizeof(o->found);
	if (r == 0 && o->found.error == -ESTALE)
		find_skip(f, o->found.number);
	for (unsigned k = 0; r == 0 && k < BLOCKDEV_FDS; k++)
		ret_fd[k] = o->fd[k] < 0 ? -1 : fcntl(o->fd[k], F_DUPFD_CLOEXEC, 3);
	if (r < 0 || o->fd[0] < 0)
		end_offer(o);
	return r;
}

static int end_search(struct broker_message *m)
{
	uint64_t card = m->n[0];
	const enum fact which = card ? FACT_LOG_DEVICE : FACT_DEVICE;
	char path[sizeof("/dev/") + sizeof(own.offer->found.name)];
	struct offer *o = own.offer;

	while (o < own.offer + OFFERS && (!m->n[2] || o->found.number != m->n[2]))
		o++;
	if (card >= 2 || own.f.card_fd[card] < 0 || o == own.offer + OFFERS)
		return -EBADF;
	if (m->n[1] != FOUND_CARD || !blockdev_gone(own.f.card_fd[card], own.f.stat_fd[card])) {
		if (m->n[1] == FOUND_STRANGER)
			find_skip(&own.f.root->card[card].find, o->found.number);
		end_offer(o);
		return m->n[1] == FOUND_CARD ? -EBUSY : 0;
	}
	own.f.root->card[card].before = own.f.root->facts.device[which].rdev;
	cleanup_closep(&own.f.card_fd[card]);
	cleanup_closep(&own.f.stat_fd[card]);
	keep(own.f.card_slot[card], o->fd, BLOCKDEV_FDS);
	own.f.card_fd[card] = steal_fd(&o->fd[0]);
	own.f.stat_fd[card] = steal_fd(&o->fd[2]);
	snprintf(path, sizeof(path), "/dev/%s", o->found.name);
	(void)!note_fact(which, path, (uint32_t)o->found.number,
			 own.f.root->facts.device[which].bytes);
	end_offer(o);
	return 0;
}

/* A client that finds the socket also finds the status, and with it the disk. */
static int listen_anew(struct broker_message *m)
{
	int r;

	(void)m;
	pthread_mutex_lock(&own.disk_lock);
	r = note_disk();
	pthread_mutex_unlock(&own.disk_lock);
	if (r == 0 && renameat(own.f.run_fd, BROKER_SOCKET_NEW, own.f.run_fd, RUNDIR_SOCKET) < 0)
		r = -errno;
	return r;
}

static int tell_limits(struct broker_message *m)
{
	m->n[0] = bdi_can_limit();
	m->n[1] = global_dirty_bytes();
	return 0;
}

/*
 * On which lane does a call come? One that may wait must not make the quick ones wait. What does it cost beside the
 * processor time that it takes? Its function returns the result; ret_fd of one that opens files is closed after the
 * answer.
 */
static const struct call {
	enum broker_lane lane;
	unsigned cost_us;
	int (*run)(struct broker_message *m);
	int (*open)(struct broker_message *m, int ret_fd[BROKER_FDS]);
} calls[BROKER_OPS] = {
	[BROKER_WRITABLE] = { BROKER_MAIN, 1000, .run = set_writable },
	[BROKER_BDI_CAN] = { BROKER_MAIN, 1000, .run = tell_limits },
	[BROKER_LIMIT] = { BROKER_LOOK, 1000, .run = limit_dirty },
	[BROKER_RESIZE] = { BROKER_MAIN, 1000, .run = resize },
	[BROKER_FILE] = { BROKER_MAIN, 20000, .open = serve_disk },
	[BROKER_ATTACH] = { BROKER_MAIN, 20000, .open = serve_disk },
	[BROKER_DETACH] = { BROKER_MAIN, 20000, .open = serve_disk },
	[BROKER_IN_USE] = { BROKER_LOOK, 1000, .open = serve_disk },
	[BROKER_FLUSH] = { BROKER_SYNC, 20000, .run = flush },
	[BROKER_CLAIMED] = { BROKER_LOOK, 1000, .run = look_for_claim },
	[BROKER_FIND_MOUNT] = { BROKER_LOOK, 1000, .run = tell_mount },
	[BROKER_HOLDER] = { BROKER_LOOK, 1000, .run = find_holder },
	[BROKER_FREE_BYTES] = { BROKER_SPACE, 1000, .run = free_bytes },
	[BROKER_SESSION] = { BROKER_READ, 4000, .open = start_session },
	[BROKER_END] = { BROKER_READ, 0, .run = end_session },
	[BROKER_PUBLISH] = { BROKER_LOOK, 1000, .run = publish },
	[BROKER_LISTEN] = { BROKER_MAIN, 1000, .run = listen_anew },
	[BROKER_RELEASE] = { BROKER_MAIN, 1000, .run = release },
	[BROKER_KNOW] = { BROKER_MAIN, 1000, .run = know },
	[BROKER_SEARCH] = { BROKER_MAIN, 1000, .open = search },
	[BROKER_FOUND] = { BROKER_MAIN, 1000, .run = end_search },
};

/* Makes the next call of this lane wait if there were many, or until the worker is gone. */
static void limit(struct allowance *a, int sock_fd, uint64_t used_ns)
{
	struct pollfd p = { .fd = sock_fd };
	uint64_t wait_ns = allowance_use(a, now_ns(), used_ns);

	if (wait_ns)
		(void)!poll(&p, 1, (int)min_u64(wait_ns / 1000000 + 1, INT_MAX));
}

static void serve(enum broker_lane lane)
{
	int sock_fd = own.lane_fd[lane], fd[BROKER_FDS], ret_fd[BROKER_FDS];
	struct allowance allowance = { 0 };
	struct broker_message m;

	while (broker_receive(sock_fd, &m, fd) == 1) {
		const struct call *c = m.op < BROKER_OPS && calls[m.op].lane == lane ? &calls[m.op]
										     : NULL;
		uint64_t used_ns = c ? c->cost_us * 1000ull : 1000000, cpu_ns = cpu_now_ns();

		for (unsigned i = 0; i < BROKER_FDS; i++)
			ret_fd[i] = -1;
		m.result = c && c->open ? c->open(&m, ret_fd) : c && c->run ? c->run(&m) : -EPROTO;
		for (unsigned i = 0; i < BROKER_FDS; i++)
			cleanup_closep(&fd[i]);
		if (broker_send(sock_fd, &m, ret_fd) < 0)
			break;
		for (unsigned i = 0; i < BROKER_FDS; i++)
			cleanup_closep(&ret_fd[i]);
		limit(&allowance, sock_fd, used_ns + 2 * (cpu_now_ns() - cpu_ns));
	}
}

static void *lane_main(void *arg)
{
	serve((enum broker_lane)(uintptr_t)arg);
	return NULL;
}

static __attribute__((noreturn)) void broker_main(int null_fd)
{
	const struct broker_facts *f = &own.f;
	const int keep[] = { f->proc_dirfd,
			     f->dev_dirfd,
			     f->sys_dirfd,
			     f->card_fd[0],
			     f->card_fd[1],
			     f->stat_fd[0],
			     f->stat_fd[1],
			     f->store_fd,
			     f->side_fd,
			     f->run_fd,
			     f->run_parent_fd,
			     own.disk.mount_fd,
			     f->abort_fd,
			     f->keep_fd,
			     f->kmsg_fd,
			     own.lane_fd[0],
			     own.lane_fd[1],
			     own.lane_fd[2],
			     own.lane_fd[3],
			     own.lane_fd[4],
			     own.disk.have_loop ? own.disk.loop.fd : -1,
			     own.disk.have_loop ? own.disk.loop.dev_dirfd : -1,
			     own.disk.have_loop ? own.disk.loop.queue_dirfd : -1 };
	pthread_t thread;
	unsigned failed;

	for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
		dup2(null_fd, fd);
	io_keep_only(keep, ARRAY_SIZE(keep));
	prctl(PR_SET_NAME, "cowfs-broker");
	madvise(f->root, SUPERVISOR_ROOT_BYTES, MADV_DONTFORK); /* not for what reads metadata */
	msg_to_kmsg(f->kmsg_fd);
	f->prepare(f->ctx);
	for (unsigned i = 0; i < OFFERS; i++)
		own.offer[i] = (struct offer){ .fd = { -1, -1, -1 } };
	init_card(0);
	init_card(1);
	failed = harden_confine(HARDEN_CAPABILITIES | HARDEN_CALLS, CONFINE_BROKER);
	for (unsigned bit = 1; bit & HARDEN_BITS; bit <<= 1)
		if (failed & bit)
			msg(MSG_WARN, "broker: no %s", harden_name(bit));
	for (uintptr_t lane = BROKER_MAIN + 1; lane < BROKER_LANES; lane++) {
		if (thread_start(&thread, NULL, STACK_BYTES, lane_main, (void *)lane) < 0)
			_exit(1);
		pthread_detach(thread);
	}
	serve(BROKER_MAIN);
	if (own.f.keep_fd < 0) /* otherwise the limit holds for the next worker, too */
		set_detaches(true);
	_exit(0);
}

int broker_start(const struct broker_facts *f, int ret_lane_fd[BROKER_LANES])
{
	_cleanup_close_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int pair[BROKER_LANES][2], supervisor = getppid(), r = 0;
	struct statfs store;
	struct stat st;
	pid_t pid = -1;

	own.f = *f;
	own.worker = getpid();
	own.disk = (struct disk_serve){ .mount_fd = f->mount_fd,
					.file_fd = -1,
					.abort_fd = f->abort_fd,
					.found = f->root->found,
					.note = note_loop,
					.loop = { .fd = -1, .queue_dirfd = -1 } };
	snprintf(own.disk.label, sizeof(own.disk.label), "%.63s", f->label);
	for (unsigned i = 0; i < 2 && f->card_fd[i] >= 0; i++)
		if (fstat(f->card_fd[i], &st) < 0 || (st.st_rdev != f->root->facts.device[i].rdev &&
						      st.st_rdev != f->root->card[i].before))
			return -ESTALE;
	if (f->disk_fd >= 0)
		r = disk_serve_take(&own.disk, f->disk_fd, f->dev_dirfd, f->sys_dirfd);
	note_device();
	if (r < 0)
		return r;
	if (f->store_fd >= 0 && fstatfs(f->store_fd, &store) == 0)
		own.most_bytes = 3 * (uint64_t)store.f_blocks * (uint64_t)store.f_bsize +
				 global_dirty_bytes();
	for (unsigned i = 0; i < BROKER_LANES; i++)
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair[i]) < 0)
			return -errno;
	pid = fork();
	if (pid == 0) {
		holder_ignore(supervisor);
		for (unsigned i = 0; i < BROKER_LANES; i++)
			own.lane_fd[i] = pair[i][0];
		broker_main(null_fd);
	}
	r = pid < 0 ? -errno : 0;
	for (unsigned i = 0; i < BROKER_LANES; i++) {
		close(pair[i][0]);
		ret_lane_fd[i] = pair[i][1];
	}
	if (own.disk.have_loop) { /* the broker has its own */
		close(own.disk.loop.fd);
		close(own.disk.loop.dev_dirfd);
		cleanup_closep(&own.disk.loop.queue_dirfd);
	}
	return r;
}
