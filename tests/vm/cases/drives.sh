# shellcheck shell=sh disable=SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# The same card as an SD card, behind NVMe, behind USB and as an SD card again. Everywhere it boots protected with what was
# committed elsewhere, nothing is written before a commit, and the power goes at a random write of that commit.
# guests: debian12-generic debian13-generic
# a card has a power of two
DISK_MIB=2048 KILLED='1 2 3' LIMIT=600

step() {
	protected || fail "the root is $(root_device)"
	settled
	say "the root is on $(root_part), generation $(cowctl status root --json | sed 's/.*"generation":\([0-9]*\),.*/\1/p;d')"
	if [ "$BOOT" != 1 ]; then
		have=$(cat /srv/drives/* | sort -u)
		case $have in
		$((BOOT - 1)) | $((BOOT - 2))) say "the commit that was cut: number $have of $((BOOT - 1))" ;;
		*) fail "numbers in the files of boot $BOOT: $have" ;;
		esac
		must sha256sum -c /srv/sum
	else
		mkdir /srv/drives
		numbers 0
		must dd if=/dev/urandom of=/srv/data bs=64k count=80
		must sha256sum /srv/data
		cp /run/cowfs-test/out /srv/sum
		must cowctl commit root
		BASE=$(card_written)
	fi
	numbers "$BOOT"
	sync
	is "sectors written after sync" "$(card_written)" "$BASE"
}

numbers() { # N
	for i in $(seq 40); do
		echo "$1" >"/srv/drives/$i"
	done
}

commit_until_the_cut() {
	mark now
	cowctl commit root --checkpoint
	sleep 100
}

step_1() { step && commit_until_the_cut; }
step_2() { step && commit_until_the_cut; }
step_3() { step && commit_until_the_cut; }
step_4() { step; }

host_before() {
	case $1 in
	2) DRIVE=nvme ;;
	3) DRIVE=usb ;;
	*) DRIVE=mmc ;;
	esac
}

host_during() {
	case " $KILLED " in
	*" $1 "*) wait_mark now && cut_at_write $((1 + RANDOM % 30)) && vm_kill ;;
	esac
}

# N more writes
cut_at_write() {
	# shellcheck disable=SC2046 # words
	set -- "$1" $(qemu_writes)
	timeout 60 "$TOP/tests/vm/qmp.py" "$SOCK" await card $(($1 + $2)) >/dev/null || :
}

host_after() {
	card_extract "$WORK/part"
	offline_check "$WORK/part"
}
