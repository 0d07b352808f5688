#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# More is written than RAM can hold: commits by themselves, pacing, parking, and what happens when they cannot.
# seconds: 150

load lib

READSTALL=$BATS_TEST_DIRNAME/../tools/readstall.py

# RAM limit 48 MiB on an ext4 with a journal of 8 MiB
volume() {
	card_make ext4 "$1" $(($1 + 40)) -J size=8
	shift
	cow prepare "$CARD"
	with_shim attach --ram 48M "$@"
	mount_volume -o noatime
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# bytes that are not the same in any two blocks, and quick to make
stream() {
	openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "$1")" -iv 0 -in /dev/zero 2>/dev/null | head -c "$(($2 << 20))"
}

writes_new() { stream 1 "$1" >"$MNT/new" && sync -f "$MNT" && touch "$T/done"; } # MIB

stalls_begin() {
	random_file "$MNT/read" 4
	cow commit
	background python3 "$READSTALL" "$MNT/read" "$T/stop" >"$T/stalls"
	STALLS=$BG
}

# sets WORST, the longest stall in ms
stalls_end() {
	touch "$T/stop"
	wait "$STALLS"
	rm "$T/stop"
	WORST=$(cut -d' ' -f2 "$T/stalls")
	[ -n "$WORST" ]
}

# At rest it is below 2,000. Without pacing a read waits for a whole commit, up to the gate's 10 s.
STALL_MS=${COWFS_STALL_MS:-6000}

no_errors() {
	[ "$(status_of '"\(.pressure.full_errors + .write_errors + .read_errors)\(.alarm)"')" = 0 ]
}

card_holds() {
	local fs=$1 sum=$2
	detach_whole "$fs"
	on_bare '[ "$(cat "$MNT"/new* | sha256sum)" = "$sum" ]'
}

@test "ext4: four times the limit as new files, each block written once" {
	local t0 sum i written
	volume 320
	stalls_begin
	sum=$(for i in 1 2 3 4; do stream "$i" 48; done | sha256sum)
	eio card 1 20
	written=$(card_written)
	t0=$(now_ms)
	for i in 1 2 3 4; do stream "$i" 48 >"$MNT/new$i"; done
	sync -f "$MNT"
	stalls_end
	cow commit
	t0=$(($(now_ms) - t0))
	written=$((($(card_written) - written) >> 20))
	eio off
	say "new files all on a card of 20 MB/s: $((192 * 1024 * 1000 / t0)) KiB/s, longest stall of a read: $WORST ms," \
		"longest delay of a write: $(status_of .pressure.longest_delay_seconds) s, written to the card: $written MiB"
	no_errors
	[ "$(status_of '.pressure | .commits >= 3 and .delayed_writes > 0')" = true ]
	[ "$WORST" -le "$(patience "$STALL_MS")" ]
	# which is why it runs at about the speed of the card
	[ "$written" -ge 192 ]
	[ "$written" -le 220 ]
	card_holds ext4 "$sum"
}

@test "ext4: as many large requests as there can be, past the page cache: no write fails" {
	volume 320
	eio slow 20
	# one that grows and one that is preallocated: content on the card that only the live file system knows, and spilled blocks
	fio --directory="$MNT" --rw=randwrite --bs=256k --ioengine=libaio --iodepth=128 --direct=1 --verify=crc32c --verify_state_save=0 \
		--name=whole --size=120m --name=grows --size=80m --fallocate=none >/dev/null
	eio off
	no_errors
	detach_whole ext4
}

@test "ext4: four times the limit, in place" {
	local t0 speed sum got
	volume 320
	stream 1 192 >"$MNT/new"
	sync -f "$MNT"
	cow commit --checkpoint
	stalls_begin
	sum=$(stream 2 192 | sha256sum)
	eio card 1 80
	got=$(card_read)
	t0=$(now_ms)
	stream 2 192 | dd of="$MNT/new" bs=1M iflag=fullblock conv=notrunc status=none
	sync -f "$MNT"
	stalls_end
	speed=$((192 * 1024 * 1000 / ($(now_ms) - t0)))
	eio off
	got=$((($(card_read) - got) >> 20))
	say "in place: $speed KiB/s, longest stall of a read: $WORST ms," \
		"longest delay of a write: $(status_of .pressure.longest_delay_seconds) s, read from the card: $got MiB"
	no_errors
	# of what was there a sample is compared, and at most all that is logged is read to go home, if RAM no longer has it
	[ "$got" -le 240 ]
	[ "$WORST" -le "$(patience "$STALL_MS")" ]
	card_holds ext4 "$sum"
}

@test "xfs: the log is the second budget" {
	local sum
	card_prepared xfs 320 360 -- --log-size 32M
	with_shim attach --ram 96M
	mount_volume -o noatime
	sum=$(stream 1 64 | sha256sum)
	eio card 1 60
	stream 1 64 | dd of="$MNT/new" bs=1M iflag=fullblock oflag=direct status=none
	eio off
	say "xfs: $(status_of .pressure.commits) commits of at most half a log of $(status_of .log_capacity_blocks) blocks"
	no_errors
	[ "$(status_of .pressure.commits)" -ge 3 ]
	card_holds xfs "$sum"
}

@test "pressure=fail: nothing is committed, writes fail at the limit" {
	local before
	volume 320 --pressure fail
	before=$(card_written)
	run dd if=/dev/zero of="$MNT/a" bs=1M count=80 conv=fsync status=none
	[ "$status" -ne 0 ]
	[[ $output == *"Input/output error"* || $output == *"Read-only"* ]]
	[ "$(status_of '"\(.pressure.level) \(.pressure.policy) \(.pressure.commits) \(.write_errors > 0)"')" = "full fail 0 true" ]
	[ "$(status_of .ram_used_bytes)" -lt $((56 << 20)) ]
	[ "$(card_written)" -eq "$before" ]
	detach --discard
	[ "$(card_written)" -eq "$before" ]
	fsck ext4
}

# A program that does not call fsync never hears of it.
@test "pressure=fail: a commit and a detach say that writes failed, and never that nothing is lost" {
	volume_attached ext2 200 250 -b 4096 -- -- --ram 32M --pressure fail
	dd if=/dev/zero of="$DEV" bs=1M count=60 seek=20 status=none
	run -0 cow commit
	[[ $output == *$'\n'"  "*" writes failed because RAM was full: the data is lost" ]]
	run -0 cow commit
	[[ $output == "vol: nothing to commit, generation "*" is current" ]]
	# whoever comes later sees it until it is accepted
	[[ $(status_of .alarm) == *" writes failed because RAM was full: the data is lost. cowctl accept ends this alarm" ]]
	run -0 cow accept
	[ "$output" = "vol: the alarm about writes that failed has ended" ]
	[ "$(status_of '"\(.alarm) \(.degraded)"')" = " false" ]
	fails 1 'no generation is held' accept
	dd if=/dev/zero of="$DEV" bs=1M count=60 seek=20 status=none
	blockdev --flushbufs "$DEV" # if another program looks at it, not by the close
	run -0 --separate-stderr cow detach
	[[ $stderr == *"cowctl: vol: ALARM: "*" writes failed because RAM was full"* ]]
	[[ $output == "vol: detached, "*" writes failed because RAM was full: the data is lost" ]]
	wait_for 20 no_daemons
	volume_mounted ext2 200 250 -b 4096 -- -- --ram 32M --pressure fail
	dd if=/dev/zero of="$MNT/a" bs=1M count=60 status=none || true
	run cow commit
	# an ext2 may have seen the errors itself
	[[ $output == *"writes failed because RAM was full: the data is lost" ]]
	[[ $output != *"nothing is lost"* && $output != *"everything stays"* && $output != *"card reports"* ]]
	detach --discard
}

@test "discard armed: pressure does not commit" {
	local before
	volume 320
	cow discard
	before=$(card_written)
	run dd if=/dev/zero of="$MNT/a" bs=1M count=80 conv=fsync status=none
	[ "$status" -ne 0 ]
	[ "$(status_of .pressure.commits)" = 0 ]
	[ "$(card_written)" -eq "$before" ]
	detach
	[ "$(card_written)" -eq "$before" ]
}

# bats test_tags=blunt
@test "a card that errs for a while: writers wait, no write fails" {
	local sum
	volume 320
	sum=$(stream 1 80 | sha256sum)
	eio write 0 1000000
	background writes_new 80
	wait_for 60 grep -q 'retrying' "$COWFS_RUNDIR/vol/status.json"
	timeout 300 dd if="$DEV" of=/dev/null bs=1M count=1 iflag=direct status=none # reads go on
	sleep 1
	[ ! -e "$T/done" ]
	eio off
	wait "$BG"
	[ -e "$T/done" ]
	no_errors
	card_holds ext4 "$sum"
}

# No commit begins meanwhile, so writes wait at the end of RAM, until one can.
@test "a hold that moves on a slow card, and a dry run whose sync does not end: RAM gets full, no write fails" {
	local before
	COWFS_SYNC_HANGS=$T/hang volume 320 --hold previous
	stream 1 12 >"$MNT/old"
	cow commit
	stream 2 12 | dd of="$MNT/old" iflag=fullblock bs=1M conv=notrunc,fsync status=none
	cow commit --timer
	echo more >"$MNT/more"
	eio slow 60000
	background cow commit
	wait_for 30 eval '[ "$(blockdev --getro "$CARD")" = 0 ]'
	background writes_new 80
	wait_for 60 jq -e '.pressure.level == "full"' "$COWFS_RUNDIR/vol/status.json"
	sleep 2
	eio off
	wait "$BG"
	no_errors
	cow commit
	touch "$T/hang"
	background cow commit --dry-run
	wait_for 10 job_is dry-run
	writes_new 80
	rm "$T/hang"
	no_errors
	# the half of what was written is nothing to go back to
	before=$(status_of .held.generation)
	touch "$T/hang"
	echo half >"$MNT/half"
	cow commit
	rm "$T/hang"
	cow commit
	[ "$(status_of .held.generation)" = "$before" ]
	cow accept
	detach_whole ext4
}

# bats test_tags=blunt
@test "a card that errs for good: writes fail after a time, the card is as committed" {
	local bdi sum
	export COWFS_FULL_TIMEOUT=4s
	volume 320
	bdi=/sys/class/bdi/$(lsblk -dno MAJ:MIN "$DEV" | tr -d ' ')
	stream 7 8 >"$MNT/new"
	sync -f "$MNT"
	cow commit
	sum=$(stream 7 8 | sha256sum)
	eio write 0 1000000
	run timeout 300 dd if=/dev/zero of="$MNT/a" bs=1M count=100 conv=fsync status=none
	[ "$status" -ne 0 ]
	[ "$status" -ne 124 ]
	wait_for 60 jq -e .pressure.gave_up "$COWFS_RUNDIR/vol/status.json"
	[[ "$(status_of .alarm)" == *"commit failed"*"writes fail"* ]]
	# an ext4 that gave up keeps its dirty pages: below a bound a writer would wait for ever
	[ ! -e "$bdi/strict_limit" ] || wait_for 10 grep -qx 0 "$bdi/strict_limit"
	run -3 cow status
	# a dry run tells nothing of the card
	run cow commit --dry-run
	[ "$(status_of .pressure.gave_up)" = true ]
	timeout 300 umount "$MNT"
	eio off
	cow detach --discard vol
	wait_for 20 no_daemons
	recover_whole ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(sha256sum <"$MNT/new")" = "$sum" ]
}

@test "an image that kills each of its readers: writers wait, then it is committed unread, no write fails" {
	! ldd "$COWFS_BUILD/cowfs" | grep -Eq 'libasan|libtsan' || skip "the shim must come first"
	local sum
	export COWFS_FULL_TIMEOUT=3s
	card_prepared ext4 320 700 -J size=8 -- --log-size 256M
	BADIMAGE_AT=1 LD_PRELOAD=$COWFS_BUILD/tests/badimage.so attach --ram 96M
	mount_volume -o noatime
	sum=$(stream 1 160 | sha256sum)
	background writes_new 160
	wait_for 60 grep -q 'reads the file system.s metadata died.*retrying' "$COWFS_RUNDIR/vol/status.json"
	wait "$BG"
	[ -e "$T/done" ]
	[ "$(status_of '.pressure.full_errors + .write_errors')" = 0 ]
	[ "$(status_of .last.unread)" = true ]
	card_holds ext4 "$sum"
}

@test "a log that is set aside is no budget: nothing will be committed, all of RAM can be written" {
	volume_mounted xfs 320 360 -- --log-size 32M -- --ram 128M
	commit_word one
	power_cut rw
	"$COWFS_BUILD/tests/unguard" "$CARD" # as something that ignores the guard
	mount "$CARD" "$MNT"
	echo two >"$MNT/two"
	umount "$MNT"
	attach --ram 128M
	[ "$(status_of .log_state_at_attach)" = foreign ]
	mount_volume -o noatime
	timeout 300 sh -c "head -c $((64 << 20)) /dev/urandom >'$MNT/new' && sync -f '$MNT'"
	[ "$(status_of '"\(.pressure.level) \(.pressure.commits + .write_errors)"')" = "ok 0" ]
	detach --discard
}

@test "inhibit and uninhibit: timers wait, pressure does not" {
	volume 320
	echo a >"$MNT/a"
	cow inhibit --for 1h
	[ "$(status_of '.inhibit_left_seconds > 3000 and .inhibit_left_seconds <= 3600')" = true ]
	run -0 cow status
	[[ $output == *"no timer commits for another "* ]]
	fails 1 inhibited commit --timer
	cow commit
	cow uninhibit
	[ "$(status_of ".inhibit_left_seconds == 0")" = true ]
	cow commit --timer
	cow inhibit --for 5s
	fails 1 inhibited commit --timer
	wait_for 30 cow commit --timer
	run -0 cow inhibit
	[[ $output == *"600 s"* ]]
	dd if=/dev/zero of="$MNT/b" bs=1M count=60 conv=fsync status=none
	[ "$(status_of '.pressure.commits >= 1')" = true ]
	fails 2 'at most 24 hours' inhibit --for 25h
	fails 2 'is not a time such as' inhibit --for soon
	fails 2 'is not a time such as' inhibit --for 0
}

@test "attach: a limit that cannot hold journal, dirty pages and slack is refused with numbers" {
	card_prepared ext4 320 360 -J size=64
	fails 1 'journal of .* \(64.0 MiB\).*dirty.* \([0-9.]+ [KM]iB\).*at least [0-9.]+ MiB' attach "$CARD" --ram 64M
	attach --ram 96M
	[ "$(status_of .ram_limit_bytes)" = $((96 << 20)) ]
	[ "$(status_of '.pressure | .hard_bytes == 100663296 + .reserve_journal_bytes + .reserve_dirty_bytes + .reserve_slack_bytes')" = true ]
}

# btrfs has dirty limits of its own, as everything has on kernels that bound only the whole system
@test "dirty pages that nobody bounds: no limit is refused for them, and the store has room for what a freeze flushes" {
	card_prepared btrfs 120 200 -- --log-size 64M
	run --separate-stderr cow attach "$CARD" --name vol --ram 16M
	echo "$stderr"
	[ "$status" = 0 ]
	[[ $stderr == *"above the RAM limit of 16.0 MiB"* ]]
	NAME=vol DEV=$output
	is_volume
	# at most the volume, whatever the memory of the machine
	[ "$(status_of '.pressure.reserve_dirty_bytes <= 120 * 1048576')" = true ]
	mount_volume
	random_file "$T/file" 28
	cp "$T/file" "$MNT/file" # not synced: the freeze does it, beyond the limit
	cow commit
	[ "$(status_of '.pressure.full_errors == 0 and .generation > 0')" = true ]
	power_cut
	attach_mounted --ram 16M
	cmp "$T/file" "$MNT/file"
	detach_whole btrfs
}

# A boot loader reads the bare card and knows nothing of a log. A file is replaced as dpkg does it; more follows before the
# package is finished, with commits by pressure only.
boot_loader_finds() { # OPTION...: SEEN is old, new or broken
	volume_attached ext4 100 140 -J size=4 -- -- --ram 32M "$@"
	mount_volume -o noatime
	random_file "$MNT/kernel" 16
	cow commit --checkpoint
	cp "$MNT/kernel" "$T/old"
	random_file "$MNT/kernel.new" 16
	cp "$MNT/kernel.new" "$T/new"
	sync -f "$MNT"
	mv "$MNT/kernel.new" "$MNT/kernel"
	# takes the blocks of the old one as well, once they are free
	for _ in 1 2 3; do
		random_file "$MNT/more" 55
		sync -f "$MNT"
		rm "$MNT/more"
	done
	[ "$(status_of .pressure.commits)" -ge 2 ]
	wait_for 60 job_is null # a loader finds anything in the middle of a checkpoint, see docs/design/loaders.md
	debugfs -R "dump /kernel $T/seen" "$CARD" 2>/dev/null
	SEEN=broken
	! cmp -s "$T/seen" "$T/old" || SEEN=old
	! cmp -s "$T/seen" "$T/new" || SEEN=new
}

@test "pressure: what a boot loader finds on the bare card" {
	boot_loader_finds --checkpoint always
	say "$SEEN"
	[ "$SEEN" = new ]
}
