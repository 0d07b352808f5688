#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Cards that were cut in the middle of a commit or of its checkpoint, for machines that know nothing of cowfs. What was not
# flushed is kept, lost, torn or garbage (tests/tools/powercut.c). Kinds take turns: ext4, xfs, btrfs. As root.
#
#	cutcards.sh make COUNT DIR	DIR/1.img ... with what they hold in DIR/1.holds; each one is guarded
#	cutcards.sh judge DIR		each one holds the same generation and tree, nothing foreign, and attach goes on with it
# shellcheck disable=SC2034 # variables of lib.bash
set -eu
[ -n "${CUTCARDS_NAMESPACE-}" ] || CUTCARDS_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
export COWFS_ON_CRASH=stop
here=$(cd "$(dirname "$0")" && pwd)
COWFS_BUILD=${COWFS_BUILD:-$here/../build}

# what bats gives to lib.bash
bats_require_minimum_version() { :; }
skip() { echo "cutcards: $*"; exit 1; }
exec 3>&1
# shellcheck disable=SC1091
. "$here/bats/lib.bash"

finish() {
	echo "cutcards: FAILED: $IMG: $*" >&2
	exit 1
}

bye() {
	local dev file
	cow_teardown
	# cards lie elsewhere
	losetup -n -O NAME,BACK-FILE | while read -r dev file; do
		[[ $file != "$DIR"/* ]] || losetup -d "$dev"
	done
}

# kind, generation and tree, without a write
holds() {
	cow view "$CARD" "$T/view" >/dev/null 2>&1 || finish "no view"
	cow check --json "$CARD" | jq -r --arg tree "$(tree_sum "$T/view")" '"\(.fs_type) \(.generation) \($tree)"'
	timeout 20 umount "$T/view"
	wait_for 20 no_daemons
}

state() { cow check --json "$CARD" | jq -c '[.guarded, .base_changed, .log_state]'; }

make_one() { # KIND FS_MIB CARD_MIB
	local n tree
	cut_card 2 "$@" >/dev/null 2>&1 || finish "no card"
	while :; do
		# the first commit of an empty log, or one more
		[ $((RANDOM % 2)) = 0 ] || cow release "$CARD" >/dev/null
		n=$((1 + RANDOM % 45))
		if cut_in_commit "$n" >/dev/null 2>&1; then continue; fi
		holds >"$DIR/$i.holds"
		read -r _ _ tree <"$DIR/$i.holds"
		[ "$tree" = "$SUM" ] || [ "$tree" = "$NEW" ] || finish "neither the generation before nor the new one"
		# before the guard is on, and behind it: a whole file system, which anybody may write to
		[[ $(state) != '[true,false,'* ]] || break
		whole=$((whole + 1))
	done
	if [ "$tree" = "$NEW" ]; then new=$((new + 1)); else old=$((old + 1)); fi
	chosen[n]=1
	cksum <"$IMG" >"$DIR/$i.sum"
}

make() { # COUNT
	local i kinds=("ext4 60 100" "xfs 310 360" "btrfs 120 160") whole=0 old=0 new=0 chosen=()
	mkdir -p "$DIR"
	for ((i = 1; i <= $1; i++)); do
		IMG=$DIR/$i.img
		# shellcheck disable=SC2086 # words
		make_one ${kinds[i % 3]}
		loop_down "$CARD"
	done
	echo "cutcards: $1 cards, $old of the generation before the cut, $new of the new one, ${#chosen[@]} different places of a commit;" \
		"$whole cuts left a whole file system without a guard and were made again; $SECONDS s"
}

judge_one() {
	local kind tree
	loop_up "$IMG"
	CARD=$LOOP
	[[ $(state) = '[true,false,'* ]] || finish "check says guarded, base_changed, log_state: $(state)"
	[ "$(holds)" = "$(cat "$DIR/$i.holds")" ] || finish "holds $(holds), before $(cat "$DIR/$i.holds")"
	if cksum <"$IMG" | cmp -s - "$DIR/$i.sum"; then same=$((same + 1)); fi
	read -r kind _ tree <"$DIR/$i.holds"
	attach >"$T/out" 2>&1 || finish "$(cat "$T/out")"
	mount_volume || finish "not mounted"
	[ "$(tree_sum "$MNT")" = "$tree" ] || finish "attached, it has another tree"
	cow status --json | jq -e '.base_changed == false and .readonly == false' >/dev/null || finish "status: $(cow status)"
	echo on >"$MNT/on"
	detach >/dev/null || finish "not detached"
	[[ $(state) = '[false,false,'* ]] || finish "detached, check says $(state)"
	fsck "$kind" >"$T/fsck" 2>&1 || finish "$(cat "$T/fsck")"
	loop_down "$CARD"
}

judge() {
	local i count=0 same=0
	for ((i = 1; i <= $(find "$DIR" -name '*.img' | wc -l); i++)); do
		IMG=$DIR/$i.img
		judge_one
		count=$((count + 1))
	done
	echo "cutcards: $count cards hold their generation, nothing foreign, nothing lost; $same are the same bit by bit; $SECONDS s"
}

what=${1-} count=${2-} DIR=$(realpath -m "${!#}")
case $what:$# in
make:3 | judge:2) ;;
*) sed -n '/^#$/,/^# shellcheck/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
cow_setup
at_end bye
mkdir "$T/view"
case $what in
make) make "$count" ;;
judge) judge ;;
esac
