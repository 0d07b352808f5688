# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# What a plain ext4 does when its card is pulled and put in again, for docs/design/away.md: without cowfs, the same card.
# guests: busybox
# short:
DRIVE=scsi DATA_DRIVE=scsi DATA_MIB=128 LIMIT=300

# What it says, or "succeeds".
try() { # WHAT COMMAND...
	_what=$1
	shift
	"$@" >/run/out 2>/run/err && _how=succeeds || _how="fails: $(tail -n 1 /run/err)"
	say "$when | $_what | $_how"
}

write() { echo "$1" >"/mnt/plain/$1"; }
read_base() { echo 3 >/proc/sys/vm/drop_caches && cat /mnt/plain/base; }
read_new() { cat /mnt/plain/new; }
gone() { ! [ -e "/sys/block/${card##*/}" ]; }

all() {
	when=$1
	try "read, from the card" read_base
	try "write" write "$2"
	try "fsync of it" sync "/mnt/plain/$2"
	try "write again" write "$2-2"
}

step_1() {
	card=$(data_card)
	mkdir -p /mnt/plain
	must mount "$card" /mnt/plain
	dd if=/dev/urandom of=/mnt/plain/base bs=64k count=16 2>/dev/null
	must sync
	dmesg -c >/dev/null
	mark pull
	wait_for 60 gone || fail "it is still there"
	all away new
	try "read of what was written" read_new
	mark back
	wait_for 60 data_card_is || fail "it does not come back"
	all back later
	dmesg | grep 'EXT4-fs\|JBD2' | sed 's/^[^]]*\] //' | sort | uniq -c | sort -rn | head -n 6 | while read -r _l; do say "the kernel: $_l"; done
	must umount /mnt/plain
	must mount "$(data_card)" /mnt/plain
	all "mounted again" last
	try "read of what was written while it was away" read_new
	is "a write while it was away that succeeded, and is lost" "$(ls /mnt/plain/new 2>/dev/null)" ""
	must umount /mnt/plain
}

data_card_is() { [ -n "$(data_card)" ]; }

# ---- the host ----

host_during() {
	wait_mark pull
	card_out data
	wait_mark back
	card_in data
}
