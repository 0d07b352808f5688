#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# RAUC, SWUpdate and Mender, as Debian packages them, ship an update to a root with boots: make check-fleet-tools.
# Runs in a mount namespace of its own, because the adapters' places are below /usr.

load ../bats/lib
load ../bats/delta

setup() {
	cow_setup
	top=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
	make -C "$top" -o all -s install DESTDIR="$T/dest" PARTS=fleet B="$COWFS_BUILD" >/dev/null
	mkdir -p /usr/lib/cowfs /usr/share/mender/modules/v3
	mount --bind "$T/dest/usr/lib/cowfs" /usr/lib/cowfs
	mount --bind "$T/dest/usr/share/mender/modules/v3" /usr/share/mender/modules/v3
	export COWFS_CTL=$COWFS_BUILD/cowctl COWFS_WAIT_S=1 COWFS_TRIAL_BOOTS=2
	root_cards ext4 100 150
}

teardown() {
	clear_jobs
	umount -q /proc/cmdline || true
	umount -q /etc || true
	umount -q "$T/etc" || true
	umount -q /usr/lib/cowfs
	umount -q /usr/share/mender/modules/v3
	umount -q /usr/lib/swupdate || true
	rmdir --ignore-fail-on-non-empty /usr/lib/cowfs
	cow_teardown
}

reboot() { power_cut; boots; }
has_old() { [ "$(tree_sum "$MNT")" = "$OLD" ]; }
has_new() { [ "$(tree_sum "$MNT")" = "$NEW" ]; }

# ---- RAUC ----

# Keys, system.conf as docs/FLEET.md has it, a bus and the service.
rauc_up() {
	openssl req -x509 -newkey rsa:2048 -nodes -keyout "$T/rauc.key" -out "$T/rauc.crt" -subj /CN=updates -days 30 2>/dev/null
	mkdir "$T/shared"
	cat >"$T/system.conf" <<-C
		[system]
		compatible=card
		bootloader=custom
		statusfile=$T/shared/rauc.status
		mountprefix=$T/rauc-mount
		bundle-formats=plain verity

		[keyring]
		path=$T/rauc.crt

		[handlers]
		bootloader-custom-backend=/usr/lib/cowfs/fleet/rauc

		[slot.root.0]
		device=$CARD
		type=raw
		bootname=now

		[slot.root.1]
		device=$CARD
		type=raw
		bootname=next
	C
	echo 'root=/dev/none rauc.slot=now' >"$T/cmdline"
	mount --bind "$T/cmdline" /proc/cmdline
	cat >"$T/bus.conf" <<-C
		<busconfig><type>custom</type><listen>unix:path=$T/bus</listen>
		<policy context="default"><allow send_destination="*"/><allow own="*"/><allow eavesdrop="true"/></policy></busconfig>
	C
	background dbus-daemon --nofork --config-file="$T/bus.conf"
	export DBUS_SYSTEM_BUS_ADDRESS=unix:path=$T/bus
	wait_for 5 test -S "$T/bus"
	rauc_service
}

# after each boot
rauc_service() {
	background rauc --conf="$T/system.conf" service
	wait_for 10 rauc_status
}

rauc_status() { rauc --conf="$T/system.conf" status >"$T/status" 2>&1; }

rauc_bundle() { # FILE: makes T/update.raucb
	rm -rf "$T/bundle" "$T/update.raucb"
	mkdir "$T/bundle"
	cp "$1" "$T/bundle/update.img"
	printf '#!/bin/sh\nexec /usr/lib/cowfs/fleet/rauc "$@"\n' >"$T/bundle/hook"
	chmod +x "$T/bundle/hook"
	cat >"$T/bundle/manifest.raucm" <<-C
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
	rauc bundle --cert="$T/rauc.crt" --key="$T/rauc.key" --keyring="$T/rauc.crt" "$T/bundle" "$T/update.raucb"
}

rauc_install() { run rauc --conf="$T/system.conf" install "$T/update.raucb"; echo "$output"; return "$status"; }
rauc_mark() { run rauc --conf="$T/system.conf" status "mark-$1"; echo "$output"; return "$status"; }

rauc_shows() { # ACTIVATED STATE_OF_NOW STATE_OF_NEXT
	rauc --conf="$T/system.conf" status --output-format=json 2>/dev/null >"$T/json"
	run -0 jq -r '[.boot_primary, (.slots | add | .["root.0"].boot_status, .["root.1"].boot_status)] | join(" ")' "$T/json"
	echo "$output"
	[ "$output" = "$*" ]
}

@test "rauc: install, mark-good after accept, a failed trial, mark-bad, bundles that are refused" {
	dpkg-query -W -f '${Package} ${Version}\n' rauc
	rauc_up
	second_update
	rauc_bundle "$T/foreign"
	run ! rauc_install
	has_old
	rauc_shows root.0 good bad
	rauc_bundle "$T/delta"
	rauc_install
	has_old
	rauc_shows root.1 good good
	reboot
	reboot
	reboot
	has_old
	rauc_shows root.0 good bad
	# the same bundle again
	rauc_install
	reboot
	has_new
	rauc_shows root.0 bad bad
	run ! rauc_mark good
	rauc_mark bad
	reboot
	has_old
	rauc_install
	reboot
	has_new
	cow accept root --trial
	rauc_mark good
	rauc_shows root.0 good bad
	# back to an older one
	cow export --base "$MASTER" "$IMAGE" "$T/back"
	rauc_bundle "$T/back"
	run ! rauc_install
	has_new
	rauc_shows root.0 good bad
}

# ---- SWUpdate ----

# An /etc of the test's own.
own_etc() {
	mkdir "$T/etc" "$T/shared"
	mount -t tmpfs none "$T/etc"
	mkdir "$T/etc/upper" "$T/etc/work"
	mount -t overlay -o "lowerdir=/etc,upperdir=$T/etc/upper,workdir=$T/etc/work" none /etc
}

# fw_env.config names an environment that is not on the root.
swupdate_up() {
	own_etc
	openssl req -x509 -newkey rsa:2048 -nodes -keyout "$T/swu.key" -out "$T/swu.crt" -subj /CN=updates -days 30 \
		-addext extendedKeyUsage=emailProtection 2>/dev/null
	mount -t overlay -o "lowerdir=$T/dest/usr/lib/swupdate:/usr/lib/swupdate" none /usr/lib/swupdate
	echo 'ustate=0' | mkenvimage -s 16384 -o "$T/shared/env" -
	echo "$T/shared/env 0 0x4000" >/etc/fw_env.config
	echo card 1.0 >/etc/hwrevision
	mkdir -p /etc/swupdate/conf.d
	echo "SWUPDATE_ARGS='-v -B uboot -k $T/swu.crt'" >/etc/swupdate/conf.d/10-args
}

swupdate_bundle() { # FILE: makes T/update.swu
	rm -rf "$T/swu"
	mkdir "$T/swu"
	cp "$1" "$T/swu/update.cowfs"
	printf '#!/bin/sh\nexec /usr/lib/cowfs/fleet/swupdate "$@"\n' >"$T/swu/cowfs"
	cat >"$T/swu/sw-description" <<-C
		software =
		{
			version = "2.0";
			hardware-compatibility = [ "1.0" ];
			files: ({
				filename = "update.cowfs";
				type = "rawfile";
				path = "/run/update.cowfs";
				installed-directly = true;
				sha256 = "$(sha256sum <"$T/swu/update.cowfs" | cut -c1-64)";
			});
			scripts: ({
				filename = "cowfs";
				type = "shellscript";
				data = "/run/update.cowfs";
				sha256 = "$(sha256sum <"$T/swu/cowfs" | cut -c1-64)";
			});
		}
	C
	openssl cms -sign -in "$T/swu/sw-description" -out "$T/swu/sw-description.sig" -signer "$T/swu.crt" -inkey "$T/swu.key" \
		-outform DER -nosmimecap -binary
	(cd "$T/swu" && printf '%s\n' sw-description sw-description.sig cowfs update.cowfs | cpio -o -H crc --quiet >"$T/update.swu")
}

swupdate_file() { # of the one file, as swupdate.sh would start it
	run timeout 60 swupdate -v -B uboot -k "$T/swu.crt" -i "$T/update.swu"
	echo "$output"
	[ ! -e /run/update.cowfs ] || return 9
	return "$status"
}

@test "swupdate: from a file; a damaged one, and one for another base" {
	local before
	dpkg-query -W -f '${Package} ${Version}\n' swupdate
	swupdate_up
	before=$(image_sum "$T/card.img")
	second_update
	head -c 20000 "$T/delta" >"$T/cut"
	for f in foreign cut; do
		swupdate_bundle "$T/$f"
		run swupdate_file
		echo "$output"
		[ "$status" = 1 ]
		[[ $output == *"not imported"* ]]
		[ "$(fw_printenv -n ustate)" != 1 ]
	done
	[ "$(image_sum "$T/card.img")" = "$before" ]
	swupdate_bundle "$T/delta"
	swupdate_file
	[ "$(fw_printenv -n ustate)" = 1 ]
	reboot
	has_new
}

# ---- hawkBit ----

ddi_up() {
	mkdir "$T/ddi"
	touch "$T/ddi/feedback"
	background python3 "$top/tests/fleet/ddi.py" "$T/ddi" >"$T/port"
	wait_for 5 test -s "$T/port"
	echo "SWUPDATE_SURICATTA_ARGS='-t default -u http://127.0.0.1:$(cat "$T/port") -i card'" >/etc/swupdate/conf.d/20-hawkbit
}

# as swupdate.service does
swupdate_start() {
	background sh /usr/lib/swupdate/swupdate.sh >>"$T/swupdate.log" 2>&1
}
swupdate_stop() {
	kill "$BG"
	wait "$BG" || true
	rm -f /tmp/sockinstctrl /tmp/swupdateprog
}

fed_back() { grep -qxF "$*" "$T/ddi/feedback"; }

deploy() { # ACTION FILE
	swupdate_bundle "$2"
	cp "$T/update.swu" "$T/ddi/update.swu"
	echo "$1" >"$T/ddi/action"
}

@test "swupdate: hawkBit hears of success after accept, and of a trial that failed" {
	swupdate_up
	ddi_up
	second_update
	deploy 6 "$T/foreign"
	swupdate_start
	wait_for 40 fed_back 6 closed failure
	has_old
	deploy 7 "$T/delta"
	wait_for 40 ustate_is 1
	sleep 5
	run ! grep '^7 closed' "$T/ddi/feedback"
	swupdate_stop
	swupdate_start # the reboot is missing
	sleep 4
	swupdate_stop
	reboot
	has_new
	swupdate_start
	sleep 6
	run ! grep '^7 closed' "$T/ddi/feedback"
	cow accept root --trial
	wait_for 20 fed_back 7 closed success
	deploy 8 "$T/foreign"
	wait_for 40 ustate_is 1
	swupdate_stop
	reboot
	reboot
	reboot
	has_new
	swupdate_start
	wait_for 20 fed_back 8 closed failure
	swupdate_stop
	cat "$T/ddi/feedback"
	[ "$(grep closed "$T/ddi/feedback")" = $'6 closed failure\n7 closed success\n8 closed failure' ]
}

ustate_is() { [ "$(fw_printenv -n ustate)" = "$1" ]; }

# ---- Mender ----

mender_up() {
	own_etc
	mkdir -p "$T/shared/mender" /etc/mender
	echo device_type=card >"$T/shared/mender/device_type"
	echo artifact_name=factory >/etc/mender/artifact_info
	echo '{}' >"$T/mender.conf"
}

mend() { run timeout 60 mender --no-syslog --config "$T/mender.conf" --data "$T/shared/mender" "$@"; echo "$output"; return "$status"; }

mender_artifact() { # FILE: makes T/update.mender
	cp "$1" "$T/update.cowfs"
	mender-artifact write module-image -t card -o "$T/update.mender" -T cowfs -n "release-$(basename "$1")" -f "$T/update.cowfs"
}

shows() { # NAME
	run mend show-artifact
	[[ $output == *"$1" ]] || { echo "$output"; return 1; }
}

@test "mender: install, commit after accept, rollback, artifacts that are refused" {
	dpkg-query -W -f '${Package} ${Version}\n' mender-client mender-artifact
	mender_up
	second_update
	mender_artifact "$T/foreign"
	run ! mend install "$T/update.mender"
	echo "$output"
	[[ $output == *"is for generation"*"nothing was written"* ]]
	has_old
	mender_artifact "$T/delta"
	# on trial, and never accepted
	mend install "$T/update.mender"
	reboot
	has_new
	run ! mend commit
	echo "$output"
	[[ $output == *"was not accepted in time"* ]]
	reboot
	has_old
	shows factory
	# rolled back ahead of the reboot
	mend install "$T/update.mender"
	mend rollback
	reboot
	has_old
	# a trial that fails
	mend install "$T/update.mender"
	reboot
	reboot
	reboot
	has_old
	run ! mend commit
	[[ $output == *"went back to the generation before the update"* ]]
	shows factory
	mend install "$T/update.mender"
	reboot
	cow accept root --trial
	mend commit
	shows release-delta
	mender_artifact "$T/foreign"
	mend install "$T/update.mender"
	[ "$(/usr/lib/cowfs/fleet/ship state)" = reboot ]
}
