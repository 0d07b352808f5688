# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# Helpers of all bats files: a private run directory, card images on loop devices, and a teardown that
# leaves nothing behind and fails the test if something was left that only force could take away.
#
#	load lib
#	@test "..." { card_make ext4 100 150; cow prepare "$CARD"; attach; mount_volume; ...; }
#
# Set for each test
#	TOP	of the repository
#	COWFS_BUILD	folder with cowfs and cowctl (default: build/ of the repository)
#	COWFS_RUNDIR	private run directory; T private scratch folder on a disk; MNT a mount point in it
#
# Cards
#	card_make FS FS_MIB CARD_MIB [MKFS_OPTION]...	image with a file system smaller than it, on a loop device
#			FS: ext2 ext3 ext4 xfs btrfs nilfs2 vfat none. Sets IMG and CARD. More cards: set IMG first.
#	card_prepared FS FS_MIB CARD_MIB [MKFS_OPTION]... [-- FORMAT_OPTION...]	card_make, and prepare
#	loop_up FILE [LOSETUP_OPTION]...	sets LOOP; loop_down DEVICE; card_loop [FILE]	CARD is FILE (default: IMG)
#	card_written [DEVICE]	bytes written to it ever, by the kernel's count (default: CARD); card_read: read from CARD
#	whole_or_guarded	after a cut: is CARD guarded, or a whole file system with the tree of T/sum or T/sum2?
#	image_sum [FILE]	checksum of the image (default: IMG), pending writes included; image_from FILE	IMG is what FILE is
#
# Programs (each bounded by COW_LIMIT seconds, 300)
#	cow ARGUMENT...		cowctl
#	fails CODE REGEX ARGUMENT...	cowctl must end with CODE, say REGEX (grep -E) on stderr and nothing on
#			stdout; with --json the same as valid JSON on stdout
#	warns REGEX ARGUMENT...	cowctl must end with 1 and say REGEX on stderr; it may have done a part of the work
#	status_of FILTER	one field of cowctl status --json (exit 3 allowed), by a jq filter
#
# Volumes
#	attach [OPTION]...	attaches CARD as volume "vol" (--name or OWN_NAME to choose); sets DEV and NAME. One that dies, or does not answer,
#			needs a name of its own: a command of another test clears away its device for a dead volume of the same name
#	mount_volume [OPTION]...	mounts DEV on MNT; umount_volume; mount_has SUM, attach_has SUM [OPTION]...	with this tree
#	commit_word WORD	commits a file with this name and content
#	volume_gone DEVICE	after the daemon has ended: its loop device is free
#	volume_attached FS FS_MIB CARD_MIB [MKFS_OPTION]... [-- FORMAT_OPTION... [-- ATTACH_OPTION...]]	card_make, prepare, attach;
#			volume_mounted ...	and mount_volume
#	detach [OPTION]...	unmounts if needed, detaches; the devices are gone and CARD is free again
#	attach_mounted [OPTION]...	attach, mount_volume
#	detach_whole FS		detach, and the file system on CARD is whole; recover_whole FS	cow release, and so it is
#	whole_with FS SUM	it is whole, with this tree; recovers_to FS SUM	after cow release
#	worker_pid	of the daemon's worker, which kill_worker ends; daemons: pids of all daemons of this test; cpu_s: the seconds of CPU
#			that they have used
#	cut_card COMMITS FS [FS_MIB CARD_MIB [MKFS_OPTION]...]	a CARD with 1 or 2 commits that are not home, and a power
#			cut; 100 and 150 MiB by default. SUM and T/sum: tree of the newest one, T/sum1: of the first.
#			LOGDEV: more options of prepare and attach
#	cut_in_commit WHEN	the power goes in a commit with a checkpoint: at its N-th write or flush, or sN, sN+K, as in
#			tests/tools/powercut.c. SUM: tree before, NEW: of the commit. Fails (as the commit) if it was cut
#	bare_sum		tree_sum of CARD, mounted read-only without cowfs
#	power_cut [rw]		the daemon dies with SIGKILL, what is left of it is cleared away; CARD stays as it is, or is writable;
#			cut_boots	then the root boots
#	fsck FS [DEVICE]	offline check (default: CARD): repairs nothing but orphans, fails on any error
#
# Damage
#	logedit ARGUMENT...	logedit.py on IMG: shows and damages super copies and records
#	golden NAME FILE	a card of tests/golden as a file
#	with_shim COMMAND...	what it starts obeys eio, see tests/tools/eioshim.c; shim_mounted [OPTION]...	attach does, then mount_volume
#	stays_idle		by itself the volume does nothing, also after COWFS_QUIET_AFTER, which looks_soon makes 1 s: it has looked
#			10 times, as often as in 10 s (tests/tools/clock.c)
#	cut_at N COMMAND...	the power goes at its N-th write or flush; CARD is writable then, T/cut says where it was
#	eio KIND SKIP COUNT	reads, writes or flushes of the card fail from now on; eio slow MS; eio off
#
# Contents
#	random_file FILE MIB	incompressible; tree_sum FOLDER: checksum of names and contents
#	read_again FOLDER	what is mounted there comes from its device again; the caches of other tests stay as they are
#	patience SECONDS	so many times as long as the load is above the number of processors. Where work can be counted (reads,
#			bytes, CPU time), count that
#	soon SECONDS COMMAND...	it takes less, in one of five times: what holds it does so each time, a busy machine does not
#	rounds N		so many, and with COWFS_TURN a quarter of them; some FROM TO: these numbers, or every fourth one
#	seeds N			N numbers for random changes, others with each commit; SEEDS=3-7, or SEEDS=5: these. A failing test prints its own, and
#			COWFS_SEED, of which $RANDOM is as well, but for that of subshells
#	wait_for SECONDS COMMAND...	until it succeeds: so long at rest, and on a busy machine ten times
#	give_up_early		before the daemon of a mounted xfs is killed
#	asked COMMAND ARGUMENT...	run cowctl at a terminal; once it asks, COMMAND, and the answer is y
#	background COMMAND...	sets BG, the pid; like every job, killed at the end of the test if it still runs
#	diff_of ARGUMENT...	cowctl diff, sorted, without the mount point
#	swapped_at N A B ARGUMENT...	cowctl, and before its N-th look or change of a name A and B are exchanged; 1: it makes fewer
#	say TEXT...		shown in bats' output (figures)
#	ended PID; as_nobody COMMAND...
#	put FILE LINE...	below the root R; tells TEXT: has the output of run this, however it is folded?

bats_require_minimum_version 1.5.0
# What setup() changes comes too late for bats, so it is set when the file is read.
export BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-1800}
COW_LIMIT=${COW_LIMIT:-300}

# ---- once per test ----

# The clock of the test's time limit is a subshell and its sleep, which bats ends by SIGABRT. One that comes before the trap is set
# leaves the sleep, which keeps the output of the file open until the limit. Before it has a sleep, the trap may be that of bats itself.
clock_has_trap() {
	local clock=/proc/${BATS_killer_pid-none} key caught=0 children=1
	[ -e "$clock/status" ] || return 0
	[ ! -e "$clock/task/${clock##*/}/children" ] || children=$(<"$clock/task/${clock##*/}/children")
	while read -r key caught && [ "$key" != SigCgt: ]; do :; done <"$clock/status"
	[ -n "$children" ] && ((0x$caught & 1 << 5))
} 2>/dev/null

cow_setup() {
	until clock_has_trap; do sleep 0.01; done
	# bats traces each command, which makes a loop 100 times slower. Without, a failure names the line of the test and not those
	# of helpers: COWFS_BATS_TRACE=1 shows them.
	[ -n "${COWFS_BATS_TRACE-}" ] || set +T
	TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
	COWFS_BUILD=${COWFS_BUILD:-$TOP/build}
	[ "$(id -u)" = 0 ] || skip "needs root"
	[ -x "$COWFS_BUILD/cowctl" ] || { echo "no programs in $COWFS_BUILD: make all"; return 1; }
	T=$(mktemp -d "${TMPDIR:-/tmp}/cowfs-bats.XXXXXX")
	echo "${BATS_TEST_FILENAME-$0}: ${BATS_TEST_DESCRIPTION-}" | sed "s|^[^:]*/||" >"$T/test" # whose it is, if it is left behind
	chmod 755 "$T" # status.json is for everybody
	MNT=$T/mnt COWFS_RUNDIR=$T/run IMG='' CARD='' DEV='' NAME='' LOGDEV=()
	mkdir "$MNT"
	export COWFS_BUILD COWFS_RUNDIR
	export COWFS_SECCOMP=kill # a system call that the daemon's filter refuses ends it
	export COWFS_INVARIANT=abort # so does a rule that is broken (base/invariant.h)
	# a daemon that a test kills must end; only replace.bats, in a guest, wants another one
	export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}"
	unset LD_PRELOAD
	[ -z "${COWFS_BLUNT-}" ] || blunt
	COWFS_SEED=$("$TOP/tests/seed.sh")
	RANDOM=$(cksum <<<"$COWFS_SEED $BATS_TEST_DESCRIPTION" | cut -d' ' -f1)
	JOBS_BEFORE=$(jobs -p | xargs)
	read -r BEGAN _ </proc/uptime
	its_turn
}

# tests/blunt.sh: nothing dies of a signal here, and what does not come is not waited for long
blunt() {
	# shellcheck disable=SC2317 # of the tests
	kill() { [[ " $* " =~ ' '(-9|-KILL|-s KILL)' ' ]] || builtin kill "$@"; }
	PATIENCE=8
}

patience() {
	awk -v s="$1" -v n="$(nproc)" '{ load = $1 / n; printf "%d\n", s * (load > 1 ? load : 1) + 0.5 }' /proc/loadavg
}

soon() {
	local most=$(($1 * 1000000)) begin took=()
	shift
	while [ ${#took[@]} -lt 5 ]; do
		begin=${EPOCHREALTIME/./}
		"$@" || return
		took+=($((${EPOCHREALTIME/./} - begin)))
		[ "${took[-1]}" -ge $most ] || return 0
	done
	echo "$* took ${took[*]} us"
	return 1
}

rounds() {
	[ -z "${COWFS_TURN-}" ] && echo "$1" || echo $((($1 + 3) / 4))
}

some() {
	local n
	[ -n "${COWFS_TURN-}" ] || { seq "$1" "$2"; return; }
	n=$(cksum <<<"$COWFS_TURN")
	seq $(($1 + ${n% *} % 4)) 4 "$2"
}

seeds() {
	local n
	n=$(cksum <<<"$COWFS_SEED $BATS_TEST_DESCRIPTION")
	n=$((${n% *} % 10000))
	n=${SEEDS:-$n-$((n + $1 - 1))}
	seq "${n%-*}" "${n#*-}"
}

# Tests of one line in a file that call the same function differ in the kind of file system. COWFS_TURN, a commit, makes one
# of them, another one with each commit and function; without it, all are made.
its_turn() {
	local fs='(ext[234]|xfs|btrfs|vfat|exfat|squashfs|erofs)' called='^@test .* \{ ([A-Z_]+=[^ ]+ )*' line function kinds n
	[ -n "${COWFS_TURN-}" ] || return 0
	line=$(grep -F "@test \"$BATS_TEST_DESCRIPTION\" {" "$BATS_TEST_FILENAME" | grep -E "$called.* $fs( .*)?; }\$") || return 0
	function=$(sed -E "s/$called//; s/ .*//" <<<"$line")
	mapfile -t kinds < <(grep -E "$called$function .*$fs( .*)?; }\$" "$BATS_TEST_FILENAME")
	n=$(cksum <<<"$COWFS_TURN $function")
	n=$((${n% *} % ${#kinds[@]}))
	[ "${kinds[n]}" = "$line" ] || skip "not its turn"
}

# What the daemons told the kernel log since the test began: a failed test shows it. Those of other tests are among them.
daemons_said() {
	dmesg | awk -F'[][]' -v began="$BEGAN" '$2 >= began + 0 && /cowfs: /' | tail -n 30
}

# COMMAND is what a script does at its end, undisturbed. Without a trap of its own, bash goes on if the command that it waits for ends
# by itself at a SIGINT.
at_end() {
	LEFT=0
	# shellcheck disable=SC2064 # now
	trap "code=\$?; trap '' HUP INT TERM; set +e; $1; exit \$((code ? code : LEFT))" EXIT
	trap 'exit 130' HUP INT TERM
}

cow_teardown() {
	local bad=0

	[ -z "${COWFS_BLUNT-}" ] || unset -f kill
	[ -n "${T-}" ] && [ -d "$T" ] || return 0
	[ -n "${BATS_TEST_COMPLETED-1}" ] || { daemons_said; echo "COWFS_SEED=$COWFS_SEED"; }
	cd /
	unset LD_PRELOAD
	clear_jobs
	clear_mounts || bad=1
	clear_volumes || bad=1
	[ -z "${DISK-}" ] || delpart "$DISK" 1 2>/dev/null || true # it would outlive the loop device
	clear_loops || bad=1
	rm -rf "$T"
	LEFT=$bad
	return $bad
}

# ---- a simulated card in the directory $C ----

# its server is no daemon of this test
SIM() { env -u COWFS_RUNDIR timeout "$COW_LIMIT" "$COWFS_BUILD/cowfs-cardsim" "$@"; }

# Instead of cow_teardown: volumes on the card end before the card.
sim_teardown() {
	local d
	umount -q "$MNT" 2>/dev/null || true
	for d in "$COWFS_RUNDIR"/*/control; do
		[ ! -S "$d" ] || cow detach --discard "$(basename "${d%/control}")" >/dev/null
	done
	sim_end "$C"
	cow_teardown
}

# Ends the simulated card in folder $1, if there is one. One that is still in use would keep its loop device.
sim_end() {
	SIM stop "$1" 2>/dev/null && return
	losetup -nlO NAME,BACK-FILE | awk -v f="$1/card" '$2 == f { print $1 }' | xargs -r losetup -d
	umount -ql "$1" 2>/dev/null || true
}

setup() { cow_setup; }

# Loop devices of views, by diskseq: a view of another test may get the number. views_gone SECONDS: those that are new by now go
view_disks() { grep -lF /cowfs-view /sys/block/loop*/loop/backing_file | sed 's,loop/backing_file,diskseq,' | xargs -r cat | sort; }
view_ended() { ! view_disks | grep -qx "$1"; }
views_gone() { local new; new=$(comm -13 "$T/view-disks" <(view_disks)); wait_for "$1" eval '[ -z "$(comm -12 - <(view_disks) <<<"$new")" ]'; }
teardown() { cow_teardown; }

# Not all of `jobs -p`: the clock of the test's time limit, which began before the test, is a job as well.
clear_jobs() {
	local pid
	for pid in $(jobs -p; cat "$T/jobs" 2>/dev/null); do
		[[ " ${JOBS_BEFORE-} " == *" $pid "* ]] && continue
		kill -9 "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	return 0
}

mounts_here() {
	awk -v t="$T/" 'index($5, t) == 1 { print $5 }' /proc/self/mountinfo | sort -r
}

clear_mounts() {
	local m tries
	for tries in {1..300}; do
		for m in $(mounts_here); do
			timeout 30 umount "$m" 2>/dev/null
		done
		[ -z "$(mounts_here)" ] && return 0
		sleep 0.2
	done
	echo "left over: mounted on $(mounts_here) (after $tries tries)" >&2
	for m in $(mounts_here); do
		umount -l "$m"
	done
	return 1
}

# A daemon is ours if it was started with our run directory.
daemons() {
	local p comm
	grep -slzxF "COWFS_RUNDIR=$COWFS_RUNDIR" /proc/[0-9]*/environ | while read -r p; do
		p=${p%/environ}
		read -r comm 2>/dev/null <"$p/comm" || continue
		[[ $comm != cowfs* || ! -e $p/exe ]] || echo "${p#/proc/}" # without exe: a zombie
	done
}

# Those that have given back their memory, and with it whose they are, may still have files open; so may the threads of a zombie.
exiting() {
	local p
	grep -slE '^[0-9]+ \(cow[^)]*\) ([^ZX]|Z( [-0-9]+){16} ([2-9]|[1-9][0-9]))' /proc/[0-9]*/stat | while read -r p; do
		[ -e "${p%stat}exe" ] || echo "$p"
	done
}

cpu_s() {
	local pid
	for pid in $(daemons); do
		cat "/proc/$pid/stat"
	done | awk -v hz="$(getconf CLK_TCK)" '{ n += $14 + $15 } END { printf "%.2f", n / hz }'
}

no_daemons() {
	local tries
	[ -z "$(daemons)" ] || return
	for tries in {1..20}; do
		[ -n "$(exiting)" ] || break
		sleep 0.05 # one of another test may never end
	done
	return 0
}

clear_volumes() {
	local d p
	# twice: after a time limit bats kills what it takes for a child of the test
	for _ in 1 2; do
		for d in "$COWFS_RUNDIR"/*/control; do
			[ -S "$d" ] || continue
			d=${d%/control}
			COW_LIMIT=20 cow detach --discard "${d##*/}" >/dev/null
		done
		wait_for 10 no_daemons && return 0
	done
	echo "left over: daemons $(daemons | xargs)" >&2
	for p in $(daemons); do
		kill -9 "$p"
	done
	wait_for 20 no_daemons
	cow status >&2 # which detaches their devices
	return 1
}

clear_loops() {
	local dev bad=0
	# cards: also those of a test that died half way
	for dev in $(cards_here); do
		loop_end "$dev"
	done
	for dev in $(dead_volumes); do
		echo "left over: $dev of a daemon that is gone" >&2
		losetup -d "$dev"
		bad=1
	done
	wait_for 20 no_cards && return $bad
	echo "left over: $(cards_here | xargs)" >&2
	return 1
}

# ---- trees ----

# trees_differ FROM TO [OPTION...]: fails and says where, as rsync sees it with these options
trees_differ() {
	local out
	out=$(rsync -n -i --checksum -aAXO --numeric-ids --delete "${@:3}" "$1/" "$2/")
	[ -z "$out" ] || { echo "$1 and $2 differ: $out"; return 1; }
}

# is_committed_in NAME TREE COMMAND: what the volume has committed, seen in $V, and TREE are the same to COMMAND
is_committed_in() {
	local bad=0
	cow view "$1" "$V" >/dev/null || return
	"$3" "$2" "$V" || bad=1
	timeout 300 umount "$V" || return
	return $bad
}

# ---- loop devices and cards ----

cards_here() {
	losetup -l -n -O NAME,BACK-FILE | awk -v t="$T/" 'index($2, t) == 1 { print $1 }'
}

no_cards() { [ -z "$(cards_here)" ]; }

# Loop devices of our volumes that outlived their daemons. Another volume may have the number by now, but that
# one answers.
dead_volumes() {
	local dev _
	[ -e "$T/volumes" ] || return 0
	while read -r dev _; do
		wait_for 5 volume_gone "$dev" || echo "$dev"
	done <"$T/volumes"
}

# What the loop device stands on: the daemon's mount has a device number of its own.
loop_backing() {
	losetup -n -O BACK-MAJ:MIN "$1" 2>/dev/null | tr -d ' '
}

# Which use of the loop device this is: each one has a number, from Linux 5.15 on.
loop_use() {
	cat "/sys/block/${1#/dev/}/diskseq" 2>/dev/null || loop_backing "$1"
}

# DEV is a volume of this test.
is_volume() {
	echo "$DEV $(loop_use "$DEV")" >>"$T/volumes"
}

# The loop device of a dead daemon. It may go by itself meanwhile, and its number may have a new owner.
loop_removed() {
	volume_gone "$DEV" || losetup -d "$DEV" 2>/dev/null || true
	wait_for 20 volume_gone "$DEV"
}

# The daemon has ended: is its loop device free, or already somebody else's?
volume_gone() {
	local was
	was=$([ ! -e "$T/volumes" ] || awk -v d="$1" '$1 == d { use = $2 } END { print use }' "$T/volumes")
	[ ! -e "/sys/block/${1#/dev/}/loop" ] ||
		{ [ -n "$was" ] && [ "$(loop_use "$1")" != "$was" ]; } ||
		timeout 10 dd if="$1" of=/dev/null bs=4096 count=1 iflag=direct status=none 2>/dev/null
}

card_gone() { ! cards_here | grep -qxF "$1"; }

loop_up() {
	local file=$1
	shift
	LOOP=$(losetup -f --show "$@" "$file") || return
	blockdev --setrw "$LOOP"
}

# A device that a killed daemon had set read-only, or one whose card was away, stays so for its next user.
loop_end() {
	blockdev --setrw "$1"
	losetup -d "$1"
}

loop_down() {
	loop_end "$1"
	wait_for 20 card_gone "$1"
}

card_make() {
	local fs=$1 fs_mib=$2 card_mib=$3
	shift 3
	IMG=${IMG:-$T/card.img}
	rm -f "$IMG"
	truncate -s "${card_mib}M" "$IMG"
	case $fs in
	none) ;;
	ext*) mke2fs -q -F -t "$fs" -E nodiscard,lazy_itable_init=0 "$@" "$IMG" "${fs_mib}M" ;;
	xfs) mkfs.xfs -q -f -K -d "size=${fs_mib}m" "$@" "$IMG" ;;
	btrfs) mkfs.btrfs -q -f -K -b "${fs_mib}M" "$@" "$IMG" ;;
	# no size to ask for: that of the file
	nilfs2) truncate -s "${fs_mib}M" "$IMG" && mkfs.nilfs2 -q -K -B 256 "$@" "$IMG" && truncate -s "${card_mib}M" "$IMG" ;;
	vfat) mkfs.vfat "$@" "$IMG" "$((fs_mib * 1024))" >/dev/null ;;
	exfat) truncate -s "${fs_mib}M" "$IMG" && mkfs.exfat "$@" "$IMG" >/dev/null && truncate -s "${card_mib}M" "$IMG" ;;
	*) echo "card_make: no file system $fs" >&2; return 1 ;;
	esac || return
	card_loop
}

# shellcheck disable=SC2120 # callers have a file
card_loop() { loop_up "${1:-$IMG}" && CARD=$LOOP; }

card_prepared() {
	local n=1
	while [ $n -le $# ] && [ "${!n}" != -- ]; do n=$((n + 1)); done
	card_make "${@:1:n-1}" && cow prepare "$CARD" "${@:n+1}"
}

# The bytes by which libblkid knows WHAT, put on a device or file.
# BLKPG, in sectors: not every kernel here reads partition tables, and Debian 13 has no addpart.
blkpg() { # OPERATION DISK NUMBER [START LENGTH]
	python3 - "$@" <<-'END'
		import ctypes, fcntl, struct, sys
		op, disk, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
		start, length = (int(x) * 512 for x in sys.argv[4:6]) if len(sys.argv) > 4 else (0, 0)
		part = ctypes.create_string_buffer(struct.pack("@qqi64s64s", start, length, number, b"", b""))
		with open(disk, "rb") as f:
		    fcntl.ioctl(f, 0x1269, struct.pack("@iiiP", op, 0, len(part), ctypes.addressof(part)))
	END
}
# A loop device keeps the partitions of an earlier use that nobody has taken away.
addpart() { # DISK NUMBER START LENGTH
	[ ! -e "/sys/class/block/${1#/dev/}p$2" ] || delpart "$1" "$2"
	blkpg 1 "$@"
}
delpart() { blkpg 2 "$@"; } # DISK NUMBER

plant() { # WHAT FILE
	python3 - "$@" <<-'END'
		import os, struct, sys, zlib
		what, path = sys.argv[1:]
		f = open(path, "r+b")
		size = os.path.getsize(path)
		def put(at, data):
		    f.seek(at)
		    f.write(data)
		def raid(at):
		    sb = bytearray(256)
		    struct.pack_into("<IIII16s", sb, 0, 0xa92b4efc, 1, 0, 0, bytes(range(16)))
		    struct.pack_into("<Q", sb, 144, at // 512)
		    total = sum(struct.unpack("<64I", sb))
		    struct.pack_into("<I", sb, 216, ((total & 0xffffffff) + (total >> 32)) & 0xffffffff)
		    put(at, sb)
		if what == "luks":
		    put(0, b"LUKS\xba\xbe" + struct.pack(">H", 1) + b"aes\0")
		    put(168, b"00000000-1111-2222-3333-444444444444")
		elif what == "lvm":
		    rest = struct.pack("<I", 32) + b"LVM2 001" + b"A" * 32
		    rest += bytes(492 - len(rest))
		    crc = zlib.crc32(rest, 0xf597a6cf ^ 0xffffffff) ^ 0xffffffff
		    put(512, b"LABELONE" + struct.pack("<QI", 1, crc) + rest)
		elif what == "raid":
		    raid(4096)
		elif what == "raid-end":
		    raid((size // 512 - 16) // 8 * 8 * 512)
		elif what == "swap":
		    put(4086, b"SWAPSPACE2")
		elif what == "iso":
		    put(32768, b"\x01CD001\x01" + bytes(2000))
		elif what == "boot-code":
		    put(0, b"\xeb\x3c\x90" + b"x" * 300)
		    put(510, b"\x55\xaa")
	END
}

# Whatever a cut has left on CARD: no other machine writes to a mixture. Its superblock is guarded, or nothing can
# mount it, or it is a whole file system with the tree of $T/sum (or $T/sum2). Sets GUARDED.
whole_or_guarded() {
	GUARDED=
	if [ "$(dd if="$IMG" bs=1 skip=1408 count=4 status=none | tr -d '\0')" = CgRD ]; then
		GUARDED=1
		return
	fi
	dumpe2fs -h "$CARD" >/dev/null 2>&1 || return 0
	e2fsck -fn "$CARD"
	mount -o ro,noload "$CARD" "$MNT"
	tree_sum "$MNT" >"$T/bare"
	umount "$MNT"
	cmp -s "$T/bare" "$T/sum" || cmp -s "$T/bare" "$T/sum2" || { echo "neither whole nor guarded"; return 1; }
}

card_written() {
	local stat
	read -ra stat <"/sys/class/block/$(basename "${1:-$CARD}")/stat"
	echo $((stat[6] * 512))
}

card_read() {
	local stat
	read -ra stat <"/sys/class/block/$(basename "$CARD")/stat"
	echo $((stat[2] * 512))
}

image_from() {
	dd if="$1" of="$IMG" bs=1M conv=notrunc status=none && blockdev --flushbufs "$CARD"
}

# CRC and length: images are large, and nobody forges one
image_sum() {
	cksum <"${1:-$IMG}" | tr ' ' -
}

# ---- programs ----

cow() {
	timeout -k 5 "$COW_LIMIT" "$COWFS_BUILD/cowctl" "$@"
}

fails() {
	local code=$1 regex=$2 arg json=''
	shift 2
	for arg; do
		[ "$arg" != --json ] || json=1
	done
	run --separate-stderr cow "$@"
	# a container may not give the daemon all that it asks for
	stderr=$(grep -v '^cowfs: goes on without: ' <<<"$stderr" || true)
	echo "cowctl $*: exit $status, stdout: $output, stderr: $stderr"
	[ "$status" = "$code" ] || return 1
	if [ -n "$json" ]; then
		[ -z "$stderr" ] &&
			jq -e --argjson c "$code" '.ok == false and .exit == $c and (.error | length > 0)' <<<"$output" &&
			jq -r .error <<<"$output" | grep -Eq -- "$regex"
	else
		[ -z "$output" ] && grep -Eq -- "$regex" <<<"$stderr"
	fi
}

warns() {
	local regex=$1
	shift
	run --separate-stderr cow "$@"
	echo "cowctl $*: exit $status, stdout: $output, stderr: $stderr"
	[ "$status" = 1 ] && grep -Eq -- "$regex" <<<"$stderr"
}

status_of() {
	local text code=0
	text=$(cow status --json ${NAME:+"$NAME"}) || code=$?
	[ $code = 0 ] || [ $code = 3 ] || return $code
	json_of "$1" <<<"$text"
}

# FILTER <JSON: as jq -r, which takes long to begin
json_of() {
	if [[ $1 =~ ^(\.[a-z_0-9]+)+$ ]]; then "$COWFS_BUILD/tests/jsonat" "$1"; else jq -r "$1"; fi
}

# ---- volumes ----

attach() {
	local i
	NAME=${OWN_NAME:-vol}
	for ((i = 1; i <= $#; i++)); do
		[ "${!i}" != --name ] || { i=$((i + 1)); NAME=${!i}; }
	done
	case " $* " in
	*" --name "*) DEV=$(cow attach "$CARD" "$@") || return ;;
	*) DEV=$(cow attach "$CARD" --name "$NAME" "$@") || return ;;
	esac
	is_volume
}

# shellcheck disable=SC2120 # callers have options
mount_volume() {
	timeout 300 mount "$@" "$DEV" "$MNT"
}

mount_has() { mount_volume && [ "$(tree_sum "$MNT")" = "$1" ]; }
attach_has() { attach "${@:2}" && mount_has "$1"; }

looks_soon() {
	export COWFS_QUIET_AFTER=1s COWFS_CLOCK=$T/clock # instead of 10 min
	truncate -s 16 "$COWFS_CLOCK"
}

looks() { od -An -td8 -j8 "$COWFS_CLOCK"; }
looked() { [ "$(looks)" -ge "$1" ]; }
stays_idle() { sleep 1.1 && wait_for 10 looked $(($(looks) + 10)) && job_is null; }
job_is() { [ "$(status_of .progress.job)" = "$1" ]; } # JOB, or null
phase_is() { [[ $(status_of .progress.phase) =~ ^($1)$ ]]; } # a regular expression
commit_word() { echo "$1" >"$MNT/$1" && cow commit; }

volume_attached() {
	local part=0 arg
	local -a of_0=() of_1=() of_2=()
	for arg; do
		if [ "$arg" = -- ]; then
			part=$((part + 1))
		else
			local -n options=of_$part
			options+=("$arg")
		fi
	done
	card_make "${of_0[@]}" && cow prepare "$CARD" "${of_1[@]}" >/dev/null && attach "${of_2[@]}"
}

attach_mounted() {
	attach "$@" && mount_volume
}

volume_mounted() {
	volume_attached "$@" && mount_volume
}

# xfs tries a write that failed again and again, without end, and sync(2) of everybody waits for it.
give_up_early() {
	local f
	for f in /sys/fs/xfs/"${DEV#/dev/}"/error/metadata/*/max_retries; do
		[ ! -e "$f" ] || echo 0 >"$f"
	done
}

# A commit by pressure holds the mount while it freezes: busy for a moment.
umount_volume() {
	wait_for 5 timeout 300 umount "$MNT"
}

detach() {
	if mountpoint -q "$MNT"; then
		umount_volume || return
	fi
	cow detach "$NAME" "$@" || return
	wait_for 20 no_daemons
}

# The programs of an initramfs in T/sbin, and T/cowfs.conf
initramfs_setup() {
	export COWFS_DEVDIR=$T/dev
	mkdir -p "$COWFS_DEVDIR" "$T/sbin"
	printf '[root]\nram = 64M\n' >"$T/cowfs.conf"
	cp "$COWFS_BUILD/cowfs-boot" "$T/sbin/cowfs"
	ln -s cowfs "$T/sbin/cowctl"
}

# A root, as an initramfs does by the programs in T/sbin and T/cowfs.conf, and its mount. $stderr: what the console says
boots() {
	rm -f "$COWFS_RUNDIR"/root.counts "$COWFS_RUNDIR"/root.trial
	run -0 --separate-stderr timeout -k 5 "$COW_LIMIT" "$T/sbin/cowctl" boot --device "$CARD" --conf "$T/cowfs.conf" --cmdline "ro quiet"
	echo "$stderr"
	DEV=$output
	is_volume
	mount_volume
}

worker_pid() {
	cat "$COWFS_RUNDIR/$NAME/pid"
}

kill_worker() { kill -9 "$(worker_pid)" && wait_for 20 no_daemons; }
whole_with() { fsck "$1" && [ "$(bare_sum)" = "$2" ]; }
recovers_to() { cow release "$CARD" && whole_with "$@"; }
on_bare() { mount -o ro "$CARD" "$MNT" && eval "$1" && umount "$MNT"; } # SHELL, true of the card without cowfs

detach_whole() {
	detach && fsck "$1"
}

recover_whole() {
	cow release "$CARD" && fsck "$1"
}

power_cut() {
	local pid
	pid=$(worker_pid)
	kill -9 "$pid"
	clear_after_cut || return
	[ "${1-}" != rw ] || blockdev --setrw "$CARD"
}

cut_boots() { power_cut; boots; }

clear_after_cut() {
	wait_for 20 no_daemons || return
	# the file system on a device without a daemon gets errors and can only be unmounted; after one of its log an xfs
	# says nothing of its root any more, which mountpoint asks for
	if mounts_here | grep -qxF "$MNT"; then
		timeout 300 umount "$MNT" || return
	fi
	loop_removed
}

fsck() {
	local dev=${2:-$CARD} code=0
	blockdev --setrw "$dev" # a killed daemon left it read-only
	case $1 in
	ext*)
		# -p first: it clears orphans of files deleted while open, which -n may not
		e2fsck -p "$dev" || code=$?
		[ $code -le 1 ] && e2fsck -fn "$dev"
		;;
	xfs) xfs_repair -n "$dev" ;;
	btrfs) btrfs check --readonly "$dev" ;;
	vfat) fsck.vfat -n "$dev" ;;
	exfat) fsck.exfat -n "$dev" ;;
	esac
}

commit_of() { # FS
	[ "$1" != ext2 ] || mount -o remount,ro "$MNT" || return # it has no journal
	cow commit || return
	[ "$1" != ext2 ] || mount -o remount,rw "$MNT"
}

cut_card() {
	local commits=$1 fs=$2
	shift 2
	[ $# -gt 0 ] || set -- 100 150
	volume_mounted "$fs" "$@" -- "${LOGDEV[@]}" -- "${LOGDEV[@]}"
	echo one >"$MNT/one"
	random_file "$MNT/big" 4
	commit_of "$fs"
	tree_sum "$MNT" >"$T/sum1"
	if [ "$commits" = 2 ]; then
		echo more >>"$MNT/one"
		echo two >"$MNT/two"
		dd if=/dev/urandom of="$MNT/big" bs=4096 count=500 seek=100 conv=notrunc status=none
		commit_of "$fs"
	fi
	SUM=$(tree_sum "$MNT")
	echo "$SUM" >"$T/sum"
	echo three >"$MNT/three"
	sync -f "$MNT"
	give_up_early
	power_cut rw
}

bare_sum() {
	mount -o ro "$CARD" "$MNT" || return
	tree_sum "$MNT"
	umount "$MNT"
}

cut_in_commit() { # WHEN
	local code=0 n=${1//[!0-9]/}
	truncate -s 4096 "$T/arm"
	LD_PRELOAD=$COWFS_BUILD/tests/powercut.so COWFS_CUT_FILE=$T/arm COWFS_CUT_SEED=$n attach
	mount_volume
	SUM=$(tree_sum "$MNT")
	echo "$n" >"$MNT/two"
	dd if=/dev/urandom of="$MNT/big" bs=4096 count=60 seek=$((100 + n)) conv=notrunc status=none
	random_file "$MNT/new$n" 1
	NEW=$(tree_sum "$MNT")
	printf %s "$1" | dd of="$T/arm" conv=notrunc status=none
	give_up_early
	cow commit --checkpoint >/dev/null 2>&1 || code=$?
	if [ $code = 0 ]; then
		detach --discard || clear_after_cut # the cut may come only then
	else
		clear_after_cut
	fi
	rm "$T/arm" "$T/volumes" # gone: another test may get the number of the device
	blockdev --setrw "$CARD"
	return $code
}

# A card of tests/golden as a file.
golden() { # NAME FILE
	python3 - "$BATS_TEST_DIRNAME/../golden/$1.image" "$2" <<-'END'
		import re, sys
		with open(sys.argv[1]) as text, open(sys.argv[2], "wb") as card:
		    for line in text:
		        word = line.split()
		        if word[0] == "card":
		            card.truncate(int(word[1]))
		        elif word[0] == "b":
		            at = int(word[1]) * 4096
		        elif word[0] == "w":
		            card.seek(at)
		            card.write(bytes.fromhex(word[1]) * 512)
		        elif word[0][0] == "+":
		            card.seek(at + int(word[0]))
		            card.write(bytes.fromhex(word[1]))
	END
}

# ---- damage ----

# Through the page cache, which CARD shares; what CARD itself has cached is dropped.
logedit() {
	python3 "$(dirname "${BASH_SOURCE[0]}")/logedit.py" "$IMG" "$@" || return
	[ -z "$CARD" ] || blockdev --flushbufs "$CARD"
}

with_shim() {
	ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" COWFS_EIO_FILE=$T/eio \
		LD_PRELOAD="$COWFS_BUILD/tests/eioshim.so $COWFS_BUILD/tests/clock.so" "$@"
}

# [ATTACH_OPTION...]
shim_mounted() { with_shim attach "$@" && mount_volume; }

# COMMAND...: its N-th write or flush is the last one
cut_at() { # N COMMAND...
	local code=0
	env LD_PRELOAD="$COWFS_BUILD/tests/powercut.so" COWFS_CUT_AFTER="$1" COWFS_CUT_SEED="$1" COWFS_CUT_LOG="$T/cut" "${@:2}" || code=$?
	blockdev --setrw "$CARD"
	return $code
}

# FILE [WORD...]: what the shim of this file does from now on; nothing
eio_order() {
	local file=$1
	shift
	printf '%-63s\n' "$*" | dd of="$file" conv=notrunc status=none
}

eio() {
	[ "$1" != off ] || shift
	eio_order "$T/eio" "$@"
}

# ---- contents ----

random_file() {
	dd if=/dev/urandom of="$1" bs=1M count="$2" status=none
}

# An empty folder gets a policy of fscrypt, and its file system the key.
encrypt() { # MOUNT FOLDER
	python3 - "$@" <<-'END'
		import ctypes, fcntl, os, struct, sys
		mount, folder = (os.open(d, os.O_RDONLY) for d in sys.argv[1:])
		key = bytes(range(64))
		add = ctypes.create_string_buffer(struct.pack("=II32sII32s", 2, 0, b"", len(key), 0, b"") + key)
		fcntl.ioctl(mount, 0xc0506617, add) # FS_IOC_ADD_ENCRYPTION_KEY
		fcntl.ioctl(folder, 0x800c6613, struct.pack("=BBBB4s16s", 2, 1, 4, 0, b"", add.raw[8:24])) # and SET_POLICY
	END
}

tree_sum() {
	(cd "$1" && find . -path ./lost+found -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r cksum) | cksum | tr ' ' -
}

read_again() {
	sync -f "$1" && find "$1" -xdev -type f -exec python3 -c 'import os, sys
for path in sys.argv[1:]:
    os.posix_fadvise(os.open(path, os.O_RDONLY | os.O_NOATIME), 0, 0, os.POSIX_FADV_DONTNEED)' {} + && blockdev --flushbufs "$(findmnt -no SOURCE "$1")"
}

diff_of() {
	local found
	found=$(cow diff "$@") || return
	# shellcheck disable=SC2001 # of each line
	[ -z "$found" ] || sed "s|$MNT/|/|g; s/  */ /g" <<<"$found" | LC_ALL=C sort
}

wait_for() {
	local end=$((SECONDS + ${PATIENCE:-$1 * 10}))
	shift
	until "$@"; do
		[ $SECONDS -le $end ] || return 1
		sleep 0.05
	done
}

# script(1) loses what it has not read when its input ends
asked() {
	rm -f "$T/asked" "$T/answered"
	run timeout 300 script -qefc "$COWFS_BUILD/cowctl ${*:2}; e=\$?; touch '$T/answered'; exit \$e" "$T/asked" < <(
		wait_for 20 grep -qs 'y/N' "$T/asked" && eval "$1" && echo y && wait_for 20 test -e "$T/answered")
}

# COMMAND...: as in a unit that takes away the devices (PrivateDevices=), and the right to sync one (CapabilityBoundingSet=)
without_devices() {
	timeout "${COW_LIMIT:-300}" unshare -m sh -c 'mount -t tmpfs none /dev && mknod /dev/null c 1 3 &&
		exec setpriv --bounding-set -sys_admin "$@"' sh "$@"
}

background() {
	"$@" 3>&- &
	BG=$!
}

swapped_at() {
	COWFS_SWAP_AT=$1 COWFS_SWAP_A=$2 COWFS_SWAP_B=$3 LD_PRELOAD=$COWFS_BUILD/tests/swapnames.so \
		ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" "$COWFS_BUILD/cowctl" "${@:4}" >"$T/swapped" 2>&1 || true
	grep -q ^reached "$T/swapped"
}

say() {
	echo "# $*" >&3
}

ended() {
	! kill -0 "$1" 2>/dev/null
}

as_nobody() {
	setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"
}

# ---- systems that are only files ----

put() {
	local path=$R/$1
	[ -d "${path%/*}" ] || mkdir -p "${path%/*}"
	printf '%s\n' "${@:2}" >"$path"
}

tells() {
	unfold
	[[ $UNFOLDED == *"$1"* ]] || { echo "not there: $1"; echo "$output"; return 1; }
}

# UNFOLDED: $output as one line
unfold() {
	UNFOLDED=${output//$'\n'/ }
	while [[ $UNFOLDED == *'  '* ]]; do UNFOLDED=${UNFOLDED//  / }; done
}

# FREEZE_SHIM notes each freeze and thaw of a program in $T/freezes. With FREEZE_KILLS the process that has frozen, or the one that
# watches it, is killed then.
freeze_shim() {
	FREEZE_SHIM=$T/freeze.so
	cat >"$T/freeze.c" <<-'C'
		#include <linux/fs.h>
		#include <dlfcn.h>
		#include <fcntl.h>
		#include <signal.h>
		#include <stdarg.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>

		static void note(const char *text)
		{
			int fd = open(getenv("FREEZES"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

			if (fd < 0 || write(fd, text, strlen(text)) < 0)
				abort();
			close(fd);
		}

		int ioctl(int fd, unsigned long request, ...)
		{
			int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
			const char *kills = getenv("FREEZE_KILLS");
			va_list ap;
			void *arg;
			int r;

			va_start(ap, request);
			arg = va_arg(ap, void *);
			va_end(ap);
			r = real(fd, request, arg);
			if (request == FIFREEZE) {
				note("frozen\n");
				if (kills && !strcmp(kills, "freezer"))
					kill(getpid(), SIGKILL);
				if (kills && !strcmp(kills, "watcher"))
					kill(getppid(), SIGKILL);
			}
			if (request == FITHAW)
				note("thawed\n");
			return r;
		}
	C
	gcc -shared -fPIC -D_GNU_SOURCE -o "$FREEZE_SHIM" "$T/freeze.c"
	export FREEZES=$T/freezes
}
