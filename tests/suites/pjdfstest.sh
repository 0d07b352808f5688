#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# pjdfstest on cowfs while the volume is committed every 20 seconds, against the same on a plain loop device of the same
# size. What differs must be in pjdfstest.expected. As root; some minutes.
#
#	PJDFSTEST=DIR	the suite (default: build/suites/pjdfstest); if it is not there it is cloned, if it is not built it is built
#	FS="ext4 xfs"	file systems
#	TESTS=LIST	of its folders or files ("chmod rename/09.t"); default: all
#	RESULTS=DIR	where results are left (default: build/pjdfstest)
# shellcheck disable=SC2034,SC2154 # variables of common.bash
set -eu
suite=pjdfstest
# shellcheck disable=SC1091
. "$(dirname "$0")/common.bash"
suite_source "${PJDFSTEST:-$COWFS_BUILD/suites/pjdfstest}" "${SUITE_URL:-https://github.com/pjd/pjdfstest}" \
	pjdfstest sh -c 'autoreconf -ifs && ./configure && make'
suite_begin "$@"
disk_mib=1024 log_mib=512 ram=512M

# "FILE:NUMBER ok|fail" of each test (todo: the suite expects it to fail), and "FILE:plan" with how many there should have been
outcome() {
	awk '/^[^ ]+\.t \.\.+ *$/ { file = $1; sub(".*/tests/", "", file) } /^1\.\.[0-9]+/ { print file ":plan", $1 }
		/^ok [0-9]/ { print file ":" $2, "ok" }
		/^not ok [0-9]/ { print file ":" $3, / # TODO / ? "todo" : "fail" }' "$1"
}

# run MODE FS FOLDER
run() {
	local mode=$1 fs=$2 out=$3/$1 begin=$SECONDS
	rm -rf "$out"
	mkdir -p "$out"
	disks_make "$mode" "$fs" disk
	mkdir "$disks/mnt"
	mount "${DISKS[0]}" "$disks/mnt" || finish "$fs $mode: the disk cannot be mounted"
	# shellcheck disable=SC2046,SC2086 # a list
	(cd "$disks/mnt" && prove -rv $(printf "$source/tests/%s " ${TESTS:-})) >"$out/prove.out" 2>&1 </dev/null || true
	wait_for 60 umount "$disks/mnt" || finish "$fs $mode: the volume stays busy"
	outcome "$out/prove.out" >"$out/outcome"
	[ -s "$out/outcome" ] || { tail "$out/prove.out"; finish "$fs $mode: the suite ran no test"; }
	echo "$fs $mode: $(counts "$out/outcome") in $((SECONDS - begin)) s"
	disks_end "$mode" "$fs" disk
}

for fs in ${FS:-ext4 xfs}; do
	top=$results/$fs
	both run "$fs" "$top"
	differences "$top/plain/outcome" "$top/cowfs/outcome" | unexpected "$fs" >"$top/differences"
	[ -s "$top/differences" ] || continue
	sed 's/^/  differs, unexpected (plain, cowfs): /' "$top/differences"
	finish "differences that $here/$suite.expected does not have; results in $results"
done
echo "pjdfstest: no unexpected difference; results in $results"
