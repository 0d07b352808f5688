#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl attach and the daemon: what it prints, how a volume is named and found, and that nothing is written.

load lib

@test "attach: prints the loop device, which shows only the file system's part" {
	local before
	card_prepared ext4 100 150
	before=$(card_written)
	run -0 --separate-stderr cow attach "$CARD"
	[[ $output =~ ^/dev/loop[0-9]+$ ]]
	DEV=$output NAME=${CARD#/dev/}
	[ "$(blockdev --getsize64 "$DEV")" = 104857600 ]
	[ "$(blockdev --getss "$DEV")" = 512 ]
	[ "$(blockdev --getro "$DEV")" = 0 ]
	[ "$(cat "/sys/block/${DEV#/dev/}/loop/dio")" = 1 ]
	# the card: read-only and taken
	[ "$(blockdev --getro "$CARD")" = 1 ]
	run mount "$CARD" "$MNT"
	[ "$status" -ne 0 ]
	[ "$(status_of .name)" = "$NAME" ]
	[ "$(status_of .loop)" = "$DEV" ]
	detach
	[ "$(blockdev --getro "$CARD")" = 0 ]
	[ ! -e "$COWFS_RUNDIR/$NAME" ]
	wait_for 20 volume_gone "$DEV"
	say "attach and detach without a change: $(($(card_written) - before)) bytes written"
}

@test "attach: a libfuse without custom I/O serves, and takes over" {
	local major minor rest pid sum n
	IFS=.- read -r major minor rest </proc/sys/kernel/osrelease
	[ $((major * 1000 + minor)) -ge 6009 ] || skip "a kernel before 6.9"
	replaced() { [ "$(status_of .replaced)" = "$n" ]; }
	block_sum() { dd if="$1" bs=4k count=1 skip=20000 iflag=direct status=none | sha256sum; }
	# in FAT nothing is known to be free: the block is in the commit
	card_prepared vfat 100 150
	LD_PRELOAD=$COWFS_BUILD/tests/nocustomio.so attach --on-crash replace
	dd if=/dev/urandom of="$DEV" bs=4k count=1 seek=20000 oflag=direct status=none
	sum=$(block_sum "$DEV")
	for n in 0 1; do
		wait_for 20 replaced
		pid=$(worker_pid)
		# libfuse's own descriptor of /dev/fuse, in place of the pipe
		[ "$(find "/proc/$pid/fd" -lname /dev/fuse | wc -l)" = 3 ]
		[ "$(block_sum "$DEV")" = "$sum" ]
		[ $n = 1 ] || kill -9 "$pid"
	done
	cow commit
	detach
	[ "$(block_sum "$CARD")" = "$sum" ]
}

@test "attach: the socket of a start that was killed is in nobody's way" {
	card_prepared ext4 64 128
	mkdir -p "$COWFS_RUNDIR/vol"
	python3 -c 'import os, socket, sys; os.chdir(sys.argv[1]); socket.socket(socket.AF_UNIX).bind(".control")' "$COWFS_RUNDIR/vol"
	attach
	detach
	[ ! -e "$COWFS_RUNDIR/vol" ]
}

@test "attach: an old kernel, one without FUSE, loop devices or openat2, is refused with one sentence before anything starts" {
	local before missing why=' is too old: cowfs needs 5\.9 or newer \(close_range, LOOP_CONFIGURE\)$'
	card_prepared ext4 64 128
	before=$(image_sum)
	run -1 setarch --uname-2.6 "$COWFS_BUILD/cowfs" "$CARD"
	[[ $output =~ ^cowfs:\ Linux\ 2\.6\.[^\ ]*$why ]]
	run -1 setarch --uname-2.6 "$COWFS_BUILD/cowctl" attach "$CARD"
	[[ $output =~ ^cowctl:\ Linux\ 2\.6\.[^\ ]*$why ]]
	run -1 setarch --uname-2.6 "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT"
	[[ $output =~ ^mount\.cowfs:\ Linux\ 2\.6\.[^\ ]*$why ]]
	# as RestrictSUIDSGID= of systemd does
	run -1 python3 -c 'import ctypes, os, sys; l = ctypes.CDLL("libseccomp.so.2"); l.seccomp_init.restype = ctypes.c_void_p
f = ctypes.c_void_p(l.seccomp_init(0x7fff0000)); l.seccomp_rule_add(f, 0x50026, l.seccomp_syscall_resolve_name(b"openat2"), 0); l.seccomp_load(f); os.execv(sys.argv[1], sys.argv[1:])' "$COWFS_BUILD/cowfs" "$CARD"
	[[ $output == "cowfs: openat2, with which mounts are found, is refused here: "* ]]
	for missing in fuse loop-control; do
		rm -rf "${T:?}/dev"
		mkdir "$T/dev"
		cp -a /dev/null /dev/fuse /dev/loop-control "$CARD" "$T/dev"
		rm "$T/dev/$missing"
		run -1 unshare --mount sh -c 'mount --bind "$1" /dev && exec "$2" attach "$3"' sh "$T/dev" "$COWFS_BUILD/cowctl" "$CARD"
		[[ $output =~ ^cowctl:\ the\ kernel\ has\ no\ .*\(/dev/$missing\):\ run\ modprobe\ ${missing%-control}$ ]]
	done
	[ ! -e "$COWFS_RUNDIR/${CARD#/dev/}" ]
	[ "$(image_sum)" = "$before" ]
}

@test "attach: nothing is written before the first commit; then the kernel counts what cowfs counts" {
	local before ours
	card_prepared ext4 100 150
	loop_down "$CARD"
	card_loop
	before=$(card_written) # a loop device keeps its counter
	attach_mounted
	random_file "$MNT/a" 10
	sync "$MNT/a"
	rm "$MNT/a"
	random_file "$MNT/b" 10
	fstrim "$MNT"
	sync -f "$MNT"
	umount_volume
	mount_volume
	[ "$(card_written)" -eq "$before" ]
	[ "$(status_of .card.written_bytes)" = 0 ]
	[ "$(status_of .card.kernel_written_bytes)" = 0 ]
	[ "$(status_of .card.write_calls)" = 0 ]
	[ "$(status_of '.absorbed_bytes > 10000000')" = true ]
	cow commit
	ours=$(status_of .card.written_bytes)
	[ "$ours" -gt 10000000 ]
	[ $(($(card_written) - before)) -eq "$ours" ]
	[ "$(status_of .card.kernel_written_bytes)" = "$ours" ]
	random_file "$MNT/b" 3
	cow commit --checkpoint
	ours=$(status_of .card.written_bytes)
	[ $(($(card_written) - before)) -eq "$ours" ]
	[ "$(status_of .lifetime.written_bytes)" = "$ours" ]
	[ "$(status_of .card.foreign_bytes)" = 0 ]
	say "card: $ours bytes in $(status_of .card.write_calls) calls by cowfs's count and by the kernel's"
	detach
}

@test "attach: --json, --name, --ram, options behind the operand" {
	card_prepared ext4 100 150
	run -0 --separate-stderr cow attach "$CARD" --json --name my.vol-1_x --ram 100M
	jq -e --arg c "$CARD" '.ok and .name == "my.vol-1_x" and .device == $c and (.loop | startswith("/dev/loop"))' <<<"$output"
	NAME=my.vol-1_x
	[ "$(status_of .ram_limit_bytes)" = 104857600 ]
	detach
	attach --ram 10%
	[ "$(status_of '.ram_limit_bytes * 10 / 1024 | round')" -ge "$(awk '/MemTotal/ { print $2 - 2000 }' /proc/meminfo)" ]
	detach
	attach
	[ "$(status_of .ram_limit_bytes)" -gt "$(awk '/MemTotal/ { printf "%d", $2 * 500 }' /proc/meminfo)" ]
}

@test "attach: names that are none" {
	local n
	card_prepared ext4 100 150
	for n in .hidden a/b 'a b' '' "$(printf 'x%.0s' {1..64})" ..; do
		fails 2 'is not a valid volume name' attach "$CARD" --name "$n"
	done
	[ ! -e "$T/b" ]
	attach --name "$(printf 'x%.0s' {1..63})"
}

@test "attach: twice, or another device under the same name" {
	local first
	volume_attached ext4 100 150 -- -- --name one
	first=$CARD
	fails 1 "$CARD is already attached as volume one" attach "$CARD" --name two
	fails 1 "already attached as volume one" attach --json "$CARD"
	ln -s "$CARD" "$T/link"
	fails 1 "already attached as volume one" attach "$T/link"
	IMG=$T/second.img
	card_prepared ext4 60 100
	fails 1 'another volume is attached as one: choose a name with --name' attach "$CARD" --name one
	# the first one did not notice
	[ "$(status_of .device)" = "$first" ]
	mount_volume
	# and the second card was let go
	[ "$(blockdev --getro "$CARD")" = 0 ]
	attach --name two
}

@test "several volumes: each is found by name, device, loop device, mount point or tag" {
	local dev1 card1 which
	volume_attached ext4 100 150 -- -- --name one
	dev1=$DEV card1=$CARD
	IMG=$T/second.img
	volume_attached ext4 60 100 -- -- --name two
	fails 2 'several volumes are attached: name one of (one, two|two, one)' commit
	fails 2 'several volumes' detach
	mount "$dev1" "$MNT"
	ln -s mnt "$T/link"
	for which in one "$dev1" "$card1" /dev/cowfs/one "$MNT" "$T/link" "UUID=$(blkid -p -s UUID -o value "$card1")"; do
		[ "$(cow status --json "$which" | jq -r .name)" = one ] || { echo "$which"; return 1; }
	done
	(cd "$MNT" && [ "$(cow status --json . | jq -r .name)" = one ])
	mount -t tmpfs none "$MNT" # over it
	fails 4 'no volume is attached as .*mnt' status "$MNT"
	umount "$MNT"
	umount "$MNT"
	fails 4 'no volume is attached as .*mnt' status "$MNT"
	fails 1 'no device has UUID=0000' status UUID=0000
	# all of them, one after another
	[ "$(cow status --json | jq -r .name | sort | xargs)" = "one two" ]
	[ "$(cow status | grep -c '^volume ')" = 2 ]
	cd /dev
	[ "$(cow status --json "${dev1#/dev/}" | jq -r .name)" = one ]
	cd /
	[ "$(cow status --json "$DEV" | jq -r .name)" = two ]
	fails 4 'no volume is attached as three' status three
	cow detach one
	# one is left: no name needed
	[ "$(cow status --json | jq -r .name)" = two ]
}

@test "several volumes: the backing file has the name of the volume, so btrfs tools do not take one volume for another" {
	local dev1
	volume_attached btrfs 120 160 -- -- --name one
	dev1=$DEV
	IMG=$T/second.img
	volume_attached btrfs 120 160 -- -- --name two
	[ "$(losetup -n -O BACK-FILE "$dev1")" = /cowfs:one ]
	[ "$(losetup -n -O BACK-FILE "$DEV")" = /cowfs:two ]
	mount "$dev1" "$MNT"
	btrfs check --readonly "$DEV"
	mkfs.btrfs -q -f "$DEV"
	run ! mkfs.btrfs -q -f "$dev1"
	[[ $output == *"$dev1 is mounted"* ]]
	umount "$MNT"
	cow detach --discard two
	cow detach one
}

@test "attach: the daemon by itself, in the foreground, and with --ready-fd" {
	card_prepared ext4 100 150
	run -0 --separate-stderr timeout 300 "$COWFS_BUILD/cowfs" --name vol "$CARD"
	[[ $output =~ ^/dev/loop[0-9]+$ ]]
	NAME=vol
	detach
	background "$COWFS_BUILD/cowfs" --foreground --name vol "$CARD" >"$T/out" 2>"$T/err"
	wait_for 10 test -s "$T/out"
	grep -Eq '^/dev/loop[0-9]+$' "$T/out"
	detach
	wait "$BG"
	timeout 300 "$COWFS_BUILD/cowfs" --ready-fd 5 "$CARD" 5>"$T/ready"
	wait_for 10 test -s "$T/ready"
	jq -e '.ok and (.loop | startswith("/dev/loop"))' "$T/ready"
	NAME=$(basename "$CARD")
	detach
	run -1 --separate-stderr timeout 300 "$COWFS_BUILD/cowfs" /dev/null
	[[ $stderr == *"not a block device"* ]] && [ -z "$output" ]
}

@test "attach: the log on another device" {
	local base before
	IMG=$T/log.img
	card_make none 0 80
	local log=$CARD logimg=$IMG
	IMG=$T/base.img
	card_make ext4 100 100
	base=$CARD
	cow prepare "$base" --log "$log"
	fails 1 "no cowfs log: .*with --log" attach "$base"
	fails 1 "$base: no cowfs log \(if it is on another device: --log DEVICE\)" check "$base"
	run -0 cow check "$base" --log "$log"
	[[ $output == *"at 4.0 MiB of $log"* ]]
	fails 1 'no cowfs log' attach "$base"
	before=$(card_written "$log")
	attach --log "$log"
	[ "$(status_of .log_device)" = "$log" ]
	[ "$(blockdev --getsize64 "$DEV")" = 104857600 ]
	mount_volume
	random_file "$MNT/a" 5
	tree_sum "$MNT" >"$T/sum"
	cow commit
	[ "$(card_written "$log")" -gt "$before" ]
	[ "$(status_of '.card.foreign_bytes == 0 and .card.kernel_written_bytes == .card.written_bytes')" = true ]
	fails 1 "attached as volume vol" release "$base" --log "$log"
	power_cut
	attach_has "$(cat "$T/sum")" --log "$log"
	power_cut
	cow release "$base" --log "$log"
	IMG=$logimg
	fsck ext4 "$base"
	mount -o ro "$base" "$MNT"
	[ "$(tree_sum "$MNT")" = "$(cat "$T/sum")" ]
}

@test "attach: 64 GiB of sparse card, how much is read" {
	local before
	IMG=$T/big.img
	truncate -s 64G "$IMG"
	mke2fs -q -F -t ext4 -E nodiscard,lazy_itable_init=1 -J size=16 -i 1048576 "$IMG" 65000M
	card_loop
	cow prepare "$CARD"
	before=$(card_read)
	attach
	say "attach of 64 GiB: $((($(card_read) - before) / 1024)) KiB read"
	[ $(($(card_read) - before)) -lt $((16 << 20)) ]
	[ "$(blockdev --getsize64 "$DEV")" = $((65000 * 1048576)) ]
}

@test "attach: a log on another device belongs to one base" {
	local base log other
	card_make ext4 60 60
	base=$CARD
	IMG=$T/log.img
	card_make none 0 64
	log=$CARD
	IMG=$T/other.img
	card_make ext4 60 60
	other=$CARD
	CARD=$base
	cow prepare "$base" --log "$log"
	# never used, and used with everything at home
	fails 1 "$log: this log belongs to another file system than the one on $other" attach "$other" --log "$log"
	attach_mounted --log "$log"
	echo one >"$MNT/file"
	detach
	run -1 cow check "$other" --log "$log"
	[[ $output == *"SET ASIDE"*"it is a different one"* ]]
	fails 1 "it is a different one" release "$other" --log "$log"
	cow release "$base" --log "$log"
	fails 1 "$log: this log belongs to another file system than the one on $other" attach "$other" --log "$log"
	fails 1 "$log: this log belongs to another file system than the one on $other" release "$other" --log "$log"
	# a uuid that was changed in the volume is known, before and after it is at home
	attach --log "$log"
	e2fsck -fp "$DEV"
	tune2fs -U random "$DEV"
	cow commit
	power_cut
	attach --log "$log"
	detach
	cow release "$base" --log "$log"
	attach --log "$log"
	detach
	# and the way out
	cow prepare --force "$other" --log "$log"
	CARD=$other
	attach --log "$log"
	detach
}

@test "a loop device has its own limits again behind a volume, for whoever gets it next" {
	local queue got='' limits='1024 100 640' tries=0
	set_requests() { echo 100 >"$queue/nr_requests"; }
	volume_attached ext4 64 128
	queue=/sys/block/${DEV#/dev/}/queue
	detach
	# another test may take the number at any moment, and give it back
	while [ "$got" != "$limits" ] && [ $((tries += 1)) -le 50 ]; do
		echo 1024 >"$queue/max_sectors_kb"
		wait_for 10 set_requests # EBUSY for a moment
		echo 640 >"$queue/read_ahead_kb"
		attach
		if [ "$queue" = "/sys/block/${DEV#/dev/}/queue" ]; then
			[ "$(cat "$queue"/{max_sectors_kb,nr_requests} | xargs)" = "256 128" ]
			mount_volume
			fstrim "$MNT"
			detach
			got=$(cat "$queue"/{max_sectors_kb,nr_requests,read_ahead_kb} | xargs)
		else
			detach
		fi
		queue=/sys/block/${DEV#/dev/}/queue
	done
	[ "$got" = "$limits" ]
}

@test "a limit of time for FUSE requests: named at the attach with what to set, and the longest is asked for" {
	local dir=/proc/sys/fs/fuse
	[ -e $dir/max_request_timeout ] || skip "needs Linux 6.15"
	card_prepared ext4 100 150
	# as the daemon reads it, not as the kernel has it
	echo 0 >"$T/default"
	echo 200 >"$T/max"
	mount --bind "$T/default" $dir/default_request_timeout
	mount --bind "$T/max" $dir/max_request_timeout
	run -0 --separate-stderr cow attach "$CARD" --name vol
	umount $dir/default_request_timeout $dir/max_request_timeout
	NAME=vol DEV=$output
	echo "$DEV $(loop_backing "$DEV")" >>"$T/volumes"
	[[ $stderr == *"vol: Linux ends the volume, and all that is not committed is lost, when a read has waited for 200 s, "*"sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0. Or: away-limit below 200 s" ]]
	mount_volume
	touch "$MNT/works"
	cow commit
	detach
	mount --bind "$T/max" $dir/max_request_timeout
	run -0 --separate-stderr cow attach "$CARD" --name vol --away-limit 100s
	umount $dir/max_request_timeout
	DEV=$output
	echo "$DEV $(loop_backing "$DEV")" >>"$T/volumes"
	[[ $stderr != *"Linux ends"* ]]
	detach
}

@test "a card that is write-protected: what to do" {
	card_prepared ext4 100 150
	loop_down "$CARD"
	CARD=$(losetup -f -r --show "$IMG")
	fails 1 "$CARD is write-protected: move the lock tab of the card, or of its adapter" attach "$CARD" --name vol
	fails 1 "$CARD is write-protected: move the lock tab of the card, or of its adapter" prepare "$CARD"
}
