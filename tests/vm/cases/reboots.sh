# shellcheck shell=sh disable=SC2034,SC2153,SC2154
# SPDX-License-Identifier: MIT
# Reboot upon reboot while fio writes (100 in the long form, 3 in the short): no final commit is lost, no shutdown hangs.
# guests: debian12-fio debian13-fio busybox-fio
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
	# goes on until the shutdown kills it
	(trap '' HUP; exec fio --name=load --directory=/srv/load --thread --numjobs=3 --ioengine=psync --rw=randrw --bsrange=512-64k \
		--size=24m --fsync=32 --time_based --runtime=1h) >/run/cowfs-test/fio 2>&1 &
	sleep 5
	kill -0 $! || fail "fio has ended: $(tail -n 3 /run/cowfs-test/fio)"
	must dd if=/dev/urandom of=/srv/data bs=64k count=32
	sha256sum /srv/data >/srv/sum
	echo "$BOOT" >/srv/count
	END=reboot
}

host_after() {
	[ $(($1 % 10)) != 0 ] || { card_extract "$WORK/part" && offline_check "$WORK/part"; }
}
