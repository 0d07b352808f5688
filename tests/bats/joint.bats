#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl commit --all: several volumes as of one moment, for all or for none.
# seconds: 190
# waits: 90 % of its time
# bats file_tags=commands

load lib

# up NAME...: attaches and mounts these volumes, whose cards exist: CARDS, DEVS by name. Each obeys its own file for
# eioshim.c. The one with the last name leads.
up() {
	local name
	for name; do
		CARD=${CARDS[$name]}
		COWFS_EIO_FILE=$T/eio.$name LD_PRELOAD=$COWFS_BUILD/tests/eioshim.so ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" \
			attach --name "$name"
		DEVS[$name]=$DEV
		mkdir -p "$T/$name"
		mount "$DEV" "$T/$name"
	done
	NAME=''
}

volumes() {
	local name
	declare -gA CARDS=() DEVS=()
	for name; do
		IMG=$T/$name.img
		card_make ext4 64 110 -J size=4
		cow format "$CARD"
		CARDS[$name]=$CARD
	done
	up "$@"
}

# slow NAME MS: of each write to its card
slow() {
	eio_order "$T/eio.$1" "slow $2"
}

# All daemons die at once, and with them what RAM had.
cut_all() {
	local name pids=()
	for name in "${!CARDS[@]}"; do
		pids+=("$(NAME=$name worker_pid)")
	done
	kill -9 "${pids[@]}"
	wait_for 20 no_daemons
	for name in "${!CARDS[@]}"; do
		timeout 60 umount "$T/$name" || return
		volume_gone "${DEVS[$name]}" || losetup -d "${DEVS[$name]}" || volume_gone "${DEVS[$name]}"
		wait_for 20 volume_gone "${DEVS[$name]}"
		eio_order "$T/eio.$name"
	done
}

# cut_in MS [VOLUME]: all daemons die so long after a commit of all volumes, or of this one, has begun.
cut_in() {
	cow commit "${2---all}" >"$T/out" 2>&1 3>&- &
	BG=$!
	sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
	cut_all
	wait "$BG" || true
}

# fail_flush NAME SKIP: one FLUSH of its card, after so many
fail_flush() {
	eio_order "$T/eio.$1" "flush $2 1"
}

down() {
	local name
	for name in "${!CARDS[@]}"; do
		wait_for 5 timeout 60 umount "$T/$name"
		cow detach "$name"
		fsck ext4 "${CARDS[$name]}"
	done
}

@test "joint: all volumes as of one moment, also while they are written" {
	local i
	volumes a b c
	# what is new in a is older than what is new in b, and that is older than what is new in c
	(
		exec 3>&-
		i=0
		while [ ! -e "$T/stop" ]; do
			i=$((i + 1))
			for name in a b c; do
				echo $i >"$T/$name/new" && mv "$T/$name/new" "$T/$name/n"
			done
		done
	) &
	BG=$!
	wait_for 10 test -s "$T/c/n"
	for i in 1 2 3 4; do
		run -0 cow commit --all
		[[ $output == *"3 volumes committed together, held for "*" ms" ]]
	done
	touch "$T/stop"
	wait "$BG"
	cut_all
	up a b c
	read -r a <"$T/a/n"
	read -r b <"$T/b/n"
	read -r c <"$T/c/n"
	echo "a: $a, b: $b, c: $c"
	((a >= b && b >= c && a - c <= 1))
	down
}

@test "joint: text, JSON, what has not changed, one that cannot" {
	volumes a b
	echo x >"$T/a/f"
	run -0 cow commit --all
	[[ $output == "a: committed "*$'\n'"b: nothing to commit, generation "*$'\n'"2 volumes committed together, held for "* ]] ||
		[[ $output == "a: committed "*$'\n'"b: committed "*$'\n'"2 volumes committed together, held for "* ]]
	echo y >"$T/a/f"
	echo y >"$T/b/f"
	run -0 --separate-stderr cow commit --all --json
	jq -e '.ok and .schema == 1 and .frozen_seconds > 0 and ([.volumes[].name] | sort) == ["a", "b"] and
		all(.volumes[]; .ok and .generation > 0 and .quiesce.instant and .report.written_bytes > 0)' <<<"$output"
	run -0 cow commit --all --dry-run
	[[ $output == *"a: a commit now would write"* || $output == *"a: nothing to commit"* ]]
	echo z >"$T/a/f"
	run -0 --separate-stderr cow commit --all --dry-run --json
	jq -se 'length == 1 and .[0].ok and ([.[0].volumes[].name] | sort) == ["a", "b"] and all(.[0].volumes[]; .ok and .report.dirty_blocks >= 0)' <<<"$output"
	fails 2 'mutually exclusive' commit --all --deadline 5s
	fails 2 'takes no volume' commit --all a
	# the card of one of them fails: none has committed, and RAM has everything
	echo z >"$T/a/f"
	echo z >"$T/b/f"
	eio_order "$T/eio.a" "write 0 1000"
	run -1 cow commit --all
	[[ $output == *"a: the card reports an error"* ]]
	[[ $output != *committed" "* ]]
	run -1 --separate-stderr cow commit --all --json
	jq -e '(.ok | not) and any(.volumes[]; .code == "EIO") and any(.volumes[]; .code == "ECANCELED" and (.error | length > 0))' <<<"$output"
	eio_order "$T/eio.a"
	cut_all
	up a b
	[ "$(cat "$T/a/f")" = y ]
	[ "$(cat "$T/b/f")" = y ]
	echo z >"$T/a/f"
	echo z >"$T/b/f"
	run -0 cow commit --all
	cut_all
	up a b
	[ "$(cat "$T/a/f" "$T/b/f")" = $'z\nz' ]
	down
	fails 4 'no volume is attached' commit --all
}

@test "joint: cowctl ends before the decision: no volume commits" {
	volumes a b
	echo x >"$T/a/f"
	echo x >"$T/b/f"
	slow a 700
	background cow commit --all
	sleep 0.6
	kill -9 "$BG"
	wait "$BG" || true
	# timeout(1) ends, and its child is killed with it
	wait_for 30 sh -c "'$COWFS_BUILD/cowctl' status --json a | grep -q '\"phase\":\"idle\"\\|\"progress\":null' || sleep 3"
	eio_order "$T/eio.a"
	cow commit --all
	down
}

@test "joint: all daemons die at any moment: all volumes have the new generation, or none" {
	local i new=0 old=0 slower
	volumes a b
	echo 0 >"$T/a/n"
	echo 0 >"$T/b/n"
	cow commit --all
	for i in 1 2 3 4 5 6 7 8 9 10; do
		echo "$i" >"$T/a/n"
		echo "$i" >"$T/b/n"
		slower=$([ $((i % 2)) = 0 ] && echo a || echo b)
		slow "$slower" 100
		cut_in $((i * 140))
		# in this order the first one asks
		up a b
		echo "cut $i of the commit, $slower slow: $(cat "$T/a/n") and $(cat "$T/b/n")"
		[ "$(cat "$T/a/n")" = "$(cat "$T/b/n")" ]
		if [ "$(cat "$T/a/n")" = "$i" ]; then new=$((new + 1)); else old=$((old + 1)); fi
	done
	echo "$new new, $old old"
	[ $new -gt 0 ]
	[ $old -gt 0 ]
	down
}

@test "joint: a worker dies in it, and another one takes over: nothing is lost" {
	local i who
	export COWFS_ON_CRASH=replace COWFS_DEATHS=17 # of which none ends it
	volumes a b
	for i in 1 2 3 4 5 6; do
		echo "$i" >"$T/a/n"
		echo "$i" >"$T/b/n"
		who=$([ $((i % 2)) = 0 ] && echo a || echo b)
		slow b 100
		cow commit --all >"$T/out" 2>&1 3>&- &
		BG=$!
		sleep "0.$((i * 15 + 5))"
		kill -9 "$(NAME=$who worker_pid)"
		wait "$BG" || cat "$T/out"
		eio_order "$T/eio.b"
		[ "$(cat "$T/a/n" "$T/b/n")" = "$i"$'\n'"$i" ]
		run -0 cow commit --all
		[[ $output == *"2 volumes committed together"* ]]
	done
	down
	for i in a b; do
		mount -o ro,noload "${CARDS[$i]}" "$MNT"
		[ "$(cat "$MNT/n")" = 6 ]
		umount "$MNT"
	done
}

# What a view of its card shows.
seen() {
	cow view "${CARDS[$1]}" "$MNT" >/dev/null || { echo "no view of $1"; return 1; }
	cat "$MNT/n" || true # not in the first generation
	umount "$MNT"
}

@test "joint: a volume whose commit another one decides, and that one is missing" {
	local cut theirs found=''
	volumes a b
	cow commit --all # the first one writes more
	for ((cut = 1; cut < 16; cut++)); do
		echo "$cut" >"$T/a/n"
		echo "$cut" >"$T/b/n"
		slow b 200
		cut_in $((cut * 120))
		# the leader's card is not there
		losetup -d "${CARDS[b]}"
		wait_for 20 card_gone "${CARDS[b]}"
		run cow attach "${CARDS[a]}" --name a
		loop_up "$T/b.img"
		CARDS[b]=$LOOP
		if [ "$status" != 0 ]; then
			found=$output
			break
		fi
		DEV=$output
		cow detach a
		up a b
	done
	echo "cut $cut: $found"
	[[ $found == *"is record "*" committed? the volume that knows is missing"*"recover --joint"* ]]
	[ "$(seen a)" = "$(seen b)" ] # the other one is there, and says so
	losetup -d "${CARDS[b]}"
	wait_for 20 card_gone "${CARDS[b]}"
	fails 1 'is record .* committed\? the volume that knows is missing: plug in its card.*recover --joint accept\|reject' view "${CARDS[a]}" "$MNT"
	# files of users answer nothing, whatever is in them
	mkdir "$T/theirs"
	cp "$T/b.img" "$T/theirs/b.img"
	chown nobody "$T/theirs/b.img"
	loop_up "$T/theirs/b.img"
	fails 1 'Plug in the card of that volume' recover "${CARDS[a]}"
	loop_down "$LOOP"
	chown root "$T/theirs/b.img"
	chmod 666 "$T/theirs/b.img"
	loop_up "$T/theirs/b.img"
	fails 1 'Plug in the card of that volume' recover "${CARDS[a]}"
	chmod 600 "$T/theirs/b.img"
	chown nobody "$T/theirs"
	fails 1 'Plug in the card of that volume' recover "${CARDS[a]}"
	loop_down "$LOOP"
	# one that another mount namespace calls by the name of a file of root
	mkdir "$T/roots"
	chmod 755 "$T" "$T/roots"
	echo "a file of root" >"$T/roots/b.img"
	cp "$T/b.img" "$T/public"
	chmod 644 "$T/public"
	background setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Urm sh -c '
		mount -t tmpfs none "$1/roots" && cp "$1/public" "$1/roots/b.img" && touch "$1/roots/ready" && exec sleep 100' sh "$T"
	theirs=/proc/$BG/root$T/roots
	wait_for 10 test -e "$theirs/ready"
	LOOP=$(/usr/bin/python3 -c '
import fcntl, os, sys
n = fcntl.ioctl(os.open("/dev/loop-control", os.O_RDWR), 0x4C82)
fcntl.ioctl(os.open(f"/dev/loop{n}", os.O_RDWR), 0x4C00, os.open(sys.argv[1], os.O_RDWR))
print(f"/dev/loop{n}")' "$theirs/b.img")
	[ "$(cat "/sys/block/${LOOP#/dev/}/loop/backing_file")" = "$T/roots/b.img" ]
	fails 1 'Plug in the card of that volume' recover "${CARDS[a]}"
	losetup -d "$LOOP"
	kill "$BG"
	fails 2 'accept or reject, not maybe' recover --joint maybe "${CARDS[a]}"
	cp "$T/a.img" "$T/a2.img"
	cow recover --joint reject "${CARDS[a]}"
	fsck ext4 "${CARDS[a]}"
	mount -o ro,noload "${CARDS[a]}" "$MNT"
	[ "$(cat "$MNT/n" 2>/dev/null || echo none)" != "$cut" ]
	umount "$MNT"
	loop_up "$T/a2.img"
	cow recover --joint accept "$LOOP"
	mount -o ro,noload "$LOOP" "$MNT"
	[ "$(cat "$MNT/n")" = "$cut" ]
	umount "$MNT"
	loop_down "$LOOP"
}

@test "joint: a worker dies in a session that has asked another log, and another one takes over" {
	local cut
	volumes a b
	cow commit --all # the first one writes more
	for ((cut = 6; cut < 22; cut += 2)); do
		echo "$cut" >"$T/a/n"
		echo "$cut" >"$T/b/n"
		slow a 200
		cut_in $((cut * 120))
		COWFS_ON_CRASH=replace COWFS_DEATHS=17 up a b
		kill -9 "$(NAME=a worker_pid)"
		echo "cut $cut: $(timeout 30 cat "$T/a/n") and $(cat "$T/b/n")"
		[ "$(timeout 30 cat "$T/a/n")" = "$(cat "$T/b/n")" ]
		down
		up a b
	done
	down
}

@test "joint: the card of the volume that decides fails, and the others live on" {
	local skip counts=0
	volumes a b
	cow commit --all # the first one writes more
	for skip in 0 1 2 3 4 5; do
		echo "$skip" >"$T/a/n"
		echo "$skip" >"$T/b/n"
		fail_flush b "$skip"
		run cow commit --all
		eio_order "$T/eio.b"
		[[ $status == 0 || $output == *"b: the card reports an error"* ]]
		[[ $output != *"b: the card"* || $output != *"a: committed"* ]] || counts=$((counts + 1))
		# a commits alone, and the power goes in it
		slow a 300
		cut_in 700 a
		up a b
		echo "FLUSH $skip fails: $(cat "$T/a/n") and $(cat "$T/b/n"): $output"
		[ "$(cat "$T/a/n")" = "$(cat "$T/b/n")" ]
	done
	[ $counts -gt 0 ]
	down
}

# The commit of a and b is on the card of b, where a FLUSH has failed. a does not know, and cannot ask while there is COPY, a card
# that says something else. N is in both files n.
in_doubt() {
	volumes a b
	cow commit --all
	cp "$T/b.img" "$T/b2.img"
	loop_up "$T/b2.img"
	COPY=$LOOP
	for N in 0 1 2 3 4 5; do
		echo "$N" >"$T/a/n"
		echo "$N" >"$T/b/n"
		fail_flush b "$N"
		run cow commit --all
		eio_order "$T/eio.b"
		[[ $output != *"a: not known whether it is committed"* ]] || break
	done
	echo "FLUSH $N fails: $output"
	[[ $output == *"a: not known whether it is committed: "*"everything stays in RAM"* ]]
}

@test "joint: a volume that cannot ask does not commit by itself" {
	in_doubt
	fails 1 'not committed: is record .* committed\? the volume that knows cannot tell: plug in its card' commit a
	fails 1 'commit --force' commit a --timer
	echo more >"$T/a/more"
	fails 1 'cannot tell' commit --all
	loop_down "$COPY"
	cow commit a
	cut_all
	up a b
	[ "$(cat "$T/a/n" "$T/a/more")" = "$N"$'\n'more ]
	[ "$(cat "$T/b/n")" = "$N" ]
	down
}

@test "joint: a volume that cannot ask is detached, and asks when it is attached again" {
	in_doubt
	echo more >"$T/a/more"
	wait_for 5 timeout 60 umount "$T/a"
	cow detach --discard a
	fails 1 'cannot tell.*recover --joint' attach "${CARDS[a]}" --name a
	loop_down "$COPY"
	up a
	[ "$(cat "$T/a/n")" = "$N" ]
	[ ! -e "$T/a/more" ]
	down
}

@test "joint: a volume that cannot ask commits if it must" {
	in_doubt
	cow commit --force a
	echo more >"$T/a/more"
	cow commit a
	cut_all
	loop_down "$COPY"
	up a b
	[ "$(cat "$T/a/n" "$T/a/more")" = "$N"$'\n'more ]
	down
}

@test "joint: a shutdown of several volumes" {
	local i equal=0
	volumes a b c
	for i in a b c; do
		random_file "$T/$i/f" 3
	done
	run -0 --separate-stderr cow shutdown --within 60s
	[[ $stderr == "cowfs: 3 volumes committed together"$'\n'"cowfs: a: everything is on the card"*"cowfs: b: every"*"cowfs: c: every"* ]]
	for i in a b c; do
		[ "$(NAME=$i status_of .log_live_blocks)" = 0 ]
	done
	# not those that are to be discarded
	cow discard c
	echo x >"$T/c/f"
	run -0 cow shutdown
	[[ $output == "cowfs: 2 volumes committed together"*"c: not committed: the changes are to be discarded"* ]]
	cow discard --cancel c
	# the card of one fails: the others are committed all the same
	for i in a b c; do
		echo y >"$T/$i/f"
	done
	eio_order "$T/eio.a" "write 0 1000"
	run -1 cow shutdown
	[[ $output == "cowfs: NOT committed together, but one after another: a: the card reports an error"* ]]
	[[ $output == *"cowfs: a: NOT COMMITTED: "*"cowfs: b: everything is on the card"*"cowfs: c: everything is on the card"* ]]
	# nor does one that has failed take part
	echo z >"$T/b/f"
	run -1 cow shutdown
	[[ $output == "cowfs: 2 volumes committed together"*"a: NOT COMMITTED"* ]]
	# no time: one after another
	slow a 200
	run cow shutdown --within 100ms
	eio_order "$T/eio.a"
	[[ $output == *"NOT committed together, but one after another: it would take too long"* || $output == *"out of time"* ]]
	cow commit --all
	# one that hangs is not waited for
	for i in a b c; do
		echo "new $i" >"$T/$i/f"
	done
	slow a 20000
	run cow shutdown --within 14s
	echo "$output"
	[[ $output == "cowfs: NOT committed together, but one after another: a: no answer"*"b: everything"*"c: everything"*"out of time"* ]]
	eio_order "$T/eio.a"
	cow commit --all
	down
}

@test "joint: the record of the volume that decides takes longer than the others wait for it" {
	local began
	volumes a b
	cow commit --all # the first one writes more
	echo 1 >"$T/a/n"
	echo 1 >"$T/b/n"
	# of three writes the last one is the record
	eio_order "$T/eio.b" "late 2 85000"
	began=$SECONDS
	background bash -c "exec timeout 200 '$COWFS_BUILD/cowctl' commit --all >'$T/out' 2>&1"
	# a has waited for 60 s, and for 10 s more that b's card has it
	# shellcheck disable=SC2317 # wait_for calls it
	gave_up() { [[ $(NAME=a status_of .alarm) == *"not known whether it is committed: the volume that decides did not write its record"* ]]; }
	wait_for 100 gave_up
	[ $((SECONDS - began)) -lt 80 ]
	# what says that it does not count could be wrong in a moment
	COW_LIMIT=30 fails 1 'not committed: the volume that decides has not finished its record: wait for it; .*--force' commit a
	[ "$(NAME=b status_of .generation)" = 1 ]
	wait_for 60 grep -q '^b: committed .* as generation 2' "$T/out"
	# b forgets
	eio_order "$T/eio.b"
	for _ in 1 2 3; do
		echo 2 >"$T/b/other"
		cow commit --checkpoint b
	done
	# a need not ask
	[[ $(cow commit a) == *"nothing has changed"* || $(NAME=a status_of .generation) -ge 2 ]]
	cut_all
	up a b
	[ "$(cat "$T/a/n") $(cat "$T/b/n")" = "1 1" ]
	down
}
