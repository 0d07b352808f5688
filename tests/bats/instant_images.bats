#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What commits without a freeze leave on the card while programs write: a clean file system. And what the live one has meanwhile.
# seconds: 170
# turn: 3

load lib
load hold

setup() {
	cow_setup || return
	NOISE=$BATS_TEST_DIRNAME/../tools/noise.py
}

# Programs that write, read back and remove, in folders 1 to N of the volume.
noise_begin() { # N
	local job
	JOBS=()
	for job in $(seq "$1"); do
		"$NOISE" load "$MNT/$job" "$job" >>"$T/mismatches" 3>&- &
		JOBS+=($!)
	done
}

noise_end() { # each has read what it wrote
	local i
	for ((i = 1; i <= ${#JOBS[@]}; i++)); do touch "$MNT/$i.stop"; done
	for i in "${JOBS[@]}"; do
		wait "$i" || { cat "$T/mismatches"; return 1; }
	done
}

noise_verify() {
	local i
	for ((i = 1; i <= ${#JOBS[@]}; i++)); do "$NOISE" verify "$MNT/$i" "$i"; done
}

# A commit by pressure may follow another commit at once. Then the card has its guard, and a copy is of no use.
# An xfs is frozen for a checkpoint that is asked for: the copy is recovered instead.
committed_copy() { # FILE [OPTION-INSTEAD-OF---checkpoint]
	local generation before tries
	for tries in $(seq 20); do
		run -0 --separate-stderr cow commit ${2:---checkpoint} --json
		kill -STOP "${JOBS[@]}" # a busy machine copies slowly
		before=$(card_written)
		jq -e '.ok and (.quiesce.instant or .report.dirty_blocks == 0)' <<<"$output"
		generation=$(jq .generation <<<"$output")
		cp --sparse=always "$IMG" "$1"
		kill -CONT "${JOBS[@]}"
		[ "$(card_written)" = "$before" ] && [ "$(status_of .generation)" = "$generation" ] || continue
		[ -z "${2-}" ] || cow release "$1"
		return
	done
	echo "the card changed while it was copied, $tries times"
	return 1
}

# Nothing to replay. Files that are deleted and open are orphans, after a freeze as well; nothing else is wrong, not even a number of
# free blocks.
clean_ext() { # IMAGE
	run -0 dumpe2fs -h "$1"
	[[ $output != *needs_recovery* ]]
	run debugfs -R 'show_super_stats -h' "$1"
	[[ $output == *"First orphan"* || $output == *orphan_present* ]] || e2fsck -fn "$1"
	e2fsck -fp "$1" >"$T/fsck" || [ $? -le 1 ]
	run ! grep -v 'orphaned\|Clearing\|files (\|uid=\|orphan' "$T/fsck"
	e2fsck -fn "$1"
}

# The committed image while programs write: nothing to replay, nothing to correct, and what was synced is there.
clean_under_load() { # FS MOUNT_OPTIONS [MKFS_OPTION]...
	local round
	protect "$1" -J size=8 "${@:3}"
	umount_volume
	mount_volume -o "$2"
	noise_begin 2
	for round in 1 2 3 4 5; do
		sleep 0.3
		echo "$round" >"$MNT/closed"
		committed_copy "$T/copy"
		[ "$(debugfs -R 'cat closed' "$T/copy" 2>/dev/null)" = "$round" ]
		clean_ext "$T/copy"
	done
	noise_end
	noise_verify
	detach_whole "$1"
	loop_down "$CARD"
	IMG='' MNT=$T/mnt
}

@test "instant: each committed image is clean, of the default ext4" { clean_under_load ext4 noatime; }
@test "instant: each committed image is clean, with an orphan file" { clean_under_load ext4 noatime -O orphan_file; }
@test "instant: each committed image is clean, of a 1K ext4 whose journal has the data" { clean_under_load ext4 data=journal -b 1024; }

@test "instant: each committed image is clean, of ext3 and of bigalloc" {
	clean_under_load ext3 noatime
	clean_under_load ext4 noatime -O bigalloc -C 16384
}

@test "instant: each committed image of btrfs is whole, and has what was closed" {
	local round
	protect btrfs -m single
	noise_begin 2
	mkdir "$T/copied"
	for round in $(seq 6); do
		sleep "0.$round"
		echo "$round" >"$MNT/closed"
		committed_copy "$T/copy"
		truncate -s 200M "$T/copy"
		btrfs check --check-data-csum "$T/copy"
		[ "$(btrfs restore -x "$T/copy" "$T/copied" >/dev/null 2>&1; cat "$T/copied/closed")" = "$round" ]
		rm -rf "$T/copied"
		mkdir "$T/copied"
	done
	noise_end
	detach_whole btrfs
}

# A mount replays the log of xfs. Then nothing is wrong with it.
@test "instant: each committed image of xfs is whole after its replay, and has what was closed" {
	local round opts
	for opts in '' '-b size=1k -n size=64k'; do
		IMG=$T/card.img
		protect xfs $opts
		noise_begin 2
		for round in $(seq 5); do
			sleep "0.$round"
			echo "$round" >"$MNT/closed"
			committed_copy "$T/copy" --verbose
			truncate -s 320M "$T/copy"
			mkdir -p "$T/copied"
			loop_up "$T/copy"
			mount -o nouuid "$LOOP" "$T/copied"
			[ "$(cat "$T/copied/closed")" = "$round" ]
			umount "$T/copied"
			loop_down "$LOOP"
			xfs_repair -n "$T/copy" >"$T/repair" 2>&1 || { cat "$T/repair"; false; }
		done
		noise_end
		detach_whole xfs
		loop_down "$CARD"
	done
}

card_of_noise() { # FS MIB [MKFS_OPTION]...
	IMG=$T/card.img
	card_make "$1" "$2" 1900 "${@:3}"
	dd if=/dev/urandom of="$T/noise" bs=1M count=250 status=none
	mount -o nodiscard "$CARD" "$MNT"
	cp "$T/noise" "$MNT/"
	sync -f "$MNT"
	rm "$MNT/noise" "$T/noise"
	umount "$MNT"
}

# What is free in the sealed image is not written. The card has noise in those places: whoever reads one gets it.
free_is_noise() { # FS MIB COMMITS [MKFS_OPTION]...
	local commits
	card_of_noise "$1" "$2" "${@:4}"
	cow prepare "$CARD" --log-size 600M
	attach
	mount_volume -o noatime
	noise_begin 8
	for commits in $(seq "$(rounds "$3")"); do
		run -0 --separate-stderr cow commit --json
		# the programs may not have got the processor since
		jq -e '.quiesce.instant or .report.dirty_blocks == 0' <<<"$output"
	done
	noise_end
	umount_volume
	fsck "$1" "$DEV"
	mount_volume
	noise_verify
	detach_whole "$1"
}

@test "instant: no program reads what a commit has dropped" { free_is_noise ext4 360 40 -b 4096 -J size=4; }
@test "instant: no program reads what a commit of btrfs has dropped" { free_is_noise btrfs 1200 20 -m single; }
@test "instant: no program reads what a commit of xfs has dropped" { free_is_noise xfs 800 40; }

# Commits by pressure beside a generation that is held: with a sync, or without one, and then what the live file system has in free
# blocks goes to the card as well. The programs read all of it back, also after a worker has died, and a cut leaves a clean file system.
pressed() { # COMMITS
	status_of '"\(.last.generation) \(.last.quiesce.unsynced)\(.alarm)"' >>"$T/unsynced"
	[ "$(sort -u "$T/unsynced" | wc -l)" -ge "$1" ]
}

load_beside_hold() { # FS [MKFS_OPTION]...
	local commits
	card_of_noise "$1" 360 "${@:2}"
	cow prepare "$CARD" --log-size 1G # what is overwritten fills it
	COWFS_DEATHS=100 attach --ram 48M --on-crash replace
	mount_volume -o noatime,nodiscard
	echo held >"$MNT/held"
	cow commit --hold
	noise_begin 3
	for commits in 2 4; do
		wait_for 60 pressed "$commits"
		kill -9 "$(worker_pid)"
		wait_for 20 cow status >/dev/null
	done
	noise_end
	noise_verify
	run ! grep -v 'true$\|false$' "$T/unsynced"
	cow accept
	cow commit --hold
	[ "$(status_of .last.quiesce.unsynced)" = false ]
	rm "$MNT"/*.stop
	noise_begin 3
	wait_for 60 pressed 6
	kill -9 $(daemons)
	kill -9 "${JOBS[@]}"
	wait "${JOBS[@]}" || :
	clear_after_cut
	cow accept "$CARD"
	cow release "$CARD"
	blockdev --setrw "$CARD"
	clean_ext "$CARD"
	mount "$CARD" "$MNT"
	[ "$(cat "$MNT/held")" = held ]
	umount "$MNT"
}

@test "pressure beside a held generation: nothing is lost, ext4" { load_beside_hold ext4 -b 4096 -J size=8; }
@test "pressure beside a held generation: nothing is lost, ext4 with blocks of 1 KiB" { load_beside_hold ext4 -b 1024 -J size=4; }
