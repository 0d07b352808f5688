# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# cowctl upgrade under load, on the root and on a volume of a unit: another version takes over, one with another layout is refused,
# one that fails or hangs is taken back. No I/O error, no lost write, nothing of the new processes lies on the root.
# guests: debian13-initramfs-fio
# shellcheck disable=SC1091
. "$CASES/replace.sh"
APPEND=''
unset -f host_before

field() { cowctl status "$1" --json | sed "s/.*\"$2\": *\"\\([^\"]*\\)\".*/\\1/"; }
installed() { must cp "$1" /usr/sbin/cowfs.new && must mv /usr/sbin/cowfs.new /usr/sbin/cowfs; }

# VOLUME FILE VERSION
upgraded() {
	installed "$2"
	before=$(field "$1" version)
	cowctl upgrade "$1" >/run/cowfs-test/out 2>&1 || fail "$1: $(cat /run/cowfs-test/out)"
	is "the report" "$(cat /run/cowfs-test/out)" "$1: version $before replaced by $3"
	is "version" "$(field "$1" version)" "$3"
	[ "$1" != root ] || is "mark" "$(head -c 6 "/proc/$(pid_of "$1")/cmdline")" "@cowfs"
	wait_for 10 in_ram "$(sed -n 's/^PPid:\t//p' "/proc/$(pid_of "$1")/status")" ||
		fail "mapped from a disk: $MAPS"
}

# SUPERVISOR: of the files that its children have mapped, worker and spare, none lies on a disk
in_ram() {
	for p in $(pgrep -P "$1"); do
		MAPS=$(awk '$6 ~ "^/" && $4 !~ "^00:"' "/proc/$p/maps")
		[ -z "$MAPS" ] || return 1
	done
}

# VOLUME FILE TEXT: version and commits stay
refused() {
	installed "$2"
	before=$(field "$1" version)
	! cowctl upgrade "$1" >/run/cowfs-test/out 2>&1 || fail "$1: $2 was not refused"
	grep -q "$3" /run/cowfs-test/out || fail "$2: not '$3': $(cat /run/cowfs-test/out)"
	is "version" "$(field "$1" version)" "$before"
	must cowctl commit "$1"
}

# VOLUME FOLDER
upgrade_under_load() {
	: >/run/cowfs-test/load
	: >/run/cowfs-test/commits
	: >/run/cowfs-test/singles
	load_on "$2" >/run/cowfs-test/fio 2>&1 &
	fio=$!
	commit_on "$1" "$2" &
	commits=$!
	sleep 3
	for n in 1 ${LONG:+2}; do
		upgraded "$1" ./cowfs-next "$VERSION+next"
		worker=$(pid_of "$1")
		refused "$1" ./cowfs-layout 'shares other data'
		refused "$1" /bin/false 'does not start'
		is "worker" "$(pid_of "$1")" "$worker"
		refused "$1" ./cowfs-fails 'could not take over'
		sleep 1
		upgraded "$1" ./cowfs-now "$VERSION"
		[ "$n" = 2 ] || refused "$1" ./cowfs-hangs 'could not take over'
	done
	upgraded "$1" ./cowfs-next "$VERSION+next"
	is "number of deaths" "$(cowctl status "$1" --json | sed 's/.*"replaced": *\([0-9]*\).*/\1/')" 0
	kill_worker "$1" 1 # the new spare serves like the old one
	is "version" "$(field "$1" version)" "$VERSION+next"
	timeout 120 sync || fail "$1: sync(2) has not returned"
	rm /run/cowfs-test/load
	wait $fio || fail "$1: fio: $(tail -n 5 /run/cowfs-test/fio)"
	wait $commits
	say "$1: commits: $(grep -c committed /run/cowfs-test/commits) of $(wc -l </run/cowfs-test/commits), of a file: $(grep -c committed /run/cowfs-test/singles) of $(wc -l </run/cowfs-test/singles)"
	cat /run/cowfs-test/commits /run/cowfs-test/singles | grep -v committed | sort | uniq -c | sort -rn | head -n 5 | while read -r line; do
		say "$1: $line"
	done
	must cowctl commit "$1"
}

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /mnt/data /srv/load
	must cp /usr/sbin/cowfs ./cowfs-now
	VERSION=$(cowctl --version | sed 's/cowfs //')
	upgrade_under_load root /srv/load
	installed ./cowfs-now
	loop=$(cowctl attach --ram 200M --name data "$(data_card)") || fail "data: not attached"
	must mount "$loop" /mnt/data
	upgrade_under_load data /mnt/data
	must umount /mnt/data
	must e2fsck -fn "$loop"
	must cowctl detach data
	must e2fsck -fn "$(data_card)"
	installed ./cowfs-next
	must dd if=/dev/urandom of=/srv/data bs=64k count=32
	sha256sum /srv/data >/srv/sum
	journalctl -k --no-pager | grep -i ' cowfs: ' | tail -n 20 >/srv/kernel
}

step_2() {
	must sha256sum -c /srv/sum
	protected || fail "the root is $(root_device)"
}

host_after() {
	[ "$1" = 2 ] || return 0
	card_extract "$WORK/part" && offline_check "$WORK/part"
}

# NAME FILE EXPRESSION [VARIABLE...]: the program, changed, as the guest's Debian builds it
other() {
	name=$1 file=$2 expression=$3
	shift 3
	cp -p "$TREE/$file" "$TREE/saved"
	sed -i "$expression" "$TREE/$file"
	! cmp -s "$TREE/$file" "$TREE/saved" || [ "$expression" = "" ] || fail "$file: $expression changes nothing"
	(cd "$TREE" && grep -rlE 'COWFS_VERSION|SHARED_LAYOUT|SHARED_BYTES' cowfs | xargs touch)
	CHROOT_BIND=$TREE chroot_run "$CACHE/build-trixie" make -s --no-print-directory -C /mnt B=build-trixie "$@" \
		build-trixie/cowfs >"$WORK/$name.log" 2>&1 || fail "$name: $(tail -n 3 "$WORK/$name.log")"
	strip -o "$WORK/cowfs-$name" "$TREE/build-trixie/cowfs"
	cp -p "$TREE/saved" "$TREE/$file"
	touch "$TREE/$file"
}

host_before() {
	[ "$1" = 1 ] || return 0
	TREE=$WORK/tree
	mkdir "$TREE"
	cp -rp "$TOP/Makefile" "$TOP/cowfs" "$TOP/build-trixie" "$TREE/"
	mkdir "$TREE/tests" "$TREE/docs"
	cp -p "$TOP/tests/tests.mk" "$TREE/tests/"
	other next cowfs/base/layout.h '' VERSION=0.1.0+next
	other layout cowfs/base/layout.h 's/^#define SHARED_LAYOUT .*/#define SHARED_LAYOUT 99u/' VERSION=0.1.0+layout
	other fails cowfs/ram/store.c 's/^#define RECORD .*/#define RECORD "elsewhere"/' VERSION=0.1.0+fails
	other hangs cowfs/ram/store.c 's/^int ram_store_take_over.*/#include <unistd.h>\n&/; s/s->mnt_fd = fd\[0\];/for (;;) pause();/' VERSION=0.1.0+hangs
	rm -rf "$TREE"
	EXTRA="$WORK/cowfs-next $WORK/cowfs-layout $WORK/cowfs-fails $WORK/cowfs-hangs"
}
