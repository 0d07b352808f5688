#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Commands other than commit are killed at random moments, alone or with all processes of the daemon: I/O ends, the
# next commands clear up, and the card has what was committed before or what the command was about to commit.
#	COUNT=60 bats tests/bats/kills_elsewhere.bats	so many kills of each kind (make check-kills)
#	SEED=N						other moments
# seconds: 75
# turn: 3

load lib

COUNT=${COUNT:-$(rounds 4)}
SEED=${SEED:-1}
export BATS_TEST_TIMEOUT=$((900 + COUNT * 30))

setup() {
	cow_setup
	GROUP=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)/cowfs-elsewhere.$$
	mkdir "$GROUP" 2>/dev/null || skip "no cgroup of version 2 can be made here"
	[ -e "$GROUP/cgroup.kill" ] || skip "no cgroup.kill: a kernel before 5.14"
	RANDOM=$SEED DONE=0 CUT=0 OWN_NAME=killed$BASHPID # a dead volume is told by it, and by the number of its loop device
}

teardown() {
	local bad=0
	[ ! -e "$GROUP/cgroup.kill" ] || echo 1 >"$GROUP/cgroup.kill"
	cow_teardown || bad=1
	[ ! -d "$GROUP" ] || wait_for 20 rmdir "$GROUP" || bad=1
	return $bad
}

# As in lib.bash, and those that a cowctl has forked and are about to become one.
daemons() {
	local p comm
	for p in /proc/[0-9]*; do
		read -r comm 2>/dev/null <"$p/comm" || continue
		[[ $comm == cow* && -e $p/exe ]] || continue
		grep -qzxF "COWFS_RUNDIR=$COWFS_RUNDIR" "$p/environ" 2>/dev/null || continue
		echo "${p#/proc/}"
	done
	return 0
}

# COMMAND..., in the cgroup, in the background
in_group() {
	background bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$GROUP" "$@" >"$T/out" 2>"$T/err"
}

# How long the command takes when nothing kills it: sets TAKES, in us.
measure() {
	local begin=${EPOCHREALTIME/./}
	"$@" >"$T/out" 2>"$T/err" || { cat "$T/err"; return 1; }
	TAKES=$((${EPOCHREALTIME/./} - begin))
}

# Begins the command and kills it (alone) or all (everything), somewhere in the time that it takes, or soon after.
killed() { # alone|everything COMMAND...
	local how=$1 pid us=$(((RANDOM * 32768 + RANDOM) % (TAKES * 11 / 10 + 1)))
	shift
	in_group "$@"
	pid=$BG
	sleep "$(printf '%d.%06d' $((us / 1000000)) $((us % 1000000)))"
	if [ "$how" = alone ]; then
		kill -9 "$pid" 2>/dev/null || :
	else
		echo 1 >"$GROUP/cgroup.kill"
		kill -9 "$pid" 2>/dev/null || : # it may not have been in the cgroup yet, and have a child
		echo 1 >"$GROUP/cgroup.kill"
		# those that have left it
		for _ in 1 2; do
			kill -9 $(daemons) 2>/dev/null || :
		done
	fi
	wait_for 10 ended "$pid" || { echo "cannot be killed:"; cat "/proc/$pid/stack"; return 1; }
	STATUS=0
	wait "$pid" || STATUS=$?
	DONE=$((DONE + 1))
	[ "$STATUS" != 137 ] || CUT=$((CUT + 1))
	WHERE="kill $DONE, $how, after $us of $TAKES us, exit $STATUS: $*"
}

# Of one that may hang, unkillable. 0 to 4 are exit codes of ours.
ends() { # COMMAND...
	local pid code=0
	background "$@" >"$T/out" 2>"$T/err"
	pid=$BG
	wait_for 10 ended "$pid" || { echo "hangs: $* ($WHERE)"; cat "/proc/$pid/stack"; return 1; }
	wait "$pid" || code=$?
	return $code
}

# After a kill: reads end, what is mounted can be unmounted, and nothing of a dead volume is left after a status. A
# volume that lives is detached, in the end. Nothing may hang.
settle() {
	local left
	if [ -n "$DEV" ]; then
		ends dd if="$DEV" of=/dev/null bs=4096 count=1 iflag=direct || [ $? -lt 128 ] || return 1
	fi
	# a child that lives on either ends, or leaves the cgroup as a daemon
	wait_for 20 group_is_empty || { echo "left over: $(cat "$GROUP/cgroup.procs") ($WHERE)"; return 1; }
	[ "$1" = alone ] || wait_for 10 no_daemons || { echo "left over: $(daemons) ($WHERE)"; return 1; }
	! grep -qF " $MNT " /proc/self/mounts || wait_for 20 timeout 300 umount "$MNT" || { echo "$WHERE"; return 1; }
	wait_for 15 no_volume "$1" || { echo "$WHERE"; cat "$T/err"; return 1; }
	# a start that is cut leaves a name with its lock and maybe pid, a new socket and a file that is not whole, which the next start
	# takes
	left=$(find "$COWFS_RUNDIR" -mindepth 2 ! -name lock ! -name pid ! -name .control ! -name .new 2>/dev/null)
	[ -z "$left" ] || { echo "left over: $left ($WHERE)"; return 1; }
	wait_for 10 no_daemons || { echo "left over: $(daemons) ($WHERE)"; return 1; }
	[ -z "$DEV" ] || wait_for 20 volume_gone "$DEV" || { echo "left over: $DEV ($WHERE)"; return 1; }
	wait_for 10 no_loop || { echo "left over: loop devices of $OWN_NAME ($WHERE)"; return 1; }
	rm -f "$T/volumes"
	DEV=''
}

no_loop() { ! losetup -nl -O BACK-FILE | grep -qx "/cowfs:$OWN_NAME"; }
group_is_empty() { grep -q 'populated 0' "$GROUP/cgroup.events"; }

# False: not yet. After a status, and a detach if it lives.
no_volume() {
	local code=0
	ends "$COWFS_BUILD/cowctl" status || code=$?
	if [ $code = 4 ]; then # a start that forks meanwhile is not seen at once
		no_daemons && sleep 0.5 && no_daemons && return
		return 1
	fi
	[ $code = 0 ] || [ $code = 3 ] || return 1
	[ "$1" = alone ] || return 1
	DEV=$(jq -r .loop "$COWFS_RUNDIR/$OWN_NAME/status.json" 2>/dev/null || :)
	ends "$COWFS_BUILD/cowctl" detach "$OWN_NAME" "${DETACH[@]}"
}

# SUM...: one of these is what the file system has.
card_has_one_of() {
	local is
	fsck ext4 >"$T/fsck" 2>&1 || { cat "$T/fsck"; echo "$WHERE"; return 1; }
	is=$(bare_sum) || return
	[[ " $* " == *" $is "* ]] || { echo "another content: $WHERE"; return 1; }
	SUM=$is
}

recovers() {
	ends "$COWFS_BUILD/cowctl" check "$CARD" || [ $? -le 3 ] || { cat "$T/err"; echo "$WHERE"; return 1; }
	ends "$COWFS_BUILD/cowctl" release "$CARD" "$@" || { cat "$T/err"; echo "$WHERE"; return 1; }
}

# 64 MiB of ext4 with files, SUM
card() { # CARD_MIB
	DEV='' DETACH=()
	card_make ext4 64 "$1" -b 4096 -J size=4
	mount "$CARD" "$MNT"
	random_file "$MNT/big" 30
	echo 0 >"$MNT/small"
	SUM=$(tree_sum "$MNT")
	umount "$MNT"
}

format() { cow prepare "$CARD" --log-size 8M --erase-block 1M "$@"; }

# Something new, in place and not: sets NEW
change() {
	dd if=/dev/urandom of="$MNT/big" bs=64K count=$((RANDOM % 40 + 1)) seek=$((RANDOM % 300)) conv=notrunc status=none
	random_file "$MNT/new" $((RANDOM % 5 + 1))
	echo $RANDOM >"$MNT/small"
	NEW=$(tree_sum "$MNT")
}

tell() { say "$DONE kills, $CUT of them before the command had ended (it takes $((TAKES / 1000)) ms)"; }

@test "kills elsewhere: attach" {
	local i how
	card 100
	format
	attach
	detach
	measure cow attach "$CARD" --name "$OWN_NAME"
	detach
	for ((i = 0; i < COUNT; i++)); do
		for how in alone everything; do
			# blocks that wait in the log
			attach_mounted
			change
			cow commit
			power_cut
			DEV=''
			killed $how "$COWFS_BUILD/cowctl" attach "$CARD" --name "$OWN_NAME"
			settle $how
			recovers
			card_has_one_of "$NEW"
		done
	done
	tell
}

@test "kills elsewhere: detach" {
	local i how
	card 100
	format
	attach_mounted
	change
	umount_volume
	measure cow detach "$OWN_NAME"
	SUM=$NEW
	for ((i = 0; i < COUNT; i++)); do
		for how in alone everything; do
			attach_mounted
			change
			umount_volume
			killed $how "$COWFS_BUILD/cowctl" detach "$OWN_NAME"
			settle $how
			recovers
			if [ $how = alone ]; then card_has_one_of "$NEW"; else card_has_one_of "$SUM" "$NEW"; fi
		done
	done
	tell
}

@test "kills elsewhere: release" {
	local i
	card 100
	format
	for ((i = 0; i <= COUNT; i++)); do
		attach_mounted
		change
		cow commit
		power_cut
		DEV=''
		if [ "$i" = 0 ]; then
			measure cow release "$CARD"
			continue
		fi
		killed everything "$COWFS_BUILD/cowctl" release "$CARD"
		settle everything
		recovers
		card_has_one_of "$NEW"
	done
	tell
}

@test "kills elsewhere: prepare" {
	local i force=()
	card 100
	measure format
	for ((i = 0; i < COUNT; i++)); do
		[ $((i % 2)) = 0 ] || dd if=/dev/zero of="$CARD" bs=1M seek=64 status=none conv=fsync 2>/dev/null || :
		force=()
		! cow check "$CARD" >/dev/null 2>&1 || force=(--force)
		killed everything "$COWFS_BUILD/cowctl" prepare "$CARD" --log-size 8M --erase-block 1M "${force[@]}"
		card_has_one_of "$SUM"
		ends "$COWFS_BUILD/cowctl" check "$CARD" || [ $? -le 4 ]
		# either there is a log now, or it says what to do
		ends "$COWFS_BUILD/cowctl" prepare "$CARD" --log-size 8M --erase-block 1M ||
			{ grep -q -- '--force' "$T/err" && format --force; } || { cat "$T/err"; echo "$WHERE"; return 1; }
		attach_has "$SUM"
		detach
		DEV=''
	done
	tell
}

sums_of() { (cd "$1" && find . -type f -exec sha256sum {} + | LC_ALL=C sort -k 2); }
names_in() { cut -d' ' -f3 "$T/$1"; }

# Files that are replaced, changed, removed, and what was not there
spoil() {
	local i
	for i in {0..19}; do
		case $((RANDOM % 5)) in
		0) rm "$MNT/d/f$i" ;;
		1) echo $RANDOM >"$MNT/d/f$i" ;;
		2) chmod 600 "$MNT/d/f$i" ;;
		3) mkdir -p "$MNT/d/n$i"; echo $RANDOM >"$MNT/d/n$i/f" ;;
		esac
	done
}

@test "kills elsewhere: revert" {
	local i how
	card 100
	format
	attach_mounted
	mkdir "$MNT/d"
	for i in {0..19}; do head -c $((i * 9000)) /dev/urandom >"$MNT/d/f$i"; done
	cow commit
	SUM=$(tree_sum "$MNT")
	sums_of "$MNT" >"$T/committed"
	spoil
	measure cow revert --yes "$MNT/d"
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	for ((i = 0; i < COUNT; i++)); do
		for how in alone everything; do
			spoil
			sums_of "$MNT" >"$T/before"
			killed $how "$COWFS_BUILD/cowctl" revert --yes "$MNT/d"
			if [ $how = alone ]; then
				wait_for 20 group_is_empty
				# each file is as before or reverted; those that were in both are there
				sums_of "$MNT" | grep -v '/\.cowfs-' >"$T/now"
				! grep -vxFf "$T/committed" "$T/now" | grep -qvxFf "$T/before" || { echo "half: $WHERE"; return 1; }
				! names_in committed | grep -xFf <(names_in before) | grep -qvxFf <(names_in now) || { echo "lost: $WHERE"; return 1; }
				ends "$COWFS_BUILD/cowctl" revert --yes "$MNT/d" || { cat "$T/err"; echo "$WHERE"; return 1; }
				[ "$(tree_sum "$MNT")" = "$SUM" ] || { echo "not reverted: $WHERE"; return 1; }
				continue
			fi
			settle $how
			recovers
			card_has_one_of "$SUM"
			attach_mounted
		done
	done
	detach
	DEV=''
	tell
}

@test "kills elsewhere: undo" {
	local i how held who takes=()
	card 110
	cow prepare "$CARD" --log-size 40M --erase-block 1M
	for ((i = 0; i < COUNT * 4 + 4; i++)); do # the first four are not killed
		how=alone
		[ $((i / 4 % 2)) = 0 ] || how=everything
		attach_mounted
		change
		cow commit --hold
		held=$NEW
		change
		cow commit
		who=$OWN_NAME
		case $((i % 4)) in
		0) ;; # of a mounted volume
		1) umount_volume ;; # of one that is not mounted: at once
		*) detach; DEV=''; who=$CARD ;; # of a card, and the attach that goes back
		esac
		set -- "$COWFS_BUILD/cowctl" undo "$who"
		[ $((i % 4)) != 3 ] || { cow undo "$CARD"; set -- "$COWFS_BUILD/cowctl" attach "$CARD" --name "$OWN_NAME"; }
		if [ $i -lt 4 ]; then
			measure "$@"
			takes+=("$TAKES")
		else
			TAKES=${takes[i % 4]}
			killed $how "$@"
		fi
		settle $how
		# again: it is pending, or was not asked for, or is done
		ends "$COWFS_BUILD/cowctl" undo "$CARD" || grep -q 'no generation is held' "$T/err" || { cat "$T/err"; echo "$WHERE"; return 1; }
		recovers
		card_has_one_of "$held"
	done
	tell
}

# IMG is made from this one each time.
prepare() { # CARD_MIB_OF_THE_FS
	IMG=''
	DEV='' DETACH=()
	card_make ext4 "$1" "$1" -b 4096
	mount "$CARD" "$MNT"
	for i in {0..19}; do random_file "$MNT/f$i" 1; done
	rm "$MNT"/f{3,5,7}
	SUM=$(tree_sum "$MNT")
	umount "$MNT"
	loop_down "$CARD"
	cp --sparse=always "$IMG" "$T/kept.img"
}

again() {
	[ -z "$CARD" ] || loop_down "$CARD"
	cp --sparse=always "$T/kept.img" "$IMG"
	card_loop
}

@test "kills elsewhere: shrink" {
	local i shrink=(--shrink --log-size 8M --erase-block 1M --journal-size 4M)
	prepare 96
	CARD=''
	again
	measure cow prepare "${shrink[@]}" "$CARD"
	for ((i = 0; i < COUNT; i++)); do
		again
		killed everything "$COWFS_BUILD/cowctl" prepare "${shrink[@]}" "$CARD"
		ends "$COWFS_BUILD/cowctl" check "$CARD" || [ $? -le 4 ]
		ends "$COWFS_BUILD/cowctl" prepare "${shrink[@]}" "$CARD" || grep -q 'already has a cowfs log' "$T/err" ||
			{ cat "$T/err"; echo "$WHERE"; return 1; }
		card_has_one_of "$SUM"
		attach_has "$SUM"
		detach
		DEV=''
	done
	tell
}

@test "kills elsewhere: grow" {
	local i
	card 100
	format
	loop_down "$CARD"
	cp --sparse=always "$IMG" "$T/kept.img"
	truncate -s 120M "$T/kept.img"
	CARD=''
	again
	measure cow grow "$CARD"
	for ((i = 0; i < COUNT; i++)); do
		again
		killed everything "$COWFS_BUILD/cowctl" grow "$CARD"
		ends "$COWFS_BUILD/cowctl" grow "$CARD" || { cat "$T/err"; echo "$WHERE"; return 1; }
		answer=$(cow check --json "$CARD")
		jq -e '.device_grown == false' <<<"$answer"
		recovers
		card_has_one_of "$SUM"
	done
	tell
}
