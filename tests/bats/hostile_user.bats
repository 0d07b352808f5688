#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What an ordinary user tries (as nobody): FUSE mounts that claim to be the volume, writes that never end. And what is left when
# something dies or fails.
# seconds: 45

load lib
load hold

setup() { hold_setup; }
teardown() { hold_teardown; }

protect() {
	card_prepared "${1:-ext4}" "${2:-200}" "${3:-250}"
	"${ATTACH:-attach}"
	mount_volume
	chmod 1777 "$MNT"
}

# A FUSE mount of nobody's on folder $1 that says it is $2.
fake() {
	background "$COWFS_BUILD/tests/fusehang" mount "$1" "$2" >"$T/ready"
	wait_for 10 grep -q ready "$T/ready"
	grep -q " $1 .* - fuse $2 " /proc/self/mountinfo
}

# ---- mounts ----

@test "a FUSE mount that calls itself by the volume's loop device: commit, umount and detach go by device numbers" {
	volume_attached ext4 100 150
	mkdir "$T/fake" "$T/fake2"
	fake "$T/fake" "$DEV"
	mount_volume
	fake "$T/fake2" "$DEV"
	echo one >"$MNT/one"
	run -0 cow commit --json
	jq -e '.quiesce | .mounted and .instant' <<<"$output"
	[ "$(status_of .mountpoint)" = "$MNT" ]
	echo two >"$MNT/two"
	# what looks like a volume is not unmounted either, and nothing was done is said
	run -32 "$COWFS_BUILD/umount.cowfs" "$T/fake"
	[[ $output == *"is not mounted"* ]]
	run -0 "$COWFS_BUILD/umount.cowfs" "$MNT"
	[[ $output != *"stays attached"* ]]
	wait_for 20 no_daemons
	fsck ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/one" "$MNT/two")" = $'one\ntwo' ]
	umount "$MNT"
	umount "$T/fake" "$T/fake2"
}

@test "a FUSE mount over the volume's own root: commits go on" {
	protect
	chown nobody "$MNT"
	echo one >"$MNT/one"
	fake "$MNT" "$DEV"
	run -0 cow commit --json
	jq -e '.quiesce | .mounted and .instant' <<<"$output"
	# a detach that does not happen says so
	fails 1 'is (mounted|in use)' detach
	run -32 "$COWFS_BUILD/umount.cowfs" "$MNT"
	umount "$MNT"
	[ "$(cat "$MNT/one")" = one ]
	detach_whole ext4
}

@test "a bind mount of a file is left when the volume is unmounted: commits go on" {
	protect
	echo one >"$MNT/a file"
	touch "$T/left"
	mount --bind "$MNT/a file" "$T/left"
	umount_volume
	echo two >>"$T/left"
	run -0 cow commit --json
	jq -e '.quiesce | .mounted and .instant' <<<"$output"
	fails 1 "is mounted on $T/left" detach
	power_cut_left
	attach_mounted
	[ "$(cat "$MNT/a file")" = $'one\ntwo' ]
	detach_whole ext4
}

power_cut_left() {
	kill_worker
	umount "$T/left"
	loop_removed
}

@test "a user keeps a copy of the mount in a namespace of his own: commits go on, and the process is named" {
	local fs keeper
	for fs in ext4 xfs btrfs; do
		command -v "mkfs.$fs" || continue
		if [ "$fs" = ext4 ]; then protect; else protect "$fs" 320 400; fi
		background setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Urm --propagation private sleep 1000
		keeper=$BG
		wait_for 20 grep -qs "^sleep" "/proc/$keeper/comm"
		[ "$(stat -c %u "/proc/$keeper")" = 65534 ]
		grep -q " $MNT " "/proc/$keeper/mountinfo"
		echo one >"$MNT/one"
		umount_volume
		run -0 cow commit --json
		jq -e '.quiesce | .mounted and .instant and .hidden' <<<"$output"
		# the numbers of btrfs are its own
		[ "$fs" = btrfs ] || jq -e --arg holder "sleep[$keeper]" '.quiesce.holder == $holder' <<<"$output"
		# mounted again it is the same file system
		mount_volume
		[ "$(cat "$MNT/one")" = one ]
		echo two >"$MNT/two"
		umount_volume
		run -0 --separate-stderr cow shutdown --json
		jq -e '.ok and (.quiesce | .instant and .hidden)' <<<"$output"
		fails 1 "is in use by .*: stop that first" detach
		[ "$fs" = btrfs ] || [[ $stderr == *"by sleep[$keeper]:"* ]]
		kill "$keeper"
		wait "$keeper" || true
		wait_for 20 cow detach "$NAME"
		wait_for 20 no_daemons
		fsck "$fs"
		mount -o ro "$CARD" "$MNT"
		[ "$(cat "$MNT/one" "$MNT/two")" = $'one\ntwo' ]
		umount "$MNT"
		loop_down "$CARD"
		IMG=''
	done
}

@test "a FUSE mount that does not answer, above the mount point: neither commit nor status waits for it" {
	local above=$T/above fs
	for fs in ext4 btrfs; do
		command -v "mkfs.$fs" || continue
		mkdir -p "$above/mnt"
		MNT=$above/mnt
		if [ "$fs" = ext4 ]; then protect; else protect "$fs" 320 400; fi
		echo one >"$MNT/one"
		# everybody may use it, so root would ask it what is in it
		background "$COWFS_BUILD/tests/fusehang" mount "$above" theirs 65534 >"$T/ready"
		wait_for 10 grep -q ready "$T/ready"
		kill -STOP "$BG"
		run -0 cow commit --json
		jq -e '.quiesce | .mounted and .instant' <<<"$output"
		run -0 cow status
		kill -CONT "$BG"
		umount "$above"
		wait "$BG"
		echo two >"$MNT/two"
		detach_whole "$fs"
		loop_down "$CARD"
		IMG=''
	done
}

# ---- writes that do not end ----

@test "commit and shutdown beside a write that never ends: whole after a power cut, without a replay by a driver" {
	local how
	protect
	mkdir "$MNT/d"
	for how in commit shutdown; do
		rm -f "$T/synced"
		cow commit
		background stress
		wait_for 30 test -s "$T/synced"
		hold "$MNT/hostile-$how" write
		cp "$T/synced" "$T/before"
		run -0 cow $how
		[ "$(status_of .last.quiesce.instant)" = true ]
		kill -9 "$(worker_pid)"
		let_go || true
		kill "$BG" 2>/dev/null || true
		power_cut_held
		whole "$T/before"
		attach_mounted
	done
	cow commit
	[ "$(status_of .last.quiesce.instant)" = true ]
	detach_whole ext4
}

# Small files, each on stable storage when its name is in the list.
stress() {
	exec python3 - "$MNT/d" "$T/synced" <<-'END'
	import os, sys, hashlib
	n = 0
	while True:
	    name, data = f"{n}-{os.getpid()}", os.urandom(100 + n * 977 % 30000)
	    for path in (f"{sys.argv[1]}/{name}", f"{sys.argv[1]}/churn{n % 20}"):
	        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
	        os.write(fd, data)
	        os.fsync(fd)
	        os.close(fd)
	    dirfd = os.open(sys.argv[1], os.O_RDONLY)
	    os.fsync(dirfd)
	    os.close(dirfd)
	    with open(sys.argv[2], "a") as f:
	        f.write(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
	    n += 1
	END
}

# Nothing is left to replay; what was in the list is there.
whole() {
	attach
	run ! grep needs_recovery <(dumpe2fs -h "$DEV" 2>/dev/null)
	e2fsck -fn "$DEV"
	mount_volume
	(cd "$MNT/d" && sha256sum --quiet -c "$1")
	umount_volume
	fsck ext4 "$DEV"
	cow detach "$NAME" --discard
	wait_for 20 no_daemons
}

power_cut_held() {
	wait_for 20 no_daemons
	wait_for 10 timeout 300 umount "$MNT" # a writer may still be ending
	loop_removed
}

# ---- what is left ----

@test "a daemon that died: status cleans up after it, events reports it" {
	protect
	echo one >"$MNT/one"
	kill_worker
	run -0 cow status --follow --once
	[[ $output == "$NAME died its daemon died: uncommitted changes are lost, generation "*" or a newer one is on the card; $DEV returns I/O errors and is still mounted on $MNT"* ]]
	run -0 setpriv --reuid 65534 --regid 65534 --clear-groups "$COWFS_BUILD/cowctl" status --follow --once
	[[ $output == "$NAME died "* ]]
	run -0 without_devices "$COWFS_BUILD/cowctl" status --follow --once
	[[ $output == *"$DEV returns I/O errors and is still mounted on $MNT: unmount it"*"; $CARD is still read-only: "* ]]
	# it is in use: nothing is touched
	run -4 --separate-stderr cow status "$NAME"
	[[ $stderr == *"$DEV returns I/O errors and is still mounted on $MNT: unmount it"* ]]
	[ -d "$COWFS_RUNDIR/$NAME" ]
	timeout 300 umount "$MNT"
	run -4 --separate-stderr cow status
	[[ $stderr == *"$DEV is detached now; $CARD is still read-only: cowctl attach, or blockdev --setrw"* ]]
	wait_for 20 volume_gone "$DEV"
	[ ! -e "$COWFS_RUNDIR/$OWN_NAME" ]
	run -0 cow status --follow --once
	[ "$output" = "" ]
	# attach does the same, and a number that belongs to somebody else is left alone
	attach
	# the first screen's command may be copied, whatever the label is under which a desktop has mounted it
	mkdir "$T/x'; touch ran #"
	mount "$DEV" "$T/x'; touch ran #"
	kill_worker
	run -3 cow
	(cd "$T" && eval "$(sed -n 's/^  \(umount .*\) it returns errors$/\1/p' <<<"$output")")
	[ ! -e "$T/ran" ]
	run ! mountpoint -q "$T/x'; touch ran #"
	run -0 --separate-stderr cow attach "$CARD" --name again
	[[ $stderr == *"volume $NAME: its daemon died"*"$DEV is detached now"* ]]
	DEV=$output NAME=again
	is_volume
	[ ! -e "$COWFS_RUNDIR/$OWN_NAME" ]
	detach
}

@test "a card that stays writable after a commit raises an alarm until it is read-only again" {
	card_prepared ext4 100 150
	shim_mounted
	echo one >"$MNT/one"
	eio lock 0 1000
	run -0 cow commit
	run -3 cow status
	[[ $output == *"$CARD: cannot be set read-only after a commit"* ]]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	alarmed() { answer=$(cow status --follow --once) && grep -q "^$NAME alarm $CARD: cannot be set read-only" <<<"$answer"; }
	wait_for 5 alarmed
	eio off
	commit_word two
	[ "$(blockdev --getro "$CARD")" = 1 ]
	[ "$(status_of .alarm)" = "" ]
	detach_whole ext4
}

@test "an attach while the wall clock is set: nothing waits by it" {
	card_prepared ext4 100 150
	for _ in 1 2 3 4 5; do
		COWFS_CLOCK_BACK=1 with_shim attach
		detach
	done
}

@test "a file that root writes does not go where the link of another user leads" {
	protect
	mkdir "$T/home" "$T/etc"
	chown nobody "$T/home"
	setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../etc "$T/home/dir"
	fails 1 "$T/home/dir is a symbolic link, and user 65534 controls it" wear --html "$T/home/dir/page.html"
	[ -z "$(ls "$T/etc")" ]
	cow wear --html "$T/home/page.html"
	# a link at the end is replaced
	setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../etc/page "$T/home/link"
	cow wear --html "$T/home/link"
	[ -f "$T/home/link" ]
	[ ! -L "$T/home/link" ]
	[ -z "$(ls "$T/etc")" ]
	detach
}

@test "files in a folder of another user: no link of his is followed, and no lease of his is waited for" {
	local command
	card_make ext4 60 100
	mkdir "$T/his" "$T/roots"
	chmod 755 "$T"
	cp "$IMG" "$T/his/leased"
	echo precious >"$T/roots/file"
	ln -s "$IMG" "$T/his/card"
	ln -s "$T/roots/file" "$T/his/trace"
	chown -h nobody "$T/his" "$T/his"/*
	his() { fails 1 "his/$1 is a symbolic link, and user 65534 controls it: name the place" "${@:2}"; }
	for command in check prepare release; do
		his card "$command" "$T/his/card"
	done
	cow prepare "$CARD"
	ln -sf "$CARD" "$T/his/card"
	ln -s "$CARD" "$T/his/log"
	chown -h nobody "$T/his/card" "$T/his/log"
	his card attach "$T/his/card"
	his log attach "$CARD" --log "$T/his/log"
	run -1 "$COWFS_BUILD/cowfs" "$T/his/card"
	[[ $output == *"his/card is a symbolic link, and user 65534 controls it"* ]]
	run -1 "$COWFS_BUILD/cowfs" --log="$T/his/log" "$CARD"
	[[ $output == *"his/log is a symbolic link, and user 65534 controls it"* ]]
	no_daemons
	his card measure --tables all --size 1M "$T/his/card"
	ln -s "$T/roots" "$T/his/folder"
	chown -h nobody "$T/his/folder"
	his folder measure --tables all --size 1M "$T/his/folder"
	his card measure --write-area all "$T/his/card"
	rm "$T/his/folder"
	mkdir "$T/sim"
	"$COWFS_BUILD/cowfs-cardsim" --trace "$T/his/trace" kingston-266x-32g 64M "$T/sim" >/dev/null
	"$COWFS_BUILD/cowfs-cardsim" stop "$T/sim"
	[ "$(cd "$T/roots" && ls) $(cat "$T/roots/file")" = 'file precious' ]
	background setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 -c '
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, 1024, fcntl.F_WRLCK)
print("ready", flush=True)
signal.pause()' "$T/his/leased" >"$T/lease"
	wait_for 10 grep -q ready "$T/lease"
	for command in check prepare release; do
		soon 4 fails 1 "his/leased: process $BG of user 65534 holds a lease on it" "$command" "$T/his/leased"
	done
}

@test "a FUSE mount of a user that says everything in it is root's, and a medium mounted nosuid: no link of theirs is followed" {
	protect
	mkdir "$T/his" "$T/roots" "$T/stick"
	chmod 755 "$T"
	chown nobody "$T/his"
	background "$COWFS_BUILD/tests/fusehang" lie "$T/his" "$T/roots" >"$T/ready"
	wait_for 10 grep -q ready "$T/ready"
	[ "$(stat -c '%u %F' "$T/his/link")" = '0 symbolic link' ]
	liar() { fails 1 "$1/link is a symbolic link, and its file system .FUSE, or nosuid. may lie about owners" "${@:2}"; }
	liar his wear --html "$T/his/link/page.html"
	liar his view "$NAME" "$T/his/link"
	[ -z "$(ls "$T/roots")" ]
	run ! mountpoint -q "$T/roots"
	umount "$T/his"
	# as a desktop mounts it: who made it is root there
	truncate -s 16M "$T/stick.img"
	mke2fs -q -t ext4 "$T/stick.img"
	loop_up "$T/stick.img"
	mount -o nosuid,nodev "$LOOP" "$T/stick"
	ln -s "$T/roots" "$T/stick/link"
	liar stick wear --html "$T/stick/link/page.html"
	mount -o remount,suid "$T/stick"
	cow wear --html "$T/stick/link/page.html"
	[ -s "$T/roots/page.html" ]
	umount "$T/stick"
	loop_down "$LOOP"
	detach
}

@test "measure writes to the file whose content it has looked at" {
	local exchange before n
	mkdir "$T/his"
	chmod 755 "$T"
	truncate -s 64M "$T/his/empty" "$T/his/full"
	mkswap "$T/his/full" >/dev/null
	chown nobody "$T/his"
	exec 9<"$T/his/full"
	before=$(sha256sum </proc/self/fd/9)
	background setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 -c '
import ctypes, sys
libc = ctypes.CDLL(None)
while libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2) == 0:
    pass' "$T/his/empty" "$T/his/full"
	exchange=$BG
	touch "$T/out"
	looks() {
		timeout 1 "$COWFS_BUILD/cowctl" measure --write-area all "$T/his/empty" >>"$T/out" 2>&1 || true
		[ $((++n)) -ge 30 ] && grep -q 'was replaced by another file' "$T/out" && grep -q 'holds a swap area' "$T/out"
	}
	n=0
	wait_for 120 looks
	kill "$exchange"
	[ "$(sha256sum </proc/self/fd/9)" = "$before" ]
}
