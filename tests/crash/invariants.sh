#!/bin/bash
# SPDX-License-Identifier: MIT
# Parts of cowfs are broken in a copy of the source, and the rule that it checks itself (base/invariant.h) must stop the
# write, before an attack of the crash driver or a unit test finds what came of it.
# usage: invariants.sh [--apply] [NAME...]   (make check-mutants)
#	--apply		only looks whether each can be applied (make lint)
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=mutate.bash
. "$(dirname "$0")/mutate.bash"

# broken RULE PROGRAM FILE OLD NEW: PROGRAM with its arguments, in build/tests; see changed
broken() {
	local rule=$1
	chosen "${rule// /-}" || return 0
	if changed "${2%% *}" "${@:3}"; then
		# shellcheck disable=SC2086 # program and arguments
		if ("${run[@]}" timeout 240 "$work/build/tests/"$2 >"$work/out" 2>&1 || exit 1) 2>/dev/null; then
			verdict='NOT NOTICED'
		elif grep -q "^crash: FAILED" "$work/out" || ! grep -q "internal error: rule \"$rule\"" "$work/out"; then
			verdict="ANOTHER: $(grep -m1 'FAILED\|internal error\|error:' "$work/out" | cut -c1-100)"
		else
			noticed=$(grep -m1 'internal error' "$work/out" | sed 's/.*internal error: //')
		fi
	fi
	judged "${rule// /-}" "$3"
}

# order of writes
broken 'order payload' 'crash --attack chain' cowfs/log/append.c '	return r == 0 ? record_flush(l) : r;' '	return r;'
broken 'order record' 'crash --attack chain' cowfs/log/record.c 'r = lag_on(l) ? record_flush(l) : card_flush(l->card);' 'r = 0;'
broken 'order head' 'crash --attack chain --thin 8' cowfs/log/record.c '(lag_on(l) || l->max_serial != serial)' 'lag_on(l)'
broken 'order checkpoint' 'crash --attack begin' cowfs/log/checkpoint.c '	int r = put_checkpoint_begin(l);

	if (r == 0) /* L4 */' '	int r = 0;

	if (r == 0) /* L4 */'
broken 'R9 home' 'crash --attack half-checkpoint' cowfs/log/checkpoint.c '		r = card_flush(l->base);
	if (r < 0 && entered' '		r = 0;
	if (r < 0 && entered'
broken 'order super' 'crash --attack chain' cowfs/log/record.c '	if (r == 0 && l->state == EPOCH_DUE)
		r = open_epoch(l, fresh);' '	if (r == 0 && l->super_due)
		r = record_write_super(l);
	if (r == 0 && l->state == EPOCH_DUE)
		r = open_epoch(l, fresh);'
broken 'G1 guard' 'crash --attack chain' cowfs/log/append.c '	r = guarded_begin(l);
	if (r < 0)
		return r;' ''
broken 'G3 home' 'crash --attack half-checkpoint' cowfs/log/guarded.c '	memcpy(g->truth, next, COW_BLK_BYTES);
	take_truth(l);
	return guarded_show(l);' '	memcpy(g->truth, next, COW_BLK_BYTES);
	take_truth(l);
	return write_first(l, next, GUARD_OFF);'
broken 'S1 copies' 'crash --attack ends' cowfs/log/record.c '	return r < 0 ? r : lag_pad(l, l->order.copy_pads);' '	return r;'
# what is written over
broken 'R9 ring' 'crash --attack reuse-early' cowfs/log/ring.c 'if (l->newest.seq && !ring_free_segments(l, *lblk))' 'if (0)'
broken 'I1 in place' 'crash --attack revoke' cowfs/commit/classify.c 'return old == USE_FREE ? classify_metadata' 'return old != USE_JOURNAL ? classify_metadata'
broken 'L3 held' 'crash --attack lag' cowfs/commit/classify.c '	if (held)
		*ret = USE_USED;' ''
broken 'R10 gap' 'crash --no-attacks --seconds 60' cowfs/commit/commit.c '&& !log_spilled(log) ? bridge' '? bridge'
# a generation that is held
broken 'H1 run' 'crash --attack hold' cowfs/log/record.c 'rec->flags |= hold_flags(l);' ''
broken 'H1 tail' 'crash --attack hold' cowfs/log/lag.c '	if (!l->home_done)
		return l->newest.tail_seq;' '	if (!l->home_done && !l->hold.at.seq)
		return l->newest.tail_seq;'
broken 'H4 back' 'crash --attack hold' cowfs/log/hold.c '	rec->prev = l->hold.at;' ''
# numbers
broken 'R2 seq' 'crash --attack sequence' cowfs/log/append.c 'l->at.seq = ++l->highest_seq;' 'l->at.seq = l->highest_seq;'
broken 'R3 chain' 'crash --attack chain' cowfs/log/append.c '	epoch_set(l, EPOCH_DUE);
	l->doubt' '	epoch_set(l, EPOCH_OPEN);
	l->doubt'
broken 'L1 floor' 'crash --attack lag' cowfs/log/lag.c '		rec->floor_seq = l->newest.seq;' '		rec->floor_seq = rec->seq;'
broken 'L4 tail' 'crash --attack lag' cowfs/log/checkpoint.c '	return r == 0 ? lag_pad(l, 2) : r; /* L4 */' '	return r;'
# RAM
broken 'M3 counts' 'view_log_test' cowfs/ram/generation.c '(state == BLK_DATA ? n : 0) -' '(state == BLK_DATA ? n : 0) + 0 *'
broken 'M3 counts' 'ram_test' cowfs/ram/generation.c '			change->hole_blks -= hole_to(top) - hole_from(top);' ''
broken 'pin count' 'view_test' cowfs/export/view.c '	pins_leave(c->pin);' '	pins_leave(c->pin);
	pins_leave(c->pin);'
broken 'commit sums' 'commit_fault_test' cowfs/commit/classify.c '			j->rep.skipped_same += same;' ''

summary
