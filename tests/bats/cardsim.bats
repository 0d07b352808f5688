#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowfs-cardsim: the simulated card from outside.
# turn: 3

load lib

SIM() { timeout "$COW_LIMIT" "$COWFS_BUILD/cowfs-cardsim" "$@"; }

setup() {
	cow_setup
	C=$T/card
	mkdir "$C"
}

# A card that a failed test has left: its mount is cleared by the library, its loop devices as well.
teardown() {
	umount -q "$MNT" 2>/dev/null || true
	sim_end "$C"
	cow_teardown
}

# $1 field of stat --json
field() { answer=$(SIM stat --json "$C") && jq -er ".$1" <<<"$answer"; }

# a block of 4 KiB of the letter $2 at block $1
put() { head -c 4096 /dev/zero | tr '\0' "$2" | dd of="$C/card" bs=4096 seek="$1" conv="notrunc${3:+,$3}" status=none; }
letter() { dd if="$C/card" bs=4096 skip="$1" count=1 status=none | tr -d '\0' | head -c 1; }

@test "a folder that is not empty, or has a card, is refused" {
	SIM x-slow-4g 8M "$C"
	run -1 SIM x-slow-4g 8M "$C"
	[[ $output == *"$C: is not empty (a running card? cowfs-cardsim stop $C)" ]]
	[ "$(grep -cF " $C " /proc/self/mountinfo)" = 1 ]
	SIM stop "$C"
	touch "$C/file"
	run -1 SIM x-slow-4g 8M "$C"
	[[ $output == *"is not empty"* ]]
	rm "$C/file"
	run -1 SIM x-slow-4g 8M "$T/missing"
}

@test "list and show: every profile, and where its numbers come from" {
	local p n=0
	run -0 SIM list
	[ "${#lines[@]}" -ge 25 ]
	run -0 --separate-stderr SIM list --json
	[ "$(jq length <<<"$output")" = "$(SIM list | wc -l)" ]
	for p in $(jq -r '.[].profile' <<<"$output"); do
		run -0 SIM show "$p"
		grep -qE '^ +(printed|derived|assumed)' <<<"$output"
		n=$((n + 1))
	done
	[ $n -ge 25 ]
	run -0 SIM show lexar-300x-8g
	grep -A1 '^unit_kib  *2048' <<<"$output" | grep -q 'printed (flashbench)'
}

@test "ext4 on it: the same requests cost the same, and more where scattered writes are slow" {
	local dev p t slow fast
	for p in lexar-300x-8g sandisk-extreme-usb-16g-usb2 lexar-300x-8g; do
		dev=$(SIM --loop --fresh "$p" 256M "$C")
		mkfs.ext4 -q -O ^has_journal -E lazy_itable_init=0,nodiscard "$dev"
		SIM reset "$C"
		[ "$(field write_calls)" = 0 ]
		# scattered synchronous writes on the device itself: nothing of the kernel's timing in it
		fio --name=x --filename="$dev" --rw=randwrite --bs=4k --size=64M --offset=128M --io_size=2M --direct=1 --ioengine=psync \
			--randseed=7 --fsync=1 --output=/dev/null
		[ "$(field write_calls)" = 512 ]
		[ "$(field written_bytes)" = $((2 << 20)) ]
		[ "$(field flushes)" -ge 511 ] # the last one is left to the close
		[ $(($(field erases) * $(field unit_bytes))) -ge "$(field copied_bytes)" ]
		t=$(SIM stat --json "$C" | jq -r '"\(.read_calls) \(.flushes) \(.virtual_ns)"') # others read it: blkid
		case $p in
		lexar*) [ "${slow% *}" != "${t% *}" ] || [ "$slow" = "$t" ]; slow=$t ;;
		*) fast=$t ;;
		esac
		mount "$dev" "$MNT"
		cp -r /etc/default "$MNT/"
		sync -f "$MNT"
		run -1 SIM stop "$C"
		grep -q 'is in use' <<<"$output"
		umount "$MNT"
		e2fsck -fn "$dev" >/dev/null
		SIM stop "$C"
		[ ! -e "$C/card" ]
	done
	say "512 scattered synchronous writes: lexar-300x-8g $((${slow##* } / 1000000)) ms, extreme usb $((${fast##* } / 1000000)) ms"
	[ "${slow##* }" -gt $((10 * ${fast##* })) ]
}

@test "a power cut: what is not flushed is kept, undone or torn; all I/O fails until the power is back" {
	local fate
	SIM sandisk-ultra-4g 64M "$C"
	for fate in kept undone torn garbage; do
		put 5 a fsync
		put 5 b
		SIM cut "$C" 2
		put 6 x
		run ! put 7 y fsync
		[ "$(SIM stat --json "$C" | jq .powered)" = false ]
		run ! dd if="$C/card" of=/dev/null bs=4096 skip=5 count=1 status=none
		answer=$(SIM stat "$C")
		grep -q 'the power is off' <<<"$answer"
		SIM power "$C" $fate
		answer=$(SIM stat "$C")
		grep -q 'works' <<<"$answer"
		case $fate in
		kept) [ "$(letter 5)" = b ] ;;
		undone) [ "$(letter 5)" = a ]; [ -z "$(letter 6)" ] ;;
		torn) [ "$(dd if="$C/card" bs=4096 skip=5 count=1 status=none | fold -w1 | sort -u | tr -d '\n')" = ab ] ;;
		garbage) [[ $(letter 5 | tr -d '\0') != [ab] || $(letter 6) != x ]] ;;
		esac
		put 6 '\0' fsync
	done
	# a flush that lies
	put 5 a fsync
	put 9 z fsync
	SIM lie "$C" 1
	put 5 c fsync
	SIM power "$C" undone
	[ "$(letter 5)" = a ]
	# nothing but what is armed fails, once
	SIM lie "$C" 0
	SIM fail "$C" read 2 once
	[ "$(letter 5)" = a ]
	run ! dd if="$C/card" of=/dev/null bs=4096 skip=5 count=1 status=none
	[ "$(letter 5)" = a ]
	SIM fail "$C" write,flush 1 forever
	run ! put 5 d
	run ! put 5 d
	SIM fail "$C" write 0 once
	put 5 d fsync
}

@test "image: contents come and go; save; discard" {
	local img=$T/image
	SIM --image "$img" lexar-300x-8g 16M "$C"
	put 3 m fsync
	put 4 n fsync
	fallocate -p -o $((4 * 4096)) -l 4096 "$C/card"
	[ -z "$(letter 4)" ]
	SIM save "$C" "$T/saved"
	cmp "$T/saved" "$C/card"
	[ "$(field discards)" = 1 ]
	SIM stop "$C"
	[ "$(stat -c %s "$img")" = $((16 << 20)) ]
	[ "$(du -k "$img" | cut -f1)" -lt 64 ]
	cmp "$T/saved" "$img"
	SIM --image "$img" --no-discard lexar-300x-8g 32M "$C"
	[ "$(letter 3)" = m ]
	[ "$(field read_calls)" -ge 1 ]
	run ! fallocate -p -o 0 -l 4096 "$C/card"
	SIM stop "$C"
	run -1 SIM --image "$img" lexar-300x-8g 8M "$C"
	grep -q 'larger than the card' <<<"$output"
	# nowhere to write it to: stop says so, and the card is still there
	mkdir "$T/gone"
	run -0 SIM --image "$T/gone/i" lexar-300x-8g 8M "$C" # nor does it keep the pipe of run open
	rmdir "$T/gone"
	run -1 SIM stop "$C"
	grep -q 'No such file' <<<"$output"
	mkdir "$T/gone"
	SIM stop "$C"
	[ -s "$T/gone/i" ]
}

@test "requests of any alignment: as a plain file has it" {
	SIM transcend-ts8gcf266 8M "$C"
	truncate -s 8M "$T/plain"
	head -c 300000 /dev/urandom >"$T/data"
	local at len
	for at in 0 511 4095 4096 70001 8188608; do
		for len in 1 512 5000 200000; do
			dd if="$T/data" of="$T/one" bs=$len count=1 status=none iflag=fullblock
			dd if="$T/one" of="$C/card" bs=1M oflag=seek_bytes seek=$at conv=notrunc status=none
			dd if="$T/one" of="$T/plain" bs=1M oflag=seek_bytes seek=$at conv=notrunc status=none
		done
		fallocate -p -o $((at + 100)) -l 9000 "$C/card"
		fallocate -p -o $((at + 100)) -l 9000 "$T/plain"
	done
	cmp "$C/card" "$T/plain"
	run ! dd if="$T/data" of="$C/card" bs=4096 seek=2048 count=1 conv=notrunc status=none
	SIM stop "$C"
}

@test "trace: a record for each write, flush and discard" {
	SIM --trace "$T/t.trace" --trace-contents lexar-300x-8g 8M "$C"
	put 1 a
	put 2 b fsync
	SIM mark "$C" commit
	fallocate -p -o 4096 -l 8192 "$C/card"
	SIM stop "$C"
	run -0 python3 - "$T/t.trace" <<'END'
import struct, sys
b = open(sys.argv[1], 'rb').read()
assert b[:8] == b'COWTRACE' and struct.unpack_from('<IIQ', b, 8) == (1, 32, 8 << 20), b[:64]
data = open(sys.argv[1].replace('.trace', '.data'), 'rb').read()
last = 0
for i in range(64, len(b), 32):
    t, off, at, n, op, flags, zero = struct.unpack_from('<QQQIBBH', b, i)
    assert t >= last and zero == 0 and flags == 0
    last = t
    print(op, off, n, chr(data[at]) if at < 1 << 63 else '-')
assert last > 0
END
	[ "$output" = $'1 4096 4096 a\n1 8192 4096 b\n2 0 0 -\n4 0 0 -\n3 4096 8192 -\n2 0 0 -' ] # fallocate(1) syncs
	SIM lexar-300x-8g 8M "$C"
	run -1 SIM mark "$C" commit
	grep -q 'without --trace' <<<"$output"
	SIM stop "$C"
}

@test "worn out: writes fail, reads do not" {
	local i
	SIM --erase-limit 4 --wear none transcend-ts8gcf266 8M "$C"
	for i in $(seq 200); do
		put $((i % 4 * 256 + 7)) w || break
	done
	[ "$i" -lt 200 ]
	[ "$(field read_only)" = true ]
	answer=$(SIM stat "$C")
	grep -q 'worn out' <<<"$answer"
	[ "$(letter 7)" = w ]
	SIM stop "$C"
}

@test "real time: a write takes as long as it says" {
	local t0 t1 v
	SIM --real-time lexar-300x-8g 8M "$C"
	t0=$(date +%s%N)
	for i in 1 2 3 4 5 6 7 8; do put $((i * 250)) a fsync; done
	t1=$(date +%s%N)
	v=$(field virtual_ns)
	[ "$v" -gt 100000000 ]
	[ $((t1 - t0)) -ge "$v" ]
	SIM stop "$C"
}

@test "profiles of one's own; in the foreground; signals" {
	cat >"$T/p.json" <<-END
		{"mine": {"title": "my card", "member": "lexar-300x-8g", "open_units": 5, "from": {"open_units": "assumed: a test"}}}
	END
	run -0 SIM show --profiles "$T/p.json" mine
	grep -q 'assumed: a test' <<<"$output"
	answer=$(SIM list --profiles "$T/p.json")
	grep -q '^mine ' <<<"$answer"
	background "$COWFS_BUILD/cowfs-cardsim" --foreground --profiles "$T/p.json" --image "$T/i" mine 8M "$C"
	wait_for 10 test -e "$C/card"
	put 1 q fsync
	kill "$BG"
	wait "$BG"
	[ ! -e "$C/card" ]
	[ "$(dd if="$T/i" bs=4096 skip=1 count=1 status=none | head -c 1)" = q ]
}

completed() {
	bash -c '. "$1"; PATH=$2:$PATH; shift 2; COMP_WORDS=(cowfs-cardsim "$@"); COMP_CWORD=$#; _cowfs_cardsim cowfs-cardsim
		printf "%s\n" "${COMPREPLY[@]}"' - "$BATS_TEST_DIRNAME/../../lab/sim/cardsim.bash" "$COWFS_BUILD" "$@"
}

@test "completion: options, commands, profiles" {
	[ "$(completed --tr)" = $'--trace\n--trace-contents' ]
	[ "$(completed po)" = power ]
	[ "$(completed show lex)" = lexar-300x-8g ]
	[ "$(completed --loop kingston-2)" = $'kingston-24x-1g\nkingston-266x-32g' ]
	[ "$(completed --wear g)" = global ]
	[ "$(completed stat "$T/ca")" = "$C" ]
}

@test "bad input" {
	local -a bad=("" "lexar-300x-8g" "lexar-300x-8g 1M" "lexar-300x-8g 1M $C x" "nothing 1M $C" "lexar-300x-8g 1K $C"
		"lexar-300x-8g 2000G $C" "lexar-300x-8g -1M $C" "--cache 1 lexar-300x-8g 8M $C" "--wear some lexar-300x-8g 8M $C"
		"--erase-limit 0 lexar-300x-8g 8M $C" "--seed x lexar-300x-8g 8M $C" "--trace-contents lexar-300x-8g 8M $C" "--nothing"
		"show" "show nothing" "list x" "stat" "stat --profiles x $C" "cut $C" "list --nothing")
	local b
	for b in "${bad[@]}"; do
		run -2 SIM $b
		[ -n "$output" ]
	done
	run -1 SIM lexar-300x-8g 8M "$T/nowhere"
	run -1 SIM stat "$C"
	grep -q 'no simulated card' <<<"$output"
	run -1 SIM stop "$C"
	run -1 SIM list --profiles /dev/null
	run -1 SIM --trace "$T/nowhere/t" lexar-300x-8g 8M "$C"
	SIM lexar-300x-8g 8M "$C"
	for b in "cut $C x" "power $C" "power $C some" "fail $C all 1 once" "fail $C read 1 often" "fail $C , 1 once" "lie $C 1001" \
		"collateral $C maybe" "reset $C x" "mark $C now"; do
		run ! SIM $b
		[ -n "$output" ]
	done
	for b in " " "reset reset" "save relative" "cut 1 2" "cut 99999999999999999999"; do
		! printf %s "$b" 2>/dev/null >"$C/control" || { echo "taken: $b"; return 1; }
	done
	[ "$(field powered)" = true ]
	run ! truncate -s 1M "$C/nothing"
	SIM stop "$C"
}
