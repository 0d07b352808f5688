#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2030,SC2031,SC2154 # each test is a subshell; run sets status and output
# Programs that are started with closed descriptors (a script with <&-, init without a console), and a reader that goes away.
# seconds: 40

load lib

COMBINATIONS='0 1 2 01 02 12 012'

# $1 descriptors to close, then a command
without() {
	# shellcheck disable=SC2016
	timeout -k 5 300 bash -c 'for d in $(fold -w1 <<<"$1"); do eval "exec $d>&-"; done; shift; exec "$@"' sh "$@"
}

# Each process of the volume, and the card does not stand at a number that is printed to
daemon_has_stdio() {
	local p d
	for p in $(daemons); do
		for d in 0 1 2; do
			[ "$(readlink "/proc/$p/fd/$d")" = /dev/null ] || { echo "$p has $(readlink "/proc/$p/fd/$d") as $d"; return 1; }
		done
	done
}

# COMMAND...: for each combination, which is its last argument
each_closed() {
	local closed
	card_prepared ext4 100 150
	NAME=vol
	for closed in $COMBINATIONS; do
		echo "closed: $closed"
		"$@" "$closed"
	done
}

# What the card has in the file data
card_says() {
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/data")" = "$1" ]
	umount "$MNT"
}

attaches_without() { # COWCTL CLOSED
	without "$2" "$1" attach --name vol "$CARD"
	DEV=$(status_of .loop)
	is_volume
	daemon_has_stdio
	mountpoint -q "$MNT" || mount_volume
	echo "$2 $1" >"$MNT/data"
	without "$2" "$1" commit vol
	[ "$(status_of '"\(.last.ok) \(.alarm)"')" = "true " ]
	umount -i "$MNT"
	without "$2" "$1" detach vol
	wait_for 20 no_daemons
	card_says "$2 $1"
}

mounts_without() { # CLOSED
	without "$1" "$COWFS_BUILD/mount.cowfs" -o name=vol "$CARD" "$MNT"
	daemon_has_stdio
	echo "$1" >"$MNT/data"
	without "$1" "$COWFS_BUILD/umount.cowfs" "$MNT"
	wait_for 20 no_daemons
	card_says "$1"
}

@test "closed descriptors: cowctl and cowfs" { each_closed attaches_without "$COWFS_BUILD/cowctl"; }

@test "closed descriptors: the programs of an initramfs" {
	ln -s "$COWFS_BUILD/cowfs-boot" "$T/cowctl"
	ln -s "$COWFS_BUILD/cowfs-boot" "$T/cowfs"
	each_closed attaches_without "$T/cowctl"
}

@test "closed descriptors: the mount helpers" { each_closed mounts_without; }

@test "closed descriptors: every other program, and each that is added" {
	local closed program
	card_make ext4 100 150
	mkdir "$T/sim"
	for closed in $COMBINATIONS; do
		without "$closed" "$COWFS_BUILD/cowfs-cardsim" x-slow-4g 8M "$T/sim"
		without "$closed" "$COWFS_BUILD/cowfs-cardsim" stop "$T/sim"
		without "$closed" "$COWFS_BUILD/set-readonly" "$CARD"
		blockdev --setrw "$CARD"
		without "$closed" "$COWFS_BUILD/cowctl" measure --help
		without "$closed" "$COWFS_BUILD/cowfs-recover" --help
	done
	# main of each calls it before anything else
	cd "$BATS_TEST_DIRNAME/../../cowfs"
	for program in $(grep -l '^int main(' ./*/*.c); do
		sed -n '/^int main(/,$p' "$program" | grep -qE 'program_begin\(\)|helper_begin\(|return (cowctl|cowfs)_main\(|\? cowctl_main\(' ||
			{ echo "$program: main opens no descriptors"; return 1; }
	done
}

@test "a reader that goes away does not end what has to be undone" {
	card_prepared ext4 100 150
	NAME=vol
	for _ in 1 2 3; do
		"$COWFS_BUILD/mount.cowfs" -v -o name=vol,nonsense=1 "$CARD" "$MNT" 2>&1 | :
		wait_for 20 no_daemons
		[ "$(blockdev --getro "$CARD")" = 0 ]
	done
	attach_mounted
	echo data >"$MNT/data"
	cow commit --verbose 2>&1 | :
	[ "$(status_of .generation)" = 1 ]
	cow run --volume vol -- sh -c 'kill -PIPE $$' || [ $? = 141 ] # a command has it as ever
}
