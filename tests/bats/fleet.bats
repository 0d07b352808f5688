#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What Prometheus and Grafana get (packaging/prometheus), with promtool of Debian. With a real server: make check-fleet.
# turn: 3

load lib

setup() {
	cow_setup
	SHIPPED=$TOP/packaging/prometheus
	PROMTOOL=$TOP/build/prometheus/usr/bin/promtool
	[ -x "$PROMTOOL" ] || { echo "no promtool: make deps"; return 1; }
}

# Ten days with a commit each, by a clock that is ahead: a projection needs seven.
ten_days() {
	local day
	card_prepared vfat 16 32 -- --log-size 8M --erase-block 1M
	export COWFS_CLOCK=$T/clock
	: >"$COWFS_CLOCK"
	truncate -s 8 "$COWFS_CLOCK"
	LD_PRELOAD=$COWFS_BUILD/tests/clock.so attach --ram 64M
	for day in {1..10}; do
		python3 -c 'import struct, sys; open(sys.argv[1], "r+b").write(struct.pack("q", int(sys.argv[2]) * 86400))' "$COWFS_CLOCK" "$day"
		dd if=/dev/urandom of="$DEV" bs=64k seek=40 count=4 oflag=direct conv=notrunc status=none
		LD_PRELOAD=$COWFS_BUILD/tests/clock.so cow commit vol
	done
	LD_PRELOAD=$COWFS_BUILD/tests/clock.so cow wear --prometheus - >"$T/m"
}

@test "fleet: promtool finds nothing in the metrics, and rules and dashboard name what is there" {
	ten_days
	run -0 "$PROMTOOL" check metrics <"$T/m"
	[ -z "$output" ]
	grep -q '^cowfs_projected_life_seconds{volume="vol",bound="low"} [0-9]' "$T/m"
	run -0 "$TOP/tests/fleet/shipped.py" "$PROMTOOL" "$T/m"
	echo "$output"
	# another name, another label, another value
	for change in s/cowfs_dirty_bytes/cowfs_dirt_bytes/ s/bound=/end=/ s/\"low\"/\"lower\"/ s/how=/in=/; do
		sed "$change" "$T/m" >"$T/other"
		run -1 "$TOP/tests/fleet/shipped.py" "$PROMTOOL" "$T/other"
	done
}

@test "fleet: the alert rules are valid, and fire when they should" {
	run -0 "$PROMTOOL" check rules "$SHIPPED/cowfs.rules.yml"
	run -0 "$PROMTOOL" test rules "$SHIPPED/cowfs.rules.test.yml"
	cp "$SHIPPED"/*.yml "$T"
	sed -i 's/> 0.8/> 0.9/' "$T/cowfs.rules.yml"
	run -1 "$PROMTOOL" test rules "$T/cowfs.rules.test.yml"
}
