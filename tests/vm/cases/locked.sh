# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A LUKS volume that cannot be opened, because its keys are damaged: the initramfs finds no root, and nothing is written. With
# the keys put back the root is protected.
# guests: debian12-luks debian13-luks
# short:
KILLED=1 LIMIT=600

step_1() { :; }

step_2() { protected || fail "the root is $(root_device)"; }

keyslots() { # a file is copied to them, or they are noise
	dd if="${1:-/dev/urandom}" of="$CARD" bs=4096 oflag=seek_bytes seek=$(($(part_field start) * 512 + 32768)) count=64 conv=notrunc \
		status=none
}

host_before() {
	if [ "$1" = 2 ]; then
		keyslots "$WORK/keyslots"
		return
	fi
	dd if="$CARD" of="$WORK/keyslots" bs=4096 iflag=skip_bytes skip=$(($(part_field start) * 512 + 32768)) count=64 status=none
	keyslots
	cp --sparse=always "$CARD" "$WORK/before"
}

# Debian 12 gives up and restarts, which ends QEMU; Debian 13 goes on asking for a passphrase.
host_during() {
	[ "$1" = 1 ] || return 0
	console_wait root
	n=150
	while kill -0 "$QEMU" 2>/dev/null && [ $((n -= 1)) -gt 0 ]; do sleep 1; done
	! kill -0 "$QEMU" 2>/dev/null || vm_kill
}

host_after() {
	[ "$1" = 1 ] || return 0
	grep -aqi 'crypt.*root' "$WORK/console-1" || fail "LUKS was not tried"
	! grep -aq 'is protected\|boot.*up .*root' "$WORK/console-1" || fail "there was a root"
	cmp "$CARD" "$WORK/before" || fail "the card has changed"
}
