#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl prepare --shrink: a file system that fills its card is made smaller in one atomic step. Every single cut of the commit
# is tried by tests/unit/shrink_test.c on a simulated card; here some, on a loop device.
# turn: 3
# seconds: 45

load lib

# 40 % of the card in files, also near its end
fill() {
	local i
	mount "$CARD" "$MNT" || return
	for ((i = 0; i < $1; i++)); do
		mkdir -p "$MNT/d$((i % 10))"
		dd if=/dev/urandom of="$MNT/d$((i % 10))/f$i" bs=64k count=16 status=none
	done
	ln "$MNT/d0/f0" "$MNT/link"
	tree_sum "$MNT" >"$T/sum"
	umount "$MNT"
}

fs_mib() { dumpe2fs -h "$CARD" 2>/dev/null | awk '/^Block count:/ { n = $3 } /^Block size:/ { s = $3 } END { print int(n * s / 1048576) }'; }
journal_mib() { dumpe2fs -h "$CARD" 2>/dev/null | awk '/^Total journal size:/ { print toupper($4) }' | numfmt --from=iec --to-unit=Mi; }
no_loop_left() { ! losetup -l -n -O BACK-FILE | grep -q cowfs:shrink; }

@test "shrink: a full-size ext4, 40 % full: clean, the same tree, a small journal; attach and commit work" {
	card_make ext4 1024 1024 -J size=64
	fill 400
	run -0 cow prepare --shrink "$CARD"
	echo "$output"
	[[ $output == *"was shrunk to 987 MiB, was 1024 MiB"*"an empty log was written"* ]]
	wait_for 60 no_loop_left # of others they come and go
	whole_with ext4 "$(cat "$T/sum")"
	[ "$(fs_mib)" = 987 ]
	[ "$(journal_mib)" = 16 ]
	answer=$(cow check --json "$CARD")
	jq -e '.log_state == "empty" and .verdict == "good" and .log_bytes >= 33554432' <<<"$answer"
	attach_mounted
	commit_word x
	tree_sum "$MNT" >"$T/sum"
	power_cut
	recovers_to ext4 "$(cat "$T/sum")"
	fails 1 "already has a cowfs log" prepare --shrink "$CARD"
}

@test "shrink: other sizes, block sizes and kinds; an image file; --json" {
	local fs
	for fs in "ext4 -b 1024" "ext3 -b 2048" "ext2 -b 4096" "ext4 -b 4096 -O ^flex_bg,^metadata_csum"; do
		IMG=$T/other.img
		card_make ${fs%% *} 128 128 ${fs#* }
		fill 50
		answer=$(cow prepare --shrink --log-size 8M --erase-block 1M --journal-size 4M "$CARD" --json)
		jq -e <<<"$answer" '.ok and .volume_bytes < 125829120 and .shrunk_from_bytes == 134217728 and .log_bytes >= 8388608 and
				.erase_block_bytes == 1048576 and .written_bytes > 0'
		whole_with ext4 "$(cat "$T/sum")"
		[ "${fs%% *}" = ext2 ] || [ "$(journal_mib)" = 4 ]
		loop_down "$CARD"
	done
	IMG=$T/file.img
	card_make ext4 128 128
	fill 20
	loop_down "$CARD"
	CARD=$IMG
	cow prepare --shrink --lag 1 "$IMG"
	card_loop
	whole_with ext4 "$(cat "$T/sum")"
	[ "$(cow check --json "$CARD" | jq .lag)" = 1 ]
	attach
	detach
}

@test "shrink: there is already space: the file system is unchanged" {
	card_make ext4 100 150
	fill 5
	cow prepare --shrink "$CARD"
	[ "$(fs_mib)" = 100 ]
	[ "$(bare_sum)" = "$(cat "$T/sum")" ]
}

@test "shrink: refused, with reasons, and nothing is written" {
	local sum
	card_make ext4 128 128
	fails 2 "journal-size needs --shrink" prepare --journal-size 8M "$CARD"
	fails 2 "not a whole number of MiB" prepare --shrink --journal-size 1K "$CARD"
	fails 2 "a log on DEVICE itself: omit --log" prepare --shrink --log /dev/null "$CARD"
	fails 1 "too small \(.*\) for a log" prepare --shrink --log-size 1G "$CARD"
	mount "$CARD" "$MNT"
	fails 1 "is mounted on $MNT" prepare --shrink "$CARD"
	# as full as it gets
	dd if=/dev/zero of="$MNT/full" bs=1M 2>/dev/null || true
	umount "$MNT"
	sum=$(image_sum)
	fails 1 "(cannot shrink to 9[0-9].0 MiB: delete files|too full for a new journal).*nothing was written to $CARD" \
		prepare --shrink "$CARD"
	[[ $stderr == *"# e2fsck -fp $CARD"* ]] # not the loop device that it was given
	wait_for 60 no_loop_left # of others they come and go
	[ "$(image_sum)" = "$sum" ]
	# errors, which e2fsck would have to correct
	debugfs -w -R 'sif full links_count 7' "$CARD"
	sum=$(image_sum)
	fails 1 "has errors: run e2fsck -f first.*nothing was written" prepare --shrink "$CARD"
	[ "$(image_sum)" = "$sum" ]
	debugfs -w -R 'ssv state 0' "$CARD"
	sum=$(image_sum)
	fails 1 "not unmounted cleanly or has errors: run e2fsck -f $CARD first" prepare --shrink "$CARD"
	[ "$(image_sum)" = "$sum" ]
	loop_down "$CARD"
	IMG=$T/xfs.img
	card_make xfs 350 350
	fails 1 "$CARD: only ext2, ext3 and ext4 can be shrunk, this is xfs" prepare --shrink "$CARD"
	fails 1 "only ext2, ext3 and ext4" prepare --shrink --json "$CARD"
}

# The n-th write or flush to the card is the last one.
cut_shrink() {
	local code=0
	env LD_PRELOAD="$COWFS_BUILD/tests/powercut.so" COWFS_CUT_AFTER="$1" COWFS_CUT_SEED="$2" COWFS_CUT_LOG="$T/cut" \
		"$COWFS_BUILD/cowctl" prepare --shrink --log-size 8M --erase-block 1M "$CARD" >/dev/null || code=$?
	blockdev --setrw "$CARD"
	return $code
}

# bats test_tags=blunt
@test "shrink: the power is cut: the old or the new file system, and check, attach, release and another run go on" {
	local n state olds=0 news=0 finished=0 guarded=0
	card_make ext4 128 128 -J size=8
	fill 60
	cp --sparse=always "$IMG" "$T/copy"
	for n in 1 12 24 27 29 30 31 32 33 34 35 36 37 38 39 40 42 44 47 50 53 56 60 80; do
		run cut_shrink "$n" "$n"
		[ "$status" != 0 ] || finished=$((finished + 1))
		whole_or_guarded
		[ -z "$GUARDED" ] || guarded=$((guarded + 1))
		run cow check --json "$CARD"
		state=$(jq -r '.shrink // ""' <<<"$output")
		echo "cut $n: $(tail -n 1 "$T/cut"): check $status, ${state:-none}"
		case $state in
		"")
			if [ "$status" = 1 ]; then # else it was finished, or only copy B is missing
				fails 1 "no cowfs log" attach "$CARD"
				fails 1 "no cowfs log" release "$CARD"
				[ "$n" != 33 ] || # there is a pending superblock of the log
					fails 1 "interrupted before its commit and changed nothing: run cowctl prepare" attach "$CARD"
				olds=$((olds + 1))
				fsck ext4
				[ "$(fs_mib)" = 128 ]
			fi
			;;
		committed)
			[ "$status" = 3 ]
			run cow check "$CARD"
			[[ $output == *"a shrink was interrupted after its commit and is valid"* ]]
			case $((n % 3)) in
			0) run -0 cow release "$CARD"; [[ $output == *"interrupted shrink is finished"* ]] ;;
			1) cow prepare --shrink "$CARD" ;;
			2) attach; detach ;;
			esac
			news=$((news + 1))
			[ "$(fs_mib)" -lt 125 ]
			;;
		esac
		whole_with ext4 "$(cat "$T/sum")"
		if [ "$(fs_mib)" = 128 ] && [ $((n % 4)) = 0 ]; then
			cow prepare --shrink --log-size 8M --erase-block 1M "$CARD"
			whole_with ext4 "$(cat "$T/sum")"
			[ "$(fs_mib)" -lt 125 ]
		fi
		[ $finished -lt 2 ] || break
		image_from "$T/copy"
	done
	say "$olds old, $news new, $guarded guarded, $finished finished"
	[ $guarded -gt 2 ]
	[ $olds -gt 2 ] && [ $news -gt 2 ] && [ $finished -gt 0 ]
}

@test "shrink: interrupted, and the old file system was used since" {
	card_make ext4 128 128 -J size=8
	fill 60
	run cut_shrink 30 1
	mount "$CARD" "$MNT"
	random_file "$MNT/more" 30
	tree_sum "$MNT" >"$T/sum"
	umount "$MNT"
	run cow check --json "$CARD"
	[[ $output == *"no cowfs log"* ]]
	cow prepare --shrink --log-size 8M --erase-block 1M "$CARD"
	whole_with ext4 "$(cat "$T/sum")"
	[ "$(fs_mib)" -lt 125 ]
}

@test "shrink: committed, interrupted, and then mounted elsewhere: set aside until the user decides" {
	local n
	card_make ext4 128 128 -J size=8
	fill 60
	cp --sparse=always "$IMG" "$T/copy"
	for n in 34 35 36 37 38 39 40; do
		run cut_shrink "$n" 1
		[ "$(cow check --json "$CARD" | jq -r .shrink)" = committed ] && break
		image_from "$T/copy"
	done
	e2fsck -fp "$CARD" || true
	run -1 cow check "$CARD"
	[[ $output == *"SET ASIDE"* ]]
	fails 1 "Decide: --accept base" release "$CARD"
	fails 1 "a shrink was interrupted after its commit and cannot be finished" attach "$CARD"
	fails 1 "a shrink was interrupted after its commit and cannot be finished" prepare --shrink "$CARD"
	cp --sparse=always "$IMG" "$T/copy"
	cow release --accept base "$CARD"
	whole_with ext4 "$(cat "$T/sum")"
	[ "$(fs_mib)" = 128 ]
	fails 1 "no cowfs log" check "$CARD"
	image_from "$T/copy"
	run -3 cow release --accept log "$CARD"
	whole_with ext4 "$(cat "$T/sum")"
	[ "$(fs_mib)" -lt 125 ]
	attach
	detach
}
