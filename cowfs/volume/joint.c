/* SPDX-License-Identifier: MIT */
#include "volume/joint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clean.h"
#include "base/io.h"

/* Below the dead-man timer of a freeze (daemon/supervisor.c). */
#define FROZEN_NS (5 * 1000000000ull)
#define LAST_NS (10 * 1000000000ull)
#define FROZEN_NAP_NS 50000
#define NAP_NS 2000000
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

enum decision { OPEN, GO, CANCELLED };

/* Between daemons of any version: only ever extended. */
struct shared {
	uint32_t members, last;
	_Atomic uint32_t arrived[JOINT_STEPS], decision;
	_Atomic uint32_t done; /* of those that are not last */
};

struct joint {
	struct joint_params p;
	struct shared *shared;
	enum joint_step next;
	bool done;
	const char *why;
};

int joint_new(unsigned members, unsigned last)
{
	const struct shared first = { .members = members, .last = last };
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
	int seals = fcntl(p->fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(p->fd, &st) < 0 ||
	    st.st_size < (off_t)sizeof(struct shared))
		return -EINVAL;
	j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	j->p = *p;
	j->shared = mmap(NULL, sizeof(*j->shared), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	if (j->shared == MAP_FAILED) {
		free(j);
		return -errno;
	}
	*ret = j;
	return 0;
}

/* Returns what was decided. */
static uint32_t decide(struct joint *j, uint32_t decision)
{
	uint32_t now = OPEN;

	return atomic_compare_exchange_strong(&j->shared->decision, &now, decision) ? decision
										    : now;
}

bool joint_decided(const struct joint *j)
{
	return j->shared->decision == GO;
}

const char *joint_why(const struct joint *j)
{
	return j->why ? j->why : "another volume of this commit could not take part";
}

static bool is_over(const struct joint *j, enum joint_step step)
{
	return step == JOINT_WRITTEN ? joint_decided(j)
				     : j->shared->arrived[step] >= j->shared->members;
}

static int wait_step(struct joint *j, enum joint_step step, bool (*hurry)(void *ctx), void *ctx)
{
	const struct timespec nap = { .tv_nsec = step == JOINT_FROZEN ? FROZEN_NAP_NS : NAP_NS };
	uint64_t begin_ns = now_ns();

	while (!is_over(j, step)) {
		const char *why = NULL;

		if (j->shared->decision == CANCELLED)
			return -ECANCELED;
		if (step == JOINT_FROZEN && now_ns() - begin_ns > FROZEN_NS)
			why = "the volumes could not all be frozen within 5 s";
		else if (hurry && hurry(ctx))
			why = "RAM ran short while it waited for the other volumes";
		else if (j->p.gone(j->p.ctx))
			why = "cowctl has ended";
		if (why && decide(j, CANCELLED) == CANCELLED) {
			j->why = why;
			return -ECANCELED;
		}
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* After the decision: however long the others take, this record is written. */
static void let_others_go_first(struct joint *j)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	uint64_t until_ns = now_ns() + LAST_NS;

	while (j->shared->done < j->shared->members - j->shared->last && now_ns() < until_ns)
		nanosleep(&nap, NULL);
}

int joint_meet(struct joint *j, enum joint_step step, bool (*hurry)(void *ctx), void *ctx)
{
	while (j->next <= step) {
		enum joint_step at = j->next++;
		int r;

		if (++j->shared->arrived[at] >= j->shared->members && at == JOINT_WRITTEN)
			decide(j, GO);
		r = wait_step(j, at, hurry, ctx);
		if (r < 0)
			return r;
		if (at == JOINT_WRITTEN && j->p.last)
			let_others_go_first(j);
	}
	return 0;
}

void joint_done(struct joint *j)
{
	if (!j->done && !j->p.last)
		j->shared->done++;
	j->done = true;
}

void joint_cancel(struct joint *j)
{
	(void)decide(j, CANCELLED);
}

void joint_leave(struct joint *j)
{
	if (!j)
		return;
	if (decide(j, CANCELLED) == GO)
		joint_done(j);
	munmap(j->shared, sizeof(*j->shared));
	free(j);
}
