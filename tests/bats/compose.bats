#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A root of an image and an overlay (compose = overlay): cowctl boot --compose, diff, top, factory-reset.
# turn: 3
# seconds: 60

load lib
load compose

setup() {
	compose_setup || return
	mkdir -p "$T/tree/etc/conf" "$T/tree/usr/lib/deep"
	echo 1 >"$T/tree/etc/one"
	echo 2 >"$T/tree/etc/two"
	echo 3 >"$T/tree/etc/conf/three"
	echo 4 >"$T/tree/usr/lib/four"
	ln -s one "$T/tree/etc/link"
}

teardown() { compose_teardown; }
state() { cat "$COWFS_RUNDIR/root.state"; }

@test "compose: boot, changes, commit; what was not committed is gone" {
	local fs
	for fs in squashfs erofs; do
		begin $fs
		is_overlay
		[ "$(state)" = on ]
		[ ! -e "$COWFS_RUNDIR/root.plain" ] # else the last step of an initramfs would be left out
		[[ $stderr == *"the root is the image $LOWER, without changes"* ]]
		echo new >"$MNT/etc/new"
		rm "$MNT/etc/two"
		cow commit root >/dev/null
		echo lost >"$MNT/etc/lost"
		restart
		is_overlay
		[[ $stderr == *"with its changes"* ]]
		[ "$(cat "$MNT/etc/new")" = new ]
		[ ! -e "$MNT/etc/two" ]
		[ ! -e "$MNT/etc/lost" ]
		[ "$(cat "$MNT/etc/one")" = 1 ]
		[[ $(awk -v d="$DEV" '$1 == d { print $4 }' /proc/mounts) == rw,*nodioread_nolock*discard*noinit_itable* ]]
		compose
		[ "$status" = 0 ]
		stop --discard
		losetup -d "$LOWER"
		losetup -d "$CARD"
	done
}

@test "compose: a file of another file system as the image" {
	local part
	volume
	truncate -s 20M "$T/boot.img"
	mkdir -p "$T/boot/images"
	cp "$T/image" "$T/boot/images/a.sqfs"
	ln -s a.sqfs "$T/boot/images/link"
	mke2fs -q -t ext4 -b 1024 -d "$T/boot" "$T/boot.img"
	loop_up "$T/boot.img"
	part=$LOOP
	configure "$part:/images/a.sqfs"
	start
	is_overlay
	[ "$(cat "$MNT/etc/one")" = 1 ]
	[ "$(status_of .lower)" = "$part:/images/a.sqfs" ]
	stop --discard
	# neither a symbolic link, nor a folder, nor nothing
	for part in "$part:/images/link" "$part:/images" "$part:/images/none"; do
		configure "$part"
		start
		[ "$status" = 3 ]
		[ "$(state)" = failed ]
		[[ $stderr == *"NO ROOT: lower = $part cannot be mounted"* ]]
		umount "$MNT"
		cow detach --discard root >/dev/null
	done
}

other_image() {
	echo 5 >"$T/tree/etc/five"
	image squashfs "$T/image2"
	loop_up "$T/image2" -r
	configure "$LOOP"
}

@test "compose: setuid programs of the image work in the root, and not where the image is mounted" {
	local as_nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
	cp "$(command -v id)" "$T/tree/id"
	chmod 4755 "$T/tree/id"
	chmod 755 "$T" "$MNT"
	begin
	is_overlay
	[ "$($as_nobody "$MNT/id" -u)" = 0 ]
	[ "$($as_nobody "$COWFS_RUNDIR/lower/id" -u)" = 65534 ]
	stop
	# an image that is refused is the root as well
	other_image
	start
	[ "$(state)" = failed ]
	[ "$($as_nobody "$MNT/id" -u)" = 0 ]
	[ "$($as_nobody "$COWFS_RUNDIR/lower/id" -u)" = 65534 ]
	run ! touch "$MNT/x"
}

@test "compose: another image is refused, kept or begun anew" {
	local written
	begin
	echo new >"$MNT/etc/new"
	stop
	other_image
	written=$(card_written)
	start
	[ "$status" = 0 ]
	[ "$(state)" = failed ]
	[[ $stderr == *"NOT COMPOSED"*"another image"*"cowfs=new-lower:fresh"* ]]
	[ -e "$MNT/etc/five" ]
	[ ! -e "$MNT/etc/new" ]
	run ! touch "$MNT/etc/x"
	[ "$(card_written)" = "$written" ]
	restart cowfs=new-lower:fresh
	is_overlay
	[ ! -e "$MNT/etc/new" ]
	[ -e "$MNT/etc/five" ]
	# not committed: a power cut brings them back
	stop --discard
	# a factory reset takes the refused image
	configure "$LOOP"
	start
	[ "$(state)" = failed ]
	run -0 cow factory-reset --yes
	umount "$MNT"
	umount "$MNT"
	umount "$COWFS_RUNDIR/lower"
	mkdir "$T/copy"
	mount "$DEV" "$T/copy"
	[ -e "$T/copy/reset" ]
	rm "$T/copy/reset"
	umount "$T/copy"
	cow detach root >/dev/null
	configure "$LOOP" keep
	start
	is_overlay
	[ -e "$MNT/etc/new" ]
	[ -e "$MNT/etc/five" ]
	stop
	configure "$LOOP" refuse
	start
	is_overlay
	[ -e "$MNT/etc/new" ]
}

@test "compose: no image, a wrong one, odd files on the volume: never a root that is written without protection" {
	local what
	volume
	for what in /dev/none "$CARD"; do
		configure "$what"
		start
		[ "$status" = 3 ]
		[ "$(state)" = failed ]
		[[ $stderr == *"NO ROOT: lower = $what"* ]]
		run ! is_overlay
		umount "$MNT"
		cow detach --discard root >/dev/null
	done
	for what in 'ln -s /etc upper' 'touch upper' 'mkdir upper' 'mkdir upper lower' 'mkdir upper; ln -s /etc/passwd lower' \
		'mkdir upper; mkfifo lower' 'touch old' 'mkdir upper; echo squashfs >lower' 'mkdir upper; head -c 100000 /dev/zero >lower'; do
		configure "$LOWER"
		DEV=$("$T/sbin/cowctl" boot --device "$CARD" --cmdline ro)
		NAME=root
		mount "$DEV" "$MNT"
		(cd "$MNT" && eval "$what")
		mount -o remount,ro "$MNT"
		compose
		[ "$status" = 0 ]
		[ "$(state)" = failed ]
		run ! is_overlay
		run ! touch "$MNT/x"
		[ -e "$MNT/etc/one" ]
		stop --discard
	done
	DEV=$("$T/sbin/cowctl" boot --device "$CARD" --cmdline ro)
	mount "$DEV" "$MNT"
	mkfifo "$MNT/lower.new"
	mkdir -p "$MNT/reset/full"
	mount -o remount,ro "$MNT"
	compose
	is_overlay
	restart
	stop
	DEV=$("$T/sbin/cowctl" boot --device "$CARD" --cmdline ro)
	mount "$DEV" "$MNT"
	rm -r "$MNT/work"
	ln -s lost+found "$MNT/work"
	mount -o remount,ro "$MNT"
	compose
	[ "$status" = 0 ]
	[ "$(state)" = failed ]
	run ! is_overlay
}

@test "compose: a volume that is read-only because its daemon could not start shows the changes, and no more" {
	begin
	echo new >"$MNT/etc/new"
	rm "$MNT/etc/two"
	stop
	cow release "$CARD" >/dev/null
	mkdir -p "$COWFS_RUNDIR"
	echo failed >"$COWFS_RUNDIR/root.state"
	mount -o ro,noload "$CARD" "$MNT"
	compose
	is_overlay
	[ "$(cat "$MNT/etc/new")" = new ]
	[ ! -e "$MNT/etc/two" ]
	[ -e "$MNT/etc/one" ]
	run ! touch "$MNT/x"
	umount "$MNT"
	umount "$MNT"
	umount "$COWFS_RUNDIR/lower"
}

@test "compose: a factory reset" {
	volume
	run -4 cow factory-reset --yes
	start
	echo new >"$MNT/etc/new"
	mkdir -p "$MNT/a/b/c"
	rm "$MNT/etc/two"
	fails 2 'add --yes' factory-reset
	run -1 script -qec "$COWFS_BUILD/cowctl factory-reset" /dev/null <<<n
	[[ $output == *"[y/N]"*"nothing was changed"* ]]
	run -0 cow factory-reset --yes
	[[ $output == *"the next boot begins with the image alone"* ]]
	[ -e "$MNT/etc/new" ]
	restart
	is_overlay
	[ ! -e "$MNT/etc/new" ]
	[ -e "$MNT/etc/two" ]
	[ ! -e "$MNT/a" ]
	# taken back by a power cut, done again
	restart
	[ ! -e "$MNT/etc/new" ]
	stop
	start
	[ "$status" = 0 ]
	[[ $stderr == *"with its changes"* ]]
	[ ! -e "$MNT/etc/new" ]
	run -0 cow factory-reset --yes --json
	[ "$(jq -r .ok <<<"$output")" = true ]
}

@test "compose: a factory reset of what cannot be deleted, or not by a path" {
	local i name
	name=$(printf 'x%.0s' {1..200})
	begin
	mkdir "$MNT/deep"
	(cd "$MNT/deep" && for i in {1..40}; do mkdir "$name" && cd "$name" || exit; done)
	echo stays >"$MNT/immutable"
	# overlayfs keeps the flag in an attribute of its own
	mkdir "$T/volume"
	mount "$DEV" "$T/volume"
	chattr +i "$T/volume/upper/immutable"
	umount "$T/volume"
	cow factory-reset --yes >/dev/null
	restart
	is_overlay
	[ ! -e "$MNT/immutable" ]
	[ ! -e "$MNT/deep" ]
	umount "$MNT"
	run -0 ls -A "$MNT/old"
	[ "$(find "$MNT/old" -type f | wc -l)" = 1 ]
	[ "$(find "$MNT/old" -type d | wc -l)" = 2 ]
	chattr -i "$MNT"/old/*/immutable
}

@test "compose: a new upper in a full volume, with the mode of the image's root folder" {
	local n
	chmod 711 "$T/tree"
	begin
	[ "$(stat -c %a "$MNT")" = 711 ]
	dd if=/dev/zero of="$MNT/full" bs=64k status=none 2>/dev/null || true
	for n in {1..2000}; do mkdir "$MNT/$n" 2>/dev/null || break; done
	cow factory-reset --yes >/dev/null
	restart
	is_overlay
	[ ! -e "$MNT/full" ]
	[ ! -e "$MNT/1" ]
	[ "$(state)" = on ]
	echo new >"$MNT/new"
	stop
	e2fsck -fn "$CARD" >/dev/null
}

@test "compose: no factory reset of an ordinary root" {
	card_prepared ext4 40 100 -- --log-size 32M
	printf '[root]\nram = 64M\n' >"$COWFS_CONF"
	DEV=$("$T/sbin/cowctl" boot --device "$CARD" --cmdline ro)
	NAME=root
	fails 2 "not composed" factory-reset --yes
	mount "$DEV" "$MNT"
	compose
	[ "$status" = 0 ]
	[ "$(state)" = on ]
	run ! is_overlay
	# also if root= is no device that cowfs knows
	run -0 "$T/sbin/cowctl" boot --compose "$MNT" --cmdline "ro root=gpt-auto"
	run -0 "$T/sbin/cowctl" boot --compose "$MNT" --cmdline ro
	umount "$MNT"
	cow detach --discard root >/dev/null
}

@test "compose: diff and top name the files of the root" {
	begin
	cow commit root >/dev/null
	echo new >"$MNT/etc/new"
	echo changed >>"$MNT/etc/one"
	chmod 600 "$MNT/etc/conf/three"
	rm "$MNT/etc/two"
	rm -r "$MNT/usr/lib"
	mkdir "$MNT/usr/lib"
	echo fresh >"$MNT/usr/lib/fresh"
	mv "$MNT/etc/link" "$MNT/etc/link2"
	[ "$(diff_of root)" = "A /etc/link2
A /etc/new
A /usr/lib/fresh
D /etc/link
D /etc/two
D /usr/lib/deep/
D /usr/lib/four
M ct /etc/one
m p /etc/conf/three
m t /usr/" ] || { diff_of root; false; }
	[ "$(diff_of "$MNT/etc/two" "$MNT/usr/lib")" = "A /usr/lib/fresh
D /etc/two
D /usr/lib/deep/
D /usr/lib/four" ]
	fails 1 "neither in generation" diff "$MNT/none"
	cow top root -n 0 --json >"$T/json"
	jq -r '.rows[].path // empty' "$T/json" | sort >"$T/top"
	grep -qx "$MNT/etc/new" "$T/top"
	run ! grep -q upper "$T/top"
	[ "$(status_of .mountpoint)" = "$MNT" ]
	cow commit root >/dev/null
	[ -z "$(diff_of root)" ]
	# a deleted file that comes back, a file of the image that is what it was
	echo 2 >"$MNT/etc/two"
	rm "$MNT/etc/new"
	[ "$(diff_of root)" = "A /etc/two
D /etc/new" ] || { diff_of root; false; }
}

# What is in the root: "PATH TYPE CHECKSUM", of folders without the last
listing() {
	(cd "$MNT" && find . -mindepth 1 -printf '%P %y\n' | while read -r path type; do
		[ "$type" = d ] && echo "$path/ d" || echo "$path f $(sha256sum <"$path")"
	done) | LC_ALL=C sort
}

# Changes some file or folder. A RANDOM in $(...) would begin anew
change_at_random() {
	local file=$((RANDOM % 40 + 1)) dir=$((RANDOM % 20 + 1))
	file=$(cd "$MNT" && find . -type f | LC_ALL=C sort | sed -n "${file}p")
	dir=$(cd "$MNT" && find . -mindepth 1 -type d | LC_ALL=C sort | sed -n "${dir}p")
	case $((RANDOM % 9)) in
	0 | 1) [ -z "$file" ] || rm "$MNT/$file" ;;
	2) [ -z "$file" ] || echo more >>"$MNT/$file" ;;
	3) [ -z "$dir" ] || rm -r "${MNT:?}/$dir" ;;
	4) [ -z "$dir" ] || { rm -r "${MNT:?}/$dir" && mkdir "$MNT/$dir" && echo again >"$MNT/$dir/1"; } ;;
	5) mkdir -p "$MNT/${dir:-x}/$((RANDOM % 4))" 2>/dev/null || true ;;
	6) [ -z "$dir" ] || [ -d "$MNT/$dir/2" ] || echo new >"$MNT/$dir/2" ;;
	7) [ -z "$file" ] || [ -z "$dir" ] || [ -e "$MNT/$dir/moved" ] || mv "$MNT/$file" "$MNT/$dir/moved" ;;
	8) [ -z "$file" ] || { rm "$MNT/$file" && mkdir "$MNT/$file"; } ;;
	esac
}

@test "compose: diff says what two listings say, after random changes" {
	local a b round
	RANDOM=7
	rm "$T/tree/etc/link"
	for a in {1..5}; do
		for b in {1..3}; do
			mkdir -p "$T/tree/$a/$b/4"
			echo "$a$b" | tee "$T/tree/$a/$b/1" "$T/tree/$a/$b/3" >"$T/tree/$a/$b/4/1"
		done
	done
	begin
	for round in {1..12}; do
		listing >"$T/before"
		for a in {1..12}; do change_at_random; done
		listing >"$T/after"
		{
			LC_ALL=C comm -13 <(cut -d' ' -f1,2 "$T/before") <(cut -d' ' -f1,2 "$T/after") | sed 's/^/A /'
			LC_ALL=C comm -23 <(cut -d' ' -f1,2 "$T/before") <(cut -d' ' -f1,2 "$T/after") | sed 's/^/D /'
			LC_ALL=C join <(grep ' f ' "$T/before") <(grep ' f ' "$T/after") | awk '$3 != $6 { print "M", $1, "f" }'
		} | cut -d' ' -f1,2 | LC_ALL=C sort >"$T/wanted"
		cow diff root >"$T/diff"
		sed "s|$MNT/||g" "$T/diff" | awk '$1 == "R" { print "D", $(NF - 2); print "A", $NF; next }
			$1 == "M" && $2 !~ /c/ { next } $1 == "m" { next } { print $1, $NF }' |
			# one file was renamed and another one took its name: it is deleted and added
			awk -v same=<(LC_ALL=C comm -12 "$T/before" "$T/after" | cut -d' ' -f1) '
				BEGIN { while ((getline path <same) > 0) kept[path] }
				{ how[$2] = how[$2] $1 }
				END { for (path in how) {
					word = how[path] ~ /../ ? "M" : how[path]
					if (word != "M" || !(path in kept)) print word, path
				} }' | LC_ALL=C sort >"$T/got"
		diff -u "$T/wanted" "$T/got"
		[ -s "$T/wanted" ]
		cow commit root >/dev/null
	done
}

@test "compose: a volume of changes is no root by itself, and the command line is a way out" {
	local conf
	begin
	echo new >"$MNT/etc/new"
	stop
	for conf in '[root]' '[root]\ncompose = no\nlower = /dev/x' '[other]' '[root]\nnonsense = 1'; do
		printf "$conf\n" >"$COWFS_CONF"
		# also protected by hand, as none of these may be
		mount -o ro,noload "$CARD" "$MNT"
		compose
		[ "$status" = 3 ]
		[ "$(state)" = failed ]
		[[ $stderr == *"NO ROOT: the volume holds the changes of an image, and nothing says which one: boot with cowfs=compose:overlay,lower:DEVICE"* ]]
		compose "cowfs=compose:overlay,lower:$LOWER"
		is_overlay
		[ "$(cat "$MNT/etc/new")" = new ]
		run ! touch "$MNT/etc/newer" # after the failure before
		umount "$MNT" "$COWFS_RUNDIR/lower"
		umount "$MNT"
		rm "$COWFS_RUNDIR"/root.*
	done
	# a root is not taken for one
	configure "$LOWER"
	printf '[root]\n' >"$COWFS_CONF"
	mount "$CARD" "$MNT"
	mkdir "$MNT/etc"
	compose
	[ "$status" = 0 ]
	run ! is_overlay
	# nor what another program makes an overlay of: there, lower is a directory
	rmdir "$MNT/etc"
	rm "$MNT/lower"
	mkdir "$MNT/lower"
	compose
	[ "$status" = 0 ]
	run ! is_overlay
}

@test "compose: words of the configuration and of the command line" {
	local line
	for line in 'compose = maybe' 'compose = overlay' 'lower = relative' 'lower = /dev/a:/../b' 'lower = /dev/../b' 'lower = UUID=' \
		'lower = /dev/a:/b//c' 'new-lower = ask'; do
		printf '[root]\n%s\n' "$line" >"$COWFS_CONF"
		run -2 cow config
		echo "$output"
		[[ $output == *"$COWFS_CONF:"* ]]
	done
	for line in /dev/vda3 UUID=1234 PARTUUID=c0ffee00-03:/a/b.sqfs /dev/disk/by-label/x:/a; do
		configure "$line"
		[ "$(cow config --key lower)" = "$line" ]
	done
	volume
	configure /dev/none
	start "cowfs=lower:$LOWER,new-lower:maybe"
	is_overlay
	[[ $stderr == *"new-lower:maybe is not refuse|fresh|keep"* ]]
}
