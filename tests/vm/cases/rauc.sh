# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Debian's RAUC ships an update of the root: bundle, install through the service, reboot; mark-good fails until the boot is
# accepted.
# guests: debian12-rauc
DATA_MIB=128
APPEND=rauc.slot=now

data_up() {
	mkdir -p /data
	must mount -t ext4 "$(data_card)" /data
}

# The base with RAUC's configuration, and what has changed since as a file on the second card.
step_1() {
	END=reboot
	protected || fail "the root is $(root_device)"
	settled
	data_up
	mkdir -p /etc/rauc /etc/cowfs/accept.d
	cp rauc.crt /etc/rauc/keyring.pem
	part=/dev/$(root_part)
	cat >/etc/rauc/system.conf <<-C
		[system]
		compatible=card
		bootloader=custom
		statusfile=/data/rauc.status

		[keyring]
		path=keyring.pem

		[handlers]
		bootloader-custom-backend=/usr/lib/cowfs/fleet/rauc

		[slot.root.0]
		device=$part
		type=raw
		bootname=now

		[slot.root.1]
		device=$part
		type=raw
		bootname=next
	C
	# a check that succeeds when this script wants it to
	printf '#!/bin/sh\nuntil [ -e /run/good ]; do sleep 1; done\n' >/etc/cowfs/accept.d/wait
	chmod 755 /etc/cowfs/accept.d/wait
	must cowctl commit root
	must cowctl commit root --hold
	echo good >/srv/trial
	must cp /usr/bin/rauc /srv/
	must cowctl commit root
	must cowctl export root /data/update.cowfs
	must cowctl undo root
	umount /data
}

step_2() {
	END=reboot
	protected || fail "the root is $(root_device)"
	[ ! -e /srv/trial ] || fail "this is not the base"
	data_up
	mkdir /data/bundle
	mv /data/update.cowfs /data/bundle/update.img
	printf '#!/bin/sh\nexec /usr/lib/cowfs/fleet/rauc "$@"\n' >/data/bundle/hook
	chmod 755 /data/bundle/hook
	cat >/data/bundle/manifest.raucm <<-C
		[update]
		compatible=card
		version=2

		[bundle]
		format=plain

		[hooks]
		filename=hook

		[image.root]
		filename=update.img
		hooks=install
	C
	must rauc bundle --cert=rauc.crt --key=rauc.key --keyring=rauc.crt /data/bundle /data/update.raucb
	say "the bundle has $(stat -c %s /data/update.raucb) bytes"
	must rauc install /data/update.raucb
	[ ! -e /srv/trial ] || fail "the running root has the update"
	is "the update" "$(/usr/lib/cowfs/fleet/ship state)" reboot
	rauc status --output-format=json 2>/dev/null | grep -q '"boot_primary":"root.1"' || fail "RAUC shows $(rauc status)"
}

newest() { cowctl generations root | sed -n '2s/ .*//p'; }

step_3() {
	protected || fail "the root is $(root_device)"
	is "what /srv/trial has" "$(cat /srv/trial)" good
	dmesg | grep -q 'is ON TRIAL, 2 more boots' || fail "the boot is not counted"
	data_up
	rauc status mark-good && fail "good ahead of accept"
	is "the update" "$(/usr/lib/cowfs/fleet/ship state)" trial
	generation=$(newest)
	touch /run/good
	wait_for 150 accepted || fail "nothing accepts the root: $(cowctl status root)"
	must rauc status mark-good
	is "the update" "$(/usr/lib/cowfs/fleet/ship state)" accepted
	is "the generation behind accept, which the next delta is for" "$(newest)" "$generation"
}

host_before() {
	[ -e "$WORK/rauc.key" ] || openssl req -x509 -newkey rsa:2048 -nodes -keyout "$WORK/rauc.key" -out "$WORK/rauc.crt" \
		-subj /CN=updates -days 3650 2>/dev/null
	EXTRA="$WORK/rauc.key $WORK/rauc.crt"
}
