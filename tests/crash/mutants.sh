#!/bin/bash
# SPDX-License-Identifier: MIT
# Each rule of the log is switched off in a copy of the source, and the attack that aims at it must fail.
# The rules that cowfs checks itself (base/invariant.h) are not built in: tests/crash/invariants.sh is about them.
# usage: mutants.sh [--apply] [NAME...]   (make check-mutants)
#	--apply		only looks whether each can be applied (make lint)
#	MUTANT_SECONDS	at most for one attack (240)
#	MUTANT_RUN	a command that runs each build and each attack, such as nice
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=mutate.bash
. "$(dirname "$0")/mutate.bash"
seconds=${MUTANT_SECONDS:-240}
export CFLAGS="${CFLAGS:--O2 -g} -DCOWFS_NO_INVARIANTS"

# mutant NAME ATTACK FILE OLD NEW: see changed
# ATTACK w: random workloads; lies: those with cards that go away and lie; several with commas: one of them.
mutant() {
	local name=$1 attack args code
	chosen "$name" || return 0
	if changed crash "${@:3}"; then
		verdict='NOT NOTICED'
		for attack in ${2//,/ }; do
			args=(--attack "$attack") code=0
			[ "$attack" != w ] || args=(--no-attacks --seconds 60)
			[ "$attack" != lies ] || args=(--no-attacks --away --lag 1 --lie 2 --thin 6 --seed 7000 --seconds 60)
			"${run[@]}" timeout "$seconds" "$work/build/tests/crash" "${args[@]}" >"$work/out" 2>&1 || code=$?
			[ $code != 1 ] || noticed="$attack: $(grep -m1 FAILED "$work/out" | cut -c1-100)"
			[ $code -lt 124 ] || noticed="$attack: ended with $code"
			[ -z "$noticed" ] || break
		done
	fi
	judged "$name" "$3"
}

# R1 a chain that is not complete
mutant R1-chain chain,reuse-early,wrap,w cowfs/log/chain.c '(unsigned long long)r.prev.seq, (unsigned long long)r.seq);
		if (e < 0)
			return e;' '(unsigned long long)r.prev.seq, (unsigned long long)r.seq);
		if (e < 0)
			return e == -EBADMSG ? 0 : e;'
# R2 a sequence number is used once, failed and rejected attempts included
mutant R2-failed sequence cowfs/log/append.c '	l->ledger.commits_failed++;' '	l->ledger.commits_failed++;
	l->highest_seq = l->newest.seq;'
mutant R2-rejected rejected cowfs/log/open.c 'l->highest_seq = max_u64(rep.highest_seq, s.newest_seq);' 'l->highest_seq = l->newest.seq;'
# R3 an open record after a failed attempt
mutant R3-open chain cowfs/log/append.c 'epoch_set(l, EPOCH_DUE);
	l->doubt' 'epoch_set(l, EPOCH_OPEN);
	l->doubt'
mutant R3-open-checkpoint failed-checkpoint cowfs/log/record.c '{ /* R3: it may be on the card, ahead of the next */
		epoch_set(l, EPOCH_DUE);
		l->suspect = l->lag.cold = true;' '{
		l->suspect = true;'
mutant R3-settled restart,ends cowfs/log/append.c 'int r = l->settled ? 0 : record_flush(l);' 'int r = 0;'
mutant R3-rests ends,w cowfs/commit/commit.c 'return log_settle(log);' 'return 0;'
# a commit that returned is newer than a record of the attempt before it
mutant R3-nothing undone cowfs/commit/commit.c '(!log_doubt(j->log) || j->opt->dry_run);' 'true;'
# R4 every CRC
mutant R4-payload rejected,rotten,every-byte cowfs/log/verify.c 'if (escape_content_ok(e->type == DESC_LOGGED, blk, e->crc[i + k]))' 'if (1)'
mutant R4-record every-byte cowfs/log/codec.c 'if (get_u32(r) != checksum(blk))' 'if (get_u32(r) == checksum(blk) + 1)'
mutant R4-in-place rotten,every-byte cowfs/log/verify.c '		if (where != LOG_HOME)
			continue;' '		if (where != LOG_HOME || e->type == DESC_DIRECT)
			continue;'
# R5 read back at all
mutant R5-verify rejected cowfs/log/verify.c '.check = is_checked(ch, i),' '.check = false,'
# what a boot loader writes
mutant L-changed loader cowfs/log/verify.c 'e->type == DESC_DIRECT && !lag_on(l) && loader_has_env(blk)' 'false'
mutant L-sample loader cowfs/log/sample.c 'is_fit_place(l, blk) && !loader_has_env(content) &&' 'is_fit_place(l, blk) &&'
# R6 what was written in place takes older log entries out
mutant R6-revoke revoke cowfs/log/ring.h '		return INDEX_HOME;' '		return INDEX_ZERO;'
# R7 never below the floor
mutant R7-floor rotten,begin cowfs/log/chain.c 'c->seq < s->fallback_floor ||' '0 ||'
# R8 nothing is the same after a failure
mutant R8-same same-after-doubt cowfs/commit/classify.c 'bool compare = !log_doubt(j->log) &&' 'bool compare ='
mutant R8-zeros zeros-home cowfs/log/checkpoint.c 'bool reads = !l->suspect &&' 'l->suspect = false; bool reads ='
mutant T-zeros trimmed cowfs/log/checkpoint.c '!l->suspect && !l->ledger.trims' '!l->suspect'
mutant T-free trimmed tests/crash/world.c 'if (use != USE_FREE || held)' 'if (held)'
# R9 the tail after the home writes' FLUSH; the ring after the record that carries it
mutant R10-left stopped-checkpoint cowfs/log/append.c 'r = index_list_overlay(&ret->left, l->left, &a->list,' \
	'r = index_list_overlay(&ret->left, l->left, &(struct index_list){ 0 },'
mutant R9-home-flush half-checkpoint,recover cowfs/log/checkpoint.c '		r = card_flush(l->base);
	if (r < 0 && entered' '		r = 0;
	if (r < 0 && entered'
mutant R9-reuse reuse-early cowfs/log/checkpoint.c '	l->home_done = true;
	log_index_unref' '	l->home_done = true;
	l->tail_lblk = l->lag.tail_lblk = l->newest.lblk;
	log_index_unref'
mutant R9-ring-end reuse-early,wrap cowfs/log/ring.c 'if (l->newest.seq && !ring_free_segments(l, *lblk))' 'if (0)'
mutant R9-fresh w,reuse-early,wrap cowfs/log/checkpoint.c 'l->entered_lblk || !ring_fresh_is_free(l))' 'l->entered_lblk)'
# room for a measurement: behind a record that needs no other
mutant room-tail measured cowfs/log/room.c 'free_part(l, false, &first, &ebs);' 'first = 0; ebs = l->super.seg_count / l->segs_per_eb;'
# R10 spilled payload lies in blocks that neither image uses
mutant R10-spill spill,w cowfs/commit/classify.c 'return r == 0 && *ret == USE_FREE && j->sealed' 'return r == 0 && j->sealed'
# metadata goes to the ring
mutant spill-metadata spill,w cowfs/commit/commit.c 'int r = extents_without(&rest, &j->logged, &j->stays);' 'int r = extents_merge(&rest, &j->logged);

	extents_clear(&j->stays);'
# order of writes
mutant order-record-flush chain,spill,half-checkpoint,recover,w cowfs/log/append.c '	return r == 0 ? record_flush(l) : r;' '	return r;'
mutant order-last-flush chain,w cowfs/log/record.c 'r = lag_on(l) ? record_flush(l) : card_flush(l->card);' 'r = 0;'
mutant order-begin begin,half-checkpoint cowfs/log/checkpoint.c '	int r = put_checkpoint_begin(l);

	if (r == 0) /* L4 */' '	int r = 0;

	if (r == 0) /* L4 */'
# the guard
mutant G1-on chain,w cowfs/log/append.c '	r = guarded_begin(l);
	if (r < 0)
		return r;' ''
mutant G2-copy chain,w cowfs/log/guarded.c 'return (type == RECORD_OPEN || type == RECORD_TAIL) && !log_index_blks(l->index)' 'return false'
mutant G2-logged w cowfs/log/append.c 'r = guarded_log_first(l);' 'r = 0;'
mutant G2-retired recover,w cowfs/log/guarded.c 'return l->guarded.packed_bytes && l->guarded.state != GUARD_ON && !guarded_is_covered(l) &&' \
	'return false &&'
mutant G3-early half-checkpoint,w cowfs/log/checkpoint.c 'if (r == 0 && guarded_fits(l, blk, next))' 'if (0)'
mutant G3-tail half-checkpoint,w cowfs/log/guarded.c '	memcpy(g->truth, next, COW_BLK_BYTES);
	take_truth(l);
	return guarded_show(l);' '	memcpy(g->truth, next, COW_BLK_BYTES);
	take_truth(l);
	return write_first(l, next, GUARD_OFF);'
mutant G-leave stopped-super cowfs/log/guarded.c '	g->state = GUARD_OFF;
	g->packed_bytes = 0;
	return guarded_show(l);' '	return 0;'
mutant G-garbage chain,w cowfs/log/foreign.c '		im.copy = r ? buf : NULL;' ''
mutant G-repair unguard cowfs/log/guarded.c 'return l->guarded.state == GUARD_UNSURE && guarded_is_due(l) ? set_now(l) : 0;' 'return 0;'
mutant G4-taken unguard cowfs/log/open.c 'if (l->guarded.taken)' 'if (0)'
mutant G4-there unguard cowfs/log/guarded.c '!(guard_is(bare, &owner) && has_seen(&l->newest, owner & GUARD_ODD))' '(guard_is(bare, &owner) || 1)'
mutant G4-odd unguard,half-checkpoint,w cowfs/log/guarded.c 'g->odd = has_seen(&l->newest, false);' 'g->odd = false;'
mutant G4-directly unguard cowfs/log/guarded.c '(!counted || (log_guarded(l) &&' '((!counted && !log_guarded(l)) || (log_guarded(l) &&'
mutant G4-behind unguard cowfs/log/guarded.c '!counted ||' '(!counted && log_guarded(l)) ||'
mutant G4-flag unguard cowfs/log/guarded.c 'if (rec->copy_bytes && l->guarded.state == GUARD_ON)' 'if (rec->copy_bytes)'
# a checkpoint that takes from RAM
mutant ram-content w,half-checkpoint cowfs/log/checkpoint.c 'crc32c_back(buf + blk_to_bytes(same), COW_BLK_BYTES) == e->crc[i + same]' '1'
# what may be written in place
mutant direct-used revoke,chain,w cowfs/commit/classify.c 'return old == USE_FREE ? classify_metadata' \
	'return old != USE_JOURNAL ? classify_metadata'
mutant direct-journal w cowfs/commit/classify.c 'return old == USE_FREE ? classify_metadata' \
	'return 1 ? classify_metadata'
mutant bridging w,half-checkpoint cowfs/commit/commit.c 'r = card_write(j->base, blk_to_bytes(c.blk), j->buf, blk_to_bytes(c.blks));
		for (size_t k' \
	'r = card_write(j->base, blk_to_bytes(c.blk), j->buf, blk_to_bytes(c.blks + (c.blks < CHUNK_BLKS && c.blk + c.blks < j->src->volume_blks)));
		for (size_t k'
# gaps that a plan writes over
mutant gap-used w cowfs/commit/classify.c '		r = classify_all(job, blk + i, blks - i, &use, &n);
	*ret = use == USE_FREE;' '		r = classify_all(job, blk + i, blks - i, &use, &n);
	*ret = true;'
mutant gap-spilled w cowfs/commit/commit.c '&& !log_spilled(log) ? bridge' '? bridge'
# a record needs its segment's head
mutant head-flush chain cowfs/log/record.c '(lag_on(l) || l->max_serial != serial)' 'lag_on(l)'
# content is never a block of the log
mutant escape file-record,forgeries cowfs/log/append.c 'if (!escape_needed(data + blk_to_bytes(i)))' 'if (1 || !escape_needed(data + blk_to_bytes(i)))'
mutant escape-back file-record cowfs/log/escape.c '	memcpy(blk, LOG_MAGIC_PREFIX, LOG_MAGIC_PREFIX_BYTES);' ''
mutant super-order w cowfs/log/record.c '	if (r == 0 && l->state == EPOCH_DUE)
		r = open_epoch(l, fresh);' '	if (r == 0 && l->super_due)
		r = record_write_super(l);
	if (r == 0 && l->state == EPOCH_DUE)
		r = open_epoch(l, fresh);'
# errors
mutant eio-write eio,read-only cowfs/log/ring.c 'r = card_write(l->card, ring_off_bytes(l, l->stage_lblk), l->stage, blk_to_bytes(n));' \
	'r = card_write(l->card, ring_off_bytes(l, l->stage_lblk), l->stage, blk_to_bytes(n)) > 0;'
mutant eio-flush eio,chain cowfs/log/record.c '	if (r == 0)
		r = card_flush(l->card);
	l->suspect |= r < 0;
	return r;' '	if (r == 0)
		r = card_flush(l->card);
	l->suspect |= r < 0;
	return 0;'
mutant swapped swapped cowfs/log/record.c '	if (!l->newest.seq && l->super.state == SUPER_PENDING)
		return 0;' '	if (1)
		return 0;'
mutant too-big too-big cowfs/commit/commit.c '	if (!nothing && j->rep.need_blks > job_capacity_blks(j)) {' '	if (0) {'
# a card that comes back
mutant away-super away cowfs/log/record.c 'unsigned first = l->super_trouble & SUPER_COPY_B_BAD ? 1 : 0;' 'unsigned first = 0;'
mutant away-guard away cowfs/log/open.c '	if (!l->settled && !l->super_due && l->guarded.copied)
		l->guarded.state = GUARD_UNSURE;' ''
mutant away-copies lies cowfs/log/open.c 'if (lag_on(l) || (!l->settled' 'if ((!l->settled'
mutant away-lag lies cowfs/log/open.c 'r = read_again(l);' 'r = 0;'
# a generation that is held
mutant H1-direct hold cowfs/commit/classify.c 'if (r == 0 && *ret == USE_FREE && j->held)' 'if (0)'
mutant H1-pad hold cowfs/log/hold.c 'return r == 0 ? lag_pad(l, 2) : r;' 'return r;'
mutant H1-run hold cowfs/log/record.c 'rec->flags |= hold_flags(l);' ''
mutant H4-chain hold cowfs/log/hold.c '	rec->prev = l->hold.at;' ''
mutant H4-place hold cowfs/log/record.c '	hold_open_record(l, &rec);' '	if (l->hold.going) {
		fresh = false;
		l->cursor = ring_next(l, l->hold.at.lblk);
	}
	hold_open_record(l, &rec);'
mutant H4-flag hold cowfs/log/hold.c 'l->hold.back ? (uint32_t)RECORD_BACK : 0' 'l->hold.back && l->newest.type == RECORD_COMMIT ? (uint32_t)RECORD_BACK : 0'
mutant H4-base hold cowfs/log/chain.c 'check_chain(s, back ? &held : &ch, rec, &ix)' 'check_chain(s, &ch, rec, &ix)'
mutant H4-boots hold cowfs/log/hold.c '(uint32_t)l->hold.boots << RECORD_BOOTS_SHIFT' '(l->newest.type == RECORD_COMMIT ? (uint32_t)l->hold.boots << RECORD_BOOTS_SHIFT : 0)'
mutant H4-pad hold cowfs/log/hold.c '	r = record_put_open(l, false);
	if (r == 0)
		r = lag_pad(l, 2);
	if (r < 0) { /* it' '	r = record_put_open(l, false);
	if (r < 0) { /* it'
mutant H5-room hold-full cowfs/commit/decide.c 'if (j->held) /*' 'if (0) /*'
mutant H6-feature hold cowfs/log/hold.c 'l->super.incompat |= on ? LOG_INCOMPAT_HELD : 0;' ''
# lag
mutant L1-floor lag cowfs/log/lag.c '		rec->floor_seq = l->newest.seq;' '		rec->floor_seq = rec->seq;'
mutant L2-ring lag cowfs/log/record.c '	if (!record_has_room(l, 0)) {' '	if (1) {'
mutant L3-older lag cowfs/commit/classify.c '*ret == USE_FREE && j->older)' '*ret == USE_FREE && 0)'
mutant L3-held lag cowfs/commit/classify.c '	if (held)
		*ret = USE_USED;' ''
mutant L4-candidates lag cowfs/log/checkpoint.c '	int r = put_checkpoint_begin(l);

	if (r == 0) /* L4 */
		r = lag_same_image(l);' '	int r = 0;
'
mutant L4-home lag cowfs/log/checkpoint.c '	return r == 0 ? lag_pad(l, 2) : r; /* L4 */' '	return r;'
mutant L5-cold lag cowfs/log/record.c 'l->lag.cold && l->lag.same < SETTLED && record_has_room(l, 3)' 'l->lag.cold && 0'
mutant L-fallback lag cowfs/log/lag.c 'l->lag.older_seq ? l->lag.older_seq : l->newest.seq' 'l->lag.older_seq ? l->newest.seq : l->newest.seq'
# the copies of the superblock are never both in flight
mutant S1-flush ends cowfs/log/record.c 'if (r == 0 && !rules_copies_durable(l))' 'if (0)'
mutant S1-lag lag,ends cowfs/log/record.c 'return r < 0 ? r : lag_pad(l, l->order.copy_pads);' 'return r;'
mutant S1-found ends cowfs/log/open.c '	l->order.copy_pads = lag_on(l) ? 2 : 0;
	l->stage' '	l->stage'
# commits of paths
mutant P-kept paths cowfs/volume/diverged.c '		if (get(k->d->used, blk))
			r = put' '		if (0)
			r = put'
mutant P-journal paths cowfs/volume/diverged.c 'use != USE_FREE && i < n' 'use == USE_USED && i < n'
mutant P-base paths tests/crash/paths.c '	if (!w->diverged)
		r = diverged_new' '	diverged_free(w->diverged);
	if (1)
		r = diverged_new'
mutant P-gaps paths tests/crash/world.c '.uses = w->diverged ? NULL : &src' '.uses = &src'
mutant P-plan paths tests/crash/world.c 'planned.profile = w->paths ? NULL : profile_of(w)' 'planned.profile = profile_of(w)'
mutant P-spill paths cowfs/commit/decide.c 'j->opt->only_changed ||' ''

summary
