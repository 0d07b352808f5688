# shellcheck shell=sh disable=SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# The kernel package is updated under protection (the installed one, packed again with a higher version). The plug is pulled right after
# dpkg, and in the long form 10 times at any write before: the boot loader finds a kernel whose modules are there, and the root is protected.
# guests: debian12 debian13 debian12-arm64 debian13-arm64
MEM=1024 LOADER=1 KILLED=1 LIMIT=3600 STEP_LIMIT=3300

step_1() {
	protected || fail "the root is $(root_device)"
	settled
	mark ready
	sleep 4
	must dpkg -i ./kernel.deb
	mark updated
	sleep 100
}

step_2() {
	protected || fail "the root is $(root_device)"
	[ -d "/lib/modules/$(uname -r)/kernel" ] || fail "no modules of $(uname -r)"
	must modprobe dummy
	dpkg-query -W -f '${Version} ${Status}\n' "linux-image-$(uname -r)" >/run/cowfs-test/out
	say "$(cat /run/cowfs-test/out)"
	# after a cut the package may be half configured, and that can be mended
	case $(cat /run/cowfs-test/out) in
	*"ok installed") ;;
	*) must dpkg --configure -a ;;
	esac
}

host_before() {
	[ "$1" != 1 ] || { kernel_pack "$DIR" "$WORK" && EXTRA=$WORK/kernel.deb; }
}

host_during() {
	[ "$1" = 1 ] || return 0
	wait_mark ready && vm_save
}

host_after() {
	[ "$1" = 1 ] || return 0
	vm_load
	wait_mark updated
	writes=$(qemu_writes | cut -d' ' -f1)
	vm_kill
	wait_gone
	boot 2
	say "$writes writes in an update"
	[ -n "$LONG" ] || return 0
	i=0
	while [ $i -lt 10 ]; do
		i=$((i + 1))
		vm_load
		cut_at $((RANDOM % writes))
		boot 2
	done
}

# The package of the installed kernel, from the tree of the guest.
kernel_pack() { # folder of the guest, where to
	root=$1/root
	package=$(basename "$(ls "$root"/var/lib/dpkg/info/linux-image-[0-9]*.list)" .list)
	rm -rf "$2/pack"
	mkdir -p "$2/pack/DEBIAN" "$2/pack/boot"
	awk -v p="$package" -v RS= 'index($0, "Package: " p "\n") == 1' "$root/var/lib/dpkg/status" |
		sed '/^Status:/d; /^Conffiles:/d; /^ \//d; s/^\(Version: .*\)/\1+again/' >"$2/pack/DEBIAN/control"
	for script in preinst postinst prerm postrm; do
		[ ! -e "$root/var/lib/dpkg/info/$package.$script" ] ||
			cp -p "$root/var/lib/dpkg/info/$package.$script" "$2/pack/DEBIAN/$script"
	done
	boot=$root/boot
	[ ! -e "$1/root.boot/vmlinuz" ] || boot=$1/root.boot
	cp "$boot"/vmlinuz-* "$boot"/config-* "$2/pack/boot/"
	mkdir -p "$2/pack/usr/lib" "$2/pack/lib"
	# no link instead of a folder: /lib is one in the guest
	cp -a "$root/lib/modules" "$2/pack/lib/modules"
	rm -f "$2"/pack/lib/modules/*/modules.*.bin "$2"/pack/lib/modules/*/modules.dep "$2"/pack/lib/modules/*/modules.alias \
		"$2"/pack/lib/modules/*/modules.symbols "$2"/pack/lib/modules/*/modules.softdep "$2"/pack/lib/modules/*/modules.devname
	dpkg-deb --root-owner-group -Zzstd -z6 -b "$2/pack" "$2/kernel.deb" >/dev/null || fail "no kernel package"
	rm -rf "$2/pack"
}
