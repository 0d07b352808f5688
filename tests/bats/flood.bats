#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Much at once that is no work of anybody: lazy inode tables, fstrim, a database overwritten in place, a device
# overwritten whole. RAM, log and writes to the card stay bounded, and nothing is called an alarm that is none.
# seconds: 40
# turn: 3

load lib

# ---- helpers ----

# The volume's memory: the RAM layer's store, and the presence maps with all that the worker has shared.
ram_used() { status_of .ram_used_bytes; }
worker_shared() { awk '$1 == "RssShmem:" { print $2 * 1024 }' "/proc/$(worker_pid)/status"; }
worker_private() { awk '$1 == "RssAnon:" { print $2 * 1024 }' "/proc/$(worker_pid)/status"; }

calm() {
	local alarm
	alarm=$(status_of .alarm)
	[ -z "$alarm" ] && [ "$(status_of .card.foreign_bytes)" = 0 ] || { echo "alarm: $alarm"; return 1; }
}

# A card of $1 GiB whose file system was made in a hurry; $2... for mke2fs. Its log is behind it.
large_card() {
	local gib=$1
	shift
	card_make none 0 $((gib * 1024 + 64))
	mke2fs -q -F -t ext4 -J size=8 "$@" "$CARD" "${gib}G"
	cow prepare "$CARD"
}

# All of the inode tables that the kernel zeroes in its own time are there.
tables_zeroed() {
	[ "$(status_of .hole_blocks)" -ge "$1" ]
}

# ---- lazy inode tables ----

@test "flood: lazy inode tables of a fresh 32 GiB ext4" {
	local before bill written
	# what lay there before is not zero
	card_make none 0 $((32 * 1024 + 64))
	dd if=/dev/urandom of="$CARD" bs=1M count=8 seek=20 status=none
	mke2fs -q -F -t ext4 -J size=8 -E lazy_itable_init=1,nodiscard "$CARD" 32G
	cow prepare "$CARD"
	attach --ram 64M
	mount_volume -o noatime,discard,init_itable=0
	# 512 MiB of them in 256 groups, but for the first one, that mke2fs has made
	wait_for 120 tables_zeroed 130000
	ram=$(ram_used) map=$(worker_shared)
	say "inode tables: $(status_of .hole_blocks) blocks; RAM layer $((ram / 1024)) KiB, maps $((map / 1024)) KiB"
	[ "$ram" -le $((16 << 20)) ]
	[ "$map" -le $((8 << 20)) ]
	before=$(card_written)
	bill=$(cow commit --json)
	written=$(($(card_written) - before))
	say "commit: $written bytes, $(jq .report.duration_seconds <<<"$bill") s, $(jq .report.zero_blocks <<<"$bill") zero blocks"
	jq -e '.report | .zero_blocks >= 130000 and .zero_blocks <= .hole_blocks' <<<"$bill"
	[ "$written" -le $((4 << 20)) ]
	calm
	# the log has nothing but extents of them; they go home, where most is zero already
	before=$(card_written)
	bill=$(cow commit --checkpoint --json)
	written=$(($(card_written) - before))
	say "checkpoint: $written bytes, $(jq .report.duration_seconds <<<"$bill") s"
	[ "$written" -ge $((1 << 20)) ] # where the noise was
	[ "$written" -le $((16 << 20)) ]
	[ "$(status_of .log_live_blocks)" = 0 ]
	calm
	detach_whole ext4
}

# ---- fstrim ----

@test "flood: fstrim of an empty 64 GiB ext4" {
	local before bill seconds map
	large_card 64 -E lazy_itable_init=0,nodiscard
	attach --ram 64M
	mount_volume -o noatime,noinit_itable
	random_file "$MNT/a" 4
	cow commit
	map=$(worker_shared)
	before=$(cpu_s)
	fstrim "$MNT"
	seconds=$(awk "BEGIN { print $(cpu_s) - $before }")
	map=$(($(worker_shared) - map))
	say "fstrim: $seconds s of CPU, $(status_of .hole_blocks) blocks; maps $((map / 1024)) KiB more, RAM layer $(($(ram_used) / 1024)) KiB"
	[ "$(status_of .hole_blocks)" -ge 16000000 ]
	[ "$(status_of .dirty_blocks)" -le 200 ]
	[ "$map" -le $((5 << 20)) ]
	[ "$(ram_used)" -le $((8 << 20)) ]
	awk -v s="$seconds" 'BEGIN { exit !(s < 10) }'
	bill=$(cow commit --dry-run --json)
	jq -e '.report.written_bytes <= 1048576 and .report.dirty_blocks <= 200' <<<"$bill"
	before=$(card_written)
	bill=$(cow commit --json)
	say "commit: $(($(card_written) - before)) bytes, $(jq .report.duration_seconds <<<"$bill") s"
	jq -e '.report | .skipped_hole_blocks >= 16000000 and .skipped_free_blocks <= 200 and
		.zero_blocks == 0 and .dirty_blocks <= 200' <<<"$bill"
	[ $(($(card_written) - before)) -le 1048576 ]
	# the holes are gone with the generation; nothing was dirty that was only discarded
	[ "$(status_of .hole_blocks)" -le 200 ]
	[ "$(worker_private)" -le $((48 << 20)) ]
	calm
	[ "$(status_of .alarm)" = "" ]
	detach_whole ext4
}

# ---- a database ----

@test "flood: a database of 500 MB overwritten in place, with a log of 32 MiB" {
	local before sum changed written bill
	card_make ext4 1400 1480 -J size=8
	mount "$CARD" "$MNT"
	dd if=/dev/zero bs=1M count=500 status=none | tr '\0' x >"$MNT/db"
	umount "$MNT"
	cow prepare "$CARD" --log-size 32M
	attach --ram 800M
	mount_volume -o noatime,noinit_itable
	dd if=/dev/urandom of="$MNT/db" bs=1M count=500 conv=notrunc status=none
	sync -f "$MNT"
	sum=$(sha256sum <"$MNT/db")
	before=$(card_written) changed=$(status_of .dirty_blocks)
	bill=$(cow commit --json)
	written=$(($(card_written) - before))
	say "$changed blocks changed; $written bytes written, $(jq .report.spilled_blocks <<<"$bill") blocks spilled," \
		"$(jq .report.duration_seconds <<<"$bill") s; RAM layer $(($(ram_used) / 1024)) KiB after," \
		"worker $(($(worker_private) / 1024)) KiB"
	jq -e '.report.spilled_blocks > 100000' <<<"$bill"
	[ "$written" -le $((changed * 4096 * 21 / 10)) ]
	[ "$(ram_used)" -le $((16 << 20)) ]
	[ "$(worker_private)" -le $((48 << 20)) ]
	calm
	[ "$(sha256sum <"$MNT/db")" = "$sum" ]
	# pages here and there: runs of one block
	before=$(card_written)
	python3 - "$MNT/db" <<-'END'
	import os, random, sys
	random.seed(1)
	fd = os.open(sys.argv[1], os.O_WRONLY)
	for page in random.sample(range(125000), 30000):
	    os.pwrite(fd, os.urandom(4096), page * 4096)
	END
	sync -f "$MNT"
	sum=$(sha256sum <"$MNT/db")
	changed=$(status_of .dirty_blocks)
	bill=$(cow commit --json)
	written=$(($(card_written) - before))
	say "$changed pages changed at random; $written bytes written, $(jq .report.spilled_blocks <<<"$bill") blocks spilled"
	[ "$written" -le $((changed * 4096 * 21 / 10)) ]
	calm
	power_cut
	recover_whole ext4
	mount -o ro "$CARD" "$MNT"
	[ "$(sha256sum <"$MNT/db")" = "$sum" ]
}

# ---- the whole device ----

@test "flood: noise over the whole loop device is refused with numbers, and dropped" {
	local before
	volume_mounted ext4 96 140 -J size=8 -- --log-size 32M
	random_file "$MNT/a" 5
	detach
	before=$(image_sum)
	attach --ram 256M
	# while it is to be dropped, no commit begins before it is too much
	cow discard
	dd if=/dev/urandom of="$DEV" bs=1M oflag=direct status=none || true
	[ "$(status_of .dirty_blocks)" -ge 24000 ]
	cow discard --cancel
	fails 1 'log is too small for this commit: [0-9.]+ MiB needed, [0-9.]+ MiB available' commit
	# the RAM is kept, twice over it is no more
	[ "$(status_of .dirty_blocks)" -ge 24000 ]
	fails 1 'log is too small' commit
	[ "$(ram_used)" -le $((112 << 20)) ]
	[ "$(worker_private)" -le $((48 << 20)) ]
	[ "$(status_of .card.written_bytes)" = 0 ]
	[[ $(status_of .alarm) == *"log is too small"* ]]
	# what is in RAM reads back
	dd if="$DEV" of=/dev/null bs=1M iflag=direct status=none
	detach --discard
	[ "$(image_sum)" = "$before" ]
	fsck ext4
}

# ---- clients ----

# flood_socket HOW COUNT: so many times a client connects, as fast as it can, and stays
flood_socket() {
	python3 - "$COWFS_RUNDIR/vol/control" "$@" <<-'END'
	import array, resource, socket, sys, time
	path, how, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
	resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
	request = b'{"version":1,"command":"status"}\n'
	kept, why = [], {}
	for i in range(count):
	    c = socket.socket(socket.AF_UNIX)
	    c.setblocking(False)
	    try:
	        c.connect(path)
	        kept.append(c)
	        if how == "half":      # begins a request
	            c.send(request[:1 + i % 30])
	        elif how == "deaf":    # does not read the answers
	            c.send(request * 200)
	        elif how == "rights":  # passes descriptors, its own socket among them
	            fds = [c.fileno()] * 200 + [0] * 53
	            c.sendmsg([request[:9]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
	        elif how == "commit":  # has to wait
	            c.send(b'{"version":1,"command":"commit","dry_run":true}\n')
	    except OSError as e:
	        why[e.strerror] = why.get(e.strerror, 0) + 1
	        time.sleep(0.0005)
	print(len(kept), "connected", why, flush=True)
	END
}

ask_status() { cow status --json >"$T/status" || [ $? = 3 ] || { cat "$T/status" && return 1; }; }

@test "flood: 10,000 connections, and status answers within a second" {
	local how pid
	volume_mounted ext4 40 100
	for how in silent half deaf rights commit; do
		flood_socket $how $([ $how = silent ] && echo 10000 || echo 2000) >"$T/flood" &
		pid=$!
		while kill -0 $pid 2>/dev/null; do
			soon 1 ask_status || { kill $pid; return 1; }
		done
		wait $pid
		say "$how: $(cat "$T/flood")"
		echo $how >"$MNT/file"
		cow commit
	done
	# an ordinary user cannot connect at all
	run ! python3 -c 'import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)
socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$COWFS_RUNDIR/vol/control"
	grep PermissionError <<<"$output"
}
