#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What a user sees first in each state: `cowctl`, then `cowctl status`, compared with screens.txt, and one of them with the
# sample of docs/USING.md. After a change that is meant: SCREENS=write bats tests/bats/screen.bats, and read the difference.
# seconds: 30

load lib
load away

fresh() { :; }
changed() { random_file "$MNT/a" 5; }
held() { cow commit --hold; }
undo() { cow commit --hold && echo b >"$MNT/b" && cow undo --yes; }
discard() { echo b >"$MNT/b" && cow discard --yes; }
full() { dd if=/dev/zero of="$DEV" bs=1M count=80 seek=10 conv=fsync status=none || true; }
failing() { echo b >"$MNT/b" && eio write 0 1000 && ! cow commit; }
away() { echo b >"$MNT/b" && sync -f "$MNT" && pull && wait_for 10 is_away; }
dead() { cow commit && kill -9 "$(worker_pid)" && wait_for 20 no_daemons; }

# without what differs from run to run
plain() {
	sed -E "s/\\b$OWN_NAME\\b/vol/g; s|$CARD\\b|/dev/sdb2|g; s|$DEV\\b|/dev/loop0|g; s|$MNT\\b|/data|g; s/20[0-9]{2}-[0-9-]{5} [0-9:]{8}/TIME/g
		s/[0-9][0-9,.]* ([KMG]iB|B)\b/SIZE/g; s/\([0-9]+ %\)/(N %)/; s/[0-9][0-9,.]* (writes|s\b)/N \1/; s/ {2,}/  /g; s/ +$//; s/generation [0-9]+/generation N/g"
}

@test "the first screen of each state is the one that is expected" {
	local state
	: >"$T/screens"
	printf '#!/bin/sh\n[ "$1 $2 $3" = "list-timers --output=json cowfs-commit@%s.timer" ] && echo %s\n' \
		"$OWN_NAME" "'[{\"next\":1900000000000000,\"unit\":\"$NAME\"}]'" >"$T/systemctl"
	chmod +x "$T/systemctl"
	PATH=$T:$PATH
	for state in fresh changed held undo discard full failing away dead; do
		IMG='' card_make ext4 200 250
		cow prepare "$CARD" >/dev/null
		stays
		eio_order "$T/eio"
		ATTACKER=$COWFS_BUILD/tests/eioshim.so COWFS_EIO_FILE=$T/eio with_gone attach --ram 64M --pressure fail
		mount_volume -o noatime
		echo first >"$MNT/first"
		cow commit >/dev/null
		"$state" >/dev/null 2>&1 || { echo "$state cannot be made"; return 1; }
		[ $state = full ] || [ $state = away ] || sync -f "$MNT" 2>/dev/null || true
		{
			printf '\n== %s\n$ cowctl\n' "$state"
			cow 2>&1 || echo "exit code $?"
			printf '$ cowctl status\n'
			cow status "$NAME" 2>&1 || echo "exit code $?"
		} | plain >>"$T/screens"
		eio off
		stays
		[ $state != away ] || here_again
		[ $state = dead ] || detach --discard
		umount -q "$MNT" || true
		cow status >/dev/null 2>&1 || true
		loop_down "$CARD"
	done
	[ -z "${SCREENS-}" ] || cp "$T/screens" "$TOP/tests/bats/screens.txt"
	diff -u "$TOP/tests/bats/screens.txt" "$T/screens"
	# the sample of the manual
	sed -n '/^# cowctl status$/,/^```$/p' "$TOP/docs/USING.md" | sed '1d; $d; s/ data$/ vol/' |
		CARD=/dev/loop4 DEV=/dev/loop5 MNT=/srv/data plain >"$T/sample"
	diff -u "$T/sample" <(sed -n '/^== changed$/,/^== held$/p' "$T/screens" | sed -n '/^volume/,/^$/p' | sed '$d')
}
