#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A worker is killed in a commit, another one takes over, and soon after that the power goes, at any write or flush of the
# card: it has one generation as a whole. Nothing is mounted, so only commands of these tests would hang.
#	COUNT=100 bats tests/bats/takeover.bats	so many kills of each kind
#	SEED=N					other moments

load lib
OWN_NAME=takeover$$

COUNT=${COUNT:-$(rounds 5)}
SEED=${SEED:-1}
export BATS_TEST_TIMEOUT=$((900 + COUNT * 20))

setup() {
	local major minor rest
	cow_setup
	IFS=.- read -r major minor rest </proc/sys/kernel/osrelease
	[ $((major * 1000 + minor)) -ge 6009 ] || skip "a kernel before 6.9"
	C=$T/sim
	mkdir "$C"
	RANDOM=$SEED DEATHS=0
}

teardown() { sim_teardown; }

# A card that loses what is not flushed, with two areas of MIB each below the file system, in which cowfs knows nothing to be free
# (FAT): each block of an area is full of one number, 0.
sim_card() { # MIB LOG_MIB
	MIB=$1
	CARD=$(SIM --loop --fresh x-slow-4g $((MIB * 2 + $2 + 16))M "$C")
	mkfs.vfat "$CARD" $((MIB * 2048 + 12288)) >/dev/null
	cow prepare "$CARD" --log-size "$2M" --erase-block 1M
	fill "$CARD" a 0
	fill "$CARD" b 0
}

at_mib() { [ "$1" = a ] && echo 8 || echo $((8 + MIB)); }

fill() { # DEVICE AREA NUMBER
	yes "$(printf %07d "$3")" | head -c "${MIB}M" | dd of="$1" bs=1M seek="$(at_mib "$2")" iflag=fullblock oflag=direct conv=notrunc status=none
}

# The number of an area, or "1 2" of a mixture
number() { # DEVICE AREA
	dd if="$1" bs=1M skip="$(at_mib "$2")" count="$MIB" iflag=direct status=none | uniq | sed 's/^0*\(.\)/\1/' | xargs
}

numbers() { echo "$(number "$1" a),$(number "$1" b)"; }

attach_replaced() {
	COWFS_DEATHS=100 attach --on-crash replace
	DEATHS=0
}

replaced() { [ "$(status_of .replaced)" = "$DEATHS" ]; }

worker_dies() { # [PID...]: and these
	kill -9 "$@" "$(worker_pid)"
	DEATHS=$((DEATHS + 1))
	wait_for 30 replaced
}

random_us() { # UP_TO
	local us=$(((RANDOM * 32768 + RANDOM) % $1))
	printf '%d.%06d' $((us / 1000000)) $((us % 1000000))
}

# The worker dies somewhere in the time that the command takes; another one serves. Sets STATUS if the command has ended by
# itself meanwhile, and COMMAND, its pid.
killed_in() { # MICROSECONDS COMMAND...
	local us=$1
	shift
	background "$@" >"$T/out" 2>&1
	COMMAND=$BG
	sleep "$(random_us "$us")"
	worker_dies
}

took_us() { # COMMAND...
	local begin=${EPOCHREALTIME/./}
	"$@" >/dev/null
	echo $((${EPOCHREALTIME/./} - begin))
}

# The card's power is off: all processes end. Then it comes back.
power_gone() { # FATE
	kill -9 $(daemons)
	wait_for 20 no_daemons
	SIM power "$C" "$1"
	cow status >/dev/null 2>&1 || : # clears
	wait_for 20 volume_gone "$DEV"
	rm "$T/volumes"
	DEV=''
	blockdev --setrw "$CARD"
	blockdev --flushbufs "$CARD"
}

# Number 2i-1 is committed, and 2i in one area after it.
# bats test_tags=blunt
@test "takeover: the power goes right after it: the card has one generation as a whole, and each one that was reported" {
	local i how takes committed n seen=() fates=(kept undone torn garbage random)
	sim_card 2 24
	attach_replaced
	fill "$DEV" a 1
	fill "$DEV" b 1
	takes=$(took_us cow commit "$NAME")
	detach
	for ((i = 1; i <= COUNT; i++)); do
		how=$((RANDOM % 3)) committed=$(numbers "$CARD")
		attach_replaced
		fill "$DEV" a $((2 * i - 1))
		fill "$DEV" b $((2 * i - 1))
		local want=("$committed" "$((2 * i - 1)),$((2 * i - 1))")
		killed_in "$takes" "$COWFS_BUILD/cowctl" commit "$NAME"
		if [ $how -gt 0 ]; then # the command repeats the commit with the next worker
			wait "$COMMAND"
			want=("${want[1]}")
			fill "$DEV" a $((2 * i))
			want+=("$((2 * i)),$((2 * i - 1))")
			if [ $how = 1 ]; then
				background "$COWFS_BUILD/cowctl" commit "$NAME" >"$T/out" 2>&1
			else
				killed_in "$takes" "$COWFS_BUILD/cowctl" commit "$NAME"
			fi
		fi
		SIM cut "$C" $((RANDOM % 24 + 1))
		sleep "$(random_us 1000000)"
		power_gone "${fates[RANDOM % 5]}"
		run cow release "$CARD"
		[ "$status" -le 1 ] || { echo "$output"; return 1; }
		n=$(numbers "$CARD")
		echo "round $i, $how: $n of ${want[*]}; $(tail -n 1 "$T/out")"
		[[ " ${want[*]} " == *" $n "* ]]
		[ "$n" = "${want[0]}" ] && seen+=(old) || seen+=(new)
	done
	say "$COUNT power cuts after a take-over: $(printf '%s\n' "${seen[@]}" | sort | uniq -c | xargs)"
}

# The image of now is sealed like that of a commit.
# bats test_tags=blunt
@test "takeover: a worker dies while it takes an image of now: what is sealed does not count as committed" {
	card_prepared ext4 100 160
	COWFS_DEATHS=100 with_shim attach --on-crash replace
	seq 100000 >"$T/file"
	debugfs -w -R "write $T/file one" "$DEV"
	cow commit "$NAME"
	debugfs -w -R "write $T/file two" "$DEV"
	blockdev --flushbufs "$DEV"
	mkdir "$T/view"
	eio seal 3000
	background "$COWFS_BUILD/cowctl" view --now "$NAME" "$T/view" >"$T/out" 2>&1
	sleep 1
	worker_dies
	eio off
	blockdev --flushbufs "$DEV"
	debugfs -R "cat two" "$DEV" | cmp - "$T/file"
}

# bats test_tags=blunt
@test "takeover: a broker that dies ends its worker: the next one has another broker, or the volume ends" {
	local pid broker
	card_prepared ext4 100 160
	COWFS_DEATHS=100 attach --on-crash replace
	echo one >"$T/file"
	debugfs -w -R "write $T/file one" "$DEV"
	pid=$(worker_pid)
	broker=$(pgrep -P "$pid" -x cowfs-broker)
	kill -9 "$broker"
	cow commit
	[ "$(worker_pid)" != "$pid" ]
	[ "$(status_of .replaced)" = 1 ]
	detach
	[ "$(debugfs -R 'cat one' "$CARD" 2>/dev/null)" = one ]
	attach
	pid=$(worker_pid)
	kill -9 "$(pgrep -P "$pid" -x cowfs-broker)"
	run cow commit
	echo "$status $output"
	[ "$status" != 0 ]
	run cow status
	echo "$status $output"
	[ "$status" = 4 ]
}

# bats test_tags=blunt
@test "takeover: a generation that is held stays so, whoever commits over it" {
	local number
	sim_card 2 24
	attach_replaced
	fill "$DEV" a 1
	fill "$DEV" b 1
	cow commit "$NAME" --hold
	for ((number = 2; number <= 4; number++)); do
		fill "$DEV" a "$number"
		fill "$DEV" b "$number"
		killed_in 200000 "$COWFS_BUILD/cowctl" commit "$NAME"
		wait "$COMMAND"
		[ "$(status_of .held.generation)" -gt 0 ]
		fails 1 'held already' commit --hold
	done
	[ "$(numbers "$DEV")" = 4,4 ]
	detach
	cow undo "$CARD"
	attach_replaced
	[ "$(numbers "$DEV")" = 1,1 ]
	detach
	[ "$(numbers "$CARD")" = 1,1 ]
}

commits_now() { jq -e '.progress.phase' "$COWFS_RUNDIR/$NAME/status.json"; }

# Each one takes the writes again that the one before had not answered, commits what that had sealed, and lets no other ones in.
die_in_commits() { # FS MIB FIELD [ATTACH_OPTION...]: so much is written, and what FIELD says can be dirty
	COWFS_DEATHS=100 with_shim attach --on-crash replace "${@:4}"
	mount_volume
	eio slow 500
	background dd if=/dev/urandom of="$MNT/file" bs=64k count=$(($2 * 16)) status=none
	while [ $DEATHS -lt 15 ]; do
		wait_for 60 commits_now
		sleep 0.3
		worker_dies
	done
	[ "$(status_of .dirty_blocks)" -lt $(($(status_of "$3") * 5 / 4)) ] # what is taken again counts twice
	eio off
	wait "$BG"
	cow commit "$NAME"
	[ -z "$(status_of .alarm)" ]
	detach_whole "$1"
}

# bats test_tags=blunt
@test "takeover: workers die in commits under pressure: what is dirty still fits in the log" {
	card_prepared btrfs 300 400 -- --log-size 32M --erase-block 1M
	die_in_commits btrfs 64 .log_capacity_blocks
}

# bats test_tags=blunt
@test "takeover: workers die in commits under pressure: what is dirty still fits in RAM" {
	card_prepared ext4 400 520 -- --log-size 8M --erase-block 1M
	die_in_commits ext4 200 '.ram_limit_bytes / 4096' --ram 64M
}

# bats test_tags=blunt
@test "takeover: a worker dies behind its record: no more is dirty than fits beside the free blocks of that" {
	card_prepared ext4 100 140 -b 4096 -- --log-size 8M --erase-block 1M
	COWFS_DEATHS=100 with_shim attach --on-crash replace
	mount_volume
	fallocate -l 80M "$MNT/file"
	eio shut 5000
	background "$COWFS_BUILD/cowctl" commit "$NAME"
	wait_for 60 eval 'logedit records | grep -q "^1 "'
	worker_dies "$BG" # which would commit again
	eio off
	rm "$MNT/file"
	dd if=/dev/urandom of="$MNT/new" bs=64k count=1000 oflag=direct status=none
	cow commit "$NAME"
	detach_whole ext4
}

connects_at_once() { # SOCKET
	python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.setblocking(False); s.connect(sys.argv[1])' "$1"
}

# a process, or a worker, waits for a message
listens() { grep -q skb_wait "/proc/$1/wchan"; }
worker_listens() { local p; for p in $(daemons); do grep -qx cowfs "/proc/$p/comm" && listens "$p" && return; done; return 1; }

# A stopped process is the slowest one.
# bats test_tags=blunt
@test "takeover: the spare is slow, and then the parent: nothing is lost, and who lists volumes leaves the socket to others" {
	local parent spare list
	sim_card 2 24
	attach_replaced
	fill "$DEV" a 1
	parent=$(awk '/^PPid/ { print $2 }' "/proc/$(worker_pid)/status")
	spare=$(pgrep -x -P "$parent" cowfs-spare)
	kill -STOP "$spare"
	kill -9 "$(worker_pid)"
	DEATHS=1
	background "$COWFS_BUILD/cowctl" status
	list=$BG
	wait_for 10 listens "$parent"
	sleep 12
	connects_at_once "$COWFS_RUNDIR/$NAME/control"
	kill -STOP "$parent"
	kill -CONT "$spare"
	wait_for 10 worker_listens
	sleep 3
	kill -CONT "$parent"
	wait "$list"
	wait_for 20 replaced
	cow commit "$NAME"
	[ "$(numbers "$DEV")" = 1,0 ]
	detach
}

# bats test_tags=blunt
@test "a worker is killed while /run is full: another one takes over, and the next one as well" {
	mkdir "$COWFS_RUNDIR"
	mount -t tmpfs -o size=64k,mode=755 run "$COWFS_RUNDIR"
	sim_card 2 24 # all that is written fits in the log: no commit of its own is under way when the worker is killed
	attach_replaced
	head -c 1M /dev/zero >"$COWFS_RUNDIR/full" || true
	fill "$DEV" a 1
	worker_dies
	worker_dies
	[ "$(number "$DEV" a)" = 1 ]
	fill "$DEV" b 1
	cow commit "$NAME"
	[ "$(numbers "$DEV")" = 1,1 ]
	rm "$COWFS_RUNDIR/full"
	wait_for 10 jq -e '.replaced == 2' "$COWFS_RUNDIR/$NAME/status.json"
	cow detach "$NAME"
	wait_for 20 no_daemons
	umount "$COWFS_RUNDIR"
}

@test "the process that would become the next worker dies: status says so, and asks for a commit" {
	local parent spare
	sim_card 4 8
	attach_replaced
	[ "$(status_of .on_crash)" = replace ]
	parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$(worker_pid)/status")
	spare=$(grep -lx cowfs-spare $(printf '/proc/%s/comm ' $(cat "/proc/$parent/task/$parent/children")) | grep -o '[0-9]*')
	kill -9 "$spare"
	wait_for 10 eval '[ "$(status_of .on_crash)" = stop ]'
	run -3 cow status "$NAME"
	[[ $output == *"is not replaced any more"*"run cowctl commit"* ]]
	wait_for 10 jq -e .degraded "$COWFS_RUNDIR/$NAME/status.json"
	cow detach "$NAME"
}

# bats test_tags=blunt
@test "a worker is killed where few descriptors may be open: the next one serves and commits" {
	local most=64
	NAME=$OWN_NAME
	sim_card 2 24
	attached() { setpriv --bounding-set -sys_resource --inh-caps -sys_resource prlimit --nofile=$1:$1 -- \
		"$COWFS_BUILD/cowctl" attach "$CARD" --name "$NAME" --on-crash replace; }
	run attached $((most - 1))
	[ "$status" = 1 ]
	[[ $output == *"at most $((most - 1)) files can be open, and it needs $most"* ]]
	COWFS_DEATHS=100 attached $most >"$T/dev"
	DEV=$(grep ^/dev/ "$T/dev")
	is_volume
	[ "$(awk '/open files/ { print $4 }' "/proc/$(worker_pid)/limits")" = $most ]
	fill "$DEV" a 1
	cow inhibit >/dev/null
	for _ in 1 2; do
		worker_dies
		fill "$DEV" b $((DEATHS + 1))
		cow commit "$NAME"
	done
	[ "$(numbers "$DEV")" = 1,3 ]
	# it has what root has said, and the name, until it ends
	fails 1 inhibited commit --timer
	run -1 flock -n "$COWFS_RUNDIR/$NAME/lock" true
	detach
	[ ! -e "$COWFS_RUNDIR/$NAME" ]
	[ "$(numbers "$CARD")" = 1,3 ]
}

# bats test_tags=blunt
@test "takeover: that writes have failed is not forgotten with the worker" {
	card_prepared ext2 200 250 -b 4096
	COWFS_DEATHS=100 attach --on-crash replace --ram 32M --pressure fail
	run ! dd if=/dev/zero of="$DEV" bs=1M count=60 seek=20 oflag=direct status=none # nothing is left for the next worker
	sleep 3 # RAM is looked at once a second
	worker_dies
	[[ $(status_of .alarm) == *" failed because RAM was full: the data is lost"* ]]
	detach --discard
}

# Its messages are not read, so what is in flight stays there until it dies. The filter of system calls refuses them all.
@test "a worker sends all the descriptors that it can, and dies: the next one serves, and so does that of another volume" {
	local other
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "its preload library comes first"
	IMG=$T/other.img
	card_make none 0 64
	mkfs.vfat "$CARD" 16384 >/dev/null
	cow prepare "$CARD"
	OTHER=$CARD
	COWFS_DEATHS=100 attach --name zother --on-crash replace
	other=$(worker_pid)
	sim_card 2 24
	truncate -s 65536 "$T/hostile"
	COWFS_SECCOMP='' COWFS_HOSTILE_FILE=$T/hostile LD_PRELOAD=$COWFS_BUILD/tests/hostile.so attach_replaced
	printf 5 | dd of="$T/hostile" conv=notrunc status=none
	wait_for 60 grep -aq ^descriptors "$T/hostile"
	[ "$(sed -n 's/.*descriptors \([0-9]*\)$/\1/p' "$T/hostile" | tr -d '\0')" = 0 ]
	cow detach "$NAME"
	rm "$T/hostile"
	truncate -s 65536 "$T/hostile"
	COWFS_HOSTILE_OPEN=filter COWFS_SECCOMP='' COWFS_HOSTILE_FILE=$T/hostile LD_PRELOAD=$COWFS_BUILD/tests/hostile.so attach_replaced
	fill "$DEV" a 1
	printf 5 | dd of="$T/hostile" conv=notrunc status=none
	wait_for 60 grep -aq ^descriptors "$T/hostile"
	tr -d '\0' <"$T/hostile" | tail -n 1
	[ "$(sed -n 's/.*descriptors \([0-9]*\)$/\1/p' "$T/hostile" | tr -d '\0')" -gt 4000 ]
	kill -9 "$other"
	wait_for 30 eval '[ "$(NAME=zother status_of .replaced)" = 1 ]'
	worker_dies
	fill "$DEV" b 2
	cow commit "$NAME"
	cow commit zother
	[ "$(numbers "$DEV")" = 1,2 ]
	cow detach zother
	detach
	[ "$(numbers "$CARD")" = 1,2 ]
}

# bats test_tags=blunt
@test "all processes of a daemon are killed: who may not ask it sees that at once" {
	card_prepared ext4 64 128
	COWFS_DEATHS=100 attach --on-crash replace
	as_nobody "$COWFS_BUILD/cowctl" status "$NAME" >/dev/null
	kill -9 $(daemons)
	wait_for 20 no_daemons
	soon 1 run -4 as_nobody "$COWFS_BUILD/cowctl" status "$NAME"
	[[ $output == *"volume $NAME is not running: its daemon died"* ]]
	soon 1 run -4 as_nobody "$COWFS_BUILD/cowctl" status
	[[ $output == *"no volume is attached (a daemon died and left its files)"* ]]
	cow status >/dev/null 2>&1 || :
	wait_for 20 volume_gone "$DEV"
}
