# shellcheck shell=sh disable=SC2034,SC2153,SC2154,SC3028
# SPDX-License-Identifier: MIT
# cowctl commit --all of the root and a second card, under load, again and again, and the power goes at a random moment (long
# form: 30 times, short: 8). The machine is saved once and goes on from there each time. All have the same number in a file
# that is written in each before each commit: offline each time, after a boot once.
# guests: debian13-initramfs
# short:
DATA_MIB=200 LIMIT=900 STEP_LIMIT=800
KILLED=1
# the root is the last one, which a card asks
VOLUMES="data root"

# A folder on the volume; debugfs has other names for it
place() {
	case $1 in
	root) echo /srv ;;
	data) echo /mnt/data ;;
	boot) echo /boot ;;
	esac
}

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

write_number() {
	for volume in $VOLUMES; do
		echo "$1" >"$(place "$volume")/n"
	done
}

commits_under_load() {
	for volume in $VOLUMES; do
		must cowctl inhibit "$volume" --for 60m
	done
	write_number 0
	must cowctl commit --all
	for volume in $VOLUMES; do
		load_on "$(place "$volume")/load" &
	done
	mark ready
	sleep 4
	n=0
	while :; do
		n=$((n + 1))
		write_number $n
		# the emulated machine may be too slow to freeze all within 5 s
		cowctl commit --all >/run/cowfs-test/out 2>&1 || say "$(cat /run/cowfs-test/out)"
	done
}

same_numbers() {
	for volume in $VOLUMES; do
		is "number on $volume" "$(cat "$(place "$volume")/n")" "$(cat /srv/n)"
	done
	must cowctl commit --all
}

step_1() {
	protected || fail "the root is $(root_device)"
	attach_data
	commits_under_load
}

step_2() {
	protected || fail "the root is $(root_device)"
	attach_data
	same_numbers
}

host_during() {
	[ "$1" = "$KILLED" ] || return 0
	wait_mark ready && vm_save
}

recover_all() {
	for card; do
		"$BUILD/cowctl" recover "$card" || return
	done
	for card; do
		e2fsck -fp "$card" || [ $? = 1 ] || return
		e2fsck -fn "$card" || return
	done
}

copy_root() { card_extract "$1"; }
copy_data() { cp --sparse=always "$DATA" "$1"; }
file_root() { echo "/srv/$1"; }
file_data() { echo "/$1"; }

judge_cut() {
	set --
	for volume in $VOLUMES; do
		"copy_$volume" "$WORK/$volume"
		# recover of a card asks the other one, which must be a device
		set -- "$@" "$(losetup -f --show "$WORK/$volume")"
	done
	recover_all "$@" >"$WORK/recover.out" 2>&1 || bad=1
	losetup -d "$@"
	[ -z "${bad-}" ] || fail "recover: $(tail -3 "$WORK/recover.out")"
	for volume in $VOLUMES; do
		debugfs -R "cat $("file_$volume" n)" "$WORK/$volume" 2>/dev/null || echo "$volume has none"
	done >"$WORK/numbers"
	say "cut $i: $(paste -sd ' ' "$WORK/numbers") ($VOLUMES)"
	[ "$(sort -u "$WORK/numbers" | wc -l)" = 1 ] || fail "a mixture"
	verdict_read
	! grep -q ^fail "$VERDICT" || fail "cut $i: $(sed -n 's/^fail //p' "$VERDICT")"
	number=$(head -n 1 "$WORK/numbers")
	[ "$number" ] || fail "no number"
	highest=$((number > highest ? number : highest))
}

host_after() {
	[ "$1" = "$KILLED" ] || return 0
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
