# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# Calls of an ordinary user that never end, on ext4, xfs and btrfs, with the kernel of each guest: a commit begins and ends as if it were
# alone, and root can write before and after it.
# The short form does a part of `unmount`, too.
# guests: debian12 debian13 debian13-initramfs-kernel-sid-fio debian13-initramfs-kernel-bullseye
# short: debian13
. "$CASES/unmount.sh"

HOWS="write writev $(uname -r | grep -q "^5\.1" || echo uring) sendfile setxattr removexattr race threads remap" # Linux 5.10 ends the call of io_uring
[ "$LONG" ] || HOWS="write setxattr race" # instant.bats has the others

# Sets took.
commit() { # FS
	echo "$1 $(now_ms)" >/mnt/try/root
	begin=$(now_ms)
	cowctl commit --json "$1" >/run/cowfs-test/bill || fail "$1: $(cat /run/cowfs-test/bill)"
	took=$(($(now_ms) - begin))
	echo "$1 $(now_ms)" >/mnt/try/root
}

hold() { # FS HOW
	LD_LIBRARY_PATH=/srv/hold TMPDIR=/srv/hold/tmp /srv/hold/fusehang hold "/mnt/try/user/$2" "$2" >/run/cowfs-test/hold &
	pid=$!
	wait_for 100 grep -q ready /run/cowfs-test/hold
	sleep 2
}

let_go() {
	echo 1 >"/sys/fs/fuse/connections/$(awk '{ print $2 }' /run/cowfs-test/hold)/abort"
	wait "$pid"
}

try() { # FS
	begin "$1"
	mkdir /mnt/try/user
	chown 65534 /mnt/try/user
	commit "$1"
	commit "$1"
	alone=$took worst=0 unsynced=0
	for how in $HOWS; do
		hold "$1" "$how"
		commit "$1"
		[ $took -le $worst ] || worst=$took
		! grep -q '"unsynced":true' /run/cowfs-test/bill || unsynced=$((unsynced + 1))
		grep -q '"instant":true' /run/cowfs-test/bill || fail "$1 $how: $(cat /run/cowfs-test/bill)"
		# of an emulated machine beside others; instant.bats has the 2 s of a real one
		[ $took -le $((2 * alone + 30000)) ] || fail "$1 $how: $took ms, alone $alone ms"
		kill -0 "$pid" || fail "$1 $how: the user's program is gone"
		let_go
	done
	commit "$1"
	[ "$LONG" ] || unmounts "$1" 6
	end "$1"
	say "$1, $(uname -r): a commit alone $alone ms, held $worst ms at most, sealed without a sync: $unsynced"
}

step_1() {
	settled
	mkdir -p /srv/hold/tmp /sys/fs/fuse/connections
	chmod 1777 /srv/hold/tmp
	cp fusehang libfuse3.so.3 /srv/hold/ # /run is noexec
	grep -q ' /sys/fs/fuse/connections ' /proc/mounts || must mount -t fusectl none /sys/fs/fuse/connections
	sysctl -qw kernel.unprivileged_userns_clone=1 2>/dev/null || true
	for fs in ext4 xfs btrfs; do
		modprobe $fs
		try $fs
	done
}

host_before() {
	cp -L "$(ldd "$BUILD/tests/fusehang" | awk "/libfuse3/ { print \$3 }")" "$WORK/libfuse3.so.3"
	EXTRA="$BUILD/tests/fusehang $WORK/libfuse3.so.3"
	disks
}
