# shellcheck shell=sh disable=SC2016,SC2034,SC2154
# SPDX-License-Identifier: MIT
# A whole life in short: boot, write, power off; the data is there in the next boot, and nothing was written before the commit.
# The page cache is empty again and again while systemd kills what is left.
# guests: debian12 debian13 debian13-initramfs busybox debian12-arm64 debian13-arm64 busybox-arm64 busybox-armhf busybox-riscv64
# guests: debian12-luks debian13-luks debian12-lvm debian13-lvm debian12-md debian13-md
# short: busybox

forgetful_shutdown() {
	[ -d /run/systemd/system ] || return 0
	spared 'trap "" TERM HUP
		exec 9<> <(:)
		until read -r name </proc/1/comm && [[ $name == systemd-shutdow* ]]; do read -rt 0.1 -u 9; done
		while :; do echo 3 >/proc/sys/vm/drop_caches; done'
}

step_1() {
	protected || fail "the root is $(root_device), cowfs says '$(cat /run/cowfs/root.state 2>/dev/null)'"
	# the identity of a new machine is committed in its first boot
	must cowctl commit root --json
	grep -q '"instant": *true' /run/cowfs-test/out || fail "not sealed when the journal was empty: $(cat /run/cowfs-test/out)"
	settled
	mkdir -p /srv/cycle && must dd if=/dev/urandom of=/srv/cycle/data bs=64k count=80
	must sha256sum /srv/cycle/data
	cp /run/cowfs-test/out /srv/cycle/sum
	sync
	is "sectors written after sync" "$(card_written)" "$BASE"
	forgetful_shutdown
}

step_2() {
	protected || fail "the root is $(root_device)"
	must sha256sum -c /srv/cycle/sum
	is "sectors written since boot" "$(card_written)" 0
	mark written
}

host_during() {
	[ "$1" != 1 ] || return 0
	wait_mark written
	# shellcheck disable=SC2046 # words
	set -- $(qemu_writes)
	[ "$1 $3" = "0 0" ] || fail "QEMU has seen $1 writes and $3 discards before the commit"
}

host_after() {
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
