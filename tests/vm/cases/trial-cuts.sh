# shellcheck shell=sh disable=SC1091,SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# The power goes in `commit --trial` and in the boots that follow (long form: 60 and 60 times, short: 6 and 6), at any write or moment.
# The machine is saved once before the commit. The boots go on from the card that the cut before has left, until the trial is
# decided. Offline each time: the old or the new tree in every file, e2fsck clean, the new one never without its trial, and no step
# of the count but the one of this boot.
# guests: busybox
# short:
. "$CASES/cut-shutdown.sh"
KILLED="1 3" BPS=400000

cut_moment() {
	END=none
	cowctl uninhibit root
	must cowctl commit root --trial 2
	verdict ok
	sync
	reboot -ff 2>/dev/null || reboot -f
}

decided() { cowctl status root --json | grep -qv '"held":'; }

step_3() {
	wait_for 60 decided || fail "not decided: $(cowctl status root)"
}

held() { "$BUILD/cowctl" generations "$1" --json >"$WORK/held" && jq -r "$2" "$WORK/held"; }

# The generation on a copy of the cut card, after $1 (accept, undo; nothing: as it is).
gen_by() {
	cp --sparse=always "$WORK/part" "$WORK/way"
	[ -z "$1" ] || "$BUILD/cowctl" "$1" "$WORK/way" >/dev/null || fail "cowctl $1"
	offline_check "$WORK/way"
	"$BUILD/cowctl" release "$WORK/way" >/dev/null || fail "cowctl release"
	gen_of "$WORK/way"
}

# Sets state: old, new, or what is pending: 2, 1, 0 boots left, back.
judge_cut() {
	card_extract "$WORK/part"
	state=$(held "$WORK/part" '"\(.generations | length) \(.trial) \(.boots_left) \(.undo_pending)"')
	case $state in
	"1 "*)
		gen=$(gen_by '') || exit 1
		state=$gen
		;;
	*)
		[ "$(gen_by undo)" = 1 ] || fail "the held generation is not the old one"
		gen=$(gen_by accept) || exit 1
		state="$gen $state"
		;;
	esac
	case $state in
	1 | "1 2 true "?" false" | "1 2 false 0 false") state=old ;;
	2) state=new ;;
	"2 2 true "?" false") state=${state#2 2 true } state=${state% false} ;;
	"2 2 true 0 true") state=back ;;
	*) fail "a third state: $state" ;;
	esac
}

# From one state a boot that is cut leads to these.
may_follow() {
	case $1-$2 in
	2-2 | 2-1 | 2-new | 1-1 | 1-0 | 1-new | 0-0 | 0-back | 0-old | back-back | back-old) ;;
	*) fail "from $1 to $2 in one boot" ;;
	esac
}

host_during() {
	case $1 in
	1) wait_mark ready && vm_save ;;
	3)
		# every third time at any moment, then at a write
		if [ $((RANDOM % 3)) = 0 ]; then
			sleep $((RANDOM % span)).$((RANDOM % 10))
		else
			until [ -S "$SOCK" ]; do
				sleep 0.1
			done
			"$TOP/tests/vm/qmp.py" "$SOCK" await card $((1 + RANDOM % writes)) >/dev/null || :
		fi
		kill -9 "$QEMU" 2>/dev/null || :
		;;
	esac
}

cuts_of_commit() {
	vm_uncut
	judge_cut
	[ "$state" = 2 ] || fail "the trial has not begun: $state"
	cp --sparse=always "$CARD" "$WORK/tried.img"
	say "$writes writes from the moment that was saved to the end"
	seen_old=0 seen_2=0
	for i in $(seq "$cuts"); do
		vm_load
		cut_at $((RANDOM % (writes + 2)))
		judge_cut
		case $state in
		old | 2) eval "seen_$state=\$((seen_$state + 1))" ;;
		*) fail "after a cut in the commit: $state" ;;
		esac
	done
	say "$cuts cuts in the commit: $seen_old times the old root, $seen_2 times the new one on trial"
}

cuts_of_boots() {
	writes=16 span=20 seen='' was=new
	for i in $(seq "$cuts"); do
		case $was in
		old | new)
			cp --sparse=always "$WORK/tried.img" "$CARD"
			was=2
			;;
		esac
		boot 3
		! grep -q ^fail "$VERDICT" || fail "cut $i: $(sed -n 's/^fail //p' "$VERDICT")"
		judge_cut
		may_follow "$was" "$state"
		seen="$seen $was-$state"
		was=$state
	done
	say "$cuts cuts in boots: $(tr ' ' '\n' <<-END | sort | uniq -c | awk 'NF == 2 { print $2, $1 }' | tr '\n' ' '
		$seen
	END
	)"
}

host_after() {
	[ "$1" = 1 ] || return 0
	cuts=6
	[ -z "$LONG" ] || cuts=60
	cuts_of_commit
	cuts_of_boots
}
