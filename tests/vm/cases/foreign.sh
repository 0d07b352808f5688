# shellcheck shell=sh disable=SC2034,SC2153,SC2154
# SPDX-License-Identifier: MIT
# Cards that were cut in the middle of commits and checkpoints (long form: 100, short: 6; ext4, xfs, btrfs) are put into a plain Debian
# that knows nothing of cowfs: a desktop user mounts each by udisks, fstab lines with pass 2 check and mount them at boot, and
# tests/foreign.sh tries mount and all tools that repair and change. Then the host attaches each: the generation and the tree that
# it had before, and nothing foreign.
# guests: debian13-initramfs-bare
# short:
MEM=900 LIMIT=3600 STEP_LIMIT=3500
# there is no network to wait for
APPEND="systemd.mask=systemd-networkd-wait-online.service"

cards() {
	for d in /sys/block/sd*; do
		[ "/dev/${d##*/}" = "$(plain)" ] || echo "/dev/${d##*/}"
	done
}

plain() { readlink -f /dev/disk/by-id/*_plain; }

kind_of() { blkid -p -o value -s TYPE "$1"; }

# "3 times: TEXT" for each different line, whatever the device and the mount point
table() {
	sed -E 's,/dev/sd[a-z]+,CARD,g; s,/(srv|media)/[^ :]*[^ :.],DIR,g' "$1" | sort | uniq -c | while read -r n text; do
		say "$n times: $text"
	done
}

# What the user at the machine does with each device: one line each
desk() {
	cat <<-'END'
		for dev; do
			answer=refused
			if text=$(udisksctl mount --no-user-interaction -b "$dev" 2>&1); then
				answer=read-only
				case $(findmnt -nro OPTIONS "$dev") in rw*) answer=writable ;; esac
				udisksctl unmount --no-user-interaction -b "$dev" >/dev/null || answer=stuck
			fi
			echo "$(lsblk -no FSTYPE "$dev")  $answer  udisksctl mount: $text"
		done
	END
}

# udisks looks at a removable medium when it gets to it
known() { udisksctl info -b "$1" | grep -q Filesystem:; }

step_1() {
	must useradd -m desk
	must systemctl stop getty@tty1.service
	wait_for 60 test "$(cards | wc -l)" -ge "$(cat count)" || fail "$(cards | wc -l) cards"
	must mkfs.ext4 -q "$(plain)"
	must udevadm trigger --settle --subsystem-match=block
	for dev in $(cards) "$(plain)"; do
		wait_for 120 known "$dev" || fail "udisks knows no file system on $dev"
	done
	desk >desk.sh
	# a session on seat0, which polkit allows to mount what is removable; the last one shows that it is mounted to be written
	# shellcheck disable=SC2046 # words
	must systemd-run --wait --quiet --collect -p User=desk -p PAMName=login -p TTYPath=/dev/tty1 -p StandardInput=tty \
		-p StandardOutput=truncate:/run/udisks sh "$PWD/desk.sh" $(cards) "$(plain)"
	tail -n 1 /run/udisks >/run/udisks.last
	sed -i '$d' /run/udisks
	table /run/udisks
	grep -q '^ext4  writable' /run/udisks.last || fail "udisks, of a card without a guard: $(cat /run/udisks.last)"
	grep -q 'writable\|stuck' /run/udisks && fail "a desktop user can write to a guarded card"
	is "answers of udisks" "$(wc -l </run/udisks)" "$(cat count)"
	for dev in $(cards); do
		mkdir -p "/srv/${dev##*/}"
		echo "UUID=$(blkid -p -o value -s UUID "$dev") /srv/${dev##*/} auto defaults,nofail,x-systemd.device-timeout=30min 0 2" >>/etc/fstab
	done
	END=reboot
}

step_2() {
	timeout 1800 systemctl is-system-running --wait >/dev/null 2>&1 || :
	cp /proc/mounts mounts
	awk '$2 ~ "^/srv/"' /etc/fstab | while read -r uuid dir _; do
		dev=$(readlink -f "/dev/disk/by-uuid/${uuid#UUID=}") answer=refused
		case $(awk -v d="$dir" '$2 == d { print $4 }' mounts) in
		ro | ro,*) answer=read-only ;;
		?*) answer=writes ;;
		esac
		journalctl -b -o cat -u "systemd-fsck@$(systemd-escape -p "/dev/disk/by-uuid/${uuid#UUID=}").service" >check
		grep -q Finished check || fail "$dev: systemd has not run fsck"
		echo "$(kind_of "$dev")  $answer  fstab with pass 2: $(grep -m1 'exit status' check || echo "fsck says nothing")" >>/run/fstab
		[ $answer = refused ] || umount "$dir"
	done
	table /run/fstab
	grep -q writes /run/fstab && fail "mounted by fstab and writable"
	is "lines of fstab" "$(wc -l </run/fstab)" "$(cat count)"
	mkdir -p /srv/dir
	for dev in $(cards); do
		sh ./foreign.sh "$dev" /srv/dir >/run/one || grep expected /run/one >>/run/bad
		sed 's/: .*//' /run/one >>/run/all
		cp /run/one "/run/said-$(kind_of "$dev")"
	done
	table /run/all
	sed 's/^/# /' /run/said-* >>"$LOG"
	[ ! -e /run/bad ] || fail "$(wc -l </run/bad) answers are not those of a guarded card: $(head -n 1 /run/bad)"
}

host_before() {
	[ "$1" = 1 ] || return 0
	count=6
	[ -z "$LONG" ] || count=100
	"$TOP/tests/cutcards.sh" make $count "$WORK/cards" || fail "no cards"
	echo $count >"$WORK/count"
	truncate -s 32M "$WORK/plain.img"
	EXTRA="$WORK/count $TOP/tests/foreign.sh"
	DEVICES="-device virtio-scsi-pci,id=slots -drive file=$WORK/plain.img,if=none,id=plain,format=raw -device scsi-hd,drive=plain,bus=slots.0,scsi-id=0,serial=plain,removable=on"
	i=0
	while [ $i -lt $count ]; do
		i=$((i + 1))
		DEVICES="$DEVICES -drive file=$WORK/cards/$i.img,if=none,id=c$i,format=raw -device scsi-hd,drive=c$i,bus=slots.0,scsi-id=$i,removable=on"
	done
}

host_after() {
	[ "$1" = 2 ] || return 0
	"$TOP/tests/cutcards.sh" judge "$WORK/cards" || fail "a card did not come back"
}
