#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The worker of a mounted ext4 (or FS=btrfs) is killed KILLS times (1000), at random moments 0.3 to 1.5 s after the last one was replaced, under two
# fio jobs that verify (through the page cache and past it), commits (full, with a checkpoint, of one file) and sync(2). No read
# or write may fail, no content may be wrong, live and on the bare card, and nothing may hang. Prints how long a read waited
# after a kill. As root; Linux 6.9 or newer.
#
#	KILLS=1000 tests/kills.sh
# shellcheck disable=SC2034 # variables of lib.bash
set -eu
export COWFS_ON_CRASH=replace
[ "${COWFS_KILLS_NAMESPACE-}" ] || COWFS_KILLS_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"

here=$(cd "$(dirname "$0")" && pwd)
COWFS_BUILD=${COWFS_BUILD:-$here/../build}
kills=${KILLS:-1000} fs=${FS:-ext4}
hang_s=60

# what bats gives to lib.bash
bats_require_minimum_version() { :; }
skip() { echo "kills: $*"; exit 1; }
exec 3>&1
# shellcheck disable=SC1091
. "$here/bats/lib.bash"

now_us() { echo "${EPOCHREALTIME/./}"; }

finish() {
	echo "kills: FAILED: $*"
	[ -z "$DEV" ] || cow status vol 2>&1 || :
	tail -n 20 "$T/kernel" 2>/dev/null || :
	exit 1
}

# Only after a failure: what hangs would hang sync(2) of the whole machine. Another volume may have the number by now.
abort_fuse() {
	local on
	grep -qxF "$DEV $(loop_use "$DEV")" "$T/volumes" || return 0
	on=$(loop_backing "$DEV")
	mkdir -p "$T/ctl"
	mount -t fusectl none "$T/ctl"
	echo 1 >"$T/ctl/${on#*:}/abort"
	umount "$T/ctl"
}

bye() {
	[ -n "$passed" ] || [ -z "$DEV" ] || abort_fuse
	touch "$T/stop"
	cow_teardown
}

# Writes everything, reads and compares it, and begins again with other data; every second time in a new file.
load() { # NAME OPTION...
	while [ ! -e "$T/stop" ]; do
		[ $((RANDOM % 2)) = 0 ] || rm -f "$MNT/$1.0.0"
		fio --directory="$MNT" --name="$1" --rw=randwrite --bsrange=4k-64k --size=16m --verify=crc32c --verify_fatal=1 \
			--do_verify=1 --randrepeat=0 --allrandrepeat=0 --verify_state_save=0 "${@:2}" \
			>"$T/fio.$1" 2>&1 || { cp "$T/fio.$1" "$T/bad.$1"; break; }
		echo >>"$T/rounds.$1"
	done
}

commits() {
	while [ ! -e "$T/stop" ]; do
		cow commit vol >>"$T/full" 2>&1 || :
		cow commit --checkpoint vol >>"$T/checkpoint" 2>&1 || :
		dd if=/dev/urandom of="$MNT/single" bs=64k count=8 status=none
		cow commit "$MNT/single" >>"$T/single" 2>&1 || :
	done
}

# sync(2) waits for every file system of the machine.
syncs() {
	while [ ! -e "$T/stop" ]; do
		sync
		echo >>"$T/synced"
		sleep 1
	done
}

no_jobs() { [ -z "$(jobs -pr)" ]; }

replaced() { [ "$(status_of .replaced)" = "$1" ]; }

count() { grep -c "$1" "$2" || :; }

# The longest read that ended between each kill and the next one, in ms, sorted
stalls() {
	awk 'FILENAME == ARGV[1] { begin[++n] = $1; end[n] = $2; next }
		{ kill[++k] = $1 }
		END {
			kill[k + 1] = 1e18
			for (i = 1; i <= k; i++) {
				longest = 0
				for (j = 1; j <= n; j++)
					if (end[j] > kill[i] && end[j] <= kill[i + 1] && end[j] - begin[j] > longest)
						longest = end[j] - begin[j]
				print longest / 1000
			}
		}' "$T/reads" "$T/kills" | sort -n
}

cow_setup
NAME=vol passed=''
at_end bye
if [ "$fs" = btrfs ]; then card_make btrfs 500 640; else card_make "$fs" 400 512 -J size=16; fi
mount "$CARD" "$MNT"
mkdir "$MNT/fixed"
for i in $(seq 8); do
	random_file "$MNT/fixed/$i" 4
done
random_file "$MNT/probe" 16
(cd "$MNT" && sha256sum fixed/* probe) >"$T/fixed.sums"
umount "$MNT"
cow prepare "$CARD" >/dev/null
COWFS_DEATHS=1000000 attach --ram 200M
mount_volume -o noatime
background dmesg --follow-new >"$T/kernel"
log_pid=$BG
background python3 "$here/tools/readstall.py" "$MNT/probe" "$T/stop" "$T/reads" >"$T/longest" 2>&1
reader=$BG
background load cached --ioengine=psync --fsync=16
background load direct --ioengine=libaio --iodepth=4 --direct=1
background commits
background syncs
in_commit=0
for ((n = 1; n <= kills; n++)); do
	us=$((300000 + (RANDOM * 32768 + RANDOM) % 1200000))
	sleep "$((us / 1000000)).$(printf %06d $((us % 1000000)))"
	victim=$(worker_pid)
	phase=$(jq -r '.progress.phase // "idle"' "$COWFS_RUNDIR/vol/status.json" 2>/dev/null || :)
	[ "$phase" = idle ] || in_commit=$((in_commit + 1))
	now_us >>"$T/kills"
	kill -9 "$victim"
	wait_for $hang_s replaced $n || finish "no worker has replaced $victim as number $n: $(cow status vol 2>&1 | head -3)"
	! cat "$T"/bad.* 2>/dev/null || finish "after $n kills"
	! ended "$reader" || finish "a read failed after $n kills: $(cat "$T/longest")"
	[ $((n % 50)) != 0 ] || echo "kills: $n at $SECONDS s"
done
touch "$T/stop"
kill "$log_pid"
wait_for 300 no_jobs || finish "does not end: $(ps -o pid,stat,args --ppid $$)"
! cat "$T"/bad.* 2>/dev/null || finish "fio"
! grep -E "(I/O error|EXT4-fs (error|warning)).*${DEV#/dev/}\\>" "$T/kernel" || finish "the kernel complained"
[ "$(status_of .replaced)" = "$kills" ] || finish "$(status_of .replaced) workers were replaced"
status_of '{alarm, write_errors, read_errors}' >"$T/status"
jq -e '.alarm == "" and .write_errors == 0 and .read_errors == 0' "$T/status" >/dev/null || { cat "$T/status"; finish "status"; }
(cd "$MNT" && sha256sum --quiet -c "$T/fixed.sums") || finish "wrong content"
live=$(tree_sum "$MNT")
umount_volume
mount_volume
[ "$(tree_sum "$MNT")" = "$live" ] || finish "another content without the page cache"
detach >/dev/null
fsck "$fs" >"$T/fsck" 2>&1 || { cat "$T/fsck"; finish "fsck"; }
mount -o ro "$CARD" "$MNT"
[ "$(tree_sum "$MNT")" = "$live" ] || finish "another content on the card"
umount "$MNT"
passed=1
stalls >"$T/stalls"
echo "kills: $kills in $SECONDS s, $in_commit of them while status.json had a commit; fio wrote and verified $(cat "$T"/rounds.* | wc -l) times," \
	"sync(2) returned $(wc -l <"$T/synced") times"
echo "kills: commits: $(count committed "$T/full") full, $(count committed "$T/checkpoint") with a checkpoint, $(count committed "$T/single") of a file;" \
	"of $(wc -l <"$T/full"), $(wc -l <"$T/checkpoint"), $(wc -l <"$T/single")"
cat "$T/full" "$T/checkpoint" "$T/single" | grep -v committed | sed 's/[0-9][0-9.]*/N/g' | sort | uniq -c | sort -rn | head -n 8
echo "kills: a read waited for ms (median, 99 %, longest): $(awk '{ ms[NR] = $1 }
	END { print ms[int((NR + 1) / 2)], ms[int(NR * 0.99 + 0.99)], ms[NR] }' "$T/stalls"); no error, all content right"
