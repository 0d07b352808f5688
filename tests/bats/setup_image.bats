#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl setup --image TREE, and setup on a composed root. Whole systems are made by it in tests/vm (guests *-squashfs).
# turn: 3

load lib

SRC=$(cd "$BATS_TEST_DIRNAME/../../systemd" && pwd)
V=6.1.0-1
LOWER=PARTUUID=c0ffee00-03

setup() {
	cow_setup || return
	export COWFS_LIBDIR=$SRC
	R=$T/tree
}

modules() { # NAME...
	put "lib/modules/$V/modules.dep" "${@/%/.ko:}"
	sed -i 's|^|kernel/|' "$R/lib/modules/$V/modules.dep"
}

# A system with all that setup wants, as files
tree() {
	rm -rf "$R"
	mkdir -p "$R"/{proc/self,sys,dev,run,tmp,etc,boot}
	put proc/self/mountinfo ''
	put usr/share/initramfs-tools/hook-functions x
	put usr/share/initramfs-tools/hooks/cowfs x
	put etc/initramfs-tools/initramfs.conf MODULES=most
	put usr/sbin/cowfs x
	put usr/sbin/cowctl x
	put etc/fstab 'UUID=x / ext4 errors=remount-ro 0 1' 'UUID=y /boot ext4 defaults 0 2' '# end'
	put etc/machine-id ''
	put "boot/initrd.img-$V" x
	modules fuse loop overlay squashfs ext4
}

# The checks alone, on a tree that need not have programs.
look() { # OPTION...
	COWFS_IMAGE=/srv/tree COWFS_CTL=$COWFS_BUILD/cowctl cow setup --image / --root "$R" "$@" 2>&1
}

stops() { # TEXT [LOWER]
	run -1 look --lower "${2-$LOWER}"
	tells "STOP $1"
	tells "must be corrected first: nothing was done"
}

@test "setup --image --dry-run: what it would do, and what is left to do" {
	local before
	tree
	before=$(tree_sum "$R")
	run -0 look --lower "$LOWER"
	tells "ok /srv/tree is a system"
	tells "ok kernel $V has fuse, loop, overlay and ext4"
	tells "ok apart from the image: /boot"
	tells "would [root] of $R/etc/cowfs/cowfs.conf: enabled = yes, compose = overlay, lower = $LOWER"
	tells "would the line of / in /etc/fstab: overlay / overlay noatime 0 0"
	tells "would make /boot read-only"
	tells "would rebuild the initramfs"
	tells "then copy what is in /srv/tree/boot to the partition of /boot"
	# a line each, to be copied
	grep -qxF "      mksquashfs /srv/tree root.squashfs -noappend -wildcards -e 'boot/*' 'dev/*' 'proc/*' 'run/*' 'sys/*' 'tmp/*'" <<<"$output"
	grep -qxF '      mke2fs -t ext4 VOLUME && cowctl prepare --shrink VOLUME' <<<"$output"
	run ! grep -qE 'STOP|note' <<<"$output"
	[ "$(tree_sum "$R")" = "$before" ]
	output=$(COWFS_IMAGE="/srv/a tree's; rm" COWFS_CTL=$COWFS_BUILD/cowctl cow setup --image / --root "$R" --lower "$LOWER")
	grep -qF "      mksquashfs '/srv/a tree'\''s; rm' root.squashfs -noappend" <<<"$output"
	run -0 look --lower "$LOWER" --json
	jq -e '.ok and (.lines | any(.kind == "run"))' <<<"$output"
	run -2 cow setup --lower "$LOWER"
	tells "--lower belongs to --image"
	# what its configuration says already
	put etc/cowfs/cowfs.conf '[root]' 'compose = overlay' 'lower = LABEL=os:/a/b.squashfs'
	run -0 look
	tells "lower = LABEL=os:/a/b.squashfs"
	tells "then make the image, and write it to the file /a/b.squashfs on LABEL=os"
	tells "note the file system that the image lies on must have ro"
}

@test "setup --image: what stops it, each alone" {
	local lower file
	tree
	stops "the place of the image is unknown: add --lower DEVICE[:/FILE]" ''
	for lower in 'a b' $'LABEL=a\nlower = b' 'LABEL=a"' 'LABEL=$(x)' 'LABEL=a;b' 'LABEL=#'; do
		stops "--lower $(tr '\n' ' ' <<<"$lower" | sed 's/ $//'): a device and a file have plain characters only" "$lower"
	done
	for lower in root.squashfs LABEL= /dev/../x /dev/sda3:/../x /dev/sda3: =x; do
		stops "with lower = $lower the configuration is invalid" "$lower"
	done
	put etc/kernel/cmdline "root=$LOWER quiet"
	stops "--lower $LOWER is what root= names, which holds the changes"
	tree
	put etc/cowfs/cowfs.conf '[root]' 'nonsense = 1'
	stops "the configuration is invalid"
	put etc/cowfs/cowfs.conf '[root]' 'on-detach = commit'
	run -0 look --lower "$LOWER"
	for file in usr/sbin/cowfs usr/sbin/cowctl; do
		tree
		rm "$R/$file"
		COWFS_IMAGE=/srv/tree run -1 "$SRC/setup" setup --image / --root "$R" --lower "$LOWER"
		tells "STOP /$file is missing"
	done
	tree
	rm "$R/usr/share/initramfs-tools/hooks/cowfs"
	stops "/usr/share/initramfs-tools/hooks/cowfs is missing"
	rm -r "$R/usr/share/initramfs-tools"
	stops "none of initramfs-tools, dracut and mkinitcpio"
	put usr/bin/mkinitcpio x
	put usr/lib/initcpio/install/cowfs x
	stops "mkinitcpio cannot compose a root"
	put usr/bin/dracut x
	put usr/lib/dracut/modules.d/90cowfs/module-setup.sh x
	stops "dracut without systemd cannot compose a root"
	put usr/lib/systemd/systemd x
	run -0 look --lower "$LOWER"
	put etc/dracut.conf.d/image.conf 'hostonly="yes"'
	stops 'hostonly="yes": dracut takes the modules that this machine needs'
	put etc/dracut.conf.d/later.conf 'hostonly="no"'
	run -0 look --lower "$LOWER"
	tree
	put etc/initramfs-tools/conf.d/x MODULES=dep
	stops "MODULES=dep: mkinitramfs takes the modules that this machine needs"
	tree
	for file in fuse loop overlay ext4 squashfs; do
		modules $(printf '%s\n' fuse loop overlay ext4 squashfs | grep -vx "$file")
		stops "kernel $V has no $file: install another one instead"
	done
	modules fuse loop overlay ext4 erofs
	run -0 look --lower "$LOWER"
	put lib/modules/5.4.0/modules.dep x
	stops "kernel 5.4.0 is older than 5.9"
	rm -r "$R/lib"
	stops "no kernel with modules is installed"
	tree
	rm "$R/etc/fstab"
	mkfifo "$R/etc/fstab"
	stops "/etc/fstab is not a file"
	rm "$R/etc/fstab"
	put etc/fstab 'UUID=x / ext4 defaults 0 1' 'UUID=z / ext4 defaults 0 1'
	stops "/etc/fstab has several lines of /"
	put etc/fstab '/swap none swap sw 0 0' '/dev/sda9 none swap sw 0 0'
	stops "an overlay cannot hold the swap file /swap: remove its line"
	tree
	put etc/rpi/swap.conf '[Main]' '#Mechanism=auto'
	stops "rpi-swap makes a swap file"
	put etc/rpi/swap.conf.d/80-cowfs.conf '[Main]' 'Mechanism=zram'
	run -0 look --lower "$LOWER"
	mkdir -p "$R/etc/systemd/system/multi-user.target.wants"
	ln -s x "$R/etc/systemd/system/multi-user.target.wants/dphys-swapfile.service"
	stops "dphys-swapfile makes a swap file"
	tree
	put etc/overlayroot.conf 'overlayroot="tmpfs"'
	stops "overlayroot keeps every change in RAM"
}

@test "setup --image: the file system that the image is a file on, and notes" {
	tree
	file() { # LINE-OF-FSTAB
		put etc/fstab "$1"
		run look --lower LABEL=os:/root.squashfs
	}
	file 'LABEL=os /srv ext4 defaults 0 2'
	tells "STOP /srv, which lower = names, must be read-only: add ro"
	file 'LABEL=os /srv ext4 noatime,ro 0 2'
	[ "$status" = 0 ]
	file 'LABEL=os /srv vfat umask=77 0 2'
	tells "STOP /srv, which lower = names, must be read-only: add ro"
	# becomes read-only
	file 'LABEL=os /boot vfat defaults 0 2'
	[ "$status" = 0 ]
	file 'LABEL=os /boot ext4 ro 0 2'
	tells "STOP /boot, which lower = names, is ext4: it cannot be made writable"
	tree
	put etc/fstab ''
	put etc/machine-id 0123
	put etc/ssh/ssh_host_rsa_key x
	put var/lib/systemd/random-seed x
	run -0 look --lower "$LOWER"
	tells "note /etc/fstab has no line of a boot partition"
	tells "note all machines with this image would have the same /etc/machine-id: make it empty"
	tells "note all machines with this image would have the same /etc/ssh/ssh_host_rsa_key"
	tells "note all machines with this image would have the same /var/lib/systemd/random-seed"
	run ! grep -q "'boot/\*'" <<<"$output"
	put usr/sbin/grub-mkconfig x
	put etc/kernel/postinst.d/zz-update-grub x
	chmod +x "$R/usr/sbin/grub-mkconfig" "$R/etc/kernel/postinst.d/zz-update-grub"
	run -0 look --lower "$LOWER"
	tells "note update-grub fails on an overlay, and with it each new kernel"
	# a Raspberry Pi
	put boot/firmware/cmdline.txt x
	put boot/firmware/config.txt '[pi4]' auto_initramfs=1
	stops "/boot/firmware/config.txt: the firmware loads no initramfs"
	put boot/firmware/config.txt auto_initramfs=1
	run -0 look --lower "$LOWER"
	put etc/kernel/postinst.d/z50-raspi-firmware ROOTPART
	stops "the root of the next boot is unknown: set ROOTPART="
}

# ---- trees with programs ----

# FILE...: copied to the same place in the tree
copy_in() {
	local file
	for file; do
		mkdir -p "$R${file%/*}"
		[ -e "$R$file" ] || cp "$file" "$R$file"
	done
}

libraries_of() { ldd "$1" 2>/dev/null | grep -o '/[^ ]*'; }

# COMMAND...: copies programs with their libraries
install_programs() {
	local program
	for program; do
		program=$(type -P "$program")
		copy_in "$program" $(libraries_of "$program")
	done
}

# One that can be entered; its initramfs is a list of names. boot/fail, boot/lacks and boot/wait change what its tool does.
real_tree() {
	local awk
	tree
	ln -s usr/bin "$R/bin"
	ln -s usr/sbin "$R/sbin"
	mv "$R/lib" "$R/usr/lib"
	ln -s usr/lib "$R/lib"
	mkdir -p "$R"/usr/{bin,sbin,lib/cowfs,lib64}
	ln -s usr/lib64 "$R/lib64"
	hash -r
	PATH=/usr/sbin:/usr/bin install_programs sh mawk sed grep cat cp mv rm mkdir mktemp readlink sync find sort tail head wc tr df fold id \
		env true ls sleep
	ln -s mawk "$R/usr/bin/awk"
	rm "$R/usr/sbin/"cow*
	# the build may lie below /tmp: no path of it in the tree
	cp "$COWFS_BUILD/cowctl" "$R/usr/sbin"
	copy_in $(libraries_of "$COWFS_BUILD/cowctl")
	put usr/sbin/cowfs x
	cp "$SRC"/{setup,setup-checks,setup-image,check-initramfs} "$R/usr/lib/cowfs"
	put usr/sbin/update-initramfs '#!/bin/sh' \
		'[ ! -e /boot/fail ] || { echo "E: no room"; exit 1; }' \
		'[ ! -e /boot/wait ] || { t=$(cat /boot/wait); : >/boot/waiting; sleep $t; }' \
		"cat /etc/cowfs/cowfs.conf >/boot/initrd.img-$V 2>/dev/null || :"
	put usr/sbin/lsinitramfs '#!/bin/sh' \
		"printf 'usr/%s\n' bin/cowfs bin/cowctl lib/cowfs/cowfs.sh lib/modules/$V/fuse.ko lib/modules/$V/loop.ko lib/modules/$V/squashfs.ko" \
		"[ -e /boot/lacks ] || echo usr/lib/modules/$V/overlay.ko"
	chmod +x "$R/usr/sbin/"*
}

make_it() { # OPTION...
	COW_LIMIT=100 cow setup --image "$R" --lower "$LOWER" --yes "$@" 2>&1
}

nothing_left() {
	run ! grep -qF "$R" /proc/mounts
	[ -z "$(find "$R/dev" "$R/run" "$R/tmp" "$R/proc" "$R/sys" -mindepth 1 ! -path "$R/proc/self*")" ]
	[ -z "$(find "$R" -name '*.cowfs-*')" ]
}

@test "setup --image: a tree becomes the tree of an image, and stays so" {
	local before
	real_tree
	before=$(tree_sum "$R")
	run -0 make_it --dry-run
	tells "Nothing was done."
	[ "$(tree_sum "$R")" = "$before" ]
	run -0 make_it
	tells "ok $R is a system"
	tells "$R is ready to become an image."
	nothing_left
	[ "$(cat "$R/etc/cowfs/cowfs.conf")" = "$(printf '%s\n' '[root]' 'enabled = yes' 'compose = overlay' "lower = $LOWER")" ]
	[ "$(cat "$R/etc/fstab")" = "$(printf '%s\n' 'overlay / overlay noatime 0 0' 'UUID=y /boot ext4 defaults,ro,x-cowfs 0 2' '# end')" ]
	cmp "$R/boot/initrd.img-$V" "$R/etc/cowfs/cowfs.conf"
	before=$(tree_sum "$R")
	run -0 make_it
	[ "$(tree_sum "$R")" = "$before" ]
	# another place; no fstab; JSON
	rm "$R/etc/fstab"
	LOWER=LABEL=other run -0 make_it --json
	jq -e '.ok and .remark == "'"$R"' is ready to become an image."' <<<"$output"
	[ "$(cat "$R/etc/fstab")" = 'overlay / overlay noatime 0 0' ]
	grep -qx 'lower = LABEL=other' "$R/etc/cowfs/cowfs.conf"
	# the commands that it prints make a volume that is protected
	truncate -s 64M "$T/volume"
	sed -n 's/^ *\(mke2fs.* VOLUME\)$/\1/p' <<<"$(make_it)" >"$T/commands"
	[ -s "$T/commands" ]
	(VOLUME=$T/volume PATH=$COWFS_BUILD:$PATH && . <(sed 's/mke2fs/& -qF/; s/VOLUME/"$VOLUME"/g' "$T/commands"))
	run -0 cow check "$T/volume"
}

@test "setup --image: a failure at any step restores every file" {
	local before
	real_tree
	before=$(tree_sum "$R")
	: >"$R/boot/fail"
	run -1 make_it
	tells "update-initramfs failed: E: no room; the changes were taken back, except in the initramfs"
	rm "$R/boot/fail"
	[ "$(tree_sum "$R")" = "$before" ]
	nothing_left
	: >"$R/boot/lacks"
	run -1 make_it
	tells "lacks overlay.ko"
	[ ! -e "$R/etc/cowfs/cowfs.conf" ]
	grep -q '^UUID=x / ext4' "$R/etc/fstab"
	rm "$R/boot/lacks"
	# a disk that is full, or read-only
	mount -t tmpfs -o ro,mode=755 tmpfs "$R/etc/initramfs-tools"
	run -0 make_it
	umount "$R/etc/initramfs-tools"
	real_tree
	mount --bind "$R" "$R"
	mount -o remount,bind,ro "$R"
	run -1 make_it
	tells "STOP /etc cannot be written to"
	tells "STOP /boot cannot be written to"
	umount "$R"
	mount -t tmpfs -o mode=755,size=1M tmpfs "$R/boot"
	head -c 900K /dev/zero >"$R/boot/initrd.img-$V"
	run -1 make_it
	tells "STOP /boot: 0 MiB free; rebuilding the initramfs needs 2 MiB"
	umount "$R/boot"
	cp -a "$R/etc" "$T/etc"
	mount -t tmpfs -o mode=755,size=64K tmpfs "$R/etc"
	cp -a "$T/etc/." "$R/etc"
	cat /dev/zero >"$R/etc/zero" 2>/dev/null || :
	before=$(tree_sum "$R")
	run -1 make_it
	tells "the changes were taken back"
	[ "$(tree_sum "$R")" = "$before" ]
	# it becomes read-only meanwhile: no copy outlives the run, so none is named
	rm "$R/etc/zero"
	: >"$R/boot/lacks"
	echo 6 >"$R/boot/wait"
	make_it >"$T/out" &
	wait_for 20 test -e "$R/boot/waiting"
	mount -o remount,ro "$R/etc"
	wait $! && return 1
	output=$(cat "$T/out")
	tells "lacks overlay.ko: the next boot would not protect the root; some changes remain"
	run ! grep -qF "has the files as they were" <<<"$output"
	umount "$R/etc"
	nothing_left
}

@test "setup --image: interrupted and killed" {
	local signal setup
	real_tree
	for signal in INT KILL; do
		echo "60.$$" >"$R/boot/wait"
		rm -f "$R/boot/waiting"
		env --default-signal=INT setsid "$COWFS_BUILD/cowctl" setup --image "$R" --lower "$LOWER" --yes >"$T/out" 2>&1 &
		setup=$!
		wait_for 20 test -e "$R/boot/waiting"
		rm "$R/boot/wait"
		# as a terminal does; of what is killed only the first process
		if [ $signal = INT ]; then kill -INT -- -$setup; else kill -KILL $setup; fi
		wait $setup || :
		wait_for 10 sh -c "! pgrep -fx 'sleep 60[.]$$' >/dev/null"
		nothing_left
		[ $signal = KILL ] || grep -q 'interrupted; the changes were taken back' "$T/out"
		[ $signal = KILL ] || [ ! -e "$R/etc/cowfs/cowfs.conf" ]
		rm "$R/boot/waiting"
	done
	# what a kill in the middle of an edit leaves
	: >"$R/etc/fstab.cowfs-AbCdEf"
	run -0 make_it
	nothing_left
	[ "$(head -n 1 "$R/etc/fstab")" = 'overlay / overlay noatime 0 0' ]
}

@test "setup --image: what is no tree, or none for this machine" {
	real_tree
	no() { # TREE TEXT
		run -1 cow setup --image "$1" --lower "$LOWER" --yes
		tells "$2"
		run cow setup --image "$1" --lower "$LOWER" --yes --json
		jq -e '.ok == false' <<<"$output"
	}
	no / "--image is for a system in a directory of its own, not for the running one"
	no "$R/../../../../../../../../.." "not for the running one"
	mkdir "$T/root"
	mount --bind / "$T/root"
	no "$T/root" "not for the running one"
	umount "$T/root"
	no "$T/none" "is not a directory"
	no "$R/etc/fstab" "is not a directory"
	no "$T" "is not a system: it has no directory /proc"
	no -x "is not a directory"
	# a tree that a user made, or exchanges: its programs would run as root
	chown nobody "$R"
	no "$R" "$R: its programs would run as root, and other users can change . (user 65534,"
	chown root "$R"
	chown nobody "$R/usr"
	no "$R" "other users can change ./usr (user 65534,"
	chown root "$R/usr"
	chmod o+w "$R"
	no "$R" "other users can change . (user 0,"
	chmod o-w "$R"
	for file in usr/sbin/cowctl usr/lib/cowfs usr/lib/cowfs/setup etc/initramfs-tools/initramfs.conf; do
		chmod g+w "$R/$file"
		no "$R" "other users can change ./$file (user 0,"
		chmod g-w "$R/$file"
	done
	chown nobody "$R/usr/bin/sed"
	no "$R" "other users can change ./usr/bin/sed (user 65534,"
	chown root "$R/usr/bin/sed"
	chown nobody "$R/etc/fstab"
	no "$R" "other users can change ./etc/fstab (user 65534,"
	chown root "$R/etc/fstab"
	# as Debian makes it for group staff
	mkdir -p "$R/usr/local/share/fonts" "$R/usr/local/bin"
	chmod 2775 "$R/usr/local/bin" "$R/usr/local/share/fonts"
	no "$R" "other users can change ./usr/local/bin (user 0,"
	chmod 755 "$R/usr/local/bin"
	# an ACL with user:nobody:rwx
	/usr/bin/python3 -c 'import os, struct, sys
acl = ((1, 7, ~0), (2, 7, 65534), (4, 5, ~0), (16, 7, ~0), (32, 5, ~0))
os.setxattr(sys.argv[1], "system.posix_acl_access",
	struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, i & 0xffffffff) for t, p, i in acl))' "$R/usr/sbin"
	no "$R" "other users can change ./usr/sbin (user 0, group 0, mode 775)"
	chmod g-w "$R/usr/sbin" # masks it
	mkdir -p "$R/etc/polkit-1/rules.d" # of a service
	chown 996 "$R/etc/polkit-1/rules.d"
	mkdir "$T/his"
	ln -s "$R" "$T/his/tree"
	chown -h nobody "$T/his" "$T/his/tree"
	no "$T/his/tree" "his/tree is a symbolic link, and user 65534 controls it: name the place"
	mv "$R/usr/bin/env" "$R/usr/bin/sh" "$T"
	printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\376\377' >"$R/usr/bin/env"
	chmod +x "$R/usr/bin/env"
	cp "$R/usr/bin/env" "$R/usr/bin/sh"
	no "$R" "its programs cannot be run on this machine: chroot: failed to run command '/usr/bin/env': Exec format error"
	mv "$T/env" "$T/sh" "$R/usr/bin"
	printf '#!/bin/sh\necho "usage: cowctl setup"\n' >"$R/usr/sbin/cowctl"
	no "$R" "has no cowfs, or an older one"
	rm "$R/usr/sbin/cowctl"
	cp "$COWFS_BUILD/cowctl" "$R/usr/sbin"
	rm -f "$R"/{,usr/}lib*/*/libfuse3.so.?
	no "$R" "its cowctl cannot be run: cowctl: error while loading shared libraries: libfuse3.so."
	rm "$R/usr/sbin/cowctl"
	no "$R" "has no cowfs, or an older one"
}

@test "setup --image: links that lead out of the tree" {
	local name
	real_tree
	printf 'UUID=mine / ext4 defaults 0 1\n' >"$T/fstab"
	mkdir "$T/cowfs"
	printf '[root]\n' >"$T/cowfs/cowfs.conf"
	: >"$T/initrd"
	ln -sf "$T/fstab" "$R/etc/fstab"
	run -1 make_it
	tells "/etc/fstab cannot be made; the changes were taken back"
	[ ! -e "$R/etc/cowfs/cowfs.conf" ]
	put ../there x
	rm "$R/etc/fstab"
	ln -s ../../../../../../../../../../../../../../../../../there "$R/etc/fstab"
	ln -s "$T/cowfs" "$R/etc/cowfs"
	ln -sf "$T/initrd" "$R/boot/initrd.img-$V"
	run make_it
	rm -r "$R/etc/fstab" "$R/etc/cowfs"
	[ "$(cat "$T/fstab")" = 'UUID=mine / ext4 defaults 0 1' ]
	[ "$(cat "$T/cowfs/cowfs.conf")" = '[root]' ]
	[ "$(cat "$T/there")" = x ]
	[ ! -s "$T/initrd" ]
	[ ! -e /there ]
	for name in proc sys dev run tmp etc boot; do
		mv "$R/$name" "$T/moved"
		ln -s "$T/moved" "$R/$name"
		run -1 make_it
		tells "is not a system: it has no directory /$name"
		rm "$R/$name"
		mv "$T/moved" "$R/$name"
	done
}

# ---- a composed root ----

composed() { # STATE
	tree
	rm -f "$R"/run/cowfs/*
	put proc/self/mountinfo '22 1 0:30 / / rw,noatime shared:1 - overlay overlay rw' '30 22 8:1 / /boot rw - ext4 /dev/fakecard1 rw'
	put sys/dev/block/8:1/uevent DEVNAME=fakecard1
	put proc/meminfo 'MemTotal:        2000000 kB'
	put proc/swaps 'Filename Type Size Used Priority'
	put proc/cmdline 'root=/dev/fakecard2 ro'
	put proc/sys/kernel/osrelease "$V"
	put boot/grub/grub.cfg x
	put run/systemd/system/x
	put run/cowfs/root.state "$1"
	put run/cowfs/root.compose "0:30 $LOWER"
	put etc/cowfs/cowfs.conf '[root]' 'compose = overlay' "lower = $LOWER"
	put etc/fstab 'overlay / overlay noatime 0 0' 'UUID=y /boot ext4 ro,x-cowfs 0 2'
}

on_root() { # COMMAND
	COWFS_CTL=$COWFS_BUILD/cowctl cow "$1" --root "$R" 2>&1
}

@test "setup, disable: a root that is composed, or could not be" {
	local state
	for state in on bypassed unconfigured; do
		composed $state
		run -0 on_root setup
		tells "ok / is an image with its changes"
		tells "would rebuild the initramfs"
		run ! grep -qE 'prepare|STOP' <<<"$output"
		run -0 on_root setup
		run -0 on_root disable
		tells "then the root is still the image with its changes, which are written to"
		run ! grep -q resize <<<"$output"
	done
	composed failed
	put run/cowfs/root.failed 'lower = x is another image' 'device=x'
	put proc/self/mountinfo '22 1 7:0 / / ro shared:1 - squashfs /dev/loop0 ro' '30 22 8:1 / /boot rw - ext4 /dev/fakecard1 rw'
	run -1 on_root setup
	tells "STOP this boot could not compose the root: lower = x is another image."
	composed none
	rm "$R"/run/cowfs/*
	run -1 on_root setup
	tells "STOP [root] of $R/etc/cowfs/cowfs.conf has compose = overlay, but / is no image"
	put etc/cowfs/cowfs.conf '[root]'
	run -1 on_root setup
	tells "STOP / is an overlay, which cannot be converted: install a system in a directory, and run cowctl setup --image"
}

@test "the package is not removed from a composed root" {
	mkdir -p "$T/run"
	: >"$T/run/root.compose"
	sed "s|/run/cowfs|$T/run|g" "$BATS_TEST_DIRNAME/../../debian/cowfs.prerm" >"$T/prerm"
	run -1 sh "$T/prerm" remove
	tells "cowfs: the root is an image with its changes, which cowfs mounts at each boot: the package is not removed."
	run -0 sh "$T/prerm" upgrade
}
