# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# cowfs-recover, the static file for a machine without cowfs, on a card that was cut: check, view and release.
# guests: busybox-arm64
DATA_MIB=64 LIMIT=500 STEP_LIMIT=400

host_before() {
	EXTRA=$BUILD/cowfs-recover
	if [ "$IMAGE_ARCH" ]; then
		CHROOT_BIND=$TOP chroot_run "$CACHE/build-bookworm-$IMAGE_ARCH" make -s --no-print-directory -C /mnt -j"$(nproc)" B="build-bookworm-$IMAGE_ARCH" V= ARCH="$IMAGE_ARCH" recover-static ||
			fail "no cowfs-recover for $IMAGE_ARCH"
		EXTRA=$TOP/build-bookworm-$IMAGE_ARCH/cowfs-recover
	fi
	say "cowfs-recover has $(stat -c %s "$EXTRA") bytes"
}

step_1() {
	C=$(data_card)
	R=$PWD/cowfs-recover
	chmod 755 "$R"
	mkdir /m /view
	DEV=$(COWFS_ON_CRASH=stop cowctl attach "$C" --name data) || fail "no volume"
	must mount -t ext4 "$DEV" /m
	seq 20000 >/m/one
	must cowctl commit data
	seq 30000 >/m/one
	echo two >/m/two
	must cowctl commit data
	sum=$(cat /m/one /m/two | sha256sum)
	[ "$sum" ] || fail "no checksum"
	echo three >/m/three
	kill -9 "$(cat /run/cowfs/data/pid)"
	umount /m 2>/dev/null
	wait_for 20 sh -c "! pidof cowfs | grep -qw '$(cat /run/cowfs/data/pid)'"
	losetup -d "$DEV" 2>/dev/null
	blockdev --setrw "$C"
	mount -t ext4 "$C" /m && grep -q ' /m .*rw' /proc/mounts && fail "it has no guard"
	umount /m 2>/dev/null
	# from here on nothing of cowfs but this file
	before=$(sha256sum <"$C")
	must "$R" check "$C"
	grep -q 'verdict: good' /run/cowfs-test/out || fail "check: $(cat /run/cowfs-test/out)"
	must "$R" view "$C" /view
	is "the view" "$(cat /view/one /view/two | sha256sum)" "$sum"
	umount /view
	is "the card after check and view" "$(sha256sum <"$C")" "$before"
	must "$R" release "$C"
	must mount -t ext4 "$C" /m
	grep ' /m ' /proc/mounts | grep -qw rw || fail "still guarded: $(grep ' /m ' /proc/mounts)"
	is "the files" "$(cat /m/one /m/two | sha256sum)" "$sum"
	must umount /m
}
