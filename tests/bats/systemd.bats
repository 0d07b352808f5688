#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Units, generator and hooks, as far as they run without a systemd and without a root of cowfs.
# seconds: 140
# turn: 3

load lib

SRC=$(cd "$BATS_TEST_DIRNAME/../../systemd" && pwd)
export COWFS_DPKG_HOOK=$SRC/dpkg-hook

# $1: a file of /run/cowfs, then its lines
run_file() {
	mkdir -p "$(dirname "$COWFS_RUNDIR/$1")"
	printf '%s\n' "${@:2}" >"$COWFS_RUNDIR/$1"
}

# A cowctl that writes down how it was called, and answers what the test says in $T/answer-COMMAND.
stub_cowctl() {
	cat >"$T/cowctl" <<-EOF
		#!/bin/sh
		echo "\$*" >>"$T/calls"
		cat "$T/answer-\$1" 2>/dev/null
		exit \$(cat "$T/exit-\$1" 2>/dev/null || echo 0)
	EOF
	chmod +x "$T/cowctl"
	: >"$T/calls"
	export COWFS_CTL=$T/cowctl
}

units() {
	local u
	mkdir -p "$T/units"
	for u in "$SRC"/*.service "$SRC"/*.timer; do
		sed "s|/usr/sbin/|$COWFS_BUILD/|; s|/usr/lib/cowfs/|$SRC/|" "$u" >"$T/units/${u##*/}"
	done
	cp "$T/units/cowfs-commit@.timer" "$T/units/cowfs-commit@root.timer"
}

@test "units: systemd-analyze verify" {
	local u
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	units
	for u in "$T"/units/*; do
		run -0 env SYSTEMD_UNIT_PATH="$T/units:" systemd-analyze verify --man=no "$u"
		echo "$u: $output"
		# that it must not be killed is meant
		grep -v 'Unit uses KillMode=none' <<<"$output" | run ! grep .
	done
}

@test "units of the initramfs: a root without sysroot.mount can be reached" {
	local u
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	mkdir -p "$T/units/sysroot.mount.d"
	cp "$SRC"/../initramfs/dracut/*.service "$T/units/"
	sed -i 's|^ExecStart=/usr/lib.*|ExecStart=/bin/true|' "$T/units/cowfs-root.service"
	cp "$SRC/../initramfs/dracut/cowfs-root.conf" "$T/units/sysroot.mount.d/50-cowfs.conf"
	printf '[Unit]\nDescription=test\nDefaultDependencies=no\nRequires=cowfs-root.service cowfs-compose.service\n' \
		>"$T/units/initrd-root-fs.target"
	for u in initrd-root-fs.target cowfs-root.service cowfs-compose.service; do
		run -0 env SYSTEMD_UNIT_PATH="$T/units:" systemd-analyze verify --man=no --recursive-errors=yes "$T/units/$u"
		[ -z "$output" ]
	done
}

# What is less than safe has its reason in the unit.
@test "units: systemd-analyze security" {
	local u max
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	units
	cd "$T/units"
	run ! grep -l '^RestrictSUIDSGID=yes' $(grep -l 'sbin/cow' ./*.service)
	for u in *.service; do
		case $u in
		cowfs-commit@* | cowfs-identity*) max=15 ;;
		cowfs-checks*) max=100 ;; # whatever a check needs
		cowfs-reject*) max=49 ;; # it may run before the file systems are mounted
		cowfs-leave*) max=49 ;;  # it makes a file system larger, mounts, and changes /etc
		# no time for a filter of system calls: making it takes longer than the program runs
		cowfs-power* | cowfs-shutdown* | cowfs-options* | cowfs-parent*) max=49 ;;
		cowfs-keep*) max=49 ;; # it mounts, and reads files of all users
		*) max=40 ;;
		esac
		run -0 systemd-analyze security --no-pager --offline=yes --threshold=$max "./$u"
	done
}

@test "units: what remounts /boot does so for all" {
	run ! grep -E '^(Protect(Home|System|Kernel|Proc|Control)|Private(Tmp|Devices|Users|IPC)|ProcSubset|MountAPIVFS|Read|Inaccessible|TemporaryFileSystem)' \
		"$SRC/cowfs-leave.service"
	# the one that has none of its own, with the line that says so to newer versions
	grep -qx PrivateMounts=no "$SRC/cowfs-leave.service"
}

# Runs the generator in a system of its own; its units are in $T/out, what it says in $T/kmsg.
generate() {
	mkdir -p "$T/etc/cowfs" "$T/proc" "$COWFS_RUNDIR"
	touch "$T/proc/cmdline" "$T/etc/fstab"
	COWFS_CTL=$COWFS_BUILD/cowctl COWFS_CONF=$T/etc/cowfs/cowfs.conf COWFS_ETC=$T/etc COWFS_PROC=$T/proc \
		COWFS_JOURNALD=$T/journald COWFS_KMSG=$T/kmsg "$SRC/cowfs-generator" "$T/out/n" "$T/out/e" "$T/out/l"
}

conf() {
	mkdir -p "$T/etc/cowfs"
	printf '%s\n' "$@" >"$T/etc/cowfs/cowfs.conf"
}

drop_in() { cat "$T/out/n/$1.d/50-cowfs.conf"; }

@test "generator: nothing configured, nothing done" {
	generate
	[ ! -e "$T/out" ]
	[ ! -e "$T/journald" ]
	[ ! -e "$T/kmsg" ]
}

@test "generator: a boot that the initramfs has counted is to be accepted" {
	conf '[root]'
	run_file root.state on
	generate
	[[ $(drop_in multi-user.target) != *cowfs-accept* ]]
	[ ! -e "$T/out/n/emergency.target.d" ]
	rm -rf "$T/out" "$T/journald"
	run_file root.trial ''
	generate
	[[ $(drop_in multi-user.target) == *"Wants="*" cowfs-accept.service"* ]]
	[[ $(drop_in emergency.target) == *Wants=cowfs-reject.service* ]]
}

@test "generator: commit-interval of each volume" {
	conf '[default]' 'commit-interval = 0' '[data]' 'commit-interval = 10m' 'checkpoint = always' '[/dev/x]' 'name = kiosk'
	generate
	[[ $(drop_in cowfs-commit@.timer) == *ConditionPathExists=\!* ]]
	# the template's holds for it
	[ ! -e "$T/out/n/cowfs-commit@kiosk.timer.d" ]
	# only this one may freeze its file system
	[[ $(drop_in cowfs-commit@data.service) == *CAP_SYS_ADMIN ]]
	[ "$(echo "$T"/out/n/cowfs-commit@*.service.d)" = "$T/out/n/cowfs-commit@data.service.d" ]
	[[ $(drop_in cowfs-commit@data.timer) == *$'OnActiveSec=\nOnUnitActiveSec=\nOnActiveSec=10m\nOnUnitActiveSec=10m' ]]
	[ ! -e "$T/out/n/sysinit.target.d" ]
	# systemd's own reader takes it
	if command -v systemd-analyze >/dev/null; then
		units
		cp -r "$T/out/n/." "$T/units"
		cp "$T/units/cowfs-commit@.timer" "$T/units/cowfs-commit@data.timer"
		run -0 env SYSTEMD_UNIT_PATH="$T/units:" systemd-analyze verify --man=no "$T/units/cowfs-commit@data.timer"
		[ -z "$output" ]
	fi
}

@test "generator: kept paths" {
	conf '[data]' 'keep = /srv/db /srv/etc' '[other]' 'keep = /o' 'keep-interval = 2m' '[never]' 'keep = /n' 'keep-interval = 0' '[plain]'
	generate
	[[ $(drop_in cowfs@data.service) == *Wants=cowfs-keep@data.timer ]]
	[ ! -e "$T/out/n/cowfs-keep@data.timer.d" ] # 10m is what the template has
	[[ $(drop_in cowfs@other.service) == *Wants=cowfs-keep@other.timer ]]
	[[ $(drop_in cowfs-keep@other.timer) == *OnActiveSec=2m* ]]
	[ ! -e "$T/out/n/cowfs@never.service.d" ]
	[ ! -e "$T/out/n/cowfs@plain.service.d" ]
	rm -r "$T/out"
	conf '[root]' 'commit-interval = 0' 'keep = /srv/db' 'keep-interval = 2m'
	run_file root.state on
	generate
	[[ $(drop_in timers.target) == *$'\nWants= cowfs-keep@root.timer' ]] # none for commits
	[[ $(drop_in cowfs-keep@root.timer) == *OnActiveSec=2m* ]]
	# the commit at shutdown reads the files
	[[ $(drop_in cowfs-shutdown.service) == *CapabilityBoundingSet=~* ]]
	if command -v systemd-analyze >/dev/null; then
		units
		cp -r "$T/out/n/." "$T/units"
		cp "$T/units/cowfs-keep@.timer" "$T/units/cowfs-keep@root.timer"
		run -0 env SYSTEMD_UNIT_PATH="$T/units:" systemd-analyze verify --man=no "$T/units/cowfs-keep@root.timer" "$T/units/cowfs-shutdown.service"
		[ -z "$output" ]
	fi
}

@test "generator: a protected root" {
	mkdir -p "$T/vol a" "$T/vol/b"
	chmod 1777 "$T/vol/b"
	ln -s b "$T/vol/link"
	conf '[root]' 'commit-interval = 2h' "volatile = $T/vol/b $T/vol/link $T/nowhere"
	run_file root.state on
	generate
	[[ $(drop_in sysinit.target) == *"Wants=cowfs-shutdown.service cowfs-parent.service" ]]
	[[ $(drop_in local-fs.target) == *Wants=cowfs-options.service ]]
	[[ $(drop_in timers.target) == *Wants=cowfs-commit@root.timer ]]
	[[ $(drop_in cowfs-commit@root.timer) == *OnActiveSec=2h* ]]
	[[ $(drop_in systemd-random-seed.service) == *CREDIT=no ]]
	[[ $(drop_in systemd-soft-reboot.service) == *'ExecStart=-'*' shutdown root'*TimeoutStartSec=infinity* ]]
	[ ! -e "$T/out/e/hibernate.target" ]
	grep -qx SystemMaxUse=64M "$T/journald/cowfs.conf"
	# volatile directories: one of the three
	[ "$(find "$T/out/n" -name '*.mount' -type f | wc -l)" = 1 ]
	grep -q "left out" "$T/kmsg"
	run -0 cat "$T/out/n/"*b.mount
	[[ $output == *"Where=$T/vol/b"*"size=10%,nosuid,nodev,mode=1777,uid=0,gid=0" ]]
	# its /boot is inside of it or not
	[ ! -e "$T/out/n/cowfs-commit@root.service.d" ]
	mkdir -p "$T/boot/grub"
	generate
	[[ $(drop_in cowfs-commit@root.service) == *CAP_SYS_ADMIN*"commit root --timer --checkpoint" ]]
	rm -r "$T/out"
	echo 'UUID=x /boot ext4 defaults 0 2' >"$T/etc/fstab"
	generate
	[ ! -e "$T/out/n/cowfs-commit@root.service.d" ]
	rm -r "$T/out"
	conf '[root]' 'commit-interval = 0'
	generate
	[ ! -e "$T/out/n/timers.target.d/50-cowfs.conf" ]
	[[ $(drop_in sysinit.target) == *"Wants=cowfs-shutdown.service cowfs-parent.service" ]]
	# what holds for every volume holds for the root
	rm -r "$T/out"
	conf '[default]' 'commit-interval = 3h' '[root]'
	generate
	[[ $(drop_in cowfs-commit@.timer) == *OnActiveSec=3h* ]]
	[ ! -e "$T/out/n/cowfs-commit@root.timer.d" ]
	[[ $(drop_in timers.target) == *Wants=cowfs-commit@root.timer ]]
	# no section at all: the log was in use
	rm -r "$T/out"
	conf '[data]' 'commit-interval = 0'
	generate
	[[ $(drop_in timers.target) == *Wants=cowfs-commit@root.timer ]]
	[ ! -e "$T/out/n/cowfs-commit@root.timer.d" ]
	# a configuration that cannot be read
	rm -r "$T/out"
	conf '[data'
	generate
	[[ $(drop_in timers.target) == *Wants=cowfs-commit@root.timer ]]
	grep -q 'a heading is' "$T/kmsg"
}

@test "generator: a boot loader that reads the root needs checkpoints" {
	local file line
	conf '[root]'
	run_file root.state on
	checkpoints() { # after each commit?
		rm -rf "$T/out"
		generate
		[ -e "$T/out/n/cowfs-commit@root.service.d" ]
	}
	mkdir -p "$T/boot/firmware" "$T/boot/efi" "$T/etc"
	run ! checkpoints # nothing in it: a mount point
	for file in extlinux/extlinux.conf boot.scr uInitrd armbianEnv.txt vmlinuz-6 grub/grub.cfg; do
		mkdir -p "$(dirname "$T/boot/$file")"
		touch "$T/boot/$file"
		: >"$T/etc/fstab"
		checkpoints
		echo '#UUID=x /boot ext4 defaults 0 2' >"$T/etc/fstab"
		checkpoints
		for line in 'UUID=x /boot ext4 defaults 0 2' 'LABEL=RASPIFIRM /boot/firmware vfat rw 0 2' $'UUID=x\t/boot/\text4'; do
			echo "$line" >"$T/etc/fstab"
			run ! checkpoints
		done
		# of EFI's partition the boot loader reads itself, not the kernel
		echo 'UUID=x /boot/efi vfat defaults 0 2' >"$T/etc/fstab"
		checkpoints
		rm -rf "$T/boot/${file%%/*}"
	done
}

@test "generator: an initramfs without cowfs makes the root read-only, and says so" {
	mkdir "$T/bin"
	printf '#!/bin/sh\necho /dev/card\n' >"$T/bin/findmnt"
	printf '#!/bin/sh\necho "$*" >>%s/blockdev\n' "$T" >"$T/bin/blockdev"
	chmod +x "$T"/bin/*
	conf '[root]'
	PATH=$T/bin:$PATH generate
	[ "$(cat "$T/blockdev")" = "--setro /dev/card" ]
	[ "$(cat "$COWFS_RUNDIR/root.state")" = failed ]
	grep -q '<3>cowfs: root: NOT PROTECTED' "$T/kmsg"
	[ ! -e "$T/out/n/sysinit.target.d" ]
	# enabled in this boot, then a daemon-reload
	rm "$T/blockdev" "$COWFS_RUNDIR"/root.*
	run_file .enabled
	PATH=$T/bin:$PATH generate
	[ ! -e "$T/blockdev" ]
	[ ! -e "$COWFS_RUNDIR/root.state" ]
	rm "$COWFS_RUNDIR/.enabled"
	# cowfs=off was meant
	echo 'root=/dev/card ro cowfs=ram:1M,off quiet' >"$T/proc/cmdline"
	PATH=$T/bin:$PATH generate
	[ ! -e "$T/blockdev" ]
	[ "$(cat "$COWFS_RUNDIR/root.state")" = bypassed ]
	# disabled
	rm "$COWFS_RUNDIR"/root.*
	conf '[root]' 'enabled = no'
	PATH=$T/bin:$PATH generate
	[ ! -e "$COWFS_RUNDIR/root.state" ]
	# on trial: writable until a boot was accepted
	: >"$T/proc/cmdline"
	conf '[root]' 'trial = 2'
	PATH=$T/bin:$PATH generate
	[ ! -e "$T/blockdev" ]
	[ "$(cat "$COWFS_RUNDIR/root.state")" = bypassed ]
	grep -q 'lacks cowfs.*; the protection is on trial' "$COWFS_RUNDIR/root.bypassed"
	rm "$COWFS_RUNDIR"/root.*
	echo name >"$T/etc/cowfs/proven"
	PATH=$T/bin:$PATH generate
	[ "$(cat "$COWFS_RUNDIR/root.state")" = failed ]
	rm "$T/blockdev" "$COWFS_RUNDIR"/root.*
	# a file with an error was meant to protect; one without a root was not
	conf '[root]' 'colour = red'
	: >"$T/proc/cmdline"
	rm -rf "$T/out"
	PATH=$T/bin:$PATH generate
	[ "$(cat "$T/blockdev")" = "--setro /dev/card" ]
	[ "$(cat "$COWFS_RUNDIR/root.state")" = failed ]
	# its timer keeps the time of its own
	[ ! -e "$T/out/n/cowfs-commit@root.timer.d" ]
	rm "$T/blockdev" "$COWFS_RUNDIR"/root.*
	conf '[data]' 'colour = red'
	PATH=$T/bin:$PATH generate
	[ ! -e "$T/blockdev" ]
	[ ! -e "$COWFS_RUNDIR/root.state" ]
	# what was told at boot stays, and a bad file is told
	run_file root.state failed
	run_file root.failed reason
	conf '[root' 'enabled = no'
	PATH=$T/bin:$PATH generate
	grep -q 'a heading is' "$T/kmsg"
	[ "$(cat "$COWFS_RUNDIR/root.failed")" = reason ]
}

@test "shutdown hook: commits, feeds a watchdog that is armed, reports a failure" {
	stub_cowctl
	export COWFS_SYS=$T/sys COWFS_DEVDIR=$T/dev COWFS_PAUSE=0 COWFS_CONSOLE=/dev/stderr
	mkdir -p "$T/sys/class/watchdog/watchdog"{0,1} "$T/dev"
	echo active >"$T/sys/class/watchdog/watchdog0/state"
	echo inactive >"$T/sys/class/watchdog/watchdog1/state"
	run -0 "$SRC/cowfs.shutdown" reboot
	[ ! -s "$T/calls" ] # nothing to do here
	run_file root.state on
	printf '#!/bin/sh\nsleep 1\necho "$*" >>%s/calls\nexit $(cat %s/code)\n' "$T" "$T" >"$T/cowctl"
	echo 0 >"$T/code"
	run -0 "$SRC/cowfs.shutdown" reboot
	[ "$(cat "$T/calls")" = "shutdown root --within 80s" ]
	[ -s "$T/dev/watchdog0" ]
	[ ! -e "$T/dev/watchdog1" ]
	echo 1 >"$T/code"
	run -1 "$SRC/cowfs.shutdown" reboot
	[[ $output == *"THE LAST COMMIT DID NOT FINISH"* ]]
	run_file root.state failed
	run_file root.failed 'no fuse here'
	run -0 "$SRC/cowfs.shutdown" reboot
	[[ $output == *"NOT PROTECTED (failed): no fuse here"* ]]
}

@test "dpkg hook: inhibits timer commits and allows them again, not for others, never fails" {
	stub_cowctl
	export COWFS_FSTAB=$T/fstab
	run -0 "$SRC/dpkg-hook" pre
	[ ! -s "$T/calls" ] # no protected root
	mkdir -p "$COWFS_RUNDIR/root"
	python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$COWFS_RUNDIR/root/control"
	echo '{"inhibit_left_seconds":0}' >"$T/answer-status"
	run -0 "$SRC/dpkg-hook" pre
	run -0 "$SRC/dpkg-hook" post
	[ "$(grep inhibit "$T/calls" | xargs)" = "inhibit root --for 1h inhibit root --for 1m" ]
	: >"$T/calls"
	run -0 "$SRC/dpkg-hook" post
	[ ! -s "$T/calls" ]
	# what a backup asked for lasts longer
	echo '{"inhibit_left_seconds":7000.5}' >"$T/answer-status"
	run -0 "$SRC/dpkg-hook" pre
	run -0 "$SRC/dpkg-hook" post
	run ! grep inhibit "$T/calls"
	echo 1 >"$T/exit-inhibit"
	echo '{"inhibit_left_seconds":0}' >"$T/answer-status"
	run -0 "$SRC/dpkg-hook" pre
	rm "$COWFS_RUNDIR/root/control"
}

@test "grub-install of apt's scripts: with the modules that GRUB needs, and not while a generation is held" {
	stub_cowctl
	export COWFS_GRUB_INSTALL=$T/real COWFS_ROOTDIR=$T
	mkdir -p "$T/boot/grub" "$COWFS_RUNDIR"
	printf '#!/bin/sh\necho "$@"\n' >"$T/real"
	chmod 755 "$T/real"
	run -0 "$SRC/grub-install" /dev/vda
	[ "$output" = /dev/vda ]
	run_file root.state on
	echo '{"generation":3}' >"$T/answer-status"
	run -0 "$SRC/grub-install" --target=i386-pc /dev/vda
	[ "$output" = "--modules=part_gpt part_msdos --target=i386-pc /dev/vda" ]
	[ -e "$COWFS_RUNDIR/.boot-changed" ]
	rm "$COWFS_RUNDIR/.boot-changed"
	echo '{"generation":3,"held":{"generation":2}}' >"$T/answer-status"
	run -0 "$SRC/grub-install" /dev/vda
	[[ $output == *"GRUB stays as it is"* ]]
	[ ! -e "$COWFS_RUNDIR/.boot-changed" ]
	mount -t tmpfs boot "$T/boot"
	mkdir "$T/boot/grub"
	run -0 "$SRC/grub-install" /dev/vda
	[ "$output" = /dev/vda ]
	umount "$T/boot"
	printf '#!/bin/sh\nexit 1\n' >"$T/real"
	echo '{}' >"$T/answer-status"
	run -1 "$SRC/grub-install" /dev/vda
	[ ! -e "$COWFS_RUNDIR/.boot-changed" ]
}

@test "kernel hook: looks into the initramfs, commits, in this order" {
	local hook=$T/post-update.d/cowfs
	mkdir "$T/post-update.d"
	cp "$SRC/kernel-hook" "$hook"
	stub_cowctl
	echo 'yes' >"$T/answer-config"
	touch "$T/initrd"
	printf '#!/bin/sh\necho "check $*" >>%s/calls\nexit $(cat %s/check)\n' "$T" "$T" >"$T/check-initramfs"
	chmod +x "$T/check-initramfs"
	export COWFS_CHECK=$T/check-initramfs
	echo 0 >"$T/check"
	# not configured: no section
	run -0 "$hook" 6.1.0 "$T/initrd"
	run ! grep -q check "$T/calls"
	printf '[root]\nyes\n' >"$T/answer-config"
	printf '#!/bin/sh\necho "$*" >>%s/calls\ncase "$*" in *--key*) echo yes ;; config) echo "[root]" ;; esac\n' "$T" >"$T/cowctl"
	: >"$T/calls"
	run -0 "$hook" 6.1.0 "$T/initrd"
	grep -q "^check $T/initrd" "$T/calls"
	run ! grep -q commit "$T/calls" # not protected yet
	run_file root.state on
	: >"$T/calls"
	run -0 "$hook" 6.1.0 "$T/initrd"
	[ "$(tail -n 2 "$T/calls")" = "check $T/initrd"$'\n'"commit root --checkpoint" ]
	echo 1 >"$T/check"
	: >"$T/calls"
	run -1 "$hook" 6.1.0 "$T/initrd"
	run ! grep -q commit "$T/calls"
}

# With the sentence of the daemon itself.
@test "kernel hook, dpkg hook: a generation is held: committed, with what to do, and no failure" {
	local hook=$T/kernel/postinst.d/x-cowfs
	export COWFS_CHECK=true COWFS_BOOT=$T/boot COWFS_MODULES=$T/modules COWFS_FSTAB=/dev/null COWFS_CTL=$T/cowctl
	mkdir -p "$T/kernel/postinst.d" "$T/boot" "$T/modules/6"
	touch "$T/modules/6/modules.dep"
	cp "$SRC/kernel-hook" "$hook"
	NAME=root
	volume_attached ext4 60 100 -- -- --name root
	run_file root.state on
	printf '#!/bin/sh\ncase "$*" in *--key*) echo yes ;; config) echo "[root]" ;; *) exec %s/cowctl "$@" ;; esac\n' "$COWFS_BUILD" >"$T/cowctl"
	chmod +x "$T/cowctl"
	mount_volume
	cow commit root --hold
	echo one >"$MNT/one"
	run -0 --separate-stderr "$hook" 6
	[ -z "$output" ]
	[[ $stderr == *"committed, but not checkpointed, because a generation is held."*"'cowctl accept' and 'cowctl commit root --checkpoint'"* ]]
	[ "$(status_of .generation)" = "$(($(status_of .held.generation) + 1))" ]
	echo two >"$MNT/two"
	touch "$COWFS_RUNDIR/.boot-changed"
	run -0 --separate-stderr "$SRC/dpkg-hook" post
	[[ $stderr == *"committed, but not checkpointed, because a generation is held."* ]]
	cow accept
	echo three >"$MNT/three"
	touch "$T/modules/6/modules.dep"
	run -0 --separate-stderr "$hook" 6
	[[ $stderr != *"not checkpointed"* ]]
	[ "$(status_of .log_live_blocks)" = 0 ]
	detach
	run -1 "$hook" 7 # without a daemon it is a failure as ever
}

@test "kernel hook: silent on stdout, one commit a kernel, one more behind the menu of a /boot inside the root" {
	local hooks=$T/kernel/postinst.d images=$T/initramfs/post-update.d
	export COWFS_CHECK=true COWFS_BOOT=$T/boot COWFS_MODULES=$T/modules COWFS_FSTAB=/dev/null
	mkdir -p "$hooks" "$images" "$T/boot" "$T/modules/6" "$T/bin"
	cp "$SRC/kernel-hook" "$hooks/x-cowfs"
	cp "$SRC/kernel-hook" "$hooks/zzz-cowfs"
	cp "$SRC/kernel-hook" "$images/cowfs"
	printf '#!/bin/sh\ncase "$*" in *--key*) echo yes ;; config) echo "[root]" ;; *) echo "$*" >>%s/calls ;; esac\n' "$T" >"$T/cowctl"
	printf '#!/bin/sh\n[ "$2" = "$(cat %s/mounted)" ]\n' "$T" >"$T/bin/mountpoint"
	chmod +x "$T/cowctl" "$T/bin/mountpoint"
	export COWFS_CTL=$T/cowctl PATH=$T/bin:$PATH
	run_file root.state on
	: >"$T/calls"
	: >"$T/mounted"
	touch "$T/modules/6/modules.dep" "$T/boot/initrd.img-6"
	kernel() {
		out=$(DPKG_MAINTSCRIPT_PACKAGE=linux-image-6 "$images/cowfs" 6 "$T/boot/initrd.img-6" 2>>"$T/stderr")
		[ -z "$out" ]
		out=$(DPKG_MAINTSCRIPT_PACKAGE=linux-image-6 "$hooks/x-cowfs" 6 2>>"$T/stderr")
		[ -z "$out" ]
	}
	commits() { [ "$(cat "$T/calls")" = "$(yes 'commit root --checkpoint' | head -n "$1")" ]; }
	kernel
	grep -q "committing the root" "$T/stderr"
	commits 1
	# the next kernel of the same version, or only its initramfs
	sleep 0.01
	touch "$T/modules/6/modules.dep"
	kernel
	commits 2
	sleep 0.01
	touch "$T/boot/initrd.img-6"
	kernel
	commits 3
	# another that no initramfs hook ran for
	mkdir "$T/modules/7"
	touch "$T/modules/7/modules.dep"
	"$hooks/x-cowfs" 7
	commits 4
	# the menu: at the end of dpkg, or at once without dpkg
	DPKG_MAINTSCRIPT_PACKAGE=x "$hooks/zzz-cowfs" 7
	commits 4
	"$SRC/dpkg-hook" post
	commits 5
	"$SRC/dpkg-hook" post
	commits 5
	"$hooks/zzz-cowfs" 7
	commits 6
	# it is elsewhere
	for dir in boot boot/firmware; do
		echo "$T/$dir" >"$T/mounted"
		DPKG_MAINTSCRIPT_PACKAGE=x "$hooks/zzz-cowfs" 7
		"$SRC/dpkg-hook" post
		"$hooks/zzz-cowfs" 7
		commits 6
	done
}

@test "check-initramfs: what has to be in it" {
	local m
	mkdir "$T/bin"
	printf '#!/bin/sh\ncat "$1"\n' >"$T/bin/lsinitramfs"
	chmod +x "$T/bin/lsinitramfs"
	sed "s|^PATH=|PATH=$T/bin:|" "$SRC/check-initramfs" >"$T/check"
	export COWFS_BOOT=$T/boot COWFS_MODULES=$T/modules
	mkdir -p "$T/boot/firmware" "$T/modules/6"
	printf '%s\n' usr/sbin/cowfs usr/sbin/cowctl usr/lib/cowfs/cowfs.sh usr/lib/modules/6/kernel/fs/fuse/fuse.ko \
		usr/lib/modules/6/kernel/drivers/block/loop.ko.xz >"$T/boot/initrd.img-6"
	run -0 sh "$T/check" "$T/boot/initrd.img-6"
	for m in sbin/cowfs$ cowctl cowfs.sh fuse.ko loop.ko; do
		grep -v "$m" "$T/boot/initrd.img-6" >"$T/boot/initrd.img-7"
		run -1 sh "$T/check" "$T/boot/initrd.img-7"
		[[ $output == *"initrd.img-7 lacks "* ]]
	done
	# in the kernel, whatever the name of the image is
	grep -v fuse.ko "$T/boot/initrd.img-6" >"$T/boot/x"
	echo kernel/fs/fuse/fuse.ko >"$T/modules/6/modules.builtin"
	run -0 sh "$T/check" "$T/boot/x"
	# all: the kernel's, and what the firmware of a Raspberry Pi loads
	run -0 sh "$T/check"
	echo x >"$T/boot/firmware/initramfs8"
	run -0 sh "$T/check"
	touch "$T/boot/firmware/kernel8.img"
	run -1 sh "$T/check"
	[[ $output == *"firmware/initramfs8 lacks bin/cowctl"* && $output != *initrd.img* ]]
	cp "$T/boot/initrd.img-6" "$T/boot/firmware/initramfs8"
	run -0 sh "$T/check"
	echo x >"$T/boot/firmware/initrd.img-6"
	run -1 sh "$T/check"
	rm -r "$T/boot/"*
	run -1 sh "$T/check"
	[[ $output == *"no initramfs found in $T/boot"* ]]
}

@test "check-initramfs: dracut's list, with links and more than a pipe takes" {
	local m
	mkdir "$T/bin"
	printf '#!/bin/sh\ncat "$1"\n' >"$T/bin/lsinitrd"
	chmod +x "$T/bin/lsinitrd"
	# this machine may have another program for lists
	for m in sh cat awk sed grep tail; do
		ln -s "$(command -v $m)" "$T/bin/$m"
	done
	sed "s|^PATH=.*|PATH=$T/bin|" "$SRC/check-initramfs" >"$T/check"
	export COWFS_MODULES=$T/modules
	mkdir -p "$T/modules/6"
	echo kernel/fs/fuse/fuse.ko >"$T/modules/6/modules.builtin"
	{
		printf -- '-rw-r--r-- 1 root root 9 Nov 23 07:36 %s\n' usr/sbin/cowfs usr/lib/cowfs/cowfs.sh \
			usr/lib/modules/6/kernel/drivers/{block/loop,{1..5000}}.ko.xz
		echo 'lrwxrwxrwx 1 root root 5 Nov 23 07:36 usr/sbin/cowctl -> cowfs'
	} >"$T/image"
	run -0 sh "$T/check" "$T/image"
	[ -z "$output" ]
	grep -v cowctl "$T/image" >"$T/other"
	trap '' PIPE
	run -1 sh "$T/check" "$T/other"
	trap - PIPE
	[[ $output == "cowfs: $T/other lacks bin/cowctl:"* && ${#lines[@]} == 1 ]]
}

@test "banner, udev's question, events and grub-probe, with a volume" {
	volume_mounted ext4 100 150 -- -- --name root
	echo x >"$MNT/file"
	sync -f "$MNT"
	export COWFS_CTL=$COWFS_BUILD/cowctl
	wait_for 5 jq -e '.dirty_blocks > 1' "$COWFS_RUNDIR/root/status.json" # a second behind
	run -0 "$SRC/90-cowfs.motd"
	[[ $output == "cowfs: root: "*"not on the card yet"*"a power cut loses this"* ]]
	[ "$("$SRC/which-device" "${CARD#/dev/}")" = base ]
	[ "$("$SRC/which-device" "${DEV#/dev/}")" = volume ]
	run -1 "$SRC/which-device" sda
	# a card that is gone: a device of its size may be it, and no other
	mkdir -p "$T/sys/class/block/sdx" "$T/sys/class/block/sdy"
	echo $((150 * 2048)) >"$T/sys/class/block/sdx/size"
	echo $((151 * 2048)) >"$T/sys/class/block/sdy/size"
	[ "$(COWFS_SYS=$T/sys "$SRC/which-device" sdx)" = base ]
	COWFS_SYS=$T/sys run -1 "$SRC/which-device" sdy
	mkdir "$T/sys/class/block/${CARD#/dev/}"
	COWFS_SYS=$T/sys run -1 "$SRC/which-device" sdx
	[ "$(COWFS_SYS=$T/sys "$SRC/which-device" "${CARD#/dev/}")" = base ]
	# identity: newer than the last commit, then not
	mkdir "$T/etc"
	echo id >"$T/etc/machine-id"
	cow discard root # without it, each boot would be another machine
	COWFS_ETC=$T/etc run -0 "$SRC/identity"
	[[ $output == *"machine-id is newer"*": committed "*" as generation "* ]]
	cow discard root --cancel
	touch -d '1 hour ago' "$T/etc/machine-id"
	COWFS_ETC=$T/etc run -0 "$SRC/identity"
	[ -z "$output" ]
	# what the boot loader's tools ask
	printf '#!/bin/sh\necho "$*"\n' >"$T/probe"
	chmod +x "$T/probe"
	export COWFS_GRUB_PROBE=$T/probe COWFS_LOOP_NUMBER
	COWFS_LOOP_NUMBER=$(stat -c %Hd:%Ld "$MNT")
	export COWFS_LIBDIR=$SRC
	[ "$("$SRC/grub-probe" --target=device "$MNT")" = "$CARD" ]
	[ "$("$SRC/root-device")" = "$CARD" ]
	# were it a logical volume: by its name, because its number may be another one in the next boot
	mkdir -p "$T/sys/class/block/${CARD#/dev/}/dm"
	echo vg-root >"$T/sys/class/block/${CARD#/dev/}/dm/name"
	[ "$(COWFS_SYS=$T/sys "$SRC/grub-probe" --target=device "$MNT")" = /dev/mapper/vg-root ]
	[ "$("$SRC/grub-probe" -t device "$MNT/file")" = "$CARD" ]
	[ "$("$SRC/grub-probe" --target=device /proc)" = "--target=device /proc" ]
	[ "$("$SRC/grub-probe" --device "$DEV" --target=fs_uuid)" = "--device $CARD --target=fs_uuid" ]
	[ "$("$SRC/grub-probe" -t fs "$MNT/file")" = "--device $CARD -t fs" ]
	[ "$("$SRC/grub-probe" --device /dev/sdz1 --target=fs)" = "--device /dev/sdz1 --target=fs" ]
	run_file root.state failed
	run_file root.failed 'the card is gone'
	run -0 "$SRC/90-cowfs.motd"
	[[ $output == \*\*\**"THE ROOT IS NOT PROTECTED and read-only: the card is gone"* ]]
	rm "$COWFS_RUNDIR"/root.*
	detach
	run -1 "$SRC/root-device"
	[ "$("$SRC/grub-probe" --device "$DEV" --target=fs_uuid)" = "--device $DEV --target=fs_uuid" ]
}

@test "events: programs of event.d" {
	mkdir "$T/event.d"
	printf '#!/bin/sh\necho "$#:$1:$2:$3" >>%s/got\n' "$T" >"$T/event.d/a"
	cp "$T/event.d/a" "$T/event.d/no-program"
	chmod +x "$T/event.d/a"
	printf '#!/bin/sh\necho "root pressure full 3.0 MiB"; echo "root commit 7 1.0 MiB"; echo "root gone"\n' >"$T/cowctl"
	chmod +x "$T/cowctl"
	COWFS_CTL=$T/cowctl COWFS_EVENT_D=$T/event.d run -1 "$SRC/events" # a unit whose events have ended has failed
	[ "$output" = $'<3>root: pressure full 3.0 MiB\n<6>root: commit 7 1.0 MiB\n<5>root: gone\n<3>cowctl status --follow has ended' ]
	[ "$(cat "$T/got")" = $'3:root:pressure:full 3.0 MiB\n3:root:commit:7 1.0 MiB\n3:root:gone:' ]
}

@test "trial: each program of accept.d must succeed, and a boot that is not accepted restarts" {
	local trial
	mkdir "$T/accept.d" "$T/bin"
	export COWFS_ACCEPT_D=$T/accept.d COWFS_KMSG=$T/kmsg COWFS_REJECT_S=0 COWFS_CTL=$T/bin/cowctl
	run -0 "$SRC/trial-checks"
	printf '#!/bin/sh\necho "ran ${0##*/}"\nexit %s\n' 0 >"$T/accept.d/a"
	printf '#!/bin/sh\nexit 1\n' >"$T/accept.d/no-program"
	chmod +x "$T/accept.d/a"
	run -0 "$SRC/trial-checks"
	[ "$output" = "ran a" ]
	chmod 775 "$T/accept.d/a" # others than root can change it
	run -1 "$SRC/trial-checks"
	[ "$output" = "" ]
	chmod 755 "$T/accept.d/a"
	rm "$T/kmsg"
	sed 's/exit 0/exit 7/' "$T/accept.d/a" >"$T/accept.d/0-bad"
	chmod +x "$T/accept.d/0-bad"
	run -1 "$SRC/trial-checks"
	[ "$output" = $'ran 0-bad\nran a' ]
	[ "$(cat "$T/kmsg")" = "<3>cowfs: root: on trial: the check $T/accept.d/0-bad failed" ]
	printf '#!/bin/sh\necho restarted\n' | tee "$T/bin/reboot" "$T/bin/systemctl" >/dev/null
	printf '#!/bin/sh\ncat %s/status\n' "$T" >"$COWFS_CTL"
	chmod +x "$T/bin"/*
	for trial in '"held":{"trial":false}' '"name":"root"'; do
		echo "{$trial}" >"$T/status"
		PATH=$T/bin:$PATH run -0 "$SRC/reject"
		[ -z "$output" ]
	done
	# also without a daemon that answers
	for trial in '{"held":{"trial":true}}' '{"protection_on_trial":true}' ''; do
		printf '%s' "$trial" >"$T/status"
		PATH=$T/bin:$PATH run -0 "$SRC/reject"
		[ "$output" = restarted ]
	done
	grep -q 'ON TRIAL, and this boot is not accepted: restart in 0 s' "$T/kmsg"
	# the name of an initramfs on trial
	run_file root.trial name
	printf '#!/bin/sh\necho "$*"\n' >"$COWFS_CTL"
	run -0 "$SRC/proven" "$T/proven"
	[ "$output" = "commit $T/proven" ]
	run -0 "$SRC/proven" "$T/proven"
	[ -z "$output" ]
}

# cgroup PATH [FROZEN]
cgroup() {
	mkdir -p "$T/cgroup/$1"
	echo 1 >"$T/cgroup/$1/cgroup.procs"
	echo "${2-0}" >"$T/cgroup/$1/cgroup.freeze"
	printf 'populated 1\nfrozen 1\n' >"$T/cgroup/$1/cgroup.events"
}

# process PID CGROUP
process() {
	mkdir -p "$T/proc/$1/fd"
	printf '0::/%s\n' "$2" >"$T/proc/$1/cgroup"
}

frozen_ones() { grep -rlx 1 "$T/cgroup" --include=cgroup.freeze | sed "s|^$T/cgroup/||; s|/cgroup.freeze||" | sort | tr '\n' ' '; }

@test "sleep: the name of a cgroup, which a user may choose, is no other path" {
	local evil
	mkdir -p "$COWFS_RUNDIR" "$T/victim"
	echo precious >"$T/victim/cgroup.freeze"
	# what echo would make two lines of, the second a path
	evil='x\n'${T//\//\\0057}'\0057victim'
	cgroup "user.slice/$evil"
	cgroup 'user.slice/ends with a space '
	cgroup 'user.slice/ends with a space'
	cgroup 'user.slice/server '
	: >"$T/cgroup/cgroup.controllers"
	process 1 init.scope
	process 7 'user.slice/server '
	ln -s /dev/fuse "$T/proc/7/fd/4"
	export COWFS_CGROUPS=$T/cgroup COWFS_PROC=$T/proc COWFS_CTL=$COWFS_BUILD/cowctl
	run -0 sh -c 'sh "$0" pre 3>&-' "$SRC/cowfs.sleep"
	echo "$output"
	grep -qx 1 "$T/cgroup/user.slice/$evil/cgroup.freeze"
	grep -qx 1 "$T/cgroup/user.slice/ends with a space /cgroup.freeze"
	grep -qx 0 "$T/cgroup/user.slice/server /cgroup.freeze"
	run -0 sh "$SRC/cowfs.sleep" post
	[ "$(cat "$T/victim/cgroup.freeze")" = precious ]
	[ "$(frozen_ones)" = '' ]
}

@test "sleep: everything goes on 10 s after the wake, also if systemd-sleep waits for the card and does not call post" {
	mkdir -p "$COWFS_RUNDIR"
	cgroup system.slice/a.service
	: >"$T/cgroup/cgroup.controllers"
	process 1 init.scope
	echo 3 >"$T/slept"
	export COWFS_CGROUPS=$T/cgroup COWFS_PROC=$T/proc COWFS_CTL=$COWFS_BUILD/cowctl COWFS_SLEPT=$T/slept
	# a second of the script lasts until the test has given it
	mkdir "$T/bin"
	: >"$T/begun"
	printf '#!/bin/sh\n[ "$1" = 1 ] || exec /bin/sleep "$1"\necho >>"%s/begun"\ncd "%s" || exit\n%s\n' "$T" "$T" \
		'until [ "$(wc -l <given)" -ge "$(wc -l <begun)" ]; do /bin/sleep 0.02 && [ -e given ] || exit; done' >"$T/bin/sleep"
	chmod +x "$T/bin/sleep"
	goes_to_sleep() { cp "$T/begun" "$T/given" && run -0 env PATH="$T/bin:$PATH" sh -c 'sh "$0" pre 3>&-' "$SRC/cowfs.sleep"; }
	begins() { [ "$(wc -l <"$T/begun")" -gt "$(wc -l <"$T/given")" ]; }
	give() { # SECONDS; all is frozen until the last one has ended
		for _ in $(seq "$1"); do
			wait_for 10 begins
			[ "$(frozen_ones)" = "system.slice/a.service " ]
			echo >>"$T/given"
		done
	}
	goes_to_sleep
	give 12
	wait_for 10 begins
	echo 4 >"$T/slept"
	give 10
	wait_for 10 eval '[ -z "$(frozen_ones)" ]'
	# a hibernation is not counted
	echo 40.20 1.00 >"$T/proc/uptime"
	goes_to_sleep
	give 3
	wait_for 10 begins
	echo 60.10 1.00 >"$T/proc/uptime"
	give 10
	wait_for 10 eval '[ -z "$(frozen_ones)" ]'
}

@test "sleep: everything is frozen but what serves file systems, then committed; and goes on" {
	volume_mounted ext4 100 150
	echo one >"$MNT/one"
	cgroup init.scope
	cgroup system.slice/a.service
	cgroup system.slice/sleep.service
	cgroup system.slice/dbus.service
	cgroup 'system.slice/b c.service'
	cgroup user.slice/sshfs.scope
	cgroup user.slice/paused.scope 1
	mkdir -p "$T/cgroup/empty.slice"
	: >"$T/cgroup/cgroup.controllers"
	process 1 init.scope
	process 7 user.slice/sshfs.scope
	ln -s /dev/fuse "$T/proc/7/fd/4"
	process 9 'system.slice/b c.service'
	ln -s /dev/null "$T/proc/9/fd/1"
	export COWFS_CGROUPS=$T/cgroup COWFS_PROC=$T/proc COWFS_CTL=$COWFS_BUILD/cowctl
	# the script's own process; one of it lives as long as something is frozen
	run -0 bash -c 'mkdir -p "$COWFS_PROC/$$/fd" && echo 0::/system.slice/sleep.service >"$COWFS_PROC/$$/cgroup" && exec sh "$0" pre 3>&-' \
		"$SRC/cowfs.sleep"
	echo "$output"
	[ "$(frozen_ones)" = "system.slice/a.service system.slice/b c.service user.slice/paused.scope " ]
	[ "$(status_of .generation)" = 1 ]
	run -0 sh "$SRC/cowfs.sleep" post
	[ "$(frozen_ones)" = "user.slice/paused.scope " ]
	# inhibited, nothing is committed
	echo two >"$MNT/two"
	cow inhibit "$NAME" --for 1h
	run -0 sh -c 'sh "$0" pre 3>&-' "$SRC/cowfs.sleep"
	[ "$(status_of .generation)" = 1 ]
	run -0 sh "$SRC/cowfs.sleep" post
	# without a volume nothing is done
	detach
	run -0 env COWFS_RUNDIR="$T/none" sh "$SRC/cowfs.sleep" pre
	[ "$(frozen_ones)" = "user.slice/paused.scope " ]
}

@test "the main process of the service says that it is ready" {
	local main
	card_prepared ext4 60 100
	background /usr/bin/python3 -c '
import os, socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
s.bind(sys.argv[1])
data, extra, *_ = s.recvmsg(4096, 1024)
print(struct.unpack("iii", extra[0][2])[0], data.decode().split("\n")[:2])' "$T/notify" >"$T/said"
	wait_for 10 test -S "$T/notify"
	NOTIFY_SOCKET=$T/notify background "$COWFS_BUILD/cowfs" --foreground --name vol "$CARD" >"$T/loop"
	main=$BG
	wait_for 20 test -s "$T/said"
	[ "$(cat "$T/said")" = "$main ['READY=1', 'STATUS=volume vol']" ]
	cow detach vol
}

@test "root-parent: the process to watch" {
	local parent=$BASHPID
	mkdir -p "$COWFS_RUNDIR/root"
	background sleep 60
	echo "$BG" >"$COWFS_RUNDIR/root/pid"
	run -0 dash "$SRC/root-parent"
	[ "$(cat "$COWFS_RUNDIR/.root-parent")" = "$parent" ]
	# the supervisor is gone: systemd is the parent
	mkdir -p "$T/proc/77"
	echo 77 >"$COWFS_RUNDIR/root/pid"
	printf 'Name:\tcowfs\nTgid:\t77\nPPid:\t1\nTracerPid:\t0\n' >"$T/proc/77/status"
	COWFS_PROC=$T/proc run -0 dash "$SRC/root-parent"
	[ "$(cat "$COWFS_RUNDIR/.root-parent")" = 77 ]
	# the worker as well
	rm -r "$T/proc/77" "$COWFS_RUNDIR/.root-parent"
	COWFS_PROC=$T/proc run ! dash "$SRC/root-parent"
	rm "$COWFS_RUNDIR/root/pid"
	run ! dash "$SRC/root-parent"
	[ ! -e "$COWFS_RUNDIR/.root-parent" ]
	kill "$BG"
}
