/* SPDX-License-Identifier: MIT */
/*
 * Notes on the design
 * - The commit thread does all of it: it is the only user of the log, so nothing is written or checkpointed while a device
 *   is examined, and a job that needed the card has ended.
 * - What the kernel asks meanwhile waits in export/parked.c, and what it writes goes to RAM.
 * - A device is taken only if it has exactly the state that this session knows. The rest of the proof is that of each commit
 *   (log_recheck), which finds a card that was changed elsewhere.
 * - A log on a card of its own is examined first, because it can be recognised without the base.
 */
#include "volume/away.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/msg.h"
#include "card/find.h"
#include "volume/opening.h"

#define SAY_EVERY_NS 60000000000ull
#define TWICE_NS 10000000000ull

struct device {
	struct find_result found;
	int fd[BLOCKDEV_FDS];
};

static struct card *card_of(const struct volume *v, unsigned i)
{
	return i ? v->log_card : v->base;
}

static bool is_away(const struct volume *v, unsigned i)
{
	return (!i || v->log_card != v->base) && card_is_away(card_of(v, i));
}

bool away_any(const struct volume *v)
{
	return is_away(v, 0) || is_away(v, 1);
}

bool away_waits(const struct volume *v)
{
	return (is_away(v, 0) && !v->base->given_up) || (is_away(v, 1) && !v->log_card->given_up);
}

static uint64_t since_ns(const struct volume *v)
{
	uint64_t base = is_away(v, 0) ? v->base->away_ns : UINT64_MAX,
		 log = is_away(v, 1) ? v->log_card->away_ns : UINT64_MAX;

	return min_u64(base, log);
}

static const char *device_of(const struct volume *v, unsigned i)
{
	return i ? v->log_device : v->device;
}

/* ---- noticing ---- */

void away_look(struct volume *v)
{
	bool base = card_look(v->base), log = card_look(v->log_card);

	if ((!base && !log) || v->away.known)
		return;
	LOCKED(&v->lock);
	pthread_cond_signal(&v->work);
}

/* A contact that flaps is one line a minute of each kind. */
static bool may_say(uint64_t *said_ns)
{
	uint64_t now = now_ns();
	bool may = !*said_ns || now >= *said_ns + SAY_EVERY_NS;

	if (may)
		*said_ns = now;
	return may;
}

static void note(struct volume *v)
{
	if (v->away.known)
		return;
	v->away.known = true;
	v->away.times++;
	if (v->log)
		log_ledger(v->log)->away_times++;
	v->away.says = may_say(&v->away.said_ns);
	for (unsigned i = 0; i < 2; i++)
		if (is_away(v, i) && v->away.says)
			msg(MSG_ERR,
			    "%s: %s is away: it was pulled, or reset. Writes go to RAM, and what only the card has waits "
			    "for it",
			    v->name, device_of(v, i));
}

static void give_up(struct volume *v, const char *why)
{
	for (unsigned i = 0; i < 2; i++)
		if (is_away(v, i))
			card_give_up(card_of(v, i));
	msg(MSG_ERR,
	    "%s: %s: reads that RAM cannot answer fail from now on. It is still taken when it comes back",
	    v->name, why);
}

static void look_at_limit(struct volume *v)
{
	char why[64];

	if (!away_waits(v) || v->away.limit_ns == UINT64_MAX ||
	    now_ns() < since_ns(v) + v->away.limit_ns)
		return;
	snprintf(why, sizeof(why), "the card is away for %.0f s", (double)v->away.limit_ns / 1e9);
	give_up(v, why);
}

void away_interrupts(struct volume *v, const struct volume_request *rq, struct volume_result *res)
{
	/* what was to be held or on trial must not become a commit as any other */
	res->again = rq->job == JOB_COMMIT && !rq->hold && !rq->trial;
	if (res->again && !v->away.commit_waits) {
		v->away.cause = rq->cause;
		v->away.commit_waits = true;
	}
	/* programs that wait for the card would keep the system from its end, which has waited long enough */
	if (rq->cause == CAUSE_SHUTDOWN && away_waits(v))
		give_up(v, "the system ends without the card");
	res->why[0] = '\0';
}

/* ---- looking for it ---- */

static void close_device(struct device *d)
{
	for (unsigned i = 0; i < BLOCKDEV_FDS; i++)
		cleanup_closep(&d->fd[i]);
}

void away_know(const struct volume *v)
{
	const uint64_t *at = log_super(v->log)->copy_off_bytes;

	for (unsigned n = 0; n < 2 && broker_on(); n++) {
		struct broker_message m = { .op = BROKER_KNOW, .n = { n, at[0], at[1] } };

		if ((!n || v->log_card != v->base) && broker_ask(BROKER_MAIN, &m, NULL) < 0)
			msg(MSG_WARN, "%s: is not found again once it is pulled out",
			    device_of(v, n));
	}
}

/* The i-th device that may be card n. False: there is none. */
static bool next_device(unsigned n, unsigned i, struct device *ret)
{
	struct broker_message m = { .op = BROKER_SEARCH, .n = { n, i } };
	int fd[BROKER_FDS];

	if (!broker_on() || broker_ask(BROKER_MAIN, &m, fd) < 0 || m.bytes != sizeof(ret->found))
		return false;
	memcpy(&ret->found, m.data, sizeof(ret->found));
	ret->found.name[sizeof(ret->found.name) - 1] = '\0';
	memcpy(ret->fd, fd, sizeof(ret->fd));
	return true;
}

static void tell(unsigned n, const struct device *d, enum broker_found end)
{
	struct broker_message m = { .op = BROKER_FOUND, .n = { n, end, d->found.number } };

	if (d->fd[0] >= 0 && broker_on() && broker_ask(BROKER_MAIN, &m, NULL) < 0)
		msg(MSG_WARN, "%s: the broker does not take it", d->found.name);
}

/* It is not the card. */
static void let_go(unsigned n, struct device *d, enum broker_found end)
{
	tell(n, d, end);
	close_device(d);
}

static void refuse(struct volume *v, const struct device *d, int error)
{
	char text[sizeof(v->away.other)];
	const char *why = error == -ESTALE  ? "it has another state than the card that was there"
			  : error == -EBUSY ? "another program uses it"
			  : error == -EROFS ? "it is write-protected"
			  : error == -EEXIST
				  ? "a second device has the same state: remove one of the two"
				  : strerror(-error);
	bool same;

	snprintf(text, sizeof(text), "%s: %s", d->found.name, why);
	pthread_mutex_lock(&v->lock);
	same = !strcmp(text, v->away.other);
	memcpy(v->away.other, text, sizeof(text));
	pthread_mutex_unlock(&v->lock);
	if (!same && may_say(&v->away.refused_ns))
		msg(MSG_WARN, "%s: not taken for the card: %s", v->name, text);
}

/* ---- going on ---- */

/* Is what the card's descriptors are now the card? */
static int examine(struct volume *v, unsigned n)
{
	int r = v->examine ? v->examine(v) : log_recheck(v->log);

	if (r == 0 && !v->examine)
		r = log_lost_writes(v->log);
	if (r == -EBADMSG || r == -EUCLEAN || r == -ENOENT)
		r = -ESTALE;
	/* everything about the log was read, and the base is still away */
	return n == 1 && r == -ENOMEDIUM && is_away(v, 0) && !card_device_gone(v->log_card) ? 0 : r;
}

/* What the kernel counts begins anew. Before any other thread can ask the card. */
static void note_counters(struct volume *v, unsigned n)
{
	const struct card_account *a = &card_of(v, n)->account;
	struct card_counters now;
	bool have = card_counters(card_of(v, n), &now) == 0;

	LOCKED(&v->lock);
	v->kernel.before[n] = (struct card_counters){ .write_ios = a->write_calls,
						      .written_bytes = a->written_bytes,
						      .discarded_bytes = a->discarded_bytes,
						      .flushes = a->flushes };
	v->kernel.have[n] = have;
	if (have)
		v->kernel.at_open[n] = now;
}

static void take_name(struct volume *v, unsigned n, const char *name)
{
	char *to = n ? v->log_device : v->device;

	LOCKED(&v->lock);
	snprintf(to, sizeof(v->device), name[0] == '/' ? "%s" : "/dev/%s", name);
	snprintf(card_of(v, n)->geo.path, sizeof(v->base->geo.path), "%s", to);
	v->away.other[0] = '\0';
}

static void say_back(const struct volume *v, unsigned n)
{
	if (v->away.says)
		msg(MSG_NOTICE, "%s: the card is back as %s after %.1f s", v->name, device_of(v, n),
		    (double)(now_ns() - card_of(v, n)->away_ns) / 1e9);
}

/* Its descriptors are in place; d has those of the device that is gone. */
static void go_on(struct volume *v, unsigned n, struct device *d)
{
	struct card *c = card_of(v, n);
	struct device now = { .found = d->found };

	close_device(d);
	take_name(v, n, d->found.name);
	blockdev_keep(c, &v->kept->card[n], now.fd);
	tell(n, &now, FOUND_CARD);
	say_back(v, n);
	note_counters(v, n);
	card_back(c);
}

/* Puts d in place and looks at it. On success it stays; otherwise what was there is back. */
static int try_device(struct volume *v, unsigned n, struct device *d)
{
	struct card *c = card_of(v, n);
	int r = d->found.error, e;
	bool exchanged;

	if (r < 0)
		return r;
	card_examine(c, true);
	r = blockdev_exchange(c, d->fd);
	exchanged = r == 0;
	if (r == 0)
		r = examine(v, n);
	if (r == 0)
		return 0;
	card_examine(c, false);
	e = exchanged ? blockdev_exchange(c, d->fd) : 0;
	return e < 0 ? e : r;
}

static void swap_devices(struct device *a, struct device *b)
{
	struct device other = *a;

	*a = *b;
	*b = other;
}

static void put_back(struct volume *v, unsigned n, struct device *d)
{
	card_examine(card_of(v, n), false);
	if (blockdev_exchange(card_of(v, n), d->fd) < 0)
		msg(MSG_ERR, "%s: no descriptors", v->name);
}

/*
 * All devices are looked at. Of two that have the state the one that is more alike (find.h) is it; two that are equally alike
 * cannot be told apart.
 */
static void search(struct volume *v, unsigned n)
{
	struct device match = { .fd = { -1, -1, -1 } }, d;
	bool found = false, twice = false;

	for (unsigned i = 0, skipped = 0; i < FIND_SKIP && next_device(n, i - skipped, &d); i++) {
		int r = try_device(v, n, &d);

		if (r == 0)
			put_back(v, n, &d);
		if (r == 0 && (!found || d.found.likeness > match.found.likeness)) {
			swap_devices(&match, &d);
			twice = false;
			r = found ? -EEXIST : 0;
			found = true;
		} else if (r == 0) {
			twice |= d.found.likeness == match.found.likeness;
			r = -EEXIST;
		}
		if (r == 0)
			continue;
		refuse(v, &d, r);
		skipped += r == -ESTALE;
		let_go(n, &d, r == -ESTALE ? FOUND_STRANGER : FOUND_AGAIN);
	}
	if (found && !twice && try_device(v, n, &match) == 0)
		go_on(v, n, &match);
	else if (found)
		let_go(n, &match, FOUND_AGAIN);
	/* each look opens both for writing, which udev notices */
	if (twice)
		v->away.rest_until_ns = now_ns() + TWICE_NS;
}

/* A reader keeps its device while the card is out. */
static bool same_device(struct volume *v, unsigned n)
{
	struct card *c = card_of(v, n);
	struct device d = { .fd = { -1, -1, -1 } };
	int r;

	if (card_device_gone(c))
		return false;
	snprintf(d.found.name, sizeof(d.found.name), "%.63s", device_of(v, n));
	card_examine(c, true);
	r = examine(v, n);
	if (r == 0)
		r = c->ops->set_writable(c, false); /* it may have gone in the middle of a commit */
	if (r < 0) {
		card_examine(c, false);
		refuse(v, &d, r);
		return false;
	}
	say_back(v, n);
	card_back(c);
	return true;
}

/* The card is there: what waited for it. */
static void resume(struct volume *v)
{
	v->away.known = false;
	if (v->away.commit_waits && volume_ask_commit(v, v->away.cause))
		v->away.commit_waits = false;
}

bool away_pending(const struct volume *v)
{
	return away_any(v) || v->away.known || v->away.commit_waits;
}

void away_search(struct volume *v)
{
	if (away_any(v)) {
		note(v);
		look_at_limit(v);
	}
	for (unsigned i = 2; i-- > 0;)
		if (is_away(v, i) && !same_device(v, i) && now_ns() >= v->away.rest_until_ns)
			search(v, i);
	if (!away_any(v))
		resume(v);
}

void away_status(struct volume *v, struct volume_away *ret)
{
	uint64_t since = since_ns(v);

	*ret = (struct volume_away){
		.base = is_away(v, 0),
		.log = is_away(v, 1),
		.given_up = away_any(v) && !away_waits(v),
		.seconds = since == UINT64_MAX ? 0 : (now_ns() - since) / 1000000000u,
		.limit_seconds = v->away.limit_ns == UINT64_MAX ? UINT64_MAX
								: v->away.limit_ns / 1000000000u,
		.times = v->away.times,
		.commit_waits = v->away.commit_waits,
	};
	LOCKED(&v->lock);
	memcpy(ret->other, v->away.other, sizeof(ret->other));
}
