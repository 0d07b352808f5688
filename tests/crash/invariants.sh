#!/bin/bash
# SPDX-License-Identifier: MIT
# Parts of cowfs are broken in a copy of the source, and the rule that it checks itself (base/invariant.h) must stop the
# write, before an attack of the crash driver or a unit test finds what came of it.
# usage: invariants.sh [NAME...]   (make check-mutants)
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/cowfs-invariants.XXXXXX")
trap 'rm -rf "$work"' EXIT
bad=0 n=0
only=" $* "

tar -C "$root" --exclude=./build* --exclude=./.git -cf - . | tar -C "$work" -xf -

# broken RULE PROGRAM FILE OLD NEW: PROGRAM with its arguments, in build/tests; OLD is in FILE once.
broken() {
	local rule=$1 file=$3 verdict program
	[ "$only" = '  ' ] || [[ $only == *" ${rule// /-} "* ]] || return 0
	n=$((n + 1))
	program=${2%% *}
	cp "$work/$file" "$work/saved"
	# shellcheck disable=SC2086 # program and arguments
	if ! OLD=$4 NEW=$5 python3 - "$work/$file" <<'PY'; then
import os, sys
path, old = sys.argv[1], os.environ['OLD']
text = open(path).read()
if text.count(old) != 1:
    sys.exit(f'{text.count(old)} times in {path}: {old}')
open(path, 'w').write(text.replace(old, os.environ['NEW']))
PY
		verdict='cannot be applied'
	elif ! make -s -C "$work" "build/tests/$program" >"$work/make.log" 2>&1; then
		verdict="does not build: $(grep -m1 error "$work/make.log" || tail -1 "$work/make.log")"
	elif (timeout 240 "$work/build/tests/"$2 >"$work/out" 2>&1 || exit 1) 2>/dev/null; then
		verdict='NOT NOTICED'
	elif grep -q "^crash: FAILED" "$work/out" || ! grep -q "internal error: rule \"$rule\"" "$work/out"; then
		verdict="ANOTHER: $(grep -m1 'FAILED\|internal error\|error:' "$work/out" | cut -c1-100)"
	else
		verdict=$(grep -m1 'internal error' "$work/out" | sed 's/.*internal error: //')
	fi
	cp "$work/saved" "$work/$file"
	printf '%-18s %s\n' "$rule" "$verdict"
	[[ $verdict == rule* ]] || bad=$((bad + 1))
}

# order of writes
broken 'order payload' 'crash --attack chain' cowfs/log/append.c '	if (r == 0)
		r = record_flush(l);
	if (r < 0)
		goto fail;' '	if (r < 0)
		goto fail;'
broken 'order record' 'crash --attack chain' cowfs/log/record.c 'r = lag_on(l) ? record_flush(l) : card_flush(l->card);' 'r = 0;'
broken 'order head' 'crash --attack chain --thin 8' cowfs/log/record.c '(lag_on(l) || l->max_serial != serial)' 'lag_on(l)'
broken 'order checkpoint' 'crash --attack begin' cowfs/log/checkpoint.c '		r = put_checkpoint_begin(l);
		if (r == 0) /* L4 */' '		if (r == 0) /* L4 */'
broken 'R9 home' 'crash --attack half-checkpoint' cowfs/log/checkpoint.c '	return r < 0 ? r : card_flush(l->base);
}

int log_checkpoint(' '	return r;
}

int log_checkpoint('
broken 'order super' 'crash --attack upgrade' cowfs/log/record.c '	if (r == 0 && l->state == EPOCH_DUE)
		r = open_epoch(l, fresh);
	if (r == 0 && l->super_due)
		r = write_super(l);' '	if (r == 0 && l->super_due)
		r = write_super(l);
	if (r == 0 && l->state == EPOCH_DUE)
		r = open_epoch(l, fresh);'
broken 'B1 lent' 'crash --attack lent' cowfs/log/lend.c '	if (r == 0)
		r = card_flush(l->lent);
	l->lent' '	l->lent'
broken 'B2 wipe' 'crash --attack lent' cowfs/log/lend.c '	if (log_lent_needed(l))' '	if (0)'
broken 'G1 guard' 'crash --attack chain' cowfs/log/append.c '	r = guarded_begin(l);
	if (r < 0)
		return r;' ''
broken 'G3 home' 'crash --attack half-checkpoint' cowfs/log/guarded.c '	memcpy(g->truth, next, COW_BLK_BYTES);
	take_truth(l);
	return show(l);' '	memcpy(g->truth, next, COW_BLK_BYTES);
	take_truth(l);
	return write_first(l, next, GUARD_OFF);'
# what is written over
broken 'R9 ring' 'crash --attack reuse-early' cowfs/log/ring.c 'if (l->newest.seq && !ring_free_segments(l, *lblk))' 'if (0)'
broken 'I1 in place' 'crash --attack revoke' cowfs/commit/classify.c 'return old == USE_FREE ? add_direct' 'return old != USE_JOURNAL ? add_direct'
broken 'L3 held' 'crash --attack lag' cowfs/commit/classify.c '	if (held)
		*ret = USE_USED;' ''
broken 'R10 gap' 'crash --no-attacks --seconds 60' cowfs/commit/commit.c '&& !log_spilled(log) ? bridge' '? bridge'
# numbers
broken 'R2 seq' 'crash --attack sequence' cowfs/log/append.c '	l->ledger.commits_failed++;' '	l->ledger.commits_failed++;
	l->highest_seq = l->newest.seq - 1;'
broken 'R3 chain' 'crash --attack chain' cowfs/log/append.c '	epoch_set(l, EPOCH_DUE);
	l->doubt' '	epoch_set(l, EPOCH_OPEN);
	l->doubt'
broken 'L1 floor' 'crash --attack lag' cowfs/log/lag.c '		rec->floor_seq = l->newest.seq;' '		rec->floor_seq = rec->seq;'
broken 'L4 tail' 'crash --attack lag' cowfs/log/checkpoint.c '		if (r == 0) /* L4 */
			r = lag_pad(l, 2);' ''
# RAM
broken 'M3 counts' 'view_log_test' cowfs/ram/generation.c '(state == BLK_DATA ? marked : 0) - was_data' '(state == BLK_DATA ? marked : 0)'
broken 'pin count' 'view_test' cowfs/export/view.c '	pins_leave(c->pin);' '	pins_leave(c->pin);
	pins_leave(c->pin);'
broken 'commit sums' 'commit_fault_test' cowfs/commit/classify.c '			j->rep.skipped_same += same;' ''

echo "invariants: $n, $bad not stopped by the rule"
[ $bad = 0 ]
