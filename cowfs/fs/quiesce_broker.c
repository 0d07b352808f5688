// SPDX-License-Identifier: MIT
/*
 * Notes on the design
 * - The worker can name nothing: the broker looks the mount up by the device that it made itself.
 * - A worker that dies in a seal closes its end of the lane, and one that is silent runs into a limit.
 *   In both cases the file system is thawed here, as after a seal that failed.
 * - The limit counts slices of waiting, as the supervisor's dead-man timer does: a stop of all
 *   processes lets little time pass.
 * - The supervisor still gets a descriptor of the frozen mount, through the worker. So one process is
 *   left to thaw if worker and broker are killed together.
 */
#include "fs/quiesce_broker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define SLICE_MS 250

enum {
	UNFROZEN = 1,
	UNFROZEN_FAILED = 2,
	NO_SYNC = 4,
	STAY_FROZEN = 8,
	NEEDED = 16,
	STOPPED = 32,
	INSTANT = 64,
	BY_SYNC = 128,
	ANY = 256,
	NOW = 512,
	UNSEEN = 1024
};
enum { ASK_NEEDED, ASK_STOPPED, ASK_SEAL, ASK_FROZEN, ASK_BEGIN, ASK_END, ASK_NOW };

/* ---- the worker ---- */

struct asking {
	const struct quiesce_target *t;
	int (*seal)(void *ctx);
	void *seal_ctx;
	bool told; /* the supervisor has a descriptor */
	bool watching;
	bool sealed;
};

static int end_watch(struct asking *a)
{
	int r = a->t->instant(a->seal_ctx, QUIESCE_END);

	a->watching = false;
	a->sealed |= r != -EAGAIN;
	return r;
}

static void answer_back(void *ctx, struct broker_message *m, int fd)
{
	struct asking *a = ctx;
	const struct quiesce_target *t = a->t;

	switch (m->n[0]) {
	case ASK_NEEDED:
		m->result = t->needed ? t->needed(a->seal_ctx) : 1;
		break;
	case ASK_STOPPED:
		m->result = t->stopped ? t->stopped(a->seal_ctx) : 0;
		break;
	case ASK_SEAL:
		m->result = a->sealed ? -EPROTO : a->seal(a->seal_ctx);
		a->sealed = true;
		break;
	case ASK_FROZEN:
		m->result = t->frozen && fd >= 0 ? t->frozen(t->ctx, fd) : 0;
		a->told |= m->result == 0;
		break;
	case ASK_BEGIN:
		m->result = !t->instant || a->watching ? -EPROTO
						       : t->instant(a->seal_ctx, QUIESCE_BEGIN);
		a->watching |= m->result == 0;
		break;
	case ASK_END:
		m->result = a->watching ? end_watch(a) : -EPROTO;
		break;
	case ASK_NOW:
		m->result = !t->now || a->watching || a->sealed ? -EPROTO : t->now(a->seal_ctx);
		a->sealed |= m->result != -EAGAIN && m->result != -EPROTO;
		break;
	default:
		m->result = -EPROTO;
		break;
	}
	m->bytes = 0;
}

static int ask(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
	       struct quiesce_report *ret, bool *ret_sealed)
{
	struct asking a = { .t = t, .seal = seal, .seal_ctx = seal_ctx };
	struct broker_message m = {
		.op = BROKER_QUIESCE,
		.n = { (t->unfrozen ? UNFROZEN : 0u) | (t->unfrozen_failed ? UNFROZEN_FAILED : 0u) |
		       (t->no_sync ? NO_SYNC : 0u) | (t->stay_frozen ? STAY_FROZEN : 0u) |
		       (t->needed ? NEEDED : 0u) | (t->stopped ? STOPPED : 0u) |
		       (t->instant ? INSTANT : 0u) | (t->instant_by_sync ? BY_SYNC : 0u) |
		       (t->any_instant ? ANY : 0u) | (t->now ? NOW : 0u) |
		       (t->unseen ? UNSEEN : 0u) }
	};
	int r;

	*ret = (struct quiesce_report){ 0 };
	m.bytes = (uint32_t)snprintf(m.data, sizeof(m.data), "%s", t->type ? t->type : "");
	r = broker_ask_with(BROKER_MAIN, &m, answer_back, &a);
	if (m.bytes == sizeof(*ret) && r != -EPIPE)
		memcpy(ret, m.data, sizeof(*ret));
	ret->holder[sizeof(ret->holder) - 1] = '\0';
	if (a.told && t->frozen)
		(void)t->frozen(t->ctx, -1);
	if (a.watching)
		(void)!end_watch(&a);
	*ret_sealed = a.sealed;
	return r;
}

int quiesce_run(const struct quiesce_target *t, int (*seal)(void *ctx), void *seal_ctx,
		struct quiesce_report *ret)
{
	bool sealed;
	int r;

	if (!broker_on())
		return quiesce_here(t, seal, seal_ctx, ret);
	r = ask(t, seal, seal_ctx, ret, &sealed);
	return sealed ? r : quiesce_unblock(t, seal, seal_ctx, r, ret);
}

/* ---- the broker ---- */

struct serving {
	int sock_fd;
	uint64_t seal_ns;
	bool late;
};

/* -ETIMEDOUT: no answer; then this call asks nothing more. An answer that comes after all is dropped by
 * the loop that serves the lane. */
static int ask_back(struct serving *s, unsigned what, int fd, uint64_t limit_ns)
{
	_cleanup_free_ struct broker_message *m = calloc(1, sizeof(*m));
	const int fds[BROKER_FDS] = { fd, -1, -1, -1 };
	struct pollfd p = { .fd = s->sock_fd, .events = POLLIN };
	int got[BROKER_FDS], r;

	if (!m || s->late)
		return -ETIMEDOUT;
	m->op = BROKER_CALLBACK;
	m->n[0] = what;
	r = broker_send(s->sock_fd, m, fds);
	if (r < 0)
		return r;
	for (uint64_t slept_ns = 0; (r = poll(&p, 1, SLICE_MS)) <= 0;) {
		slept_ns += r == 0 ? SLICE_MS * 1000000ull : 0;
		if (slept_ns >= limit_ns) {
			s->late = true;
			return -ETIMEDOUT;
		}
	}
	r = broker_receive(s->sock_fd, m, got);
	for (unsigned i = 0; i < BROKER_FDS; i++)
		if (got[i] >= 0)
			close(got[i]);
	if (r == 1 && m->op != BROKER_CALLBACK)
		r = -EPROTO;
	s->late = r != 1;
	return r == 1 ? m->result : r == 0 ? -ECONNRESET : r;
}

static int seal_there(void *ctx)
{
	struct serving *s = ctx;

	return ask_back(s, ASK_SEAL, -1, s->seal_ns);
}

static bool needed_there(void *ctx)
{
	struct serving *s = ctx;

	return ask_back(s, ASK_NEEDED, -1, s->seal_ns) > 0;
}

static bool stopped_there(void *ctx)
{
	struct serving *s = ctx;

	return ask_back(s, ASK_STOPPED, -1, s->seal_ns) > 0;
}

/* It watches in its own process. */
static int instant_there(void *ctx, enum quiesce_watch watch)
{
	struct serving *s = ctx;

	return ask_back(s, watch == QUIESCE_BEGIN ? ASK_BEGIN : ASK_END, -1, s->seal_ns);
}

static int now_there(void *ctx)
{
	struct serving *s = ctx;

	return ask_back(s, ASK_NOW, -1, s->seal_ns);
}

/* A freezer that was left behind has no lane: it may end at any time. */
static int frozen_there(void *ctx, int mount_fd)
{
	struct serving *s = ctx;

	if (mount_fd < 0)
		return 0;
	return ask_back(s, ASK_FROZEN, mount_fd, s->seal_ns);
}

void quiesce_serve(int sock_fd, struct broker_message *m, const struct quiesce_target *where,
		   uint64_t seal_ns)
{
	/* static: a freezer that was left behind keeps the address; there is one lane that asks */
	static struct serving s;
	struct quiesce_target t = *where;
	struct quiesce_report report;
	char type[32];

	s = (struct serving){ .sock_fd = sock_fd, .seal_ns = seal_ns };
	snprintf(type, sizeof(type), "%.*s", (int)sizeof(type) - 1, m->data);
	t.type = type;
	t.unfrozen = m->n[0] & UNFROZEN;
	t.unfrozen_failed = m->n[0] & UNFROZEN_FAILED;
	t.no_sync = m->n[0] & NO_SYNC;
	t.stay_frozen = m->n[0] & STAY_FROZEN;
	t.needed = m->n[0] & NEEDED ? needed_there : NULL;
	t.stopped = m->n[0] & STOPPED ? stopped_there : NULL;
	t.instant = m->n[0] & INSTANT ? instant_there : NULL;
	t.instant_by_sync = m->n[0] & BY_SYNC;
	t.now = m->n[0] & NOW ? now_there : NULL;
	t.any_instant = m->n[0] & ANY;
	t.unseen = m->n[0] & UNSEEN;
	t.frozen = frozen_there;
	t.ctx = &s;
	m->result = quiesce_here(&t, seal_there, &s, &report);
	if (m->result == -ECONNRESET || (s.late && m->result == -ETIMEDOUT))
		m->result = -ECANCELED; /* the seal came too late: it caught a changing image */
	m->bytes = sizeof(report);
	memcpy(m->data, &report, sizeof(report));
}
