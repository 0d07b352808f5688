# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# A composed root without a boot: what compose.bats and compose_files.bats share. setup of a file calls compose_setup, and puts
# what the image has into T/tree. RAM, and LOG in MiB: other sizes.

compose_setup() {
	cow_setup || return
	initramfs_setup
	mkdir "$T/tree"
	export COWFS_CONF=$T/cowfs.conf
}

# The composed root and its volume, then everything else.
compose_teardown() {
	umount "$MNT" 2>/dev/null
	umount "$MNT" 2>/dev/null
	umount "$COWFS_RUNDIR/lower" 2>/dev/null
	cow_teardown
}

# image FS FILE: of $T/tree
image() {
	rm -f "$2"
	case $1 in
	squashfs) mksquashfs "$T/tree" "$2" -quiet -no-progress ;;
	erofs) mkfs.erofs "$2" "$T/tree" ;;
	esac >/dev/null
}

# [FS]: a volume, and the device LOWER with an image
volume() {
	image "${1:-squashfs}" "$T/image"
	loop_up "$T/image" -r
	LOWER=$LOOP
	card_prepared ext4 40 $((68 + ${LOG:-32})) -- --log-size "${LOG:-32}M"
	configure "$LOWER"
}

configure() { # LOWER [NEW-LOWER]
	printf '[root]\nram = %s\ncompose = overlay\nlower = %s\nnew-lower = %s\n' "${RAM:-64M}" "$1" "${2:-refuse}" >"$COWFS_CONF"
}

compose() { # [WORD of the kernel command line]
	run --separate-stderr timeout -k 5 "$COW_LIMIT" "$T/sbin/cowctl" boot --device "$CARD" --compose "$MNT" --cmdline "ro $*"
	echo "exit $status, stderr: $stderr"
}

# What an initramfs does: protects, mounts, composes.
start() {
	DEV=$("$T/sbin/cowctl" boot --device "$CARD" --cmdline ro)
	NAME=root
	is_volume
	mount -o ro "$DEV" "$MNT"
	compose "$@"
}

begin() { volume "$@"; start; } # [FS]

# Ends this boot: a shutdown with a commit, or not.
stop() { # [detach option]
	umount_volume
	! mountpoint -q "$MNT" || umount_volume
	umount "$COWFS_RUNDIR/lower"
	cow detach "$@" root >/dev/null
	rm -f "$COWFS_RUNDIR"/root.*
}

# Another boot, without what was not committed
restart() { stop --discard; start "$@"; }
is_overlay() { [ "$status" = 0 ] && [ "$(stat -f -c %T "$MNT")" = overlayfs ]; }
