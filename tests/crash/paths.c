/* SPDX-License-Identifier: MIT */
/*
 * Commits of paths (docs/design/paths.md, "Commit of paths"): the image to be committed is the
 * committed generation with some changes, not the live image. Both images are real views over the
 * card, with the real rule of what is kept for the live one (volume/diverged.h). The rest is as
 * the commit thread does it.
 *
 * The oracle of the live image is a copy of its bytes. What the base used, or what was written
 * since, must read the same after everything that is written to the card.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attacks.h"
#include "export/view.h"
#include "volume/diverged.h"

static struct {
	struct image live;
	bool dirty[MAX_BLKS], hole[MAX_BLKS];
	struct view *view;
} aside;			   /* the live image, while the other one is committed */
static uint8_t base_use[MAX_BLKS]; /* of the last generation that both have in common */
static uint8_t expected[MAX_BLKS * COW_BLK_BYTES];
static struct ram_store *store;

/* diverged.c asks for the map of the committed toy */
static const uint8_t *map;
#define MAP ((struct fsmap *)&map)

int __real_fsmap_run(struct fsmap *m, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		     uint64_t *ret_blks);
int __wrap_fsmap_run(struct fsmap *m, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		     uint64_t *ret_blks);
uint32_t __real_fsmap_log_sequence(const struct fsmap *m);
uint32_t __wrap_fsmap_log_sequence(const struct fsmap *m);

int __wrap_fsmap_run(struct fsmap *m, uint64_t blk, uint64_t max_blks, enum blk_use *ret,
		     uint64_t *ret_blks)
{
	if (m != MAP)
		return __real_fsmap_run(m, blk, max_blks, ret, ret_blks);
	*ret = (enum blk_use)map[blk];
	*ret_blks = 1;
	return 0;
}

uint32_t __wrap_fsmap_log_sequence(const struct fsmap *m)
{
	return m == MAP ? 0 : __real_fsmap_log_sequence(m);
}

/* ---- the live image in RAM ---- */

static void must(int r, const char *what)
{
	if (r < 0)
		fail("%s: %s", what, strerror(-r));
}

static struct view *new_view(struct world *w)
{
	struct view *v;

	must(view_new_plain(&v, store, w->c.base, w->shape.blks, w->index), "view_new_plain");
	return v;
}

void paths_wrote(struct world *w, unsigned blk)
{
	const uint8_t *content = content_of(w->live.content[blk]);

	if (!w->view)
		return;
	if (w->hole[blk])
		must(view_punch(w->view, blk_to_bytes(blk), COW_BLK_BYTES), "view_punch");
	else
		must(view_write(w->view, blk_to_bytes(blk), content, COW_BLK_BYTES), "view_write");
	if (!w->paths)
		memcpy(expected + blk_to_bytes(blk), content, COW_BLK_BYTES);
}

static void read_live(struct world *w, unsigned blk, uint8_t *buf)
{
	must(view_read_live(w->view, blk, 1, buf), "the live image cannot be read");
}

static void check(struct world *w, const char *when, bool free_too)
{
	static _Alignas(4096) uint8_t buf[COW_BLK_BYTES];
	bool trimmed = log_ledger(w->log)->trims;

	for (unsigned b = 0; w->view && b < w->shape.blks; b++) {
		/* a new journal is not written: its place may be a trimmed one */
		bool any = base_use[b] == USE_FREE || (base_use[b] == USE_JOURNAL && trimmed);

		read_live(w, b, buf);
		if ((any && !w->dirty[b]) || (!free_too && w->live.use[b] == USE_FREE))
			memcpy(expected + blk_to_bytes(b), buf, COW_BLK_BYTES);
		else if (memcmp(buf, expected + blk_to_bytes(b), COW_BLK_BYTES))
			fail("%s: block %u of the live image has changed", when, b);
	}
}

void paths_check(struct world *w, const char *when)
{
	check(w, when, true);
}

void paths_publish(struct world *w)
{
	if (w->paths)
		view_set_index(aside.view, log_index_ref(w->index));
	if (w->view)
		view_set_index(w->view, log_index_ref(w->index));
}

/*
 * qemu-user knows neither fsopen nor its companions. There the files of the store lie below /dev/shm.
 */
static bool no_fsopen;

int fsopen(const char *type, unsigned flags)
{
	int fd = (int)syscall(SYS_fsopen, type, flags);

	no_fsopen = fd < 0 && errno == ENOSYS;
	return no_fsopen ? open("/dev/null", O_RDONLY | O_CLOEXEC) : fd;
}

int fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux)
{
	return no_fsopen ? 0 : (int)syscall(SYS_fsconfig, fd, cmd, key, value, aux);
}

/* Of the two folders that stand for mounts. */
static int folder_fd[2] = { -1, -1 };
static char folder[2][32];

static void remove_folders(void)
{
	for (unsigned i = 0; i < 2 && folder_fd[i] >= 0; i++) {
		DIR *d = fdopendir(folder_fd[i]);

		for (struct dirent *e; d && (e = readdir(d));)
			unlinkat(folder_fd[i], e->d_name, 0);
		rmdir(folder[i]);
	}
}

static int make_folder(void)
{
	unsigned i = folder_fd[0] >= 0;

	strcpy(folder[i], "/dev/shm/cowfs-XXXXXX");
	if (!mkdtemp(folder[i]))
		return -1;
	if (!i)
		atexit(remove_folders);
	folder_fd[i] = open(folder[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fcntl(folder_fd[i], F_DUPFD_CLOEXEC, 0);
}

int fsmount(int fd, unsigned flags, unsigned attributes)
{
	return no_fsopen ? make_folder() : (int)syscall(SYS_fsmount, fd, flags, attributes);
}

static void diverge(struct world *w)
{
	if (!store)
		must(ram_store_open(&store, 64 * MIB), "ram_store_open");
	w->view = new_view(w);
	memcpy(base_use, w->n.use, sizeof(base_use));
	for (unsigned b = 0; b < w->shape.blks; b++) {
		if (w->dirty[b])
			paths_wrote(w, b);
		must(view_read_live(w->view, b, 1, expected + blk_to_bytes(b)), "view_read_live");
	}
}

void paths_forget(struct world *w)
{
	view_free(w->view);
	w->view = NULL;
	diverged_free(w->diverged);
	w->diverged = NULL;
}

/* ---- commits ---- */

int paths_seal(struct world *w)
{
	int r = 0;

	if (w->view)
		must(view_seal(w->view), "view_seal");
	if (w->view)
		must(view_check_sealed(w->view), "view_check_sealed");
	if (!w->paths)
		return 0;
	map = w->n.use;
	if (!w->diverged)
		r = diverged_new(&w->diverged, store, w->shape.blks, MAP, NULL);
	return r < 0 ? r : diverged_keep(w->diverged, aside.view, w->view, store, UINT64_MAX, 0);
}

/* A commit has ended, with the index of w if it succeeded. */
void paths_committed(struct world *w, int result)
{
	if (!w->view)
		return;
	if (w->paths) {
		paths_publish(w);
	} else if (result < 0) {
		must(view_fail(w->view), "view_fail");
		/* spilled payload, gaps: the file system has given these blocks up */
		check(w, "after a commit that failed", false);
	} else {
		view_release(w->view, log_index_ref(w->index));
		paths_forget(w);
	}
}

int world_commit_paths(struct world *w, void (*change)(struct world *w))
{
	int r;

	if (!w->view)
		diverge(w);
	aside.live = w->live;
	aside.view = w->view;
	memcpy(aside.dirty, w->dirty, sizeof(w->dirty));
	memcpy(aside.hole, w->hole, sizeof(w->hole));
	w->paths = true;
	w->view = new_view(w);
	w->live = w->n;
	memset(w->dirty, 0, sizeof(w->dirty));
	memset(w->hole, 0, sizeof(w->hole));
	change(w);
	r = world_commit_as(
		w, &(struct commit_options){ .cause = CAUSE_MANUAL, .only_changed = true });
	view_free(w->view);
	w->paths = false;
	w->live = aside.live;
	w->view = aside.view;
	memcpy(w->dirty, aside.dirty, sizeof(w->dirty));
	memcpy(w->hole, aside.hole, sizeof(w->hole));
	total.paths += r == 0;
	paths_check(w, "after a commit of paths");
	return r;
}

/* ---- the attack ---- */

/* Frees some blocks, takes others, changes some, and leaves content in free ones. Or changes all:
 * more than the ring holds. */
static void change_some(struct world *w)
{
	bool all = w->paths && w->shape.heavy && rnd_below(w, 2);
	unsigned blk = all ? 1 : 1 + (unsigned)rnd_below(w, w->shape.blks - 16);

	for (unsigned n = all ? w->shape.blks - 1 : 16; n--; blk++) {
		uint64_t dice = rnd_below(w, 8);

		if (dice < (all ? 1 : w->shape.heavy ? 4 : 2))
			live_free(w, blk);
		else if (all ? w->live.use[blk] == USE_USED : dice < 5)
			live_write(w, blk, 1 + (unsigned)rnd_below(w, CONTENTS - 1));
		else if (dice == 7 && w->live.use[blk] == USE_FREE) { /* a file that is gone */
			live_write(w, blk, 1 + (unsigned)rnd_below(w, CONTENTS - 1));
			live_free(w, blk);
		}
	}
}

/* One that does not fit is given up: nothing of it may be spilled. */
static void commit_paths(struct world *w, void (*change)(struct world *w))
{
	int r;

	at.step++;
	r = world_commit_paths(w, change);
	attack_expect(r == 0 || (w->shape.heavy && r == -EFBIG), "a commit of paths failed");
}

static void commit_live(struct world *w)
{
	int r;

	at.step++;
	r = world_commit(w);
	attack_expect(r == 0 || (w->shape.heavy && r == -EFBIG), "a commit failed");
	if (r < 0)
		live_revert(w);
}

static void checkpoint(struct world *w)
{
	attack_expect(world_checkpoint(w, RECORD_TAIL, 0) == 0, "a checkpoint failed");
}

/* Three blocks in each unit of the card. */
static void free_threes(struct world *w)
{
	for (unsigned blk = 8; blk < w->shape.blks; blk += 8)
		for (unsigned i = 1; i <= 3; i++)
			live_free(w, blk + i);
}

static void take_outer(struct world *w)
{
	for (unsigned blk = 8; blk < w->shape.blks; blk += 8)
		for (unsigned i = 1; i <= 3; i += 2)
			attack_write_run(w, blk + i, 1);
}

/* Blocks between those that a commit of paths writes are free to it, and the live image has them there. */
static void take_around_gaps(uint64_t seed)
{
	const struct shape s = {
		.blks = 40, .full = true, .plan = 1 + seed % 2, .segs = 8, .external = seed / 2 % 2
	};
	struct world w;

	attack_start(&w, &s, seed);
	commit_paths(&w, free_threes);
	commit_paths(&w, take_outer);
	attack_expect(w.bill.direct + w.bill.moved == 8, "freed blocks are not written in place");
	checkpoint(&w);
	world_free(&w);
}

/* What one commit of paths frees, the next ones take, while the live image still has it there. */
void attack_paths(void)
{
	struct world w;

	for (uint64_t seed = 0; seed < SEEDS; seed++)
		take_around_gaps(seed);
	for (uint64_t seed = 0; seed < 24; seed++) {
		struct shape s = { .blks = 40,
				   .plan = seed % 4,
				   .lag = seed / 4 % 2,
				   .segs = 8, /* little to move to: gaps are filled */
				   .external = seed / 8 % 2 };

		if (seed % 3 == 0) {
			s.heavy = s.full = true;
			s.blks = TOY_BLKS;
			s.segs = s.lag ? 7 : 0;
		}

		attack_start(&w, &s, seed);
		for (unsigned round = 0; round < 4; round++) {
			w.mute = (round + seed) % 8;
			change_some(&w);
			commit_live(&w);
			for (unsigned n = 0; n < 4; n++) {
				if (!s.heavy || n % 2)
					change_some(&w);
				commit_paths(&w, change_some);
				if (n % 2 == round % 2)
					checkpoint(&w);
			}
		}
		commit_live(&w);
		checkpoint(&w);
		world_free(&w);
	}
}

static void change_three(struct world *w)
{
	attack_write_run(w, 2, 3);
}

static void change_nothing(struct world *w)
{
}

/* A commit of paths fails at each of its operations. The files then get their committed content
 * back: the next commit has nothing to write, but what it reports as committed must win over a
 * record of the failed one. */
void attack_undone(void)
{
	struct world w;
	unsigned undone = 0;

	for (uint64_t seed = 0; seed < 32; seed++) {
		const struct shape s = { .blks = 24,
					 .full = true,
					 .segs = 16,
					 .lag = seed / 2 % 2,
					 .external = seed / 4 % 2 };

		attack_start(&w, &s, seed);
		attack_write_run(&w, 1, 4);
		attack_commit_ok(&w);
		at.step++;
		world_fail_at(&w, seed % 2 ? SIM_FLUSH : SIM_WRITE, 1 + seed / 8, false);
		undone += world_commit_paths(&w, change_three) < 0;
		world_disarm(&w);
		at.step++;
		attack_expect(world_commit_paths(&w, change_nothing) == 0,
			      "a commit of paths failed");
		if (world_crash(&w)) {
			attack_write_run(&w, 3, 2);
			attack_commit_ok(&w);
		}
		world_free(&w);
	}
	attack_expect(undone > 8, "no commit failed");
}
