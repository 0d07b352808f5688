#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Hostile content and hostile users: what files, cards and local users say is not believed.

load lib

setup() { cow_setup; }
teardown() { cow_teardown; }

# ---- a file that is a part of the log ----

# A file of root's and a file of nobody's, both committed, so that what is written into them goes to the log.
victim_and_own() { # [FORMAT_OPTION]...
	volume_mounted ext4 100 150 -b 4096 -- "$@"
	yes genuine | head -c 4096 >"$MNT/victim"
	chmod 644 "$MNT/victim"
	install -d -o nobody "$MNT/nobody"
	as_nobody dd if=/dev/zero of="$MNT/nobody/file" bs=4k count=192 conv=fsync status=none
	cow commit
}

# nobody overwrites the file in place. The test lends the knowledge: the ring as it is now.
attack_by_file() {
	local block
	block=$(as_nobody filefrag -b4096 -v "$MNT/victim" | awk '$1 == "0:" { print $4 + 0 }')
	[ "$block" -gt 0 ]
	logedit forge "$block" 64 >"$T/forged"
	chmod 644 "$T/forged"
	[ "$(stat -c %s "$T/forged")" = $((192 * 4096)) ]
	as_nobody dd if="$T/forged" of="$MNT/nobody/file" conv=notrunc,fsync bs=4k status=none
	cow commit
}

nothing_believed() {
	local state generation
	run -0 cow check --json "$CARD"
	state=$(jq -r .log_state <<<"$output")
	generation=$(jq -r .record <<<"$output")
	[ "$generation" -lt 500 ] # the forged ones are a thousand higher
	[ "$state" = "$1" ]
	attach_mounted
	[ "$(head -n 1 "$MNT/victim")" = genuine ]
	cmp "$MNT/nobody/file" "$T/forged"
	detach_whole ext4
	on_bare 'cmp "$MNT/nobody/file" "$T/forged"'
}

@test "a user's file that is a record of the log is a file: after a power cut" {
	victim_and_own
	attack_by_file
	power_cut rw
	nothing_believed live
}

@test "a user's file that is a record of the log is a file: with lag 1, after a clean detach" {
	victim_and_own --lag 1
	attack_by_file
	detach
	nothing_believed clean
}

@test "the ring uuid is in nothing that everybody may read" {
	local uuid
	victim_and_own
	uuid=$(logedit uuid)
	[ ${#uuid} = 36 ]
	run -0 as_nobody cat "$COWFS_RUNDIR/vol/status.json"
	[ "$(jq -r '.log_id | length' <<<"$output")" = 36 ]
	[[ $output != *"$uuid"* ]]
	[ -z "$(find "$COWFS_RUNDIR" -type f -perm /o+r -exec grep -l "$uuid" {} +)" ]
	run as_nobody "$COWFS_BUILD/cowctl" status --json
	[[ $output != *"$uuid"* ]]
	detach
}

# ---- a device that became something else ----

# What LUKS, LVM or a swap area leaves of a file system: nothing that is known.
becomes_luks() {
	dd if=/dev/urandom of="$CARD" bs=1M count=4 conv=notrunc,fsync status=none
	printf 'LUKS\272\276\0\002' | dd of="$CARD" conv=notrunc,fsync status=none
}

@test "a partition that became something else: a mount that fails writes nothing" {
	local before flags
	for flags in "" --retire; do
		volume_mounted ext4 100 150
		commit_word one
		detach
		[ -z "$flags" ] || cow release "$CARD"
		logedit break A
		becomes_luks
		before=$(image_sum)
		run "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o name=vol
		echo "$output"
		[ "$status" != 0 ]
		wait_for 20 test ! -e "$COWFS_RUNDIR/vol"
		[ "$(image_sum)" = "$before" ]
		[ "$(cow check --json "$CARD" | jq -r .log_state)" = foreign ]
		loop_down "$CARD"
		CARD=''
		IMG=$T/again.img
	done
}

@test "hostile: cowfs.conf that a user can change is not used" {
	export COWFS_CONF=$T/cowfs.conf
	echo '[vol]' >"$COWFS_CONF"
	cow config
	chmod 666 "$COWFS_CONF"
	fails 1 'others than root can change it' config
	chmod 644 "$COWFS_CONF"
	chown nobody "$COWFS_CONF"
	fails 1 'others than root can change it' config
	chown root "$COWFS_CONF"
	mkdir -m 777 "$T/open"
	cp "$COWFS_CONF" "$T/open"
	COWFS_CONF=$T/open/cowfs.conf fails 1 'others than root can change it' config
}

@test "hostile: cowfs.conf in the root of a system whose root is mounted nosuid" {
	local d
	card_make ext4 100 150
	mount -o nosuid "$CARD" "$MNT"
	mkdir "$MNT/build"
	mount --bind "$COWFS_BUILD" "$MNT/build"
	for d in bin dev lib lib64 proc usr; do
		[ -d "/$d" ] || continue
		mkdir "$MNT/$d"
		mount --rbind "/$d" "$MNT/$d"
		mount --make-rslave "$MNT/$d"
	done
	echo '[vol]' >"$MNT/conf"
	COWFS_CONF=$MNT/conf fails 1 'others than root can change it' config
	run chroot "$MNT" /usr/bin/env COWFS_CONF=/conf /build/cowctl config
	umount -R "$MNT"
	echo "$output"
	[ "$status" = 0 ]
}
