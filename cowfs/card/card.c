/* SPDX-License-Identifier: MIT */
/*
 * The wrappers of a card: the checks common to all implementations, and the account.
 *
 * The account counts attempted I/O before the device answers. The kernel counts failed requests,
 * too, and a write missing from the account is an alarm.
 *
 * What is tried again, of a card in the daemon that is there and fails with -EIO: a read; and a write
 * if a good FLUSH precedes it, because an error, such as the reset of a device, may have cost what the
 * device had in its cache. Never a FLUSH: the next one may succeed without what the failed one lost
 * (fsyncgate).
 */
#include "card/card.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/invariant.h"

#define SECTOR_BYTES 512u
#define LAST_PAUSE_MS 640 /* 1.27 s in all */
#define NOT_AGAIN_NS 10000000000ull

static void account_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static bool range_is_valid(const struct card *c, uint64_t off_bytes, const void *buf,
			   size_t len_bytes)
{
	if ((off_bytes | len_bytes | (uintptr_t)buf) % COW_BLK_BYTES)
		return false;
	return off_bytes <= c->geo.size_bytes && len_bytes <= c->geo.size_bytes - off_bytes;
}

/* Maps the kernel's various errors of a medium or its bus to one: a block could not be read or
 * written. A missing device, or lack of memory, keeps its own error. */
static int card_error(int r)
{
	return r == -ENODATA || r == -EREMOTEIO || r == -EILSEQ || r == -ETIMEDOUT || r == -ENOLINK
		       ? -EIO
		       : r;
}

static void nap(long ms)
{
	const struct timespec t = { .tv_nsec = ms * 1000000 };

	nanosleep(&t, NULL);
}

/* ---- away ---- */

/* Any address of the thread's own. */
static const void *this_thread(void)
{
	static _Thread_local char here;

	return &here;
}

int card_enter(struct card *c)
{
	atomic_fetch_add(&c->inside, 1);
	if (!card_is_away(c) || atomic_load(&c->examiner) == this_thread())
		return 0;
	atomic_fetch_sub(&c->inside, 1);
	return c->given_up ? -EIO : -ENOMEDIUM;
}

static bool is_gone(struct card *c)
{
	uint64_t none = 0;

	if (!card_device_gone(c))
		return false;
	(void)atomic_compare_exchange_strong(&c->away_ns, &none, now_ns());
	return true;
}

/*
 * The kernel fails requests before it takes the device away: up to 0.2 s of an SD card, 11 ms of a SCSI disk. A device that
 * answers is not about to go. One that neither answers nor goes is not waited for again for some time.
 */
static bool goes_away(struct card *c)
{
	if (!c->ops->answers)
		return false;
	for (long ms = 10; ms <= LAST_PAUSE_MS; ms *= 2) {
		if (c->ops->answers(c))
			return false;
		nap(ms);
		if (is_gone(c))
			return true;
	}
	atomic_store(&c->waited_ns, now_ns());
	return false;
}

static bool is_going(struct card *c)
{
	uint64_t now = now_ns(), asked = atomic_load(&c->waited_ns);

	return c->retries && (!asked || now >= asked + NOT_AGAIN_NS) && goes_away(c);
}

/* Errors that no device has made. */
static bool is_of_caller(int r)
{
	return r == -EAGAIN || r == -EINVAL || r == -EOPNOTSUPP || r == -ENOTSUP || r == -ENOMEM;
}

/* For a thread that serves others. A device that is about to go fails with -ENODEV, and is read again as any other. */
int card_leave(struct card *c, int r)
{
	if (r < 0 && !is_of_caller(r))
		r = is_gone(c) ? -ENOMEDIUM : -EIO;
	atomic_fetch_sub(&c->inside, 1);
	return r;
}

static int leave_call(struct card *c, int r)
{
	if (r < 0 && !is_of_caller(r))
		r = is_gone(c) || is_going(c) ? -ENOMEDIUM : card_error(r);
	atomic_fetch_sub(&c->inside, 1);
	return r;
}

bool card_look(struct card *c)
{
	if (card_enter(c) == 0) {
		(void)is_gone(c);
		atomic_fetch_sub(&c->inside, 1);
	}
	return card_is_away(c);
}

bool card_lost(struct card *c, int r)
{
	return card_is_away(c) || (r < 0 && (is_gone(c) || goes_away(c)));
}

struct card *card_which_lost(struct card *base, struct card *log_card, int r)
{
	if (base && card_lost(base, r))
		return base;
	return log_card && log_card != base && card_lost(log_card, r) ? log_card : NULL;
}

void card_examine(struct card *c, bool on)
{
	if (!INVARIANT("examined card", card_is_away(c)))
		return;
	if (!on)
		atomic_store(&c->examiner, NULL);
	while (atomic_load(&c->inside))
		nap(1);
	if (on)
		atomic_store(&c->examiner, this_thread());
}

void card_back(struct card *c)
{
	c->writable = false; /* it was opened like that */
	c->given_up = false;
	atomic_store(&c->away_ns, 0);
	atomic_store(&c->examiner, NULL);
}

void card_give_up(struct card *c)
{
	c->given_up = true;
}

/* ---- I/O ---- */

void card_account_read(struct card *c, size_t len_bytes)
{
	account_add(&c->account.read_calls, 1);
	account_add(&c->account.read_bytes, len_bytes);
}

int card_check_read(const struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	return len_bytes && range_is_valid(c, off_bytes, buf, len_bytes) ? 0 : -EINVAL;
}

static int attempt(struct card *c, bool write, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	if (!write) {
		card_account_read(c, len_bytes);
		return card_error(c->ops->read(c, off_bytes, buf, len_bytes));
	}
	account_add(&c->account.write_calls, 1);
	account_add(&c->account.written_bytes, len_bytes);
	if (c->wrote)
		c->wrote(c->wrote_ctx, c, off_bytes, len_bytes);
	return card_error(c->ops->write(c, off_bytes, buf, len_bytes));
}

/* After a failure, block by block: a bad one is tried again without its neighbours. */
static int try_again(struct card *c, bool write, uint64_t off_bytes, uint8_t *buf, size_t len_bytes)
{
	static const long pause_ms[] = { 10, 50, 250 };
	int r = 0;

	if (is_gone(c))
		return -EIO;
	account_add(&c->account.retried, 1);
	nap(pause_ms[0]);
	for (size_t done = 0; r == 0 && done < len_bytes; done += COW_BLK_BYTES) {
		r = attempt(c, write, off_bytes + done, buf + done, COW_BLK_BYTES);
		for (unsigned i = 1; r == -EIO && i < ARRAY_SIZE(pause_ms) && !is_gone(c); i++) {
			nap(pause_ms[i]);
			r = attempt(c, write, off_bytes + done, buf + done, COW_BLK_BYTES);
		}
	}
	return r;
}

int card_read_bare(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	int r;

	if (!range_is_valid(c, off_bytes, buf, len_bytes))
		return -EINVAL;
	r = len_bytes ? card_enter(c) : 0;
	if (r < 0 || !len_bytes)
		return r;
	r = attempt(c, false, off_bytes, buf, len_bytes);
	if (r == -EIO && c->retries)
		r = try_again(c, false, off_bytes, buf, len_bytes);
	return leave_call(c, r);
}

int card_read(struct card *c, uint64_t off_bytes, void *buf, size_t len_bytes)
{
	int r = card_read_bare(c, off_bytes, buf, len_bytes);

	if (r == 0 && card_shows(c, off_bytes, len_bytes)) {
		pthread_mutex_lock(&c->shown_lock);
		if (card_shows(c, off_bytes, len_bytes))
			memcpy((uint8_t *)buf + (c->shown_end_bytes - COW_BLK_BYTES - off_bytes),
			       c->shown, COW_BLK_BYTES);
		pthread_mutex_unlock(&c->shown_lock);
	}
	return r;
}

int card_show(struct card *c, uint64_t off_bytes, const void *blk)
{
	uint64_t end_bytes = off_bytes + COW_BLK_BYTES;

	if (blk && !c->shown)
		c->shown = malloc(COW_BLK_BYTES);
	if (blk && !c->shown)
		return -ENOMEM;
	if (blk && c->shown_end_bytes == end_bytes && memcmp(c->shown, blk, COW_BLK_BYTES) &&
	    c->before_write)
		c->before_write(c->before_write_ctx, c, off_bytes, COW_BLK_BYTES);
	pthread_mutex_lock(&c->shown_lock);
	if (blk)
		memcpy(c->shown, blk, COW_BLK_BYTES);
	atomic_store(&c->shown_end_bytes, blk ? end_bytes : 0);
	pthread_mutex_unlock(&c->shown_lock);
	return 0;
}

int card_async_fd(struct card *c)
{
	return c->ops->async_fd ? c->ops->async_fd(c) : -ENOTSUP;
}

int card_write(struct card *c, uint64_t off_bytes, const void *buf, size_t len_bytes)
{
	bool alone = card_is_durable(c, c->writes);
	int r;

	if (!range_is_valid(c, off_bytes, buf, len_bytes))
		return -EINVAL;
	if (!c->writable)
		return -EROFS;
	if (invariant_broken())
		return -ENOTRECOVERABLE;
	if (!len_bytes)
		return 0;
	r = card_enter(c);
	if (r < 0)
		return r;
	if (c->before_write)
		c->before_write(c->before_write_ctx, c, off_bytes, len_bytes);
	c->writes++;
	r = attempt(c, true, off_bytes, (void *)buf, len_bytes);
	if (r == -EIO && c->retries && alone)
		r = try_again(c, true, off_bytes, (void *)buf, len_bytes);
	return leave_call(c, r);
}

int card_discard(struct card *c, uint64_t off_bytes, uint64_t len_bytes)
{
	int r;

	if ((off_bytes | len_bytes) % SECTOR_BYTES ||
	    !range_fits(off_bytes, len_bytes, c->geo.size_bytes))
		return -EINVAL;
	if (!c->ops->discard)
		return -EOPNOTSUPP;
	if (!c->writable)
		return -EROFS;
	if (invariant_broken())
		return -ENOTRECOVERABLE;
	r = card_enter(c);
	if (r == 0)
		r = leave_call(c, c->ops->discard(c, off_bytes, len_bytes));
	if (r == 0)
		account_add(&c->account.discarded_bytes, len_bytes);
	return r;
}

int card_flush(struct card *c)
{
	int r = card_enter(c);

	if (r < 0)
		return r;
	account_add(&c->account.flushes, 1);
	r = leave_call(c, c->ops->flush(c));
	if (r == 0)
		c->durable_writes = c->writes;
	return r;
}

/* A failure leaves the state unchanged: a card that could not be locked again still counts as
 * writable. */
int card_set_writable(struct card *c, bool writable)
{
	int r;

	if (c->writable == writable)
		return 0;
	if (writable && invariant_broken())
		return -ENOTRECOVERABLE;
	r = card_enter(c);
	if (r == 0)
		r = leave_call(c, c->ops->set_writable(c, writable));
	if (r < 0 && (writable || !card_is_away(c)))
		return r;
	c->writable = writable;
	if (writable && c->wrote)
		c->wrote(c->wrote_ctx, c, 0, 0);
	if (writable)
		c->writable_since_ns = now_ns();
	else
		account_add(&c->account.writable_ns, now_ns() - c->writable_since_ns);
	return 0;
}

int card_counters(struct card *c, struct card_counters *ret)
{
	int r = card_enter(c);

	return r < 0 ? r : leave_call(c, c->ops->counters(c, ret));
}

void card_close(struct card *c)
{
	if (!c)
		return;
	free(c->shown);
	c->ops->close(c);
}
