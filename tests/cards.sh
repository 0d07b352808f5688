#!/bin/sh
# SPDX-License-Identifier: MIT
# Cards go from one architecture to another and back: cards.sh NATIVE FOREIGN [QEMU]. NATIVE, FOREIGN: folders of two builds, QEMU
# runs programs of the second. Both make a card with two generations in its log: it is the same, byte for byte. Each recovers the
# other's card: it is the same again, and the volume is the last generation. Small, and sparse with 1 TiB; the years behind 2106.
# A big-endian machine does not read ext4, so its records have a shorter fingerprint: of its cards the volumes are compared.
set -eu
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end
native=$1 foreign=$2 qemu=${3-}
PATH=$PATH:/usr/sbin:/sbin
export E2FSPROGS_FAKE_TIME=1700000000
dir=$(mktemp -d "${COWFS_CARDS_DIR:-${TMPDIR:-/tmp}}/cards.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd_back=$PWD
case $native in /*) ;; *) native=$cd_back/$native ;; esac
case $foreign in /*) ;; *) foreign=$cd_back/$foreign ;; esac
if ! "$native/cowctl" --version >/dev/null; then
	echo "cards.sh: $native/cowctl does not run here: NATIVE= names a build of this machine (make all)" >&2
	exit 1
fi
cd "$dir"

fail() {
	echo "cards.sh: $*" >&2
	exit 1
}

run() { # SIDE PROGRAM ARGUMENT...
	side=$1 program=$2
	shift 2
	# shellcheck disable=SC2086 # a word or none
	case $side in
	native) "$native/$program" "$@" ;;
	foreign) $qemu "$foreign/$program" "$@" ;;
	esac
}

# FILE FILE [BYTES]: equal, where one of them is no hole
same() {
	python3 - "$@" <<-'EOF'
		import errno, os, sys
		fds = [os.open(f, os.O_RDONLY) for f in sys.argv[1:3]]
		sizes = [os.fstat(fd).st_size for fd in fds]
		end = int(sys.argv[3]) if len(sys.argv) > 3 else max(sizes)
		if len(sys.argv) == 3 and sizes[0] != sizes[1]:
		    sys.exit(f"{sys.argv[1]} and {sys.argv[2]} have {sizes} bytes")
		def data(fd, pos):
		    try:
		        return os.lseek(fd, pos, os.SEEK_DATA)
		    except OSError as e:
		        if e.errno != errno.ENXIO:
		            raise
		        return end
		pos = compared = 0
		while (pos := min(data(fd, pos) for fd in fds)) < end:
		    n = min(1 << 20, end - pos)
		    a, b = (os.pread(fd, n, pos).ljust(n, b"\0") for fd in fds)
		    if a != b:
		        sys.exit(f"{sys.argv[1]} and {sys.argv[2]} differ in the MiB at {pos}")
		    pos += n
		    compared += n
		if not compared:
		    sys.exit(f"{sys.argv[1]}: no data")
	EOF
}

# IMAGE N: a file of the generation N, another file gone, and blocks at the places
change() {
	seq "$2" 9 90000 >"file$2"
	printf 'write file%s new%s\nrm old%s\nmkdir folder%s\n' "$2" "$2" "$2" "$2" | debugfs -w -f - "$1" >/dev/null 2>&1
	for mib in $places; do
		yes "generation $2 at $mib MiB" | dd of="$1" bs=4k count=40 seek=$((mib * 256 + $2 * 7)) conv=notrunc iflag=fullblock status=none
	done
}

cards() { # FS_MIB CARD_SIZE
	rm -rf ./*
	[ "$big_endian" = 0 ] && compared= || compared=$(($1 * 1048576))
	mkdir files
	for i in 1 2 3; do seq "$i" 7 99999 >"files/old$i"; done
	truncate -s "$2" base
	mke2fs -q -F -t ext4 -b 4096 -N 2000 -O ^resize_inode -J size=4 -d files \
		-E nodiscard,lazy_itable_init=1,packed_meta_blocks=1 base "$1M" 2>/dev/null
	for n in 1 2; do
		cp --sparse=always base "changed$n"
		for i in $(seq "$n"); do change "changed$n" "$i"; done
	done
	for side in native foreign; do
		cp --sparse=always base "$side"
		run "$side" tests/offlinecard format "$side" 32
		run "$side" tests/offlinecard commit "$side" changed1 changed2 >"commit.$side"
	done
	cat commit.native
	cmp commit.native commit.foreign
	grep -q ' [1-9][0-9]* logged' commit.native || fail "nothing was logged"
	# shellcheck disable=SC2086 # a number or nothing
	same native foreign $compared
	for side in native foreign; do
		run "$side" cowctl check --json native >"check.$side" || fail "cowctl check: $(cat "check.$side")"
	done
	cmp check.native check.foreign
	mv native made.native
	mv foreign made.foreign
	run native tests/offlinecard recover made.foreign
	run foreign tests/offlinecard recover made.native >/dev/null
	# shellcheck disable=SC2086
	same made.native made.foreign $compared
	same made.native changed2 $(($1 * 1048576))
	e2fsck -fn made.native >fsck 2>&1 || fail "e2fsck: $(cat fsck)"
}

[ "$(od -An -tu1 -j5 -N1 "$foreign/cowctl" | tr -d ' ')" = 2 ] && big_endian=1 || big_endian=0
places="17 40"
cards 64 104M
places="17 2047 2048 4095 4096 5000 1048570"
cards 1048572 1048620M
