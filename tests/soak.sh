#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Everyday stress: an ext4 on cowfs in a cgroup with little memory and half a CPU, where stress-ng works on the file system
# and takes 95 % of the memory, while commits come every 3 seconds, the daemon is stopped and continued at random, and
# the CPU share shrinks now and then. Nothing may hang, no I/O error may come, and every byte of a checksummed tree must
# be right, live and on the bare card. As root; COWFS_SOAK_SECONDS (1800) is how long.
#
# The machine itself is not starved: all of it lives in the cgroup (v2, or v1 controllers). The daemon, too, where it may
# declare itself an I/O flusher. Where it may not (a container without CAP_SYS_RESOURCE) it stays outside the memory
# limit: its allocations would wait for writeback to its own device, and all would hang: see docs/design/processes.md, "Processes and threads".
# COWFS_SOAK_INSIDE=1 puts it there all the same.
# shellcheck disable=SC2034 # variables of lib.bash
set -eu
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end
# what somebody else does with mount namespaces meanwhile cannot keep our mounts busy
[ "${COWFS_SOAK_NAMESPACE-}" ] || COWFS_SOAK_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"

here=$(cd "$(dirname "$0")" && pwd)
COWFS_BUILD=${COWFS_BUILD:-$here/../build}
seconds=${COWFS_SOAK_SECONDS:-1800}
limit_mib=640 ram_mib=192 hang_s=30

# what bats gives to lib.bash
bats_require_minimum_version() { :; }
skip() { echo "soak: $*"; exit 1; }
exec 3>&1
# shellcheck disable=SC1091
. "$here/bats/lib.bash"

# ---- the cgroup ----

cg_mem='' cg_cpu='' cg_v2=''

# Ours, below our own where that can be, so that no limit on us is left behind.
cgroup_make() {
	local own
	if grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
		cg_v2=1
		echo "+memory +cpu" >/sys/fs/cgroup/cgroup.subtree_control || return
		cg_mem=/sys/fs/cgroup/cowfs-soak.$$ cg_cpu=$cg_mem
		mkdir "$cg_mem" || return
	else
		own=$(awk -F: '$2 == "memory" { print $3 }' /proc/self/cgroup)
		[ -d "/sys/fs/cgroup/memory$own" ] || own=''
		cg_mem=/sys/fs/cgroup/memory${own%/}/cowfs-soak.$$ cg_cpu=/sys/fs/cgroup/cpu/cowfs-soak.$$
		mkdir "$cg_mem" "$cg_cpu" || return
	fi
}

cgroup_memory() {
	if [ -n "$cg_v2" ]; then
		echo $(($1 << 20)) >"$cg_mem/memory.max"
	else
		echo $(($1 << 20)) >"$cg_mem/memory.limit_in_bytes"
	fi
}

# percent of one CPU
cgroup_cpu() {
	if [ -n "$cg_v2" ]; then
		echo "$(($1 * 1000)) 100000" >"$cg_cpu/cpu.max"
	else
		echo $(($1 * 1000)) >"$cg_cpu/cpu.cfs_quota_us"
	fi
}

cgroup_enter() {
	[ -n "$cg_v2" ] || echo "$1" >"$cg_cpu/cgroup.procs"
	[ -z "$inside" ] || echo "$1" >"$cg_mem/cgroup.procs"
}

# PR_SET_IO_FLUSHER asks for it
may_flush() {
	local caps
	caps=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
	[ $((0x$caps >> 24 & 1)) = 1 ]
}

cgroup_remove() {
	local dir pid
	[ -n "$cg_mem" ] || return 0
	for dir in "$cg_mem" "$cg_cpu"; do
		[ -d "$dir" ] || continue
		while read -r pid; do
			kill -9 "$pid" 2>/dev/null
		done <"$dir/cgroup.procs"
		wait_for 10 rmdir "$dir" 2>/dev/null || true
	done
}

# ---- what runs ----

# In a session of its own: a signal for stress-ng's group must not hit us.
in_cgroup() {
	# shellcheck disable=SC2016
	setsid bash -c 'echo $$ >"$1" && echo $$ >"$2" && shift 2 && exec "$@"' - \
		"$cg_mem/cgroup.procs" "$cg_cpu/cgroup.procs" "$@"
}

stressors() {
	local s help
	help=$(stress-ng --help)
	for s in hdd dentry rename link symlink xattr fallocate fpunch chmod utime filename metamix; do
		grep -Eq -- "--$s N" <<<"$help" && echo "--$s" 1
	done
	echo --hdd-bytes 24M --dentries 400 --fallocate-bytes 24M
	# What is left for the page cache (and the RAM layer) is less than it wants. vm goes first when memory is out.
	local others_mib=${inside:+$((ram_mib / 2))}
	echo --vm 1 --vm-bytes $((limit_mib * 95 / 100 - ${others_mib:-32}))M --vm-hang 1
	[[ $help != *--metamix-bytes* ]] || echo --metamix-bytes 8M
}

commits() {
	while [ ! -e "$T/stop" ]; do
		if cow commit "$NAME" --json >"$T/commit.json" 2>"$T/commit.err"; then
			echo ok >>"$T/commits"
		else
			cat "$T/commit.json" "$T/commit.err" >>"$T/commits.failed"
		fi
		sleep 3
	done
}

# Stops the worker or its parent for up to 2 s, every few seconds; starves all of CPU time now and then.
tease() {
	local worker parent pid share=60
	worker=$(worker_pid)
	parent=$(awk '$1 == "PPid:" { print $2 }' "/proc/$worker/status")
	while [ ! -e "$T/stop" ] && [ ! -e "$T/calm" ]; do
		sleep $((RANDOM % 4)).$((RANDOM % 10))
		pid=$worker
		[ $((RANDOM % 3)) -gt 0 ] || pid=$parent
		kill -STOP "$pid"
		sleep $((RANDOM % 2)).$((RANDOM % 10))
		kill -CONT "$pid"
		echo "$pid" >>"$T/stops"
		share=$((share == 60 && RANDOM % 3 == 0 ? 15 : 60))
		cgroup_cpu $share
	done
	kill -CONT "$worker" "$parent"
	cgroup_cpu 200
}

# Files that are written anew at random and read back, past the page cache: name and sum in $T/sums.
tree() {
	local f
	while [ ! -e "$T/stop" ]; do
		f=$((RANDOM % 64))
		head -c $((RANDOM * 12)) /dev/urandom >"$T/new"
		cp "$T/new" "$MNT/tree/$f.new" && mv "$MNT/tree/$f.new" "$MNT/tree/$f"
		sha256sum <"$T/new" >"$T/sums/$f"
		f=$((RANDOM % 64))
		check_file "$MNT" $f
		sleep 0.2
	done
}

check_file() {
	[ ! -e "$T/sums/$2" ] || [ "$(dd if="$1/tree/$2" bs=64k iflag=direct status=none | sha256sum)" = "$(cat "$T/sums/$2")" ] || echo "$2" >>"$T/wrong"
}

check_tree() {
	local f
	for f in "$T"/sums/*; do
		check_file "$1" "${f##*/}"
	done
	(cd "$1" && sha256sum --quiet -c "$T/fixed.sums") || echo fixed >>"$T/wrong"
}

# PIDFILE...: "PATH STATE SWITCHES" of each thread of these processes
threads() {
	sort -u "$@" | sed 's|.*|/proc/&/task|' | xargs -I@ find @ -name status -maxdepth 2 2>/dev/null |
		xargs grep -sHE '^(State|(non)?voluntary_ctxt_switches):' | sed 's/:/ /' |
		awk '$2 == "State:" { state = $3; next } $2 ~ /^v/ { n = $3; next } { print $1, state, n + $3 }' || true
}

# A thread on one line: what it is, and the functions of the kernel that it waits in, the innermost first.
stack_of() {
	echo "$1 $(cat "$1/comm"): $(sed 's/^[^ ]* //; s/+.*//' "$1/stack" | paste -sd' ')" 2>/dev/null || true
}

# A thread in D that has not been switched for so long, as for the kernel's hung-task watch: into $T/waits. Not one in
# sync(2): it waits for every file system of the machine, those of other tests too. What hangs on ours hangs others as well.
watch() {
	local now path state switches stack
	declare -A since=() last=()
	while [ ! -e "$T/stop" ]; do
		now=$SECONDS
		while read -r path state switches; do
			if [ "$state" != D ] || [ "${last[$path]-}" != "$switches" ]; then
				last[$path]=$switches since[$path]=$now
			elif [ $((now - since[$path])) -gt $hang_s ]; then
				since[$path]=$now
				stack=$(stack_of "${path%/status}")
				[[ $stack != *" ksys_sync "* ]] || continue
				echo "$stack" >>"$T/waits"
				echo "$path $state $switches" >>"$T/suspects"
			fi
		done < <(threads "$cg_mem/cgroup.procs" "$cg_cpu/cgroup.procs")
		sleep 5
	done
}

# The suspects that have not gone on since they were found.
still() {
	threads "$cg_mem/cgroup.procs" "$cg_cpu/cgroup.procs" | grep -Fx -f "$T/suspects"
}
none_still() { ! still >/dev/null; }

# ---- all together ----

ended() { ! kill -0 "$1" 2>/dev/null; }

finish() {
	echo "soak: FAILED: $*"
	exit 1
}

bye() {
	touch "$T/stop"
	daemons | xargs -r kill -CONT
	cow_teardown
	cgroup_remove
}

# What ext4 says of itself when it is built with CONFIG_EXT4_DEBUG, on any device: see docs/TESTING.md.
split_warning='ext4_convert_unwritten_extents_endio:.* finished: extent logical block'

kernel_said() {
	local dev=${DEV#/dev/}
	grep -v "$split_warning" "$T/kernel" |
		grep -E "(I/O error|EXT4-fs (error|warning)).*$dev\\>|task (cowfs|stress-ng).* blocked for more"
}

command -v stress-ng >/dev/null || { echo "soak: no stress-ng here: make deps"; exit 1; }
cow_setup
NAME=vol
at_end bye
cgroup_make || finish "no cgroup with a memory and a CPU controller can be made here"
inside=''
if may_flush || [ -n "${COWFS_SOAK_INSIDE-}" ]; then
	inside=1
else
	echo "soak: no CAP_SYS_RESOURCE: the daemon stays outside the memory limit"
fi
cgroup_memory $limit_mib
cgroup_cpu 60

card_make ext4 900 1024 -J size=8
mount "$CARD" "$MNT"
mkdir "$MNT/fixed" "$MNT/tree" "$MNT/stress" "$T/sums"
for i in $(seq 20); do
	random_file "$MNT/fixed/$i" 2
done
(cd "$MNT" && sha256sum fixed/*) >"$T/fixed.sums"
umount "$MNT"
cow prepare "$CARD" --log-size 96M >/dev/null
attach --ram ${ram_mib}M
mount_volume -o noatime,discard,noinit_itable
for pid in $(daemons); do
	cgroup_enter "$pid"
done

# followed: the kernel's buffer is small, and others write into it, too
background dmesg --follow-new >"$T/kernel"
log_pid=$BG
background commits
background watch
background tree
background tease
tease_pid=$BG
# shellcheck disable=SC2046
background in_cgroup nice stress-ng $(stressors) --temp-path "$MNT/stress" --timeout "${seconds}s" --verify \
	>"$T/stress.log" 2>&1
end=$((SECONDS + seconds))
while kill -0 "$BG" 2>/dev/null && [ ! -e "$T/suspects" ] && [ $SECONDS -lt $((end + 120)) ]; do
	sleep 1
done
# A busy machine makes waits long: what goes on when it has time and memory was slow, and did not hang.
if kill -0 "$BG" 2>/dev/null; then
	touch "$T/calm"
	wait "$tease_pid" || true
	cgroup_memory $((limit_mib * 4))
	[ ! -e "$T/suspects" ] || wait_for 120 none_still || hung="$(still | wc -l) of them hang"
	[ -n "${hung-}" ] || wait_for $((end > SECONDS ? end - SECONDS + 300 : 300)) ended "$BG" || hung="stress-ng does not end"
fi
if [ -n "${hung-}" ]; then
	worker=$(worker_pid)
	for task in "/proc/$worker/task"/*; do
		stack_of "$task"
	done
	if [ -e "$T/waits" ]; then
		echo "soak: these waited for more than $hang_s s:"
		sort "$T/waits" | uniq -c | cut -c1-400
	fi
	# the worker alone: its parent lets go of FUSE, so that who waits gets errors
	kill -9 "$worker" || true
	wait_for 60 ended "$BG" || true
	finish "$hung, with all CPU time and memory; the stacks of the daemon are above"
fi
wait "$BG" || echo "soak: stress-ng: exit $?"
touch "$T/stop"
sleep 1 # the last lines
kill "$log_pid"
wait

grep -E "fail:|error:" "$T/stress.log" | grep -v "out of memory\|OOM" | sort | uniq -c | sort -rn | head -20 || true
! grep -q "errno=5\|Input/output error" "$T/stress.log" || finish "stress-ng met I/O errors"
limits=$(cat "$cg_mem/memory.failcnt" 2>/dev/null || awk '$1 == "max" { print $2 }' "$cg_mem/memory.events")
ok=$(wc -l <"$T/commits") stops=$(wc -l <"$T/stops")
failed=0
[ ! -e "$T/commits.failed" ] || { cat "$T/commits.failed"; failed=$(grep -c . "$T/commits.failed"); }
[ ! -e "$T/waits" ] || { echo "soak: slow: these waited for more than $hang_s s, and went on:"; sort "$T/waits" | uniq -c | cut -c1-400; }
! kernel_said || finish "the kernel complained"
status_of '{alarm, ram_used_bytes, ram_limit_bytes, write_errors, read_errors, lifetime}' >"$T/status"
jq -e '.alarm == "" and .write_errors == 0 and .read_errors == 0' "$T/status" >/dev/null || { cat "$T/status"; finish "status"; }
check_tree "$MNT"
[ ! -e "$T/wrong" ] || finish "wrong content: $(sort -u "$T/wrong" | xargs)"
rm -rf "$MNT/stress"
detach >/dev/null
fsck ext4 >"$T/fsck" || { cat "$T/fsck"; finish "e2fsck"; }
mount -o ro "$CARD" "$MNT"
check_tree "$MNT"
umount "$MNT"
[ ! -e "$T/wrong" ] || finish "wrong content on the card: $(sort -u "$T/wrong" | xargs)"
[ "$ok" -ge $((seconds / 30)) ] || finish "only $ok commits"
[ "$failed" = 0 ] || finish "$failed commits failed"
echo "soak: $seconds s in $limit_mib MiB, $ok commits, $stops stops of the daemon, $(find "$T/sums" -type f | wc -l) changing" \
	"files, memory at its limit $limits times, $(grep "$split_warning" "$T/kernel" | grep -c "(device ${DEV#/dev/})" || true) extents split late: all right"
jq -c '.lifetime | {absorbed_bytes, written_bytes, commits}' "$T/status"
