#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl card and prepare --dry-run: which devices may be meant, and whether the commands that they print do what they say.

load lib

# Types the commands of "next:" one after another, with the programs of this build. stdout of the last one: $output
type_commands() {
	local line commands
	commands=$(cow card "$1" 2>&1 | sed '1,/^next:$/d')
	[ -n "$commands" ] || return
	mkdir -p "$T/bin"
	ln -sf "$COWFS_BUILD/cowctl" "$T/bin/cowctl"
	while IFS= read -r line; do
		echo "$line"
		run -0 --separate-stderr env PATH="$T/bin:$PATH" timeout "$COW_LIMIT" sh -c "$line" || return
	done <<<"$commands"
}

# As `attach`, for a device that another command printed.
attached() {
	DEV=$output
	[ -b "$DEV" ]
	NAME=$(cow status --json | jq -r .name)
	is_volume
}

# The next command of this device in the list.
# On a busy machine a device may need more than the 3 s that cowctl gives it.
next_of() { # DEVICE
	local next='' n=0
	while [ $n -lt 10 ]; do
		next=$(cow card --json | jq -r --arg d "$1" '.devices[] | select(.device == $d) | .next')
		[[ $next == *"does not answer" ]] || break
		n=$((n + 1))
	done
	echo "$next"
}

@test "card: room behind the file system; the commands typed; then its log" {
	local before name
	card_make ext4 100 150
	before=$(card_written)
	run -0 cow card "$CARD"
	[[ $output == "$CARD: an empty log would be written"*"ext4 of 100.0 MiB, untouched"*"erase block "*"(assumed"*"next:"*"cowctl prepare $CARD"*"cowctl attach $CARD" ]]
	[ "$(cow prepare --dry-run "$CARD")" = "$output" ]
	run -0 cow card --json "$CARD"
	jq -e --arg d "$CARD" '.ok and .schema == 1 and .device == $d and .fs_type == "ext4" and .log_bytes == 33554432 and
		.next == ["cowctl prepare \($d)", "cowctl attach \($d)"]' <<<"$output"
	[ "$(next_of "$CARD")" = "cowctl prepare $CARD" ]
	wait_for 3 eval 'cow card | grep -Eq "^$CARD +150.0 MiB +ext4 +cowctl prepare $CARD$"' # a busy device does not answer in time
	[ "$(card_written)" = "$before" ]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	run -0 cow prepare --dry-run --log-size 40M --lag 1 "$CARD"
	[[ $output == *"log            40.0 MiB"*"cowctl prepare --log-size 40M --lag 1 $CARD"* ]]
	fails 2 'mutually exclusive' prepare --dry-run --shrink "$CARD"
	type_commands "$CARD"
	attached
	mount_volume
	echo 1 >"$MNT/a"
	cow commit
	for name in "$CARD" "$DEV"; do
		run -0 cow card "$name"
		run -1 cow prepare --dry-run "$name"
		[[ $output == *" is attached as volume $NAME"*"next:"*"cowctl status $NAME" ]]
	done
	[ "$(next_of "$CARD")" = "cowctl status $NAME" ]
	[ "$(next_of "$DEV")" = "" ]
	detach
	before=$(image_sum)
	run -0 --separate-stderr cow card "$CARD"
	[ -z "$stderr" ]
	[[ $output == "$CARD: already has a cowfs log"*"next:"*"cowctl attach $CARD" && $output != *"cowctl prepare"* ]]
	[ "$(next_of "$CARD")" = "cowctl attach $CARD" ]
	[ "$(image_sum)" = "$before" ]
	run -0 cow card --json "$CARD"
	jq -e --arg d "$CARD" '.ok and .device == $d and .fs_type == "ext4" and .next == ["cowctl attach \($d)"] and
		(.remark | startswith("\($d): already has a cowfs log"))' <<<"$output"
	run -1 cow prepare --dry-run --json "$CARD"
	jq -e '.error | test("already has a cowfs log")' <<<"$output"
	type_commands "$CARD"
	attached
	detach
}

@test "card: committed blocks that only the log has are not led past" {
	local before
	cut_card 1 ext4
	before=$(image_sum)
	run -0 cow card "$CARD"
	[[ $output == *"committed blocks exist only in it"*"next:"*"cowctl attach $CARD" && $output != *force* && $output != *prepare* ]]
	run -1 cow prepare --dry-run --force "$CARD"
	[[ $output == *"not checkpointed: run 'cowctl release $CARD' first"* && $output != *next:* ]]
	[ "$(next_of "$CARD")" = "cowctl attach $CARD" ]
	[ "$(image_sum)" = "$before" ]
	type_commands "$CARD"
	attached
	mount_volume -o ro
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	detach
	IMG=''
	cut_card 2 ext4
	logedit damage 1
	logedit damage 2
	run -1 cow card "$CARD"
	[[ $output == *"already has a cowfs log"*"is damaged: see cowctl check $CARD" ]]
}

@test "card: no room: --shrink for ext, another device for others; a mounted one is unmounted first" {
	card_make ext4 150 150
	mount "$CARD" "$MNT"
	run -0 cow card "$MNT"
	[[ $output == *"no space for the log"*"next:"*"umount $MNT"*"cowctl prepare --shrink $CARD"*"cowctl attach $CARD" ]]
	[ "$(next_of "$CARD")" = "umount $MNT" ]
	[ "$(blockdev --getro "$CARD")" = 0 ]
	echo 1 >"$MNT/a"
	type_commands "$CARD"
	attached
	mount_volume -o ro
	[ "$(cat "$MNT/a")" = 1 ]
	detach
	IMG=''
	card_make xfs 400 400
	run -1 cow card "$CARD"
	[[ $output == *"no space for the log"*"another device with --log"* && $output != *next:* ]]
	[ "$(next_of "$CARD")" = "cowctl card $CARD" ]
}

@test "card: a mount point and a log device of any name, as a shell reads them" {
	local odd="$T/it's \\040" log
	card_make ext4 150 150
	mkdir "$odd"
	mount "$CARD" "$odd"
	truncate -s 64M "$T/log.img"
	loop_up "$T/log.img"
	log="$T/a log"
	ln -s "$LOOP" "$log"
	run -0 --separate-stderr cow prepare --dry-run --json --log "$log" "$CARD"
	# shellcheck disable=SC2016 # for that shell
	[ "$(printf 'cowctl() { printf "%%s\n" "$@"; }\numount() { printf "%%s\n" "$@"; }\n%s\n' "$(jq -r '.next[]' <<<"$output")" | sh)" = \
		"$(printf '%s\n' "$odd" prepare --log "$log" "$CARD" attach --log "$log" "$CARD")" ]
	[ "$(next_of "$CARD")" = "umount '${odd//"'"/"'\''"}'" ]
	umount "$odd"
}

@test "card: an image file" {
	card_make ext4 100 150
	loop_down "$CARD"
	CARD=''
	run -0 cow card "$IMG"
	[[ $output == "$IMG: an empty log would be written"*"cowctl prepare $IMG"*'cowctl attach "$(losetup -f --show '"$IMG"')"' ]]
	cp --sparse=always "$IMG" "$T/copy"
	run -0 --separate-stderr cow prepare "$T/copy"
	[ "${lines[-1]}" = 'protect it with: cowctl attach "$(losetup -f --show '"$T/copy"')"' ]
	type_commands "$IMG"
	attached
	run -1 cow card "$IMG"
	[[ $output == *"is attached as volume $NAME"* ]]
	detach
}

@test "card: what refuses: LVM, LUKS, swap, nothing, a disk with partitions" {
	local n
	card_make none 0 100
	run -1 cow card "$CARD"
	[[ $output == *"no known file system. Make one of at most "* && $output != *next:* ]]
	mkswap -q "$CARD"
	run -1 cow card --json "$CARD"
	jq -e '.error | test("holds a swap area")' <<<"$output"
	dd if=/dev/zero of="$CARD" bs=1M count=1 status=none
	python3 - "$IMG" <<-'END'
		import sys
		with open(sys.argv[1], "r+b") as f:
		    f.write(b"LUKS\xba\xbe\0\1aes\0")
	END
	blockdev --flushbufs "$CARD"
	run -1 cow card "$CARD"
	[[ $output == *"LUKS"* && $output != *next:* ]]
	loop_down "$CARD"
	truncate -s 0 "$IMG"
	truncate -s 100M "$IMG"
	printf 'label: dos\n2048,40960,L\n43008,40960,L\n' | sfdisk -q "$IMG"
	loop_up "$IMG" -P
	CARD=$LOOP
	# a kernel may know no partition tables
	for n in 1 2; do
		[ -e "/sys/class/block/${CARD#/dev/}p$n" ] || addpart "$CARD" $n $((2048 + (n - 1) * 40960)) 40960
		wait_for 5 [ -b "${CARD}p$n" ]
	done
	mke2fs -q -t ext4 "${CARD}p2"
	run -1 cow card "$CARD"
	[[ $output == *"a DOS partition table with 2 partitions"*"name a partition instead"* ]]
	wait_for 3 eval 'cow card >"$T/cards" && grep -Eq "^${CARD}p1 +20.0 MiB +unknown +cowctl card ${CARD}p1$" "$T/cards" &&
		grep -Eq "^${CARD}p2 +20.0 MiB +ext4 " "$T/cards" && ! grep -q "^$CARD " "$T/cards"'
	fails 1 'No such file' card /dev/nosuch
	fails 1 'no device is mounted there' card "$T" --json
	fails 1 'neither a block device' card /dev/null
}

@test "card: commands for a mount point with the name of a crafted label" {
	local dir=$T/"x; touch pwned 'y\$(z)"
	card_make ext4 100 150
	mkdir "$dir"
	mount "$CARD" "$dir"
	cow card "$CARD"
	cd "$T"
	type_commands "$CARD"
	attached
	[ ! -e "$T/pwned" ]
	detach
}

# More of them than can be asked one after another in the time that the command has
@test "card: devices that do not answer are named, and the others are shown" {
	local server dev silent=()
	card_make ext4 100 150
	C=$T/sim
	mkdir "$C"
	SIM lexar-300x-8g 8M "$C"
	for _ in {1..40}; do
		silent+=("$(losetup -f --show "$C/card")")
	done
	server=$(pgrep -f "cowfs-cardsim .*$C\$")
	# whatever becomes of this test; in one process, so that nothing of it outlives the test
	setsid bash -c "read -rt 45 <> <(:); kill -CONT $server" 3>&- >/dev/null 2>&1 &
	kill -STOP "$server"
	run cow card
	kill -CONT "$server"
	echo "$output"
	[ "$status" = 0 ]
	for dev in "${silent[@]}"; do
		grep -Eq "^$dev .* # $dev does not answer$" <<<"$output"
	done
	[ "$(next_of "$CARD")" = "cowctl prepare $CARD" ]
	losetup -d "${silent[@]}"
	sim_end "$C"
}

@test "card: the facts that tools ask for keep to their schema" {
	local f
	facts() {
		run -0 cow card --facts "$1"
		python3 -c 'import json, jsonschema, sys; jsonschema.validate(json.loads(sys.argv[1]), json.load(open(sys.argv[2])))' \
			"$output" "$TOP/tools/clone/facts.schema.json"
		jq -r "$2" <<<"$output"
	}
	volume_attached ext4 60 100
	[ "$(facts "$CARD" '"\(.content) \(.volume_bytes) \(.in_use)"')" = "volume $((60 << 20)) $CARD is attached as volume vol: detach it first" ]
	truncate -s 20M "$T/file"
	[ "$(facts "$T/file" '"\(.content)|\(.holds)|\(.in_use)|\(.bytes)"')" = "|nothing that is known||$((20 << 20))" ]
	# a label is any text
	mke2fs -q -t ext2 -L $'x"\n\e[1m$(id)' "$T/file"
	[ "$(facts "$T/file" '"\(.content)|\(.holds)|\(.volume_bytes)"')" = "ext2|a file system (ext2)|0" ]
	loop_up "$T/file"
	mkswap "$LOOP" >/dev/null 2>&1
	[ "$(facts "$LOOP" '"\(.content)|\(.holds)"')" = "swap|a swap area" ]
	fails 1 'No such file or directory' card --facts "$T/none"
}
