#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowfs/files/copy on real file systems: what `cowctl revert` and `cowctl commit PATH` copy with. Compared by rsync.
# turn: 3

load lib

setup() {
	cow_setup
	COPY=$COWFS_BUILD/tests/copytree
}

teardown() {
	chattr -R -f -i -a "$MNT" 2>/dev/null || true
	cow_teardown
}

# a file system on MNT with the folders from and to
with_fs() {
	card_make "$1" 350 350 "${@:2}"
	mount "$CARD" "$MNT"
	FROM=$MNT/from TO=$MNT/to
	mkdir "$FROM" "$TO"
	"$BATS_TEST_DIRNAME/mktree.py" "$FROM/d"
}

# holes, flags, project ids, times of nanoseconds: what rsync does not compare
details() {
	(cd "$1" && find d -printf '%p %T@ %b\n' | sort && find d \( -type f -o -type d \) -print0 | sort -z | xargs -0 lsattr -pd 2>/dev/null)
}

same() {
	local out
	out=$(rsync -n -i --checksum -aHAX --numeric-ids --delete "$FROM/d/" "$TO/d/")
	[ -z "$out" ] || { echo "$out"; return 1; }
	diff <(details "$FROM") <(details "$TO")
}

spoil() {
	chattr -f -i "$TO/d/fixed" "$TO/d/immutable" || true
	chattr -f -a "$TO/d/append" || true
	rm -r "$TO"/d/{folder-or-file,file-or-folder,chr,link,append,fixed}
	echo x >"$TO/d/folder-or-file"
	mkdir -p "$TO/d/file-or-folder/deep/er"
	echo x >"$TO/d/file-or-folder/deep/x"
	ln -s nowhere "$TO/d/chr"
	dd if=/dev/zero of="$TO/d/big" bs=1000 seek=3 count=1 conv=notrunc status=none
	echo x >>"$TO/d/a2"
	chmod 777 "$TO/d/cap"
	chown 1:1 "$TO/d/suid"
	echo x >"$TO/d/e/new"
	echo x >>"$TO/d/sparse"
	dd if=/dev/urandom of="$TO/d/sparse" bs=1M seek=20 count=1 conv=notrunc status=none
	chattr -f +i "$TO/d/e" || true
}

everything() {
	with_fs "$1"
	run -0 "$COPY" "$FROM" "$TO" d
	same
	run -0 "$COPY" --plan "$FROM" "$TO" d
	[[ $output == "created 0 replaced 0 updated 0 removed 0 "* ]]
	spoil
	run ! same
	run -0 "$COPY" "$FROM" "$TO" d
	same
	spoil
	run -0 "$COPY" --trusted "$FROM" "$TO" d
	same
	# nothing of its own is left
	[ -z "$(find "$MNT" -name '.cowfs-*')" ]
	chattr -R -f -i -a "$FROM" || true
	rm -r "$FROM/d"
	run -0 "$COPY" "$FROM" "$TO" d
	[ ! -e "$TO/d" ]
}

@test "ext4: a tree with all that files can have, its changes, in place, and gone" { everything ext4; }
@test "xfs: the same" { everything xfs; }

@test "single files: their folders, other links, nothing else" {
	with_fs xfs
	run -0 "$COPY" "$FROM" "$TO" d/e/a3 d/a
	[ "$(cd "$TO" && find . | sort | xargs)" = ". ./d ./d/a ./d/e ./d/e/a3" ]
	[ "$TO/d/a" -ef "$TO/d/e/a3" ]
	run -1 "$COPY" "$FROM" "$TO" nothing nothing/x
	ln "$TO/d/a" "$TO/other"
	echo new >"$TO/d/a"
	run -0 "$COPY" "$FROM" "$TO" d/a
	# it is not written through
	grep -q new "$TO/other"
	grep -q new "$TO/d/e/a3"
	grep -q hi "$TO/d/a"
	[[ $output == *"others d/a 2"* ]]
}

@test "a symbolic link on the way, another mount below" {
	with_fs ext4
	mkdir "$MNT/elsewhere" "$TO/d"
	ln -s "$MNT/elsewhere" "$TO/d/e"
	run -1 "$COPY" "$FROM" "$TO" d/e/a3
	[[ $output == *"problem d/e: is no folder on both sides"* ]]
	rm "$TO/d/e"
	mkdir "$TO/d/e"
	mount -t tmpfs tmpfs "$TO/d/e"
	run -1 "$COPY" "$FROM" "$TO" d/e/a3
	[[ $output == *"mounted there"* ]]
	run -1 "$COPY" "$FROM" "$TO" d
	[[ $output == *"problem d/e: something else is mounted there"* ]]
	[ -z "$(ls "$MNT/elsewhere")$(ls "$TO/d/e")" ]
	umount "$TO/d/e"
	run -0 "$COPY" "$FROM" "$TO" d
	same
}

# The owner of the folders swaps them for links and other folders all the time.
@test "a user who owns the target cannot lead a copy elsewhere" {
	local i
	with_fs ext4
	mkdir "$MNT/secret" "$TO/d"
	chmod 700 "$MNT/secret"
	echo s >"$MNT/secret/x"
	"$COPY" "$FROM" "$TO" d/e >/dev/null
	chown 1000 "$TO" "$TO/d"
	chown -R 1000 "$FROM/d/e" "$TO/d/e"
	rm -f "$FROM/d/e/a3"
	background setpriv --reuid 1000 --clear-groups timeout 900 sh -c 'cd "$1" && while :; do
			mv -T e e.old; ln -s ../../secret e; rm -f e; mkdir -p e/f; ln -sf ../../../secret/x e/inherits
			for s in .cowfs-*; do mv -T "$s" away; ln -s ../../secret "$s"; rmdir away; rm -f "$s"; done
			rm -rf e; mv -T e.old e; done 2>/dev/null' sh "$TO/d"
	for ((i = 0; i < 40; i++)); do
		timeout 20 "$COPY" "$FROM" "$TO" d/e >/dev/null || true
	done
	kill "$BG"
	[ "$(find "$MNT/secret" -printf '%p %U %m\n' | sort | xargs)" = "$MNT/secret 0 700 $MNT/secret/x 0 644" ]
	[ "$(cat "$MNT/secret/x")" = s ]
}

@test "stopped or without room: each file whole or as before, no temporary files" {
	with_fs ext4
	mkdir "$TO/d"
	echo old >"$TO/d/big"
	dd if=/dev/zero of="$MNT/fill" bs=1M status=none 2>/dev/null || true
	truncate -s -1M "$MNT/fill"
	run -1 "$COPY" "$FROM" "$TO" d
	[[ $output == *"No space left on device"* ]]
	[ "$(cat "$TO/d/big")" = old ]
	[ -z "$(find "$MNT" -name '.cowfs-*')" ]
	rm "$MNT/fill"
	sync -f "$MNT" # until then its blocks are not free, and big gets more extents
	run -0 "$COPY" "$FROM" "$TO" d
	same
}

@test "names that one folder takes for equal, another does not" {
	[ -e /sys/fs/ext4/features/casefold ] || skip "this kernel has no case-folded folders"
	IMG=$T/card.img
	truncate -s 100M "$IMG"
	mke2fs -q -t ext4 -O casefold -E encoding=utf8 "$IMG"
	card_loop
	mount "$CARD" "$MNT"
	FROM=$MNT/from TO=$MNT/to
	mkdir -p "$FROM/d/folded" "$TO/d/folded"
	chattr +F "$FROM/d/folded" "$TO/d/folded"
	echo new >"$FROM/d/folded/NAME"
	echo old >"$TO/d/folded/name"
	run -0 "$COPY" "$FROM" "$TO" d
	[ "$(ls "$TO/d/folded"):$(cat "$TO/d/folded/name")" = NAME:new ]
	rm -r "$TO/d"
	run -0 "$COPY" --trusted "$FROM" "$TO" d
	[ "$(cat "$TO/d/folded/name")" = new ]
	same
}

# What goes below a folder is gone before what comes elsewhere needs its room.
@test "what goes makes room for what comes, across folders" {
	local way
	with_fs ext4
	chattr -R -f -i -a "$FROM" || true
	rm -r "$FROM/d"
	mkdir -p "$FROM"/d/{a,z}
	for way in "" --trusted; do
		rm -rf "$TO/d" "$FROM/d/a/new" "$MNT/fill"
		mkdir -p "$TO"/d/{a,z}
		random_file "$FROM/d/a/new" 20
		random_file "$TO/d/z/old" 20
		dd if=/dev/zero of="$MNT/fill" bs=1M status=none 2>/dev/null || true
		truncate -s -2M "$MNT/fill"
		# shellcheck disable=SC2086
		run -0 "$COPY" $way "$FROM" "$TO" d
		cmp "$FROM/d/a/new" "$TO/d/a/new"
		[ ! -e "$TO/d/z/old" ]
	done
}

@test "what cannot be copied is refused before anything is changed" {
	with_fs ext4 -O encrypt
	mkdir "$TO/d" "$FROM/d/e/secret"
	echo old >"$TO/d/a"
	encrypt "$MNT" "$FROM/d/e/secret" || skip "this kernel has no fscrypt"
	run -1 "$COPY" "$FROM" "$TO" d
	[[ $output == *"problem d/e/secret: has a feature that cannot be copied"* ]]
	[ "$(cat "$TO/d/a"):$(ls -A "$TO/d" | xargs)" = old:a ]
}
