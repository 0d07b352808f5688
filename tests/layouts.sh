#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Layouts: file systems made with many options of mkfs. On each, content A is committed, then B; all processes of the
# daemon are killed at a random moment of that commit (every other time in the middle of its writes to the card). After
# release the tree must be A or B, B if the commit had returned, and the file system clean. As root.
#
#	layouts.sh [--short] [--rounds N] [REGEX]	all layouts, or those that the regex matches; 3 rounds (--short: 6, 1)
#
# A layout that the kernel or the mkfs of this machine does not know is shown and counted, not passed.
# shellcheck disable=SC2034 # variables of lib.bash
set -eu
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

here=$(cd "$(dirname "$0")" && pwd)
COWFS_BUILD=${COWFS_BUILD:-$here/../build}
rounds=3 short='' only=.
while [ $# -gt 0 ]; do
	case $1 in
	--short) short=1 rounds=1 ;;
	--rounds) rounds=$2 && shift ;;
	-*) sed -n '/^#$/,/^# shellcheck/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	*) only=$1 ;;
	esac
	shift
done
# Nothing mounted here is seen outside, and a freeze that takes long on a busy machine finds no process to blame.
[ -n "${LAYOUTS_NAMESPACE-}" ] || LAYOUTS_NAMESPACE=1 exec unshare --mount --propagation private \
	--pid --fork --kill-child --mount-proc "$0" ${short:+--short} --rounds "$rounds" "$only"

# what bats gives to lib.bash
bats_require_minimum_version() { :; }
skip() { echo "layouts: $*"; exit 1; }
exec 3>&1
# shellcheck disable=SC1091
. "$here/bats/lib.bash"

# NAME FS MKFS_OPTION...; * in front: also in the short form. Not here: inline_data (a deadlock of Linux 6.18), and what
# cowfs refuses because a part of it lies on another device, or while it is mounted.
layouts() {
	cat <<'END'
ext3-1k            ext3 -b 1024
*ext3-2k           ext3 -b 2048
ext3-4k            ext3 -b 4096
*ext4-1k           ext4 -b 1024
ext4-2k            ext4 -b 2048
*ext4-default      ext4
ext4-bigalloc      ext4 -O bigalloc -C 16384
ext4-bigalloc-1k   ext4 -b 1024 -O bigalloc -C 65536
*ext4-journal-4m   ext4 -J size=4
ext4-no-csum       ext4 -O ^metadata_csum
ext4-uninit-bg     ext4 -O ^metadata_csum,uninit_bg
ext4-csum-seed     ext4 -O metadata_csum_seed
ext4-64bit         ext4 -O 64bit
ext4-32bit         ext4 -O ^64bit
ext4-sparse-super2 ext4 -O sparse_super2,^resize_inode
ext4-meta-bg       ext4 -O meta_bg,^resize_inode
ext4-no-flex-bg    ext4 -O ^flex_bg
ext4-flex-bg-64    ext4 -G 64 -g 1024 -b 1024
ext4-packed-meta   ext4 -E packed_meta_blocks=1
ext4-lazy          ext4 -E lazy_itable_init=1,lazy_journal_init=1
ext4-quota         ext4 -O quota
ext4-project       ext4 -O quota,project -E quotatype=usrquota:grpquota:prjquota
ext4-casefold      ext4 -O casefold
ext4-encrypt       ext4 -O encrypt
ext4-verity        ext4 -O verity
ext4-large-dir     ext4 -O large_dir
ext4-ea-inode      ext4 -O ea_inode
ext4-orphan-file   ext4 -O orphan_file
ext4-no-extent     ext4 -O ^extent,^64bit
ext4-no-dir-index  ext4 -O ^dir_index
ext4-inode-128     ext4 -I 128
ext4-inode-1024    ext4 -I 1024
xfs-default        xfs
xfs-v4             xfs -m crc=0
xfs-1k             xfs -b size=1024
*xfs-2k            xfs -b size=2048
xfs-no-reflink     xfs -m reflink=0
xfs-rmapbt         xfs -m rmapbt=1
xfs-no-rmapbt      xfs -m rmapbt=0
xfs-bigtime        xfs -m bigtime=1,inobtcount=1
xfs-no-bigtime     xfs -m bigtime=0,inobtcount=0
xfs-no-finobt      xfs -m finobt=0,inobtcount=0,reflink=0
xfs-ag-2           xfs -d agcount=2
xfs-dir-16k        xfs -n size=16384
xfs-sector-4k      xfs -s size=4096
btrfs-default      btrfs
btrfs-single       btrfs -m single -d single
btrfs-dup          btrfs -m dup -d dup
*btrfs-mixed       btrfs -M
btrfs-nodesize-4k  btrfs -n 4096 -s 4096
btrfs-nodesize-64k btrfs -n 65536
btrfs-xxhash       btrfs --csum xxhash
btrfs-blake2       btrfs --csum blake2
btrfs-no-fst       btrfs -R ^free-space-tree
END
}

finish() {
	echo "layouts: FAILED: $*"
	exit 1
}

# ---- content ----

write_a() {
	mkdir -p "$MNT/d"
	head -c 3M /dev/urandom | split -b 20k -a 3 - "$MNT/d/f"
	head -c 6M /dev/urandom >"$MNT/big"
	head -c 8M /dev/urandom | split -b 70k -a 3 - "$MNT/d/gone"
	ln -f "$MNT/big" "$MNT/d/hard"
	ln -sf big "$MNT/soft"
}

# Old files in place, new ones where others were, some gone, some by other names.
write_b() {
	local new
	rm "$MNT"/d/gone*[02468acegikmoqsuwy]
	sync -f "$MNT"
	head -c 3M /dev/urandom | split -b 20k -a 3 - "$MNT/d/f"
	head -c 2M /dev/urandom | dd of="$MNT/big" bs=64k seek=20 conv=notrunc iflag=fullblock status=none
	new=$(mktemp -d "$MNT/new.XXXXXX")
	head -c 2M /dev/urandom | split -b 5k -a 3 - "$new/n"
	head -c 3M /dev/urandom | split -b 200k -a 3 - "$new/m"
	mv "$MNT/d/faab" "$new/moved"
	rm "$MNT/d/faaa" "$MNT/d/hard"
}

# names, kinds, modes, sizes and contents
whole_sum() {
	(cd "$1" && { find . -path ./lost+found -prune -o -printf '%P %y %m %n %s %l\n' | LC_ALL=C sort && tree_sum .; }) |
		sha256sum | cut -d' ' -f1
}

# ---- the kill ----

ended() { ! kill -0 "$1" 2>/dev/null; }

# The commit has ended, or the card has been written so far.
written_to() { ended "$BG" || [ "$(card_written)" -ge "$1" ]; }

commit_b() {
	local how=()
	[ $((RANDOM % 3)) -gt 0 ] || how=(--checkpoint)
	if cow commit "${how[@]}" >"$T/commit.out" 2>&1; then
		touch "$T/returned"
	fi
}

# What a daemon that could not end leaves: a connection that answers nothing, and an xfs that writes its metadata again and again
# while it is frozen. sync(2) of the whole machine waits for that.
abort_connection() {
	local retries
	for retries in "/sys/fs/xfs/${DEV#/dev/}"/error/metadata/*/max_retries; do
		[ ! -e "$retries" ] || echo 0 >"$retries"
	done
	mkdir -p "$T/fusectl"
	mount -t fusectl none "$T/fusectl"
	# another volume may have the number by now
	[ "$(loop_backing "$DEV")" != "0:$1" ] || echo 1 >"$T/fusectl/$1/abort"
	umount "$T/fusectl"
}

# Descriptor 8 is of the file system. Killed between freeze and thaw: an unmount alone leaves a frozen one, and its device, for good.
thaw() {
	timeout 10 python3 -c 'import fcntl; fcntl.ioctl(8, 0xc0045878, 0)' 2>/dev/null || true # FITHAW
	exec 8<&-
}

# killed ROUND: $T/returned is there if the commit had returned
killed() {
	local start pids connection hung=0
	start=$(card_written) connection=$(loop_backing "$DEV")
	rm -f "$T/returned"
	background commit_b
	if [ $(($1 % 2)) = 0 ]; then
		wait_for 60 written_to $((start + 1 + (RANDOM * 32768 + RANDOM) % (14 << 20)))
	else
		sleep 0.$((RANDOM % 5))$((RANDOM % 10))
	fi
	give_up_early
	exec 8<"$MNT" # an xfs that has shut down cannot be opened any more
	mapfile -t pids < <(daemons)
	kill -9 "${pids[@]}" 2>/dev/null || true # one may have been a process of a moment
	wait "$BG" || true
	wait_for 20 no_daemons || hung=1
	thaw
	[ $hung = 1 ] || wait_for 20 timeout 60 umount "$MNT" 2>/dev/null || hung=1
	if [ $hung = 1 ]; then
		echo "I/O hangs after the daemon was killed"
		abort_connection "${connection#*:}"
		wait_for 20 timeout 10 umount "$MNT" || finish "$name: it hangs for good"
	fi
	cow status >/dev/null 2>&1 || true # takes away what is left in COWFS_RUNDIR
	volume_gone "$DEV" || losetup -d "$DEV"
	wait_for 20 volume_gone "$DEV" && [ $hung = 0 ]
}

# ---- one layout ----

declare -A count=([A]=0 [B]=0 [in]=0 [bad]=0 [absent]=0 [layouts]=0)

row() { printf '%-20s %s\n' "$name" "$*"; }

# A layout that this machine does not know: its own mkfs or mount says so, without cowfs.
known_here() {
	local mib=160
	[ "$fs" != xfs ] || mib=320
	[ "$fs" != btrfs ] || mib=256
	card_make "$fs" $mib 448 "$@" >"$T/mkfs" 2>&1 || { row "not known here: mkfs: $(tail -n 1 "$T/mkfs")"; return 1; }
	timeout 30 mount "$CARD" "$MNT" 2>/dev/null || { row "not known here: the kernel does not mount it"; return 1; }
	umount "$MNT"
}

round() {
	local a b now
	with_shim attach --ram 96M 2>"$T/attach" || { cat "$T/attach"; return 1; }
	mount_volume || return
	write_a || return
	a=$(whole_sum "$MNT")
	cow commit >/dev/null || return
	write_b || return
	b=$(whole_sum "$MNT")
	eio slow 20
	killed "$1" || { eio off; return 1; }
	eio off
	cow release "$CARD" >/dev/null || return
	mount -o ro "$CARD" "$MNT" || return
	now=$(whole_sum "$MNT")
	umount "$MNT" || return
	fsck "$fs" >"$T/fsck" 2>&1 || { cat "$T/fsck"; return 1; }
	case $now in
	"$a")
		[ ! -e "$T/returned" ] || { echo "the commit had returned, and the tree is A"; return 1; }
		verdict+=A count[A]=$((count[A] + 1))
		;;
	"$b") verdict+=B count[B]=$((count[B] + 1)) ;;
	*) echo "the tree is neither A nor B"; return 1 ;;
	esac
	[ -e "$T/returned" ] || { inside=$((inside + 1)) count[in]=$((count[in] + 1)); }
}

layout() {
	local name=$1 fs=$2 i verdict='' inside=0
	shift 2
	count[layouts]=$((count[layouts] + 1)) IMG=$T/card.img
	if ! known_here "$@"; then
		count[absent]=$((count[absent] + 1))
		[ -z "$CARD" ] || loop_down "$CARD"
		CARD=''
		return
	fi
	cow prepare "$CARD" --log-size 96M >/dev/null
	for ((i = 0; i < rounds; i++)); do
		if ! round $i; then
			count[bad]=$((count[bad] + 1)) verdict+=" FAILED"
			break
		fi
	done
	row "$verdict, $inside times killed before the commit returned"
	clear_mounts || true
	clear_volumes || true
	loop_down "$CARD"
	CARD=''
}

cow_setup
at_end 'eio off; thaw; clear_mounts; cow status >&2; cow_teardown' # the daemon may be one that was killed
while read -r name options; do
	[[ $name =~ $only ]] || continue
	[ -z "$short" ] || [[ $name == \** ]] || continue
	read -ra words <<<"$options"
	layout "${name#\*}" "${words[@]}" </dev/null
done < <(layouts)
echo "layouts: ${count[layouts]}, ${count[absent]} not known here; ${count[A]} times A, ${count[B]} times B," \
	"${count[in]} times killed before the commit returned, ${count[bad]} failed; $SECONDS s"
[ "${count[bad]}" = 0 ] || finish "see above"
[ "${count[in]}" -gt 0 ] || finish "no kill met a commit"
