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

# As the user at the machine: a session on seat0, which polkit allows to mount what is removable
desk() {
	systemd-run --wait --quiet --collect -p User=desk -p PAMName=login -p TTYPath=/dev/tty1 -p StandardInput=tty \
		-p StandardOutput=truncate:/run/cowfs-test/desk -p StandardError=append:/run/cowfs-test/desk "$@"
}

step_1() {
	must useradd -m desk
	must systemctl stop getty@tty1.service
	wait_for 60 test "$(cards | wc -l)" -ge "$(cat count)" || fail "$(cards | wc -l) cards"
	must udevadm settle --timeout=600
	mkdir -p /srv
	for dev in $(cards); do
		kind=$(kind_of "$dev")
		answer=refused
		if desk udisksctl mount --no-user-interaction -b "$dev"; then
			dir=$(findmnt -nro TARGET "$dev") || fail "udisks says $(cat desk), and nothing is mounted"
			answer=read-only
			desk touch "$dir/foreign" && answer=writes
			desk udisksctl unmount --no-user-interaction -b "$dev" || fail "udisks: $(cat desk)"
		fi
		echo "$kind  $answer  udisksctl mount: $(tail -n 1 desk)" >>/run/udisks
		[ $answer != writes ] || fail "a desktop user writes to $dev, $kind"
		mkdir -p "/srv/${dev##*/}"
		echo "UUID=$(blkid -p -o value -s UUID "$dev") /srv/${dev##*/} auto defaults,nofail 0 2" >>/etc/fstab
	done
	table /run/udisks
	# one that is not guarded shows that the user could write
	must mkfs.ext4 -q -E root_owner=1000:1000 "$(plain)"
	desk udisksctl mount --no-user-interaction -b "$(plain)" || fail "udisks mounts nothing at all: $(cat desk)"
	desk touch "$(findmnt -nro TARGET "$(plain)")/foreign" || fail "the desktop user writes nowhere: $(cat desk)"
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
