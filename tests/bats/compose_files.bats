#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Single files of a composed root: cowctl commit PATH, revert, keep, view. Trees are compared by rsync. SEEDS=1-50: these random ones.
# seconds: 70
# turn: 3

load lib
load compose

setup() {
	compose_setup || return
	RAM=256M LOG=128 # no commit that is not asked for
	LIVE=$T/live CARD_TREE=$T/card V=$T/view
	mkdir "$LIVE" "$CARD_TREE" "$V"
	view_disks >"$T/view-disks"
}

teardown() {
	exec 9<&- # a folder of the root
	umount "$V" 2>/dev/null
	chattr -R -f -i -a "$MNT" "$T/tree" "$T/was" 2>/dev/null
	compose_teardown
}

# differ A B: rsync -i, without the times of folders, which a commit of their files changes
# LINKS=--no-H: and without hard links, whose numbers the caches of an overlay may show wrongly
differ() { trees_differ "$1" "$2" "${LINKS--H}"; }

# is_committed TREE: what the last commit holds
is_committed() { is_committed_in root "$1" differ; }

# A folder with the content of $MNT
remember() {
	mountpoint -q "$T/was" || {
		truncate -s 300M "$T/was.img"
		mke2fs -q -F -t ext4 "$T/was.img"
		mkdir -p "$T/was"
		loop_up "$T/was.img"
		mount "$LOOP" "$T/was"
		rmdir "$T/was/lost+found"
	}
	rsync -aHAXS --modify-window=-1 --numeric-ids --delete "$MNT/" "$T/was/"
}

# xattr set|remove NAME FILE...
xattr() {
	python3 -c 'import os, sys
for f in sys.argv[3:]:
    try:
        os.setxattr(f, sys.argv[2], b"y", follow_symlinks=False) if sys.argv[1] == "set" else os.removexattr(f, sys.argv[2])
    except OSError as e:
        sys.exit(f"{f}: {e}")' "$@"
}

@test "compose: commit PATH commits these files of the root, and nothing else" {
	local fs written
	mkdir -p "$T/tree/etc/conf" "$T/tree/usr/lib/deep" "$T/tree/only/in/image"
	for f in etc/one etc/two etc/conf/three usr/lib/four only/in/image/five; do echo 1 >"$T/tree/$f"; done
	chmod 751 "$T/tree/only" "$T/tree/only/in"
	chown 33:44 "$T/tree/only/in"
	for fs in squashfs erofs; do
		begin $fs
		is_overlay
		# nothing is committed yet: not even an upper
		echo new >"$MNT/only/in/image/new"
		echo lost >"$MNT/etc/one"
		rm "$MNT/etc/two"
		rm -r "$MNT/etc/conf"
		written=$(card_written)
		answer=$(cow commit "$MNT/usr")
		grep -q 'nothing' <<<"$answer"
		[ "$(card_written)" = "$written" ]
		cow commit "$MNT/only/in/image/new" "$MNT/etc/two" >/dev/null
		[ "$(status_of .generation)" -ge 1 ]
		[ "$(cat "$MNT/etc/one")" = lost ]
		cow view root "$V" >/dev/null
		[ "$(cat "$V/only/in/image/new")" = new ]
		[ "$(cat "$V/only/in/image/five")" = 1 ]
		[ "$(stat -c '%a %u %g' "$V/only" "$V/only/in" | xargs)" = "751 0 0 751 33 44" ]
		[ "$(cat "$V/etc/one")" = 1 ]
		[ ! -e "$V/etc/two" ]
		[ -e "$V/etc/conf/three" ]
		umount "$V"
		restart
		is_overlay
		[[ $stderr == *"with its changes"* ]]
		[ "$(cat "$MNT/only/in/image/new")" = new ]
		[ ! -e "$MNT/etc/two" ]
		[ "$(cat "$MNT/etc/one")" = 1 ]
		# back to what the image has
		echo 1 >"$MNT/etc/two"
		touch -r "$COWFS_RUNDIR/lower/etc/two" "$MNT/etc/two"
		rm "$MNT/only/in/image/new"
		cow commit "$MNT/etc/two" "$MNT/only" >/dev/null
		restart
		differ "$T/tree" "$MNT"
		fails 2 "exists neither now" commit "$MNT/etc/none"
		stop --discard
		e2fsck -fn "$CARD" >/dev/null
		losetup -d "$LOWER"
		losetup -d "$CARD"
	done
}

@test "compose: folders become files, files become folders, a folder is another one" {
	local round LINKS=--no-H # an overlay breaks hard links of its image
	mkdir -p "$T/tree"/{folder/sub,opaque,kept,gone/x}
	echo 1 | tee "$T/tree"/{folder/a,folder/sub/b,opaque/old,kept/a,gone/x/y,file,other} >/dev/null
	ln "$T/tree/other" "$T/tree/other2"
	begin
	for round in 1 2; do
		remember
		rm -r "$MNT"/{folder,opaque,gone}
		echo file >"$MNT/folder"
		mkdir "$MNT/opaque"
		echo new >"$MNT/opaque/new"
		rm "$MNT/file"
		mkdir -p "$MNT/file/deep"
		echo x >"$MNT/file/deep/x"
		echo changed >"$MNT/other"
		mv "$MNT/kept/a" "$MNT/kept/b"
		ln "$MNT/kept/b" "$MNT/kept/c"
		[ $round = 1 ] || break
		run -0 cow revert --dry-run "$MNT"/{folder,opaque,gone,file,other,kept}
		[[ $output == *"replace     $MNT/folder"* ]]
		run -0 cow revert --yes "$MNT"/{folder,opaque,gone,file,other,kept}
		echo "$output"
		differ "$T/was" "$MNT"
		[ -z "$(diff_of root | grep -v ' t ' || true)" ]
	done
	for round in folder opaque gone file other kept; do
		cow commit "$MNT/$round" >/dev/null
	done
	is_committed "$MNT"
	# and back, from a committed upper
	rm -r "$MNT"/{folder,opaque,file}
	cp -a "$T/was/"{folder,opaque,file} "$MNT"
	rsync -aHAX --modify-window=-1 "$T/was/" "$MNT/"
	rm "$MNT"/kept/{b,c}
	cow commit "$MNT"/{folder,opaque,gone,file,other,kept} >/dev/null
	is_committed "$T/was"
	restart
	differ "$T/was" "$MNT"
	# a folder of the volume hides one of the image again
	rm -r "$MNT"/{folder,opaque,file}
	echo file >"$MNT/folder"
	run -0 cow revert --yes "$MNT"/{folder,opaque,file}
	differ "$T/was" "$MNT"
}

# Everything a file can have. $1: erofs also has ACLs
everything() {
	local flags='chattr -R -f -i -a'
	"$BATS_TEST_DIRNAME/mktree.py" "$T/tree/d"
	$flags "$T/tree" || true
	[ "$1" = erofs ] || {
		xattr remove system.posix_acl_access "$T"/tree/d/{a,e,e/inherits}
		xattr remove system.posix_acl_default "$T/tree/d/e"
	}
	[ "$1" = squashfs ] || rm "$T"/tree/d/{nnn*,sparse} # mkfs.erofs 1.5 has no names of 255 bytes, and no holes
	begin "$1"
	is_overlay
	"$BATS_TEST_DIRNAME/mktree.py" "$MNT/e"
	xattr set user.overlay.opaque "$MNT/e/p"
	# a container engine's: stored under another name since Linux 6.7
	xattr set trusted.overlay.opaque "$MNT/d/e" "$MNT/e/e" 2>/dev/null || true
	touch "$MNT"/d/{immutable,fixed,append} # a squashfs has no flags
	chattr +i "$MNT/d/immutable" "$MNT/d/fixed"
	chattr +a "$MNT/d/append"
	chmod 711 "$MNT/d/folder-or-file"
	echo more >>"$MNT/d/big"
	ln "$MNT/d/nodump" "$MNT/d/z1"
	ln "$MNT/d/nodump" "$MNT/d/z2"
	remember
	cow commit "$MNT/d" "$MNT/e" >/dev/null
	is_committed "$T/was"
	cow view root "$V" >/dev/null
	[ "$(stat -c %i "$V/d/nodump")" = "$(stat -c %i "$V/d/z2")" ]
	umount "$V"
	# the same once more changes nothing
	[[ $(cow commit "$MNT/d" "$MNT/e") == *nothing* ]]
	for where in d e; do
		chattr -f -i -a "$MNT/$where"/{fixed,immutable,append}
		rm -r "$MNT/$where"/{folder-or-file,file-or-folder,chr,link,append,fixed}
		echo x >"$MNT/$where/folder-or-file"
		mkdir -p "$MNT/$where/file-or-folder/deep/er"
		ln -s nowhere "$MNT/$where/chr"
		echo x >>"$MNT/$where/a2"
		chmod 777 "$MNT/$where/cap"
		echo x >"$MNT/$where/e/new"
		dd if=/dev/urandom of="$MNT/$where/sparse" bs=1M seek=20 count=1 conv=notrunc status=none
	done
	[ "$1" = squashfs ] || rm "$MNT/d/sparse"
	run ! differ "$T/was" "$MNT"
	run -0 cow revert --yes --json "$MNT/d" "$MNT/e"
	jq -e '.ok and .created > 3 and .deleted >= 1 and .unchanged > 5' <<<"$output"
	differ "$T/was" "$MNT"
	for where in d e; do
		[ "$(lsattr -d "$MNT/$where/immutable" | cut -c5)" = i ]
		[ "$(lsattr -d "$MNT/$where/fixed" | cut -c5)" = i ]
		[ "$(lsattr -d "$MNT/$where/append" | cut -c6)" = a ]
	done
	[ -z "$(find "$MNT" -name '.cowfs-*')" ]
	run -0 cow revert --yes root "$MNT/d" "$MNT/e"
	# hard links of what was a file of the image may be shown with two numbers until a restart
	[[ $output == *"reverted "[02]" files"* ]]
	restart
	is_overlay
	differ "$T/was" "$MNT"
	[ "$(lsattr -d "$MNT/d/immutable" | cut -c5)" = i ]
	stop --discard
	e2fsck -fn "$CARD" >/dev/null
}

@test "compose: everything a file has is committed and reverted, squashfs" { everything squashfs; }
@test "compose: everything a file has is committed and reverted, erofs" { everything erofs; }

change() { "$BATS_TEST_DIRNAME/random_tree.py" "$1" "$2" "$LIVE" "$MNT"; }

copy_path() { # FROM TO PATH
	mkdir -p "$2/$(dirname "$3")"
	if [ -e "$1/$3" ]; then
		rsync -aHAX --modify-window=-1 --delete "$1/$3" "$2/$(dirname "$3")/"
	else
		rm -rf "${2:?}/$3"
	fi
}

one_random() {
	local seed=$1 round n
	echo "SEEDS=$seed"
	RANDOM=$seed
	"$BATS_TEST_DIRNAME/random_tree.py" "$seed" 150 "$T/links"
	# an overlay breaks hard links of an image
	cp -a --no-preserve=links "$T/links/." "$T/tree"
	rsync -aAX --modify-window=-1 "$T/tree/" "$LIVE/"
	rsync -aAX --modify-window=-1 "$T/tree/" "$CARD_TREE/"
	begin "$2"
	for ((round = 1; round <= 6; round++)); do
		change "$((seed * 100 + round))" $((RANDOM % 40 + 5))
		n=f$((RANDOM % 5))
		case $((RANDOM % 7)) in
		0) cow commit root >/dev/null && rsync -aHAX --modify-window=-1 --delete "$LIVE/" "$CARD_TREE/" ;;
		1 | 2) [ ! -e "$CARD_TREE/$n" ] || { cow revert --yes "$MNT/$n" >/dev/null && copy_path "$CARD_TREE" "$LIVE" "$n"; } ;;
		*) cow commit "$MNT/$n" >/dev/null && copy_path "$LIVE" "$CARD_TREE" "$n" ;;
		esac || { echo "round $round"; return 1; }
		is_committed "$CARD_TREE" && LINKS=--no-H differ "$LIVE" "$MNT" || { echo "round $round"; return 1; }
		if [ $((RANDOM % 3)) = 0 ]; then
			restart
			[ "$status" = 0 ]
			rsync -aHAX --modify-window=-1 --delete "$CARD_TREE/" "$LIVE/"
			differ "$LIVE" "$MNT" || { echo "round $round: boot"; return 1; }
		fi
	done
	restart
	differ "$CARD_TREE" "$MNT" || { echo "card"; return 1; }
	stop --discard
	# a folder that the cache of the overlay has kept is an orphan, which the next mount removes
	mount "$CARD" "$V"
	umount "$V"
	e2fsck -fn "$CARD" >/dev/null
	losetup -d "$LOWER"
	losetup -d "$CARD"
	rm -rf "$T/links" "${LIVE:?}"/* "${CARD_TREE:?}"/* "$T/tree"/*
}

random() {
	local seed
	for seed in $(seeds 1); do one_random "$seed" "$1"; done
}

@test "compose: random changes, commits of folders and reverts, squashfs" { random squashfs; }
@test "compose: random changes, commits of folders and reverts, erofs" { random erofs; }

# a restart: what was not committed is lost
start_other() {
	restart
	is_overlay
}

@test "compose: another image and a factory reset: what is committed is what the next boot reads" {
	echo 1 >"$T/tree/one"
	begin
	echo new >"$MNT/one"
	cow commit root >/dev/null
	cow factory-reset --yes >/dev/null
	echo newer >"$MNT/one"
	fails 1 "a factory reset is committed: restart first" commit "$MNT/one"
	fails 1 "generation .*: a factory reset is committed" revert --yes "$MNT/one"
	stop --discard
	# the former changes are still what is committed, until the first commit
	start
	[ "$(cat "$MNT/one")" = 1 ]
	fails 1 "a factory reset is committed: commit first" revert --yes "$MNT/one"
	echo 2 >"$MNT/two"
	cow commit "$MNT/two" >/dev/null
	restart
	[[ $stderr == *"with its changes"* ]]
	[ "$(cat "$MNT/one" "$MNT/two")" = "1
2" ]
	# another image, with the changes
	echo 5 >"$T/tree/five"
	image squashfs "$T/image2"
	loop_up "$T/image2" -r
	configure "$LOOP" keep
	start_other
	fails 1 "generation .* belongs to another image: commit first" revert --yes "$MNT/one"
	rm "$MNT/five"
	cow commit "$MNT/five" >/dev/null
	echo 3 >"$MNT/two"
	cow revert --yes "$MNT/two" >/dev/null
	[ "$(cat "$MNT/two")" = 2 ]
	configure "$LOOP" refuse
	start_other
	[ "$(cat "$MNT/two")" = 2 ]
	[ ! -e "$MNT/five" ]
	# and without them
	echo 6 >"$T/tree/six"
	image squashfs "$T/image3"
	loop_up "$T/image3" -r
	configure "$LOOP" fresh
	start_other
	echo new >"$MNT/one"
	cow commit "$MNT/one" >/dev/null
	configure "$LOOP" refuse
	start_other
	[ "$(cat "$MNT/one" "$MNT/five" "$MNT/six")" = "new
5
6" ]
	[ ! -e "$MNT/two" ]
	echo newer >"$MNT/one"
	cow commit "$MNT/one" >/dev/null
	# composed by an initramfs with an older cowfs
	sed -i 2d "$COWFS_RUNDIR/root.compose"
	fails 1 "the initramfs has an older cowfs" commit "$MNT/one"
	[[ $(cow diff root) != *error* ]]
	stop --discard
	# what somebody has mounted beside the root is not the root
	start
	is_overlay
	[ "$(cat "$MNT/one")" = newer ]
	mount "$DEV" "$V"
	fails 4 "no file of a volume has this name" commit "$V/upper/one"
	umount "$V"
	mkdir -p "$MNT/mnt"
	mount -t tmpfs tmpfs "$MNT/mnt"
	touch "$MNT/mnt/x"
	fails 2 "does not lie on volume root" commit root "$MNT/mnt/x"
	umount "$MNT/mnt"
	umount -l "$COWFS_RUNDIR/lower"
	fails 1 "the image is not mounted on $COWFS_RUNDIR/lower" commit "$MNT/one"
}

@test "compose: an operand below a bind mount of the root" {
	mkdir -p "$T/tree/a/b"
	echo 1 >"$T/tree/a/b/c"
	begin
	echo 2 >"$MNT/a/b/c"
	mount --bind "$MNT/a/b" "$V"
	cow commit "$V/c" >/dev/null
	echo 3 >"$MNT/a/b/c"
	cow revert --yes "$V/c" >/dev/null
	umount "$V"
	[ "$(cat "$MNT/a/b/c")" = 2 ]
	restart
	[ "$(cat "$MNT/a/b/c")" = 2 ]
}

@test "compose: folders that have left the cache between the check and the revert" {
	mkdir -p "$T/tree/a/b"
	echo 1 >"$T/tree/a/b/c"
	begin
	echo 2 >"$MNT/a/b/c"
	mkdir -p "$MNT/a/new/deep"
	asked 'echo 2 >/proc/sys/vm/drop_caches' revert "$MNT/a"
	echo "$output"
	[ "$status" = 0 ]
	differ "$T/tree" "$MNT"
}

@test "compose: killed at any time, nothing stays mounted and the next one works" {
	local i
	mkdir "$T/tree/f"
	begin
	RANDOM=${SEED:-1}
	for ((i = 0; i < ${KILLS:-$(rounds 24)}; i++)); do
		dd if=/dev/urandom of="$MNT/f/$((i % 8))" bs=64k count=20 status=none
		case $((i % 3)) in
		0) "$COWFS_BUILD/cowctl" diff root >/dev/null 2>&1 & ;;
		1) "$COWFS_BUILD/cowctl" revert --yes "$MNT/f/$((i % 8))" >/dev/null 2>&1 & ;;
		2) "$COWFS_BUILD/cowctl" commit "$MNT/f" >/dev/null 2>&1 & ;;
		esac
		sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
		kill -"$([ $((RANDOM % 3)) = 0 ] && echo INT || echo KILL)" $! 2>/dev/null || true
		wait $! || true
	done
	views_gone 60
	rm -rf "$MNT/f"/.cowfs-*
	remember
	cow commit "$MNT/f" >/dev/null
	is_committed "$MNT"
	stop --discard
	start
	is_overlay
	differ "$T/was" "$MNT"
}

@test "compose: a full volume: nothing is committed, nothing is spoiled" {
	mkdir "$T/tree/f"
	echo 1 >"$T/tree/f/one"
	begin
	echo first >"$MNT/f/first"
	cow commit "$MNT/f" >/dev/null
	remember
	dd if=/dev/zero of="$MNT/full" bs=64k status=none 2>/dev/null || true
	rm "$MNT/f/one"
	cow revert --yes "$MNT/f" >"$T/out" 2>&1 || grep -q 'No space' "$T/out"
	# the card is full as well, what is in RAM is not
	cow commit root >/dev/null
	rm "$MNT/full"
	cow revert --yes "$MNT/f" >/dev/null
	dd if=/dev/urandom of="$MNT/f/large" bs=1M count=12 status=none
	generation=$(status_of .generation)
	fails 1 "No space left on device.*nothing was committed" commit "$MNT/f"
	views_gone 60
	[ "$(status_of .generation)" = "$generation" ]
	cow commit "$MNT/full" >/dev/null
	cow commit "$MNT/f" >/dev/null
	is_committed "$MNT"
	rm "$MNT/f/large"
	differ "$T/was" "$MNT"
	restart
	[ -s "$MNT/f/large" ]
	[ ! -e "$MNT/full" ]
}

@test "compose: a user's attributes and files mislead neither commit nor revert" {
	local as_nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
	mkdir "$T/tree/home"
	chmod 777 "$T/tree/home"
	echo 1 >"$T/tree/home/a"
	chown 65534:65534 "$T/tree/home/a"
	chmod 755 "$T" "$MNT"
	begin
	$as_nobody sh -c "cd '$MNT/home' && mkdir -p d upper work && ln -s /etc e && ln -s ../../../etc/passwd d/p && mkfifo f &&
		touch .wh.a .cowfs-1-0"
	xattr set user.overlay.redirect "$MNT/home/d"
	xattr set user.overlay.whiteout "$MNT/home/a"
	remember
	cow commit "$MNT/home" >/dev/null
	is_committed "$T/was"
	$as_nobody sh -c "cd '$MNT/home' && rm -r d e && ln -s /etc d && mkdir e && touch e/passwd"
	cow revert --yes "$MNT/home" >/dev/null
	differ "$T/was" "$MNT"
	[ ! -e "$COWFS_RUNDIR/.compose/upper" ]
	[ "$(stat -c %a "$COWFS_RUNDIR/.compose")" = 700 ]
}

@test "compose: keep" {
	mkdir -p "$T/tree/srv/db"
	echo 1 | tee "$T/tree/srv/db/a" "$T/tree/other" >/dev/null
	volume
	printf 'on-detach = discard\nkeep = %s %s\n' "$MNT/srv/db" "$MNT/none" >>"$COWFS_CONF"
	start
	is_overlay
	echo kept >"$MNT/srv/db/a"
	echo lost >"$MNT/other"
	run -1 cow commit --kept
	[[ $output == *"$MNT/none: not kept"* ]]
	restart
	[ "$(cat "$MNT/srv/db/a")" = kept ]
	[ "$(cat "$MNT/other")" = 1 ]
	# before the discard of a shutdown
	echo again >"$MNT/srv/db/a"
	echo lost >"$MNT/other"
	cow shutdown >/dev/null 2>&1
	stop --discard # of the kept paths one is missing, and a detach would stop there
	start
	[ "$(cat "$MNT/srv/db/a")" = again ]
	[ "$(cat "$MNT/other")" = 1 ]
	# not mounted any more: nothing of the volume itself is taken for the root
	echo late >"$MNT/srv/db/a"
	umount "$MNT"
	umount "$MNT"
	fails 1 'root: not all kept paths were committed, so it stays attached' detach root
	umount "$COWFS_RUNDIR/lower"
	cow detach --discard root
	rm -f "$COWFS_RUNDIR"/root.*
	start
	[ "$(cat "$MNT/srv/db/a")" = again ]
}

@test "compose: a hard link of a file of the image, which the cache shows with two numbers" {
	local fd
	mkdir "$T/tree/d"
	echo 1 >"$T/tree/d/a"
	begin
	ln "$MNT/d/a" "$MNT/d/b"
	cow commit "$MNT/d" >/dev/null
	exec {fd}<"$MNT/d/a"
	echo 2 >/proc/sys/vm/drop_caches
	[ "$(stat -c %i "$MNT/d/a")" != "$(stat -c %i "$MNT/d/b")" ]
	cow revert --yes "$MNT/d"
	exec {fd}<&-
	echo changed >"$MNT/d/a"
	[ "$(cat "$MNT/d/b")" = changed ]
	[ "$(ls -A "$MNT/d")" = "a
b" ]
	cow revert --yes "$MNT/d"
	[ "$(cat "$MNT/d/a" "$MNT/d/b")" = "1
1" ]
	restart
	[ "$(stat -c '%i %h' "$MNT/d/a")" = "$(stat -c '%i %h' "$MNT/d/b")" ]
}

@test "compose: paths and hard links that no system call takes" {
	mkdir "$T/tree/d"
	echo 1 >"$T/tree/d/a"
	begin
	python3 -c '
import os, sys
d = os.open(sys.argv[1], os.O_RDONLY)
for i in range(40):
    os.mkdir("n" * 200, dir_fd=d)
    d = os.open("n" * 200, os.O_RDONLY, dir_fd=d)
    os.close(os.open("a", os.O_CREAT | os.O_WRONLY, dir_fd=d))
    os.link("a", "b", src_dir_fd=d, dst_dir_fd=d)
' "$MNT/d"
	cow commit "$MNT/d" >/dev/null
	[[ $(cow commit "$MNT/d") == *nothing* ]]
	(cd "$MNT/d" && find . -name n\* -prune -exec rm -r {} +)
	[ "$(ls "$MNT/d")" = a ]
	cow revert --yes "$MNT/d" >/dev/null
	[ "$(find "$MNT/d" -name a | wc -l)" = 41 ]
	[ "$(find "$MNT/d" -links 2 -type f | wc -l)" = 80 ]
	restart
	[ "$(find "$MNT/d" -links 2 -type f | wc -l)" = 80 ]
}

@test "compose: a factory reset of a full volume, then a commit of paths" {
	local i
	mkdir "$T/tree/d"
	echo 1 >"$T/tree/d/a"
	begin
	dd if=/dev/urandom of="$MNT/full" bs=64k status=none 2>/dev/null || true
	for ((i = 0; i < 1000; i++)); do mkdir "$MNT/d/$i" 2>/dev/null || break; done
	[ $i -lt 1000 ]
	cow commit root >/dev/null
	cow factory-reset --yes >/dev/null
	restart
	[ "$(ls "$MNT")" = d ]
	dd if=/dev/urandom of="$MNT/d/large" bs=1M count=8 status=none
	cow commit "$MNT/d" >/dev/null
	restart
	[[ $stderr == *"with its changes"* ]]
	[ "$(stat -c %s "$MNT/d/large")" = $((8 << 20)) ]
	[ ! -e "$MNT/full" ]
}

@test "compose: the mount point stands for the volume" {
	mkdir "$T/tree/d"
	begin
	echo 1 >"$MNT/d/a"
	[ "$(cow status --json "$MNT" | jq -r .name)" = root ]
	cow commit "$MNT" >/dev/null
	[ "$(diff_of "$MNT")" = "" ]
	echo 2 >"$MNT/d/a"
	(cd "$MNT/d" && cow commit .. >/dev/null)
	fails 4 "no volume is attached as" status "$MNT/d"
	mount -t tmpfs tmpfs "$MNT/d"
	fails 4 "no volume is attached as" status "$MNT/d"
	umount "$MNT/d"
	restart
	[ "$(cat "$MNT/d/a")" = 2 ]
}

@test "compose: a folder that takes the place of another one between the check and the revert is kept" {
	mkdir "$T/tree/home"
	begin
	echo file >"$MNT/home/x"
	cow commit root >/dev/null
	rm "$MNT/home/x"
	mkdir "$MNT/home/x"
	sleep 0.1 # another time of birth
	mkdir "$MNT/other"
	asked 'mv "$MNT/home/x" "$MNT/x" && mv "$MNT/other" "$MNT/home/x"' revert "$MNT/home"
	[[ $output == *"has changed meanwhile"* ]]
	[ -d "$MNT/home/x" ]
	[ "$(ls -A "$MNT/home")" = x ]
}

@test "compose: a folder of root that takes the name of one that is brought back keeps owner and mode" {
	local n
	begin
	mkdir -p "$MNT/home/his"
	echo his >"$MNT/home/his/file"
	chown -R nobody "$MNT/home"
	cow commit root >/dev/null
	mkdir -m 700 "$MNT/home/other"
	exec 9<"$MNT/home/other"
	for ((n = 1; n < 400; n++)); do
		rm -rf "$MNT/home/his"
		swapped_at $n "$MNT/home/his" "$MNT/home/other" revert --yes "$MNT/home/his" || break
		[ "$(stat -L -c %u:%a /proc/$$/fd/9)" = 0:700 ]
		if [ -e "$MNT/home/other/file" ]; then
			rm -r "$MNT/home/other"
			mv "$MNT/home/his" "$MNT/home/other"
		fi
	done
	[ $n -gt 30 ]
	[ $n -lt 400 ]
	exec 9<&-
}

@test "compose: what is unmounted meanwhile is unmounted" {
	begin
	truncate -s 8M "$T/other"
	mke2fs -q -F -t ext4 "$T/other"
	loop_up "$T/other"
	mkdir "$T/shared"
	mount -t tmpfs tmpfs "$T/shared"
	mount --make-shared "$T/shared"
	mkdir "$T/shared/m"
	# stops cowctl while it has a namespace for the overlay
	run -0 timeout 300 python3 - "$COWFS_BUILD/cowctl" "$LOOP" "$T/shared/m" <<-'END'
		import os, signal, subprocess, sys, time
		cowctl, loop, dir = sys.argv[1:]
		seen = held = 0
		mine = os.readlink("/proc/self/ns/mnt")
		def elsewhere(pid):
		    try:
		        return any(os.readlink(f"/proc/{pid}/task/{t}/ns/mnt") != mine for t in os.listdir(f"/proc/{pid}/task"))
		    except OSError:
		        return False
		for _ in range(200):
		    subprocess.run(["mount", loop, dir], check=True)
		    p = subprocess.Popen([cowctl, "diff", "root"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
		    while p.poll() is None and not elsewhere(p.pid):
		        pass
		    p.send_signal(signal.SIGSTOP)
		    time.sleep(0.02)
		    caught = elsewhere(p.pid)
		    subprocess.run(["umount", dir], check=True)
		    if caught:
		        seen += 1
		        held += os.path.exists("/sys/fs/ext4/" + os.path.basename(loop))
		    p.send_signal(signal.SIGCONT)
		    p.wait()
		    time.sleep(0.02)
		    if seen == 6:
		        break
		print("caught", seen, "held", held)
		sys.exit(held or not seen)
	END
	echo "$output"
	umount "$T/shared"
}

@test "compose: a volume with the name compose shares nothing with the views" {
	local root
	mkdir "$T/tree/d"
	volume
	root=$CARD
	start
	NAME=compose
	card_prepared ext4 10 50 -- --log-size 32M
	cow attach --name compose "$CARD" >/dev/null
	[ "$(cow status --json compose | jq -r '"\(.name) \(.lower)"')" = "compose null" ]
	# no upper is committed yet: an empty layer stands for it
	cow view root "$V" >/dev/null
	[ "$(ls -A "$V")" = d ]
	umount "$V"
	cow detach compose >/dev/null
	CARD=$root NAME=root
	stop --discard
	fails 4 'no volume is attached as compose' status compose
}
