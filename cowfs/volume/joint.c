/* SPDX-License-Identifier: MIT */
#include "volume/joint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clean.h"
#include "base/io.h"

/* Below the dead-man timer of a freeze (daemon/supervisor.c). */
#define FROZEN_NS (5 * 1000000000ull)
/* for one record of the leader */
#define DECIDED_NS (60 * 1000000000ull)
#define FROZEN_NAP_NS 50000
#define NAP_NS 1000000
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

enum decision {
	OPEN,	  /* anybody may cancel */
	DECIDING, /* the leader writes its record: only the leader knows */
	GO,
	CANCELLED,
	LOST /* the leader ended in DECIDING: its card knows */
};

/* Why it was cancelled: each member says it. */
static const char *const reasons[] = {
	"another volume of this commit could not take part",
	"the volumes could not all be frozen within 5 s",
	"RAM ran short while it waited for the other volumes",
	"cowctl has ended",
};
enum reason { OTHER, NOT_FROZEN, NO_RAM, CLIENT_ENDED };

/* Between daemons of any version: only ever extended. */
struct shared {
	uint32_t members;
	_Atomic uint32_t decision;
	_Atomic uint32_t synced, frozen, written; /* members that are there */
	_Atomic uint32_t changed;		  /* members that commit */
	_Atomic uint32_t leader;		  /* lowest rank of these */
	_Atomic uint32_t reason;
	_Atomic uint32_t named; /* the leader has written: */
	struct log_joint record;
};

struct joint {
	struct joint_params p;
	struct shared *shared;
	bool was_synced, was_frozen, leads, done;
	const char *why;
};

int joint_new(unsigned members)
{
	const struct shared first = { .members = members, .leader = UINT32_MAX };
	_cleanup_close_ int fd = memfd_create("cowfs-joint", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? -errno : io_write_full(fd, &first, sizeof(first));

	if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	return r < 0 ? r : steal_fd(&fd);
}

int joint_enter(struct joint **ret, const struct joint_params *p)
{
	struct stat st;
	struct joint *j;
	int r, seals = fcntl(p->fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(p->fd, &st) < 0 ||
	    st.st_size < (off_t)sizeof(struct shared))
		return -EINVAL;
	j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	j->p = *p;
	j->shared = mmap(NULL, sizeof(*j->shared), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	if (j->shared == MAP_FAILED) {
		r = -errno;
		free(j);
		return r;
	}
	*ret = j;
	return 0;
}

bool joint_writes(const struct joint *j)
{
	return !j->leads && j->shared->decision == DECIDING;
}

struct joint *joint_watch(const struct joint *j)
{
	struct joint *watch;

	if (!joint_writes(j) || joint_enter(&watch, &j->p) < 0)
		return NULL;
	watch->done = true;
	return watch;
}

/* Changes the decision if it was this one. */
static bool decide(struct joint *j, uint32_t was, uint32_t decision)
{
	return atomic_compare_exchange_strong(&j->shared->decision, &was, decision);
}

bool joint_decided(const struct joint *j)
{
	return j->shared->decision == GO;
}

const char *joint_why(const struct joint *j)
{
	uint32_t reason = j->shared->reason;

	return j->why ? j->why : reasons[reason < ARRAY_SIZE(reasons) ? reason : OTHER];
}

static int give_up(struct joint *j, enum reason reason)
{
	uint32_t none = OTHER;

	if (j->shared->decision == OPEN)
		(void)atomic_compare_exchange_strong(&j->shared->reason, &none, reason);
	(void)decide(j, OPEN, CANCELLED);
	return -ECANCELED;
}

/* Before the decision: another volume, or a dead card, must not stop this one. */
static bool must_give_up(struct joint *j)
{
	enum reason reason = j->p.hurries && j->p.hurries(j->p.ctx) ? NO_RAM
			     : j->p.gone(j->p.ctx)		    ? CLIENT_ENDED
								    : OTHER;

	return reason && give_up(j, reason) < 0;
}

/* Waits until n members are there, before the decision. */
static int wait_for(struct joint *j, const _Atomic uint32_t *count, uint32_t n, uint64_t limit_ns)
{
	const struct timespec nap = { .tv_nsec = limit_ns ? FROZEN_NAP_NS : NAP_NS };
	uint64_t begin_ns = now_ns();

	while (*count < n) {
		if (j->shared->decision != OPEN)
			return -ECANCELED;
		if (limit_ns && now_ns() - begin_ns > limit_ns)
			return give_up(j, NOT_FROZEN);
		if (must_give_up(j))
			return -ECANCELED;
		nanosleep(&nap, NULL);
	}
	return 0;
}

static int wait_synced(struct joint *j, uint64_t limit_ns)
{
	if (!j->was_synced)
		j->shared->synced++;
	j->was_synced = true;
	return wait_for(j, &j->shared->synced, j->shared->members, limit_ns);
}

int joint_synced(struct joint *j)
{
	return wait_synced(j, 0);
}

static void stand_for_leader(struct joint *j)
{
	uint32_t leader = j->shared->leader;

	while (j->p.rank < leader &&
	       !atomic_compare_exchange_weak(&j->shared->leader, &leader, j->p.rank))
		;
}

int joint_frozen(struct joint *j, bool changed)
{
	/* it is frozen already: a sync that failed was no reason to wait for others */
	int r = wait_synced(j, FROZEN_NS);

	if (r < 0 || j->was_frozen)
		return r < 0 ? r : -ECANCELED;
	j->was_frozen = true;
	if (changed) {
		stand_for_leader(j);
		j->shared->changed++;
	}
	j->shared->frozen++;
	r = wait_for(j, &j->shared->frozen, j->shared->members, FROZEN_NS);
	j->leads = r == 0 && changed && j->shared->leader == j->p.rank;
	j->done = r == 0 && !changed;
	return r;
}

/* ---- log_end ---- */

static int choose(void *ctx, const struct log_joint *self, struct log_joint *ret_leader)
{
	struct joint *j = ctx;
	int r;

	if (j->leads && j->shared->named) /* it would be another record than the one they name */
		return -ECANCELED;
	if (j->leads) {
		j->shared->record = *self;
		j->shared->named = 1;
		return 0;
	}
	r = wait_for(j, &j->shared->named, 1, 0);
	if (r == 0)
		*ret_leader = j->shared->record;
	return r < 0 || ret_leader->seq ? r : -ECANCELED;
}

static int before_record(void *ctx)
{
	struct joint *j = ctx;
	/* a record of others that is known to be in vain is not written: it would be asked for */
	int r = j->leads ? wait_for(j, &j->shared->written, j->shared->changed - 1, 0)
		: j->shared->decision == OPEN ? 0
					      : -ECANCELED;

	return r == 0 && j->leads && !decide(j, OPEN, DECIDING) ? -ECANCELED : r;
}

static int after_record(void *ctx)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	struct joint *j = ctx;
	uint64_t until_ns = 0;

	j->done = true;
	if (j->leads) {
		/* whatever they know: the record is durable */
		(void)decide(j, DECIDING, GO);
		return 0;
	}
	j->shared->written++;
	for (;;) {
		uint32_t decision = j->shared->decision;

		if (decision == GO)
			return 0;
		if (decision == CANCELLED)
			return -ECANCELED;
		if (decision == LOST) {
			j->why = "the volume that decides ended while it wrote its record";
			return -ENOLINK;
		}
		if (decision == OPEN)
			(void)must_give_up(j);
		if (decision == DECIDING && !until_ns)
			until_ns = now_ns() + DECIDED_NS;
		if (until_ns && now_ns() > until_ns) {
			j->why = "the volume that decides did not write its record within 60 s";
			return -ENOLINK;
		}
		nanosleep(&nap, NULL);
	}
}

struct log_together joint_log(struct joint *j)
{
	return (struct log_together){ .choose = choose,
				      .before_record = before_record,
				      .after_record = after_record,
				      .ctx = j };
}

/* ---- the end ---- */

void joint_cancel(struct joint *j)
{
	(void)decide(j, OPEN, CANCELLED);
}

void joint_ended(struct joint *j, unsigned rank)
{
	joint_cancel(j);
	if (j->shared->leader == rank)
		(void)decide(j, DECIDING, LOST);
}

void joint_leave(struct joint *j)
{
	if (!j)
		return;
	if (!j->done)
		joint_ended(j, j->p.rank);
	munmap(j->shared, sizeof(*j->shared));
	free(j);
}
