# shellcheck shell=sh disable=SC2034,SC2153,SC2154
# SPDX-License-Identifier: MIT
# Reboot upon reboot under load (100 in the long form, 3 in the short): no final commit is lost, no shutdown hangs.
# guests: debian12 debian13 busybox
LIMIT=600
BOOTS=3
[ -z "$LONG" ] || BOOTS=${COWFS_VM_REBOOTS:-100}
case $GUEST in
busybox*) DISK_MIB=768 ;;
esac

# one step for all boots
step() {
	protected || fail "the root is $(root_device)"
	if [ "$BOOT" -gt 1 ]; then
		is "the last boot" "$(cat /srv/count)" $((BOOT - 1))
		must sha256sum -c /srv/sum
	fi
	mkdir -p /srv/load
	for n in 1 2 3; do
		# goes on until it is killed by the shutdown
		(trap '' HUP; while :; do dd if=/dev/urandom of=/srv/load/$n bs=16k count=100 2>/dev/null; sync; done) >/dev/null 2>&1 &
	done
	sleep 5
	must dd if=/dev/urandom of=/srv/data bs=64k count=32
	sha256sum /srv/data >/srv/sum
	echo "$BOOT" >/srv/count
	END=reboot
}

host_after() {
	[ $(($1 % 10)) != 0 ] || { card_extract "$WORK/part" && offline_check "$WORK/part"; }
}
