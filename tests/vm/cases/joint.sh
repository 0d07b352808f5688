# shellcheck shell=sh disable=SC2034,SC2153,SC2154,SC3028
# SPDX-License-Identifier: MIT
# cowctl commit --all of the root and a second card, under load, again and again, and the power goes at a random moment (long
# form: 30 times, short: 8). The machine is saved once and goes on from there each time. Both have the same number in a file
# that is written in both before each commit: offline each time, after a boot once.
# guests: debian13-initramfs
# short:
DATA_MIB=200 LIMIT=900 STEP_LIMIT=800
KILLED=1

attach_data() {
	mkdir -p /mnt/data
	loop=$(cowctl attach --ram 200M --name data "$(data_card)") || fail "data: not attached"
	must mount "$loop" /mnt/data
}

load_on() {
	while dd if=/dev/urandom of="$1" bs=64k count=12 conv=notrunc 2>/dev/null; do
		sleep 0.2
	done
}

step_1() {
	protected || fail "the root is $(root_device)"
	attach_data
	must cowctl inhibit root --for 60m
	must cowctl inhibit data --for 60m
	echo 0 >/srv/n
	echo 0 >/mnt/data/n
	must cowctl commit --all
	load_on /srv/load &
	load_on /mnt/data/load &
	mark ready
	sleep 4
	n=0
	while :; do
		n=$((n + 1))
		echo $n >/srv/n
		echo $n >/mnt/data/n
		# the emulated machine may be too slow to freeze both within 5 s
		cowctl commit --all >/run/cowfs-test/out 2>&1 || say "$(cat /run/cowfs-test/out)"
	done
}

step_2() {
	protected || fail "the root is $(root_device)"
	attach_data
	is "number on data" "$(cat /mnt/data/n)" "$(cat /srv/n)"
	must cowctl commit --all
}

host_during() {
	[ "$1" = 1 ] || return 0
	wait_mark ready && vm_save
}

# recover of a card asks the other one, which must be a device.
recover_both() {
	"$BUILD/cowctl" recover "$data" && "$BUILD/cowctl" recover "$root" || return
	for card in "$data" "$root"; do
		e2fsck -fp "$card" || [ $? = 1 ] || return
		e2fsck -fn "$card" || return
	done
}

number_on() { debugfs -R "cat $2" "$1" 2>/dev/null; }

judge_cut() {
	card_extract "$WORK/part"
	cp --sparse=always "$DATA" "$WORK/data"
	root=$(losetup -f --show "$WORK/part") data=$(losetup -f --show "$WORK/data")
	recover_both >"$WORK/recover.out" 2>&1 || bad=1
	losetup -d "$root" "$data"
	[ -z "${bad-}" ] || fail "recover: $(tail -3 "$WORK/recover.out")"
	on_root=$(number_on "$WORK/part" /srv/n) on_data=$(number_on "$WORK/data" /n)
	say "cut $i: root $on_root, data $on_data"
	[ "$on_root" ] || fail "no number"
	[ "$on_root" = "$on_data" ] || fail "a mixture"
	verdict_read
	! grep -q ^fail "$VERDICT" || fail "cut $i: $(sed -n 's/^fail //p' "$VERDICT")"
	highest=$((on_root > highest ? on_root : highest))
}

host_after() {
	[ "$1" = 1 ] || return 0
	cuts=8
	[ -z "$LONG" ] || cuts=30
	i=0 highest=0
	while [ $i -lt $cuts ]; do
		i=$((i + 1))
		vm_load
		sleep $((4 + RANDOM % 50)).$((RANDOM % 10))
		vm_kill
		wait_gone
		judge_cut
	done
	[ $highest -gt 1 ] || fail "no more than $highest commits"
}
