/* SPDX-License-Identifier: MIT */
/* The life of a log in memory: from its superblock and the result of a scan of the ring to its
 * end. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/io.h"
#include "log/rules.h"
#include "log/scan.h"

/* Is the uuid known, and neither of the two that the log knows? If the uuid was changed inside
 * the volume, the records have it. */
static bool is_another(const struct log_super *s, const struct fs_fingerprint *then,
		       const uint8_t uuid[16])
{
	return s->external && !bytes_all_zero(uuid, 16) && !bytes_all_zero(s->fs_uuid, 16) &&
	       memcmp(uuid, s->fs_uuid, 16) && memcmp(uuid, then->uuid, 16);
}

bool log_of_another(const struct log *l, const struct log_open_report *rep, const struct fsinfo *fs)
{
	return (rep->state == LOG_EMPTY || rep->state == LOG_RETIRED) && fs->kind != FS_UNKNOWN &&
	       is_another(&l->super, &l->newest.fingerprint, fs->uuid);
}

/* A foreign change does not harm a log in which nothing waits: the base is complete, and the
 * epoch is new. But if the base had a file system and has no known one now, something else owns
 * the device (LUKS, LVM, a swap area): -EUCLEAN, and nothing is written there. */
static int accept_changed_base(struct log *l, struct scan *s)
{
	struct fs_fingerprint fp;
	int r = ring_base_fingerprint(l, &fp);

	if (r == 0 && fp.kind == FS_UNKNOWN && s->foreign.fingerprint.kind != FS_UNKNOWN)
		r = -EUCLEAN;
	if (r < 0)
		return r;
	/* nothing proves that an external log belongs to this base */
	if (is_another(&l->super, &s->foreign.fingerprint, fp.uuid))
		return -EUCLEAN;
	l->newest = s->foreign;
	l->newest.fingerprint = fp;
	l->newest.flags &= ~(uint32_t)RECORD_UNREAD;
	l->newest.copy_bytes = 0; /* not of this base */
	sample_forget(l);
	l->tail_lblk = l->newest.start_lblk;
	l->chain_records = 1;
	lag_begin_anew(l);
	s->rep->rejected = 0;
	return 1;
}

/* Checks that the numbers that only count up are far from their limit: the next writes must use
 * higher ones. */
static bool at_their_end(const struct log *l, const struct log_open_report *rep,
			 const struct scan *s)
{
	return max_u64(rep->highest_seq, s->newest_seq) > INT64_MAX / 2 ||
	       l->max_serial > INT64_MAX / 2 || l->epoch > INT64_MAX;
}

static void set_state(struct log *l, struct log_open_report *rep, int found)
{
	if (found < 0) {
		epoch_set(l, EPOCH_BROKEN);
		rep->state = rep->base_changed ? LOG_FOREIGN : LOG_BROKEN;
		if (!rep->why[0])
			snprintf(rep->why, sizeof(rep->why), "no complete generation was found");
	} else if (found == 0) {
		rep->state = LOG_EMPTY;
	} else if (rep->rejected) {
		rep->state = LOG_FELL_BACK;
	} else if (l->newest.type == RECORD_RETIRED) {
		rep->state = LOG_RETIRED;
	} else {
		rep->state = l->newest.flags & RECORD_CLEAN ? LOG_CLEAN : LOG_LIVE;
	}
}

static struct log *log_new(struct card *base, struct card *logcard, const struct log_super *super,
			   unsigned flags)
{
	struct log *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->base = base;
	l->card = logcard;
	l->flags = flags;
	l->super = *super;
	l->seg_blks = super->seg_bytes / COW_BLK_BYTES;
	l->ring_blks = l->seg_blks * super->seg_count;
	/* a pending ring is short and used once: it ignores erase blocks */
	l->segs_per_eb = super->state == SUPER_PENDING
				 ? 1
				 : (uint32_t)max_u64(1,
						     super->erase_block_bytes / super->seg_bytes);
	l->lag.cold = lag_on(l);
	l->order.copy_pads = lag_on(l) ? 2 : 0;
	l->stage = io_alloc_raw(STAGE_BLKS * COW_BLK_BYTES);
	l->index = log_index_empty();
	l->opened_ns = now_ns();
	if (l->stage && l->index)
		return l;
	log_close(l);
	return NULL;
}

/* -EUCLEAN: no generation is usable, and rep->why has the reason. */
static int find_generation(struct log *l, struct scan *s)
{
	struct opening opening = {
		.ring_blks = SCAN_LAPS * max_u64(l->ring_blks, SCAN_LAP_MIN_BLKS),
		.base_blks = SCAN_LAPS * (l->base->geo.size_bytes / COW_BLK_BYTES),
	};
	struct log_open_report *rep = s->rep;
	int r = 0;

	l->opening = &opening;
	if (l->super.state == SUPER_PENDING && !(l->flags & LOG_FRESH))
		r = ring_look_home(l);
	if (r == 0 && l->super.state != SUPER_VIRGIN && !(l->flags & LOG_FRESH))
		r = scan_find_newest(s);
	l->opening = NULL;
	if (r == -E2BIG)
		snprintf(rep->why, sizeof(rep->why),
			 "its records need more reading than any log that cowfs writes: no "
			 "generation was chosen");
	rep->needs_older = r == -EADDRNOTAVAIL;
	if (r == -E2BIG || r == -EADDRNOTAVAIL) {
		s->foreign.seq = 0;
		r = -EUCLEAN;
	}
	if (r >= 0 && at_their_end(l, rep, s)) {
		snprintf(rep->why, sizeof(rep->why),
			 "its sequence numbers are exhausted: cowfs did not write them");
		log_index_unref(l->index);
		l->index = log_index_empty();
		l->newest = (struct log_record){ 0 };
		s->foreign.seq = 0;
		r = l->index ? -EUCLEAN : -ENOMEM;
	}
	if (r == -EUCLEAN && s->foreign.seq) {
		rep->base_changed = true;
		strcpy(rep->why, s->foreign_why);
		/* a guarded base is not whole by itself */
		if (!s->foreign_blks && !ring_base_guarded(l))
			r = accept_changed_base(l, s);
	}
	return r;
}

/* Sets the position after the newest record where the ring continues. */
static void go_on(struct log *l, const struct log_open_report *rep)
{
	l->cursor = (l->newest.lblk + 1) % l->ring_blks;
	if (!rep->rejected && !rep->base_changed && !rep->clone && (l->newest.flags & RECORD_CLEAN))
		epoch_set(l, EPOCH_OPEN);
	l->doubt = rep->rejected;
	l->spilled = l->lag.spilled = log_index_spilled_blks(l->index);
	l->home_done = !log_index_blks(l->index) && !l->hold.at.seq;
}

/* A base that cannot be read now is not compared later. */
static void know_base(struct log *l)
{
	l->base_known = !(l->flags & (LOG_ANY_BASE | LOG_FRESH)) &&
			l->super.state != SUPER_PENDING &&
			(!l->newest.seq || l->newest.type == RECORD_RETIRED) &&
			ring_base_fingerprint(l, &l->base_then) == 0;
}

int log_open(struct log **ret, struct card *base, struct card *logcard,
	     const struct log_super *super, unsigned flags, const struct log_mark *mark,
	     struct log_open_report *ret_report)
{
	struct log_open_report rep = { 0 };
	struct log *l = log_new(base, logcard, super, flags);
	struct scan s = { .l = l, .rep = &rep, .mark = mark };
	int r;

	if (!l)
		return -ENOMEM;
	s.buf = l->stage;
	r = find_generation(l, &s);
	free(s.cand);
	if (r < 0 && r != -EUCLEAN) {
		log_close(l);
		return r;
	}
	set_state(l, &rep, r);
	if (l->flags & LOG_ANY_BASE)
		sample_forget(l);
	else if (l->newest.type != RECORD_COMMIT) /* a checkpoint may have been cut */
		sample_forget_logged(l);
	l->highest_seq = max_u64(rep.highest_seq, s.newest_seq);
	rep.torn_seq = s.torn_seq > l->highest_seq ? s.torn_seq : 0;
	l->found_seq = l->highest_seq;
	if (l->newest.seq && l->newest.identity[0] && base->geo.identity[0] &&
	    strcmp(l->newest.identity, base->geo.identity)) {
		rep.clone = true;
		rep.ledger = (struct wear_ledger){ 0 };
		l->wear.head.seq = 0;
	}
	if (l->newest.seq)
		go_on(l, &rep);
	know_base(l);
	r = guarded_opened(l, rep.base_changed);
	if (r < 0) {
		log_close(l);
		return r;
	}
	/* nothing waits, and nothing has kept others from changing the base since */
	if (l->home_done && l->guarded.state != GUARD_ON)
		sample_forget(l);
	wear_stop(&rep.ledger);
	if (l->guarded.taken)
		guarded_count(&rep.ledger, 1);
	l->ledger = rep.ledger;
	l->ledger.attaches++;
	rep.newest = l->newest;
	rep.live_blks = log_index_data_blks(l->index);
	rep.zero_blks = log_index_zero_blks(l->index);
	*ret = l;
	*ret_report = rep;
	return 0;
}

/* ---- a card that was away ---- */

/* Does the card have what the newest record needs? One that lies about FLUSH may have lost a part of it. */
static int read_again(struct log *l)
{
	unsigned flags = (l->hold.going ? 0 : LOG_NOT_BACK) | (l->flags & LOG_ANY_BASE);
	struct log_open_report rep;
	struct log *now;
	bool whole;
	int r = log_open(&now, l->base, l->card, &l->super, flags, NULL, &rep);

	if (r < 0)
		return r;
	/* or a later one, whose attempt has failed */
	whole = rep.state < LOG_BROKEN && now->newest.seq >= l->newest.seq;
	log_close(now);
	r = guarded_show(l);
	return r < 0 || whole ? r : -ESTALE;
}

/* A job that has ended well leaves nothing without a FLUSH (the crash driver looks), and one that has failed says so
 * itself: what is set here of that is a precaution. */
int log_lost_writes(struct log *l)
{
	struct log_super super;
	unsigned trouble;
	int r;

	if (l->super.state == SUPER_PENDING || l->state == EPOCH_BROKEN)
		return 0;
	/* nothing was flushed since the log was opened, or that says nothing */
	if (lag_on(l) || (!l->settled && !l->super_due)) {
		r = super_read(l->card, l->super.external ? 0 : l->super.fs_bytes, &super,
			       &trouble);
		if (r < 0)
			return r;
		l->super_trouble = trouble;
		l->order.copy_pads = lag_on(l) ? 2 : 0;
	}
	if (!l->settled && !l->super_due && l->guarded.copied)
		l->guarded.state = GUARD_UNSURE;
	if (lag_on(l) && l->newest.seq && l->super.state != SUPER_VIRGIN) {
		r = read_again(l);
		if (r < 0)
			return r;
	}
	/* with lag a FLUSH says nothing */
	if (!lag_on(l) && card_is_durable(l->base, l->base->writes) &&
	    card_is_durable(l->card, l->card->writes))
		return 0;
	guarded_failed(l);
	l->suspect = l->lag.cold = true;
	checkpoint_forget(l);
	rules_lost(l);
	return 0;
}

void log_close(struct log *l)
{
	if (!l)
		return;
	wearlog_close(l);
	guarded_close(l);
	checkpoint_forget(l);
	log_index_unref(l->index);
	lag_close(l);
	hold_forget(l);
	index_list_clear(&l->at.list);
	free(l->at.desc);
	free(l->stage);
	free(l);
}
