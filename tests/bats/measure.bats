#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl measure: what it refuses, what it finds on a simulated card in real time, and that a volume takes the result.
# seconds: 50
# turn: 3

load lib

setup() {
	cow_setup
	C=$T/sim
	mkdir "$C"
	export COWFS_PROFILES=$T/profiles
}

teardown() { sim_teardown; }

# A card that is fast enough to be measured in some seconds.
fast_card() {
	jq -n '{fast: {title: "fast", source: "a test", capacity_gb: 1, read_mb_s: [10, 20, 40, 60, 80, 100, 120, 140, 150],
		write_mb_s: [8, 14, 25, 40, 60, 80, 90, 100, 110], access_ms: 0.3, unit_kib: 1024, open_units: 2, open_random: 2,
		copy_mb_s: 60, merge_ms: 3, absorb: 1, wear: "dynamic", spare_percent: 3}} |
		.fast.from = (.fast | del(.title, .source) | map_values("assumed"))' >"$T/fast.json"
	SIM --real-time --profiles "$T/fast.json" fast "$1" "$C" >/dev/null
}

@test "measure: what it refuses before anything is written" {
	local before upper
	card_prepared ext4 60 160
	before=$(image_sum)
	truncate -s 40M "$T/none.img"
	fails 1 'has no log of cowfs.*--write-area START\+LENGTH' measure "$T/none.img"
	fails 2 'is START\+LENGTH' measure --write-area 100M "$CARD"
	fails 2 'is START\+LENGTH' measure --write-area 100M+33 "$CARD"
	fails 2 'usage: cowctl measure' measure --write-area all
	fails 1 'holds a file system \(ext4\).*must lie behind it' measure --write-area all "$CARD"
	fails 1 'must lie behind it' measure --write-area 40M+40M "$CARD"
	fails 1 'overlaps the log of cowfs' measure --write-area 61M+60M "$CARD"
	fails 1 'ends behind the device' measure --write-area 150M+40M "$CARD"
	fails 1 'neither a block device' measure --write-area all "$T"
	fails 1 'No such file' measure --write-area all "$T/none"
	fails 1 'no identity' measure --save --write-area 104M+40M "$CARD"
	blockdev --setro "$CARD"
	fails 1 'write-protected' measure --write-area 104M+40M "$CARD"
	blockdev --setrw "$CARD"
	mount -o ro "$CARD" "$MNT"
	fails 1 'is mounted on' measure --write-area 104M+40M "$CARD"
	umount "$MNT"
	upper=$(losetup -f --show -o 104M "$CARD")
	fails 1 "is in use by $upper" measure --write-area 104M+40M "$CARD" || { losetup -d "$upper"; false; }
	loop_down "$upper" # whoever looks at all loop devices keeps it for a moment
	[ "$(image_sum)" = "$before" ]
	attach
	fails 1 'is attached as volume vol' measure --write-area 104M+40M "$CARD"
	detach
}

@test "measure: other content, and an area that is too small" {
	truncate -s 100M "$T/parts"
	echo ',50M' | sfdisk -q "$T/parts"
	fails 1 'holds a .*partition table' measure --write-area all "$T/parts"
	truncate -s 7M "$T/small"
	run timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all "$T/small"
	[ "$status" = 1 ]
	[[ $output == *"smaller than 8 MiB. There is no profile"* ]]
}

# A card with a history: what was rewritten has filled its log one and a half times.
used_card() {
	local i
	volume_mounted ext4 60 120 -J size=4 -- "$@" -- --checkpoint always
	for i in 1 2 3 4 5 6 7; do
		dd if=/dev/urandom of="$MNT/a" bs=1M count=8 conv=notrunc,fsync status=none
		cow commit
	done
	FILES=$(tree_sum "$MNT")
}

same_files() {
	attach || return
	mount_volume || return
	[ "$(tree_sum "$MNT")" = "$FILES" ] || return
	detach
}

wear_of() {
	answer=$(cow wear "$CARD" --json)
	json_of "$1" <<<"$answer"
}

@test "measure: in the room of the log, and the ledger has every byte" {
	local start lag file
	for lag in 0 1; do
		# a wear table that is too large for one record
		used_card --lag $lag --erase-block 64K
		random_file "$MNT/c" 30
		FILES=$(tree_sum "$MNT")
		detach
		file=$(dd if="$CARD" bs=1M count=60 status=none | cksum)
		start=$(($(card_written) - $(wear_of .totals.written_bytes)))
		timeout 300 "$COWFS_BUILD/cowctl" measure "$CARD" --json >"$T/out"
		jq -e '.ok and .figures.area_bytes >= 8388608 and .figures.full_area_bytes == 268435456' "$T/out"
		[ "$(dd if="$CARD" bs=1M count=60 status=none | cksum)" = "$file" ]
		[ "$(wear_of .totals.written_bytes)" = "$(($(card_written) - start))" ]
		[ "$(wear_of '[.erase_blocks.written_blocks[]] | add * 4096')" = "$(wear_of .totals.written_bytes)" ]
		[ "$(wear_of .totals.table_losses)" = 0 ]
		# the newest commit has not written this
		[ "$(wear_of '.history.commits[-1].written_bytes')" -lt 40000000 ]
		answer=$(cow check "$CARD")
		grep -q '^verdict: good' <<<"$answer"
		same_files
		loop_down "$CARD"
	done
}

@test "measure: a card that was never attached" {
	local start
	card_prepared ext4 60 120
	start=$(card_written)
	timeout 300 "$COWFS_BUILD/cowctl" measure "$CARD" >"$T/out"
	grep -q 'area has only 28 MiB' "$T/out"
	[ "$(wear_of .totals.written_bytes)" = "$(($(card_written) - start))" ]
	mount "$CARD" "$MNT" # as before, the base may change
	touch "$MNT/new"
	umount "$MNT"
	attach
	[ "$(status_of .log_state)" != foreign ]
	detach
}

@test "measure: refused while blocks are only in the log" {
	local before
	used_card
	detach
	attach_mounted
	random_file "$MNT/b" 2
	sync -f "$MNT"
	cow commit
	dd if=/dev/urandom of="$MNT/b" bs=1M count=2 conv=notrunc status=none
	sync -f "$MNT"
	cow commit
	fails 1 'is attached as volume vol' measure "$CARD"
	FILES=$(tree_sum "$MNT")
	power_cut
	before=$(image_sum)
	fails 1 "only in its log: 'cowctl release $CARD' writes them home" measure "$CARD"
	fails 1 "only in its log" measure --json "$CARD"
	[ "$(image_sum)" = "$before" ]
	cow release "$CARD"
	timeout 300 "$COWFS_BUILD/cowctl" measure "$CARD" >/dev/null
	same_files
}

@test "measure: killed at many moments, the card attaches as before" {
	local i lag sum before
	for lag in 0 1; do
		used_card --lag $lag
		detach
		sum=$(dd if="$CARD" bs=1M count=60 status=none | cksum)
		before=$(wear_of '.totals.commits')
		for i in 0.01 0.02 0.05 0.1 0.2 0.4 0.8; do
			timeout -s KILL "$i" "$COWFS_BUILD/cowctl" measure "$CARD" >/dev/null || true
			[ "$(dd if="$CARD" bs=1M count=60 status=none | cksum)" = "$sum" ]
			cow check "$CARD" >"$T/check"
			grep -q '^verdict: good' "$T/check" || { cat "$T/check"; false; }
			[ "$(wear_of '"\(.totals.commits) \(.totals.table_losses)"')" = "$before 0" ]
			[ "$(wear_of '[.erase_blocks.written_blocks[]] | add * 4096')" = "$(wear_of .totals.written_bytes)" ]
			case $i in 0.01 | 0.1) ;; *) continue ;; esac
			same_files
			sum=$(dd if="$CARD" bs=1M count=60 status=none | cksum)
			before=$(wear_of '.totals.commits')
		done
		loop_down "$CARD"
	done
}

@test "measure: results that cannot be written, or would replace something else" {
	local image=$T/image sum
	random_file "$image" 40
	sum=$(image_sum "$image")
	mknod "$T/null" c 1 3
	fails 1 'is not a regular file' measure --write-area all --output "$T/null" "$image"
	fails 1 'is not a regular file' measure --write-area all --output "$T" "$image"
	fails 1 'is what is measured' measure --write-area all --output "$image" "$image"
	fails 1 'is what is measured' measure --write-area all --raw "$image" "$image"
	fails 1 'No such file' measure --write-area all --output "$T/none/out" "$image"
	fails 1 'No such file' measure --write-area all --raw "$T/none/raw" "$image"
	[ "$(image_sum "$image")" = "$sum" ]
	[ -c "$T/null" ]
	# all of it is shown, although a file got none of it
	run --separate-stderr timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all --raw /dev/full "$image"
	[ "$status" = 1 ]
	[[ $output == *"linear read"*model* && $stderr == *"/dev/full: No space left"* ]]
	# the name beside it is not known before
	echo precious >"$T/precious"
	ln -s precious "$T/out.new"
	timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all --output "$T/out" "$image" >/dev/null
	[ "$(cat "$T/precious")" = precious ]
	grep -q '^write_ns = ' "$T/out"
}

# What tests/measured.sh says of the profile in $T/shared after jq's FILTER
shared_after() {
	jq "$1" "$T/shared" >"$T/mine-2g.json"
	run "$BATS_TEST_DIRNAME/../measured.sh" "$T/mine-2g.json"
}

@test "measure: a profile to share names no card and no machine, and what does is refused" {
	local i filter says
	truncate -s 40M "$T/serial-12345678"
	timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all --share "$T/out" "$T/serial-12345678" >"$T/said"
	grep -q "^to share  *$T/out: " "$T/said"
	run ! grep -qE "serial|12345678|identity|$T|$(uname -n)" "$T/out"
	jq -e '.["unnamed-0g"] | has("plan") and (.source | test("^cowctl measure .*, area of 40 MiB$"))' "$T/out"
	"$COWFS_BUILD/cowfs-cardsim" show --profiles "$T/out" unnamed-0g | grep -q capacity
	jq '{"mine-2g": .["unnamed-0g"]} | .["mine-2g"].title = "Mine 2 GB"' "$T/out" >"$T/shared"
	shared_after .
	[ "$status" = 0 ]
	[ -z "$output" ]
	while IFS='|' read -r filter says; do
		shared_after "$filter"
		echo "$filter: $output"
		[ "$status" = 1 ]
		[[ $output == "$T/mine-2g.json: $says"* ]]
	done <<-'EOF'
	.other = .["mine-2g"]|is not one profile
	[]|is not one profile
	{"mine-4g": .["mine-2g"]}|must be called mine-4g.json
	.["mine-2g"].identity = "0353445355303247"|has the identity of a card
	.["mine-2g"].member = "lexar-300x-8g"|has keys that no measurement has: member
	.["mine-2g"].title = "PUT HERE WHAT IS PRINTED ON THE CARD"|has no title
	.["mine-2g"].title = "SU02G 0x4d2a114211703"|has what looks like a serial number: 0x4d2a114211703
	.["mine-2g"].models = ["ok", "20110407C2AF3DBE"]|has what looks like a serial number: 20110407C2AF3DBE
	.["mine-2g"].source = "my desk"|its source is not that of --share
	.["mine-2g"].plan = "yes"|has no plan
	.["mine-2g"].from.unit_kib = "printed: on the box"|unit_kib is not from a measurement
	.["mine-2g"].note = "of /home/me"|names a path
	.["mine-2g"].note = "a5cb1fc1-1f0c-4c1e-9d3f-0242ac120002"|has a UUID
	EOF
	echo '{' >"$T/mine-2g.json"
	run "$BATS_TEST_DIRNAME/../measured.sh" "$T/mine-2g.json"
	[ "$status" = 1 ]
	[[ $output == *"is not JSON"* ]]
	fails 1 'is what is measured' measure --write-area all --share "$T/serial-12345678" "$T/serial-12345678"
}

@test "measure: a file belongs to one measurement" {
	local line
	truncate -s 40M "$T/image"
	mkfifo "$T/raw"
	background timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all --raw "$T/raw" "$T/image" 2>"$T/e"
	exec 7<"$T/raw"
	read -r -t 300 -u 7 line # it waits until the rest is read
	fails 1 'is in use' measure --write-area all "$T/image"
	cat <&7 >/dev/null
	exec 7<&-
	wait "$BG" || grep 'became slower' "$T/e"
}

@test "measure: a file on a disk with sectors of 4 KiB" {
	truncate -s 120M "$T/disk"
	loop_up "$T/disk" --sector-size 4096
	mkfs.ext4 -q "$LOOP"
	mount "$LOOP" "$MNT"
	truncate -s 40M "$MNT/image"
	timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all "$MNT/image"
}

@test "measure: help" {
	run -0 cow measure --help
	[[ $output == *"usage: cowctl measure"*--write-area*--compare* ]]
	[ "$output" = "$(cow measure --tables all --help)" ]
}

@test "measure: a simulated card in real time, and a volume with its profile" {
	local seed
	fast_card 128M
	# a busy machine adds noise; then it says that it does not know, and that is all there is to see
	for seed in 1 2 3; do
		timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all --seed $seed --json --raw "$T/raw" --output "$T/out.conf" \
			"$C/card" >"$T/result" || { jq .error "$T/result"; continue; }
		! jq -e '.figures | .unit_determined and .open_units_determined and .confirmed' "$T/result" || break
		jq -c .figures.doubt "$T/result"
	done
	jq -e '.ok and .figures' "$T/result"
	jq -e '.figures | .unit_determined and .open_units_determined' "$T/result" ||
		{ jq -e '.figures.doubt | length > 0' "$T/result" && SIM stop "$C" && return; }
	[ "$(jq -r '.profile[] | "\(.unit_kib) \(.open_units)"' "$T/result")" = "1024 2" ]
	jq -e 'if .figures.confirmed then .profile[] | .open_random == 2 and .absorb == 1 and .copy_mb_s > 54 and .copy_mb_s < 66
		else .figures.doubt | length > 0 end' "$T/result"
	jq .profile "$T/result" >"$T/profile.json"
	answer=$(cow measure --convert "$T/profile.json")
	cmp - "$T/out.conf" <<<"$answer"
	[ "$(awk -F'\t' '$2 == "write" { n += $4 } END { print n }' "$T/raw")" = "$(jq .figures.written_bytes "$T/result")" ]
	SIM stop "$C"

	volume_attached ext4 60 100 -J size=4 -- -- --profile "$T/out.conf"
	[ "$(status_of .profile_plans)" = "$(jq '.[].plan' "$T/profile.json")" ]
	detach
	{ grep -v '^plan' "$T/out.conf"; echo 'plan = no'; } >"$T/not.conf"
	attach --profile "$T/not.conf"
	[ "$(status_of '"\(.profile_guessed) \(.profile_plans)"')" = "false false" ]
	answer=$(cow status -v vol)
	grep -q '^profile .*: estimates only$' <<<"$answer"
	detach
}

@test "measure: Ctrl-C, and a card that dies" {
	fast_card 128M
	run timeout --preserve-status -s INT 4 "$COWFS_BUILD/cowctl" measure --write-area all --output "$T/out.conf" "$C/card"
	[ "$status" = 1 ]
	[[ $output == *"only the area was written"* ]]
	[ ! -e "$T/out.conf" ]
	SIM fail "$C" write 200 forever
	run timeout 300 "$COWFS_BUILD/cowctl" measure --write-area all --output "$T/out.conf" "$C/card"
	[ "$status" = 1 ]
	[[ $output == *"a write at "*"There is no profile"* ]]
	[ ! -e "$T/out.conf" ]
}
