#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell; run sets output
# RAM that comes back without a commit: compress = zstd, and blocks that are the same as on the card.
# seconds: 50
# bats file_tags=pressure

load lib

volume() {
	card_make ext4 400 470
	cow format "$CARD"
	attach "$@"
	mount_volume
}

files() { # MiB of text
	mkdir -p "$MNT/text"
	seq 1 10000000 | head -c "${1}M" | split -b 1M - "$MNT/text/"
	sync -f "$MNT"
	SUM=$(tree_sum "$MNT")
}

live_sum() {
	sync -f "$MNT"
	echo 1 >"/proc/sys/vm/drop_caches"
	tree_sum "$MNT"
}

compressed() { [ "$(status_of .compressed_blocks)" -ge "$1" ]; }
forgotten() { [ "$(status_of .forgotten_blocks)" -ge "$1" ]; }

card_has_it() {
	detach
	mount "$CARD" "$MNT"
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	umount "$MNT"
	fsck ext4
}

@test "compress: cold changes take less RAM, without a commit, and reach the card whole" {
	local end
	volume --ram 128M --compress zstd
	files 40
	end=$((SECONDS + 20))
	until compressed 9000; do
		[ $SECONDS -lt $end ]
		[ "$(status_of .progress)" = null ] # a pass is not shown as a job
	done
	[ "$(status_of .ram_used_bytes)" -lt $((24 << 20)) ]
	[ "$(status_of .compress)" = zstd ]
	[ "$(status_of .compressed_bytes)" -lt "$(status_of '.compressed_blocks * 2048')" ]
	cow status | grep -q 'MiB of them compressed to .* bytes of RAM per byte'
	[ "$(status_of .generation)" = 0 ]
	[ "$(live_sum)" = "$SUM" ]
	# in place, and parts of blocks
	for f in "$MNT"/text/a*; do
		printf x | dd of="$f" bs=1 seek=123457 conv=notrunc status=none
	done
	rm "$MNT"/text/ab
	SUM=$(tree_sum "$MNT")
	[ "$(live_sum)" = "$SUM" ]
	cow commit
	[ "$(status_of .compressed_blocks)" = 0 ]
	card_has_it
}

@test "compress: noise takes the RAM that it took, and little RAM in use is left alone" {
	local used
	volume --ram 128M --compress zstd
	random_file "$MNT/noise" 40
	sync -f "$MNT"
	SUM=$(tree_sum "$MNT")
	used=$(status_of .ram_used_bytes)
	sleep 7
	[ "$(status_of .ram_used_bytes)" -le "$used" ]
	[ "$(status_of .compressed_blocks)" -lt 200 ]
	cow commit
	files 10
	sleep 6
	[ "$(status_of .compressed_blocks)" = 0 ]
	card_has_it
}

@test "compress: is off by default" {
	volume --ram 128M
	files 40
	sleep 6
	[ "$(status_of .compress) $(status_of .compressed_blocks)" = "off 0" ]
	fails 2 'is not one of off|zstd' attach "$CARD" --name other --compress lz4
}

@test "compress: another worker takes over what is compressed" {
	local i
	volume --ram 128M --compress zstd --on-crash replace
	files 40
	for i in 1 2; do
		wait_for 20 compressed 3000
		kill -9 "$(worker_pid)"
		wait_for 20 replaced $i
		[ "$(live_sum)" = "$SUM" ]
	done
	compressed 3000
	printf x | dd of="$MNT/text/aa" bs=1 seek=5000 conv=notrunc status=none
	SUM=$(tree_sum "$MNT")
	cow commit
	card_has_it
}

@test "RAM runs short: zeros that are on the card come back as well, unless the card was ever trimmed" {
	# 84 MiB, of which 77 make passes begin. What is written behind the first pass, 9 MiB at most, is warm in the second
	# one, and then there is room.
	rewrite() {
		dd if=/dev/zero of="$MNT/zeros" bs=1M count=40 conv=notrunc status=none
		dd if="$T/new" of="$MNT/new" bs=1M count=35 conv=notrunc status=none
		sync -f "$MNT"
		dd if="$T/new" of="$MNT/new" bs=1M skip=35 seek=35 conv=notrunc status=none
		sync -f "$MNT"
	}
	volume --ram 128M
	head -c 40M /dev/zero >"$MNT/zeros"
	random_file "$T/new" 44
	cp "$T/new" "$MNT/new"
	cow commit
	rewrite
	wait_for 20 forgotten 19000
	cow commit --checkpoint
	cow trim
	before=$(status_of .forgotten_blocks)
	rewrite
	wait_for 20 forgotten $((before + 8500)) # of the 11,264 that are no zeros
	sleep 5
	run ! forgotten $((before + 12000))
	SUM=$(tree_sum "$MNT")
	cow commit
	card_has_it
}

replaced() { [ "$(status_of .replaced)" = "$1" ]; }

@test "RAM runs short: blocks that are the same as on the card come back without a commit" {
	local generation
	volume --ram 128M
	random_file "$MNT/old" 40
	cow commit
	generation=$(status_of .generation)
	# written in place, as it was
	dd if="$MNT/old" of="$T/copy" bs=1M status=none
	dd if="$T/copy" of="$MNT/old" bs=1M conv=notrunc status=none
	random_file "$MNT/new" 44
	sync -f "$MNT"
	SUM=$(tree_sum "$MNT")
	wait_for 20 forgotten 10000
	cow status | grep -q 'MiB dropped from RAM, because the card has the same'
	[ "$(status_of .ram_used_bytes)" -lt $((60 << 20)) ] # 84 MiB were written
	[ "$(status_of .generation)" = "$generation" ]
	[ "$(live_sum)" = "$SUM" ]
	# a commit of paths changes the card below it
	mkdir "$MNT/d"
	echo one >"$MNT/d/file"
	cow commit "$MNT/d/file"
	[ "$(live_sum)" != "$SUM" ]
	rm -r "$MNT/d"
	[ "$(live_sum)" = "$SUM" ]
	cow commit
	card_has_it
}
