#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# keep= of cowfs.conf: paths that are committed alone, while everything else is discarded. COWFS_KEEP_ROUNDS: power cuts
# under a real sqlite (6).
# turn: 3

load lib

conf() {
	export COWFS_CONF=$T/conf
	printf '%s\n' "$@" >"$COWFS_CONF"
}

# a kiosk: all is forgotten but db/ and one file
kiosk() {
	card_make ext4 100 150 -J size=4
	conf '[vol]' 'on-detach = discard' "keep = $MNT/db $MNT/settings" 'keep-interval = 1m'
	cow prepare "$CARD"
	mount "$CARD" "$MNT"
	mkdir "$MNT/db"
	echo first >"$MNT/db/a"
	echo first >"$MNT/settings"
	echo first >"$MNT/other"
	umount "$MNT"
	attach_mounted
}

change() {
	for f in db/a settings other; do
		echo "$1" >"$MNT/$f"
	done
}

# what the card holds without a daemon: db/a, settings, other
card_holds() {
	mount -o ro "$CARD" "$MNT" || return
	run cat "$MNT/db/a" "$MNT/settings" "$MNT/other"
	umount "$MNT"
	[ "$output" = "$(printf '%s\n' "$@")" ]
}

@test "keep: the configuration is checked at once" {
	conf '[vol]' 'keep = db'
	fails 2 'conf:2: keep = db is not a list of plain absolute paths' config vol
	conf '[vol]' 'keep = /srv/../etc'
	fails 2 'plain absolute paths' config vol
	conf '[vol]' 'keep-interval = 5m'
	fails 2 'conf:1: keep-interval in .vol. needs keep = PATH' config vol
	conf '[default]' 'keep = /srv'
	fails 2 'keep belongs to one volume' config
	conf '[vol]' 'keep = /srv/db' 'keep-interval = often'
	fails 2 'keep-interval = often is not a time' config vol
	conf '[vol]' 'keep = /srv/db /srv/x'
	[ "$(cow config vol --key keep)" = "/srv/db /srv/x" ]
	[ "$(cow config vol --key keep-interval)" = 10m ]
	# below the mount point of a volume that is mounted
	kiosk
	cow config vol >/dev/null
	conf '[vol]' "keep = $MNT/db /etc/passwd"
	fails 2 "keep = /etc/passwd of .vol. is not below $MNT, where the volume is mounted" config vol
	conf '[vol]' "keep = $MNT"
	fails 2 "is not below" config vol
	conf '[vol]'
	fails 1 'vol: no path is kept: set keep = PATH' commit --kept vol
	fails 4 'nosuch' commit --kept nosuch
	detach
}

@test "keep: the kept paths are committed, and nothing else; a missing one does not hold them back" {
	kiosk
	change second
	run -0 cow commit --kept vol
	[[ $output =~ ^"vol: kept 2 paths as generation "[0-9]+$ ]]
	run -0 cow status
	[[ $output == *"kept        $MNT/db $MNT/settings, every 1m, last committed 20"* && $output != *"NOT KEPT"* ]]
	[ "$(status_of .keep.error)" = "" ]
	power_cut
	cow release "$CARD"
	card_holds second second first
	attach_mounted
	change third
	rm "$MNT/settings"
	fails 1 "$MNT/settings: not kept: No such file" commit --kept vol || [ "$status" = 1 ]
	run -0 cow status
	[[ $output == *"NOT KEPT: $MNT/settings: No such file"* ]]
	run -1 --separate-stderr cow commit --kept vol --json
	jq -e --arg d "$MNT/db" '.ok == false and .exit == 1 and .kept == [$d] and (.problems | length) == 1' <<<"$output"
	power_cut
	cow release "$CARD"
	card_holds third second first
	# not while timer commits are inhibited
	attach_mounted
	cow inhibit vol
	fails 1 inhibited commit --kept vol --timer
	cow uninhibit vol
	cow commit --kept vol --timer
	detach
}

@test "keep: before the discard at detach, umount and shutdown" {
	kiosk
	change second
	run -0 cow shutdown vol
	[[ $output == *"not committed: the changes are to be discarded"* ]]
	power_cut
	cow release "$CARD"
	card_holds second second first
	# mounted by the helper, which detaches
	timeout 300 "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o name=vol
	change third
	wait_for 10 umount_helper
	wait_for 20 no_daemons
	card_holds third third first
	# unmounted behind its back
	attach_mounted
	change fourth
	cow commit --kept vol
	change fifth
	umount_volume
	run -0 cow detach vol
	wait_for 20 no_daemons
	card_holds fifth fifth first
	# who says --discard means it
	attach_mounted
	change sixth
	detach --discard
	card_holds fifth fifth first
	fsck ext4
}

@test "keep: a path that cannot be kept is an alarm, and neither an umount nor a detach drops it" {
	kiosk
	detach
	timeout 300 "$COWFS_BUILD/mount.cowfs" "$CARD" "$MNT" -o name=vol
	run -0 cow status --brief
	change second
	mv "$MNT/settings" "$MNT/moved"
	warns "$MNT/settings: not kept: No such file" commit --kept vol
	run -3 cow status --brief
	[[ $output == *"cowfs: vol: NOT KEPT: $MNT/settings: No such file"* ]]
	run -1 umount_helper
	[[ $output == *"volume vol: not all kept paths were committed, so $MNT stays mounted"* ]]
	[ "$(cat "$MNT/db/a")" = second ]
	mv "$MNT/moved" "$MNT/settings"
	wait_for 10 umount_helper
	wait_for 20 no_daemons
	card_holds second second first
	# unmounted behind its back
	attach_mounted
	change third
	cow commit --kept vol
	change fourth
	rm "$MNT/settings"
	umount_volume
	fails 1 'vol: not all kept paths were committed, so it stays attached: cowctl commit, or cowctl detach --discard' detach vol
	detach --discard
	card_holds fourth third first
}

@test "keep: a detach with a configuration that is refused says that paths may not be kept" {
	kiosk
	change second
	umount_volume
	chmod 666 "$COWFS_CONF"
	run -0 cow detach vol
	[[ $output == *"$COWFS_CONF: not used: "*"vol: not all kept paths were committed"* ]]
	wait_for 20 no_daemons
	card_holds first first first
}

umount_helper() { timeout 300 "$COWFS_BUILD/umount.cowfs" "$MNT"; }

# Transactions, one after another; the number of each is in $T/done when sqlite has reported it.
writer() {
	local n=$1
	while [ ! -e "$T/stop" ]; do
		sqlite3 "$MNT/db/data" "pragma busy_timeout=5000; insert into t values ($n, hex(randomblob(2000)));" >/dev/null || return
		echo "$n" >"$T/done.new"
		mv "$T/done.new" "$T/done"
		n=$((n + 1))
	done
}

@test "keep: a real sqlite under load, the power cut at any moment" {
	local round rounds=${COWFS_KEEP_ROUNDS:-6} kept mode next=1 good=0 i pids holder
	for mode in delete wal; do
		IMG=''
		card_make ext4 100 150 -J size=4
		conf '[vol]' 'on-detach = discard' "keep = $MNT/db"
		cow prepare "$CARD" >/dev/null
		mount "$CARD" "$MNT"
		mkdir "$MNT/db"
		sqlite3 "$MNT/db/data" "pragma journal_mode=$mode; create table t (n integer primary key, x);" >/dev/null
		umount "$MNT"
		for ((round = 0; round < rounds / 2; round++)); do
			attach >/dev/null
			mount_volume
			rm -f "$T/stop"
			# a connection that stays: -wal is not written back when a transaction's own connection ends
			background python3 -c "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1]); \
c.execute('select count(*) from t').fetchall(); time.sleep(1000)" "$MNT/db/data"
			holder=$BG
			background writer "$next"
			pids=("$BG")
			kept=0
			for ((i = 0; i < 1 + RANDOM % 3; i++)); do
				wait_for 10 [ -e "$T/done" ]
				next=$(cat "$T/done")
				cow commit --kept vol >/dev/null
				kept=$next
			done
			# perhaps in the middle of one
			background cow commit --kept vol >/dev/null 2>&1
			pids+=("$BG")
			sleep "0.0$((RANDOM % 10))"
			kill -9 "$(worker_pid)"
			touch "$T/stop"
			wait_for 20 no_daemons
			kill "$holder" || true # it may have come too late
			wait "$holder" "${pids[@]}" || true
			timeout 300 umount "$MNT"
			loop_removed
			cow release "$CARD" >/dev/null
			fsck ext4 >/dev/null
			mount "$CARD" "$MNT"
			run -0 sqlite3 "$MNT/db/data" "pragma integrity_check; select count(*) from t where n <= $kept; select max(n) from t;"
			echo "$mode, round $round: kept up to $kept: $output"
			[ "${lines[0]}" = ok ]
			[ "${lines[1]}" = "$kept" ]
			[ "$kept" = 0 ] || good=$((good + 1))
			next=$((${lines[2]} + 1))
			rm -f "$T/done"
			umount "$MNT"
		done
		loop_down "$CARD"
		next=1
	done
	say "sqlite: $good of $((rounds / 2 * 2)) rounds had a keep that succeeded"
	[ "$good" -gt 0 ]
}

@test "keep: the owner of the folder above the mount point leads root nowhere" {
	mkdir "$T/home" "$T/home/mnt"
	MNT=$T/home/mnt
	kiosk
	change second
	cow commit --kept vol
	change third
	# what a user may make of the volume's root is no system's /etc
	cat >"$T/evil.c" <<-END
		#include <stdio.h>
		__attribute__((constructor)) static void evil(void) { fclose(fopen("$T/root-ran-it", "w")); }
	END
	gcc -shared -fPIC -o "$T/evil.so" "$T/evil.c"
	echo "$T/evil.so" >"$MNT/ld.so.preload"
	umount_volume
	chown nobody "$T/home"
	rmdir "$T/home/mnt"
	setpriv --reuid 65534 --regid 65534 --clear-groups ln -s /etc "$T/home/mnt"
	run -0 cow detach vol
	[ ! -e "$T/root-ran-it" ]
	wait_for 20 no_daemons
	rm "$T/home/mnt"
	mkdir "$T/home/mnt"
	card_holds third third first
}

@test "keep, revert, commit PATH: a link that another user made is not followed, and named with its owner" {
	kiosk
	mkdir "$MNT/home" "$MNT/secret"
	echo old >"$MNT/secret/file"
	chown nobody "$MNT/home"
	conf '[vol]' 'on-detach = discard' "keep = $MNT/home/dir/file $MNT/db"
	cow commit vol
	setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../secret "$MNT/home/dir"
	change second
	echo new >"$MNT/secret/file"
	warns "not kept: $MNT/home/dir is a symbolic link, and user 65534 controls it" commit --kept vol
	[[ $output == *"kept 1 path as"* ]]
	fails 1 "$MNT/home/dir is a symbolic link, and user 65534 controls it" commit vol "$MNT/home/dir/file"
	fails 1 "$MNT/home/dir is a symbolic link, and user 65534 controls it" revert --yes "$MNT/home/dir/file"
	[ "$(cat "$MNT/secret/file")" = new ]
	# one of root's, moved or not, in a folder of root
	ln -s secret "$MNT/ours"
	cow revert --yes "$MNT/ours/file"
	[ "$(cat "$MNT/secret/file")" = old ]
	# the same one in a folder of nobody
	mv "$MNT/ours" "$MNT/home/ours"
	fails 1 "$MNT/home/ours is a symbolic link, and user 65534 controls it" commit vol "$MNT/home/ours/file"
	# unmounted: nothing is looked up on the way to the volume
	echo newer >"$MNT/secret/file"
	change third
	umount_volume
	warns "not kept: home/dir is a symbolic link of user 65534" commit --kept vol
	[[ $output == *"kept 1 path as"* ]]
	cow detach vol --discard
	wait_for 20 no_daemons
	card_holds third first first
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/secret/file")" = old ]
}

@test "revert: the owner of a folder above the mount point moves it while the place of a path is found" {
	mkdir "$T/his" "$T/his/p" "$T/his/p/m"
	chmod 755 "$T"
	chown nobody "$T/his" "$T/his/p"
	MNT=$T/his/p/m
	kiosk
	mkdir -p "$MNT/his/m"
	echo old >"$MNT/file"
	echo old >"$MNT/his/m/file"
	chown -R nobody "$MNT/his"
	cow commit vol
	echo precious >"$MNT/file"
	# stops cowctl when it has the name of the folder, and before it reads the mounts
	cat >"$T/slow.c" <<-'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <fcntl.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		ssize_t readlink(const char *path, char *buf, size_t n)
		{
			ssize_t r = ((ssize_t (*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink"))(path, buf, n);
			char *at = getenv("AT"), *go = getenv("GO");
			if (r > 6 && !memcmp(buf + r - 6, "/his/m", 6) && access(at, F_OK) < 0) {
				close(open(at, O_CREAT, 0600));
				while (access(go, F_OK) < 0)
					usleep(10000);
			}
			return r;
		}
	END
	gcc -shared -fPIC -o "$T/slow.so" "$T/slow.c"
	AT=$T/at GO=$T/go LD_PRELOAD=$T/slow.so ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" \
		background "$COWFS_BUILD/cowctl" revert --yes "$MNT/his/m/file" >"$T/out" 2>&1
	wait_for 20 test -e "$T/at"
	# the folder of the path is now the mount point, by name
	setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'cd "$1" && mv p q && mkdir -p p/m && mv q p/m/his' sh "$T/his"
	touch "$T/go"
	wait "$BG" || true
	cat "$T/out"
	grep -q 'a folder of this path was renamed just now, or something was mounted there: try again' "$T/out"
	MNT=$T/his/p/m/his/m
	[ "$(cat "$MNT/file")" = precious ]
}
