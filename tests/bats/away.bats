#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A card that is pulled out, and comes back as another device. The daemon's card is a loop device that is gone for the daemon alone
# (tests/tools/goneshim.c); what comes back is another loop device on the same file. The daemon looks at every device of the
# machine that has the card's size and is not in use, so these cards have a size that no other test uses.
# seconds: 80

load lib
load away

@test "away: pulled, back under another name, and the volume goes on" {
	local generation
	protected
	echo before >"$MNT/new"
	sync -f "$MNT"
	forget
	generation=$(status_of .generation)
	pull
	echo more | dd of="$MNT/new" conv=notrunc status=none
	sync -f "$MNT"
	wait_for 5 is_away
	# what a person sees
	run -3 cow status "$NAME"
	grep -Eq "^AWAY +the card is, for [0-9]+ s: $CARD was pulled out, or has reset$" <<<"$output"
	grep -Eq "^ +reads that RAM cannot answer wait, writes go to RAM, commits wait; reads fail after 5 min$" <<<"$output"
	[ "$(status_of .degraded)" = true ]
	[ "$(status_of .away.limit_seconds)" = 300 ]
	brief() { cow status --brief >"$T/brief" || [ $? = 3 ] && grep -q 'AWAY' "$T/brief"; }
	wait_for 5 brief # a second behind
	run -3 cow status --brief
	[[ $output == *"THE CARD IS AWAY for "*"$CARD was pulled out, or has reset"* ]]
	[[ $output != *ATTENTION* ]]
	run -3 cow
	[[ $output == *"next:"*"plug the card in again"* && $output != *"cowctl commit"* && $output != *"cowctl top"* ]]
	fails 5 'the card is away for ' top
	cow wear --prometheus - >"$T/m"
	"$BATS_TEST_DIRNAME/../tools/promcheck.py" <"$T/m"
	grep -qxF "cowfs_degraded{volume=\"$NAME\"} 1" "$T/m"
	grep -Eqx "cowfs_card_away_seconds\{volume=\"$NAME\"\} [0-9]+" "$T/m"
	run -0 cow status --follow --once
	[[ $output == *"$NAME away for "* ]]
	# what a script sees
	fails 5 'the card is away .*: nothing is lost, everything stays in RAM' commit "$NAME"
	fails 5 'the card is away' commit "$NAME" --json
	[ "$(jq -r .code <<<"$output")" = ENOMEDIUM ]
	[ "$(status_of .generation)" = "$generation" ]
	back_again
	[ "$(status_of .device)" = "$LOOP" ]
	[ "$(status_of .away.times)" = 1 ]
	[ "$(cksum <"$MNT/base")" = "$SUM" ]
	# the commit that ended with 5 is made
	committed() { [ "$(status_of .generation)" -gt "$generation" ]; }
	wait_for 10 committed
	healthy() { [ "$(status_of .degraded)" = false ]; }
	wait_for 5 healthy
	run -0 cow status "$NAME"
	grep -Eq '^away +1 time since attach, not now$' <<<"$output"
	tree_sum "$MNT" >"$T/sum"
	detach
	wait_for 5 released "$LOOP"
	loop_down "$FIRST"
	CARD=$LOOP
	whole_with ext4 "$(cat "$T/sum")"
}

# bats test_tags=blunt
@test "away: pulled in the middle of a commit, at every write and flush of it" {
	local n=1 generation made
	protected
	while :; do
		dd if=/dev/urandom of="$MNT/base" bs=4096 count=40 seek=$((10 * n)) conv=notrunc status=none
		random_file "$MNT/new$n" 1
		SUM=$(tree_sum "$MNT")
		generation=$(status_of .generation)
		stays
		pull "$n"
		made=0
		cow commit --checkpoint >/dev/null 2>&1 || made=$?
		[ $made != 0 ] || break # it has no more writes
		[ $made = 5 ] || { echo "write $n: exit code $made"; cow status; false; }
		back_again
		loop_down "$CARD" # otherwise it comes back as well
		CARD=$LOOP
		committed() { [ "$(status_of .generation)" -gt "$generation" ] && [ "$(status_of .away.commit_waits)" = false ]; }
		wait_for 15 committed
		forget
		[ "$(tree_sum "$MNT")" = "$SUM" ]
		n=$((n + 1))
	done
	say "gone at each of $((n - 1)) writes and flushes of a commit, and each was made"
	[ $n -gt 5 ]
	# the last of them was followed by nothing
	if is_gone; then
		wait_for 5 is_away
		back_again
		CARD=$LOOP
	fi
	stays
	detach_whole ext4
	[ "$(bare_sum)" = "$SUM" ]
}

@test "away: another card, and an older copy, are not taken, and are left as they were" {
	local other sum
	protected
	cp --sparse=always "$IMG" "$T/older.img"
	echo x >"$MNT/newer"
	sync -f "$MNT"
	cow commit >/dev/null
	# a card of the same size with a log of its own
	cp --sparse=always "$T/older.img" "$T/other.img"
	losetup -f --show "$T/other.img" >"$T/name"
	other=$(cat "$T/name")
	cow prepare --force "$other" >/dev/null
	loop_down "$other"
	pull_away
	sum=$(image_sum "$T/other.img")
	back "$T/other.img"
	other=$LOOP
	wait_for 10 refuses "^${other#/dev/}: it has another state"
	wait_for 5 released "$other"
	run -3 cow status "$NAME"
	grep -Eq "^ +not taken for it: ${other#/dev/}: " <<<"$output"
	back "$T/older.img"
	wait_for 10 refuses "^${LOOP#/dev/}: it has another state"
	wait_for 5 released "$LOOP"
	is_away
	[ "$(image_sum "$T/other.img")" = "$sum" ]
	back_again
	[ "$(status_of .device)" = "$LOOP" ]
	[ "$(cat "$MNT/newer")" = x ]
	detach
}

@test "away: a card that was changed meanwhile without cowfs is not taken" {
	protected
	umount_volume
	pull_away
	cp --sparse=always "$IMG" "$T/pc.img"
	mkdir "$T/pc"
	mount -o loop,sizelimit=$((100 << 20)) "$T/pc.img" "$T/pc" # another size: it is not taken before it is changed
	echo pc >"$T/pc/pc"
	umount "$T/pc"
	back "$T/pc.img"
	wait_for 10 refuses "^${LOOP#/dev/}: it has another state"
	is_away
	back_again
	cow detach "$NAME"
	wait_for 20 no_daemons
}

# bats test_tags=blunt
@test "away: of two that have the state none is taken, until one is removed" {
	local one two
	protected
	echo before >"$MNT/before"
	sync -f "$MNT"
	pull_away
	cp --sparse=always "$IMG" "$T/copy.img"
	# both at once
	back
	one=$LOOP
	back "$T/copy.img"
	two=$LOOP
	twice() { refuses 'a second device has the same state' || is_here; }
	wait_for 10 twice
	if is_here; then
		# it was found between the two
		detach
		return
	fi
	is_away
	run -3 cow status "$NAME"
	grep -Eq "^ +not taken for it: loop[0-9]+: a second device has the same state: remove one of the two$" <<<"$output"
	released "$one" || wait_for 5 released "$one"
	loop_down "$one"
	wait_for 30 is_here # each look at two is followed by a pause of 10 s
	[ "$(status_of .device)" = "$two" ]
	[ "$(blockdev --getro "$two")" = 1 ] # as any card outside of a commit
	[ "$(cat "$MNT/before")" = before ]
	commit_word after
	detach
	CARD=$two
	fsck ext4
	mount -o ro "$two" "$MNT"
	[ "$(cat "$MNT/after")" = after ]
}

@test "away: a card whose content is in a partition of another disk, at another place" {
	protected
	echo before >"$MNT/before"
	sync -f "$MNT"
	pull_away
	truncate -s "$(($(stat -c %s "$IMG") + 2097152))" "$T/disk.img"
	dd if="$IMG" of="$T/disk.img" bs=1M seek=1 conv=notrunc,sparse status=none
	back "$T/disk.img"
	addpart "$LOOP" 1 2048 "$(($(stat -c %s "$IMG") / 512))"
	here_again
	[ "$(status_of .device)" = "${LOOP}p1" ]
	[ "$(cksum <"$MNT/base")" = "$SUM" ]
	[ "$(cat "$MNT/before")" = before ]
	detach
	fsck ext4 "${LOOP}p1"
	mount -o ro "${LOOP}p1" "$MNT"
	[ "$(cat "$MNT/before")" = before ]
	umount "$MNT"
	delpart "$LOOP" 1
}

@test "away-limit: 0 gives errors at once, and a card that comes back is still taken for commits" {
	protected --away-limit 0
	echo before >"$MNT/new"
	sync -f "$MNT"
	forget
	pull
	echo after1 | dd of="$MNT/new" conv=notrunc status=none
	sync -f "$MNT"
	wait_for 5 is_away
	given_up() { [ "$(status_of .away.given_up)" = true ]; }
	wait_for 5 given_up
	run ! timeout 20 dd if="$DEV" of=/dev/null bs=4096 skip=20000 count=1 iflag=direct
	[[ $(status_of .alarm) == "the card is away and no longer waited for"* ]]
	run -3 cow status "$NAME"
	grep -Eq 'reads that RAM cannot answer fail' <<<"$output"
	[ "$(cat "$MNT/new")" = after1 ]
	back_again
	[ "$(status_of .alarm)" = "" ]
	cow commit
	detach
}

@test "away-limit: what may be set, and what it says" {
	local text
	for text in -1 8000h 'for ever' never ''; do
		fails 2 'is not a time from 0s to 604800s, nor forever' attach /dev/null --away-limit "$text"
	done
	protected --away-limit forever
	[ "$(status_of .away.limit_seconds)" = null ]
	pull_away
	run -3 cow status "$NAME"
	grep -Eq 'commits wait; without a limit$' <<<"$output"
	back_again
	detach
}

@test "shutdown and detach while away: which card, what is lost without it, and a time to wait" {
	local generation
	protected
	echo lost >"$MNT/new"
	sync -f "$MNT"
	umount_volume
	generation=$(status_of .generation)
	pull_away
	fails 2 'is not a time' shutdown --away-wait never
	fails 2 'is not a time' detach "$NAME" --away-wait never
	# without it
	run -5 --separate-stderr cow shutdown --away-wait 2s
	[[ $stderr == *"$NAME: THE CARD IS AWAY for "*"$CARD was pulled out, or has reset"* ]]
	[[ $stderr == *"plug in the card, ext4 on 100.0 MiB, which was $CARD"* ]]
	grep -Eq 'without it [0-9.]+ KiB are lost: what came after the commit of 20' <<<"$stderr"
	[[ $stderr == *"it is waited for, 2 s at most"*"ends WITHOUT the card"*"NOT COMMITTED: the card is away"*"The card holds generation $generation."* ]]
	run -5 --separate-stderr cow shutdown --within 8s
	[[ $stderr == *"it is waited for, 4 s at most"*"ends WITHOUT the card"* ]]
	fails 5 'the card is away' detach "$NAME"
	[ "$(status_of .generation)" = "$generation" ]
	# and with it
	background bash -c "until pgrep -fx '.*cowctl detach $NAME --away-wait 30s'; do sleep 0.1; done; sleep 5; losetup -f --show '$IMG'"
	run -0 --separate-stderr cow detach "$NAME" --away-wait 30s
	[[ $stderr == *"THE CARD IS AWAY"*"the card is back"* ]]
	[[ $output == *"everything is on the card as generation"* ]]
	wait_for 20 no_daemons
	mount -o ro,loop "$IMG" "$MNT"
	[ "$(cat "$MNT/new")" = lost ]
}

@test "shutdown while away: what waits for the card gets an error, and the card is still taken" {
	AWAY_LIMIT=90s protected
	forget
	pull_away
	background bash -c "cat '$MNT/base' >/dev/null 2>'$T/error'"
	sleep 1
	kill -0 "$BG"
	run -5 --separate-stderr cow shutdown --away-wait 2s
	[[ $stderr == *"ends WITHOUT the card"* ]]
	wait_for 20 grep -q 'Input/output error' "$T/error"
	[ "$(status_of .away.given_up)" = true ]
	back_again
	forget
	[ "$(cksum <"$MNT/base")" = "$SUM" ]
}

@test "events: away and back, and a contact that flaps is told once a minute" {
	local old
	protected
	background "$COWFS_BUILD/cowctl" status --follow >"$T/events"
	wait_for 5 grep -q poll "/proc/$BG/wchan" # it has looked
	for _ in 1 2; do
		stays
		pull_away
		wait_for 20 grep -q "^$NAME away" "$T/events"
		back_again
		old=$CARD CARD=$LOOP
		loop_down "$old"
		wait_for 20 grep -q "^$NAME back" "$T/events"
	done
	sleep 1.5 # the file is a second behind
	cat "$T/events"
	grep -Eq "^$NAME away for [0-9]+ s: /dev/loop[0-9]+ was pulled out, or has reset$" "$T/events"
	grep -Eq "^$NAME back after [0-9]+ s, 1 time since attach$" "$T/events"
	[ "$(grep -c "^$NAME away" "$T/events")" = 1 ]
	[ "$(grep -c "^$NAME back" "$T/events")" = 1 ]
	run ! grep -Eq 'degraded|alarm' "$T/events"
	[ "$(status_of .away.times)" = 2 ]
	detach
}
