# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Volumes with file systems that the machine of the tests does not mount: commits, a killed daemon, and the bare card, which
# Linux mounts or not. All of them lie on the second card.
# guests: debian12-generic
DATA_MIB=1200 LIMIT=900 STEP_LIMIT=800 MEM=900

# PLACE-IN-MIB: sets L
card_at() {
	L=$(losetup -f --show -o $(($1 << 20)) --sizelimit $((280 << 20)) "$(data_card)")
}

card_of() { # FS PLACE-IN-MIB
	card_at "$2"
	modprobe "$1"
	must cowctl prepare "$L"
}

volume_up() { # FS
	DEV=$(COWFS_ON_CRASH=stop cowctl attach "$L" --name "$1") || fail "$1: no volume"
	must mount -t "$1" "$DEV" /m
}

cut_off() { # FS
	kill -9 "$(cat "/run/cowfs/$1/pid")"
	umount /m 2>/dev/null
	wait_for 20 sh -c "! pidof cowfs | grep -qw '$(cat "/run/cowfs/$1/pid")'"
	losetup -d "$DEV" 2>/dev/null
	must blockdev --setrw "$L"
}

goes_on() { # FS FILE
	volume_up "$1"
	is "$1: the file" "$(cat "/m/$2")" "$2"
	must umount /m
	must cowctl detach "$1"
	must blockdev --setrw "$L"
	must mount -t "$1" "$L" /m
	is "$1: the file on the bare card" "$(cat "/m/$2")" "$2"
	must touch /m/plain
	must umount /m
	losetup -d "$L"
}

# Committed while it is not mounted, and checkpointed at once: any machine may have the card behind a commit.
unguarded() { # FS PLACE-IN-MIB
	card_of "$1" "$2"
	volume_up "$1"
	for i in one two; do
		echo $i >/m/$i
		cowctl commit "$1" && fail "$1: committed while it is mounted"
		must umount /m
		must cowctl commit "$1"
		cowctl check --json "$L" | grep -q '"log_live_blocks":0,' || fail "$1: not checkpointed: $(cowctl check --json "$L" | tr -d '\n')"
		must mount -t "$1" "$DEV" /m
	done
	echo three >/m/three
	sync -f /m
	cut_off "$1"
	must cowctl check "$L"
	grep -q 'do not mount it' /run/cowfs-test/out && fail "$1: blocks wait in the log: $(cat /run/cowfs-test/out)"
	must mount -t "$1" -o ro "$L" /m
	is "$1: the files, elsewhere" "$(cd /m && echo * && cat one two | tr '\n' ' ')" "one two
one two "
	must umount /m
	goes_on "$1" one
	# another machine writes to the card between two commits: nothing waits in the log, so that counts
	card_at "$2"
	volume_up "$1"
	is "$1: what was written elsewhere" "$(cd /m && echo *)" "one plain two"
	echo four >/m/four
	must umount /m
	must cowctl commit "$1"
	must cowctl detach "$1"
	losetup -d "$L"
}

step_1() {
	mkdir /m
	card_of nilfs2 0
	volume_up nilfs2
	echo one >/m/one
	must cowctl commit nilfs2
	cut_off nilfs2
	must cowctl check "$L"
	grep -q 'guarded\|do not mount it' /run/cowfs-test/out || fail "nilfs2: no warning: $(cat /run/cowfs-test/out)"
	sum=$(cksum <"$L")
	mount -t nilfs2 "$L" /m && fail "nilfs2: guarded, and mounted: $(grep /m /proc/mounts)"
	mount -t nilfs2 -o ro "$L" /m && umount /m
	must mount -t nilfs2 -o ro,norecovery "$L" /m
	mount -o remount,rw /m && fail "nilfs2: guarded, and remounted"
	umount /m
	is "nilfs2: the card after these mounts" "$(cksum <"$L")" "$sum"
	goes_on nilfs2 one

	card_of f2fs 300
	volume_up f2fs
	echo one >/m/one
	must cowctl commit f2fs
	cut_off f2fs
	goes_on f2fs one

	unguarded vfat 600
	unguarded exfat 900
}

host_before() {
	truncate -s 128M "$WORK/fs" && mkfs.nilfs2 -q -B 256 "$WORK/fs"
	dd if="$WORK/fs" of="$DATA" bs=1M conv=notrunc status=none
	rm "$WORK/fs" && truncate -s 96M "$WORK/fs" && mkfs.f2fs -q -f "$WORK/fs"
	dd if="$WORK/fs" of="$DATA" bs=1M seek=300 conv=notrunc status=none
	rm "$WORK/fs" && truncate -s 64M "$WORK/fs" && mkfs.vfat "$WORK/fs" >/dev/null
	dd if="$WORK/fs" of="$DATA" bs=1M seek=600 conv=notrunc status=none
	rm "$WORK/fs" && truncate -s 64M "$WORK/fs" && mkfs.exfat "$WORK/fs" >/dev/null
	dd if="$WORK/fs" of="$DATA" bs=1M seek=900 conv=notrunc status=none
}
