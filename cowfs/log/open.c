/* SPDX-License-Identifier: MIT */
/* A log's life in memory: from its super record and what a scan of the ring finds, to its end. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "log/scan.h"

/* Nobody else's change hurts a log in which nothing waits: the base is complete, the epoch is new. */
static int accept_changed_base(struct log *l, struct scan *s)
{
	struct fs_fingerprint fp;
	int r = ring_base_fingerprint(l, &fp);

	if (r < 0)
		return r;
	l->newest = s->foreign;
	l->newest.fingerprint = fp;
	l->tail_lblk = l->newest.start_lblk;
	l->chain_records = 1;
	lag_begin_anew(l);
	s->rep->rejected = 0;
	return 1;
}

static void set_state(struct log *l, struct log_open_report *rep, int found)
{
	if (found < 0) {
		l->broken = true;
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

int log_open(struct log **ret, struct card *base, struct card *logcard, const struct log_super *super, unsigned flags,
	     struct log_open_report *ret_report)
{
	struct log_open_report rep = { 0 };
	struct log *l = calloc(1, sizeof(*l));
	struct scan s = { .l = l, .rep = &rep };
	uint64_t before = logcard->account.read_bytes;
	int r;

	if (!l)
		return -ENOMEM;
	l->base = base;
	l->card = logcard;
	l->super = *super;
	l->seg_blks = super->seg_bytes / COW_BLK_BYTES;
	l->ring_blks = l->seg_blks * super->seg_count;
	/* a pending ring is short, and used once: it knows no erase blocks */
	l->segs_per_eb = super->state == SUPER_PENDING
				 ? 1
				 : (uint32_t)max_u64(1, super->erase_block_bytes / super->seg_bytes);
	l->need_open = true;
	l->lag.cold = lag_on(l);
	l->any_base = flags & LOG_ANY_BASE;
	l->stage = io_alloc(STAGE_BLKS * COW_BLK_BYTES);
	l->index = log_index_empty();
	l->opened_ns = now_ns();
	s.buf = l->stage;
	r = l->stage && l->index ? 0 : -ENOMEM;
	if (r == 0 && super->state != SUPER_VIRGIN && !(flags & LOG_FRESH))
		r = scan_find_newest(&s);
	/* the file system that was to be shrunk has been used since, and has its blocks back */
	if (r == -EUCLEAN && super->state == SUPER_PENDING && !rep.highest_seq)
		r = 0;
	if (r == -EUCLEAN && s.foreign.seq) {
		rep.base_changed = true;
		strcpy(rep.why, s.foreign_why);
		if (!s.foreign_blks)
			r = accept_changed_base(l, &s);
	}
	free(s.cand);
	if (r < 0 && r != -EUCLEAN) {
		log_close(l);
		return r;
	}
	set_state(l, &rep, r);
	l->highest_seq = max_u64(rep.highest_seq, s.newest_seq);
	if (l->newest.seq && l->newest.identity[0] && base->geo.identity[0] &&
	    strcmp(l->newest.identity, base->geo.identity)) {
		rep.clone = true;
		rep.ledger = (struct wear_ledger){ 0 };
		l->wear.head.seq = 0;
	}
	wear_stop(&rep.ledger);
	l->ledger = rep.ledger;
	l->ledger.attaches++;
	if (l->newest.seq) {
		l->cursor = (l->newest.lblk + 1) % l->ring_blks;
		l->need_open = rep.rejected || rep.base_changed || rep.clone || !(l->newest.flags & RECORD_CLEAN);
		l->doubt = rep.rejected;
		l->spilled = l->lag.spilled = log_index_spilled_blks(l->index);
		l->home_done = !log_index_data_blks(l->index) && !log_index_zero_blks(l->index);
	}
	rep.newest = l->newest;
	rep.chain_records = l->chain_records;
	rep.live_blks = log_index_data_blks(l->index);
	rep.zero_blks = log_index_zero_blks(l->index);
	rep.read_bytes = logcard->account.read_bytes - before;
	*ret = l;
	*ret_report = rep;
	return 0;
}

void log_close(struct log *l)
{
	if (!l)
		return;
	wearlog_close(l);
	log_index_unref(l->index);
	lag_close(l);
	index_list_clear(&l->at.list);
	free(l->at.desc);
	free(l->stage);
	free(l);
}
