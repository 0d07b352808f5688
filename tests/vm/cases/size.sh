# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# What cowfs adds to a compressed initramfs that has e2fsck, as that of an installed Debian, also with what `prepare = shrink`
# puts there, is at most some 5 % more than BOOT.md says of Debian 12; the measured one boots.
# guests: debian12 debian13 debian13-initramfs
# short:
PLAIN_KIB=495 SHRINK_KIB=551

step_1() {
	protected || fail "the root is $(root_device)"
}

# initramfs NAME COMMAND: made in a chroot of the guest, into $WORK/NAME, and its names into NAME.list. What COMMAND mounts
# there ends with it.
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
		$2 || exit
		if [ -x /usr/bin/lsinitrd ]; then
			lsinitrd /mnt/$1 | sed -n 's/^[-lbcd][-rwxsStT]\{9\} .* \([^ ]*\)\( -> .*\)*\$/\1/p'
		else
			lsinitramfs /mnt/$1
		fi | sort >/mnt/$1.list" >"$WORK/$1.log" 2>&1 || fail "no initramfs: $(tail -n 3 "$WORK/$1.log")"
}

lacks() { LC_ALL=C comm -13 "$WORK/$1.list" "$WORK/$2.list"; }

# dracut goes on after most errors, ends with 0 and leaves out what failed. Prints what is wrong with an initramfs: errors,
# and what it lacks of another one. Only cowfs is more in the one that has it: no drivers but its own.
incomplete() {
	grep -E 'dracut\[[EF]\]|dracut-install|ERROR|FAILED|No space|Killed|Segmentation' "$WORK/$1.log"
	case $1 in
	plain) lacks plain bare ;;
	bare) lacks bare plain | grep '\.ko' | grep -Ev '/(fuse|loop)\.ko' ;;
	shrink) lacks shrink plain ;;
	esac
}

# The tool of the distribution fails now and then beside other work: once more, and then what it says is shown.
insist() { # NAME COMMAND
	wrong=$(incomplete "$1") || true
	[ "$wrong" ] || return 0
	say "$1 is incomplete, made again: $(echo "$wrong" | head -n 5 | tr '\n' ' ')"
	initramfs "$1" "$2"
	wrong=$(incomplete "$1") || true
	[ -z "$wrong" ] || fail "$1 is incomplete, $(echo "$wrong" | wc -l) lines: $(echo "$wrong" | head -n 20); its log: $(cat "$WORK/$1.log")"
}

host_before() {
	[ "$1" = 1 ] || return 0
	cp -r "$DIR/root.boot" "$WORK/boot"
	initramfs plain 'checked make'
	initramfs bare 'checked bare'
	initramfs shrink 'checked shrink'
	insist plain 'checked make'
	insist bare 'checked bare'
	insist shrink 'checked shrink'
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
