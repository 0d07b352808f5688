# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What the drivers of other projects' test suites share: disks that are plain loop devices or volumes on cowfs with
# commits all the time, and the comparison of the two. A driver sets `suite`, sources this and calls suite_begin "$@".
#
#	suite_source FOLDER URL PROGRAM COMMAND...	clones the suite into FOLDER if it is not there, and builds it there with
#					COMMAND if it has no PROGRAM yet; sets source
#	disks_make MODE FS NAME...	MODE plain or cowfs: devices of $disk_mib MiB with an empty FS, in DISKS; on cowfs all
#					are committed every $commit_s seconds (COMMIT_S, default 2) from then on
#	disks_end MODE FS NAME...	prints how many commits there were, and takes the disks away; those that are named
#					must be a clean FS then, on the bare card
#	both FUNCTION [ARGUMENT]...	calls it as "FUNCTION plain ..." and "FUNCTION cowfs ..." at the same time
#	counts FILE		how many of each result, of "TEST RESULT" lines
#	differences A B		prints "TEST A-RESULT B-RESULT" for what differs between two files of "TEST RESULT"
#	unexpected FS		leaves of such lines those that $suite.expected does not have for FS
#
# shellcheck disable=SC2034,SC2153 # variables of lib.bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
COWFS_BUILD=$(cd "${COWFS_BUILD:-$here/../../build}" && pwd)
commit_s=${COMMIT_S:-2} disk_mib=4096 log_mib=1024 ram=1G COW_LIMIT=600

# what bats gives to lib.bash
bats_require_minimum_version() { :; }
skip() { finish "$*"; }
exec 3>&1
# shellcheck disable=SC1091
. "$here/../bats/lib.bash"

finish() {
	echo "${suite:?}: FAILED: $*"
	exit 1
}

suite_source() {
	local url=$2 program=$3
	source=$(realpath -m "$1")
	[ ! -x "$source/$program" ] || return 0
	if [ ! -e "$source" ]; then
		echo "$suite: cloning $url"
		mkdir -p "$(dirname "$source")"
		git clone -q --depth 1 "$url" "$source" ||
			finish "not cloned; where there is no network, set ${suite^^} to the folder of its source"
	fi
	echo "$suite: building in $source"
	(cd "$source" && "${@:4}") >"$source.log" 2>&1 || { tail "$source.log"; finish "does not build: $source.log"; }
}

# In namespaces of our own: nothing that is mounted here is seen outside, nothing outside is hit when a suite ends
# processes by their names, and nothing is left running.
suite_begin() {
	[ -n "${SUITE_NAMESPACE-}" ] || SUITE_NAMESPACE=1 exec unshare --mount --propagation private \
		--pid --fork --kill-child --mount-proc "$0" "$@"
	cow_setup
	unset COWFS_SECCOMP
	trap suite_end EXIT
	results=${RESULTS:-$COWFS_BUILD/$suite}
	mkdir -p "$results"
}

suite_end() {
	set +e
	touch "$T/stop"
	cow_teardown
}

disks_make() {
	local mode=$1 fs=$2 name log=0
	shift 2
	disks=$T/$mode DISKS=()
	rm -rf "$disks"
	mkdir "$disks"
	[ "$mode" = plain ] || log=$((log_mib + 64))
	for name; do
		IMG=$disks/$name.img
		card_make "$fs" $disk_mib $((disk_mib + log)) || finish "$fs $mode: no card for $name"
		DEV=$CARD
		if [ "$mode" = cowfs ]; then
			cow prepare "$CARD" --log-size ${log_mib}M >/dev/null || finish "$fs: $name cannot be formatted"
			attach --name "$name" --ram $ram || finish "$fs: $name cannot be attached"
		fi
		echo "$name $CARD" >>"$disks/list"
		DISKS+=("$DEV")
	done
	touch "$disks/commits" "$disks/refused"
	[ "$mode" = plain ] || background commits
}

# A volume may hold no valid file system just then: a suite makes new ones and damages them.
commits() {
	local name _
	while [ ! -e "$disks/stop" ]; do
		while read -r name _; do
			if cow commit "$name" --json >"$disks/answer" 2>&1; then
				echo "$name" >>"$disks/commits"
			else
				echo "$name: $(jq -r .error "$disks/answer" 2>/dev/null || cat "$disks/answer")" >>"$disks/refused"
			fi
		done <"$disks/list"
		for ((i = 0; i < commit_s * 10; i++)); do
			[ ! -e "$disks/stop" ] || break
			sleep 0.1
		done
	done
}

disks_end() {
	local mode=$1 fs=$2 name card how check=" ${*:3} "
	touch "$disks/stop"
	if [ "$mode" = cowfs ]; then
		wait "$BG" || true
		echo "$fs: $(wc -l <"$disks/commits") commits, $(wc -l <"$disks/refused") refused"
		sed 's/[0-9]\+/N/g' "$disks/refused" | sort | uniq -c | sort -rn | head -5
	fi
	while read -r name card; do
		if [ "$mode" = cowfs ]; then
			[[ $check == *" $name "* ]] && how=() || how=(--discard)
			cow detach "$name" "${how[@]}" >/dev/null || finish "$fs: $name cannot be detached"
			wait_for 20 no_volume "$name" || finish "$fs: the daemon of $name goes on"
		fi
		[[ $check != *" $name "* ]] || fsck "$fs" "$card" >"$disks/fsck" 2>&1 ||
			{ tail -20 "$disks/fsck"; finish "$fs $mode: $name is not clean at the end"; }
		loop_down "$card" || finish "$fs $mode: $card stays in use"
	done <"$disks/list"
	rm "$disks"/*.img
}

no_volume() { [ ! -S "$COWFS_RUNDIR/$1/control" ]; }

both() {
	local plain
	( "$1" plain "${@:2}" ) &
	plain=$!
	( "$1" cowfs "${@:2}" ) || finish "$fs: not run to the end"
	wait $plain || finish "$fs: not run to the end"
}

counts() {
	awk '$1 !~ /:plan$/ { n[$2]++ } END { for (r in n) print n[r], r }' "$1" | sort -k 2 -r | paste -sd, | sed 's/,/, /g'
}

differences() {
	LC_ALL=C join -a 1 -a 2 -e missing -o 0,1.2,2.2 <(LC_ALL=C sort "$1") <(LC_ALL=C sort "$2") | awk '$2 != $3'
}

unexpected() {
	awk -v fs="$1" 'NR == FNR { if ($1 !~ /^#/ && ($2 == fs || $2 == "*") && $3 == "differs") known[$1] = 1; next }
		!($1 in known)' "$here/$suite.expected" -
}
