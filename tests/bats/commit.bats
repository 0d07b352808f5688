#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl commit: the bill, the dry run, what survives, several at once, the progress bar.

load lib

protect() {
	card_prepared ext4 200 250 -J size=8
	"$@" attach
	mount_volume
}

@test "commit: the bill, as text and as JSON" {
	local key
	protect
	random_file "$MNT/a" 10
	run -0 cow commit
	[[ $output =~ ^"vol: committed "[0-9.]+" MiB as generation 1 in "[0-9.]+" s"$ ]]
	random_file "$MNT/a" 10
	run -0 --separate-stderr cow commit -v
	[[ $output =~ ^"vol: committed "[0-9.]+" MiB as generation 2 in "[0-9.]+" s"$'\n' ]]
	for key in dirty "skipped, free" "skipped, journal" "skipped, same content" "written in place" \
		"written to the log" "zero (no payload)" "log metadata" "card: " " write calls, " " flushes, " \
		"writable for " "sealed after a sync of "; do
		[[ $output == *"$key"* ]] || { echo "no '$key' in: $output"; return 1; }
	done
	[ -z "$stderr" ]
	random_file "$MNT/b" 5
	run -0 --separate-stderr cow commit --json
	[ -z "$stderr" ]
	jq -e '.ok and .job == "commit" and .generation > 0 and .time_unix_seconds > 1600000000 and
		(.report | .direct_blocks >= 1280 and .written_bytes >= 5242880 and .logged_blocks >= 0 and
			.skipped_free_blocks >= 0 and .skipped_journal_blocks > 0 and .skipped_same_blocks >= 0 and
			.zero_blocks >= 0 and .log_metadata_blocks > 0 and .write_calls > 0 and .flushes >= 2 and
			.erase_blocks > 0 and .duration_seconds > 0 and .writable_seconds > 0 and .estimate == false) and
		(.quiesce | .mounted and .instant and .sync_seconds >= 0)' <<<"$output"
	# every dirty block is on the bill once
	jq -e '.report | .dirty_blocks + .hole_blocks == .skipped_hole_blocks + .skipped_free_blocks + .skipped_journal_blocks +
		.skipped_same_blocks + .direct_blocks + .logged_blocks + .zero_blocks' <<<"$output"
	[ "$(status_of .last.job)" = commit ]
	[ "$(status_of .last.ok)" = true ]
	detach_whole ext4
}

@test "commit: mounted where the daemon cannot see it, it is committed there; a checker on it is named" {
	volume_attached ext4 200 250 -J size=8
	background unshare --mount --propagation private sh -c "mount -o noatime '$DEV' '$MNT' && echo x >'$MNT/x' && exec sleep 1000"
	wait_for 20 grep -qs "^sleep" "/proc/$BG/comm"
	run -0 cow commit --json
	jq -e --arg holder "sleep[$BG]" '.quiesce | .mounted and .instant and .hidden and .holder == $holder' <<<"$output"
	kill "$BG"
	wait "$BG" || wait_for 20 python3 -c "import os; os.open('$DEV', os.O_EXCL)" # its mount goes later
	run -0 cow commit --json
	jq -e '.quiesce | (.mounted or .hidden) | not' <<<"$output"
	mount_volume
	[ "$(cat "$MNT/x")" = x ]
	umount_volume
	checker
	fails 1 "used without a mount by python3\\[$BG\\] .*nothing was written" commit
	kill "$BG"
	wait "$BG" || true
	cow commit
	detach_whole ext4
}

# As a checker has it.
checker() {
	background python3 -c "import os, time; os.open('$DEV', os.O_RDWR | os.O_EXCL); print('ready', flush=True); time.sleep(1000)" >"$T/excl"
	wait_for 20 grep -q ready "$T/excl"
}

# Kills every process that reads metadata as soon as it is there: a shell without the traps of bats.
kill_readers() {
	bash -c 'while [ ! -e "$2" ] && [ -d "/proc/$1" ]; do
			for of in "/proc/$1/task"/*/children; do
				pids=""
				read -r pids <"$of"
				[ -z "$pids" ] || kill -SEGV $pids
			done
		done' - "$1" "$T/stop" 2>/dev/null
}

@test "commit: the process that reads metadata dies" {
	local sum failed=0
	protect
	kill_readers "$(pgrep -x -P "$(worker_pid)" cowfs-broker)" 3>&- &
	for _ in $(seq 30); do
		random_file "$MNT/a" 3
		run cow commit
		[ "$status" = 0 ] && continue
		[ "$status" = 1 ]
		[[ $output == *"the process that reads the file system's metadata died; everything stays in RAM"* ]]
		failed=1
		break
	done
	[ "$failed" = 1 ]
	touch "$T/stop"
	wait $!
	cow commit
	random_file "$MNT/b" 3
	cow commit
	sum=$(tree_sum "$MNT")
	detach_whole ext4
	[ "$(bare_sum)" = "$sum" ]
}

@test "commit: with nothing to commit nothing is written" {
	local before
	protect
	umount_volume
	cow commit
	before=$(card_written)
	run -0 cow commit --json
	jq -e '.ok and .report.written_bytes == 0' <<<"$output"
	[ "$(card_written)" -eq "$before" ]
	# free blocks differ
	blkdiscard -f -o 170M -l 1M "$DEV"
	run -0 cow commit
	[[ $output == "$NAME: nothing to commit, generation "*" is current" ]]
	[ "$(card_written)" -eq "$before" ]
}

@test "commit: a second one right after the first writes nothing; generations count commits, also after an attach" {
	local fs before record n held
	for fs in ext4 xfs btrfs; do
		IMG=''
		volume_attached $fs 400 500
		[ "$(status_of .generation)" = 0 ]
		mount_volume
		echo 1 >"$MNT/a"
		exec {held}<"$MNT/a" # an xfs writes to its log when the inode leaves the cache of a machine that needs memory
		run -0 cow commit
		[[ $output =~ ^"vol: committed "[0-9.]+" KiB as generation 1 in "|^"vol: committed "[0-9.]+" MiB as generation 1 in " ]]
		before=$(card_written) record=$(status_of .record)
		for _ in 1 2; do
			run -0 cow commit
			[ "$output" = "vol: nothing to commit, generation 1 is current" ]
		done
		exec {held}<&-
		[ "$(card_written)" = "$before" ]
		[ "$(status_of .record)" = "$record" ]
		# a checkpoint is still done, and is no generation; an xfs is frozen for it, because a boot loader replays no log
		run -0 cow commit --checkpoint --json
		jq -e --arg fs $fs '.generation == (if $fs == "xfs" then 2 else 1 end) and .record > '"$record" <<<"$output"
		before=$(card_written)
		cow commit --checkpoint
		cow shutdown
		[ $fs = xfs ] || [ "$(card_written)" = "$before" ]
		if [ $fs = ext4 ]; then
			e2label "$DEV" new
			run -0 cow commit --json
			jq -e '.generation == 2 and .report.written_bytes > 0' <<<"$output"
			run -0 cow commit
			[ "$output" = "vol: nothing to commit, generation 2 is current" ]
		fi
		n=$(status_of .generation)
		echo 2 >"$MNT/a"
		answer=$(cow commit)
		grep -q "as generation $((n + 1)) " <<<"$answer"
		power_cut
		attach
		[ "$(status_of .generation)" = $((n + 1)) ]
		mount_volume
		[ "$(cat "$MNT/a")" = 2 ]
		umount_volume
		n=$(status_of .lifetime.commits)
		run -0 cow detach
		[[ $output =~ "as generation $((n + 1))"$ || $output =~ "nothing was written"$ ]]
		wait_for 20 no_daemons
		[ "$(cow check --json "$CARD" | jq .generation)" -ge "$n" ]
		fsck $fs
		loop_down "$CARD"
	done
}

@test "commit --dry-run: writes nothing, and prints what the commit then does" {
	local before gen told did blocks
	protect
	random_file "$MNT/a" 20
	cow commit
	random_file "$MNT/b" 10
	rm "$MNT/a"
	sync -f "$MNT"
	before=$(card_written) gen=$(status_of .generation)
	run -0 cow commit --dry-run
	[[ $output == *"a commit now would write"* && $output == *"card: about "* ]]
	run -0 cow commit --dry-run --json
	jq -e '.ok and .job == "dry-run" and .report.estimate and .life_share.low > 0 and
		.life_share.high >= .life_share.low and .life_share.assumed_erase_cycles == "500 to 5000"' <<<"$output"
	told=$(jq .report.written_bytes <<<"$output")
	blocks=$(jq .report.erase_blocks <<<"$output")
	# the bytes once, or each erase block of 4 MiB, by all erase cycles of the card
	jq -e --argjson size "$(blockdev --getsize64 "$CARD")" '(.life_share.low * 5000 * $size / .report.written_bytes | . > 0.98 and . < 1.02) and
		(.life_share.high * 500 * $size / (.report.erase_blocks * 4194304) | . > 0.98 and . < 1.02)' <<<"$output"
	run -0 cow commit --dry-run --flash slc --json
	jq -e '.life_share.assumed_erase_cycles == "30000 to 100000"' <<<"$output"
	run -0 cow commit --dry-run
	[[ $output == *"life: "*"% of the flash's endurance"* ]]
	fails 2 '--flash slc needs --dry-run' commit --flash slc
	fails 2 'is not one of slc' commit --dry-run --flash plc
	[ "$(card_written)" -eq "$before" ]
	[ "$(status_of .generation)" = "$gen" ]
	[ "$(status_of .card.foreign_bytes)" = 0 ]
	did=$(cow commit --json | tee "$T/did" | jq .report.written_bytes)
	say "dry run: $told bytes, $blocks erase blocks, commit: $did, $(jq .report.erase_block_visits "$T/did")"
	[ $((blocks * 2)) -ge "$(jq .report.erase_block_visits "$T/did")" ]
	[ "$blocks" -le $(($(jq .report.erase_block_visits "$T/did") * 2)) ]
	[ $((told * 10)) -ge $((did * 9)) ] && [ $((told * 10)) -le $((did * 11)) ]
}

# overwrites MiB $2 to $3 of the file, in place
overwrite() {
	dd if=/dev/urandom of="$1" bs=1M seek="$2" count="$(($3 - $2))" conv=notrunc,fsync status=none
}

# a checkpoint of LEAST to MOST blocks comes, and was told: dry_and_wet LEAST MOST [OPTION]...
dry_and_wet() {
	local least=$1 most=$2 told did
	shift 2
	told=$(cow commit --dry-run "$@" --json | jq .report.checkpoint_blocks)
	did=$(cow commit "$@" --json | jq .report.checkpoint_blocks)
	echo "checkpoint of $least to $most blocks: told $told, did $did"
	[ "$told" -ge "$least" ] || return
	[ "$told" -le "$most" ] || return
	[ "$did" -ge "$least" ] || return
	[ "$did" -le "$most" ]
}

@test "commit --dry-run: promises a checkpoint when one comes, and no other" {
	protect # a log of 32 MiB, of which a commit can have 16: a checkpoint is due from 8 on
	random_file "$MNT/a" 40
	sync -f "$MNT"
	cow commit --checkpoint
	# the second one takes the place of the first in the log
	for _ in 1 2; do
		overwrite "$MNT/a" 0 5
		dry_and_wet 0 0
	done
	overwrite "$MNT/a" 5 9
	dry_and_wet 2304 2400
	# nothing is dirty, and nothing waits
	umount_volume
	cow commit --checkpoint
	dry_and_wet 0 0 --checkpoint
	mount_volume
	overwrite "$MNT/a" 0 1
	dry_and_wet 256 300 --checkpoint
	# more than the log holds: spilled, and home at once
	overwrite "$MNT/a" 0 40
	dry_and_wet 10240 10300
	detach_whole ext4
}

@test "commit --checkpoint: the card alone holds everything" {
	protect
	random_file "$MNT/a" 5
	mkdir "$MNT/d"
	ln "$MNT/a" "$MNT/d/link"
	cow commit
	[ "$(status_of '.log_live_blocks > 0')" = true ]
	# what a power cut would leave now is not whole without the log; afterwards it is
	run -0 cow commit --checkpoint --json
	jq -e '.report.checkpoint_blocks > 0' <<<"$output"
	[ "$(status_of .log_live_blocks)" = 0 ]
	tree_sum "$MNT" >"$T/sum"
	power_cut
	whole_with ext4 "$(cat "$T/sum")"
}

@test "commit, then a power cut: what was committed is there, what was not is not" {
	local before
	COWFS_SYNC_HANGS=$T/hang protect with_shim
	random_file "$MNT/big" 30
	touch "$T/hang"
	echo one >"$MNT/one"
	run -0 cow commit --json # lacks it
	rm "$T/hang"
	jq -e '.quiesce.unsynced and (.remark | test("^the file system could not be synced: .* missing. Commit again$"))' <<<"$output"
	run -0 cow commit
	[[ $output != *synced* ]]
	tree_sum "$MNT" >"$T/sum"
	echo two >"$MNT/two"
	echo changed >"$MNT/one"
	rm "$MNT/big"
	sync -f "$MNT"
	power_cut
	# attach reads only
	before=$(card_written)
	attach
	mount_volume -o ro
	[ "$(tree_sum "$MNT")" = "$(cat "$T/sum")" ]
	[ "$(card_written)" -eq "$before" ]
	[ "$(status_of .log_state_at_attach)" = live ]
	power_cut
	[ "$(card_written)" -eq "$before" ]
	cow release "$CARD"
	[ "$(blockdev --getro "$CARD")" = 0 ]
	whole_with ext4 "$(cat "$T/sum")"
}

# Renamed during the sync, and its name is on the disk before its content.
replaced_in_sync() { # FS FS_MIB CARD_MIB
	local i n=0
	card_prepared "$1" "$2" "$3"
	COWFS_SYNC_STAYS=$T/stays with_shim attach
	mount_volume
	mkdir "$T/look"
	echo old >"$MNT/f"
	cow commit
	until [ $n = 5 ]; do # a sync that stays too long is given up
		touch "$T/stays"
		background "$COWFS_BUILD/cowctl" commit --json >"$T/out"
		wait_for 20 job_is commit
		for i in 1 2 3; do
			echo "new $n $i" >"$MNT/f.new"
			mv "$MNT/f.new" "$MNT/f"
			echo "$i" >"$MNT/other"
			sync "$MNT/other"
		done
		rm "$T/stays"
		wait "$BG"
		cat "$T/out"
		jq -e '.quiesce.unsynced' "$T/out" || break
		n=$((n + 1))
	done
	[ $n != 5 ]
	cow view vol "$T/look"
	cat "$T/look/f"
	[[ $(<"$T/look/f") =~ ^(old|new\ [0-5]\ [123])$ ]] || return
	umount "$T/look"
	detach_whole "$1"
}

@test "xfs: a file that is replaced through a rename during the sync of a commit is whole" { replaced_in_sync xfs 310 420; }
@test "btrfs: a file that is replaced through a rename during the sync of a commit is whole" { replaced_in_sync btrfs 200 320; }

# The sync of a commit could drop the metadata of ext that the kernel has cached. It is kept where Linux says what that is.
@test "commit: what the kernel has cached of the volume stays" {
	local i before reads most=10
	[ "$(printf '%s\n' 6.5 "$(uname -r)" | sort -V | head -n 1)" = 6.5 ] || most=250
	volume_attached ext4 400 500 -N 20000
	mount_volume -o noatime
	mkdir "$MNT"/{1..200}
	cow commit
	umount_volume
	mount_volume -o noatime
	for i in 1 2 3; do # another program may look at all devices, once
		ls -lR "$MNT" >/dev/null
		echo "$i" >"$MNT/file"
		cow commit
		before=$(awk '{ print $1 }' "/sys/block/${DEV#/dev/}/stat")
		ls -lR "$MNT" >/dev/null
		reads=$(($(awk '{ print $1 }' "/sys/block/${DEV#/dev/}/stat") - before))
		[ "$reads" -gt $most ] || break
	done
	[ "$reads" -le $most ]
	detach_whole ext4
}

@test "two commits at once: the second waits, with --no-wait it is refused" {
	protect with_shim
	random_file "$MNT/a" 30
	eio slow 60000
	background cow commit --json >"$T/first"
	wait_for 10 job_is commit
	fails 1 'another commit is under way' commit --no-wait
	fails 1 'another commit is under way' commit --no-wait --json
	random_file "$MNT/b" 3
	tree_sum "$MNT" >"$T/sum"
	kill -0 "$BG"
	{ sleep 1; eio off; } 3>&- & # the second one waits
	cow commit --json >"$T/second"
	wait "$BG" "$!"
	jq -e .ok "$T/first"
	jq -e --argjson n "$(jq .generation "$T/first")" '.ok and .generation > $n' "$T/second"
	power_cut
	attach_has "$(cat "$T/sum")"
}

@test "progress: a bar on a terminal when it takes over a second, nothing elsewhere" {
	protect with_shim
	random_file "$MNT/a" 30
	eio slow 40
	run -0 --separate-stderr cow commit
	[ -z "$stderr" ]
	[[ $output != *$'\r'* && $output != *"left"* ]]
	random_file "$MNT/b" 40
	TERM=xterm script -q -e -c "$COWFS_BUILD/cowctl commit 2>&1 >$T/out" "$T/typescript" >/dev/null
	grep -Eaq 'writing \[#*\.*\] [0-9]+ %, [0-9.]+ [KM]iB of [0-9.]+ MiB, [0-9.]+ [KM]iB/s, [0-9.]+ s left' "$T/typescript"
	run ! grep -aq ' of 0 B' "$T/typescript"
	grep -q 'committed .* as generation' "$T/out"
	grep -q '%' "$T/out" && return 1
	# a short one shows none
	eio off
	echo x >"$MNT/c"
	TERM=xterm script -q -e -c "$COWFS_BUILD/cowctl commit 2>&1 >$T/out" "$T/typescript" >/dev/null
	run ! grep -aq 'MB/s' "$T/typescript"
}

@test "commit: while programs write, and the card is clean after each cut" {
	local i
	protect
	writer() {
		local n=0
		while [ ! -e "$T/stop" ]; do
			mkdir -p "$MNT/d$((n % 7))"
			head -c $((n % 50 * 4000 + 100)) /dev/urandom >"$MNT/d$((n % 7))/f$((n % 40))" || return
			n=$((n + 1))
		done
	}
	background writer
	for i in 1 2 3 4 5 6; do
		sleep 0.2
		cow commit --json >"$T/commit.json"
		jq -e .ok "$T/commit.json"
	done
	touch "$T/stop"
	wait "$BG"
	power_cut
	recover_whole ext4
}

@test "commit of an unmounted volume, and of one mounted read-only" {
	protect
	echo one >"$MNT/one"
	umount_volume
	run -0 cow commit --json
	jq -e '.ok and .quiesce.mounted == false' <<<"$output"
	power_cut
	attach_mounted
	[ "$(cat "$MNT/one")" = one ]
	echo two >"$MNT/two"
	mount -o remount,ro "$MNT"
	run -0 cow commit --json
	jq -e '.ok and .report.logged_blocks > 0' <<<"$output"
	power_cut
	attach_mounted
	[ "$(cat "$MNT/two")" = two ]
}

# blocks of the card's journal that are jbd2's, its superblock among them
journal_blocks() {
	debugfs -R "dump <8> $T/journal" "$1" 2>/dev/null
	python3 -c 'import sys
data = open(sys.argv[1], "rb").read()
print(sum(data[i:i + 4] == b"\xc0\x3b\x39\x98" for i in range(0, len(data), 1024)))' "$T/journal"
}

@test "commit: a new journal leaves nothing of the old one on the card" {
	local i
	card_make ext4 200 250 -J size=8
	mount "$CARD" "$MNT"
	for i in $(seq 40); do
		echo "$i" >"$MNT/$i"
		sync -f "$MNT"
	done
	umount "$MNT"
	[ "$(journal_blocks "$CARD")" -gt 40 ]
	cow prepare "$CARD"
	attach
	tune2fs -O ^has_journal "$DEV"
	tune2fs -j -J size=8 "$DEV"
	cow commit
	power_cut
	attach
	fsck ext4 "$DEV"
	[ "$(journal_blocks "$DEV")" = 1 ]
	mount_volume
	[ "$(cat "$MNT/40")" = 40 ]
	echo more >"$MNT/more"
	detach_whole ext4
	# the file system above has used it since; of that the card has what shares 4 KiB with the superblock
	[ "$(journal_blocks "$CARD")" -le 4 ]
	mount "$CARD" "$MNT"
	[ "$(cat "$MNT/more")" = more ]
}
