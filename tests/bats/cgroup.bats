#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Started in a cgroup with little memory, the daemon leaves it, or refuses to be there.

load lib

setup() {
	cow_setup
	MEM='' V2=''
}

teardown() {
	local dir bad=0
	cow_teardown || bad=1
	for dir in $MEM $V2; do
		rmdir "$dir" || bad=1
	done
	return $bad
}

# MEM: a cgroup of 300 MiB; V2: one of the unified hierarchy, maybe the same
cgroups_make() {
	local root
	root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
	if [ -n "$root" ]; then
		V2=$root/cowfs-bats.$$
		mkdir "$V2" 2>/dev/null || V2=''
	fi
	root=$(awk '$3 == "cgroup" && "," $4 "," ~ /,memory,/ { print $2; exit }' /proc/self/mounts)
	if [ -n "$root" ]; then
		MEM=$root/cowfs-bats.$$
		mkdir "$MEM" 2>/dev/null && echo 300M >"$MEM/memory.limit_in_bytes" && return
		MEM=''
	elif [ -n "$V2" ]; then
		echo +memory >"${V2%/*}/cgroup.subtree_control" 2>/dev/null && echo 300M >"$V2/memory.max" && MEM=$V2 && V2='' && return
	fi
	skip "no cgroup with a memory controller can be made here"
}

limited() {
	bash -c 'for dir in $1; do echo $$ >"$dir/cgroup.procs" || exit 99; done; shift; exec "$@"' - "$MEM $V2" "$@"
}

may_flush() {
	local caps
	caps=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
	[ $((0x$caps >> 24 & 1)) = 1 ]
}

# as limited, where nobody can leave: cgroups are read-only; and without CAP_SYS_RESOURCE
captive() {
	limited unshare --mount --propagation private bash -c '
		for dir in $(awk "\$3 ~ /^cgroup/ { print \$2 }" /proc/self/mounts); do
			mount -o remount,bind,ro "$dir" || exit 99
		done
		exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource "$@"' - "$@"
}

all_outside() {
	local pid n=0
	for pid in $(daemons); do
		n=$((n + 1))
		! grep -F "/cowfs-bats.$$" "/proc/$pid/cgroup" || return
	done
	[ $n = 3 ] # parent, worker and its broker
}

@test "cgroup: cowctl attach, the daemon alone and mount.cowfs leave a limited one" {
	cgroups_make
	card_prepared ext4 100 150

	DEV=$(limited "$COWFS_BUILD/cowctl" attach --name vol "$CARD") NAME=vol
	all_outside
	mount_volume
	random_file "$MNT/a" 5
	detach

	DEV=$(limited "$COWFS_BUILD/cowfs" --name vol "$CARD" 2>"$T/err")
	all_outside
	run ! grep -q cgroup "$T/err"
	detach --discard

	limited "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o rw,name=vol
	all_outside
	umount "$MNT"
	[ ! -e "$COWFS_RUNDIR/vol" ] || cow detach vol
	wait_for 20 no_daemons
}

@test "cgroup: in the foreground it stays, with a warning or not at all" {
	local pid
	cgroups_make
	card_prepared ext4 100 150
	if may_flush; then
		background limited "$COWFS_BUILD/cowfs" --foreground --name vol "$CARD" >"$T/out" 2>"$T/err"
		wait_for 20 test -s "$T/out"
		dmesg | grep -q "cowfs: cgroup /.*cowfs-bats.$$ limits the daemon.s memory to 300 MiB" || grep "limits the daemon.s memory" "$T/err"
		cow detach vol
		wait_for 20 no_daemons
	fi
	run -1 --separate-stderr limited timeout -s KILL 20 setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource \
		"$COWFS_BUILD/cowfs" --foreground --name vol "$CARD"
	[[ $stderr == *"cgroup /"*"limits memory to 300 MiB"*"start it outside"* ]]
	[ ! -e "$COWFS_RUNDIR/vol" ]
	no_daemons
}

@test "cgroup: a limited one that cannot be left is refused" {
	cgroups_make
	card_prepared ext4 100 150
	run -1 --separate-stderr captive "$COWFS_BUILD/cowctl" attach --json --name vol "$CARD"
	jq -e '.exit == 1 and (.error | test("limits memory to 300 MiB.*start it outside"))' <<<"$output"
	run -1 --separate-stderr captive "$COWFS_BUILD/cowfs" --name vol "$CARD"
	[[ $stderr == *"limits memory to 300 MiB"* ]]
	[ ! -e "$COWFS_RUNDIR/vol" ]
	no_daemons
	# and not because of the rest of it
	DEV=$(unshare --mount --propagation private setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource \
		"$COWFS_BUILD/cowctl" attach --name vol "$CARD") NAME=vol
	detach
}
