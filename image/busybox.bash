# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# A system of kernel, busybox and cowfs, and nothing else: what a small appliance looks like.
#
#	busybox_tree TREE OVERLAY...	TREE and TREE.boot, as debian_tree does
#	IMAGE_PROGRAMS		programs of IMAGE_PACKAGES that it gets as well
#	IMAGE_KERNEL		the Debian suite that the kernel comes from, if not Debian 12

# What a virtual machine, a PC and most small boards need to see a card, and cowfs to serve it.
BUSYBOX_MODULES="virtio_pci virtio_blk virtio_scsi virtio_rng ahci ata_piix sd_mod usb-storage uas xhci-pci ehci-pci sdhci-pci sdhci-acpi \
	mmc_block nvme ext4 fuse loop i6300esb"

busybox_tree() {
	local tree=$1 overlay source=$1.debian version tar suite=bookworm libs
	shift
	# Debian 12 has no riscv64
	[ "${IMAGE_ARCH-}" != riscv64 ] || suite=trixie
	libs=IMAGE_LIBS_$suite
	if [ -z "${IMAGE_ARCH-}" ]; then
		IMAGE_PACKAGES='' debian_fetch debian12
		tar=$(IMAGE_PACKAGES='' debian_tar debian12)
	else
		tar=$(unpacked_tar "$suite" "busybox-$suite-$IMAGE_ARCH" "$(kernel_package)" busybox-static bash libc-bin libgcc-s1 ${!libs})
	fi
	rm -rf "$tree" "$tree.boot" "$source"
	rootfs_unpack "$tar" "$source"
	# shellcheck disable=SC2086 # words
	[ -z "${IMAGE_PROGRAMS-}" ] ||
		rootfs_unpack "$(unpacked_tar "$suite" "programs-$suite${IMAGE_ARCH:+-$IMAGE_ARCH}-${IMAGE_PACKAGES// /-}" $IMAGE_PACKAGES)" "$source"
	[ -z "${IMAGE_KERNEL-}" ] || kernel_put "$source" "$IMAGE_KERNEL"
	version=$(find "$source/lib/modules/" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -V | tail -1)
	[ -z "${IMAGE_ARCH-}" ] || depmod -b "$source" "$version"
	mkdir -p "$tree"/{bin,sbin,usr/bin,usr/sbin,usr/lib,lib,lib64,dev,proc,sys,run,tmp,var/log,root,mnt,etc/init.d,boot} "$tree.boot"
	ln -s ../run "$tree/var/run"
	busybox_programs "$tree" "$source"
	cowfs_tree "$suite" "$tree.cowfs"
	cp -a --no-preserve=ownership "$tree.cowfs/." "$source/"
	busybox_cowfs "$tree" "$tree.cowfs" "$source"
	busybox_modules "$tree" "$source" "$version"
	busybox_etc "$tree"
	for overlay; do
		cp -a --no-preserve=ownership "$overlay/." "$tree/"
	done
	cp "$source"/boot/vmlinu[xz]-"$version" "$tree.boot/vmlinuz"
	busybox_initramfs "$source" "$version" "$tree.boot/initrd.img" "$tree"
	loader_config "$tree.boot" "root=PARTUUID=c0ffee00-02 ro ${IMAGE_CMDLINE-}"
	rm -rf "$source" "$tree.cowfs"
}

# Of packages that are needed beside a Debian, or in place of one. Unpacked, not installed: emulated scripts of packages take 20 minutes.
unpacked_tar() { # SUITE NAME PACKAGE...
	local suite=$1 file=$CACHE/$2.tar
	shift 2
	# shellcheck disable=SC2016 # for the inner shell
	SETUP_HOOK='sh /usr/share/mmdebstrap/hooks/merged-usr/setup00.sh "$1"' VARIANT=extract rootfs_tar "$suite" "$file" "$@"
	echo "$file"
}

busybox_programs() {
	local tree=$1 applet
	cp "${IMAGE_ARCH:+$2}/bin/busybox" "$tree/bin/busybox"
	ldd "$tree/bin/busybox" >/dev/null 2>&1 && die "/bin/busybox is not the static one: install busybox-static"
	for applet in $("$tree/bin/busybox" --list-full); do
		mkdir -p "$tree/$(dirname "$applet")"
		[ -e "$tree/$applet" ] || ln -s /bin/busybox "$tree/$applet"
	done
}

# The programs, what their adapter to busybox is, and the libraries that they need.
busybox_cowfs() {
	local tree=$1 from=$2 source=$3 lib part program
	cp -a "$from/usr/sbin/." "$tree/usr/sbin/"
	for part in usr/lib/cowfs usr/share/cowfs; do
		[ ! -d "$from/$part" ] || { mkdir -p "$tree/$part" && cp -a "$from/$part/." "$tree/$part/"; }
	done
	for program in ${IMAGE_PROGRAMS-}; do
		cp "$source/$(chroot "$source" readlink -f "$program")" "$tree$program"
	done
	# shellcheck disable=SC2016,SC2086 # for the inner shell; words
	chroot_run "$source" bash -c 'for p in /usr/sbin/*cow* "$@"; do ldd "$p"; done' sh ${IMAGE_PROGRAMS-} |
		awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' | sort -u |
		while read -r lib; do
			mkdir -p "$tree/$(dirname "$lib")"
			# a link of the loader is absolute, and leads to that of this machine from outside
			cp "$source/$(chroot "$source" readlink -f "$lib" </dev/null)" "$tree/$lib"
		done
}

busybox_modules() {
	local tree=$1 source=$2 version=$3 m file
	mkdir -p "$tree/lib/modules/$version"
	cp "$source/lib/modules/$version"/modules.{builtin,order}* "$tree/lib/modules/$version/"
	for m in $BUSYBOX_MODULES; do
		# a kernel for virtual machines has not all of them
		{ modprobe -d "$source" -S "$version" --show-depends "$m" 2>/dev/null || :; } |
			awk '$1 == "insmod" { print $2 }'
	done | sort -u | while read -r file; do
		file=lib/modules/${file#*/lib/modules/}
		mkdir -p "$tree/$(dirname "$file")"
		cp "$source/$file" "$tree/$file"
	done
	depmod -b "$tree" "$version"
}

busybox_etc() {
	local tree=$1
	echo cowfs >"$tree/etc/hostname"
	# shellcheck disable=SC2016 # a hash
	echo 'root::0:0:root:/root:/bin/sh' >"$tree/etc/passwd"
	echo 'root:x:0:' >"$tree/etc/group"
	ln -s /proc/self/mounts "$tree/etc/mtab"
	mkdir -p "$tree/etc/cowfs"
	printf '# see cowfs.conf(5)\n[root]\n%s' "${IMAGE_CONF-}" >"$tree/etc/cowfs/cowfs.conf"
	cat >"$tree/etc/inittab" <<-END
		::sysinit:/etc/init.d/rcS
		$(image_console)::respawn:/sbin/getty -L 115200 $(image_console) vt100
		::ctrlaltdel:/sbin/reboot
		::shutdown:/etc/init.d/rcK
	END
	[ -e "$tree/etc/init.d/rcS" ] || cp "$tree/usr/share/cowfs/busybox/rcS" "$tree/usr/share/cowfs/busybox/rcK" "$tree/etc/init.d/"
}

# Made where a Debian's ldd and modules are, by the tool that such a system gets with cowfs.
busybox_initramfs() {
	local source=$1 version=$2 out=$3 m options=()
	for m in $BUSYBOX_MODULES; do
		options+=(-m "$m")
	done
	cp "$4/bin/busybox" "$source/bin/busybox"
	mkdir -p "$source/etc/cowfs"
	cp "$4/etc/cowfs/cowfs.conf" "$source/etc/cowfs/"
	"$source/usr/share/cowfs/busybox/mkinitramfs" -r "$source" -k "$version" "${options[@]}" "$out" ||
		die "no initramfs of busybox"
}
