# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# What cowfs adds to a compressed initramfs that has e2fsck, as that of an installed Debian, also with what `prepare = shrink`
# puts there, is at most some 5 % more than BOOT.md says of Debian 12; the measured one boots.
# guests: debian12 debian13 debian13-initramfs
# short: debian12 debian13
PLAIN_KIB=457 SHRINK_KIB=517

step_1() {
	protected || fail "the root is $(root_device)"
}

# initramfs NAME COMMAND: made in a chroot of the guest, into $WORK/NAME. What COMMAND mounts there ends with it.
initramfs() {
	CHROOT_BIND=$WORK chroot_run "$DIR/root" sh -c "
		# initramfs-tools asks the kernel's configuration for what it can unpack
		mount --bind /mnt/boot /boot || exit 1
		v=\$(ls /lib/modules | sort -V | tail -n 1)
		make() {
			if [ -x /usr/bin/dracut ]; then dracut -q --force \"\$@\" /mnt/$1 \$v; else mkinitramfs -o /mnt/$1 \$v; fi
		}
		bare() {
			if [ -x /usr/bin/dracut ]; then make --omit cowfs; return; fi
			mount --bind /dev/null /usr/share/initramfs-tools/hooks/cowfs && make
		}
		# the hook of initramfs-tools looks at the device of /, which a chroot lacks
		checked() {
			mkdir -p /etc/initramfs-tools/conf.d && mount -t tmpfs tmpfs /etc/initramfs-tools/conf.d &&
				echo FSTYPE=ext4 >/etc/initramfs-tools/conf.d/fsck && \"\$@\"
		}
		shrink() {
			cp -r /etc/cowfs /tmp/conf && echo 'prepare = shrink' >>/tmp/conf/cowfs.conf &&
				mount --bind /tmp/conf /etc/cowfs && make
		}
		$2" >"$WORK/$1.log" 2>&1 || fail "no initramfs: $(tail -n 3 "$WORK/$1.log")"
}

host_before() {
	cp -r "$DIR/root.boot" "$WORK/boot"
	initramfs plain 'checked make'
	initramfs bare 'checked bare'
	initramfs shrink 'checked shrink'
	INITRD=$WORK/plain
	bare=$(($(stat -c %s "$WORK/bare") / 1024))
	allowed=$PLAIN_KIB
	for what in plain shrink; do
		growth=$(($(stat -c %s "$WORK/$what") / 1024 - bare))
		say "$what: $growth KiB more than $bare KiB"
		# if cowfs were in both this would pass for ever
		[ $growth -gt 100 ] || fail "an initramfs without cowfs is as large as one with it"
		[ $growth -le "$allowed" ] || fail "cowfs adds $growth KiB to the initramfs, $allowed are allowed"
		allowed=$SHRINK_KIB
	done
}
