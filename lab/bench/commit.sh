#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The figures of docs/BENCHMARKS.md, as rows of its table. As root; nothing but image files is written.
#
#	lab/bench/commit.sh [apt|logger|attach|memory|size|status|trim]...	default: all of them
#	BENCH_RUNS=N	repetitions where a median is taken (5)
#
# The images lie in TMPDIR, which needs 6 GiB for "apt".
# shellcheck disable=SC2119,SC2120 # functions whose arguments may be left out
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

ALL=(apt logger attach memory size status trim)
for what; do
	case " ${ALL[*]} " in
	*" $what "*) ;;
	*) echo "usage: lab/bench/commit.sh [$(IFS="|"; echo "${ALL[*]}")]..." >&2; exit 2 ;;
	esac
done
# shellcheck source=lab/bench/lib.bash
. "$(dirname "$0")/lib.bash"

MEASURE=$TOP/lab/bench/measure.py
RUNS=${BENCH_RUNS:-5}
CACHE=$TOP/build/cache

tidy() {
	set +e
	touch "$T/stop"
	[ -z "${SIM_DIR-}" ] || { umount -l "$MNT"; cow detach --discard vol; SIM stop "$SIM_DIR"; } >/dev/null 2>&1
	cow_teardown
}

row() {
	printf '| %s | %s | %s | %s |\n' "$@"
}

# verdict VALUE LIMIT [UNIT]: does VALUE keep LIMIT?
verdict() {
	awk -v v="$1" -v l="$2" -v u="${3-}" 'BEGIN { if (v <= l) print "kept"; else printf "missed by %.3g%s\n", v - l, u }'
}

ratio() {
	awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f", a / b }'
}

calc() {
	awk "BEGIN { printf \"%.${2:-1}f\", $1 }"
}

median() {
	"$MEASURE" median "$@"
}

mib() {
	calc "$1 / 1048576"
}

commit_json() {
	cow commit "$NAME" --json >"$T/bill"
}

bill() {
	jq -r ".$1" "$T/bill"
}

# Writes of the card by the kernel's count since the volume was attached.
kernel_bytes() {
	echo $(($(card_written) - CARD_START))
}

volume_up() {
	cow prepare "$CARD" --log-size "$1" >/dev/null
	shift
	CARD_START=$(card_written)
	attach "$@" 2>/dev/null
	NAME=vol
}

volume_down() {
	detach "$@" >/dev/null
	loop_down "$CARD"
	rm -f "$IMG"
	IMG=''
}

# ---- apt, logger ----

root_card() {
	root_tar
	card_make ext4 1900 2032 -b 4096 -J size=8
	mount "$CARD" "$MNT"
	tar -C "$MNT" --numeric-owner -xf "$CACHE/debian-root.tar"
	cp -L /etc/resolv.conf "$MNT/etc/resolv.conf"
	printf '#!/bin/sh\nexit 101\n' >"$MNT/usr/sbin/policy-rc.d"
	chmod 755 "$MNT/usr/sbin/policy-rc.d"
	umount "$MNT"
	volume_up 64M
	mount_volume -o noatime,discard,noinit_itable
}

# Blocks that a reader of the volume finds different from those on the bare card.
differing_blocks() {
	umount_volume
	"$COWFS_BUILD/tests/fsmap_dump" "$DEV" >"$T/map"
	"$MEASURE" differ "$T/before" "$DEV" "$T/map"
	mount_volume -o noatime,discard,noinit_itable
}

bench_apt() {
	local written kernel differ checkpoint before
	root_card
	in_root 'apt-get -q update'
	commit_json
	cow commit "$NAME" --checkpoint >/dev/null
	sync "$IMG"
	cp --sparse=always "$CARD" "$T/before"
	before=$(kernel_bytes)
	note "apt-get install git gcc"
	in_root 'apt-get -q -y --no-install-recommends install git gcc libc6-dev'
	commit_json
	kernel=$(($(kernel_bytes) - before))
	written=$(bill report.written_bytes)
	bill report >"$T/apt.bill"
	differ=$(differing_blocks)
	row "apt-get install git, gcc: bytes written by the commit / bytes that differ" "≤ 1.03" \
		"$(ratio "$kernel" $((differ * 4096))) ($(mib "$kernel") of $(mib $((differ * 4096))) MiB; $(bill report.direct_blocks) blocks in place in $(bill report.direct_extents) extents, $(bill report.logged_blocks) logged, $(bill report.log_metadata_blocks) log metadata; skipped $(bill report.skipped_free_blocks) free, $(bill report.skipped_journal_blocks) journal, $(bill report.skipped_same_blocks) same; $(bill report.duration_seconds) s)" \
		"$(verdict "$(ratio "$kernel" $((differ * 4096)))" 1.03)"
	row "— the kernel's count of that commit minus ours" "0 bytes" "$((kernel - written)) bytes" \
		"$(verdict $((kernel > written ? kernel - written : written - kernel)) 0)"
	checkpoint=$(kernel_bytes)
	cow commit "$NAME" --checkpoint >/dev/null
	checkpoint=$(($(kernel_bytes) - checkpoint))
	row "— with the checkpoint of everything logged at once" "—" "$(ratio $((kernel + checkpoint)) $((differ * 4096)))" "—"
	row "— the kernel's count since attach minus ours" "0 bytes" \
		"$(status_of '.card.kernel_written_bytes - .card.written_bytes') bytes of $(mib "$(kernel_bytes)") MiB" \
		"$(verdict "$(status_of '.card.foreign_bytes')" 0)"
	volume_down
	rm -f "$T/before"
}

bench_logger() {
	local before kernel absorbed writes
	root_card
	mkdir "$MNT/srv/data"
	"$MEASURE" logger "$MNT/srv/data" 3
	commit_json # the first commit writes the heads of all segments, once in the life of a log
	before=$(kernel_bytes)
	absorbed=$(status_of .absorbed_bytes) writes=$(status_of .absorbed_writes)
	"$MEASURE" logger "$MNT/srv/data" 300
	absorbed=$(($(status_of .absorbed_bytes) - absorbed)) writes=$(($(status_of .absorbed_writes) - writes))
	commit_json
	kernel=$(($(kernel_bytes) - before))
	row "300 × (sqlite insert, log line, sync): blocks written" "≤ 60" \
		"$((kernel / 4096)) ($(bill report.direct_blocks) in place, $(bill report.logged_blocks) logged, $(bill report.log_metadata_blocks) log metadata) for $writes writes of $(mib "$absorbed") MiB, 1 : $(calc "$absorbed / $kernel" 0)" \
		"$(verdict $((kernel / 4096)) 60)"
	row "— the kernel's count of that commit minus ours" "0 bytes" "$((kernel - $(bill report.written_bytes))) bytes" \
		"$(verdict $((kernel - $(bill report.written_bytes))) 0)"
	volume_down
}

# ---- attach, memory ----

sparse_card() {
	local gib=$1
	IMG=$T/card.img
	rm -f "$IMG"
	truncate -s "$((gib * 1024))M" "$IMG"
	mke2fs -q -F -t ext4 -b 4096 -J size=16 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$IMG" \
		"$((gib * 1024 - 320))M"
	loop_up "$IMG"
	CARD=$LOOP
}

bench_attach() {
	local run ms=() start
	sparse_card 64
	cow prepare "$CARD" --log-size 256M >/dev/null
	for run in $(seq "$((RUNS + 2))"); do
		start=$EPOCHREALTIME
		attach 2>/dev/null
		ms+=("$(calc "($EPOCHREALTIME - $start) * 1000")")
		if [ "$run" = 1 ]; then # from the second on there is something to recover
			mount_volume -o noatime,noinit_itable
			"$MEASURE" fill "$MNT/file" 64 1
			commit_json
			umount_volume
			power_cut
		else
			cow detach "$NAME" --discard >/dev/null
			wait_for 5 no_daemons
		fi
	done
	note "attach: ${ms[*]} ms"
	row "Attach of a sparse 64 GiB card (median of $((RUNS + 2)), a committed 64 MiB in the log index)" "≤ 150 ms" \
		"$(median "${ms[@]}") ms, at most $(printf '%s\n' "${ms[@]}" | sort -g | tail -1)" \
		"$(verdict "$(median "${ms[@]}")" 150 ' ms')"
	loop_down "$CARD"
}

slab_nodes() {
	awk '$1 == "radix_tree_node" { print $2 * $4 }' /proc/slabinfo
}

# ram_row WHAT NODE_BYTES: what the dirty blocks take, by the files' own count and by status
ram_row() {
	local dirty files used
	dirty=$(($(status_of .dirty_blocks) * 4096)) used=$(status_of .ram_used_bytes)
	files=$("$MEASURE" memory_files "$(worker_pid)")
	row "RAM per dirty byte, $1" "≤ 1.02" \
		"$(ratio "$files" "$dirty") ($(mib "$files") MiB in store and map for $(mib "$dirty") MiB; status says $(mib "$used"); the kernel's index of these pages takes about $(mib "$2") MiB more)" \
		"$(verdict "$(ratio "$files" "$dirty")" 1.02)"
}

resident_row() {
	local pids kib
	mapfile -t pids < <(daemons)
	read -ra kib < <("$MEASURE" resident "${pids[@]}")
	row "$1" "≤ 8 MiB" \
		"$(calc "${kib[0]} / 1024" 2) MiB, and $(calc "${kib[1]} / 1024" 2) of presence map (sum of VmRSS $(calc "${kib[2]} / 1024" 2), of Pss $(calc "${kib[3]} / 1024" 2))" \
		"$(verdict "${kib[0]}" 8192 ' KiB')"
}

bench_memory() {
	local nodes
	sparse_card 64
	volume_up 256M --ram 4G
	resident_row "Resident memory at 64 GiB, worker and parent, attached"
	nodes=$(slab_nodes)
	dd if=/dev/urandom of="$DEV" bs=1M count=512 seek=4096 oflag=direct status=none
	nodes=$(($(slab_nodes) - nodes))
	ram_row "512 MiB written in one run" "$nodes"
	cow detach "$NAME" --discard >/dev/null
	wait_for 5 no_daemons
	attach --ram 4G 2>/dev/null
	nodes=$(slab_nodes)
	fio --minimal --name=scatter --filename="$DEV" --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=32 \
		--number_ios=32768 --norandommap --allow_mounted_write=1 >/dev/null
	nodes=$(($(slab_nodes) - nodes))
	ram_row "128 MiB in single blocks all over 64 GiB" "$nodes"
	cow detach "$NAME" --discard >/dev/null
	wait_for 5 no_daemons
	attach --ram 4G 2>/dev/null
	mount_volume -o noatime,noinit_itable
	"$MEASURE" fill "$MNT/file" 512 1
	commit_json
	resident_row "— after 512 MiB were written and committed"
	volume_down --discard
}

# ---- size of the card ----

bench_size() {
	local gib run stat s w r base='' list_s list_r list_w ms first worst=0
	for gib in 1 64 1024; do
		sparse_card $gib
		volume_up 256M --ram 1G
		mount_volume -o noatime,discard,noinit_itable
		list_s=() list_r=() list_w=() first=''
		for run in $(seq "$((RUNS + 1))"); do
			"$MEASURE" fill "$MNT/$((run % 2))" 64 "$run"
			sync -f "$MNT"
			read -ra stat <"/sys/class/block/${CARD#/dev/}/stat"
			r=${stat[2]} w=$(card_written)
			commit_json
			read -ra stat <"/sys/class/block/${CARD#/dev/}/stat"
			ms=$(calc "$(bill report.duration_seconds) * 1000" 0)
			if [ -z "$first" ]; then # the first of a volume sets up the log and reads the superblocks
				first="$ms ms, $(mib $(((stat[2] - r) * 512))) MiB read"
				continue
			fi
			list_s+=("$ms") list_r+=("$(calc "(${stat[2]} - $r) / 2" 0)") list_w+=("$(mib $(($(card_written) - w)))")
		done
		s=$(median "${list_s[@]}") r=$(median "${list_r[@]}") w=$(median "${list_w[@]}")
		base=${base:-$s}
		worst=$(calc "$s / $base" 2)
		row "Commit of 64 MiB dirty on a card of $gib GiB (medians of $RUNS)" "as at 1 GiB" \
			"$s ms, $w MiB written, $r KiB read (the first: $first)" "× $worst"
		volume_down
	done
}

# ---- status under load ----

bench_status() {
	local numbers stop=$T/stop commits=$T/commits loader committer
	card_make ext4 1024 2000 -J size=16
	volume_up 800M --ram 4G
	mount_volume -o noatime,discard,noinit_itable
	"$MEASURE" fill "$MNT/file" 256 1
	fio --name=load --filename="$MNT/file" --size=256M --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=32 \
		--numjobs=2 --time_based --runtime=600 >/dev/null 2>&1 &
	loader=$!
	while [ ! -e "$stop" ]; do
		cow commit "$NAME" >/dev/null 2>>"$T/commit.err" && echo >>"$commits"
	done &
	committer=$!
	sleep 1
	read -ra numbers < <("$MEASURE" latency "$COWFS_BUILD/cowctl" "$NAME" "$COWFS_RUNDIR/$NAME/status.json" 200)
	touch "$stop"
	wait $committer
	kill $loader
	wait $loader || true
	[ ! -s "$T/commit.err" ] || note "commits failed: $(sort "$T/commit.err" | uniq -c | head -3)"
	row "cowctl status --json, full write load and commits one after another (${numbers[0]} calls)" "≤ 50 ms" \
		"median ${numbers[1]}, maximum ${numbers[2]} ms ($(wc -l <"$commits") commits; ${numbers[5]} answers from within one)" \
		"$(verdict "${numbers[2]}" 50 ' ms')"
	row "— reading status.json" "≤ 50 ms" "median ${numbers[3]}, maximum ${numbers[4]} ms (${numbers[6]} versions seen)" \
		"$(verdict "${numbers[4]}" 50 ' ms')"
	volume_down
}

# ---- trims ----

# sim_up MS: CARD, a simulated card with a clock that runs, whose discards take MS for each unit of 4 MiB
sim_up() {
	SIM_DIR=$T/sim
	mkdir "$SIM_DIR"
	cat >"$T/profiles" <<-END
		{"bench": {"title": "a card that knows discards", "member": "sandisk-ultra-4g", "discard_ms": $1,
		           "from": {"discard_ms": "assumed: for a measurement"}}}
	END
	CARD=$(SIM --loop --real-time --profiles "$T/profiles" bench 512M "$SIM_DIR")
}

# The 99.9 % latency of reads of 4 KiB of the volume, in ms
read_latency() {
	fio --output-format=json --name=read --filename="$DEV" --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=1 --norandommap \
		--percentile_list=99.9 --time_based --runtime="${BENCH_SECONDS:-10}" --allow_mounted_write=1 |
		jq -r '.jobs[0].read.clat_ns | "\(.percentile["99.900000"] / 1e6) \(.max / 1e6)"'
}

# Milliseconds that commits of one block take: median, maximum
commit_times() {
	local i start ms=()
	for i in $(seq 15); do
		dd if=/dev/urandom of="$MNT/file" bs=4096 count=1 seek="$i" conv=notrunc status=none
		start=$EPOCHREALTIME
		cow commit "$NAME" >/dev/null
		ms+=("$(calc "($EPOCHREALTIME - $start) * 1000")")
	done
	echo "$(median "${ms[@]}") $(printf '%s\n' "${ms[@]}" | sort -g | tail -1)"
}

bench_trim() {
	local ms trimmer plain with commits commits_with longest
	for ms in ${BENCH_DISCARD_MS:-1 5 20 40}; do
		sim_up "$ms"
		mke2fs -q -F -t ext4 -b 4096 -J size=8 -E nodiscard "$CARD" 440M
		volume_up 64M --trim off
		mount_volume -o noatime,noinit_itable
		"$MEASURE" fill "$MNT/file" 64 1
		cow commit "$NAME" --checkpoint >/dev/null
		cow trim "$NAME" >/dev/null # the first one writes a record
		read -ra plain < <(read_latency)
		read -ra commits < <(commit_times)
		rm -f "$T/stop"
		SIM reset "$SIM_DIR"
		while [ ! -e "$T/stop" ]; do
			cow trim "$NAME" >>"$T/trims" || true
		done &
		trimmer=$!
		read -ra with < <(read_latency)
		longest=$(calc "$(SIM stat --json "$SIM_DIR" | jq .longest_request_ns) / 1e6")
		read -ra commits_with < <(commit_times)
		touch "$T/stop"
		wait "$trimmer"
		row "Reads of 4 KiB while a trim runs, a discard takes $ms ms for each unit of 4 MiB: 99.9 %" "≤ 50 ms" \
			"$(calc "${with[0]}") ms, maximum $(calc "${with[1]}"); without a trim $(calc "${plain[0]}"), $(calc "${plain[1]}"); by the card's clock a discard took $longest ms at most, load $(cut -d' ' -f1 /proc/loadavg)" "$(verdict "$(calc "${with[0]}")" 50 ' ms')"
		row "— a commit of one block while a trim runs, longer than without" "—" \
			"median $(calc "${commits_with[0]} - ${commits[0]}"), maximum $(calc "${commits_with[1]} - ${commits[1]}") ms (${commits_with[*]} against ${commits[*]}; $(wc -l <"$T/trims") trims)" "—"
		rm -f "$T/trims"
		umount_volume
		detach --discard >/dev/null
		SIM stop "$SIM_DIR"
		rmdir "$SIM_DIR"
		SIM_DIR=''
	done
}

# ---- all ----

cow_setup
trap tidy EXIT
echo "$(date +%F), Linux $(uname -r), $(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)), $("$COWFS_BUILD/cowctl" --version), load $(cut -d' ' -f1 /proc/loadavg)"
echo
row figure aim measured "kept?"
row --- --- --- ---
[ $# -gt 0 ] || set -- "${ALL[@]}"
for what; do
	note "$what"
	"bench_$what"
done
