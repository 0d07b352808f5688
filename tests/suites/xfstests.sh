#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# xfstests with TEST and SCRATCH on cowfs while both are committed every 2 seconds, against the same on plain loop
# devices of the same size. What differs between the two, also in each of three repetitions, must be in xfstests.expected. As root; hours.
#
#	XFSTESTS=DIR	the suite (default: build/suites/xfstests); if it is not there it is cloned, if it is not built it is built
#	FS="ext4 xfs"	file systems; btrfs as well
#	COMMIT_S=2	seconds between commits
#	TESTS=LIST	of tests ("generic/001 ext4/003"); default "-g quick"
#	RESULTS=DIR	where results are left (default: build/xfstests)
# shellcheck disable=SC2034,SC2154 # variables of common.bash
set -eu
suite=xfstests
# shellcheck disable=SC1091
. "$(dirname "$0")/common.bash"
suite_source "${XFSTESTS:-$COWFS_BUILD/suites/xfstests}" "${SUITE_URL:-https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git}" \
	ltp/fsstress make -j2
suite_begin "$@"
# shellcheck disable=SC2206
selected=(${TESTS:--g quick})

# The suite asks for users of its own: here only this mount namespace has them.
users() {
	local name
	cp /etc/passwd /etc/group "$T"
	for name in fsgqa fsgqa2 123456-fsgqa; do
		grep -q "^$name:" "$T/passwd" && continue
		echo "$name:x:$((60100 + ++added)):$((60100 + added))::/tmp:/bin/bash" >>"$T/passwd"
		echo "$name:x:$((60100 + added)):" >>"$T/group"
	done
	mount --bind "$T/passwd" /etc/passwd
	mount --bind "$T/group" /etc/group
}

# "TEST ok|fail|notrun" of each test that has ended, from the suite's report
outcome() {
	awk -F'"' '/<testcase / { if (name) print name, how; name = $4; how = "ok" }
		/<skipped/ { how = "notrun" } /<failure/ { how = "fail" } END { if (name) print name, how }' "$1"
}

# run MODE FS FOLDER TEST...
run() {
	local mode=$1 fs=$2 out=$3/$1 begin=$SECONDS
	shift 3
	rm -rf "$out"
	mkdir -p "$out"
	disks_make "$mode" "$fs" test scratch
	mkdir "$disks/TEST" "$disks/SCRATCH"
	export FSTYP=$fs TEST_DEV=${DISKS[0]} TEST_DIR=$disks/TEST SCRATCH_DEV=${DISKS[1]} SCRATCH_MNT=$disks/SCRATCH
	export RESULT_BASE=$out HOST_OPTIONS=$disks/no-file
	awk -v fs="$fs" '$1 !~ /^#/ && ($2 == fs || $2 == "*") && $3 == "never" { print $1 }' \
		"$here/$suite.expected" >"$disks/never"
	(cd "$source" && ./check -R xunit -E "$disks/never" "$@") >"$out/check.out" 2>&1 </dev/null || true
	wait_for 60 unmounted "$TEST_DIR" || finish "$fs $mode: TEST stays busy"
	wait_for 60 unmounted "$SCRATCH_MNT" || finish "$fs $mode: SCRATCH stays busy"
	[ -s "$out/result.xml" ] || { tail "$out/check.out"; finish "$fs $mode: the suite ran no test"; }
	outcome "$out/result.xml" >"$out/outcome"
	echo "$fs $mode: $(counts "$out/outcome") in $((SECONDS - begin)) s"
	disks_end "$mode" "$fs" test
}

unmounted() { ! mountpoint -q "$1" || umount "$1"; }

added=0 bad=0
users
for fs in ${FS:-ext4 xfs}; do
	top=$results/$fs
	both run "$fs" "$top" "${selected[@]}"
	differences "$top/plain/outcome" "$top/cowfs/outcome" >"$top/differences"
	sed 's/^/  differs (plain, cowfs): /' "$top/differences"
	unexpected "$fs" <"$top/differences" >"$top/unexpected"
	for again in 1 2 3; do
		[ -s "$top/unexpected" ] || break
		mapfile -t names < <(cut -d' ' -f1 "$top/unexpected")
		both run "$fs" "$top/again$again" "${names[@]}"
		differences "$top/again$again/plain/outcome" "$top/again$again/cowfs/outcome" >"$top/unexpected"
	done
	[ -s "$top/unexpected" ] || continue
	sed 's/^/  differs each time, unexpected (plain, cowfs): /' "$top/unexpected"
	bad=1
done
[ $bad = 0 ] || finish "differences that $here/$suite.expected does not have; results in $results"
echo "xfstests: no unexpected difference; results in $results"
