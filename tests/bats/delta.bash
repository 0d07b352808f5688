# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Two cards of one image, what one has more as a file, and a root with its boots: for delta.bats and fleet_tools.bats.

# Two cards of one image: MASTER is changed and committed, CARD is as the image was. IMAGE: the file of that.
two_cards() { # FS FS_MIB CARD_MIB
	volume_mounted "$1" "$2" "$3" -- ${LAG:+--lag 1} ${LOG:+--log-size $LOG --erase-block 512K}
	for i in $(seq 1 20); do
		mkdir -p "$MNT/lib/$((i % 7))"
		head -c $((i * 3000)) /dev/urandom >"$MNT/lib/$((i % 7))/f$i"
	done
	random_file "$MNT/big" 6
	cow commit >/dev/null
	detach
	IMAGE=$T/image.img
	cp --sparse=always "$T/card.img" "$IMAGE"
	cp --sparse=always "$T/card.img" "$T/master.img"
	loop_up "$T/master.img"
	MASTER=$LOOP
}

# As apt does: files replaced through a rename, removed, added, large ones rewritten in part.
change_master() {
	CARD=$MASTER attach --name master
	VOL=$(cow status master --json | jq -r .loop)
	mkdir -p "$T/m"
	mount "$VOL" "$T/m"
	for f in "$T"/m/lib/*/f*; do
		case $((RANDOM % 4)) in
		0) head -c $((RANDOM * 2)) /dev/urandom >"$f.new"; mv "$f.new" "$f" ;;
		1) rm "$f" ;;
		2) dd if=/dev/urandom of="$f" bs=4096 count=1 conv=notrunc status=none ;;
		esac
	done
	dd if=/dev/urandom of="$T/m/big" bs=1M seek=2 count=1 conv=notrunc status=none
	random_file "$T/m/new" 3
	SUM=$(tree_sum "$T/m")
	umount "$T/m"
	cow detach master >/dev/null
}

export_delta() { # OPTION...
	rm -f "$T/delta"
	cow export "$@" "$MASTER" "$T/delta"
}

root_cards() { # FS FS_MIB CARD_MIB
	two_cards "$@"
	initramfs_setup
	mkdir -p "$T/root"
	export COWFS_ROOTDIR=$T/root
	change_master
	export_delta --base "$IMAGE"
	NEW=$SUM
	NAME=root
	boots
	OLD=$(tree_sum "$MNT")
}

# T/foreign: an update of MASTER from where it is to another one, which has no base on a card of the image.
second_update() {
	local DEV=$DEV NAME=$NAME # of the root, not of the master
	cp --sparse=always "$T/master.img" "$T/base2.img"
	change_master
	cow export --base "$T/base2.img" "$MASTER" "$T/foreign" >/dev/null
}
