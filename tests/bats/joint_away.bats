#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell; run sets status, output and stderr
# cowctl commit --all, and one of two cards goes away in it. The volume with the last name decides.
# bats file_tags=commands

load lib
load away

declare -gA CARDS DEVS

# this NAME: what away.bash does is done to this card and volume
this() {
	NAME=$1 GONE_FILE=$T/gone.$1 IMG=$T/$1.img CARD=${CARDS[$1]-} DEV=${DEVS[$1]-}
}

up() {
	local name
	for name in a b; do
		this $name
		stays
		with_gone attach --name $name
		DEVS[$name]=$DEV
		mkdir -p "$T/$name"
		mount "$DEV" "$T/$name"
	done
	NAME=''
}

# Two cards, each of a size of its own: a daemon looks at all devices of the size that it misses.
both() {
	local name
	for name in a b; do
		this $name
		card_make ext4 64 110 -J size=4
		truncate -s "+$((ODD_KIB + (${#name} + $(printf '%d' "'$name")) * 16384))K" "$IMG"
		losetup -c "$CARD"
		cow format "$CARD" >/dev/null
		CARDS[$name]=$CARD
	done
	up
}

# new N: something to commit on both, of the same moment
new() {
	local name
	for name in a b; do
		dd if=/dev/urandom of="$T/$name/data" bs=64k count=3 conv=fsync status=none
		echo "$1" >"$T/$name/n"
		sync -f "$T/$name"
	done
}

# the card of NAME is there again, under another name
comes_back() {
	this "$1"
	back
	here_again
	stays
	loop_down "$CARD"
	CARDS[$1]=$LOOP
	NAME=''
}

cut_both() {
	local name pids=()
	for name in a b; do
		pids+=("$(NAME=$name worker_pid)")
	done
	kill -9 "${pids[@]}"
	NAME=''
	wait_for 20 no_daemons
	for name in a b; do
		timeout 60 umount "$T/$name" || return
		volume_gone "${DEVS[$name]}" || losetup -d "${DEVS[$name]}" || volume_gone "${DEVS[$name]}"
		wait_for 20 volume_gone "${DEVS[$name]}"
	done
}

# one_commit WHO N I: the card of WHO goes after N writes and flushes of a joint commit of the moment I. Sets CODE
one_commit() {
	new "$3"
	this "$1"
	stays
	pull "$2"
	CODE=0
	cow commit --all >"$T/out" 2>"$T/err" || CODE=$?
	NAME=''
}

is_gone() { tail -c 1 "$T/gone.$1" | grep -q "$(printf '\1')"; }

generations() { echo "$(NAME=a status_of .generation) $(NAME=b status_of .generation)"; }

end_both() {
	local name
	for name in a b; do
		wait_for 5 timeout 60 umount "$T/$name"
		cow detach $name
		fsck ext4 "${CARDS[$name]}"
	done
}

@test "joint: a card is away: exit code 5, which one, nothing half-done, and the next one after the return" {
	local before
	both
	new 1
	cow commit --all >/dev/null
	before=$(generations)
	new 2
	this a
	pull
	wait_for 5 is_away
	NAME=''
	run -5 --separate-stderr cow commit --all
	[ "$output" = "" ]
	[[ $stderr == "cowctl: a: the card is away (pulled out, or reset): nothing is lost, everything stays in RAM: plug it in, and try again" ]]
	run -5 --separate-stderr cow commit --all --json
	[ "$(jq -c '[.ok, .exit, (.volumes | map([.name, .code]))]' <<<"$output")" = '[false,5,[["a","ENOMEDIUM"],["b","ECANCELED"]]]' ]
	[ "$(generations)" = "$before" ]
	comes_back a
	sleep 1 # it is not made by itself
	[ "$(generations)" = "$before" ]
	run -0 cow commit --all
	[[ $output == *"2 volumes committed together"* ]]
	end_both
}

# gone_in WHO: the card of WHO goes at each write and flush
gone_in() {
	local who=$1 n=1 points=0
	both
	while :; do
		one_commit "$who" "$n" "$n"
		is_gone "$who" || break
		points=$((points + 1))
		# with the last of them, or with what follows the decision, it may have been made
		[ $CODE = 5 ] || [ $CODE = 0 ] || { echo "at $n: exit code $CODE"; cat "$T/out" "$T/err"; false; }
		[ $CODE = 0 ] || grep -q "^cowctl: $who: .*the card is away" "$T/err" || { cat "$T/err"; false; }
		comes_back "$who"
		run -0 cow commit --all
		n=$((n + 1))
	done
	[ $CODE = 0 ]
	say "gone at each of $points writes and flushes of the card of $who; each time the next joint commit was made"
	[ $points -gt 5 ]
	this "$who"
	stays
	end_both
}

@test "joint: the card of a member goes at each write and flush" { gone_in a; }
@test "joint: the card of the volume that decides goes at each write and flush" { gone_in b; }

# cut_in WHO BACK: likewise, and the power is cut before another commit, BACK: once it is there again
cut_in() {
	local who=$1 n=1 older=0 newer=0 a b
	both
	new 0
	cow commit --all >/dev/null
	while :; do
		one_commit "$who" "$n" "$n"
		is_gone "$who" || break
		[ "$2" = no ] || comes_back "$who"
		cut_both
		if [ "$2" = no ]; then
			this "$who"
			blockdev --setrw "$CARD"
		fi
		up
		read -r a <"$T/a/n"
		read -r b <"$T/b/n"
		[ "$a" = "$b" ] || { echo "at $n: exit code $CODE, a has $a, b has $b"; cat "$T/err"; false; }
		[ "$a" = "$n" ] || [ "$a" = $((n - 1)) ]
		[ "$CODE" != 0 ] || [ "$a" = "$n" ]
		if [ "$a" = "$n" ]; then newer=$((newer + 1)); else older=$((older + 1)); fi
		new "$n"
		cow commit --all >/dev/null
		n=$((n + 1))
	done
	[ $CODE = 0 ]
	say "gone at $((n - 1)) moments, then a cut: $older times both older, $newer times both newer"
	[ $older -gt 2 ]
	this "$who"
	stays
	end_both
}

@test "joint: the card of a member goes, comes back, and the power is cut" { cut_in a yes; }
@test "joint: the card of the volume that decides goes, comes back, and the power is cut" { cut_in b yes; }
@test "joint: the card of a member goes, and the power is cut" { cut_in a no; }
@test "joint: the card of the volume that decides goes, and the power is cut" { cut_in b no; }
