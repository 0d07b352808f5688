#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031 # each test is a subshell, as it should be
# What the log cannot hold of a commit lies in free blocks until the checkpoint that follows at once: xfs, and btrfs.
#	CUTS=60 bats tests/bats/spill.bats	so many cuts of each kind
# seconds: 110
# waits: 60 % of its time

load lib

CUTS=${CUTS:-${COWFS_TURN:+4}}
CUTS=${CUTS:-8}
export BATS_TEST_TIMEOUT=$((900 + CUTS * 30))

# A file of 24 MiB that is written over in place, others, and free blocks that hold noise. The ring of 8 MiB holds 4.
spill_card() { # FS [FORMAT_OPTION]...
	local i
	card_prepared "$1" 300 340 -- --log-size 8M --erase-block 1M "${@:2}"
	mount "$CARD" "$MNT"
	[ "$1" != btrfs ] || chattr +C "$MNT" # otherwise nothing is written in place
	random_file "$MNT/big" 24
	mkdir "$MNT/d"
	for i in {1..300}; do echo "$i" >"$MNT/d/$i"; done
	random_file "$MNT/noise" 120
	sync -f "$MNT"
	rm "$MNT/noise"
	umount "$MNT"
}

# Data in place, and metadata, after a commit that is sealed behind a sync. No other commit begins by itself.
change() { # N
	cow discard
	cow commit
	SPILLED=$(status_of .lifetime.spilled_blocks) GENERATION=$(status_of .generation)
	dd if=/dev/urandom of="$MNT/big" bs=1M count=24 conv=notrunc status=none
	rm "$MNT/d/$1"
	mv "$MNT/d/$(($1 + 100))" "$MNT/d/new$1"
	mkdir "$MNT/e$1"
	touch "$MNT/e$1"/{1..50}
	random_file "$MNT/e$1/file" 1
	sync -f "$MNT"
	[ "$(status_of .generation)" = "$GENERATION" ] # so what is committed next is all of it
}

spilled() { [ "$(status_of .lifetime.spilled_blocks)" -gt $((SPILLED + 4000)) ]; }

bare() { # FS: the card is a whole file system
	blockdev --setrw "$CARD"
	mount "$CARD" "$MNT" # replays
	umount "$MNT"
	fsck "$1"
}

@test "spill: xfs: more is written over than the log holds" {
	spill_card xfs
	attach_mounted
	change 1
	SUM=$(tree_sum "$MNT")
	cow commit
	spilled
	power_cut
	cow release "$CARD"
	bare xfs
	[ "$(bare_sum)" = "$SUM" ]
}

# The metadata alone is more than the ring holds.
@test "spill: xfs: metadata does not go to free blocks, and a commit that has too much of it is refused" {
	spill_card xfs
	attach_mounted
	cow discard
	mkdir "$MNT/f"
	touch "$MNT"/f/{1..30000}
	umount_volume # till then it is in the log of the xfs
	cow discard --cancel
	fails 1 'the log is too small for this commit: .* everything stays in RAM' commit
	[ "$(status_of '.last.report.log_room_blocks < .last.report.log_need_blocks')" = true ]
	truncate -s 400M "$T/new.img"
	loop_up "$T/new.img"
	cow clone vol "$LOOP" --yes
	detach --discard
	CARD=$LOOP
	bare xfs
	mount -o ro "$CARD" "$MNT"
	[ "$(find "$MNT/f" -type f | wc -l)" = 30000 ]
}

# Is this the tree of the generation that the card has?
is_whole() { # GENERATION TREE
	[ "$1 $2" = "$GENERATION $OLD" ] || [ "$1 $2" = "$((GENERATION + 1)) $SUM" ] ||
		{ echo "cut $n: generation $1 after $GENERATION has tree $2, not $OLD or $SUM"; return 1; }
}

# Cuts at writes and flushes of such commits, and of their checkpoints: one generation as a whole, with cowfs and without.
cut_everywhere() { # FS [FORMAT_OPTION]...
	local n i code newest cuts=0 seen=()
	spill_card "$@"
	cp --sparse=always "$IMG" "$T/base.img"
	for ((i = 1; i <= CUTS; i++)); do
		loop_down "$CARD"
		cp --sparse=always "$T/base.img" "$IMG"
		card_loop
		n=$((1 + i * 68 / CUTS + RANDOM % 3)) code=0
		truncate -s 4096 "$T/arm"
		LD_PRELOAD=$COWFS_BUILD/tests/powercut.so COWFS_CUT_FILE=$T/arm COWFS_CUT_SEED=$i attach
		mount_volume
		OLD=$(tree_sum "$MNT")
		change "$i"
		SUM=$(tree_sum "$MNT")
		printf %s "$n" | dd of="$T/arm" conv=notrunc status=none
		give_up_early
		cow commit >"$T/out" 2>&1 || code=$?
		[ $code = 0 ] || { touch "$MNT/e$i"; sync -f "$MNT"; } 2>"$T/sync" || true # it learns of that now, and not later
		if [ $code = 0 ]; then power_cut; else clear_after_cut || { cat "$T/out"; return 1; }; fi
		rm "$T/arm" "$T/volumes"
		blockdev --setrw "$CARD"
		newest=$(cow check "$CARD" --json | jq .generation)
		[ $code != 0 ] || [ "$newest" = $((GENERATION + 1)) ]
		[ $code = 0 ] || cuts=$((cuts + 1))
		seen+=($((newest - GENERATION)))
		if [ $((i % 2)) = 0 ]; then
			cow release "$CARD"
		else # a session goes on
			attach_mounted
			is_whole "$newest" "$(tree_sum "$MNT")"
			change $((i + 50))
			SUM=$(tree_sum "$MNT")
			cow commit
			spilled
			newest=$((GENERATION + 1))
			detach
		fi
		bare "$1" >"$T/fsck" 2>&1 || { cat "$T/fsck"; return 1; }
		is_whole "$newest" "$(bare_sum)"
	done
	[ $cuts -ge $((CUTS / 2)) ]
	say "$1: $cuts cuts in $CUTS commits: $(printf 'N+%s\n' "${seen[@]}" | sort | uniq -c | xargs)"
}

# bats test_tags=blunt
@test "spill: xfs, cut everywhere" { cut_everywhere xfs; }
# bats test_tags=blunt
@test "spill: xfs with lag 1, cut everywhere" { cut_everywhere xfs --lag 1; }
# bats test_tags=blunt
@test "spill: btrfs, cut everywhere" { cut_everywhere btrfs; }

# Programs that read back what they wrote, past the page cache, while the free blocks around them get payload.
under_load() { # FS
	local noise=$BATS_TEST_DIRNAME/../tools/noise.py job i jobs=()
	spill_card "$1"
	attach_mounted
	cow discard # only commits behind a sync: after another one nothing is known of a btrfs
	for job in 1 2; do
		"$noise" load "$MNT/$job" $job >>"$T/mismatches" 3>&- &
		jobs+=($!)
	done
	for i in 1 2 3 4 5 6; do
		change "$i"
		cow commit
		spilled
		sleep 0.5
	done
	touch "$MNT"/{1,2}.stop
	for job in "${jobs[@]}"; do
		wait "$job" || { cat "$T/mismatches"; return 1; }
	done
	cow discard --cancel
	SUM=$(tree_sum "$MNT")
	[ "$(status_of .write_errors)" = 0 ]
	detach
	bare "$1"
	[ "$(bare_sum)" = "$SUM" ]
	mount -o ro "$CARD" "$MNT"
	for job in 1 2; do "$noise" verify "$MNT/$job" $job; done
}

@test "spill: xfs, under load" { under_load xfs; }
@test "spill: btrfs, under load" { under_load btrfs; }
