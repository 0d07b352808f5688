#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl view of a card that is not attached: the newest generation, and not one byte is written.
# seconds: 90
# turn: 3

load lib

setup() {
	cow_setup || return
	V=$T/view
	mkdir "$V"
}

unview() {
	local disk
	disk=$(loop_use "$(findmnt -no SOURCE "$V")")
	timeout 300 umount "$V" || return
	wait_for 10 no_daemons && wait_for 5 view_ended "$disk"
}

# views SUM [ARGUMENT]...: a view has this tree, is read-only, and changes neither card nor settings of the device
views() {
	local want=$1 before sum ro out
	shift
	sum=$(image_sum) before=$(card_written) ro=$(blockdev --getro "$CARD")
	out=$(cow view "$@" "$V") || return
	echo "$out"
	[[ $out == *"read-only; umount $V ends the view"* ]] || return
	findmnt -no OPTIONS "$V" | grep -q '^ro,nosuid,nodev' || return
	[ "$(tree_sum "$V")" = "$want" ] || return
	run ! touch "$V/new"
	unview || return
	[ "$(card_written)" = "$before" ] && [ "$(image_sum)" = "$sum" ] && [ "$(blockdev --getro "$CARD")" = "$ro" ]
}

shows_generation() { # FS FS_MIB CARD_MIB
	cut_card 2 "$@"
	answer=$(cow check "$CARD")
	grep -qF "to look at it: cowctl view $CARD DIR; it writes nothing" <<<"$answer"
	views "$SUM" "$CARD"
	# the device as a killed daemon leaves it
	blockdev --setro "$CARD"
	views "$SUM" "$CARD"
	# what the view shows is what release makes
	cow release "$CARD"
	# the log of a frozen xfs has counters that are to be replayed
	[ "$1" = xfs ] || fsck "$1"
	views "$SUM" "$CARD"
	[ "$(bare_sum)" = "$SUM" ]
}

@test "view of a card: the newest generation, no byte is written, nothing stays: ext4" { shows_generation ext4 60 100; }
@test "view of a card: ext2" { shows_generation ext2 60 100; }
@test "view of a card: ext4 with blocks of 1 KiB" { shows_generation ext4 60 100 -b 1024; }
@test "view of a card: xfs" { shows_generation xfs 310 360; }
@test "view of a card: btrfs" { shows_generation btrfs 120 160; }

@test "view of a card: an image file, a device that cannot be written, a UUID; JSON" {
	local sum
	cut_card 2 ext4 60 100
	sum=$(image_sum)
	run -0 cow view --json "$CARD" "$V"
	jq -e --arg d "$CARD" '.ok and .name == $d and .kind == "committed" and .attached == false and .log_state == "live" and
		.generation >= 2 and .fs_type == "ext4" and (.time_unix_seconds > 1600000000)' <<<"$output"
	unview
	loop_down "$CARD"
	(cd "$T" && cow view "${IMG##*/}" view) # a name without a slash
	[ "$(tree_sum "$V")" = "$SUM" ]
	unview
	chmod 400 "$IMG"
	loop_up "$IMG" -r 2>/dev/null || LOOP=$(losetup -f -r --show "$IMG")
	CARD=$LOOP
	[ "$(blockdev --getro "$CARD")" = 1 ] || blockdev --setro "$CARD"
	views "$SUM" "$CARD"
	cow view "UUID=$(blkid -p -o value -s UUID "$CARD")" "$V"
	unview
	[ "$(image_sum)" = "$sum" ]
}

@test "view of a card: its log on another device" {
	local log
	truncate -s 40M "$T/log.img"
	loop_up "$T/log.img"
	log=$LOOP
	LOGDEV=(--log "$log")
	cut_card 2 ext4 60 60
	answer=$(cow check --log "$log" "$CARD")
	grep -qF "to look at it: cowctl view $CARD --log $log DIR" <<<"$answer"
	sum=$(image_sum "$T/log.img")
	fails 1 "no cowfs log, and its superblock is guarded by .* \(if it is on another device: --log DEVICE\)" view "$CARD" "$V"
	views "$SUM" --log "$log" "$CARD"
	cow view --log "$log" "$CARD" "$V"
	fails 1 "$CARD is in use" release --log "$log" "$CARD"
	fails 1 "$log is in use" prepare --force "$log"
	unview
	[ "$(image_sum "$T/log.img")" = "$sum" ]
}

@test "view of a card: a partition at an odd sector, and a file system that is full" {
	local disk part
	IMG=$T/disk.img
	truncate -s 200M "$IMG"
	loop_up "$IMG"
	disk=$LOOP part=${LOOP}p1
	addpart "$disk" 1 63 $((150 * 2048 + 5))
	wait_for 5 test -b "$part"
	CARD=$part
	mkfs.ext4 -q -b 4096 -m 0 "$CARD" 90M
	cow prepare "$CARD"
	attach_mounted
	echo one >"$MNT/one"
	cow commit --checkpoint
	dd if=/dev/urandom of="$MNT/fill" bs=1M status=none 2>/dev/null || true
	cow commit
	echo two >"$MNT/one"
	cow commit
	SUM=$(tree_sum "$MNT")
	power_cut
	views "$SUM" "$CARD"
	delpart "$disk" 1
}

# In the middle of a commit and of its checkpoint: what the view shows is N or N+1, and what release and attach find. Places
# are counted from flushes: how many writes lie between two is up to the machine.
cuts() { # FS FS_MIB CARD_MIB
	local at turn=0 old=0 new=0 sum
	cut_card 2 "$@"
	for at in 2 s1+1 s3+1 s4+1 s5 s5+1 s6 s7; do
		cut_in_commit "$at" && break
		cow view "$CARD" "$V"
		sum=$(tree_sum "$V")
		unview
		case $sum in
		"$SUM") old=$((old + 1)) ;;
		"$NEW") new=$((new + 1)) ;;
		*) say "cut at $at: neither the previous generation nor the new one"; return 1 ;;
		esac
		views "$sum" "$CARD"
		[ $((++turn % 2)) = 1 ] || cow release "$CARD"
		attach_has "$sum"
		detach --discard
		rm "$T/volumes"
		[ $((turn % 2)) = 1 ] || [ "$1" = xfs ] || fsck "$1"
	done
	say "$1: $old times the previous generation, $new times the new one"
	[ $old -gt 0 ] && [ $new -gt 0 ]
}

# bats test_tags=blunt
@test "view of a card: cut in commits and checkpoints: ext4" { cuts ext4 60 100; }
# bats test_tags=blunt
@test "view of a card: cut in commits and checkpoints: xfs" { cuts xfs 310 360; }
# bats test_tags=blunt
@test "view of a card: cut in commits and checkpoints: btrfs" { cuts btrfs 120 160; }

@test "view of a card: fell back, and a shrink that was cut after its commit" {
	local n
	cut_card 2 ext4 60 100
	logedit damage 1
	run -0 cow view "$CARD" "$V"
	[[ $output == *": generation "[0-9]*" of "*"the newest commit is incomplete ("*"): this is the previous generation"* ]]
	[ ! -e "$V/two" ]
	unview
	loop_down "$CARD"
	card_make ext4 128 128 -J size=8
	mount "$CARD" "$MNT"
	random_file "$MNT/file" 60
	SUM=$(tree_sum "$MNT")
	umount "$MNT"
	cp --sparse=always "$IMG" "$T/copy"
	for n in 34 35 36 38 40; do
		run cut_at $n "$COWFS_BUILD/cowctl" prepare --shrink --log-size 8M --erase-block 1M "$CARD"
		[ "$(cow check --json "$CARD" | jq -r .shrink)" != committed ] || break
		image_from "$T/copy"
	done
	[ "$(cow check --json "$CARD" | jq -r .shrink)" = committed ]
	views "$SUM" "$CARD"
}

@test "view of a card: no whole generation is refused, with what it is and what to do next" {
	cut_card 2 ext4 60 100
	blockdev --setrw "$CARD"
	cp --sparse=always "$IMG" "$T/copy"
	# changed elsewhere, by what does not respect the guard
	"$COWFS_BUILD/tests/unguard" "$CARD"
	mount "$CARD" "$MNT"
	echo foreign >"$MNT/foreign"
	umount "$MNT"
	fails 1 "$CARD: .*changed without cowfs.*no whole generation.*cowctl release --accept base or --accept log $CARD" view "$CARD" "$V"
	fails 1 "no whole generation" view --json "$CARD" "$V"
	run ! mountpoint -q "$V"
	# damaged
	image_from "$T/copy"
	logedit damage 1
	logedit damage 2
	fails 1 "$CARD: the log is damaged \(.*\): there is no whole generation to show. See cowctl check $CARD" view "$CARD" "$V"
	# a plain file system, and nothing at all
	loop_down "$CARD"
	IMG=$T/other.img
	card_make ext4 60 100
	fails 1 "$CARD: no cowfs log" view "$CARD" "$V"
	fails 4 "no volume is attached as /dev/null" view /dev/null "$V"
	wait_for 5 no_daemons
	# a log without a record
	cow prepare "$CARD"
	answer=$(cow view "$CARD" "$V")
	grep -q 'as before the first commit' <<<"$answer"
	unview
}

# damage SEED: of some used blocks of the log, all or a part, or in the place of another
damage_log() {
	python3 - "$IMG" "$(cow check --json "$IMG" | jq .log_offset_bytes)" "$1" <<-'END'
		import random, sys
		f, at, rnd = open(sys.argv[1], "r+b"), int(sys.argv[2]), random.Random(int(sys.argv[3]))
		f.seek(at)
		log = f.read()
		used = [b for b in range(0, len(log) - 4095, 4096) if any(log[b:b + 4096])]
		for _ in range(rnd.choice((1, 1, 2, 5))):
		    b, other = rnd.choice(used), rnd.choice(used)
		    f.seek(at + b)
		    f.write(rnd.choice((rnd.randbytes(512), bytes(4096), log[other:other + 4096])))
	END
}

@test "view of a card: a damaged log is refused or read with errors, and shows no mixture" {
	local i sum shown=0 refused=0 errors=0
	declare -A good
	volume_mounted ext4 40 60 -J size=4 -- --log-size 8M --erase-block 1M
	random_file "$MNT/big" 3
	for i in 1 2 3 4; do
		echo "$i" >"$MNT/file$i"
		dd if=/dev/urandom of="$MNT/big" bs=4096 count=20 seek=$((i * 30)) conv=notrunc status=none
		cow commit
		good[$(tree_sum "$MNT")]=$i
	done
	power_cut
	loop_down "$CARD"
	cp --sparse=always "$IMG" "$T/copy"
	for i in {1..20}; do
		cp --sparse=always "$T/copy" "$IMG"
		damage_log "$i"
		sum=$(image_sum)
		if cow view "$IMG" "$V" >"$T/out" 2>&1; then
			if cat "$V"/file* "$V/big" >"$T/out" 2>&1; then
				[ -n "${good[$(tree_sum "$V")]}" ] || { echo "seed $i: a mixture"; return 1; }
				shown=$((shown + 1))
			else
				errors=$((errors + 1))
			fi
			unview
		else
			grep -Eq 'no whole generation|superblocks of the log are damaged|cannot be read|cannot mount' "$T/out" || { cat "$T/out"; return 1; }
			refused=$((refused + 1))
		fi
		[ "$(image_sum)" = "$sum" ]
	done
	say "$shown generations shown, $errors with errors, $refused refused"
	[ $shown -gt 0 ] && [ $((errors + refused)) -gt 0 ]
}

@test "view of a card: claimed by others, and by the view" {
	local other=$T/v2 disk
	mkdir "$other"
	cut_card 2 ext4 60 100
	cow view "$CARD" "$V"
	# udev hides it, although there is no daemon
	disk=$(findmnt -no SOURCE "$V")
	[ "$(COWFS_RUNDIR=$T/none "$BATS_TEST_DIRNAME/../../systemd/which-device" "${disk#/dev/}")" = view ]
	fails 1 "$CARD is in use by something else \(a view," view "$CARD" "$other"
	fails 1 "in use" attach "$CARD"
	fails 1 "in use" release "$CARD"
	run ! mount "$CARD" "$MNT"
	run -0 cow check "$CARD" # which reads only
	unview
	mount -o ro,noload "$CARD" "$MNT"
	fails 1 "$CARD is mounted on $MNT: unmount it first" view "$CARD" "$V"
	umount "$MNT"
	# the volume has the device: its own view
	blockdev --setrw "$CARD"
	attach
	run -0 cow view "$CARD" "$V"
	[[ $output == "vol: generation "[0-9]*" of "* ]]
	umount "$V"
	run -0 cow view --json "$CARD" "$V"
	jq -e '.name == "vol" and .attached' <<<"$output"
	umount "$V"
	# the file below the volume's device is not another card
	fails 1 "$IMG is attached as volume vol" view "$IMG" "$V"
	detach
	fails 1 "$IMG is in use by $CARD: name that device" view "$IMG" "$V"
	loop_down "$CARD"
	cow view "$IMG" "$V"
	fails 1 "$IMG is in use by something else" release "$IMG"
	unview
}

@test "view of a card: what a new user types" {
	cut_card 2 ext4 60 100
	fails 2 "name the directory, too: cowctl view $CARD DIR" view "$CARD"
	fails 4 "$CARD: is not attached, so there is nothing uncommitted: leave --now out" view --now "$CARD" "$V"
	fails 1 "$T/nothing: No such file or directory" view "$CARD" "$T/nothing"
	fails 4 "no volume is attached as $T/nothing" view "$T/nothing" "$V"
	run -1 --separate-stderr setpriv --reuid 65534 --regid 65534 --clear-groups "$COWFS_BUILD/cowctl" view "$CARD" "$V"
	[[ $stderr == *"only root may"* ]]
	answer=$(cow view --help)
	grep -q 'not attached: nothing is written to it' <<<"$answer"
	# the folder of another user
	install -d -o 65534 -g 65534 "$T/his" "$T/his/dir"
	cow view "$CARD" "$T/his/dir"
	[ "$(tree_sum "$T/his/dir")" = "$SUM" ]
	umount "$T/his/dir"
	ln -s /etc "$T/his/link"
	chown -h 65534 "$T/his/link"
	fails 1 "link.*uid 65534|user 65534|nobody" view "$CARD" "$T/his/link"
	ln -s "$CARD" "$T/his/card"
	chown -h 65534 "$T/his/card"
	fails 1 "$T/his/card: .*link.*65534|nobody" view "$T/his/card" "$V"
	wait_for 5 no_daemons
}

# A mount of the view replays the journal, in the memory of the server.
@test "view of a card: the journal of a file system that was cut is replayed, and nothing of it is written" {
	local fs sum
	for fs in xfs ext4 btrfs; do
		IMG=$T/$fs.img
		card_prepared $fs 310 360
		mount -o "$([ $fs != ext4 ] || echo commit=600,)relatime" "$CARD" "$MNT"
		mkdir "$MNT/dir"
		echo one >"$MNT/dir/one"
		sync "$MNT/dir/one"
		cp --sparse=always "$IMG" "$T/cut.img"
		umount "$MNT"
		sum=$(image_sum "$T/cut.img")
		cow view "$T/cut.img" "$V"
		[ "$(cat "$V/dir/one")" = one ]
		run ! touch "$V/new"
		[ "$(blockdev --getro "$(findmnt -no SOURCE "$V")")" = 0 ] # it would stay with the number
		unview
		[ "$(image_sum "$T/cut.img")" = "$sum" ]
	done
}

server() { daemons; }

@test "view of a card: its server is killed, and cowctl at any moment" {
	local disk seq i pid
	cut_card 2 ext4 60 100
	for i in 1 2; do
		cow view "$CARD" "$V"
		disk=$(findmnt -no SOURCE "$V") seq=$(loop_use "$disk")
		kill -9 "$(server)"
		run ! timeout 10 dd if="$disk" of=/dev/null bs=4096 count=1 iflag=direct
		timeout 300 umount "$V"
		wait_for 5 view_ended "$seq"
	done
	for i in $(some 0 39); do
		"$COWFS_BUILD/cowctl" view "$CARD" "$V" >/dev/null 2>&1 3>&- &
		pid=$!
		sleep "0.0$(printf '%02d' $((i * 2)))"
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" || true
		! mountpoint -q "$V" || timeout 300 umount "$V"
		wait_for 10 no_daemons || { ps -ef; return 1; }
	done
	views "$SUM" "$CARD"
}

@test "view of a card: the server has no rights, and nothing but the card and its connection" {
	local pid fd
	cut_card 2 ext4 60 100
	cow view "$CARD" "$V"
	pid=$(server)
	[ "$(wc -w <<<"$pid")" = 1 ]
	grep -q '^CapEff:[[:space:]]*0*$' "/proc/$pid/status"
	grep -q '^CapPrm:[[:space:]]*0*$' "/proc/$pid/status"
	grep -q '^Seccomp:[[:space:]]*2$' "/proc/$pid/status"
	grep -q '^NoNewPrivs:[[:space:]]*1$' "/proc/$pid/status"
	run ! grep -q '^Uid:[[:space:]]*0' "/proc/$pid/status"
	for fd in "/proc/$pid/fd"/*; do
		case $(readlink "$fd") in
		/dev/fuse) ;;
		"$CARD") [ $((0$(awk '$1 == "flags:" { print $2 }' "/proc/$pid/fdinfo/${fd##*/}") & 3)) = 0 ] ;;
		socket:*) ;;
		*) readlink "$fd"; return 1 ;;
		esac
	done
	unview
	# it ends with what reads the card
	run -1 --separate-stderr env LD_PRELOAD="$COWFS_BUILD/tests/badimage.so" BADIMAGE_OWNS="$T/owned" "$COWFS_BUILD/cowctl" view "$CARD" "$V"
	[[ $stderr == *"$CARD: cannot be read: the content made its reader crash"* ]]
	[ ! -e "$T/owned" ]
	wait_for 5 no_daemons
}
