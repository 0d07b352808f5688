#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl status and the file status.json: fields, permissions, and what is left when a daemon dies.

load lib

protect() {
	volume_mounted ext4 300 340 -J size=8
}

# Is stdin a status with all fields of the manual?
is_status() {
	jq -e '
		def strings: [.name, .device, .log_device, .loop, .mountpoint, .fs_type, .card_identity, .alarm, .version];
		def bools: [.degraded, .readonly, .discard_armed, .super_copy_a_bad, .super_copy_b_bad, .device_grown];
		def numbers: [.protocol, .volume_bytes, .attached_unix_seconds, .ram_limit_bytes, .ram_used_bytes,
			.dirty_blocks, .hole_blocks, .failed_blocks, .generation, .log_live_blocks, .log_room_blocks,
			.log_capacity_blocks, .lag, .read_bytes, .read_errors, .absorbed_writes, .absorbed_bytes, .write_errors,
			.punched_bytes] + (.card | [.write_calls, .written_bytes, .flushes, .writable_seconds,
			.kernel_write_ios, .kernel_written_bytes, .kernel_discarded_bytes, .kernel_flushes,
			.foreign_bytes]) + (.lifetime | [.absorbed_bytes, .written_bytes, .commits, .commits_failed,
			.checkpoints, .attaches, .flushes, .write_calls, .direct_blocks, .logged_blocks, .zero_blocks,
			.skipped_free_blocks, .skipped_journal_blocks, .skipped_same_blocks, .checkpoint_blocks,
			.log_metadata_blocks, .super_blocks, .writable_seconds]);
		all(strings[]; type == "string") and all(bools[]; type == "boolean") and
		all(numbers[]; type == "number" and . >= 0) and (.card.have_kernel_counters | type == "boolean") and
		(.log_state_at_attach | IN("empty", "clean", "live", "fell-back", "retired", "broken"))' >/dev/null
}

@test "status: as text, as JSON, and as a file" {
	local key
	protect
	random_file "$MNT/a" 3
	sync -f "$MNT"
	run -0 --separate-stderr cow status -v
	for key in volume device use attached RAM uncommitted "last commit" log absorbed card lifetime alarm; do
		grep -q "^$key" <<<"$output" || { echo "no $key in: $output"; return 1; }
	done
	run -0 --separate-stderr cow status
	[ "${#lines[@]}" = 6 ] # without what a user has no use for while all is well
	[[ $output == *"$DEV on $MNT"* && $output == *"last commit generation 0 of never"* ]]
	run -0 --separate-stderr cow status --json
	is_status <<<"$output"
	jq -e --arg d "$DEV" --arg c "$CARD" --arg m "$MNT" '.ok and .name == "vol" and .loop == $d and .device == $c and
		.mountpoint == $m and .fs_type == "ext4" and .volume_bytes == 314572800 and .dirty_blocks >= 768 and
		.absorbed_bytes >= 3145728 and .degraded == false and .alarm == "" and .last == null' <<<"$output"
	is_status <"$COWFS_RUNDIR/vol/status.json"
	cow commit
	run -0 cow status --json
	is_status <<<"$output"
	jq -e '.last.ok and .last.job == "commit" and .lifetime.commits == 1 and .card.writable_seconds > 0' <<<"$output"
	run -0 cow status --verbose
	[[ $output == *"blocks: "*" direct, "*" logged; "* ]]
}

@test "status.json: refreshed within a second or so, and never half written" {
	protect
	# the file lags behind, at most two ticks
	random_file "$MNT/a" 3
	sync -f "$MNT"
	wait_for 5 jq -e '.dirty_blocks >= 768' "$COWFS_RUNDIR/vol/status.json"
	(
		while [ ! -e "$T/stop" ]; do
			is_status <"$COWFS_RUNDIR/vol/status.json" || touch "$T/torn"
			echo >>"$T/reads"
		done
	) 3>&- &
	for _ in 1 2 3 4; do
		random_file "$MNT/b" 3
		cow commit
	done
	touch "$T/stop"
	wait $!
	[ -s "$T/reads" ] && [ ! -e "$T/torn" ]
}

@test "status without root: from the file; control is refused" {
	protect
	nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
	# the programs may lie where nobody may look
	cp "$COWFS_BUILD/cowctl" "$T/cowctl"
	chmod 755 "$T/cowctl"
	[ "$(stat -c %a "$COWFS_RUNDIR/vol")" = 755 ]
	[ "$(stat -c %a "$COWFS_RUNDIR/vol/status.json")" = 644 ]
	[ "$(stat -c %a "$COWFS_RUNDIR/vol/control")" = 600 ]
	nobody jq -e '.name == "vol"' "$COWFS_RUNDIR/vol/status.json"
	run -0 nobody "$T/cowctl" status
	[[ $output == *"volume      vol"* ]]
	run -0 nobody "$T/cowctl" status --json
	is_status <<<"$output"
	for c in commit discard detach; do
		run -1 --separate-stderr nobody "$T/cowctl" "$c"
		[[ $stderr == *"permission denied: only root may control volume vol"* ]]
	done
	[ "$(status_of .discard_armed)" = false ]
	[ "$(status_of .generation)" = 0 ]
}

@test "control socket: one that belongs to another user is not used" {
	mkdir -p "$COWFS_RUNDIR/evil"
	chown 65534 "$COWFS_RUNDIR/evil"
	cat >"$T/evil.py" <<-'END'
		import socket, sys
		s = socket.socket(socket.AF_UNIX)
		s.bind(sys.argv[1])
		s.listen(5)
		while True:
		    c, _ = s.accept()
		    try:
		        c.sendall(b'{"ok":true,"generation":666}\n')
		    except OSError:
		        pass
	END
	background setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 "$T/evil.py" "$COWFS_RUNDIR/evil/control"
	wait_for 20 test -S "$COWFS_RUNDIR/evil/control"
	fails 1 'belongs to user 65534, not to root: not used' commit evil
	fails 1 'belongs to user 65534' status evil
	kill -9 "$BG"
	rm -r "$COWFS_RUNDIR/evil"
}

@test "clients that talk nonsense are told so" {
	protect
	cat >"$T/clients.py" <<-'END'
		import json, socket, sys
		def connect():
		    s = socket.socket(socket.AF_UNIX)
		    s.connect(sys.argv[1]) # blocking: waits for room in the backlog
		    s.settimeout(300)
		    return s
		def ask(s, line):
		    s.sendall(line)
		    return json.loads(s.makefile("r").readline())
		for line in (b"nonsense\n", b"[]\n", b'{"version":1}\n', b'{"version":1,"command":"explode"}\n',
		             b'{"version":99,"command":"status"}\n', b"[" * 2000 + b"\n", b"\xff\0\n",
		             b'{"version":1,"command":7}\n'):
		    answer = ask(connect(), line)
		    assert answer["ok"] is False and answer["error"], line
		assert ask(connect(), b'{"version":1,"command":"status","new field":[1]}\n')["ok"]
		print("fine")
	END
	run timeout 300 python3 "$T/clients.py" "$COWFS_RUNDIR/vol/control"
	[ "${lines[-1]}" = fine ]
}

@test "the daemon is not running: exit code 4, also when it left its files behind" {
	fails 4 'no volume is attached' status
	fails 4 'no volume is attached' commit --json
	fails 4 'no volume is attached as vol' discard vol
	# what a start that was cut leaves: nothing was lost
	mkdir -p "$COWFS_RUNDIR/vol"
	touch "$COWFS_RUNDIR/vol/lock" "$COWFS_RUNDIR/vol/pid"
	fails 4 'no volume is attached as vol' status vol
	fails 4 'no volume is attached as vol' commit vol
	run -4 cow status
	[[ $output != *died* ]]
	protect
	kill_worker
	[ -S "$COWFS_RUNDIR/vol/control" ]
	fails 4 'volume vol is not running: its daemon died' status vol
	fails 4 'its daemon died' commit vol --json
	fails 4 'a daemon died and left its files' detach
	timeout 300 umount "$MNT"
	loop_removed
	# what is left hinders neither name nor card
	attach
	[ "$(status_of .name)" = vol ]
}

# Bound by cowfs for its volume, see docs/design/pressure.md, "RAM pressure": what has the loop device next would crawl.
# The daemon dies, what it served ends by COMMAND..., and the next status gives the device its share back.
killed_and_free() {
	local bdi
	bdi=/sys/class/bdi/$(lsblk -dno MAJ:MIN "$DEV" | tr -d ' ')
	[ -e "$bdi/strict_limit" ] || skip "this kernel cannot bound a device (before 6.2)"
	wait_for 20 grep -qx 1 "$bdi/strict_limit"
	kill_worker
	"$@"
	run cow status
	wait_for 20 volume_gone "$DEV"
	LIMITS=$(cat "$bdi/strict_limit" "$bdi/min_bytes" "$bdi/max_ratio")
	# another test may take the number at any moment, and then they are of that one
	FREE=$([ -e "/sys/block/${DEV#/dev/}/loop" ] || echo yes)
}

@test "the daemon was killed: its loop device gets its share of dirty pages back" {
	local FREE='' LIMITS
	card_prepared ext4 100 150
	while [ -z "$FREE" ]; do
		attach_mounted
		killed_and_free timeout 300 umount "$MNT"
	done
	[ "$LIMITS" = $'0\n0\n100' ]
	FREE=''
	while [ -z "$FREE" ]; do
		attach
		killed_and_free loop_removed
	done
	[ "$LIMITS" = $'0\n0\n100' ]
}

@test "cowctl alone: what there is, and what to do next" {
	run -0 cow
	[[ $output == "cowfs: no volume is attached"*"next:"*"cowctl setup --dry-run "*"cowctl --help "* ]]
	volume_attached ext4 100 150
	run -0 cow
	[[ $output == "cowfs: vol: all files are on the card"*"next:"*"cowctl wear "* ]]
	mount_volume
	random_file "$MNT/a" 5
	# what the kernel has not written yet is not on the card either
	wait_for 5 eval 'run -0 cow && [[ $output == "cowfs: vol: 5."*" MiB not on the card yet"*"next:"*"cowctl commit "*"cowctl top "* ]]'
	cow commit
	echo b >"$MNT/b"
	run -0 cow status
	[[ $output == *$'\n'"uncommitted "*" KiB"$'\n'* ]]
}

@test "cowctl alone: a daemon that died comes first, with the way on" {
	volume_attached ext4 100 150
	mount_volume
	commit_word one
	kill_worker
	run -3 cow
	[[ $output == "cowfs: vol: its daemon died: uncommitted changes are lost"*"next:"*"  umount $MNT "*"  cowctl attach $CARD "* ]]
	[[ $output != *prepare* && $output != *"no volume is attached"* ]]
	run -3 cow status --brief
	[[ $output == "cowfs: vol: its daemon died: uncommitted changes are lost"* ]]
	umount "$MNT"
	attach
	detach
}

@test "/run is full: a status that could not be replaced is an alarm, until it can" {
	mkdir "$COWFS_RUNDIR"
	mount -t tmpfs -o size=64k,mode=755 run "$COWFS_RUNDIR"
	protect
	run -0 cow status --brief
	head -c 1M /dev/zero >"$COWFS_RUNDIR/full" || true
	random_file "$MNT/a" 3
	sync -f "$MNT"
	is_old() { [[ $(cow status --brief) == *"vol: NEEDS ATTENTION: /run is full: this status is an old one"* ]]; }
	wait_for 20 is_old
	run -3 cow status --brief
	run -0 cow status --follow --once
	[[ $output == *"vol alarm /run is full"* ]]
	# who may ask the daemon gets its answer
	run -0 cow status
	[[ $output != *"/run is full"* ]]
	rm "$COWFS_RUNDIR/full"
	wait_for 20 cow status --brief
	detach
	umount "$COWFS_RUNDIR"
}

@test "no reader takes an end for a death" {
	local i
	card_prepared ext4 60 100 -J size=4
	touch "$T/goes"
	background sh -c 'while [ -e "$1/goes" ]; do "$2" status --follow --once; "$2" status --brief; done >"$1/seen"' \
		sh "$T" "$COWFS_BUILD/cowctl"
	for i in 1 2 3 4 5 6 7 8 9 10; do
		attach
		cow detach "$NAME" >/dev/null
	done
	rm "$T/goes"
	wait "$BG"
	run ! grep died "$T/seen"
}
