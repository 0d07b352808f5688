#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl measure --tables: rows of a tenth of a second. What they show is compared with a card only for the simulated one.
# seconds: 40
# turn: 3

load lib

setup() {
	cow_setup
	export COWFS_BENCH_ROW_MS=100
	FS=$T/fs
	mkdir "$FS" "$T/card"
}

teardown() {
	[ ! -e "$T/upper" ] || losetup -d "$(cat "$T/upper")"
	sim_end "$T/card"
	cow_teardown
}

# a loop device of $1 MiB of data
device() {
	IMG=$T/dev.img
	random_file "$IMG" "$1"
	card_loop
}

used() { df --output=used -B1 "$FS" | tail -1 | tr -d " "; }
nothing_used() { [ "$(used)" = 0 ]; }

# all figures of the document $1 at the jq path $2 are there and positive
has_figures() { jq -e "[$2] | length > 0 and all(.requests_per_second > 0 and .requests > 0 and .longest_ns > 0)" "$1" >/dev/null; }

# Starts bench with these arguments and waits for its fio: sets PID and FIO.
start() {
	# a background job of a shell ignores SIGINT
	env --default-signal=INT "$COWFS_BUILD/cowctl" measure --tables all "$@" >"$T/out" 2>&1 3>&- &
	PID=$!
	wait_for 10 has_fio
}

has_fio() { FIO=$(pgrep -P "$PID" -f output-format); } # not fio --version
fio_gone() { [ ! -e "/proc/$FIO" ]; }

@test "bench: a device is only read" {
	local before sum
	device 12
	before=$(card_written) sum=$(image_sum)
	cow measure "$CARD" --tables linear,mix,iozone --json >"$T/a.json"
	[ "$(card_written)" = "$before" ]
	[ "$(image_sum)" = "$sum" ]
	jq -e '.ok and .command == "bench" and .written_bytes == 0 and .read_bytes > 0 and .writes == false and
		.test_bytes == 6 * 1048576 and .test_offset_bytes + .test_bytes <= .device_bytes' "$T/a.json"
	jq -e '[.linear[].block_bytes] == [4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576]' "$T/a.json"
	jq -e '[.linear[] | .write] | all(. == null)' "$T/a.json"
	jq -e '[.mix[].write_percent] == [0] and .iozone.random_write == null' "$T/a.json"
	jq -e '.not_measured[] | select(.table == "writes") | .why | test("--write-area")' "$T/a.json"
	has_figures "$T/a.json" '.linear[].read, .mix[].both, .iozone.random_read'
}

@test "bench: --write-area writes there and nowhere else; --html, --compare" {
	local head tail area
	device 12
	head=$(head -c 4M "$IMG" | md5sum) tail=$(tail -c 4M "$IMG" | md5sum) area=$(tail -c 8M "$IMG" | head -c 4M | md5sum)
	cow measure "$CARD" --write-area 4M+4M --tables mix --json >"$T/a.json"
	[ "$(head -c 4M "$IMG" | md5sum)" = "$head" ]
	[ "$(tail -c 4M "$IMG" | md5sum)" = "$tail" ]
	[ "$(tail -c 8M "$IMG" | head -c 4M | md5sum)" != "$area" ]
	jq -e '.writes and .written_bytes > 0 and .test_offset_bytes == 4194304 and .test_bytes == 4194304' "$T/a.json"
	jq -e '[.mix[].write_percent] == [0, 5, 10, 20, 50, 100]' "$T/a.json"
	jq -e '.mix[0] | (.to_15k_disk * 204 / .both.requests_per_second - 1) | fabs < 0.001' "$T/a.json"
	has_figures "$T/a.json" '.mix[].both'
	# the former result beside a new one, as text and as a page
	jq '.mix[2].both.requests_per_second = 4321' "$T/a.json" >"$T/b.json"
	run -0 --separate-stderr cow measure "$CARD" --write-area all --size 4M --tables mix --compare "$T/b.json" --html "$T/page.html"
	grep -q '^before: ' <<<"$output"
	grep -qE '^  10 .* 4321$' <<<"$output"
	[ "$(head -1 "$T/page.html")" = '<!DOCTYPE html>' ]
	[ "$(tail -1 "$T/page.html")" = '</html>' ]
	grep -q '<th scope="row">10</th>.*<td>4321</td>' "$T/page.html"
	grep -q 'Kingston Ultimate 266x' "$T/page.html"
	[ "$(grep -o '<circle' "$T/page.html" | wc -l)" = 12 ]
	run ! grep -Eq '<(link|img|script|iframe|object|base)|(src|href)=|@import|url\(' "$T/page.html"
	[ -z "$(ls "$T"/page.html.* 2>/dev/null)" ]
}

@test "bench: an area that is no multiple of the requests is not left" {
	local head tail
	device 12
	head=$(head -c 5M "$IMG" | md5sum) tail=$(tail -c +$((6 * 1048576 + 4097)) "$IMG" | md5sum)
	cow measure "$CARD" --write-area 5M+1028K --tables linear,random,iozone --json >"$T/a.json"
	[ "$(head -c 5M "$IMG" | md5sum)" = "$head" ]
	[ "$(tail -c +$((6 * 1048576 + 4097)) "$IMG" | md5sum)" = "$tail" ]
	has_figures "$T/a.json" '.linear[].write'
}

@test "bench: a device below a loop device, and a log of its own, are not written" {
	local sum upper log
	device 48
	upper=$(losetup -f --show -o 4M "$CARD")
	echo "$upper" >"$T/upper"
	sum=$(image_sum)
	fails 1 "is in use by ${upper#/dev/}" measure --write-area all --tables mix "$CARD"
	answer=$(cow measure "$CARD" --tables iozone --json)
	jq -e .ok <<<"$answer"
	loop_down "$upper"
	rm "$T/upper"
	log=$CARD IMG=
	card_prepared ext4 60 60 -- --log "$log"
	sum=$(md5sum <"$log")
	fails 1 'holds a log of cowfs; --force' measure --tables all --write-area all "$log"
	[ "$(md5sum <"$log")" = "$sum" ]
}

@test "bench: a comparison can be compared again; what is too large is refused" {
	device 4
	cow measure "$CARD" --tables iozone --json >"$T/a.json"
	cow measure "$CARD" --tables iozone --json --compare "$T/a.json" >"$T/b.json"
	answer=$(cow measure "$CARD" --tables iozone --json --compare "$T/b.json")
	jq -e '.before | .ok and .before == null' <<<"$answer"
	fails 1 'is not what' measure --tables all --compare /dev/zero "$CARD"
}

@test "bench: a directory gets one file, which has no name" {
	local before
	card_make ext4 120 120
	mount "$CARD" "$FS"
	before=$(used)
	cow measure "$FS" --size 4M --tables iozone,fragments --json >"$T/a.json"
	jq -e '.kind == "directory" and .fs_type == "ext4" and .written_bytes >= 4194304' "$T/a.json"
	has_figures "$T/a.json" '.iozone | .write, .rewrite, .random_read, .random_write'
	jq -e '[.fragments[].state] == ["blank", "fragmented", "defragmented"]' "$T/a.json"
	jq -e '.fragments | .[1].extents > 500 and .[0].extents < 20 and .[2].extents < 40' "$T/a.json"
	has_figures "$T/a.json" '.fragments[].rows[] | .write, .read'
	[ -z "$(find "$FS" -type f)" ]
	sync -f "$FS"
	[ "$(used)" = "$before" ]
	umount "$FS"
	fsck ext4 "$CARD"
}

@test "bench: what is refused, before anything is written" {
	local sum
	card_make ext4 60 60
	sum=$(image_sum)
	mkdir "$T/bin"
	ln -s "$(python3 -c "import sys; print(sys.executable)")" "$T/bin/python3"
	run -1 --separate-stderr env PATH=/nowhere "$COWFS_BUILD/cowctl" measure --tables all "$CARD" --json
	jq -e '.ok == false and .error == "python3: No such file or directory: install the package python3"' <<<"$output"
	run -1 --separate-stderr env PATH="$T/bin" "$COWFS_BUILD/cowctl" measure --tables all "$CARD" --json
	jq -e '.ok == false and .code == "ENOENT" and .error == "fio is not installed: install the package fio"' <<<"$output"
	fails 2 'usage: cowctl measure --tables' measure --tables all
	fails 2 'unknown option --frob' measure --tables all --frob "$CARD"
	fails 2 'there is no table mixx' measure --tables linear,mixx "$CARD"
	fails 2 'is not START\+LENGTH' measure --tables all --write-area 8M "$CARD"
	fails 2 'is beyond the end of the device' measure --tables all --write-area 40M+40M "$CARD"
	fails 2 'neither a block device nor a directory' measure --tables all "$IMG"
	fails 1 'no device has UUID=0000-0000' measure --tables all UUID=0000-0000
	fails 1 'No such file' measure --tables all "$T/missing"
	fails 1 'is not what .cowctl measure --tables --json. prints' measure --tables all --compare "$IMG" "$CARD"
	fails 1 'page/x cannot be written' measure --tables all --html "$T/page/x" "$CARD"
	fails 1 'holds a file system \(ext4\); --force overwrites a part of it' measure --tables all --write-area all "$CARD"
	fails 1 'not a terminal to confirm this; --yes' measure --tables all --write-area all --force "$CARD" --json </dev/null
	mount "$CARD" "$FS"
	fails 1 "is mounted on $FS" measure --tables all --write-area all --force --yes "$CARD"
	fails 1 'free, [0-9]+ MiB are needed; --size' measure --tables all "$FS"
	fails 2 'is for devices' measure --tables all --write-area all "$FS"
	mount -o remount,ro "$FS"
	fails 1 'is mounted read-only' measure --tables all --size 1M "$FS"
	umount "$FS"
	[ "$(image_sum)" = "$sum" ] || fsck ext4
	wipefs -qa "$CARD"
	blockdev --setro "$CARD"
	fails 1 'is read-only' measure --tables all --write-area all "$CARD"
	blockdev --setrw "$CARD"
}

@test "bench: a directory of a volume is refused, its card is read" {
	volume_mounted ext4 60 100
	fails 1 'lies on volume vol, where writes stay in RAM' measure --tables all "$MNT" --size 1M
	answer=$(cow measure "$CARD" --tables iozone --json)
	jq -e '.iozone.random_read.requests > 0' <<<"$answer"
	fails 1 'is in use' measure --tables all --write-area all --force --yes "$CARD"
	umount_volume
	fails 1 'belongs to volume vol' measure --tables all --write-area all --force --yes "$DEV"
	detach
}

@test "bench: Ctrl-C and a killed bench leave no file and no fio" {
	local sig card code
	mount -t tmpfs -o size=64m none "$FS"
	for sig in INT KILL; do
		start "$FS" --size 8M --tables linear
		kill -$sig "$PID"
		wait "$PID" && return 1
		wait_for 10 fio_gone
		wait_for 10 nothing_used
		[ -z "$(ls -A "$FS")" ]
	done
	# a row of six seconds: it is not waited for
	card=$(timeout "$COW_LIMIT" "$COWFS_BUILD/cowfs-cardsim" --loop --real-time kingston-24x-1g 64M "$T/card")
	export COWFS_BENCH_ROW_MS=60000
	for sig in TERM KILL; do
		start "$card" --tables linear
		kill -$sig "$PID"
		wait_for 3 fio_gone
		code=0
		wait "$PID" || code=$?
		[ "$sig" = KILL ] || { [ $code = 143 ]; grep -q interrupted "$T/out"; }
	done
}

@test "bench: what fio prints, tables and pages of odd documents" {
	run -0 "$BATS_TEST_DIRNAME/../report/tables.py"
}
