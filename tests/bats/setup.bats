#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl setup, disable --dry-run on systems that are only files. The real thing is done in tests/vm.
# seconds: 140

load lib

SRC=$(cd "$BATS_TEST_DIRNAME/../../systemd" && pwd)

# An ordinary Debian 12 on /dev/fakecard2, with all that setup wants.
debian() {
	R=$T/debian
	put proc/self/mountinfo '22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/root rw' \
		'23 22 0:5 / /proc rw - proc proc rw' '30 22 8:1 / /boot rw - ext4 /dev/fakecard1 rw'
	put sys/dev/block/8:2/uevent MAJOR=8 MINOR=2 DEVNAME=fakecard2
	put sys/dev/block/8:1/uevent DEVNAME=fakecard1
	put proc/meminfo 'MemTotal:        2000000 kB' 'MemFree: 5 kB'
	put proc/swaps 'Filename Type Size Used Priority'
	put proc/cmdline 'root=UUID=x ro quiet'
	put proc/sys/kernel/osrelease 6.1.0-1
	put lib/modules/6.1.0-1/modules.dep 'kernel/fs/fuse/fuse.ko:' 'kernel/drivers/block/loop.ko:'
	put usr/share/initramfs-tools/hook-functions x
	put usr/share/initramfs-tools/hooks/cowfs x
	put usr/sbin/cowfs x
	put usr/sbin/cowctl x
	put boot/grub/grub.cfg x
	put run/systemd/system/x
	put etc/fstab 'UUID=x / ext4 errors=remount-ro 0 1' 'UUID=y /boot ext4 defaults 0 2'
	image 400
	room 100000
}

room() { # KIB: what df says is free
	printf '#!/bin/sh\nprintf "Filesystem 1024-blocks Used Available Capacity Mounted on\\nx 1 1 %s 1%%%% /\\n"\n' "$1" >"$T/bin/df"
	chmod +x "$T/bin/df"
}

# Raspberry Pi OS 13 on a Pi 4: two flavours of the kernel, /boot in the root, the firmware's partition apart.
raspios() {
	local v
	debian
	rm -r "$R/lib" "$R/boot/grub"
	put proc/device-tree/model 'Raspberry Pi 4 Model B Rev 1.5'
	put proc/self/mountinfo '22 1 8:2 / / rw,noatime shared:1 - ext4 /dev/root rw' \
		'30 22 8:1 / /boot/firmware rw,relatime shared:9 - vfat /dev/fakecard1 rw,errors=remount-ro'
	put proc/cmdline 'console=tty1 root=PARTUUID=1234abcd-02 rootfstype=ext4 fsck.repair=yes rootwait'
	put proc/sys/kernel/osrelease 6.12.47+rpt-rpi-v8
	for v in 6.12.47+rpt-rpi-v8 6.12.47+rpt-rpi-2712; do
		put "lib/modules/$v/modules.dep" 'kernel/fs/fuse/fuse.ko:' 'kernel/drivers/block/loop.ko:'
		put "boot/vmlinuz-$v" x
		put "boot/initrd.img-$v" x
	done
	put boot/firmware/kernel8.img x
	put boot/firmware/kernel_2712.img x
	put boot/firmware/initramfs8 x
	put boot/firmware/initramfs_2712 x
	put boot/firmware/config.txt '# For more options' 'camera_auto_detect=1' 'auto_initramfs=1' '[all]'
	put boot/firmware/cmdline.txt 'console=tty1 root=PARTUUID=1234abcd-02 rootfstype=ext4 fsck.repair=yes rootwait'
	put etc/fstab 'PARTUUID=1234abcd-01 /boot/firmware vfat defaults 0 2' 'PARTUUID=1234abcd-02 / ext4 defaults,noatime 0 1'
}

image() { # MIB OPTION...
	mkdir -p "$T/bin"
	rm -f "$T/image"
	mke2fs -q -F -t ext4 "${@:2}" "$T/image" "${1}M"
	printf '#!/bin/sh\n[ "$2" = /dev/fakecard2 ] && exec /usr/sbin/dumpe2fs -h %s/image\nexit 1\n' "$T" >"$T/bin/dumpe2fs"
	chmod +x "$T/bin/dumpe2fs"
}

setup_it() { # COMMAND OPTION...
	PATH=$T/bin:$PATH COWFS_LIBDIR=$SRC COWFS_CTL=$COWFS_BUILD/cowctl COW_LIMIT=60 cow "$1" --root "$R" "${@:2}" 2>&1
}

# setup stops, and tells this
stops() {
	run -1 setup_it setup
	echo "$output"
	unfold
	[[ $UNFOLDED == *"STOP "*"$1"*"nothing was done"* ]]
}

@test "setup --dry-run: an ordinary Debian" {
	local before
	debian
	before=$(tree_sum "$R")
	run -0 setup_it setup
	tells "ok / is ext4 on /dev/fakecard2"
	tells "ok space for the log: 36 MiB of"
	tells "ok kernel 6.1.0-1 has fuse and loop"
	tells "ok /boot is ext4 on /dev/fakecard1, apart from the root"
	tells "would [root] of $R/etc/cowfs/cowfs.conf: enabled = yes"
	tells "prepare = shrink"
	tells "would rebuild the initramfs"
	tells "would make /boot read-only"
	tells "Nothing was done."
	run ! grep -qE "STOP|checkpoint = always|trial =" <<<"$output"
	[ "$(tree_sum "$R")" = "$before" ]
	# systemd accepts a boot
	mkdir -p "$R/usr/lib/systemd/system"
	ln -s graphical.target "$R/usr/lib/systemd/system/default.target"
	run -0 setup_it setup
	tells "trial = 3: if none of 3 boots comes up, the next one is without cowfs"
	run -0 setup_it setup --no-trial
	run ! grep "trial =" <<<"$output"
	# another target may never reach multi-user.target
	mkdir -p "$R/etc/systemd/system"
	ln -s /etc/systemd/system/kiosk.target "$R/etc/systemd/system/default.target"
	run -0 setup_it setup
	run ! grep "trial =" <<<"$output"
	rm "$R/etc/systemd/system/default.target"
	put etc/cowfs/cowfs.conf '[root]' 'trial = 5'
	run -0 setup_it setup
	run ! grep "trial =" <<<"$output"
	run -0 setup_it setup --no-trial
	tells "trial = 0"
	rm -r "$R/etc/cowfs" "$R/usr/lib/systemd"
	before=$(tree_sum "$R")
	run -0 setup_it setup --json
	jq -e '.ok and (.lines | length > 8) and (.lines | any(.kind == "would"))' <<<"$output"
	run -0 setup_it setup
	run -0 setup_it disable
	tells "would [root] of $R/etc/cowfs/cowfs.conf: enabled = no"
	tells "then the next boot checkpoints"
	[ "$(tree_sum "$R")" = "$before" ]
}

@test "setup: what stops it, each alone" {
	debian
	image 60
	stops "MiB free; the log and some reserve need"
	image 400 -O mmp
	stops "multiple-mount protection"
	image 400 -O ^has_journal
	stops "has no journal, so it could not be committed while it is mounted: run tune2fs -j /dev/fakecard2 from a rescue system"
	image 400 -O fast_commit
	stops "fast commits"
	image 400
	debugfs -w -R 'ssv state 3' "$T/image" 2>/dev/null
	stops "has errors"
	debian
	put proc/swaps 'Filename Type Size Used Priority' '/var/swap file 102396 0 -2'
	stops "swap files on the root would swap RAM to RAM: /var/swap"
	run -0 setup_it setup --swap-off
	tells "would switch off swap on /var/swap"
	debian
	put proc/meminfo 'MemTotal:  100000 kB'
	stops "97 MiB of memory"
	debian
	rm "$R/usr/share/initramfs-tools/hooks/cowfs"
	stops "hooks/cowfs is missing"
	rm "$R/usr/share/initramfs-tools/hook-functions"
	stops "none of initramfs-tools, dracut and mkinitcpio"
	put usr/bin/mkinitcpio x
	stops "/usr/lib/initcpio/install/cowfs is missing"
	put usr/lib/initcpio/install/cowfs x
	run -0 setup_it setup
	tells "initramfs by mkinitcpio"
	debian
	put lib/modules/6.1.0-1/modules.dep 'kernel/fs/fuse/fuse.ko:'
	stops "the running kernel 6.1.0-1 has no loop"
	put lib/modules/6.1.0-1/modules.builtin 'kernel/drivers/block/loop.ko'
	run -0 setup_it setup
	debian
	put proc/self/mountinfo '22 1 0:30 / / rw,relatime shared:1 - overlay overlay rw'
	stops "is an overlay, which cannot be converted"
	put proc/self/mountinfo '22 1 8:2 / / rw,relatime shared:1 - xfs /dev/root rw'
	stops "xfs cannot be shrunk"
	debian
	put etc/cowfs/cowfs.conf '[root]' 'nonsense = 1'
	stops "unknown key nonsense"
	debian
	put etc/cowfs/cowfs.conf '[root]'
	printf 'container=lxc\0' >"$R/proc/1-environ"
	mkdir "$R/proc/1"
	mv "$R/proc/1-environ" "$R/proc/1/environ"
	stops "this is a container"
}

@test "setup: Raspberry Pi OS, and the ways to load an initramfs" {
	raspios
	run -0 setup_it setup
	tells "ok kernel 6.12.47+rpt-rpi-2712 has fuse and loop"
	tells "ok /boot/firmware is vfat on /dev/fakecard1, apart from the root"
	tells "would make /boot read-only"
	run ! grep -qE "STOP|/boot is inside" <<<"$output"
	# a second setup makes the firmware's partition writable for the initramfs
	mkdir "$T/setup"
	cp "$SRC"/{setup-checks,setup-image,root-device} "$T/setup"
	{
		sed '/^case $command:/,$d; s|/usr/lib/cowfs/dpkg-hook|echo|' "$SRC/setup"
		echo 'checks >/dev/null; dry= && writable_boot on'
	} >"$T/setup/setup"
	[ "$(PATH=$T/bin:$PATH COWFS_CTL=$COWFS_BUILD/cowctl sh "$T/setup/setup" setup --root "$R")" = boot-on ]
	# no line, one that is a comment, one with a name
	put boot/firmware/config.txt '#auto_initramfs=1' 'initramfs=x'
	stops "/boot/firmware/config.txt: the firmware loads no initramfs: add the line auto_initramfs=1"
	put boot/firmware/config.txt 'initramfs initramfs8 followkernel'
	run -0 setup_it setup
	# the flavour that runs has none
	raspios
	rm "$R/boot/firmware/initramfs8"
	stops "/boot/firmware/initramfs8 is missing: run update-initramfs -c -k 6.12.47+rpt-rpi-v8"
	# the name follows from that of the kernel
	raspios
	put boot/firmware/config.txt 'auto_initramfs=1' 'kernel=kernel-mine.img'
	stops "/boot/firmware/initramfs-mine is missing"
	put boot/firmware/initramfs-mine x
	run -0 setup_it setup
	put boot/firmware/config.txt 'auto_initramfs=1' 'kernel=mine.img'
	stops "/boot/firmware/config.txt: with kernel=mine.img the firmware loads no initramfs: add a line initramfs FILE followkernel"
	# before Pi OS 12: /boot is the firmware's
	raspios
	put proc/self/mountinfo '22 1 8:2 / / rw,noatime shared:1 - ext4 /dev/root rw' \
		'30 22 8:1 / /boot rw,relatime shared:9 - vfat /dev/fakecard1 rw'
	mv "$R"/boot/firmware/* "$R/boot"
	rmdir "$R/boot/firmware"
	put boot/config.txt ''
	stops "/boot/config.txt: the firmware loads no initramfs"
}

@test "setup: the filters of config.txt" {
	local model filter filters=(pi3 cm4 cm5 pi400 none gpio4=1 0x12345678 tryboot EDID=x board-type=0x11)
	board() { # MODEL LINE...: of config.txt
		printf '%s\0' "$1" >"$R/proc/device-tree/model"
		put boot/firmware/config.txt "${@:2}"
	}
	bad() {
		stops "/boot/firmware/config.txt: on this board ($model) the firmware loads no initramfs, because of the filters: \
write the line below [all]"
	}
	raspios
	model='Raspberry Pi 4 Model B Rev 1.5'
	under_each() { for filter; do printf '[%s]\nauto_initramfs=1\n[all]\n' "$filter"; done; }
	board "$model" "$(under_each "${filters[@]}")"
	bad
	board "$model" "$(printf '[%s]\narm_boost=1\n' "${filters[@]}")" '[all]' 'auto_initramfs=1'
	run -0 setup_it setup
	# those of the model replace each other, others are added; lines may end in CRLF
	board "$model" $'[gpio4=1]\r' $'[pi4]\r' $'auto_initramfs=1\r'
	bad
	board "$model" $'[pi3]\r' $'[pi4]\r' $'auto_initramfs=1\r'
	run -0 setup_it setup
	tells "note /boot/firmware/config.txt: the firmware loads the initramfs on this board ($model) only; on another one the \
root is read-only"
	board "$model" 'include more.txt' '[all]'
	put boot/firmware/more.txt '[pi5]' 'auto_initramfs=1'
	stops 'the firmware loads no initramfs'
	put boot/firmware/more.txt 'auto_initramfs=1' 'include more.txt'
	run -0 setup_it setup
	run ! grep -q 'on this board' <<<"$output"
	# models that two filters are true for
	board 'Raspberry Pi 2 Model B Rev 1.1' "$(under_each pi4 cm4 cm4s pi400 pi5 cm5 pi3 pi3+ pi0 pi02 pi1)"
	run -1 setup_it setup
	while read -r filter model; do
		board "$model" "[$filter]" 'auto_initramfs=1'
		run -0 setup_it setup
	done <<'END'
pi4 Raspberry Pi Compute Module 4 Rev 1.0
cm4 Raspberry Pi Compute Module 4 Rev 1.0
cm4s Raspberry Pi Compute Module 4S Rev 1.0
pi400 Raspberry Pi 400 Rev 1.0
pi5 Raspberry Pi 5 Model B Rev 1.0
pi5 Raspberry Pi 500 Rev 1.0
cm5 Raspberry Pi Compute Module 5 Rev 1.0
pi3 Raspberry Pi 3 Model B Plus Rev 1.3
pi3+ Raspberry Pi 3 Model A Plus Rev 1.0
pi3 Raspberry Pi Compute Module 3 Plus Rev 1.0
pi0 Raspberry Pi Zero W Rev 1.1
pi02 Raspberry Pi Zero 2 W Rev 1.0
pi1 Raspberry Pi Model B Plus Rev 1.2
END
	model='of an unknown model'
	rm "$R/proc/device-tree/model"
	put boot/firmware/config.txt '[pi4]' 'auto_initramfs=1'
	bad
}

@test "setup: a /boot/firmware that is really full or read-only" {
	raspios
	rm "$T/bin/df"
	mv "$R/boot/firmware" "$T/files"
	mkdir "$R/boot/firmware"
	truncate -s 16M "$T/card"
	mke2fs -q -t ext2 -m 0 "$T/card" # not every kernel that runs this knows vfat
	mount_firmware() { # OPTIONS
		mount -o "loop,$1" "$T/card" "$R/boot/firmware"
		put proc/self/mountinfo '22 1 8:2 / / rw,noatime shared:1 - ext4 /dev/root rw' \
			"$(sed -n "s|$R||; / \/boot\/firmware /p" /proc/self/mountinfo)"
	}
	mount_firmware rw
	cp "$T/files"/* "$R/boot/firmware"
	run -0 setup_it setup
	tells "ok /boot/firmware is ext2 on"
	head -c 5M /dev/zero >"$R/boot/firmware/initramfs8"
	head -c 6M /dev/zero >"$R/boot/firmware/kernel8.img"
	stops "MiB free; rebuilding the initramfs needs 6 MiB: remove old kernels"
	head -c 3M /dev/zero >"$R/boot/firmware/kernel8.img"
	run -0 setup_it setup
	umount "$R/boot/firmware"
	mount_firmware ro
	stops "/boot/firmware is mounted read-only: run mount -o remount,rw /boot/firmware"
	umount "$R/boot/firmware"
}

@test "setup: a boot loader that is unknown, or loads no initramfs" {
	debian
	rm -r "$R/boot/grub"
	stops "the boot loader is unknown: nothing of GRUB, systemd-boot, U-Boot or a Raspberry Pi was found in /boot. If it loads \
the initramfs from there, and you know where it gets the kernel command line from (for cowfs=off), add --force"
	run -0 setup_it setup --force
	tells "note the boot loader is unknown: cowfs=off must come from what sets the kernel command line. cowctl disable works \
without it"
	run -0 setup_it disable
	for file in extlinux/extlinux.conf boot.scr; do
		debian
		rm -r "$R/boot/grub"
		put "boot/$file" 'linux /vmlinuz' 'append root=x'
		stops "/boot/$file: U-Boot loads no initramfs. --force goes on, if it gets one in another way"
		run -0 setup_it setup --force
		put "boot/$file" 'load mmc 0:1 ${ramdisk_addr_r} initrd.img'
		run -0 setup_it setup
		rm -r "$R/boot"
	done
}

@test "setup: a /boot that is read-only or full" {
	raspios
	head -c 12000000 /dev/zero >"$R/boot/firmware/initramfs_2712"
	room 12741
	stops "/boot/firmware: 12 MiB free; rebuilding the initramfs needs 13 MiB: remove old kernels"
	room 12742
	run -0 setup_it setup
	for options in 'ro,relatime shared:9 - vfat /dev/fakecard1 rw' 'rw,relatime shared:9 - vfat /dev/fakecard1 ro,errors=remount-ro'; do
		put proc/self/mountinfo '22 1 8:2 / / rw,noatime shared:1 - ext4 /dev/root rw' "30 22 8:1 / /boot/firmware $options"
		stops "/boot/firmware is mounted read-only: run mount -o remount,rw /boot/firmware"
	done
	# one that is not there gets no initramfs
	put proc/self/mountinfo '22 1 8:2 / / rw,noatime shared:1 - ext4 /dev/root rw'
	stops "/boot/firmware is not mounted: run mount /boot/firmware"
	put proc/self/mountinfo '22 1 8:2 / / rw,noatime shared:1 - ext4 /dev/root rw' "30 22 8:1 / /boot/firmware $options"
	# read-only by setup itself: it makes it writable
	put etc/fstab 'PARTUUID=1234abcd-01 /boot/firmware vfat defaults,ro,x-cowfs 0 2'
	run -0 setup_it setup
}

# Debian 13 on a Pi 4: its raspi-firmware writes cmdline.txt anew with each kernel.
raspi_debian() {
	raspios
	rm "$R"/boot/firmware/kernel* "$R"/boot/firmware/initramfs*
	put boot/firmware/config.txt 'arm_64bit=1' 'kernel=vmlinuz-6.12.48+deb13-arm64' 'initramfs initrd.img-6.12.48+deb13-arm64'
	put etc/kernel/postinst.d/z50-raspi-firmware 'if [ -z "$ROOTPART" ] ; then' \
		'ROOTPART="$(root_info source)" || ROOTPART=/dev/mmcblk0p2' fi
	put etc/default/raspi-firmware '#ROOTPART=/dev/mmcblk0p2' '#KERNEL="auto"'
}

@test "setup: Debian's raspi-firmware gets the root that it cannot find" {
	local word
	raspi_debian
	run -0 setup_it setup
	tells 'would ROOTPART="PARTUUID=1234abcd-02" in /etc/default/raspi-firmware'
	# the loop device of a protected root is what that hook found before
	put boot/firmware/cmdline.txt 'console=tty0 root=/dev/loop0 rw'
	put proc/cmdline 'root=LABEL=RASPIROOT rootflags=subvol=@ rw'
	run -0 setup_it setup
	tells 'would ROOTPART="LABEL=RASPIROOT rootflags=subvol=@" in'
	put proc/cmdline 'rw'
	stops "the root of the next boot is unknown: set ROOTPART= in /etc/default/raspi-firmware"
	put proc/cmdline 'root=UUID=$(reboot)'
	stops "the root of the next boot is unknown"
	put etc/default/raspi-firmware 'ROOTPART="LABEL=mine"'
	run -0 setup_it setup
	run ! grep -q ROOTPART <<<"$output"
	raspios
	run -0 setup_it setup
	run ! grep -q ROOTPART <<<"$output"
}

@test "setup: how it edits /etc/default/raspi-firmware" {
	raspi_debian
	cp "$R/etc/default/raspi-firmware" "$T/before"
	edit 'rootpart="UUID=x rootflags=subvol=/a&b"; rootpart_set; rootpart_set'
	[ "$(. "$R/etc/default/raspi-firmware" && echo "$ROOTPART")" = 'UUID=x rootflags=subvol=/a&b' ]
	[ "$(grep -c cowfs "$R/etc/default/raspi-firmware")" = 1 ]
	# the first boot after a disable
	put etc/cowfs/dphys-swapfile ''
	PATH=$T/bin:$PATH COWFS_CTL=$COWFS_BUILD/cowctl run -0 "$SRC/setup" leave --root "$R"
	tells "would remove ROOTPART= from /etc/default/raspi-firmware"
	tells "would enable dphys-swapfile"
	edit rootpart_as_before
	cmp "$R/etc/default/raspi-firmware" "$T/before"
	rm -r "$R/etc/cowfs"
	PATH=$T/bin:$PATH COWFS_CTL=$COWFS_BUILD/cowctl run -0 "$SRC/setup" leave --root "$R"
	run ! grep -qE 'ROOTPART|dphys' <<<"$output"
	rm "$R/etc/default/raspi-firmware"
	edit 'rootpart=x; rootpart_set'
	grep -qx 'ROOTPART="x" # cowfs' "$R/etc/default/raspi-firmware"
	only "$R/etc/default" raspi-firmware
}

@test "setup: an initramfs that cannot be made takes everything back" {
	local -a stubs=('build_initramfs() { echo "build $(grep enabled "$conf" || echo none)" >>"$R/calls"; [ -e "$R/works" ]; }'
		'writable_boot() { echo "boot $1" >>"$R/calls"; }; swapon() { :; }; systemctl() { :; }'
		'why=x state=none')
	raspi_debian
	put etc/fstab '/swap none swap sw 0 0'
	put works ''
	edit "${stubs[*]/%/;} remember; conf_set enabled yes; rootpart=x; rootpart_set; fstab_swap_off /swap; building=1; refuse 'update-initramfs failed'" \
		>"$T/out" 2>&1 && return 1
	grep -qx 'update-initramfs failed; the changes were taken back' "$T/out"
	[ ! -e "$R/etc/cowfs/cowfs.conf" ]
	[ "$(cat "$R/etc/fstab")" = '/swap none swap sw 0 0' ]
	run ! grep -q cowfs "$R/etc/default/raspi-firmware"
	[ "$(xargs <"$R/calls")" = 'build none boot off' ]
	# that fails, too; what was enabled before stays so
	rm "$R/works"
	put etc/cowfs/cowfs.conf '[root]' 'enabled = yes'
	: >"$R/calls"
	edit "${stubs[*]/%/;} remember; rootpart=x; rootpart_set; conf_set prepare shrink; building=1; refuse 'update-initramfs failed'" >"$T/out" 2>&1 && return 1
	grep -qx 'update-initramfs failed; the changes were taken back, except in the initramfs: correct this and run cowctl setup again' "$T/out"
	[ "$(cat "$R/etc/cowfs/cowfs.conf")" = $'[root]\nenabled = yes' ]
	grep -q '# cowfs' "$R/etc/default/raspi-firmware"
	[ "$(xargs <"$R/calls")" = 'build enabled = yes boot off' ]
	only "$R/etc/cowfs" cowfs.conf
}

@test "setup: interrupted, it takes everything back" {
	local signal stubs='swapon() { :; }; systemctl() { :; }; state=none'
	raspi_debian
	for signal in HUP INT TERM; do
		put etc/fstab '/swap none swap sw 0 0'
		# in an edit, whose new file is there already; and again while it takes back
		run -1 edit "$stubs; put_in_place() { [ -z \"\$now\" ] || { now=; kill -$signal \$\$; }; mv -f \"\$new\" \"\$file\"; }
			build_initramfs() { kill -$signal \$\$; }; writable_boot() { :; }
			now=; remember; rootpart=x; rootpart_set; building=1 now=1; fstab_swap_off /swap; echo not reached"
		[ "$output" = 'interrupted; the changes were taken back' ] || { echo "$signal: $output"; return 1; }
		[ "$(cat "$R/etc/fstab")" = '/swap none swap sw 0 0' ]
		only "$R/etc" default fstab kernel
		run ! grep -q cowfs "$R/etc/default/raspi-firmware"
	done
}

@test "setup: which boot loader, and how it gets cowfs=off" {
	loader() { # TEXT
		run -0 setup_it setup
		tells "boot loader: $1"
	}
	debian
	loader "GRUB. To boot without cowfs once: press e in its menu, append cowfs=off to the line that begins with linux"
	# both are there: what EFI says
	put boot/efi/loader/loader.conf x
	loader GRUB
	put sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f x
	printf '\6\0\0\0s\0y\0s\0t\0e\0m\0d\0-\0b\0o\0o\0t\0 \0002\0' \
		>"$R/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	loader "systemd-boot. To boot without cowfs once: press e on its entry, append cowfs=off"
	rm -r "$R/sys/firmware"
	rm -r "$R/boot/grub"
	for file in boot/efi/loader/loader.conf efi/loader/loader.conf boot/loader/loader.conf; do
		rm -rf "$R/boot/efi" "$R/efi"
		put "$file" x
		loader systemd-boot
	done
	# without EFI, U-Boot takes the first that it finds
	debian
	put boot/grub/grub.cfg x
	put boot/boot.scr ramdisk_addr_r
	loader "U-Boot with /boot/boot.scr. To boot without cowfs: run setenv bootargs cowfs=off and boot at the prompt"
	put boot/armbianEnv.txt 'verbosity=1'
	loader "U-Boot with /boot/armbianEnv.txt. To boot without cowfs: add the line extraargs=cowfs=off to /boot/armbianEnv.txt"
	put boot/armbianEnv.txt 'extraargs=quiet'
	loader "U-Boot with /boot/armbianEnv.txt. To boot without cowfs: append cowfs=off to extraargs= in /boot/armbianEnv.txt"
	put boot/extlinux/extlinux.conf 'initrd /initrd.img'
	loader "U-Boot with /boot/extlinux/extlinux.conf. To boot without cowfs: append cowfs=off to its append line"
	mkdir -p "$R/sys/firmware/efi"
	loader GRUB
	# the firmware itself, or U-Boot after it
	rm -r "$R/boot"
	raspios
	put etc/kernel/postinst.d/z50-raspi-firmware 'cp "$2" /boot/firmware/initramfs8'
	loader "the firmware of a Raspberry Pi. To boot without cowfs: append cowfs=off to the line in /boot/firmware/cmdline.txt"
	run ! grep -q 'which the next' <<<"$output"
	raspi_debian
	loader "the firmware of a Raspberry Pi. To boot without cowfs: append cowfs=off to the line in /boot/firmware/cmdline.txt, \
which the next kernel writes anew"
	rm -r "$R/etc/kernel"
	put boot/firmware/config.txt 'kernel=u-boot_rpi_arm64.bin'
	put boot/firmware/boot.scr ramdisk_addr_r
	rm -r "$R/sys/firmware"
	loader "U-Boot with /boot/firmware/boot.scr."
}

@test "setup: a file that cannot be edited takes back those before it" {
	raspi_debian
	put etc/fstab '/swap none swap sw 0 0'
	mount -t tmpfs tmpfs "$R/etc/default"
	mount -o remount,ro "$R/etc/default"
	run -1 edit 'swapon() { :; }; remember; conf_set enabled yes; rootpart=x; rootpart_set'
	[ "$output" = "$R/etc/default/raspi-firmware cannot be made; the changes were taken back" ]
	only "$R/etc/cowfs"
	umount "$R/etc/default"
	rm -r "$R/etc/cowfs"
	: >"$R/etc/cowfs"
	run -1 edit 'conf_set enabled yes'
	[[ $output == *"$R/etc/cowfs/cowfs.conf cannot be made; nothing was changed" ]]
	only "$R/etc" cowfs default fstab kernel
}

@test "setup: the first boot has to grow the root before" {
	local word
	for word in init=/usr/lib/raspi-config/init_resize.sh init=/usr/lib/raspberrypi-sys-mods/firstboot resize \
		systemd.run=/boot/firmware/firstrun.sh; do
		raspios
		put boot/firmware/cmdline.txt "console=tty1 root=PARTUUID=1234abcd-02 rootwait $word"
		stops "the first boot has not finished ($word): reboot and run cowctl setup again"
	done
	raspios
	put proc/cmdline 'root=PARTUUID=1234abcd-02 fsck.repair=yes,resize noresize init=/sbin/init'
	run -0 setup_it setup
	put etc/init.d/resize2fs_once x
	stops "has not finished (/etc/init.d/resize2fs_once)"
	rm "$R/etc/init.d/resize2fs_once"
	for word in rpi-resize armbian-resize-filesystem; do
		put usr/lib/systemd/system/$word.service x
		run -0 setup_it setup
		mkdir -p "$R/etc/systemd/system/basic.target.wants"
		ln -s /usr/lib/systemd/system/$word.service "$R/etc/systemd/system/basic.target.wants"
		stops "has not finished ($word.service)"
		rm "$R/etc/systemd/system/basic.target.wants/"*
	done
}

# setup, as a maintainer script of the package runs it
possible() {
	PATH=$T/bin:$PATH COWFS_CTL=$COWFS_BUILD/cowctl "$SRC/setup" possible --root "$R" 2>&1
}

# What the package says where nothing can be protected: WHY, in one line; and setup refuses for this reason.
impossible() {
	local before
	before=$(tree_sum "$R")
	stops "$1"
	run -0 possible
	[ "${#lines[@]}" = 1 ] && [[ $output == "cowfs: the root of this machine cannot be protected: "*"$1"* ]] || { echo "$output"; return 1; }
	[ "$(tree_sum "$R")" = "$before" ]
}

@test "setup: a machine on which no root can be protected" {
	debian
	run -0 possible
	[ -z "$output" ] || { echo "$output"; return 1; }
	put proc/swaps 'Filename Type Size Used Priority' '/var/swap file 102396 0 -2'
	room 1
	[ -z "$(possible)" ] # can be corrected
	debian
	put proc/meminfo 'MemTotal:  65536 kB'
	impossible "64 MiB of memory: too little to hold changes"
	debian
	put proc/self/mountinfo '22 1 0:30 / / rw,relatime shared:1 - zfs rpool/ROOT/debian rw,xattr'
	impossible "/ is zfs on 'rpool/ROOT/debian', which is not a block device"
	put proc/self/mountinfo '22 1 0:30 / / rw,relatime shared:1 - nfs4 10.0.0.1:/srv/root rw,vers=4.2'
	impossible "/ is nfs4 on '10.0.0.1:/srv/root', which is not a block device"
	put proc/self/mountinfo '22 1 0:30 / / rw,relatime shared:1 - overlay overlayroot rw,lowerdir=/media/root-ro'
	put etc/overlayroot.conf 'overlayroot="tmpfs"'
	impossible 'the overlay file system is on (overlayroot="tmpfs"): every change is lost at a reboot'
	run -1 setup_it setup
	[[ $(tr -s ' \n' ' ' <<<"$output") != *"cannot be converted"* ]] # how to install another system is no help here
	rm "$R/etc/overlayroot.conf"
	debian
	put lib/modules/6.1.0-1/modules.dep 'kernel/drivers/block/loop.ko:'
	impossible "the running kernel 6.1.0-1 has no fuse"
	rm -r "$R/lib/modules"
	put proc/filesystems $'nodev\tsysfs' $'\text4'
	impossible "the running kernel 6.1.0-1 has no modules in /lib/modules, and no fuse inside"
	put proc/filesystems $'nodev\tsysfs' $'nodev\tfuse' $'\text4'
	run -0 setup_it setup
	put proc/1/environ 'container=lxc'
	impossible "this is a container"
}

# COMMAND OF DPKG...: the maintainer script, where systemd runs
postinst() {
	sed "s|/usr/lib/cowfs/setup|$T/setup|; s|/run/systemd/system|$T|; s|#DEBHELPER#||" "$SRC/../debian/cowfs.postinst" >"$T/postinst"
	PATH=$T/stub:$PATH sh "$T/postinst" "$@"
}

@test "the package says once that nothing can be protected, and is installed" {
	mkdir "$T/stub"
	for f in getent systemctl cowctl; do
		printf '#!/bin/sh\n' >"$T/stub/$f"
		chmod +x "$T/stub/$f"
	done
	printf '#!/bin/sh\necho "cowfs: why ($*)"\n' >"$T/setup"
	chmod +x "$T/setup"
	[ "$(postinst configure '')" = "cowfs: why (possible)" ]
	[ -z "$(postinst configure 0.1.0-1)" ]
	printf '#!/bin/sh\necho "$*"; echo "cowfs: root: 4 KiB not on the card yet"; echo "cowfs: root: version 1 serves until the next boot; 2 is installed"\n' \
		>"$T/stub/cowctl"
	[ "$(postinst configure 0.1.0-1)" = "cowfs: root: version 1 serves until the next boot; 2 is installed" ]
	[ -z "$(postinst abort-upgrade 0.1.0-1)" ]
	printf '#!/bin/sh\nexit 1\n' >"$T/setup"
	run -0 postinst configure ''
}

@test "setup: others that keep changes in RAM" {
	local word
	for word in overlayroot=tmpfs boot=overlay overlayroot=tmpfs:swap=1,recurse=0; do
		raspios
		put boot/firmware/cmdline.txt "$word console=tty1 root=PARTUUID=1234abcd-02 rootwait"
		stops "the overlay file system is on ($word): every change is lost at a reboot. Remove $word from \
/boot/firmware/cmdline.txt, reboot"
		put usr/bin/raspi-config x
		stops "the overlay file system of raspi-config is on ($word): every change is lost at a reboot. Run \
raspi-config nonint do_overlayfs 1, reboot, and run cowctl setup again"
		rm "$R/usr/bin/raspi-config"
	done
	raspios
	put boot/firmware/cmdline.txt 'overlayroot=disabled root=PARTUUID=1234abcd-02'
	put etc/overlayroot.conf '# overlayroot="tmpfs"' 'overlayroot_cfgdisk="disabled"' 'overlayroot=""'
	run -0 setup_it setup
	put etc/overlayroot.conf 'overlayroot="tmpfs"'
	run -0 setup_it setup # the command line counts
	raspios
	stops "the overlay file system is on (overlayroot=\"tmpfs\"): every change is lost at a reboot. Remove \
overlayroot=\"tmpfs\" from /etc/overlayroot.conf"
	rm "$R/etc/overlayroot.conf"
	debian
	rm -r "$R/boot/firmware"
	put proc/cmdline 'root=x overlayroot=tmpfs'
	stops "Remove overlayroot=tmpfs from the kernel command line"
	raspios
	put etc/default/armbian-ramlog 'ENABLED=false'
	put etc/log2ram.conf 'SIZE=128M'
	put sbin/fake-hwclock x
	run -0 setup_it setup
	tells "ok fake-hwclock: its file is committed like any other; after a power cut the clock starts at the last commit"
	run ! grep -qE 'ramlog|log2ram' <<<"$output"
	put etc/default/armbian-ramlog '# x' 'ENABLED=true'
	mkdir -p "$R/etc/systemd/system/sysinit.target.wants"
	ln -s /etc/systemd/system/log2ram.service "$R/etc/systemd/system/sysinit.target.wants"
	run -0 setup_it setup
	tells "note armbian-ramlog keeps /var/log in RAM a second time: set ENABLED=false in /etc/default/armbian-ramlog"
	tells "note log2ram keeps /var/log in RAM a second time: run systemctl disable log2ram"
}

@test "setup: a kernel that is too old" {
	debian
	put proc/sys/kernel/osrelease 5.7.19-rpi
	put lib/modules/5.7.19-rpi/modules.dep 'kernel/fs/fuse/fuse.ko:' 'kernel/drivers/block/loop.ko:'
	stops "the running kernel 5.7.19-rpi is older than 5.9, the oldest that cowfs runs on: install a newer one and reboot"
	debian
	run -0 setup_it setup
	tells "note kernel 5.7.19-rpi is older than 5.9: it would boot with a read-only root"
	for version in 5.9.0 5.10.0-35-arm64 6.1.21-v8+; do
		debian
		rm -r "$R/lib"
		put proc/sys/kernel/osrelease "$version"
		put "lib/modules/$version/modules.dep" 'kernel/fs/fuse/fuse.ko:' 'kernel/drivers/block/loop.ko:'
		run -0 setup_it setup
	done
}

@test "setup: zram with a file or a device behind it is no swap in RAM" {
	debian
	put proc/swaps 'Filename Type Size Used Priority' '/dev/zram0 partition 1 0 5'
	put sys/block/zram0/backing_dev none
	run -0 setup_it setup
	tells "ok swap on /dev/zram0"
	put sys/block/zram0/backing_dev /dev/fakecard3
	stops "swap on /dev/zram0 writes back to /dev/fakecard3: configure it without a backing device and reboot"
	put etc/rpi/swap.conf '[Main]' '#Mechanism=auto'
	put sys/block/zram0/backing_dev /dev/loop0
	stops "swap on /dev/zram0 writes back to /dev/loop0: write the lines [Main] and Mechanism=zram to \
/etc/rpi/swap.conf.d/80-cowfs.conf and reboot"
	# a swap file of rpi-swap comes back at each boot
	put proc/swaps 'Filename Type Size Used Priority' '/var/swap file 102396 0 -2'
	stops "rpi-swap makes the swap file /var/swap at each boot: write the lines [Main] and Mechanism=zram to"
	run -1 setup_it setup --swap-off
}

@test "setup: notes" {
	debian
	put proc/self/mountinfo '22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/root rw' \
		'31 22 8:3 / /home rw - ext4 /dev/fakecard3 rw'
	put boot/vmlinuz x
	put boot/extlinux/extlinux.conf 'initrd /initrd.img'
	put etc/fstab "UUID=x / ext4 errors=remount-ro 0 1"
	put proc/swaps 'Filename Type Size Used Priority' '/dev/zram0 partition 1 0 5' '/dev/fakecard5 partition 1 0 5'
	put proc/cmdline 'root=x resume=UUID=y'
	put lib/modules/5.10/modules.dep 'kernel/fs/fuse/fuse.ko:'
	rm -r "$R/run/systemd"
	run -0 setup_it setup
	tells "/boot is inside the root"
	tells "would [root] of $R/etc/cowfs/cowfs.conf: checkpoint = always"
	tells "To boot without cowfs: append cowfs=off to its append line, and run cowctl commit root --checkpoint"
	tells "/home is a separate file system"
	tells "ok swap on /dev/zram0"
	tells "note swap on /dev/fakecard5"
	tells "note kernel 5.10 has no loop"
	tells "no systemd"
	run ! grep -q "becomes read-only" <<<"$output"
	run ! grep -q "inline_data" <<<"$output"
	image 400 -O inline_data # read only, never mounted
	run -0 setup_it setup
	tells "note /dev/fakecard2 has the feature inline_data: Linux 6.18 can deadlock with it"
}

# the functions that change files, from the script itself
edit() {
	sh -c "set -eu; R=\$1 conf=\$1/etc/cowfs/cowfs.conf; command=setup image= raspi_defaults=/etc/default/raspi-firmware; finish() { printf '%s\n' \"\$2\" >&2; exit \"\$1\"; }
		$(sed -n '/^# ---- changes/,/^make_dracut()/{/^make_dracut()/!p}' "$SRC/setup"); $1" sh "$R"
}

# nothing of a new file is left over
only() { # FOLDER FILE...
	local folder=$1
	shift
	[ "$(ls -A "$folder")" = "$(printf '%s\n' "$@" | sort)" ] || { ls -lA "$folder"; return 1; }
}

# / on a logical volume on LUKS on an array
stacked() {
	debian
	put sys/dev/block/8:2/uevent DEVNAME=dm-1
	put sys/class/block/dm-1/dm/uuid LVM-x
	put sys/class/block/dm-1/dm/name vg-root
	put sys/class/block/dm-1/slaves/dm-0/dev 8:3
	put sys/class/block/dm-0/dm/uuid CRYPT-LUKS2-x
	put sys/class/block/dm-0/dm/name secret
	put sys/class/block/dm-0/slaves/md0/dev 9:0
	put etc/crypttab '# name source key options' 'secret UUID=a none luks,discard' 'other UUID=b none'
	sed -i 's/fakecard2/dm-1/' "$T/bin/dumpe2fs"
}

@test "setup: a root below which something must be opened" {
	debian
	stacked
	run -0 setup_it setup
	tells "ok / is on secret, which the initramfs opens before"
	tells "would option initramfs for secret in /etc/crypttab"
	put etc/crypttab 'secret UUID=a none luks,initramfs,discard'
	run -0 setup_it setup
	run ! grep -q 'option initramfs' <<<"$output"
	rm "$R/usr/share/initramfs-tools" -r
	put etc/crypttab 'secret UUID=a none luks'
	put usr/bin/dracut x
	put usr/lib/dracut/modules.d/90cowfs/module-setup.sh x
	run -0 setup_it setup
	run ! grep -q 'option initramfs' <<<"$output"
	rm "$R/etc/crypttab"
	run -0 setup_it setup
	tells "note secret, which / is on, is not in /etc/crypttab"
}

@test "setup: how it edits crypttab" {
	stacked
	put etc/crypttab '# name source key options' 'secret UUID=a none luks,discard' 'other UUID=b none # mine' 'plain UUID=c'
	edit 'crypttab_initramfs secret; crypttab_initramfs other; crypttab_initramfs plain'
	run -0 cat "$R/etc/crypttab"
	[ "$output" = '# name source key options
secret UUID=a none initramfs,luks,discard
other UUID=b none initramfs # mine
plain UUID=c none initramfs' ]
}

@test "setup: how it edits cowfs.conf and the fstab" {
	R=$T/edit
	edit 'conf_set enabled yes'
	[ "$(cat "$R/etc/cowfs/cowfs.conf")" = $'\n[root]\nenabled = yes' ] ||
		[ "$(cat "$R/etc/cowfs/cowfs.conf")" = $'[root]\nenabled = yes' ]
	put etc/cowfs/cowfs.conf '# mine' '[default]' 'ram = 10%' '[root]' 'enabled=no' '# yes' '[data]' 'name2 = 1'
	edit 'conf_set enabled yes; conf_set prepare shrink'
	[ "$(cat "$R/etc/cowfs/cowfs.conf")" = "$(printf '%s\n' '# mine' '[default]' 'ram = 10%' '[root]' 'enabled = yes' '# yes' \
		'prepare = shrink' '[data]' 'name2 = 1')" ]
	edit 'conf_set prepare no'
	grep -c prepare "$R/etc/cowfs/cowfs.conf" | grep -qx 1
	only "$R/etc/cowfs" cowfs.conf
	put etc/fstab '# /boot here' 'UUID=y  /boot   ext4 defaults  0 2' 'UUID=z /boot/firmware vfat rw 0 0' 'UUID=w /bootx ext4 rw 0 0'
	cp "$R/etc/fstab" "$T/fstab"
	edit fstab_boot_readonly
	[ "$(grep -c ',ro,x-cowfs ' "$R/etc/fstab")" = 2 ]
	grep -q '^UUID=y  /boot   ext4 defaults,ro,x-cowfs  0 2$' "$R/etc/fstab"
	edit fstab_as_before
	cmp "$R/etc/fstab" "$T/fstab"
	only "$R/etc" cowfs fstab
}

@test "setup: swap files with odd names, and an fstab in odd forms" {
	local swap all
	R=$T/edit
	all=('/a|b&c' '/with\040space' '/b\134ack' '/d.t' '/st*r' '/[x]' "/q'\"uote" '/$(touch\040x)' '/,ro,x-cowfs')
	# what only looks like it is before it, a comment that names it as well
	put etc/fstab '# swap: /a|b&c none swap sw 0 0' '/dXt none swap sw 0 0' '/star none swap sw 0 0' '/x none swap sw 0 0' \
		"${all[@]/%/$'\t none  swap sw 0 0'}" '/d.t /mnt ext4 loop 0 0'
	cp "$R/etc/fstab" "$T/fstab"
	for swap in "${all[@]}"; do
		SWAP=$swap edit 'fstab_swap_off "$SWAP"'
		[ "$(grep -c '^#cowfs# ' "$R/etc/fstab")" = 1 ]
		grep -qxF "#cowfs# $swap"$'\t none  swap sw 0 0' "$R/etc/fstab"
		cp "$T/fstab" "$R/etc/fstab"
	done
	# lines end in CRLF, the last one does not end
	printf 'UUID=y /boot ext4 defaults\r\n/swap none swap\tsw\r\n\r\nUUID=z /boot/firmware vfat rw 0 0' >"$R/etc/fstab"
	edit 'fstab_boot_readonly; fstab_swap_off /swap'
	printf 'UUID=y /boot ext4 defaults,ro,x-cowfs\r\n#cowfs# /swap none swap\tsw\r\n\r\n%s\n' \
		'UUID=z /boot/firmware vfat rw,ro,x-cowfs 0 0' | cmp - "$R/etc/fstab"
	edit fstab_as_before
	printf 'UUID=y /boot ext4 defaults\r\n/swap none swap\tsw\r\n\r\nUUID=z /boot/firmware vfat rw 0 0\n' | cmp - "$R/etc/fstab"
	only "$R/etc" fstab
}

@test "setup: dphys-swapfile is off until leave" {
	R=$T/edit
	mkdir -p "$T/bin" "$R/etc/cowfs"
	printf '#!/bin/sh\necho "$*" >>%s/calls\n' "$T" >"$T/bin/systemctl"
	chmod +x "$T/bin/systemctl"
	: >"$T/calls"
	PATH=$T/bin:$PATH edit 'dphys_off; dphys_on'
	[ ! -s "$T/calls" ]
	put etc/dphys-swapfile ''
	PATH=$T/bin:$PATH edit dphys_on
	[ ! -s "$T/calls" ]
	PATH=$T/bin:$PATH edit dphys_off
	PATH=$T/bin:$PATH edit 'dphys_on; dphys_on'
	[ "$(cat "$T/calls")" = $'disable dphys-swapfile\nenable dphys-swapfile' ]
	only "$R/etc/cowfs"
}

@test "setup: an fstab keeps owner, mode and place, and survives each failure" {
	local tool awk
	R=$T/edit
	put etc/fstab 'UUID=y /boot ext4 defaults 0 2' '/swap none swap sw 0 0'
	chown 12:34 "$R/etc/fstab"
	chmod 640 "$R/etc/fstab"
	mkdir "$R/elsewhere"
	mv "$R/etc/fstab" "$R/elsewhere/table"
	ln -s ../elsewhere/table "$R/etc/fstab"
	edit fstab_boot_readonly
	[ "$(readlink "$R/etc/fstab")" = ../elsewhere/table ]
	[ "$(stat -c %u:%g:%a "$R/elsewhere/table")" = 12:34:640 ]
	grep -q 'defaults,ro,x-cowfs 0 2' "$R/elsewhere/table"
	only "$R/elsewhere" table
	only "$R/etc" fstab
	cp -a "$R/elsewhere/table" "$T/fstab"
	survives() { # WHAT
		cmp "$R/elsewhere/table" "$T/fstab" || { echo "after $1"; return 1; }
		only "$R/elsewhere" table
	}
	# each program that is needed fails; awk also cuts, prints nothing, or something else, and says that all is well
	mkdir -p "$T/fail"
	for tool in awk cp mktemp mv readlink sync; do
		printf '#!/bin/sh\nexit 1\n' >"$T/fail/$tool"
		chmod +x "$T/fail/$tool"
		PATH=$T/fail:$PATH run ! edit 'fstab_swap_off /swap'
		survives "$tool fails"
		rm "$T/fail/$tool"
	done
	cp -a "$T/fstab" "$R/elsewhere/table"
	awk=$(command -v awk)
	for tool in 'exit 0' 'head -c 40 "$2"' 'echo "/swap none swap sw 0 0"' 'cat "$2" "$2"' "sed s/UUID=y/UUID=z/ \"\$2\""; do
		printf '#!/bin/sh\ncase $1 in END*) exec %s "$@" ;; esac\n%s\n' "$awk" "$tool" >"$T/fail/awk"
		chmod +x "$T/fail/awk"
		PATH=$T/fail:$PATH run -1 edit 'fstab_swap_off /swap'
		[[ $output == *"fstab"*"nothing was changed"* || $output == *"table could not be edited; nothing was changed"* ]]
		survives "$tool"
	done
	rm "$T/fail/awk"
	# a folder that cannot be written to
	mount -t tmpfs tmpfs "$R/elsewhere"
	cp -a "$T/fstab" "$R/elsewhere/table"
	mount -o remount,ro "$R/elsewhere"
	run -1 edit 'fstab_swap_off /swap'
	[[ $output == *"cannot be written; nothing was changed"* ]]
	survives "read-only"
	umount "$R/elsewhere"
	rm "$R/etc/fstab"
	run -1 edit 'fstab_swap_off /swap'
	[ ! -e "$R/etc/fstab" ]
}

# Some shells (bash) run what stands in an index of a number.
@test "setup: what a superblock says is neither a line nor a number nor a command" {
	debian
	# as dumpe2fs prints a label, or the folder that it was last mounted on
	printf '#!/bin/sh\ncat <<"END"\nFilesystem volume name:   x\nFree blocks: a[$(touch %s/got)0]\nEND\n/usr/sbin/dumpe2fs -h %s/image\n' \
		"$T" "$T" >"$T/bin/dumpe2fs"
	stops "has no plain number as its 'Free blocks'"
	[ ! -e "$T/got" ]
	sed "1s|.*|#!/bin/bash|" "$SRC/setup" >"$T/setup"
	chmod +x "$T/setup"
	cp "$SRC/setup-checks" "$T"
	PATH=$T/bin:$PATH COWFS_CTL=$COWFS_BUILD/cowctl run -1 "$T/setup" setup --root "$R"
	[ ! -e "$T/got" ]
}

@test "setup: names with control characters" {
	debian
	put proc/swaps 'Filename Type Size Used Priority' $'/sw\e[2Jap\\040"x file 102396 0 -2'
	run -1 setup_it setup
	[[ $output == *'/sw?[2Jap\040"x'* && $output != *$'\e'* ]]
	run -1 setup_it setup --json
	jq -e '.lines | any(.text | contains("/sw?[2Jap\\040\"x"))' <<<"$output"
	run -0 setup_it setup --swap-off
	[[ $output == *'switch off swap on /sw?[2Jap\040"x'* && $output != *$'\e'* ]]
}
