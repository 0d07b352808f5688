#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl commit --all: several volumes as of one moment.
# bats file_tags=commands

load lib

# three NAME...: a card, a volume and a mount each: CARDS, IMGS, DEVS, DIRS by name.
volumes() {
	local name
	declare -gA CARDS=() IMGS=() DEVS=() DIRS=()
	for name; do
		IMG=$T/$name.img
		card_make ext4 64 110 -J size=4
		cow format "$CARD"
		attach --name "$name"
		CARDS[$name]=$CARD IMGS[$name]=$IMG DEVS[$name]=$DEV DIRS[$name]=$T/$name
		mkdir -p "$T/$name"
		mount "$DEV" "$T/$name"
	done
	NAME=''
}

generation_of() {
	NAME=$1 status_of .generation
}

@test "joint: all volumes as of one moment, each with its own bill" {
	local name
	volumes a b c
	# a number goes to each volume in turn; no volume may be two ahead of another in what was committed
	writer >"$T/writer.log" 2>&1 3>&- &
	BG=$!
	for _ in 1 2 3 4 5; do
		run -0 cow commit --all
		[[ $output == *"3 volumes committed together, frozen for "* ]]
	done
	kill "$BG"
	wait "$BG" || true
	run -0 --separate-stderr cow commit --all --json
	jq -e '.ok and .schema == 1 and (.volumes | length) == 3 and .frozen_seconds < 2 and
		([.volumes[].name] | sort) == ["a", "b", "c"] and all(.volumes[]; .ok and .generation > 0)' <<<"$output"
}
