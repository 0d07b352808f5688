# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Folders that take names for equal whose letters differ in case only: diff, commit PATH and revert. The machine of the tests
# may have no kernel that mounts them. On the second card.
# guests: debian13-initramfs
DATA_MIB=400 LIMIT=1500 STEP_LIMIT=1400 MEM=900

shows() { # FOLDER NAMES CONTENT
	# shellcheck disable=SC2012 # plain names
	is "$1: names" "$(ls "$1" | tr '\n' ' ')" "$2"
	is "$1: content" "$(cat "$1"/*)" "$3"
}

step_1() {
	L=$(losetup -f --show -o $((8 << 20)) --sizelimit $((280 << 20)) "$(data_card)")
	must mke2fs -q -F -t ext4 -O casefold -E encoding=utf8 "$L" 150M
	must cowctl prepare "$L"
	DEV=$(cowctl attach "$L" --name fold) || fail "no volume"
	mkdir -p /m /v
	must mount -t ext4 "$DEV" /m
	mkdir /m/d
	must chattr +F /m/d
	echo 1 >/m/d/Name
	must cowctl commit fold
	# a rename between two names that are equal does nothing
	must mv /m/d/Name /m/d/x
	must mv /m/d/x /m/d/NAME
	echo 2 >/m/d/name
	is diff "$(cowctl diff fold | tr -s ' ' | grep -c '^R.*Name -> .*NAME')" 1
	must cowctl commit /m/d
	must cowctl view fold /v
	shows /v/d "NAME " 2
	is "folded in the view" "$(cat /v/d/nAmE)" 2
	must umount /v
	must mv /m/d/NAME /m/d/x
	must mv /m/d/x /m/d/nAme
	echo 3 >/m/d/name
	echo 4 >/m/d/other
	must cowctl revert --yes /m/d
	shows /m/d "NAME " 2
	is "folded after the revert" "$(cat /m/d/naMe)" 2
	mkdir /m/e
	must chattr +F /m/e
	echo 5 >/m/e/X
	must cowctl commit /m/e
	must cowctl view fold /v
	shows /v/e "X " 5
	is "a new folder folds in the view" "$(cat /v/e/x)" 5
	must umount /v
	rm -r /m/e
	must cowctl revert --yes /m/e
	is "a folder that came back folds" "$(cat /m/e/x)" 5
	must umount /m
	must cowctl detach fold
	must e2fsck -fn "$L"
}
