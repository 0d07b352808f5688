#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# More is written than RAM holds, on a slow card: the figures of docs/design/pressure.md, "RAM pressure". As root.
#
#	lab/bench/pressure.sh [new|place]...	default: both
#	BENCH_RAM=MIB		RAM limit (96); four times as much is written
#	BENCH_SLOW="KIB_PER_S US QUEUE"	the card, as build/tests/slowcard takes it (19531 1000 1: 20 MB/s, 1 ms)
#	BENCH_ROUNDS=N		(1)
#	BENCH_ALSO=FOLDER	a second build of cowfs, measured after each run of the first
#
# Each line: workload, build, KiB/s until all of it is on the card, the card's own linear speed, the first by the second, the
# longest stall of a read (O_DIRECT, 4 KiB, one every 10 ms), the longest delay of a write, errors, commits, MiB written to and
# read from the card.
# shellcheck disable=SC2119,SC2120 # functions whose arguments may be left out
set -eu # no pipefail: head ends the pipe
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

[ $# -gt 0 ] || set -- new place
for what; do
	case $what in
	new | place) ;;
	*) echo "usage: lab/bench/pressure.sh [new|place]..." >&2; exit 2 ;;
	esac
done
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"

RAM=${BENCH_RAM:-96}
SLOW=${BENCH_SLOW:-19531 1000 1}

tidy() {
	set +e
	touch "$T/stop"
	volume_tidy
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# bytes that are not the same in any two blocks, and quick to make
stream() {
	openssl enc -aes-128-ctr -nosalt -K "$(printf '%032x' "$1")" -iv 0 -in /dev/zero 2>/dev/null | head -c "$(($2 << 20))"
}

card_read() {
	local stat
	read -ra stat <"/sys/block/${CARD#/dev/}/stat"
	echo $((stat[2] * 512))
}

make_image() {
	local lib=$COWFS_BUILD
	COWFS_BUILD=$1
	card_make ext4 $((RAM * 5 + 80)) $((RAM * 5 + 120)) -J size=8
	cow prepare "$CARD" >/dev/null
	attach --ram 2G >/dev/null
	mount_volume -o noatime
	random_file "$MNT/read" 4
	[ "$2" = new ] || stream 1 $((RAM * 4)) >"$MNT/file"
	detach >/dev/null
	loop_down "$CARD"
	COWFS_BUILD=$lib
}

linear() {
	local t0
	t0=$(now_ms)
	dd if=/dev/zero of="$CARD" bs=1M count=40 oflag=direct status=none
	echo $((40 * 1024 * 1000 / ($(now_ms) - t0)))
}

measure() { # BUILD WHAT
	local lib=$COWFS_BUILD t0 speed line wrote got i stalls
	COWFS_BUILD=$1
	[ "$LINEAR" ] || { truncate -s 64M "$T/card.img"; IMG=$T/card.img; card_up; LINEAR=$(linear); card_down; }
	make_image "$1" "$2" # at the speed of the machine
	card_up
	attach --ram "${RAM}M" >/dev/null
	mount_volume -o noatime
	rm -f "$T/stop"
	python3 "$TOP/tests/tools/readstall.py" "$MNT/read" "$T/stop" >"$T/stalls" &
	stalls=$!
	wrote=$(card_written) got=$(card_read) t0=$(now_ms)
	if [ "$2" = new ]; then
		for i in 1 2 3 4; do stream "$i" "$RAM" >"$MNT/new$i"; done
	else
		stream 2 $((RAM * 4)) | dd of="$MNT/file" bs=1M iflag=fullblock conv=notrunc status=none
	fi
	sync -f "$MNT"
	cow commit >/dev/null
	speed=$((RAM * 4 * 1024 * 1000 / ($(now_ms) - t0)))
	touch "$T/stop"
	wait "$stalls"
	read -r _ line <"$T/stalls"
	printf '%s\t%s\t%s\t%s\t%s\t%s ms\t%s s\t%s\t%s\t%s\t%s\n' "$2" "$1" "$speed" "$LINEAR" \
		"$(awk -v a="$speed" -v b="$LINEAR" 'BEGIN { printf "%.2f", a / b }')" "$line" \
		"$(status_of .pressure.longest_delay_seconds)" \
		"$(status_of '.pressure.full_errors + .write_errors + .read_errors')" "$(status_of .pressure.commits)" \
		$((($(card_written) - wrote) >> 20)) $((($(card_read) - got) >> 20))
	detach --discard >/dev/null
	card_down
	COWFS_BUILD=$lib
}

cow_setup
trap tidy EXIT
mkdir "$T/slowcard"
LINEAR=''
echo "$(date +%F), Linux $(uname -r), $(nproc) CPUs, $("$COWFS_BUILD/cowctl" --version), load $(cut -d' ' -f1 /proc/loadavg), limit $RAM MiB, card $SLOW"
printf 'what\tbuild\tKiB/s\tcard\tratio\tread stall\twrite delay\terrors\tcommits\twritten MiB\tread MiB\n'
for _ in $(seq "${BENCH_ROUNDS:-1}"); do
	for what; do
		measure "$COWFS_BUILD" "$what"
		[ -z "${BENCH_ALSO-}" ] || measure "$BENCH_ALSO" "$what"
	done
done
