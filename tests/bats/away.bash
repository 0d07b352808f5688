# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2153
# A card that is pulled out, and comes back as another device: helpers for the tests of it.

# A daemon looks at each device that has the size of its card: also at those of another test that runs now.
ODD_KIB=$((4 * ($$ % 4000 + 1)))

# The file that says whether a card is gone; a volume beside another one has one of its own.
gone_file() { echo "${GONE_FILE:-$T/gone}"; }

# no card is gone, nor will be
stays() {
	printf '%-128s\0' '' >"$T/gone.new"
	dd if="$T/gone.new" of="$(gone_file)" conv=notrunc status=none
}

setup() {
	cow_setup
	OWN_NAME=away$$
	stays
}

# with_gone COMMAND...: what it starts sees the card go
with_gone() {
	ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" COWFS_GONE_FILE=$(gone_file) \
		LD_PRELOAD="$COWFS_BUILD/tests/goneshim.so ${ATTACKER-}" "$@"
}

# A test that hangs holds up every sync(2) and every look for a UUID on the machine until AWAY_LIMIT, if it is set, is over.
# protected_card CARD_MIB BLOCK_BYTES FILE_MIB [OPTION]...: CARD with a commit of a file that only the card has, attached and mounted
protected_card() {
	card_make ext4 100 "$1" -b "$2" -U "00$(cut -c 3- /proc/sys/kernel/random/uuid)" # which begins like none
	truncate -s "+${ODD_KIB}K" "$IMG"
	losetup -c "$CARD"
	cow prepare "$CARD" >/dev/null
	with_gone attach ${AWAY_LIMIT:+--away-limit "$AWAY_LIMIT"} "${@:4}"
	mount_volume
	random_file "$MNT/base" "$3"
	SUM=$(cksum <"$MNT/base")
	cow commit --checkpoint >/dev/null
	FIRST=$CARD
}

protected() { protected_card 150 4096 4 "$@"; }

# two_cards: CARD, and its log on LOG, attached
two_cards() {
	card_make ext4 100 100 -b 4096
	truncate -s "+${ODD_KIB}K" "$IMG"
	losetup -c "$CARD"
	truncate -s "$((40 * 1024 + ODD_KIB + 4))K" "$T/log.img"
	LOG=$(losetup -f --show "$T/log.img")
	cow prepare --log "$LOG" "$CARD" >/dev/null
	with_gone attach --away-limit $AWAY_LIMIT --log "$LOG"
}

# pull [LEFT [reads]]: the card is gone, or will be after so many writes and flushes, or reads as well
pull() {
	local name=${CARD#/dev/} id
	id=$(cat "/sys/block/$name/dev")
	printf '%-127s' "${id%:*} ${id#*:} $(stat -c %i "/sys/block/$name/stat") $name ${*:-0}" |
		dd of="$(gone_file)" conv=notrunc status=none
}

is_gone() { [ "$(od -An -td1 -j128 -N1 "$T/gone")" -eq 1 ]; }

# searched N: all devices were looked at for the card that is gone, N times more
searches() { od -An -td4 -j132 -N4 "$(gone_file)"; }
searched() { local n=$(($(searches) + $1)); wait_for 10 eval '[ "$(searches)" -ge $n ]'; }
is_away() { [ "$(status_of .away.base)" = true ]; }
pull_away() { pull && wait_for 5 is_away; }
another() { [ "$(worker_pid)" != "$before" ] && is_here; }
is_here() { [ "$(status_of .away.base)" = false ]; }
here_again() { wait_for 15 is_here || { cow status "$NAME"; return 1; }; }
refuses() { answer=$(status_of .away.refused) && grep -Eq -- "$1" <<<"$answer"; }

# back [FILE]: a device that is not CARD has its content, or that of FILE. Sets LOOP
back() {
	local tries
	for tries in {1..20}; do
		LOOP=$(losetup -f)
		# a loop device stays read-only, also with another file, if who had it before made it so
		blockdev --setrw "$LOOP"
		losetup "$LOOP" "${1:-$IMG}" && return
	done
	return 1
}

back_again() { back "$@" && here_again; }

# released DEVICE: nothing holds it, and it can be written
released() {
	[ "$(blockdev --getro "$1")" = 0 ] && python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)' "$1"
}

# the next read of this file asks the card
forget() {
	dd of="$MNT/base" count=0 oflag=nocache conv=notrunc,fdatasync status=none
}

# flaps SECONDS: the contact of CARD breaks 10 times a second
flaps() {
	local off on
	stays
	off=$T/off on=$T/on
	head -c 128 "$T/gone" >"$off"
	pull
	head -c 128 "$T/gone" >"$on"
	python3 - "$@" "$on" "$off" "$T/gone" <<-'END'
		import sys, time
		on, off = (open(f, "rb").read() for f in sys.argv[2:4])
		f = open(sys.argv[4], "r+b", buffering=0)
		end = time.time() + float(sys.argv[1])
		while time.time() < end:
		    for text in on, off + bytes(1):
		        f.seek(0)
		        f.write(text)
		        time.sleep(0.05)
	END
}
