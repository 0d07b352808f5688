#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl revert: files come back from the committed generation with everything they have. rsync compares with a copy
# that was made before. How single files are copied is tested in copy.bats.

load lib

teardown() {
	exec 9<&- # of homes
	chattr -R -f -i -a "$MNT" "$T/was" 2>/dev/null || true
	cow_teardown
}

# a volume with a committed tree d, and a copy of it on another file system of the same kind
volume() {
	card_make "$1" 350 450
	truncate -s 350M "$T/was.img"
	case $1 in
	ext4) mke2fs -q -F -t ext4 "$T/was.img" ;;
	xfs) mkfs.xfs -q -f "$T/was.img" ;;
	esac
	mkdir "$T/was"
	loop_up "$T/was.img"
	mount "$LOOP" "$T/was"
	cow prepare "$CARD" >/dev/null
	attach_mounted
	"$BATS_TEST_DIRNAME/mktree.py" "$MNT/d"
	rsync -aHAXS --modify-window=-1 --numeric-ids "$MNT/d" "$T/was/"
	cow commit vol
}

same() {
	local out
	out=$(rsync -n -i --checksum -aHAX --numeric-ids --delete "$T/was/d/" "$MNT/d/")
	[ -z "$out" ] || { echo "$out"; return 1; }
}

spoil() {
	chattr -f -i -a "$MNT"/d/{fixed,immutable,append} || true
	rm -r "$MNT"/d/{folder-or-file,file-or-folder,chr,link,append,fixed}
	echo x >"$MNT/d/folder-or-file"
	mkdir -p "$MNT/d/file-or-folder/deep/er"
	ln -s nowhere "$MNT/d/chr"
	echo x >>"$MNT/d/a2"
	chmod 777 "$MNT/d/cap"
	echo x >"$MNT/d/e/new"
	dd if=/dev/urandom of="$MNT/d/sparse" bs=1M seek=20 count=1 conv=notrunc status=none
}

everything() {
	volume "$1"
	spoil
	run -0 cow revert --dry-run "$MNT/d"
	[[ $output == *"delete      $MNT/d/e/new"* && $output == *"bring back  $MNT/d/link"* ]]
	[[ $output == *"$MNT/d/n"?"w"* || $output == *"would revert"* ]]
	run ! same
	run -0 cow revert --yes --json "$MNT/d"
	jq -e '.ok and .generation > 0 and .created > 3 and .deleted >= 1' <<<"$output"
	same
	[ "$(lsattr -d "$MNT/d/immutable" | cut -c5)" = i ]
	[ -z "$(find "$MNT" -name '.cowfs-*')" ]
	run -0 cow revert --yes vol "$MNT/d"
	[[ $output == *"reverted 0 files"* ]]
	# and the card gets what it had
	cow commit vol
	chattr -R -f -i -a "$MNT" || true
	rm -r "$MNT/d"
	run -0 cow revert --yes "$MNT/d"
	same
	chattr -R -f -i -a "$MNT" || true
	detach_whole "$1"
}

@test "ext4: a folder as it was, deleted files and all" { everything ext4; }
@test "xfs: the same" { everything xfs; }

# The list comes from what changed. Without a view of now, all files are compared: then the volume has as many views as it can.
dry_run() { cow revert --dry-run --json "$MNT"/[abc] >"$T/$1" && jq -S .changes "$T/$1" >"$T/$1.list"; }

compared_in_full() {
	local i
	for i in {1..7}; do
		mkdir -p "$T/v$i"
		cow view vol "$T/v$i" >/dev/null || return
	done
	dry_run full
	umount "$T"/v[1-7]
	wait_for 10 eval '[ "$(status_of ".views.list | length")" = 0 ]'
}

change_some() { # random_tree.py changes the times of all
	local f
	while read -r f; do
		case $((RANDOM % 8)) in
		0) echo x | dd of="$f" conv=notrunc status=none; touch -d @7 "$f" ;;
		1) mv "$f" "$f.moved" ;;
		2) ln "$f" "$(dirname "$f")/link$RANDOM" ;;
		3) python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.y", b"y")' "$f" ;;
		4) rm "$f"; echo new >"$f" ;;
		5) rm "$f"; mkdir "$f"; echo new >"$f/new" ;;
		6) mv "$(dirname "$f")" "$MNT/b/moved$RANDOM" || true ;;
		7) cp -a "$f" "$f.new"; mv "$f.new" "$f" ;;
		esac
	done < <(find "$MNT/b" -type f | sort | shuf -n 8 --random-source=<(yes $RANDOM))
}

# On xfs, files of the latest tick of the clock are compared.
later() { sleep 0.1 && touch "$MNT/later"; }

# Inode numbers are those of a subvolume: the same ones in several, and in snapshots of one.
subvolumes() {
	local s
	mkdir "$MNT/c"
	for s in one two; do
		btrfs -q subvolume create "$MNT/c/$s"
		seq 9 | split -l 1 - "$MNT/c/$s/"
	done
	btrfs -q subvolume snapshot "$MNT/c/one" "$MNT/c/older"
	chmod 711 "$MNT/c/older"
	echo 8 | tee "$MNT/c/one/aa" >"$MNT/c/one/more"
	sync -f "$MNT"
}

change_subvolumes() { # ROUND
	case $1 in
	1) echo x >>"$MNT/c/two/ab" && btrfs -q subvolume snapshot "$MNT/c/two" "$MNT/c/two/inside" ;;
	2) rm -r "$MNT/c/one" && mv "$MNT/c/older" "$MNT/c/one" ;;
	3) mkdir "$MNT/c/one/d" && mv "$MNT/c/one/ac" "$MNT/c/one/d" && ln "$MNT/c/one/ad" "$MNT/c/one/d/l" ;;
	esac
}

random() { # FS
	local seed round
	case $1 in
	ext4) volume_mounted ext4 96 180 -- --log-size 64M -- ;;
	xfs) volume_mounted xfs 310 420 -m reflink=1 -- --log-size 96M -- ;;
	btrfs) volume_mounted btrfs 400 600 -- --log-size 128M -- ;;
	esac
	for seed in $(seeds 2); do
		echo "SEEDS=$seed"
		RANDOM=$seed
		rm -rf "$MNT"/[abc]
		mkdir "$MNT"/{a,b}
		[ "$1" != btrfs ] || subvolumes
		"$BATS_TEST_DIRNAME/random_tree.py" "$seed" 120 "$MNT/a" "$MNT/b"
		later
		cow commit vol
		for round in 1 2 3; do
			"$BATS_TEST_DIRNAME/random_tree.py" $((seed * 100 + round)) $((round * 15)) "$MNT/a"
			change_some 2>/dev/null || true
			[ "$1" != btrfs ] || change_subvolumes $round
			dry_run some
			compared_in_full
			diff "$T/some.list" "$T/full.list"
			[ "$(jq '.changes | length' "$T/some")" -gt 3 ]
			[ "$(jq .unchanged "$T/some")" -le "$(jq .unchanged "$T/full")" ]
			[ "$1$round" != btrfs2 ] || jq -e --arg f "$MNT/c/one" 'any(.changes[]; .path == $f and .action == "replace")' "$T/some" >/dev/null
			[ $round = 3 ] || [ "$1" = btrfs ] || cow commit "$MNT/a/f$((seed % 5))"
		done
		cow revert --yes "$MNT"/[abc]
		compared_in_full
		[ "$(cat "$T/full.list")" = '[]' ]
	done
}

@test "random trees: the list by blocks is that of a full comparison, ext4" { random ext4; }
@test "random trees: the same, xfs" { random xfs; }
@test "random trees: the same, btrfs, with subvolumes" { random btrfs; }

# Writes to a file of an xfs through a handle, which sets no times: as a second change in one tick of the clock.
write_timeless() {
	python3 - "$@" <<-'EOF'
		import ctypes, fcntl, os, struct, sys
		fd, handle, length = os.open(sys.argv[1], os.O_RDWR), ctypes.create_string_buffer(64), ctypes.c_uint32(64)
		fcntl.ioctl(fd, 0xC038586A, struct.pack("=IxxxxQIxxxxQIxxxxQQ", fd, 0, 0, 0, 0, ctypes.addressof(handle), ctypes.addressof(length)))
		fd = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
		fd = ctypes.CDLL(None).ioctl(fd, ctypes.c_ulong(0xC038586B),
			struct.pack("=IxxxxQIxxxxQIxxxxQQ", fd, 0, os.O_RDWR, ctypes.addressof(handle), length.value, 0, 0))
		os.pwrite(fd, sys.argv[2].encode(), 0)
	EOF
}

@test "files of xfs that change twice in one tick of the clock come back" {
	local was
	volume_mounted xfs 310 420 -- --log-size 96M --
	mkdir "$MNT/d"
	seq 1000 >"$MNT/d/a"
	cow commit vol
	was=$(stat -c %Z.%z "$MNT/d/a")
	write_timeless "$MNT/d/a" x
	[ "$(stat -c %Z.%z "$MNT/d/a"):$(head -c 1 "$MNT/d/a")" = "$was:x" ]
	answer=$(cow revert --yes --json "$MNT/d")
	jq -e '.replaced == 1' <<<"$answer"
	seq 1000 | cmp - "$MNT/d/a"
}

@test "what did not change is not looked at" {
	local before fs
	for fs in ext4 xfs; do
		if [ $fs = ext4 ]; then
			volume_mounted ext4 310 420 -N 30000 -- --log-size 64M --
		else
			volume_mounted xfs 310 420 -- --log-size 64M --
		fi
		mkdir "$MNT/d"
		random_file "$MNT/d/big" 64
		(cd "$MNT/d" && seq 2000 | xargs touch)
		echo 1 >"$MNT/d/f"
		later
		cow commit vol
		umount_volume
		mount_volume
		echo 2 >"$MNT/d/f"
		before=$(card_read)
		answer=$(cow revert --yes --json "$MNT/d")
		tee "$T/json" <<<"$answer"
		jq -e '.replaced == 1 and .unchanged < 20' "$T/json"
		(($(card_read) - before < 32 << 20))
		[ "$(cat "$MNT/d/f")" = 1 ]
		detach
		loop_down "$CARD"
		rm "$IMG"
	done
}

@test "a hard link of a file whose folder was renamed comes back, too" {
	volume_mounted ext4 60 120
	mkdir "$MNT"/{d,e}
	echo 1 >"$MNT/d/f"
	ln "$MNT/d/f" "$MNT/e/f"
	later
	cow commit vol
	umount_volume
	mount_volume
	mv "$MNT/d" "$MNT/e/d"
	cow revert --yes "$MNT"/{d,e}
	[ "$MNT/d/f" -ef "$MNT/e/f" ] && [ ! -e "$MNT/e/d" ]
}

@test "blocks that files share stay shared, and three names of 50 MiB come back into 75" {
	volume_mounted xfs 310 420 -m reflink=1 -- --log-size 96M --
	mkdir "$MNT/d"
	random_file "$MNT/fill" $(($(df -m --output=avail "$MNT" | tail -1) - 75))
	random_file "$MNT/d/1" 50
	echo tail >>"$MNT/d/1"
	cp --reflink=always "$MNT/d/1" "$MNT/d/2"
	cp --reflink=always "$MNT/d/1" "$MNT/d/3"
	cat "$MNT"/d/* | cksum >"$T/was"
	cow commit vol
	rm "$MNT"/d/*
	sync -f "$MNT"
	cow revert --yes "$MNT/d"
	cat "$MNT"/d/* | cksum | cmp - "$T/was"
	(($(filefrag -v "$MNT"/d/* | grep -c shared) >= 3))
	detach_whole xfs
}

@test "without a terminal it asks nobody; a terminal is asked" {
	volume ext4
	echo x >>"$MNT/d/a"
	fails 2 'add --yes' revert "$MNT/d/a"
	fails 2 'add --yes' revert --json "$MNT/d/a"
	run -1 timeout 300 script -qec "$COWFS_BUILD/cowctl revert $MNT/d/a" /dev/null <<<n
	[[ $output == *"[y/N]"*"nothing was reverted"* ]]
	run ! same
	run -0 timeout 300 script -qec "$COWFS_BUILD/cowctl revert $MNT/d/a" /dev/null <<<y
	grep -qx hi "$MNT/d/a"
	grep -qx x "$MNT/d/a2"
}

@test "open files are named, hard links elsewhere too" {
	volume ext4
	ln "$MNT/d/big" "$MNT/elsewhere"
	echo x >>"$MNT/d/big"
	echo y >"$MNT/d/e/new"
	background tail -f "$MNT/d/e/new"
	wait_for 10 test "$MNT/d/e/new" -ef "/proc/$BG/fd/3"
	run -0 cow revert --dry-run "$MNT/d"
	[[ $output == *"open        $MNT/d/e/new by tail[$BG]"* ]]
	[[ $output == *"hard link   $MNT/d/big has 1 more name, which keeps"* ]]
	run -0 cow revert --yes "$MNT/d"
	same
	[ "$(tail -c 2 "$MNT/elsewhere")" = x ]
}

@test "what cannot be reverted is refused with a sentence" {
	volume ext4
	fails 2 'name the files' revert --yes vol
	fails 2 'usage: ' revert --yes
	fails 2 'exists neither now nor in generation [0-9]' revert --yes vol "$MNT/nothing"
	fails 4 'no volume is attached' revert --yes "$T/was/d"
	fails 2 'does not lie on volume vol' revert --yes vol "$T/was/d"
	fails 2 'too long' revert --yes vol "$MNT/$(printf 'x%.0s' {1..4096})"
	fails 2 'has \.\.' revert --yes vol "$MNT/gone/../d"
	mkdir "$MNT/other"
	mount -t tmpfs tmpfs "$MNT/other"
	touch "$MNT/other/x"
	fails 2 'does not lie on volume' revert --yes vol "$MNT/other/x"
	umount "$MNT/other"
	# a link that is named is reverted itself, a folder behind one is followed; relative; with a line end
	ln -sfn /etc/shadow "$MNT/d/link"
	ln -s d "$MNT/way"
	echo x >"$MNT/d/"$'new\nline'
	echo x >>"$MNT/d/big"
	(cd "$MNT" && cow revert --yes ./way/big way/link way/$'new\nline' >"$T/out")
	grep -qF 'new?line' "$T/out"
	cmp "$MNT/d/big" "$T/was/d/big"
	[ "$(readlink "$MNT/d/link")" = /etc/passwd ]
	[ ! -s "$MNT/d/"$'new\nline' ]
	# several, one inside the other
	echo x >>"$MNT/d/big"
	run -0 cow revert --yes "$MNT/d/big" "$MNT/d" "$MNT/d/"
	same
	mount -o remount,ro "$MNT"
	fails 1 'mounted read-only' revert --yes --json "$MNT/d"
}

@test "a user who owns the folder cannot lead a revert elsewhere" {
	local i
	volume ext4
	mkdir "$MNT/secret" "$MNT/u"
	chmod 700 "$MNT/secret"
	echo s >"$MNT/secret/x"
	mkdir -p "$MNT/u/e"
	for i in {1..9}; do echo "$i" >"$MNT/u/e/$i"; done
	chown -R 1000 "$MNT/u"
	cow commit vol
	background setpriv --reuid 1000 --clear-groups timeout 900 sh -c 'cd "$1" && while :; do
			mv -T e o; ln -s ../secret e; rm -f e; mkdir e; for i in 1 2 3 4 5 x; do ln -sf ../../secret/x e/$i; done
			for s in .cowfs-*; do mv -T "$s" away; ln -s ../secret "$s"; rmdir away; rm -f "$s"; done
			rm -rf e; mv -T o e; echo y >e/5; done 2>/dev/null' sh "$MNT/u"
	for ((i = 0; i < 10; i++)); do
		cow revert --yes "$MNT/u/e" >/dev/null 2>&1 || true
	done
	kill "$BG"
	[ "$(find "$MNT/secret" -printf '%P %U %m\n' | sort | xargs)" = "0 700 x 0 644" ]
	[ "$(cat "$MNT/secret/x")" = s ]
}

@test "what comes into a folder between the check and the revert is kept, with the folder" {
	volume ext4
	rm "$MNT/d/a2"
	mkdir -p "$MNT/d/a2/deep"
	asked 'echo new >"$MNT/d/a2/deep/new"' revert "$MNT/d/a2"
	[[ $output == *"d/a2: has changed meanwhile"* ]]
	[ "$(cat "$MNT/d/a2/deep/new")" = new ]
	cow revert --yes "$MNT/d" >/dev/null
	same
}

@test "interrupted: each file whole, nothing temporary, no view stays" {
	local i
	volume ext4
	for i in {1..6}; do random_file "$MNT/d/r$i" 8; done
	cow commit vol
	for i in {1..6}; do echo "$i" >"$MNT/d/r$i"; done
	for i in 1 3 6 9; do
		"$COWFS_BUILD/cowctl" revert --yes "$MNT/d" >/dev/null 2>&1 &
		sleep 0.0$i
		kill -INT $! 2>/dev/null || true
		wait $! || true
		for f in "$MNT"/d/r?; do
			[ "$(stat -c %s "$f")" = 8388608 ] || [ "$(stat -c %s "$f")" = 2 ]
		done
		[ -z "$(find "$MNT" -name '.cowfs-*')" ]
	done
	cow revert --yes "$MNT/d"
	[ "$(stat -c %s "$MNT/d/r1")" = 8388608 ]
	detach
}

# RENAME_EXCHANGE of A and B as nobody, COUNT times (0: until killed)
exchange() {
	exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c '
import ctypes, sys
libc, n = ctypes.CDLL(None, use_errno=True), int(sys.argv[3])
while True:
    if libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2) < 0 and ctypes.get_errno() != 2:
        sys.exit("renameat2: %d" % ctypes.get_errno())
    n -= 1
    if n == 0:
        break
' "$@"
}

# a folder of nobody that has one of his own and one of root's, both committed; descriptor 9 is root's, and stays
homes() {
	volume_mounted ext4 100 150
	mkdir -p "$MNT"/home/{his,roots}
	echo his >"$MNT/home/his/file"
	echo secret >"$MNT/home/roots/file"
	chown -R nobody "$MNT/home"
	chown -R root "$MNT/home/roots"
	chmod 700 "$MNT/home/roots"
	cow commit vol
	exec 9<"$MNT/home/roots"
}

roots_is_roots() { [ "$(stat -L -c %u:%a /proc/$$/fd/9)" = 0:700 ] || { stat -L /proc/$$/fd/9; return 1; }; }

@test "folders that a user exchanges never get his owner and mode" {
	local i
	homes
	# before the check: each name gets the folder that was committed there
	(exchange "$MNT/home/his" "$MNT/home/roots" 1)
	cow revert --yes "$MNT/home"
	roots_is_roots
	[ "$(stat -c %U:%a "$MNT/home/his"):$(cat "$MNT/home/his/file")" = nobody:755:his ]
	[ "$(stat -c %U:%a "$MNT/home/roots"):$(cat "$MNT/home/roots/file")" = root:700:secret ]
	exec 9<"$MNT/home/roots"
	# one of them alone: no file of his is put into root's folder
	as_nobody rm "$MNT/home/his/file"
	(exchange "$MNT/home/his" "$MNT/home/roots" 1)
	warns "home/his: is another folder than at the last commit" revert --yes "$MNT/home/his/file"
	[ "$(cat /proc/$$/fd/9/file)" = secret ]
	(exchange "$MNT/home/his" "$MNT/home/roots" 1)
	# at any time
	background exchange "$MNT/home/his" "$MNT/home/roots" 0
	for ((i = 0; i < 15; i++)); do
		as_nobody touch "$MNT/home/his/new" "$MNT/home/roots/new" 2>/dev/null || true
		cow revert --yes "$MNT/home" >/dev/null 2>&1 || true
		roots_is_roots
	done
	kill "$BG"
	wait "$BG" || true
	cow revert --yes "$MNT/home" >/dev/null
	[ "$(stat -c %U:%a "$MNT/home/roots"):$(cat "$MNT/home/roots/file")" = root:700:secret ]
	[ -z "$(find "$MNT" -name '.cowfs-*')" ]
	exec 9<&-
}

@test "two folders that change names between any two steps keep owner and mode" {
	local n
	homes
	for ((n = 1; n < 400; n++)); do
		as_nobody touch "$MNT/home/his/new"
		swapped_at $n "$MNT/home/his" "$MNT/home/roots" revert --yes "$MNT/home" || break
		roots_is_roots
		cow revert --yes "$MNT/home" >/dev/null
		[ "$(stat -c %U:%a "$MNT/home/roots"):$(cat "$MNT/home/roots/file")" = root:700:secret ]
		exec 9<"$MNT/home/roots"
	done
	[ $n -gt 30 ]
	[ $n -lt 400 ]
	exec 9<&-
}

@test "leases of a user are named and not waited for" {
	local i
	homes
	for i in {1..30}; do
		echo committed >"$MNT/home/his/$i"
	done
	chown nobody "$MNT"/home/his/*
	cow commit vol
	for i in {1..30}; do
		echo "now" >"$MNT/home/his/$i"
	done
	background setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c '
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = [os.open(p, os.O_RDWR) for p in sys.argv[2:]]
for f in files:
    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open(sys.argv[1], "w").close()
time.sleep(300)' /dev/null "$MNT"/home/his/{1..20}
	wait_for 10 eval '[ "$(grep -c "LEASE.* $BG " /proc/locks)" = 20 ]'
	# the kernel would wait for 45 s
	COW_LIMIT=40 warns "home/his/7: process $BG of user 65534 holds a lease on it" revert --yes "$MNT/home"
	[ "$(cat "$MNT/home/his/25")" = committed ]
	kill "$BG"
	wait "$BG" || true
	cow revert --yes "$MNT/home"
	[ "$(cat "$MNT"/home/his/{1..30} | sort -u)" = committed ]
	exec 9<&-
}

@test "folders of root with equal owner and mode, exchanged by a user, keep what is in them" {
	homes
	mkdir -p "$MNT"/home/{one,two}/sub
	chown nobody "$MNT/home/one/sub"
	chmod 700 "$MNT/home/two/sub"
	echo secret >"$MNT/home/two/sub/file"
	cow commit vol
	exec 9<"$MNT/home/two/sub"
	(exchange "$MNT/home/one" "$MNT/home/two" 1)
	cow revert --yes "$MNT/home"
	roots_is_roots
	[ "$(stat -c %U:%a "$MNT/home/one/sub" "$MNT/home/two/sub" | xargs)" = "nobody:755 root:700" ]
	[ "$(cat "$MNT/home/two/sub/file")" = secret ]
	exec 9<&-
}

@test "a folder that belonged to a user for a while is not believed to have its own folders" {
	homes
	chown root "$MNT/home"
	cow commit vol
	chown nobody "$MNT/home"
	(exchange "$MNT/home/his" "$MNT/home/roots" 1)
	cow revert --yes "$MNT/home"
	roots_is_roots
	[ "$(stat -c %U:%a "$MNT/home" "$MNT/home/his" "$MNT/home/roots" | xargs)" = "root:755 nobody:755 root:700" ]
	exec 9<"$MNT/home/roots"
	# the same, and root has taken it back before
	chown nobody "$MNT/home"
	cow commit vol
	(exchange "$MNT/home/his" "$MNT/home/roots" 1)
	chown root "$MNT/home"
	cow revert --yes "$MNT/home/his" "$MNT/home/roots"
	roots_is_roots
	exec 9<&-
}

# a shim in front of renameat2: the owner of the folder acts at the moment of the exchange, and of that back
@test "what a user puts into the place during an exchange is neither removed nor changed" {
	homes
	mkdir "$MNT/home/victim"
	chmod 700 "$MNT/home/victim"
	echo keep >"$MNT/home/victim/file"
	echo other >"$MNT/home/other"
	echo old >"$MNT/home/z"
	cow commit vol
	echo now >"$MNT/home/z"
	cat >"$T/shim.c" <<-'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <string.h>
		int renameat2(int a, const char *x, int b, const char *y, unsigned flags)
		{
			int (*real)(int, const char *, int, const char *, unsigned) = dlsym(RTLD_NEXT, "renameat2");
			static int calls;
			if (flags == 2 && !strcmp(y, "z"))
				real(b, "z", b, calls++ ? "victim" : "other", 2);
			return real(a, x, b, y, flags);
		}
	END
	cc -shared -fPIC -o "$T/shim.so" "$T/shim.c" -ldl
	run -1 --separate-stderr env LD_PRELOAD="$T/shim.so" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" \
		"$COWFS_BUILD/cowctl" revert --yes "$MNT/home/z"
	[[ $stderr == *"home/z: what came there meanwhile is kept in .cowfs-"*"/0 ("* ]]
	[ "$(cat "$MNT"/home/.cowfs-*/0/file)" = keep ]
	[ "$(stat -c %u:%a "$MNT"/home/.cowfs-*/0)" = 0:700 ]
	[ "$(cat "$MNT"/home/{z,other,victim} | sort | xargs)" = "now old other" ]
	exec 9<&-
}
