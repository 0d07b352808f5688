#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The recorder and the replayer of make bench-commit: what they note and count is right.
# turn: 3

load lib

PRICE() { timeout "$COW_LIMIT" "$COWFS_BUILD/tests/replay" --profile lexar-300x-8g "$@"; }

teardown() {
	umount -q "$T/rec" 2>/dev/null || true
	cow_teardown
}

# trace NAME VOLUME_BYTES LINE...: LINE is "w BLOCK BLOCKS", "f", "c" or "s", of blocks of 4 KiB, a second apart
trace() {
	python3 - "$@" <<-'END'
		import struct, sys
		name, volume, lines = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
		with open(name + ".trace", "wb") as f:
		    f.write(struct.pack("<8sIIQ40x", b"COWTRACE", 1, 32, volume))
		    for t, line in enumerate(lines):
		        op, *n = line.split()
		        off, size = [int(x) * 4096 for x in n] or (0, 0)
		        f.write(struct.pack("<QQQIBBH", t * 10**9, off, 2**64 - 1, size, "wf.cs".index(op) + 1, 0, 0))
	END
}

# apply NAME IMAGE: writes and discards of the trace, into the image
apply() {
	python3 - "$@" <<-'END'
		import struct, sys
		name, image = sys.argv[1:]
		data = open(name + ".data", "rb").read()
		ops = {}
		with open(name + ".trace", "rb") as f, open(image, "r+b") as g:
		    f.read(64)
		    while r := f.read(32):
		        t, off, at, size, op, flags, zero = struct.unpack("<QQQIBBH", r)
		        ops[op] = ops.get(op, 0) + 1
		        if op in (1, 3):
		            g.seek(off)
		            g.write(bytes(size) if at == 2**64 - 1 else data[at:at + size])
		print(*(ops.get(i, 0) for i in range(1, 6)))
	END
}

@test "recorder: every write, flush and discard, with what was in it" {
	local recorder before
	random_file "$T/image" 8
	mkdir "$T/rec"
	"$COWFS_BUILD/tests/recorder" "$T/image" "$T/rec" "$T/x" 3>&- &
	recorder=$!
	wait_for 10 mountpoint -q "$T/rec"
	loop_up "$T/rec/card" --direct-io=on
	# not yet
	dd if=/dev/urandom of="$LOOP" bs=64k count=1 oflag=direct status=none
	cp "$T/image" "$T/before"
	echo on >"$T/rec/mark"
	# one block each: the kernel may split larger ones
	dd if=/dev/urandom of="$LOOP" bs=4k count=16 seek=48 oflag=direct conv=fsync status=none
	dd if=/dev/zero of="$LOOP" bs=4k count=1 seek=77 oflag=direct status=none
	blkdiscard -o 1M -l 128K "$LOOP"
	echo clock 5000000000 >"$T/rec/mark"
	echo sync >"$T/rec/mark"
	echo commit >"$T/rec/mark"
	run -1 sh -c "echo nonsense >'$T/rec/mark'"
	echo off >"$T/rec/mark"
	dd if=/dev/urandom of="$LOOP" bs=4k count=1 seek=99 oflag=direct status=none
	cp "$T/image" "$T/after"
	loop_down "$LOOP"
	umount "$T/rec"
	wait $recorder
	before=$(sha256sum <"$T/before")
	run -0 apply "$T/x" "$T/before"
	[ "$output" = "17 1 1 1 1" ]
	[ "$(sha256sum <"$T/before")" != "$before" ]
	# all but what was written behind "off" (block 99)
	dd if="$T/before" of="$T/after" bs=4k count=1 skip=99 seek=99 conv=notrunc status=none
	cmp "$T/before" "$T/after"
	PRICE plain "$T/x" | jq -e '.writes == 17 and .flushes == 2 and .bytes == 17 * 4096'
}

@test "replay: what each system writes of the same trace" {
	local t=$T/x
	# rewritten blocks, 11 after 10, something far away and before
	trace "$t" $((64 << 20)) "w 10 1" "w 11 1" "w 5 1" "w 10 1" f "w 4000 2" "w 10 1" f c
	PRICE plain "$t" | jq -e '.writes == 6 and .bytes == 7 * 4096 and .risk_seconds == 0'
	PRICE --no-journal plain "$t" | jq -e '.risk_seconds == 6'
	PRICE order "$t" | jq -e '.writes == 3 and .bytes == 5 * 4096 and .flushes == 1 and .risk_seconds > 0 and .commits == 1'
	# 4000 and 4001; 5; 10 and 11: a flush each
	PRICE --chunk 4 dm-snapshot "$t" | jq -e '.writes == 3 and .bytes == 5 * 4096 and .flushes == 3'
	# chunks 0 and 250 whole
	PRICE --chunk 64 dm-snapshot "$t" | jq -e '.writes == 2 and .bytes == 2 * 65536 and .flushes == 2'
	# a chunk that was first touched before the one in front of it is not merged with it
	trace "$t" $((64 << 20)) "w 11 1" "w 10 1" f c
	PRICE --chunk 4 dm-snapshot "$t" | jq -e '.writes == 2 and .flushes == 2'
	PRICE order "$t" | jq -e '.writes == 1'
}

@test "replay: two commit points, merged at each or at the last" {
	local t=$T/x
	trace "$t" $((64 << 20)) "w 1 1" "w 2 1" c "w 2 1" "w 300 600" c
	PRICE order "$t" | jq -e '.commits == 1 and .bytes == 602 * 4096 and .writes == 4'
	PRICE --each order "$t" | jq -e '.commits == 2 and .bytes == 603 * 4096 and .flushes == 2'
	run -0 PRICE --each dirty "$t"
	[ "$(xargs <<<"$output")" = "4096 8192 commit 8192 4096 1228800 2457600 commit" ]
	# a trace without content is nothing for cowfs
	run -1 PRICE cowfs "$t"
}

@test "replay: bad input" {
	local t=$T/x
	trace "$t" $((1 << 20)) "w 1 1" c
	run -2 PRICE nonsense "$t"
	run -2 PRICE plain
	run -2 PRICE --chunk 0 dm-snapshot "$t"
	run -1 timeout 9 "$COWFS_BUILD/tests/replay" --profile nonsense plain "$t"
	run -1 PRICE plain "$T/nothing"
	# cut off before its last record
	truncate -s -32 "$t.trace"
	run -1 PRICE plain "$t"
	grep -q 'does not end with a commit point' <<<"$output"
	trace "$t" $((1 << 20)) "w 256 1" c
	run -1 PRICE plain "$t"
	truncate -s 20 "$t.trace"
	run -1 PRICE plain "$t"
}
