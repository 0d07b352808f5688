# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A card with sectors that cannot be read (dm-flakey): scrub and clone name the file, and the copy has the rest.
# guests: debian12
DATA_MIB=104 LIMIT=900 STEP_LIMIT=800

attach_data() { # DEVICE
	dev=$(cowctl attach "$1" --name data) || fail "no volume on $1"
	must mount -t ext4 "$dev" /m
}

detach_data() {
	must umount /m
	must cowctl detach data
}

# The card with 16 sectors that another target of device mapper serves
dying() { # TARGET
	size=$(blockdev --getsz "$card")
	dmsetup create dying <<-END || fail "no dying card"
		0 $at linear $card 0
		$at 16 $1
		$((at + 16)) $((size - at - 16)) linear $card $((at + 16))
	END
	attach_data /dev/mapper/dying
}

no_loop() { # FILE
	[ -z "$(losetup -j "$1")" ]
}

# exit code 3, and the text
hurt() { # COMMAND...
	code=0
	"$@" >/run/said 2>&1 || code=$?
	is "exit code of $* ($(cat /run/said))" $code 3
	grep -q '8.0 KiB of /hurt' /run/said || fail "$* says: $(cat /run/said)"
}

step_1() {
	card=$(data_card)
	mkdir -p /m /look
	attach_data "$card"
	must dd if=/dev/urandom of=/m/hurt bs=64k count=16
	must dd if=/dev/urandom of=/m/whole bs=64k count=320
	must cowctl commit data --checkpoint
	block=$(stat -f -c %S /m)
	at=$(filefrag -b512 -v /m/hurt | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 + 64 - $4 % 8 }')
	[ "$at" ] || fail "no place: $(filefrag -b512 -v /m/hurt)"
	must cp /m/whole /run/whole
	# what the timer starts
	must systemctl start cowfs-scrub@data.service
	set -- /var/lib/cowfs/scrub-*
	is "places" $# 1
	[ -s "$1" ] || fail "no place: $*"
	cowctl scrub data --timer | grep -q 'not due' || fail "due at once"
	detach_data

	must modprobe dm-flakey
	dying "flakey $card $at 0 1"
	dd if=/m/hurt of=/dev/null bs=64k 2>/dev/null && fail "all sectors can be read"
	say "blocks of $block bytes, sector $at"
	hurt cowctl scrub data
	echo "in RAM" >/m/in-ram
	must truncate -s 104M /dev/shm/new
	hurt cowctl clone data /dev/shm/new --yes
	must mount -o loop,ro /dev/shm/new /look
	must cmp /run/whole /look/whole
	is "what was in RAM" "$(cat /look/in-ram)" "in RAM"
	must umount /look
	must e2fsck -fn /dev/shm/new
	wait_for 20 no_loop /dev/shm/new || fail "$(losetup -a)" # udev may hold it
	cowctl scrub /dev/shm/new >/run/said 2>&1 || fail "scrub of the copy: $(cat /run/said)"
	must umount /m
	must cowctl detach data --discard
	must dmsetup remove dying

	# dm-flakey fails each FLUSH, too, so nothing can be committed there. This fails these sectors alone
	dying error
	hurt cowctl scrub data
	must rm /m/hurt
	must cowctl commit data --checkpoint
	must cowctl scrub data
	must cmp /run/whole /m/whole
	detach_data
	must e2fsck -fn /dev/mapper/dying
}
