#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl wear: the ledger is what the device counted, survives power cuts, and is told to people and to programs.
# turn: 3

load lib

protect() { # [FS [MKFS-OPTION...]]
	local mkfs=(ext4 -J size=8)
	[ $# = 0 ] || mkfs=("$@")
	card_prepared "${mkfs[0]}" 300 340 "${mkfs[@]:1}"
	start=$(card_written)
	flushes=$(card_flushes)
	attach_mounted
}

card_flushes() {
	local stat
	read -ra stat <"/sys/class/block/$(basename "$CARD")/stat"
	echo "${stat[15]}"
}

change() { # FILE MIB, twice: the first is absorbed
	random_file "$MNT/$1" "$2"
	sync -f "$MNT"
	random_file "$MNT/$1" "$2"
	sync -f "$MNT"
}

wear_of() { # FILTER [N]
	answer=$(cow wear "${2:-vol}" --json)
	json_of "$1" <<<"$answer"
}

# With what a tool makes of it: health and projection.
outlook_of() { # FILTER [N]
	answer=$(cow wear "${2:-vol}" --outlook --json)
	json_of "$1" <<<"$answer"
}

# What the device has counted since the attach, and the sum over the erase blocks.
is_exact() { # N
	local n=${1:-vol} want=$(($(card_written) - start))
	[ "$(wear_of .totals.written_bytes "$n")" = "$want" ] || { echo "device: $want"; return 1; }
	[ "$(wear_of .erase_blocks.counted_bytes "$n")" = "$want" ]
	[ "$(wear_of .totals.flushes "$n")" = $(($(card_flushes) - flushes)) ]
	[ "$(wear_of '[.erase_blocks.written_blocks[]] | add * 4096' "$n")" = "$want" ]
	[ "$(wear_of '[.erase_blocks.visits[]] | add' "$n")" = "$(wear_of .totals.erase_block_visits "$n")" ]
}

@test "wear: the ledger is what the device counted, attached, detached, and over many attaches" {
	local i
	protect
	for i in 1 2 3; do
		change f$i 2
		cow commit
		is_exact
	done
	cow commit --checkpoint
	is_exact
	detach
	is_exact "$CARD"
	for i in 4 5; do
		attach_mounted
		change f$i 1
		cow commit
		detach
		is_exact "$CARD"
	done
	[ "$(wear_of '.totals | [.attaches, .commits_by_cause.manual, .table_losses] | @csv' "$CARD")" = 3,5,0 ]
	[ "$(wear_of '[.history.commits[].written_bytes] | add' "$CARD")" = "$(wear_of .totals.written_bytes "$CARD")" ]
	[ "$(wear_of '[.history.days[].absorbed_bytes] | add' "$CARD")" = "$(wear_of .totals.absorbed_bytes "$CARD")" ]
}

@test "wear: a power cut loses what was in flight only, and nothing goes back" {
	local before after
	protect
	change a 2
	cow commit
	before=$(wear_of '[.totals.written_bytes, .erase_blocks.counted_bytes, .totals.commits] | @csv')
	change b 2
	power_cut
	after=$(wear_of '[.totals.written_bytes, .erase_blocks.counted_bytes, .totals.commits] | @csv' "$CARD")
	[ "$before" = "$after" ]
	start=$(($(card_written) - $(cut -d, -f1 <<<"$before")))
	attach_mounted
	change c 1
	cow commit
	is_exact
}

# As if the last write of a session were cut: the guard is still there.
end_is_counted() { # BLOCK of the superblock
	change a 2
	cow commit
	dd if="$IMG" of="$T/guarded" bs=4096 skip="$1" count=1 status=none
	detach
	is_exact "$CARD"
	dd if="$T/guarded" of="$IMG" bs=4096 seek="$1" count=1 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	start=$((start + 4096)) flushes=$((flushes + 1)) # it was lost
	is_exact "$CARD"
	attach
	is_exact
	detach
	is_exact "$CARD"
}

@test "wear: the end of a session, behind its last record, is counted once, also after a power cut" {
	protect
	end_is_counted 0
	# or block 0 is garbage
	dd if=/dev/urandom of="$IMG" bs=4096 count=1 conv=notrunc status=none
	blockdev --flushbufs "$CARD"
	is_exact "$CARD"
	attach_mounted
	is_exact
	change b 1
	cow commit
	is_exact
	detach
	is_exact "$CARD"
	attach
	detach
	is_exact "$CARD"
	[ "$(wear_of '[.history.commits[].written_bytes] | add' "$CARD")" = "$(wear_of .totals.written_bytes "$CARD")" ]
}

@test "wear: the end of a session is counted on btrfs, whose superblock is elsewhere" {
	protect btrfs
	end_is_counted 16
}

# The schema that is shipped holds for the document on standard input.
jsonschema_is_kept() {
	python3 -c 'import json, jsonschema, sys; jsonschema.validate(json.load(sys.stdin), json.load(open(sys.argv[1])))' \
		"$TOP/tools/wear/wear/wear.schema.json"
}

@test "wear: the documented fields, and a text for 80 columns" {
	protect
	change a 2
	cow commit
	run -0 --separate-stderr cow wear --json
	jq -e '.ok and .schema == 1 and .attached and .name == "vol" and .have_table and .erase_blocks.units == 85 and
		(.erase_blocks.written_blocks | length) == 85 and (.erase_blocks.visits | length) == 85 and
		.erase_blocks.erase_block_source == "guessed" and
		(.erase_blocks | .hottest[0].visits == (.visits | max) and (.hottest | map(.visits) | . == (sort | reverse))) and
		(.history.commits | length) == 1 and .history.commits[0].cause == "manual" and
		(.history.days | length) == 1 and .ratios.absorption > 1.5 and .ratios.cowfs_amplification > 1 and
		.truth.have_kernel_counters and .truth.foreign_bytes == 0 and
		.truth.cowfs_written_bytes == .truth.kernel_written_bytes and
		.totals.attached_seconds > .totals.writable_seconds' <<<"$output"
	jsonschema_is_kept <<<"$output"
	# every name in backquotes of the tables of the manual is there, and the reverse
	keys=$(jq -r '[paths | map(strings) | .[]] | unique | .[]' <<<"$output")
	for k in $keys; do
		grep -q "\`[a-z_.]*$k\(\[\]\)*\`\|$k" "$BATS_TEST_DIRNAME/../../docs/WEAR.md" || { echo "$k is not documented"; return 1; }
	done
	run -0 --separate-stderr cow wear
	[ "$(wc -L <<<"$output")" -le 80 ]
	[ "$(wc -l <<<"$output")" -le 24 ]
	[[ $output == *"Programs wrote"*"times less"*"No foreign writes were seen"* && $output == *"bytes on the card per byte of changes"* ]]
	run -0 --separate-stderr cow wear --outlook
	[ "$(wc -L <<<"$output")" -le 80 ]
	[[ $output == *"Projected life: not enough data: 0 whole days"*"life left"* ]]
	run -0 --separate-stderr cow wear --outlook --json
	jsonschema_is_kept <<<"$output"
	jq 'del(.totals.written_bytes)' <<<"$output" | run ! jsonschema_is_kept
	jq '.erase_blocks.visits[0] = "x"' <<<"$output" | run ! jsonschema_is_kept
	# without the package that has them, all else works
	COWFS_LIBEXEC=$T/none fails 1 'wear-outlook: No such file or directory: it is in the package cowfs-tools' wear --outlook
	COWFS_LIBEXEC=$T/none fails 1 'cowfs-tools' wear --html "$T/page.html"
	[ ! -e "$T/page.html" ]
	COWFS_LIBEXEC=$T/none fails 1 'cowfs-tools' wear --prometheus -
	COWFS_LIBEXEC=$T/none fails 1 'measure: No such file or directory: it is in the package cowfs-tools' measure "$CARD" --json
	truncate -s 100M "$T/new"
	COWFS_LIBEXEC=$T/none fails 1 'clone-disk: No such file or directory: it is in the package cowfs-tools' clone "$CARD" "$T/new" --disk --yes
	mkdir "$T/no-python"
	sed '1s|/usr|/none|' "$COWFS_BUILD/libexec/cowctl-clone-disk" >"$T/no-python/cowctl-clone-disk"
	sed '1s|/usr|/none|' "$COWFS_BUILD/libexec/cowctl-wear-html" >"$T/no-python/cowctl-wear-html"
	chmod 755 "$T"/no-python/*
	COWFS_LIBEXEC=$T/no-python fails 1 'clone-disk: it needs /none/bin/python3' clone "$CARD" "$T/new" --disk --yes
	COWFS_LIBEXEC=$T/no-python fails 1 'wear-html: it needs /none/bin/python3' wear --html "$T/page.html"
	COWFS_LIBEXEC=$T/none cow wear | grep -q 'Programs wrote'
	COWFS_LIBEXEC=$T/none cow --help | run ! grep 'Installed tools'
	answer=$(cow --help)
	grep -q '^Installed tools:.* measure.* wear-html' <<<"$answer"
	# without what they need, they name it
	mkdir "$T/bin" "$T/no"
	for f in sh env cat mktemp dirname readlink rm; do ln -s "$(command -v "$f")" "$T/bin/"; done
	for f in --outlook --prometheus=-; do
		run -1 env PATH="$T/bin" "$COWFS_BUILD/cowctl" wear $f
		[[ $output == *"jq: not found: install the package jq"* ]]
	done
	echo 'raise ImportError("No module named jinja2")' >"$T/no/jinja2.py"
	# a program in Python has its modules from the system only, and none of the caller's
	PYTHONPATH=$T/no cow wear --html "$T/page.html"
	rm "$T/page.html"
	for f in "$COWFS_BUILD"/libexec/*; do ln -s "$f" "$T/no/"; done
	sed '1s| -I$| -IS|' "$COWFS_BUILD/libexec/cowctl-wear-html" >"$T/html" # without the packages
	chmod 755 "$T/html"
	mv "$T/html" "$T/no/cowctl-wear-html"
	COWFS_LIBEXEC=$T/no fails 1 'wear-html: No module named .jinja2.: install the package python3-jinja2' wear --html "$T/page.html"
	# a program that is put there is a command; one that fails changes no file
	mkdir "$T/tools"
	printf '#!/bin/sh\necho "my own: $*"\n' >"$T/tools/cowctl-mine"
	printf '#!/bin/sh\ncat >/dev/null\necho half\necho broken >&2\nexit 7\n' >"$T/tools/cowctl-wear-html"
	chmod +x "$T/tools"/*
	[ "$(COWFS_LIBEXEC=$T/tools cow mine a --json)" = "my own: a --json" ]
	COWFS_LIBEXEC=$T/tools cow --help | grep -q '^Installed tools: mine wear-html$'
	echo old >"$T/page.html"
	COWFS_LIBEXEC=$T/tools fails 1 'wear-html: .*exit 7' wear --html "$T/page.html"
	[ "$(cat "$T/page.html")" = old ]
}

@test "wear: bad input" {
	card_make none 0 20
	fails 4 'no volume|not running' wear nobody
	fails 1 'no cowfs log' wear "$CARD"
	fails 1 'o such file' wear /dev/nosuchthing
	fails 2 'unknown option|usage' wear --nonsense
	fails 2 'usage' wear a b
	fails 2 'flash needs --outlook' wear --flash mlc
	fails 2 'cmd56 needs --outlook' wear --cmd56
	fails 2 'mutually exclusive' wear --outlook --prometheus -
}

# ---- health: a sysfs and a smartctl of the test ----

# A disk's folder in a false sysfs, for the device CARD: fake_disk mmc|scsi
fake_disk() {
	local id
	id=$(lsblk -dno MAJ:MIN "$CARD" | tr -d ' ')
	SYS=$T/sys/dev/block/$id
	mkdir -p "$SYS/device" "$T/sys/bus/$1"
	ln -sfn "$T/sys/bus/$1" "$SYS/device/subsystem"
	echo "DEVNAME=fakedisk" >"$SYS/uevent"
	echo 62521344 >"$SYS/size"
	export COWFS_SYSFS=$T/sys
}

offline_card() {
	card_make none 0 100
	mkfs.ext4 -q "$CARD" 60M
	cow prepare "$CARD"
}

@test "wear: health of an eMMC by sysfs" {
	offline_card
	fake_disk mmc
	echo MMC >"$SYS/device/type"
	echo "DF4032" >"$SYS/device/name"
	echo "0x02 0x0b" >"$SYS/device/life_time"
	echo "0x03" >"$SYS/device/pre_eol_info"
	[ "$(outlook_of '.health | [.kind, .model, .source, .pre_eol, .disk_bytes, .unknown_because] | @csv' "$CARD")" = \
		'"emmc","DF4032","sysfs: life_time, pre_eol_info","urgent",32010928128,""' ]
	[ "$(outlook_of '[.health.life_used[] | .part, .low, .high, .raw] | @csv' "$CARD")" = '"a",0.1,0.2,"0x02","b",1,2,"0x0b"' ]
	[ "$(outlook_of '.projection.factors.life_left | [.low, .high, .basis] | @csv' "$CARD")" = '0,0,"measured"' ]
	run -0 cow wear "$CARD" --outlook
	[[ $output == *"life used"*"10 to 20 %"*"more than 100 %"*"urgent"* ]]
	# without a tool: the number of sysfs, and no interpretation
	[ "$(wear_of '.disk | [.kind, .model, .device, .bytes, .life_time, .life_used_percent, .pre_eol_info] | @csv' "$CARD")" = \
		'"emmc","DF4032","/dev/fakedisk",32010928128,"0x02 0x0b",110,"0x03"' ]
	run -0 cow wear "$CARD"
	[[ $output == *"its rated life"*"USED UP"* ]]
	echo "0x02 0x01" >"$SYS/device/life_time"
	run -0 cow wear "$CARD"
	[[ $output == *"its rated life"*"up to 20 % used"* ]]
	# a kernel or a card that tells nothing, or nonsense
	for text in "0x00 0x00" "" "nonsense" "0x02" "0xff 0xfffffffff"; do
		echo "$text" >"$SYS/device/life_time"
		echo "0x00" >"$SYS/device/pre_eol_info"
		[ "$(outlook_of '.health | [.source, (.life_used | length), .pre_eol, (.unknown_because != "")] | @csv' "$CARD")" = \
			'"",0,"unknown",true' ]
	done
	echo SD >"$SYS/device/type"
	[[ $(outlook_of .health.unknown_because "$CARD") == *--cmd56* ]]
	run -0 cow wear "$CARD" --outlook --cmd56 --json
	jq -e '.health.kind == "sd" and .health.source == "" and (.health.unknown_because | test("CMD56"))' <<<"$output"
}

@test "wear: health of a CF card by smartctl, or why not" {
	offline_card
	fake_disk scsi
	export COWFS_SMARTCTL=$T/smartctl
	[[ $(outlook_of .health.unknown_because "$CARD") == *"not installed"* ]]
	cat >"$T/smartctl" <<-EOF
		#!/bin/sh
		echo "\$*" >"$T/args"
		cat "$T/smart.json"
		exit 4
	EOF
	chmod +x "$T/smartctl"
	cat >"$T/smart.json" <<-'EOF'
		{"model_name":"TS32GCF220I","smart_status":{"passed":false},"ata_smart_attributes":{"table":[
		{"id":169,"name":"Remaining_Lifetime_Perc","value":100,"raw":{"value":90}},
		{"id":241,"name":"Host_Writes_32MiB","value":100,"raw":{"value":1000}},
		{"id":245,"name":"TLC_Writes_32MiB","value":100,"raw":{"value":1500}}]}}
	EOF
	[ "$(outlook_of '[.health.source, .health.passed, .ratios.device_amplification.low, .ratios.device_amplification.basis] | @csv' \
		"$CARD")" = '"smartctl",false,1.5,"measured"' ]
	[ "$(cat "$T/args")" = "--json -a /dev/fakedisk" ]
	run -0 cow wear "$CARD" --outlook
	[[ $output == *"life used"*"9 to 10 %"*"FAILING"* ]]
	for text in "" "nonsense" "[]" "{}"; do
		echo "$text" >"$T/smart.json"
		[[ $(outlook_of .health.unknown_because "$CARD") == "smartctl finds no health data on this device" ]]
	done
	# one that floods is cut off
	printf '#!/bin/sh\nyes "{" | head -c 5000000\n' >"$T/smartctl"
	[[ $(outlook_of .health.unknown_because "$CARD") == "smartctl finds no health data on this device" ]]
	# one that has said all and does not end is not waited for
	printf '#!/bin/sh\ncat "%s"\necho $$ >"%s"\nexec >&- 2>&- 3>&-\nexec sleep 1000\n' "$T/smart.json" "$T/smart.pid" >"$T/smartctl"
	echo '{"smart_status":{"passed":true}}' >"$T/smart.json"
	[ "$(outlook_of .health.passed "$CARD")" = true ]
	kill "$(cat "$T/smart.pid")" # which runs
}

# ---- metrics ----

@test "metrics: strict text format, the figures of wear, whole files" {
	local n
	answer=$(cow wear --prometheus -)
	"$BATS_TEST_DIRNAME/../tools/promcheck.py" <<<"$answer"
	[ "$(cow wear --prometheus - | grep -c '^cowfs_volumes 0$\|^cowfs_root_unprotected 0$')" = 2 ]
	mkdir -p "$COWFS_RUNDIR"
	echo bypassed >"$COWFS_RUNDIR/root.state"
	[ "$(cow wear --prometheus - | grep -c '^cowfs_root_unprotected 1$')" = 1 ]
	protect
	change a 2
	cow commit
	cow wear --prometheus - >"$T/m"
	"$BATS_TEST_DIRNAME/../tools/promcheck.py" <"$T/m"
	is_sample() { grep -qxF "$1" "$T/m" || { echo "no $1 in"; cat "$T/m"; return 1; }; }
	is_sample "cowfs_card_written_bytes_total{volume=\"vol\"} $(wear_of .totals.written_bytes)"
	is_sample "cowfs_commits_total{volume=\"vol\",cause=\"manual\"} 1"
	is_sample "cowfs_skipped_bytes_total{volume=\"vol\",reason=\"free\"} $(($(wear_of .totals.skipped_free_blocks) * 4096))"
	is_sample "cowfs_degraded{volume=\"vol\"} 0"
	is_sample "cowfs_daemon_replacements_total{volume=\"vol\"} 0"
	is_sample "cowfs_card_away_seconds{volume=\"vol\"} 0"
	is_sample "cowfs_card_aways_total{volume=\"vol\"} 0"
	is_sample "cowfs_on_trial{volume=\"vol\"} 0"
	is_sample "cowfs_volumes 1"
	for n in $(sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' "$T/m"); do
		grep -q "$n" "$BATS_TEST_DIRNAME/../../docs/WEAR.md" || { echo "$n is not documented"; return 1; }
	done
	for n in $(sed -n '/^## Metrics/,/^## /p' "$BATS_TEST_DIRNAME/../../docs/WEAR.md" | grep -o '`cowfs_[a-z_]*' | tr -d '`'); do
		grep -q "^# TYPE $n " "$T/m" || { echo "$n is documented and not there"; return 1; }
	done
	# a file: replaced as a whole, readable for all, nothing left beside it
	mkdir "$T/out"
	echo old >"$T/out/cowfs.prom"
	cow wear --prometheus "$T/out/cowfs.prom"
	"$BATS_TEST_DIRNAME/../tools/promcheck.py" <"$T/out/cowfs.prom"
	[ "$(ls "$T/out")" = cowfs.prom ]
	[ "$(stat -c %a "$T/out/cowfs.prom")" = 644 ]
	answer=$(cow wear --prometheus - vol --flash mlc)
	"$BATS_TEST_DIRNAME/../tools/promcheck.py" <<<"$answer"
	run -1 cow wear --prometheus "$T/nowhere/file"
	[[ $output == *"cannot be written"* ]]
	run -4 cow wear --prometheus - nobody
	run -2 cow wear --prometheus - --json
	run -2 cow wear --prometheus - --flash plc
}

@test "metrics: the checker finds what is wrong" {
	local text
	for text in 'a 1' '# TYPE a gauge\na 1' '# HELP a X.\n# TYPE a counter\na 1' '# HELP a_total X.\n# TYPE a_total gauge\na_total 1' \
		'# HELP a X.\n# TYPE a gauge\na 1\na 1' '# HELP a X.\n# TYPE a gauge\na{b="c} 1' '# HELP a X.\n# TYPE a gauge\na x' \
		'# HELP a_ms X.\n# TYPE a_ms gauge\na_ms 1' '# HELP a X.\n# TYPE a gauge\na{b="c",} 1' ''; do
		printf '%b\n' "$text" >"$T/m"
		run -1 "$BATS_TEST_DIRNAME/../tools/promcheck.py" <"$T/m"
	done
}

# ---- others who write ----

@test "wear: foreign writes raise an alarm with amount and time, and stay in the ledger" {
	local since
	protect
	change a 2
	cow commit
	sleep 1.2
	[ "$(wear_of .truth.foreign_bytes)" = 0 ]
	since=$(wear_of .truth.agreed_unix_seconds)
	blockdev --setrw "$CARD"
	dd if=/dev/urandom of="$CARD" bs=4096 seek=$((339 * 256)) count=3 oflag=direct conv=notrunc status=none
	run -3 cow status
	[[ $output == *"foreign writes to the card: 12288 bytes since 20"* ]]
	run -3 cow status --json
	jq -e --argjson s "$since" '.card.foreign_bytes == 12288 and .card.foreign_since_unix_seconds >= $s and
		.card.foreign_noticed_unix_seconds >= .card.foreign_since_unix_seconds' <<<"$output"
	run -0 cow wear
	[[ $output == *ATTENTION*"FOREIGN WRITES"*"12.0 KiB"* ]]
	answer=$(cow wear --prometheus -)
	grep -qx 'cowfs_degraded{volume="vol"} 1' <<<"$answer"
	change b 1
	cow commit || true
	[ "$(wear_of .totals.foreign_bytes)" = 12288 ]
	power_cut
	[ "$(wear_of .totals.foreign_bytes "$CARD")" = 12288 ]
	[ "$(wear_of .totals.foreign_first_unix_seconds "$CARD")" -ge "$since" ]
}

@test "wear: a log device has erase blocks of its own" {
	local card log img want
	card_make ext4 60 60 -J size=4
	card=$CARD img=$IMG
	IMG=$T/log.img
	truncate -s 64M "$IMG"
	loop_up "$IMG"
	log=$LOOP
	CARD=$card IMG=$img
	cow prepare "$CARD" --log "$log"
	start=$(($(card_written "$CARD") + $(card_written "$log")))
	attach_mounted --log "$log"
	change a 2
	cow commit
	want=$(($(card_written "$CARD") + $(card_written "$log") - start))
	[ "$(wear_of '[.totals.written_bytes, .erase_blocks.counted_bytes, .erase_blocks.units, .erase_blocks.log_device_units] | @csv')" = \
		"$want,$want,15,16" ]
	[ "$(wear_of '[.erase_blocks.written_blocks[:15][]] | add > 400')" = true ]
	[ "$(wear_of '[.erase_blocks.written_blocks[15:][]] | add > 10')" = true ]
	[ "$(wear_of .erase_blocks.hottest[0].log_device)" = true ]
	detach
	want=$(($(card_written "$CARD") + $(card_written "$log") - start))
	[ "$(cow wear "$CARD" --log "$log" --json | jq .erase_blocks.counted_bytes)" = "$want" ]
	loop_down "$log"
}

@test "metrics: of two volumes, each family once" {
	local first
	protect
	change a 1
	cow commit
	first=$CARD
	IMG=$T/second.img
	volume_attached ext4 60 100 -J size=4 -- -- --name other
	cow wear --prometheus - >"$T/m"
	"$BATS_TEST_DIRNAME/../tools/promcheck.py" <"$T/m"
	grep -qx 'cowfs_volumes 2' "$T/m"
	[ "$(grep -c '^cowfs_attached_seconds_total{' "$T/m")" = 2 ]
	grep -q "^cowfs_volume_info{volume=\"other\",device=\"$CARD\"" "$T/m"
	[ "$(cow wear --prometheus - other | grep -c 'volume="vol"')" = 0 ]
	cow detach other
	CARD=$first
}

@test "wear: asked while commits come, every answer is of one moment" {
	local i
	protect
	cat >"$T/busy" <<-EOF
		while [ ! -e "$T/stop" ]; do
			dd if=/dev/urandom of="$MNT/f" bs=64k count=7 conv=fsync status=none
			"$COWFS_BUILD/cowctl" commit vol >/dev/null || exit 1
		done
	EOF
	background sh "$T/busy"
	for i in $(seq 30); do
		"$COWFS_BUILD/cowctl" wear vol --json >"$T/w" || { grep -q 'too frequent' "$T/w" && continue; return 1; }
		jq -e '([.erase_blocks.written_blocks[]] | add * 4096) == .totals.written_bytes and
			([.erase_blocks.visits[]] | add) == .totals.erase_block_visits and
			([.history.commits[].number] | . == sort) and ((.history.commits[-1].number // 0) == .totals.commits)' "$T/w" >/dev/null || { echo "answer $i"; return 1; }
	done
	wait_for 30 eval '[ "$(wear_of .totals.commits)" -gt 5 ]'
	: >"$T/stop"
	wait "$BG"
	is_exact
}

@test "wear: of a card whose log is damaged, as far as it can be read" {
	protect
	change a 2
	cow commit
	power_cut
	[ "$(wear_of .log_state "$CARD")" = live ]
	blockdev --setrw "$CARD"
	dd if=/dev/zero of="$CARD" bs=1M seek=304 count=32 oflag=direct conv=notrunc status=none
	[ "$(wear_of '[.log_state, .totals.written_bytes] | @csv' "$CARD")" = '"broken",0' ]
	run -0 cow wear "$CARD"
	[[ $output == *"ATTENTION: the log is damaged"* ]]
}
