#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A package upgrade ends no daemon: what people are told of a daemon of another version, and what happens when its worker dies.
# turn: 3

load lib

# Another version: this one, with another first character in its number. (The linker lets other strings be the end of this one.)
setup() {
	cow_setup
	INSTALLED=$(cow --version)
	INSTALLED=${INSTALLED#cowfs }
	BEFORE=9${INSTALLED#?}
	mkdir "$T/before"
	cp "$COWFS_BUILD/cowctl" "$T/before/"
	LC_ALL=C sed "s/${INSTALLED//./\\.}/$BEFORE/g" "$COWFS_BUILD/cowfs" >"$T/before/cowfs"
	chmod +x "$T/before/cowfs"
	card_prepared ext4 64 128
}

teardown() { cow_teardown; }
attach_before() { COWFS_BUILD=$T/before attach "$@"; }
replaced() { [ "$(status_of .replaced)" = 1 ]; }

@test "version: status, cowctl alone and a login tell of a daemon from before an upgrade" {
	local line="version $BEFORE serves until it is detached; $INSTALLED is installed"
	attach_before
	[ "$(status_of .version)" = "$BEFORE" ]
	run -0 cow status
	grep -qx "version     ${line#version }" <<<"$output"
	run -0 cow
	grep -qx "cowfs: vol: $line" <<<"$output"
	run -0 cow status --brief
	grep -qx "cowfs: vol: $line" <<<"$output"
	# everything is done with the daemon of before
	mount_volume
	commit_word one
	cow diff >/dev/null
	cow wear >/dev/null
	detach
	attach_before --name root
	run -0 cow status --brief
	grep -qx "cowfs: root: version $BEFORE serves until the next boot; $INSTALLED is installed" <<<"$output"
	detach
	attach
	[ "$(status_of .version)" = "$INSTALLED" ]
	run -0 cow status -v
	grep -qx "version     $INSTALLED" <<<"$output"
	run -0 cow
	[[ $output != *version* ]]
	detach
}

# 0.1.0 does not tell the speed of the card
@test "version: the end of the system empties the log of a daemon from before an upgrade" {
	LC_ALL=C sed -i 's/commit_bytes_per_second/xommit_bytes_per_second/' "$T/before/cowfs"
	attach_before
	[ "$(status_of .pressure.commit_bytes_per_second)" = null ]
	mount_volume
	random_file "$MNT/a" 3
	run -0 cow shutdown --within 80s
	[ "$(status_of .log_live_blocks)" = 0 ]
	detach
}

@test "version: a worker of before that dies is replaced by its own version, whatever is installed" {
	local major minor rest pid
	IFS=.- read -r major minor rest </proc/sys/kernel/osrelease
	[ $((major * 1000 + minor)) -ge 6009 ] || skip "a kernel before 6.9"
	attach_before --on-crash replace
	# as a package does it
	cp "$COWFS_BUILD/cowfs" "$T/before/cowfs.new"
	mv "$T/before/cowfs.new" "$T/before/cowfs"
	pid=$(worker_pid)
	kill -9 "$pid"
	wait_for 20 replaced
	[ "$(worker_pid)" != "$pid" ]
	[ "$(status_of .version)" = "$BEFORE" ]
	detach
}
