#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl boot, as an initramfs calls it: what it prints, its exit status, what it leaves for the system.
# seconds: 100

load lib

setup() {
	cow_setup || return
	initramfs_setup
	CONF=$T/cowfs.conf
}

# $1 exit status, $2 what it prints, then arguments
boots() {
	local code=$1 mount=$2
	shift 2
	run --separate-stderr timeout -k 5 "$COW_LIMIT" "$T/sbin/cowctl" boot --device "$CARD" --conf "$CONF" --cmdline "ro quiet ${1-}"
	echo "exit $status, stdout: $output, stderr: $stderr"
	[ "$status" = "$code" ] || return 1
	if [ "$mount" = loop ]; then
		[[ $output == /dev/loop* && $output != "$CARD" ]] || return 1
		NAME=root DEV=$output
		is_volume
	else
		[ "$output" = "$CARD" ]
	fi
}

@test "the cowctl of an initramfs: what it has, and what only that of the system has" {
	cow --help >"$T/help"
	sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' "$T/help" | sort >"$T/all"
	"$T/sbin/cowctl" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' | sort >"$T/boot"
	[ "$(comm -23 "$T/all" "$T/boot" | xargs)" = "accept card clone diff disable export factory-reset generations import measure revert run scrub setup top undo view wear" ]
	[ "$(xargs <"$T/boot")" = "attach check commit config detach discard grow inhibit prepare release status trim uninhibit" ]
	run ! grep -wE 'top|view' <("$T/sbin/cowctl" --help)
	run -2 "$T/sbin/cowctl" top
	[ "$output" = "cowctl: top: not in an initramfs, only in the cowctl of the system" ]
	run -2 "$T/sbin/cowctl" diff --help
	[[ $output == *"diff: not in an initramfs"* ]]
	run -2 "$T/sbin/cowctl" view --json
	[ "$(jq -r .ok <<<"$output")" = false ]
	run -2 "$T/sbin/cowctl" statu
	[[ $output == *"unknown command statu"* ]]
	formatted
	attach_mounted
	touch "$MNT/file"
	run -2 "$T/sbin/cowctl" commit "$MNT/file"
	[ "$output" = "cowctl: commit PATH: not in an initramfs, only in the cowctl of the system" ]
	"$T/sbin/cowctl" commit vol
	detach
}

@test "a cowctl that cannot be run: the kernel refuses writes" {
	local sh
	card_make ext4 60 60
	sed "s|/usr/lib/cowfs/|$COWFS_BUILD/|; s|^COWFS_CTL=.*|COWFS_CTL=$T/none|; s|^COWFS_CONF=.*|COWFS_CONF=$CONF|
		s|^COWFS_RUN=.*|COWFS_RUN=$T/run|" "$TOP/initramfs/cowfs.sh" >"$T/cowfs.sh"
	for sh in dash "busybox sh"; do
		blockdev --setrw "$CARD"
		run -0 --separate-stderr $sh -c 'modprobe() { :; }; . "$1"; cowfs_start "$2"; echo "$COWFS_STATE $COWFS_MOUNT $COWFS_OPTIONS"' sh \
			"$T/cowfs.sh" "$CARD"
		echo "$stderr"
		[ "$output" = "failed $CARD ro" ]
		readonly_card
		# an initramfs in which it has never run, on trial
		blockdev --setrw "$CARD"
		echo name >"$T/trial"
		run -0 --separate-stderr $sh -c 'modprobe() { :; }; . "$1"; cowfs_start "$2"; echo "$COWFS_STATE $COWFS_MOUNT $COWFS_OPTIONS"' sh \
			"$T/cowfs.sh" "$CARD"
		[ "$output" = "bypassed $CARD " ]
		[ "$(blockdev --getro "$CARD")" = 0 ]
		grep -q "status 127" "$T/run/root.bypassed"
		rm "$T/trial"
	done
	run -1 "$COWFS_BUILD/set-readonly" "$T/none"
	[ "$output" = "set-readonly: $T/none: No such file or directory" ]
	run -2 "$COWFS_BUILD/set-readonly"
}

@test "the last step of an initramfs fails only if there is no root" {
	local code
	for code in 0 1 2 3 126 127; do
		printf '#!/bin/sh\nexit %d\n' $code >"$T/cowctl"
		chmod +x "$T/cowctl"
		sed "s|^COWFS_CTL=.*|COWFS_CTL=$T/cowctl|" "$TOP/initramfs/cowfs.sh" >"$T/cowfs.sh"
		run dash -c '. "$1"; cowfs_compose /x' sh "$T/cowfs.sh"
		[ "$status" = $((code == 3)) ]
	done
	# nothing is to be composed, and it is no volume of an image's changes: no process
	printf '#!/bin/sh\nexit 3\n' >"$T/cowctl"
	mkdir -p "$T/run" "$T/root/upper"
	sed -i "s|^COWFS_RUN=.*|COWFS_RUN=$T/run|" "$T/cowfs.sh"
	: >"$T/run/root.plain"
	run -1 dash -c '. "$1"; cowfs_compose "$2"' sh "$T/cowfs.sh" "$T/root"
	mkdir "$T/root/etc"
	run -0 dash -c '. "$1"; cowfs_compose "$2"' sh "$T/cowfs.sh" "$T/root"
	rm "$T/run/root.plain"
	run -1 dash -c '. "$1"; cowfs_compose "$2"' sh "$T/cowfs.sh" "$T/root"
	rm "$T/cowctl"
	run -0 dash -c '. "$1"; cowfs_compose /x' sh "$T/cowfs.sh"
}

# What a systemd initrd does. FSCK and MOUNT: exit codes of both; WORD: what cowctl boot says
initrd_root() { # FSCK MOUNT [CODE-OF-COWCTL]
	printf '#!/bin/sh\necho "fsck $*" >>"%s/calls"\nexit %d\n' "$T" "$1" >"$T/bin/systemd-fsck"
	printf '#!/bin/sh\necho "mount $*" >>"%s/calls"\nexit %d\n' "$T" "$2" >"$T/bin/mount"
	printf '#!/bin/sh\nmkdir -p "%s/run"; : >"%s/run/root.state"; echo /dev/loop77; exit %d\n' "$T" "$T" "${3-0}" >"$T/bin/cowctl"
	printf '#!/bin/sh\n: >"%s/asked"\nprintf "%%s\\n" What=%s Type=ext4 Options=ro,x=y Job=12 "" Job=13\n' "$T" "$CARD" \
		>"$T/bin/systemctl"
	chmod +x "$T"/bin/*
	: >"$T/calls"
	rm -f "$T/asked"
	PATH=$T/bin:$PATH run dash "$T/cowfs-root.sh"
	cat "$T/calls"
}

initrd_make() {
	card_make ext4 60 60
	mkdir "$T/bin"
	sed "s|^COWFS_CTL=.*|COWFS_CTL=$T/bin/cowctl|; s|^COWFS_RUN=.*|COWFS_RUN=$T/run|" "$TOP/initramfs/cowfs.sh" >"$T/cowfs.sh"
	sed "s|/usr/lib/cowfs/cowfs.sh|$T/cowfs.sh|; s|/usr/lib/systemd/systemd-fsck|$T/bin/systemd-fsck|
		s|/run/systemd/|$T/systemd/|g; s|/etc/systemd/|$T/etc-systemd/|g; s|MOUNT\" /sysroot|MOUNT\" $T/sysroot|; s|mkdir -p /sysroot|mkdir -p $T/sysroot|; s|/run/initramfs|$T/run/initramfs|g" \
		"$TOP/initramfs/dracut/cowfs-root.sh" >"$T/cowfs-root.sh"
}

# $1: the hook for the builder, $2: its function. What it adds goes to $T/added.
build_hook() {
	mkdir -p "$T/initrd/bin"
	: >"$T/added" >"$T/initrd/bin/sh"
	sed "s|/usr/sbin/cowctl config|$COWFS_BUILD/cowctl config|; s|/etc/cowfs/cowfs.conf|$CONF|" "$TOP/initramfs/$1" >"$T/hook"
	COWFS_CONF=$CONF T=$T run bash -c '
		initdir=$T/initrd BUILDROOT=$T/initrd moddir=/m systemdsystemunitdir=/s SYSTEMCTL=: _hooks=(base)
		mkdir -p "$initdir/usr/sbin" "$initdir/etc/cowfs"
		dracut_module_included() { return 1; }
		in_array() { return 1; }
		map() { :; }
		error() { echo "$*"; }
		for f in inst_{multiple,binary,simple,script,hook} add_{binary,symlink,file,runscript}; do
			eval "$f() { echo $f \"\$@\" >>\"$T/added\"; }"
		done
		. "$T/hook"
		'"$2"'
		echo "made, $?"'
}

@test "an initramfs is not built without its configuration" {
	printf '[root]\nenabled = yes\n' >"$CONF"
	build_hook dracut/module-setup.sh install
	[[ $status == 0 && $output == "made, 0" ]]
	grep -q 'inst_hook pre-mount' "$T/added"
	build_hook mkinitcpio/install build
	[[ $status == 0 && $output == "made, 0" ]]
	grep -q add_runscript "$T/added"
	rm -r "$T/initrd"
	echo 'enabled = perhaps' >>"$CONF"
	build_hook dracut/module-setup.sh install
	[[ $status == 1 && $output != *made* ]]
	build_hook mkinitcpio/install build
	[[ $status == 0 && $output == *"will not protect the root"*"made, 1" ]]
	grep -q "add_file $CONF" "$T/added"
	grep -q add_runscript "$T/added"
}

@test "a systemd initrd: the root is checked and mounted, again after a failure, and not checked by the system" {
	initrd_make
	initrd_root 1 0
	[ "$status" = 1 ]
	[ "$(cat "$T/calls")" = "fsck /dev/loop77" ]
	# sysroot.mount leaves the partition alone
	[ -e "$T/run/root.mount" ]
	[ ! -e "$T/run/initramfs/fsck-root" ]
	# from the emergency shell, after a repair
	initrd_root 0 32
	[ "$status" = 32 ]
	initrd_root 0 0
	[ "$status" = 0 ]
	[[ $(cat "$T/calls") == $'fsck /dev/loop77\nmount -t ext4 -o ro,x=y /dev/loop77 '*sysroot ]]
	[ -e "$T/run/initramfs/fsck-root" ]
	# or process 1 would wait for the root while its daemon is stopped
	[ "$(cat "$T/systemd/system.conf.d/cowfs.conf")" = $'[Manager]\nManagerEnvironment=SYSTEMD_IN_INITRD=0' ]
	# not configured: nothing is done, once or twice
	rm -r "$T/run" "$T/systemd/system.conf.d"
	initrd_root 0 0 1
	[ ! -e "$T/systemd/system.conf.d" ]
	initrd_root 0 0 1
	[ "$status" = 0 ]
	[ ! -s "$T/calls" ]
	[ ! -e "$T/run/root.mount" ]
	# failed: no check, now or later
	rm -r "$T/run"
	mkdir "$T/run"
	echo mount_options=ro,noload >"$T/run/root.failed"
	initrd_root 0 0 3
	[ "$status" = 0 ]
	[[ $(cat "$T/calls") == 'mount -t ext4 -o ro,noload /dev/loop77 '*sysroot ]]
	[ -e "$T/run/initramfs/fsck-root" ]
}

# A boot waits for systemctl longer than for the rest of this script.
@test "a systemd initrd: what the generator wrote is read without systemctl, unless there is more to it" {
	local unit=$T/systemd/generator/sysroot.mount file
	initrd_make
	mkdir -p "${unit%/*}"
	generated() { # WHAT [LINE...]
		printf '%s\n' '[Unit]' 'After=blockdev@dev-disk-by\x2duuid-1.target' "${@:2}" '[Mount]' "What=$1" Where=/sysroot Options=ro,z >"$unit"
		rm -rf "$T/run"
		initrd_root 0 0
	}
	generated "$CARD"
	[ ! -e "$T/asked" ]
	[[ $(cat "$T/calls") == 'mount -o ro,z /dev/loop77 '*sysroot ]]
	for file in Requires Wants; do
		generated "$CARD" "$file=x.service systemd-fsck-root.service" Type=ext4
		[ ! -e "$T/asked" ]
		[[ $(cat "$T/calls") == $'fsck /dev/loop77\nmount -t ext4 -o ro,z /dev/loop77 '*sysroot ]]
	done
	# of cowfs itself
	mkdir -p "$T/systemd/generator/sysroot.mount.d" "$T/systemd/generator.early" "$T/etc-systemd/system/sysroot.mount.d"
	: >"$T/systemd/generator/sysroot.mount.d/50-cowfs.conf"
	generated "$CARD"
	[ ! -e "$T/asked" ]
	for file in "$T/systemd/generator/sysroot.mount.d/60-x.conf" "$T/etc-systemd/system/sysroot.mount.d/x.conf" \
		"$T/etc-systemd/system/sysroot.mount" "$T/systemd/generator.early/sysroot.mount"; do
		: >"$file"
		generated "$CARD"
		[ -e "$T/asked" ]
		[[ $(cat "$T/calls") == *'-o ro,x=y '* ]]
		rm "$file"
	done
	ln -s /dev/null "$T/systemd/generator.early/systemd-fsck-root.service"
	generated "$CARD"
	[ -e "$T/asked" ]
	rm "$T/systemd/generator.early/systemd-fsck-root.service"
	for file in '/dev/50%%' '/dev/a\x20b' "/dev/a\\"; do
		generated "$file"
		[ -e "$T/asked" ]
		[[ $(cat "$T/calls") == *'-o ro,x=y '* ]]
	done
}

state() { cat "$COWFS_RUNDIR/root.state"; }
readonly_card() { [ "$(blockdev --getro "$CARD")" = 1 ]; }

formatted() {
	card_prepared ext4 100 150
}

# A file is committed and waits in the log, home is as it was before: the card after a power cut.
with_commit() {
	attach_mounted
	echo one >"$MNT/file"
	detach
	attach_mounted
	echo two >"$MNT/file"
	cow commit vol
	power_cut
}

on_card() {
	local code=0
	mount -o ro,noload "$CARD" "$MNT" || return
	cat "$MNT/file" || code=1
	umount "$MNT"
	return $code
}

@test "boot: protected" {
	formatted
	local sum
	sum=$(image_sum)
	boots 0 loop
	[ "$(state)" = on ]
	[ -e "$COWFS_RUNDIR/root.plain" ]
	[ "$(readlink "$COWFS_DEVDIR/cowfs/root")" = "../${DEV#/dev/}" ]
	readonly_card
	[ "$(status_of .name)" = root ]
	cow status root >/dev/null
	# once more in the same boot: the same device
	local first=$DEV
	boots 0 loop
	[ "$DEV" = "$first" ]
	[ "$(image_sum)" = "$sum" ]
	cow detach root
	wait_for 20 no_daemons
}

@test "boot: not configured, switched off, switched on from the boot loader" {
	formatted
	: >"$CONF"
	local sum
	sum=$(image_sum)
	boots 1 card
	[ "$(state)" = unconfigured ]
	run ! readonly_card
	CONF=$T/none boots 1 card
	printf '[root]\nenabled = no\n' >"$CONF"
	boots 1 card
	[ "$(image_sum)" = "$sum" ]
	fails 4 'no volume|not running|no daemon' status
	boots 0 loop cowfs=on,ram:64M
	[ "$(status_of .ram_limit_bytes)" = $((64 << 20)) ] || status_of .
	cow detach root
	wait_for 20 no_daemons
}

@test "boot: what an earlier version was told protects as before: a key and a word that were removed are only reported" {
	formatted
	printf '[root]\ntransport = fuse\nram = 64M\n' >"$CONF"
	boots 0 loop cowfs=transport:ublk
	grep -qx "cowctl: $CONF:2: transport was removed: volumes are always served by FUSE; remove the line" <<<"$stderr"
	grep -q "cowfs=transport:ublk was removed: volumes are always served by FUSE; this word is ignored" <<<"$stderr"
	[ "$(status_of .ram_limit_bytes)" = $((64 << 20)) ]
	cow detach root
	wait_for 20 no_daemons
}

@test "boot: does not wait for random numbers" {
	formatted
	export LD_PRELOAD=$COWFS_BUILD/tests/norandom.so
	run -134 head -c 1 /dev/urandom # it is there, and has something to say
	boots 0 loop
	unset LD_PRELOAD
	cow status root >/dev/null
}

@test "boot: a log in use protects without configuration, and is checkpointed if it is switched off" {
	formatted
	with_commit
	: >"$CONF"
	boots 0 loop
	[[ $stderr == *"has a log in use"* ]]
	cow detach root
	with_commit
	printf '[root]\nenabled = no\n' >"$CONF"
	boots 1 card
	[ "$(on_card)" = two ]
	fsck ext4
	answer=$(cow check "$CARD")
	grep -q retired <<<"$answer"
}

@test "boot: failed" {
	formatted
	logedit break AB
	local sum
	sum=$(image_sum)
	boots 3 card
	readonly_card
	[ "$(state)" = failed ]
	[[ $stderr == *"NOT PROTECTED, so $CARD is mounted read-only: "* ]]
	[ "$(sed -n 2,3p "$COWFS_RUNDIR/root.failed")" = "device=$CARD"$'\n'mount_options=ro,noload ]
	fails 3 'the root is NOT PROTECTED, and read-only: ' status
	fails 3 'NOT PROTECTED' status root --json
	# as systemd-remount-fs would
	mount -o ro,noload "$CARD" "$MNT"
	run ! mount -o remount,rw "$MNT"
	umount "$MNT"
	[ "$(image_sum)" = "$sum" ]
}

@test "boot: failed because only 0.1.0 can complete the newest commit" {
	local sum
	IMG=$T/card.img
	golden v1-joint-undecided "$IMG"
	card_loop
	sum=$(image_sum)
	boots 3 card
	readonly_card
	[ "$(state)" = failed ]
	grep -q 'is of a commit of several volumes: cowfs 0.1.0 completes it, .*; nothing was written' "$COWFS_RUNDIR/root.failed"
	[ "$(image_sum)" = "$sum" ]
}

@test "boot: failed for its configuration, for memory, for a busy device" {
	formatted
	printf '[root]\nenabeld = yes\n' >"$CONF"
	boots 3 card
	grep -q 'unknown key enabeld' "$COWFS_RUNDIR/root.failed"
	grep -qx mount_options=ro,noload "$COWFS_RUNDIR/root.failed"
	readonly_card
	printf '[root]\nram = 1M\n' >"$CONF"
	boots 3 card
	readonly_card
	# what was set read-only by a failure is no obstacle, nor is an option that was removed
	printf '[root]\nram = 64M\ncompress = zstd\n' >"$CONF"
	boots 0 loop cowfs=compress:zstd
	[[ $stderr == *"$CONF:3: compress was removed: "*"; remove the line"* ]]
	cow detach root
	wait_for 20 no_daemons
	# the daemon has the card already when it finds that its name is taken, and lets go of it after it has told so
	local card=$CARD i
	IMG=$T/other.img
	volume_attached ext4 60 100 -- -- --name root
	CARD=$card
	for i in 1 2 3 4 5; do
		boots 3 card
		grep -q 'another volume is attached as root' "$COWFS_RUNDIR/root.failed"
		readonly_card
		sleep 0.2
		readonly_card
	done
	cow detach root
	wait_for 20 no_daemons
	mount "$CARD" "$MNT"
	boots 3 card
	grep -q 'mounted\|use' "$COWFS_RUNDIR/root.failed"
	umount "$MNT"
	blockdev --setrw "$CARD"
}

@test "boot: bypassed" {
	formatted
	local sum
	sum=$(image_sum)
	boots 4 card cowfs=off
	[ "$(state)" = bypassed ]
	run ! readonly_card
	[ "$(image_sum)" = "$sum" ] # an empty log: nothing to checkpoint
	fails 3 'NOT PROTECTED: cowfs=off' status
	with_commit
	[ "$(on_card)" = one ]
	blockdev --setrw "$CARD"
	boots 4 card cowfs=off
	[ "$(on_card)" = two ]
	[[ $stderr == *"checkpointing its log"* ]]
	fsck ext4
	sum=$(image_sum)
	boots 4 card cowfs=off
	[ "$(image_sum)" = "$sum" ]
	# even if the configuration cannot be read
	echo nonsense >"$CONF"
	boots 4 card cowfs=off
	# changed by that boot, protected by the next one
	mount "$CARD" "$MNT"
	echo three >"$MNT/file"
	umount "$MNT"
	printf '[root]\nram = 64M\n' >"$CONF"
	boots 0 loop
	[ "$(state)" = on ]
	[ ! -e "$COWFS_RUNDIR/root.bypassed" ]
	mount_volume
	[ "$(cat "$MNT/file")" = three ]
	umount_volume
	cow detach root
}

@test "boot: bypassed, and the log cannot be checkpointed" {
	formatted
	with_commit
	eio write 0 1000000
	run --separate-stderr with_shim "$COWFS_BUILD/cowctl" boot --device "$CARD" --conf "$CONF" --cmdline cowfs=off
	echo "$status $output $stderr"
	[ "$status" = 3 ]
	readonly_card
	grep -q 'log still holds everything' "$COWFS_RUNDIR/root.failed"
	eio off
	boots 4 card cowfs=off
	[ "$(on_card)" = two ]
}

@test "boot: words of the kernel command line" {
	formatted
	boots 0 loop "cowfs=discard,ram:lots"
	[[ $stderr == *"cowfs=ram:lots is not a size"* ]]
	[ "$(status_of .discard_armed)" = true ] || status_of .
	mount_volume
	echo x >"$MNT/file"
	detach
	run ! on_card
}

@test "boot: root= finds the partition, a log on another device" {
	formatted
	run --separate-stderr cow boot --conf "$CONF" --cmdline "x root=$CARD ro"
	[ "$status" = 0 ]
	cow detach root
	wait_for 20 no_daemons
	fails 2 'no root=' boot --cmdline 'ro overlayroot=x' --conf "$CONF"
	local card=$CARD
	IMG=$T/log.img
	card_make none 0 64
	cow prepare --force "$card" --log "$CARD" >/dev/null
	printf '[root]\nlog = %s\n' "$CARD" >"$CONF"
	CARD=$card
	boots 0 loop
	cow detach root
}

@test "boot: makes space for the log first" {
	card_make ext4 200 200
	mount "$CARD" "$MNT"
	random_file "$MNT/file" 20
	local sum
	sum=$(tree_sum "$MNT")
	umount "$MNT"
	boots 3 card
	grep -q 'cowctl prepare' "$COWFS_RUNDIR/root.failed"
	echo 'prepare = shrink' >>"$CONF"
	# an old kernel could not serve the volume
	run -3 --separate-stderr setarch --uname-2.6 "$COWFS_BUILD/cowctl" boot --device "$CARD" --conf "$CONF" --cmdline ro
	[[ $stderr == *"NOT PROTECTED"*"Linux 2.6."*" is too old: "* && $stderr != *"making space"* ]]
	boots 0 loop
	[[ $stderr == *"making space"* ]]
	mount_has "$sum"
	detach
	# nothing more to prepare
	boots 0 loop
	[[ $stderr != *"making space"* ]]
	cow detach root
}

@test "boot: makes space after an unclean shutdown; not if the file system is too full" {
	card_make ext4 200 200
	mount "$CARD" "$MNT"
	random_file "$MNT/file" 5
	sync -f "$MNT"
	cp "$IMG" "$T/crashed"
	umount "$MNT"
	dd if="$T/crashed" of="$CARD" bs=1M conv=notrunc status=none
	echo 'prepare = shrink' >>"$CONF"
	boots 0 loop
	cow detach root
	wait_for 20 no_daemons
	loop_down "$CARD"
	card_make ext4 100 100
	mount "$CARD" "$MNT"
	random_file "$MNT/file" 80
	umount "$MNT"
	boots 3 card
	readonly_card
	blockdev --setrw "$CARD"
	fsck ext4
}

# As cowfs-leave.service does it: the log is retired, and its room belongs to the file system again.
@test "a log that the file system has grown over is none" {
	formatted
	with_commit
	printf '[root]\nenabled = no\n' >"$CONF"
	boots 1 card
	e2fsck -fp "$CARD"
	resize2fs "$CARD"
	mount "$CARD" "$MNT"
	# over the ring, not over the copy of the superblock of the log at the end
	dd if=/dev/urandom of="$MNT/fill" bs=1M count=100 status=none || true
	umount "$MNT"
	boots 1 card
	[ "$(state)" = unconfigured ]
	run ! readonly_card
	: >"$CONF"
	boots 1 card
	[ "$(state)" = unconfigured ]
	# and back again
	mount "$CARD" "$MNT"
	rm "$MNT/fill"
	umount "$MNT"
	printf '[root]\nram = 64M\nprepare = shrink\n' >"$CONF"
	boots 0 loop
	[ "$(state)" = on ]
	cow detach root
	e2fsck -fn "$CARD"
}

# cowctl boot, and the n-th write or flush to the card is the last one.
cut_boot() {
	cut_at "$1" "$COWFS_BUILD/cowctl" boot --device "$CARD" --conf "$CONF" --cmdline ro >/dev/null
}

# bats test_tags=blunt
@test "boot: the power is cut while space is made: the next boot continues, protected or bypassed" {
	local n sum cuts=0
	card_make ext4 128 128 -J size=8
	mount "$CARD" "$MNT"
	random_file "$MNT/file" 40
	sum=$(tree_sum "$MNT")
	umount "$MNT"
	cp --sparse=always "$IMG" "$T/copy"
	echo 'prepare = shrink' >>"$CONF"
	for n in 2 20 26 30 33 36 40 50; do
		run cut_boot "$n"
		[ "$status" = 0 ] || cuts=$((cuts + 1))
		[ "$status" != 0 ] || cow detach root
		wait_for 20 no_daemons
		if [ $((n % 4)) = 0 ]; then
			boots 4 card cowfs=off
			blockdev --setrw "$CARD"
			[ "$(bare_sum)" = "$sum" ]
			fsck ext4
		fi
		boots 0 loop
		mount_has "$sum"
		detach
		fsck ext4
		image_from "$T/copy"
	done
	say "$cuts cuts"
	[ $cuts -gt 4 ]
}

# An image of 100 MiB on a card of 300 MiB that had an image with a log before. $IMG keeps the copy.
card_flashed() {
	card_make none 0 300
	truncate -s 100M "$T/part"
	mke2fs -q -F -t ext4 -O metadata_csum_seed -U "$1" -J size=8 "$T/part"
	rm -f "$T/old"
	truncate -s 299M "$T/old"
	mke2fs -q -F -t ext4 "$T/old" 200M
	cow prepare "$T/old"
	dd if="$T/old" of="$IMG" bs=1M seek=1 conv=notrunc status=none
	printf 'label-id: 0xc0ffee00\nstart=2048, size=204800\n' | sfdisk -q "$IMG"
	dd if="$T/part" of="$IMG" bs=1M seek=1 conv=notrunc status=none
	DISK=$CARD
	loop_down "$DISK"
	disk_up
}

# Not all kernels look for partitions on a loop device.
disk_up() {
	loop_up "$IMG"
	partx --update "$LOOP"
	DISK=$LOOP CARD=${LOOP}p1
}

disk_down() {
	wait_for 5 partx --delete "$DISK"
	loop_down "$DISK" && DISK=''
}

uuid_of() { blkid -p -s UUID -o value "$1"; }

@test "boot: prepare = grow: partition, file system and its UUID, then the log, after a power cut at any step" {
	local step uuid=11111111-2222-3333-4444-555555555555 n
	export COWFS_LIBDIR=$T/lib
	mkdir "$COWFS_LIBDIR" "$T/bin"
	printf '[root]\nram = 64M\nprepare = grow\n' >"$CONF"
	# The size of a mounted file system needs CAP_SYS_RESOURCE, which a container does not have: tests/vm/image.py has that.
	printf '#!/bin/sh\n' | tee "$T/stub-mount" >"$T/stub-umount"
	printf '#!/bin/sh\nexec %s -f "$@"\n' "$(type -P resize2fs)" >"$T/stub-resize2fs"
	chmod +x "$T"/stub-*
	for step in none sfdisk partx resize2fs tune2fs; do
		card_flashed "$uuid"
		# the power goes when this program has been called; the kernel that comes back reads the table again
		sed "/^set -eu/a PATH=$T/bin:\$PATH" "$TOP/initramfs/grow-root" >"$COWFS_LIBDIR/grow-root"
		chmod +x "$COWFS_LIBDIR/grow-root"
		rm -f "$T/bin/"*
		for n in mount umount resize2fs; do
			cp "$T/stub-$n" "$T/bin/$n"
		done
		if [ "$step" != none ]; then
			printf '#!/bin/sh\n[ -e %s/cut ] || { %s "$@"; touch %s/cut; sync -f %s; cp --sparse=always %s %s/after; exit 1; }\nexec %s "$@"\n' \
				"$T" "$(type -P $step)" "$T" "$IMG" "$IMG" "$T" "$(type -P $step)" >"$T/bin/$step"
			chmod +x "$T/bin/$step"
			rm -f "$T/cut"
			"$COWFS_LIBDIR/grow-root" "$CARD" && return 1
			disk_down
			cp --sparse=always "$T/after" "$IMG"
			disk_up
		fi
		boots 0 loop
		[ "$(blockdev --getsize64 "$CARD")" = $((299 * 1048576)) ]
		n=$(cow status root --json | jq .volume_bytes)
		[ "$n" -gt $((200 * 1048576)) ]
		[ "$(uuid_of "$DEV")" != "$uuid" ]
		mount_volume
		touch "$MNT/file"
		cow commit root
		detach
		# nothing more to grow
		n=$(uuid_of "$CARD")
		boots 0 loop
		[[ $stderr != *growing* ]]
		cow detach root
		wait_for 20 no_daemons
		[ "$(uuid_of "$CARD")" = "$n" ]
		e2fsck -fn "$CARD"
		disk_down
	done
}

@test "boot: prepare = grow where nothing can grow: protected at its present size" {
	export COWFS_LIBDIR=$T/none
	card_make ext4 128 128
	printf '[root]\nram = 64M\nprepare = grow\n' >"$CONF"
	boots 0 loop
	[[ $stderr == *"did not grow"* ]]
	cow detach root
}

@test "boot: a shrink was interrupted after its commit, without a [root] section: nothing is written" {
	local n sum
	card_make ext4 128 128 -J size=8
	cp --sparse=always "$IMG" "$T/copy"
	echo 'prepare = shrink' >>"$CONF"
	for n in 34 35 36 37 38 39 40 41 42; do
		run cut_boot "$n"
		[ "$(cow check --json "$CARD" | jq -r .shrink)" != committed ] || break
		image_from "$T/copy"
	done
	sum=$(image_sum)
	: >"$T/empty.conf"
	CONF=$T/empty.conf boots 3 card
	grep -q 'shrink of it was interrupted.*cowctl release' "$COWFS_RUNDIR/root.failed"
	readonly_card
	[ "$(image_sum)" = "$sum" ]
	blockdev --setrw "$CARD"
	boots 0 loop
	cow detach root
	wait_for 20 no_daemons
	fsck ext4
}

@test "boot: bypassed, and nobody can tell what waits" {
	formatted
	with_commit
	logedit break AB
	boots 3 card cowfs=off
	grep -q 'cannot be read' "$COWFS_RUNDIR/root.failed"
	readonly_card
	local card=$CARD
	printf '[root]\nlog = %s\n' "$T/nothing" >"$CONF"
	boots 3 card cowfs=off # the device of the log is not there
	blockdev --setrw "$CARD"
	: >"$CONF" # of this one nobody has said that it has a log
	boots 1 card
	[[ $stderr == *"cannot read its log"* ]]
}

# PiShrink makes the file system as small as it gets and cuts the image behind it; so does a copy of only what it uses.
@test "boot: a root whose log was cut off: unguarded it gets a new one, guarded it is never taken for a whole one" {
	local sum
	cut_card 1 ext4 100 150
	cp --sparse=always "$IMG" "$T/cut"
	cow release "$CARD"
	sum=$(bare_sum)
	[ "$sum" = "$SUM" ]
	loop_down "$CARD"
	e2fsck -fy "$IMG"
	resize2fs -M "$IMG"
	truncate -s 100M "$IMG" # of what the tool leaves; a first boot that gives it the card again is as any other
	resize2fs "$IMG"
	card_loop
	echo 'prepare = shrink' >>"$CONF"
	boots 0 loop
	[[ $stderr == *"making space"* ]]
	mount_has "$sum"
	detach
	loop_down "$CARD"
	cp --sparse=always "$T/cut" "$IMG"
	truncate -s 100M "$IMG"
	card_loop
	sum=$(image_sum)
	boots 3 card
	readonly_card
	grep 'guarded by a log that is not here' "$COWFS_RUNDIR/root.failed"
	printf '[root]\nram = 64M\n' >"$CONF" # nothing to prepare
	boots 3 card
	grep 'guarded by a log that is not here' "$COWFS_RUNDIR/root.failed"
	boots 3 card cowfs=off
	grep 'guarded by a log that is not here' "$COWFS_RUNDIR/root.failed"
	: >"$CONF"
	boots 3 card
	grep 'guarded by a log that is not here' "$COWFS_RUNDIR/root.failed"
	readonly_card
	[ "$(image_sum)" = "$sum" ]
	fails 1 "guarded by a log that is not here" attach "$CARD"
	fails 1 "no cowfs log, and its superblock is guarded by a log that is not here" check "$CARD"
	[ "$(image_sum)" = "$sum" ]
}
@test "a commit by a clock far ahead is not believed at a boot, and status says so" {
	formatted
	COWFS_CLOCK=$T/clock
	export COWFS_CLOCK
	python3 -c 'import struct, sys; open(sys.argv[1], "wb").write(struct.pack("q", 37 * 365 * 86400))' "$COWFS_CLOCK"
	LD_PRELOAD=$COWFS_BUILD/tests/clock.so attach
	mount_volume
	echo one >"$MNT/file"
	LD_PRELOAD=$COWFS_BUILD/tests/clock.so cow commit vol
	run cow status vol
	[[ $output == *$'\n'"clock       the last commit is of 206"*": the clock was wrong then, or is now"$'\n'* ]]
	detach
	# without the right to set it
	run --separate-stderr setpriv --bounding-set=-sys_time timeout -k 5 "$COW_LIMIT" "$T/sbin/cowctl" boot --device "$CARD" --conf "$CONF" --cmdline "ro quiet"
	NAME=root DEV=$output
	echo "$DEV $(loop_backing "$DEV")" >>"$T/volumes"
	[[ $stderr == *"the last commit is of 206"*", which is not believed: the clock stays"* ]]
	detach
}

@test "a setup that was cut short: status, the line for a login and the metrics say that the root is not protected" {
	local state
	export COWFS_CONF=$T/enabled.conf
	printf '[root]\nenabled = yes\n' >"$COWFS_CONF"
	mkdir -p "$COWFS_RUNDIR"
	for state in none off unconfigured; do
		rm -f "$COWFS_RUNDIR/root.state"
		[ $state = none ] || echo $state >"$COWFS_RUNDIR/root.state"
		fails 3 'the root is NOT PROTECTED: cowfs.conf enables it, but the initramfs of this boot does not: run cowctl setup again' status
		run -3 cow status --brief
		[[ $output == "cowfs: THE ROOT IS NOT PROTECTED: cowfs.conf enables it"* ]]
		run -3 cow
		[[ $output == "cowfs: THE ROOT IS NOT PROTECTED: "* ]]
		answer=$(cow wear --prometheus -)
		grep -qx 'cowfs_root_unprotected 1' <<<"$answer"
	done
	# setup has just run
	touch "$COWFS_RUNDIR/.enabled"
	run -0 cow status --brief
	[ -z "$output" ]
	rm "$COWFS_RUNDIR/.enabled"
	printf '[root]\nenabled = no\n' >"$COWFS_CONF"
	run -0 cow status --brief
}
