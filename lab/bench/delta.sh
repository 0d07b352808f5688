#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# An update for many cards, with its peers: the table of docs/BENCHMARKS.md, "Updates of a fleet". As root, with network.
#
#	lab/bench/delta.sh
#	CACHE=FOLDER	keeps the Debian root and the packages
#
# The update is `apt-get install git gcc`, made once on a master card, in a Debian root on an ext4 of 2,400 MiB. The other card has the image
# of before. Printed are the bytes that a device must fetch, and what the kernel wrote to the device.
#	cowfs		export, import (ext4, log of 160 MiB), detach: all of it is home then
#	zstd -3, -19	the blocks of that delta one behind the other, without cowfs: what its file is measured by
#	casync		make of both images with chunks of its own sizes; those that the first has not are fetched. extract
#			writes the other slot of an A/B device, with the first as seed
#	whole image	zstd -3 of the used blocks, written to the other slot, as A/B tools do without deltas
# shellcheck disable=SC2119 # functions whose arguments may be left out
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}"
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"

CACHE=${CACHE:-$TOP/build/cache}
mkdir -p "$CACHE"
cow_setup
IMG=$T/card.img
CARD=''
trap volume_tidy EXIT
trap 'exit 130' INT TERM
for tool in casync zstd; do
	command -v $tool >/dev/null || { note "no $tool: install it"; exit 1; }
done

written() { echo $(($(awk '{ print $7 }' "/sys/class/block/${CARD#/dev/}/stat") * 512)); }
ms() { echo $(($(date +%s%N) / 1000000)); }
mib() { awk "BEGIN { print $1 / 1048576 }"; }
row() { printf '%-22s  %10.1f  %10.1f  %8d\n' "$1" "$(mib "$2")" "$(mib "$3")" "$4"; }

master() {
	truncate -s 2600M "$IMG"
	card_up
	mkfs.ext4 -q -b 4096 -J size=16 "$CARD" 2400M >/dev/null 2>&1
	cow prepare --log-size 160M "$CARD" >/dev/null
	attach --ram 2G >/dev/null
	mount_volume
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
	cow commit >/dev/null
	umount_volume
	cow detach vol >/dev/null
	cp --sparse=always "$IMG" "$T/old.img"
	attach --ram 2G >/dev/null
	mount_volume
	in_root 'apt-get -qy --no-download --no-install-recommends install git gcc'
	SUM=$(tree_sum "$MNT")
	umount_volume
	cow detach vol >/dev/null
	card_down
	mv "$IMG" "$T/new.img"
}

by_cowfs() {
	local begin start
	start=$(ms)
	cow export --base "$T/old.img" "$T/new.img" "$T/delta" >/dev/null
	note "export: $(($(ms) - start)) ms"
	cp --sparse=always "$T/old.img" "$IMG"
	card_up
	attach --ram 2G >/dev/null
	begin=$(written) start=$(ms)
	cow import "$T/delta" --json >"$T/import.json"
	start=$(($(ms) - start))
	no_daemons
	row cowfs "$(stat -c %s "$T/delta")" $(($(written) - begin)) "$start"
	note "import: $(jq -c '{changed_bytes, written_bytes, erase_blocks}' "$T/import.json")"
	mount -o ro "$CARD" "$MNT"
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	umount "$MNT"
	card_down
	rm "$IMG"
	python3 - "$T/delta" >"$T/blocks" <<-'P'
		import struct, subprocess, sys
		f = open(sys.argv[1], "rb").read()
		n, = struct.unpack_from("<I", f, 120)
		at = 8192
		for i in range(n):
		    packed, size = struct.unpack_from("<II", f, len(f) - 40 * (n - i))
		    raw = subprocess.run(["zstd", "-dcq"], input=f[at:at + packed], stdout=subprocess.PIPE, check=True).stdout
		    runs, = struct.unpack_from("<I", raw, 8)
		    sys.stdout.buffer.write(raw[48 + 8 * runs:])
		    at += packed
	P
	for level in 3 19; do
		row "zstd -$level of its blocks" "$(zstd -q -T1 -$level -c "$T/blocks" | wc -c)" 0 0
	done
}

# The other slot has the image of before the last one: here nothing.
by_casync() {
	local begin start
	mkdir "$T/s1" "$T/s2"
	casync make --store="$T/s1" "$T/old.caibx" "$T/old.img" >/dev/null
	cp -a "$T/s1/." "$T/s2/"
	casync make --store="$T/s2" "$T/new.caibx" "$T/new.img" >/dev/null
	rm -f "$IMG"
	truncate -s 2600M "$IMG"
	card_up
	begin=$(written) start=$(ms)
	casync extract --store="$T/s2" --seed="$T/old.img" "$T/new.caibx" "$CARD" >/dev/null 2>&1
	blockdev --flushbufs "$CARD"
	start=$(($(ms) - start))
	row casync $(($(du -sb "$T/s2" | cut -f1) - $(du -sb "$T/s1" | cut -f1) + $(stat -c %s "$T/new.caibx"))) $(($(written) - begin)) "$start"
	cmp "$T/new.img" "$CARD"
	card_down
	rm "$IMG"
}

by_image() {
	cow export --all "$T/new.img" "$T/whole" --json >"$T/whole.json"
	row "whole image" "$(stat -c %s "$T/whole")" "$(jq .data_bytes "$T/whole.json")" 0
}

root_tar
master
printf '%-22s  %10s  %10s  %8s\n' what 'fetch MiB' 'write MiB' ms
by_cowfs
by_image
by_casync
