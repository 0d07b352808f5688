/* SPDX-License-Identifier: MIT */
/*
 * The account of what cowfs did to the card, compared with the kernel's counters. Bytes that only
 * the kernel counted are a foreign change. Also the wear table for other threads.
 */
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "volume/private.h"

static void add_account(struct volume_account *a, struct card *c)
{
	a->write_calls += c->account.write_calls;
	a->written_bytes += c->account.written_bytes;
	a->flushes += c->account.flushes;
	a->writable_ns += c->account.writable_ns;
}

static bool add_kernel(struct volume_account *a, struct card *c, const struct card_counters *then,
		       const struct card_counters *before)
{
	struct card_counters now;

	/* 32-bit counters wrap at 2 TiB; then nothing is known */
	if (card_counters(c, &now) < 0 || now.written_bytes < then->written_bytes)
		return false;
	a->kernel.write_ios += before->write_ios + now.write_ios - then->write_ios;
	a->kernel.written_bytes += before->written_bytes + now.written_bytes - then->written_bytes;
	a->kernel.discarded_bytes += before->discarded_bytes + now.discarded_bytes -
				     then->discarded_bytes;
	a->kernel.flushes += before->flushes + now.flushes - then->flushes;
	return true;
}

/* Lock held. Notes foreign changes and since when they exist, which is the last time that account
 * and kernel agreed. Returns true if the change is new. */
static bool note_foreign(struct volume *v, uint64_t bytes)
{
	uint64_t now_s = (uint64_t)time(NULL);

	if (bytes <= v->foreign.bytes) {
		if (!bytes)
			v->foreign.agreed_s = now_s;
		return false;
	}
	if (!v->foreign.bytes) {
		v->foreign.since_s = v->foreign.agreed_s ? v->foreign.agreed_s : v->attached_s;
		v->foreign.noticed_s = now_s;
	}
	v->foreign.bytes = bytes;
	return true;
}

static void say_foreign(const struct volume *v, uint64_t bytes)
{
	msg(MSG_ERR, "%s: foreign writes to the card since the attach: %llu bytes", v->name,
	    (unsigned long long)bytes);
}

static bool compare(const struct volume *v, const struct volume_kernel *k, struct volume_account *a)
{
	bool two = v->log_card != v->base;

	add_account(a, v->base);
	if (two)
		add_account(a, v->log_card);
	a->have_kernel = k->have[0] && k->have[1] &&
			 add_kernel(a, v->base, &k->at_open[0], &k->before[0]) &&
			 (!two || add_kernel(a, v->log_card, &k->at_open[1], &k->before[1]));
	return a->have_kernel;
}

static uint64_t difference(const struct volume_account *a)
{
	return a->kernel.written_bytes - min_u64(a->kernel.written_bytes, a->written_bytes);
}

void account_get(struct volume *v, struct volume_account *ret)
{
	struct volume_kernel k;
	bool steady, news = false;

	/* the two counters are read one after the other, so only a card at rest can be compared, and one that was not
	 * exchanged meanwhile */
	pthread_mutex_lock(&v->lock);
	steady = !v->busy;
	memcpy(&k, &v->kernel, sizeof(k));
	pthread_mutex_unlock(&v->lock);
	steady = compare(v, &k, ret) && steady;
	pthread_mutex_lock(&v->lock);
	if (steady && !v->busy && !memcmp(&k, &v->kernel, sizeof(k)))
		news = note_foreign(v, difference(ret));
	ret->foreign = v->foreign;
	pthread_mutex_unlock(&v->lock);
	if (news)
		say_foreign(v, ret->foreign.bytes);
}

void account_foreign_text(const struct volume_foreign *f, char *buf, size_t size_bytes)
{
	char since[32] = "the attach";
	time_t t = (time_t)f->since_s;
	struct tm tm;

	if (gmtime_r(&t, &tm))
		strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S UTC", &tm);
	snprintf(buf, size_bytes, "foreign writes to the card: %llu bytes since %s",
		 (unsigned long long)f->bytes, since);
}

void account_check(struct volume *v)
{
	struct volume_account a = { 0 };
	struct wear_ledger *l = log_ledger(v->log);
	uint64_t bytes, retried = v->base->account.retried;
	bool news;

	if (v->log_card != v->base)
		retried += v->log_card->account.retried;
	l->retried_ios += retried - v->retried_counted;
	v->retried_counted = retried;
	if (!compare(v, &v->kernel, &a)) /* this thread alone changes it */
		return;
	pthread_mutex_lock(&v->lock);
	news = note_foreign(v, difference(&a));
	bytes = v->foreign.bytes;
	pthread_mutex_unlock(&v->lock);
	if (bytes > v->foreign_counted) {
		l->foreign_bytes += bytes - v->foreign_counted;
		if (!l->foreign_first_s)
			l->foreign_first_s = (uint64_t)time(NULL);
		v->foreign_counted = bytes;
	}
	if (news)
		say_foreign(v, bytes);
}

void account_copy_wear(struct volume *v)
{
	const struct wear_table *t = log_wear(v->log);

	if (!t)
		return;
	if (!v->wear)
		v->wear = malloc(wear_table_bytes(&t->geo));
	if (v->wear)
		memcpy(v->wear, t, wear_table_bytes(&t->geo));
	v->wear_stamp++;
}

void volume_copy_devices(struct volume *v, char device[128], char log_device[128])
{
	LOCKED(&v->lock);
	memcpy(device, v->device, sizeof(v->device));
	memcpy(log_device, v->log_device, sizeof(v->log_device));
}

void volume_get_wear(struct volume *v, uint32_t first, struct volume_wear *ret)
{
	memset(ret, 0, sizeof(*ret));
	account_get(v, &ret->account);
	memcpy(ret->name, v->name, sizeof(ret->name));
	volume_copy_devices(v, ret->device, ret->log_device);
	memcpy(ret->identity, v->base->geo.identity, sizeof(ret->identity));
	ret->volume_bytes = blk_to_bytes(v->volume_blks);
	ret->device_bytes = v->base->geo.size_bytes;
	ret->eb_source = log_super(v->log)->eb_source;
	ret->log_state = v->opened.state;
	ret->clone = v->opened.clone;
	LOCKED(&v->lock);
	ret->ledger = v->of_log.totals;
	ret->last_s = v->of_log.newest_s;
	ret->stamp = v->wear_stamp;
	ret->have_table = v->wear;
	if (v->wear) {
		ret->geo = v->wear->geo;
		wear_take_part(v->wear, first, &ret->part);
	}
}
