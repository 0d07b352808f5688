#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The way back behind an update, with its peers: the table of docs/BENCHMARKS.md, "The way back". As root, with network.
#
#	lab/bench/undo.sh
#	BENCH_ROUNDS=N	rounds (3)
#	CACHE=FOLDER	keeps the Debian root and the packages
#
# The update is `apt-get install git gcc` from packages that are there already, in a Debian root on a loop device. Its
# bytes are those that the kernel wrote to this device until the update is durable; those of going back and its time
# reach until the old tree is the durable one. The point to come back to is made before, and is not counted.
#	cowfs		commit --hold; update, commit; detach, undo (on ext4)
#	snapper		btrfs: snapper create; update, sync; snapper undochange, sync
#	subvolume	btrfs: a snapshot; update, sync; it becomes the default subvolume, sync (what snapper rollback does, without a reboot)
# dm-snapshot needs a device-mapper, and is not here.
# shellcheck disable=SC2119 # functions whose arguments may be left out
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}"
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"

ROUNDS=${BENCH_ROUNDS:-3}
CACHE=${CACHE:-$TOP/build/cache}
mkdir -p "$CACHE"
cow_setup
IMG=$T/card.img
CARD=''
trap volume_tidy EXIT
trap 'exit 130' INT TERM
candidates=(cowfs)
if command -v snapper >/dev/null; then candidates+=(snapper); else note "no snapper: left out"; fi
if command -v btrfs >/dev/null; then candidates+=(subvolume); else note "no btrfs-progs: left out"; fi

written() { echo $(($(awk '{ print $7 }' "/sys/class/block/${CARD#/dev/}/stat") * 512)); }
ms() { echo $(($(date +%s%N) / 1000000)); }

fill() {
	tar -C "$MNT" --numeric-owner -xf "$CACHE/debian-root.tar"
	cp -L /etc/resolv.conf "$MNT/etc/resolv.conf"
	printf '#!/bin/sh\nexit 101\n' >"$MNT/usr/sbin/policy-rc.d"
	chmod 755 "$MNT/usr/sbin/policy-rc.d"
	if [ ! -e "$CACHE/update.tar" ]; then
		in_root 'apt-get -q update && apt-get -qy -d --no-install-recommends install git gcc'
		tar -C "$MNT" -cf "$CACHE/update.tar.new" var/cache/apt var/lib/apt
		mv "$CACHE/update.tar.new" "$CACHE/update.tar"
	fi
	tar -C "$MNT" --numeric-owner -xf "$CACHE/update.tar"
}

update() {
	in_root 'apt-get -qy --no-download --no-install-recommends install git gcc'
	[ -x "$MNT/usr/bin/git" ]
}

image() {
	rm -f "$IMG"
	truncate -s 2600M "$IMG"
	card_up
}

# Prints: bytes of the update, bytes of going back, milliseconds.
cowfs_round() {
	local begin end start
	image
	mkfs.ext4 -q -b 4096 -J size=16 "$CARD" 2400M >/dev/null 2>&1
	cow prepare --log-size 160M "$CARD" >/dev/null
	attach >/dev/null
	mount_volume
	fill
	cow commit --hold >/dev/null
	begin=$(written)
	update
	cow commit >/dev/null
	end=$(written)
	umount_volume
	start=$(ms)
	cow undo "$DEV" >/dev/null
	echo "$((end - begin)) $(($(written) - end)) $(($(ms) - start))"
	attach >/dev/null
	mount_volume
	[ ! -e "$MNT/usr/bin/git" ]
	umount_volume
	cow detach --discard vol >/dev/null
	card_down
}

btrfs_up() {
	image
	mkfs.btrfs -q -f "$CARD" >/dev/null
	mount -o noatime "$CARD" "$MNT"
	fill
	sync -f "$MNT"
}

btrfs_down() { # BEGIN END START
	sync -f "$MNT"
	echo "$(($2 - $1)) $(($(written) - $2)) $(($(ms) - $3))"
}

snapper_round() {
	local begin end start
	btrfs_up
	snapper --no-dbus -c bench create-config "$MNT" || true
	snapper --no-dbus -c bench create --description before
	sync -f "$MNT"
	begin=$(written)
	update
	sync -f "$MNT"
	end=$(written) start=$(ms)
	snapper --no-dbus -c bench undochange 1..0 >/dev/null
	btrfs_down "$begin" "$end" "$start"
	[ ! -e "$MNT/usr/bin/git" ]
	snapper --no-dbus -c bench delete-config
	umount "$MNT"
	card_down
}

subvolume_round() {
	local begin end start
	btrfs_up
	btrfs -q subvolume snapshot "$MNT" "$MNT/before"
	sync -f "$MNT"
	begin=$(written)
	update
	sync -f "$MNT"
	end=$(written) start=$(ms)
	btrfs subvolume set-default "$MNT/before"
	btrfs_down "$begin" "$end" "$start"
	umount "$MNT"
	mount "$CARD" "$MNT"
	[ ! -e "$MNT/usr/bin/git" ]
	umount "$MNT"
	card_down
}

root_tar
echo "round  what       update MiB  back KiB  back ms"
for round in $(seq "$ROUNDS"); do
	for what in "${candidates[@]}"; do
		"${what}_round" >"$T/round"
		# shellcheck disable=SC2046 # three numbers
		set -- $(tail -n 1 "$T/round")
		printf '%5d  %-9s  %10d  %8d  %7d\n' "$round" "$what" $(($1 / 1048576)) $(($2 / 1024)) "$3"
	done
done
