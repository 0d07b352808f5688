#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl top: the files whose blocks are not on the card, by the number of these blocks.
# turn: 3

load lib

# A volume of 4 KiB blocks, with nothing uncommitted. [FS [MKFS_OPTION]...]
protect() {
	local fs=${1:-ext4}
	shift || true
	[[ $fs != ext* ]] || set -- -b 4096 -J size=8 "$@"
	volume_attached "$fs" 400 600 "$@" -- --log-size 128M # other than ext4 it takes all that is written
	mount_volume -o noatime
	mkdir -p "$MNT/a/b" "$MNT/c"
	random_file "$MNT/a/b/old" 2
	sync -f "$MNT"
	cow commit >/dev/null
}

# top_of FILTER [OPTION]...: of all rows
top_of() {
	local filter=$1
	shift
	cow top vol --json -n 0 "$@" >"$T/top.json"
	jq -r "$filter" "$T/top.json"
}

# Blocks of a file below the mount point, "0" if it has no row.
blocks_of() { # PATH [OPTION]...
	local path=$1
	shift
	top_of "[.rows[] | select(.path == \"$MNT$path\") | .uncommitted_blocks] | add // 0" "$@"
}

# All rows together are all that is uncommitted.
adds_up() {
	[ "$(jq '([.rows[].uncommitted_bytes] | add // 0) == .uncommitted_bytes' "$T/top.json")" = true ]
}

overwrite() { # FILE BLOCK COUNT
	dd if=/dev/urandom of="$MNT$1" bs=4096 seek="$2" count="$3" conv=notrunc status=none
}

write_files() {
	random_file "$MNT/a/b/new" 3
	overwrite /a/b/old 100 7
	overwrite /a/b/old 300 1
	random_file "$MNT/c/two-names" 1
	ln "$MNT/c/two-names" "$MNT/c/other"
	echo x >"$MNT/c/small"
	sync -f "$MNT"
}

@test "top: known files, with the number of their blocks (ext4)" {
	local i
	protect
	write_files
	[ "$(blocks_of /a/b/new)" = 768 ]
	adds_up
	[ "$(blocks_of /a/b/old)" = 8 ]
	[ "$(blocks_of /c/small)" = 1 ]
	# one row for all names of a file
	[ "$(top_of '[.rows[] | select(.path | strings | test("/c/(two-names|other)$")) | [.uncommitted_blocks, .links]] | @json')" = '[[256,2]]' ]
	[ "$(top_of '.uncommitted_blocks')" = "$(status_of .dirty_blocks)" ]
	# the file system's own
	[ "$(top_of '[.rows[] | select(.kind == "journal" or .kind == "inode-tables" or .kind == "bitmaps") | .uncommitted_blocks > 0] | @csv')" = true,true,true ]
	# the largest comes first; rows are limited
	[ "$(cow top --json -n 1 | jq -r '[.rows[0].path, (.rows | length), .rows_left_out > 3] | @csv')" = "\"$MNT/a/b/new\",1,true" ]
	# many runs: more than one answer of the daemon holds
	random_file "$MNT/c/holes" 20
	sync -f "$MNT"
	cow commit >/dev/null
	for ((i = 0; i < 512; i += 2)); do overwrite /a/b/old $i 1; done
	python3 - "$MNT/c/holes" <<-'EOF'
	import os, sys
	fd = os.open(sys.argv[1], os.O_WRONLY)
	for i in range(0, 5120, 2):
	    os.pwrite(fd, b"x" * 4096, i * 4096)
	EOF
	sync -f "$MNT"
	[ "$(blocks_of /c/holes)" = 2560 ]
	[ "$(blocks_of /a/b/old)" = 256 ]
	adds_up
	cow commit >/dev/null
	[ "$(blocks_of /c/holes)" = 0 ]
}

@test "top: deleted files, open and not" {
	protect
	random_file "$MNT/c/open" 2
	random_file "$MNT/c/gone" 1
	sync -f "$MNT"
	exec 7<"$MNT/c/open"
	rm "$MNT/c/open" "$MNT/c/gone"
	sync -f "$MNT"
	[ "$(top_of '.rows[] | select(.kind == "deleted") | [.uncommitted_blocks, .links] | @csv')" = 512,0 ]
	[ "$(top_of '.rows[] | select(.kind == "free") | .uncommitted_blocks >= 256')" = true ]
	run -0 cow top
	[[ $output == *"(deleted, open, inode "*"(free again)"* ]]
	exec 7<&-
}

@test "top: by directory, with what is below" {
	protect
	write_files
	local own=$((768 + 8)) of='.rows[] | select(.path == "'$MNT'/a/b/") |'
	# and the directory's own block, where an entry was added
	[ "$(top_of "$of .uncommitted_blocks" --by directory)" = $((own + 1)) ]
	adds_up
	[ "$(top_of "$of .files" --by directory)" = 3 ]
	[ "$(top_of ".rows[] | select(.path == \"$MNT/c/\") | .uncommitted_blocks" --by directory)" = $((256 + 1 + 1)) ]
	[ "$(top_of "[.rows[] | select(.kind == \"file\")] | length" --by directory)" = 0 ]
	# a directory without a file of its own that changed, but with one below
	mkdir -p "$MNT/p/q"
	cow commit >/dev/null
	echo x >"$MNT/p/y"
	random_file "$MNT/p/q/z" 1
	sync -f "$MNT"
	[ "$(top_of '.rows[] | select(.path == "'"$MNT"'/p/") | .subtree_bytes - .uncommitted_bytes' --by directory)" -ge $((1 << 20)) ]
}

@test "top: what is new since the sample before" {
	protect
	write_files
	background "$COWFS_BUILD/cowctl" top --interval 3s --json -n 0 >"$T/lines"
	wait_for 10 eval '[ "$(wc -l <"$T/lines")" -ge 1 ]'
	kill -STOP "$BG"
	dd if=/dev/urandom of="$MNT/c/later" bs=4096 count=50 status=none
	sync -f "$MNT"
	kill -CONT "$BG"
	wait_for 10 eval '[ "$(wc -l <"$T/lines")" -ge 2 ]'
	kill "$BG"
	sed -n 2p "$T/lines" >"$T/top.json"
	[ "$(jq -r '.rows[0] | [.path, .new_bytes] | @csv' "$T/top.json")" = "\"$MNT/c/later\",$((50 * 4096))" ]
	[ "$(jq -r '.rows[] | select(.path == "'"$MNT"'/a/b/new") | [.uncommitted_blocks, .new_bytes] | @csv' "$T/top.json")" = 768,0 ]
	jq -e '.interval_seconds >= 3 and .written_bytes >= .new_bytes and .new_bytes >= 204800 and .new_bytes < 1000000' "$T/top.json"
	adds_up
	# it goes on until it is stopped, a line of JSON each
	timeout 300 "$COWFS_BUILD/cowctl" top --interval 500ms --json | head -n 3 >"$T/lines"
	answer=$(cow top --interval 100ms --once --json)
	jq -e 'has("new_bytes")' <<<"$answer"
	[ "$(jq -s 'length >= 3 and (.[0] | has("new_bytes") | not) and (.[1] | has("new_bytes"))' "$T/lines")" = true ]
	# and ends when the volume does
	background bash -c "sleep 1; umount '$MNT'; '$COWFS_BUILD/cowctl' detach --discard vol"
	run -4 --separate-stderr timeout 300 "$COWFS_BUILD/cowctl" top --interval 300ms
	[[ $stderr == *"volume"* ]]
}

sees_files() {
	write_files
	[ "$(blocks_of /a/b/new)" = 768 ]
	adds_up
	[ "$(blocks_of /a/b/old)" = 8 ]
	[ "$(top_of '[.rows[] | select(.path | strings | test("/c/(two-names|other)$")) | [.uncommitted_blocks, .links]] | @json')" = '[[256,2]]' ]
	[ "$(top_of .complete)" = true ]
}

@test "top: xfs by its mounted tree, and not at all when it is not mounted" {
	protect xfs
	sees_files
	umount_volume
	[ "$(top_of '[.complete, .no_files_because, (.rows | length)] | @csv')" = \
		'false,"the volume is not mounted where this command can see it",1' ]
	run -0 cow top
	[[ $output == *"No files: the volume is not mounted"*"(not known)"* ]]
}

# By the file itself: blocks of the volume that have its content.
@test "top: btrfs, through its chunks" {
	local kind
	protect btrfs
	sees_files
	for kind in metadata superblocks; do
		[ "$(top_of '.rows[] | select(.kind == "'$kind'") | .uncommitted_blocks > 0')" = true ]
	done
	# nothing is left but what is deleted: here, the blocks of old content
	[ "$(top_of '[.rows[] | select(.kind == "other") | .uncommitted_blocks] | add // 0')" -le 16 ]
	umount_volume
	[ "$(top_of '[.complete, .no_files_because, (.rows | length)] | @csv')" = \
		'false,"the volume is not mounted where this command can see it",1' ]
}

@test "top: btrfs, compressed, and with another subvolume" {
	protect btrfs
	umount_volume
	mount_volume -o noatime,compress-force=zstd
	# 1 MiB in 8 extents of 128 KiB, each of which takes one block
	head -c 1M /dev/zero | tr '\0' x | dd of="$MNT/c/packed" bs=1M iflag=fullblock status=none
	btrfs -q subvolume create "$MNT/sub" 2>/dev/null || btrfs subvolume create "$MNT/sub" >/dev/null
	random_file "$MNT/sub/far" 1
	sync -f "$MNT"
	[ "$(blocks_of /c/packed)" = 8 ]
	adds_up
	[ "$(top_of '[.rows[] | select(.kind == "other") | .uncommitted_blocks >= 256] | @csv')" = true ]
}

@test "top: btrfs in stripes is not guessed at" {
	protect btrfs -d raid0
	write_files
	[ "$(top_of '[.complete, .rows[0].kind, (.rows | length)] | @csv')" = 'false,"other",1' ]
	run -0 cow top
	[[ $output == *"this file system does not report where"* ]]
}

@test "top: ext4 that is attached and not mounted" {
	protect
	write_files
	umount_volume
	[ "$(top_of '.rows[] | select(.path == "/a/b/new") | .uncommitted_blocks')" = 768 ]
	adds_up
}

@test "top: odd names, 80 columns" {
	local deep
	protect
	deep=$MNT/$(printf 'long-name-%.0s' {1..20})/$(printf '\303\266%.0s' {1..100})
	mkdir -p "$deep"
	echo x >"$deep/"$'line\nfeed\033[2J\377'
	echo x >"$MNT/quote\"\\"
	sync -f "$MNT"
	cow top -n 0 >"$T/text"
	[ "$(LC_ALL=C.UTF-8 wc -L <"$T/text")" -le 80 ]
	run ! grep -q $'\033' "$T/text"
	grep -q 'line?feed?\[2J?$' "$T/text"
	jq -e . <<<"$(cow top --json -n 0)" >/dev/null
	[ "$(top_of '[.rows[] | select(.path | strings | endswith("/quote\"\\"))] | length')" = 1 ]
	cow top -n 0 --by directory --interval 200ms --once >"$T/text"
	[ "$(LC_ALL=C.UTF-8 wc -L <"$T/text")" -le 80 ]
}

@test "top: the documented fields" {
	local k
	protect
	write_files
	for k in $({ cow top --json -n 0 --interval 100ms --once; cow top --json --by directory; } | jq -r '[paths | map(strings) | .[]] | unique - ["ok"] | .[]'); do
		grep -qxE "\.It Va ($k|.* $k|$k .*|.* $k .*)" "$BATS_TEST_DIRNAME/../../docs/cowctl.8" || { echo "$k is not documented"; return 1; }
	done
}

@test "top: bad input" {
	fails 4 'no volume|not running' top nobody
	fails 4 'no volume|not running' top --json nobody
	fails 2 'is neither file nor directory' top --by inode
	fails 2 'not a number of rows' top -n many
	fails 2 'not a number of rows' top -n -1
	fails 2 'needs an argument: ROWS' top -n
	fails 2 'unknown option' top --n 5
	fails 2 'unknown option' top -x
	fails 2 'unknown option' top -n5
	fails 2 'not a time' top --interval soon
	fails 2 'not a time' top --interval 1ms
	fails 2 'not a time' top --interval 25h --json
	fails 2 'needs --interval' top --once
	fails 2 'usage' top a b
	protect
	fails 4 'no volume|not running' top another
}
