# shellcheck shell=sh disable=SC2034,SC2154,SC2086
# SPDX-License-Identifier: MIT
# The devices of docs/RECIPES.md: what each writes, as its programs write it (which file, how often, with or without fsync), and what
# of it reaches the card: on ext4 with noatime, with the logs in RAM as log2ram has them (one copy a day), and on cowfs with the
# settings of the recipe. Two hours each, in the long form a day: a half minute is a round, at its end the file system is
# synced, as the kernel would do it by then. On cowfs every file must be there at the end.
# guests: busybox-sqlite
# short:
DATA_MIB=640 LIMIT=900 STEP_LIMIT=800 MEM=1024
[ -z "${LONG-}" ] || LIMIT=7200 STEP_LIMIT=7100
KILLED=''
RECIPES='kiosk car logger home plc camera'

# ---- in the guest: D is the folder on the card, L its logs; N is the number of the round ----

log_lines() { # COUNT PROGRAM
	_i=0
	while [ $_i -lt "$1" ]; do
		_i=$((_i + 1))
		echo "2026-11-26T08:$((N % 60)):$_i device $2[812]: state is what it was before, and the next look is in some seconds ($N)"
	done >>"$L/syslog"
}
random_bytes() { head -c "$1" /dev/urandom; }
# A file that is replaced as programs do it that fear for it
replace() {
	cat >"$1.new"
	sync "$1.new"
	mv "$1.new" "$1"
}
sql() { sqlite3 "$D/db" >/dev/null || fail "sqlite3"; }

# A browser: history and cookies, its cache, which has 40 files. Commits nothing, but a setting that the operator changed
load_kiosk() {
	log_lines 4 browser
	for _t in 1 2 3; do
		echo "BEGIN; INSERT INTO t VALUES($N$_t, hex(randomblob(120))); UPDATE last SET n = $N$_t; COMMIT;"
	done | sql
	random_bytes 60000 >"$D/cache-$((N % 40))"
	[ $((N % 120)) != 0 ] || echo "brightness $N" >"$D/keep/settings"
}
# A drive of half an hour is a commit: track, where the music was, the trip
load_car() {
	log_lines 8 player
	random_bytes 1800 >>"$D/track-$((N / 60))"
	echo "BEGIN; INSERT INTO t VALUES($N, hex(randomblob(40))); UPDATE last SET n = $N; COMMIT;" | sql
}
# GPS once a second, on the disk each 10 seconds
load_logger() {
	log_lines 1 gpsd
	for _t in 1 2 3; do
		random_bytes 800 >>"$D/track-$((N / 120))"
		sync "$D/track-$((N / 120))"
	done
}
# A recorder: a transaction each 5 seconds
load_home() {
	log_lines 6 core
	for _t in 1 2 3 4 5 6; do
		echo "BEGIN; INSERT INTO t VALUES($N$_t, hex(randomblob(400))); INSERT INTO t VALUES(-$N$_t, hex(randomblob(400)));
			UPDATE last SET n = $N$_t; COMMIT;"
	done | sql
	[ $((N % 60)) != 0 ] || random_bytes 20000 | replace "$D/states"
}
# Retained values and a queue that must outlive a power cut of the controller, not of the gateway
load_plc() {
	log_lines 2 gateway
	for _t in 1 2 3 4 5 6; do
		random_bytes 3000 | replace "$D/retained"
	done
	random_bytes 600 >>"$D/queue"
	[ $((N % 20)) != 0 ] || : >"$D/queue"
}
# A picture each minute
load_camera() {
	log_lines 1 camera
	[ $((N % 2)) = 0 ] || random_bytes 700000 >"$D/picture-$N"
}

# Rounds between two commits
rounds_of() {
	case $1 in
	kiosk) echo 0 ;;
	car) echo 60 ;;
	logger) echo 20 ;;
	home | camera) echo 120 ;;
	plc) echo 30 ;;
	esac
}

written() { awk '{ print $7 * 512 }' "/sys/class/block/${CARD#/dev/}/stat"; }

begin() {
	D=/mnt/data/$1 L=/mnt/data/$1/log
	mkdir -p "$D/log" "$D/keep"
	echo 'PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE TABLE last(n);
		INSERT INTO last VALUES(0);' | sql
	sync -f /mnt/data
}

# Two hours or a day of RECIPE, with the command EVERY after so many rounds
live() { # RECIPE ROUNDS EVERY
	N=0
	while [ "$N" -lt "$ROUNDS" ]; do
		N=$((N + 1))
		"load_$1"
		sync -f /mnt/data
		[ "$2" = 0 ] || [ $((N % $2)) != 0 ] || "$3" "$1"
	done
}

plain() {
	must mount -o noatime "$CARD" /mnt/data
	begin "$1"
	from=$(written)
	live "$1" 0 :
	must umount /mnt/data
	to=$(written)
}

log2ram() {
	must mount -o noatime "$CARD" /mnt/data
	begin "$1"
	must mount -t tmpfs log2ram "$L"
	from=$(written)
	live "$1" 0 :
	cp -a "$L/syslog" "$D/log-of-the-day"
	must umount "$L"
	must umount /mnt/data
	to=$(written)
}

keep_paths() { must cowctl commit /mnt/data/kiosk/keep; }
whole() { must cowctl commit data; }

on_cowfs() {
	loop=$(cowctl attach --ram 200M --name data "$CARD") || fail "$1: not attached"
	must mount -o noatime "$loop" /mnt/data
	begin "$1"
	whole
	from=$(written)
	case $1 in
	kiosk) live "$1" 120 keep_paths ;;
	*) live "$1" "$(rounds_of "$1")" whole ;;
	esac
	find "$D" -type f | sort | xargs md5sum >/run/sums
	must umount /mnt/data
	case $1 in
	kiosk)
		must cowctl detach data --discard
		grep /keep/ /run/sums >/run/kept && mv /run/kept /run/sums
		;;
	*) must cowctl detach data ;;
	esac
	to=$(written)
	must mount -o ro "$CARD" /mnt/data
	md5sum -c /run/sums >/run/verified 2>&1 || fail "$1: $(grep -v OK$ /run/verified | head -n 3)"
	must umount /mnt/data
}

step_1() {
	ROUNDS=240
	[ -z "$LONG" ] || ROUNDS=2880
	CARD=$(data_card)
	mkdir -p /mnt/data
	for recipe in $RECIPES; do
		for how in plain log2ram on_cowfs; do
			must mount -o noatime "$CARD" /mnt/data
			rm -rf /mnt/data/*
			must umount /mnt/data
			$how "$recipe"
			value "$how.$recipe" $((to - from))
		done
	done
}

# ---- the host: the table of docs/RECIPES.md ----

host_after() {
	verdict_read
	! grep -q ^fail "$VERDICT" || fail "$(sed -n 's/^fail //p' "$VERDICT" | head -1)"
	for recipe in $RECIPES; do
		awk -v r="$recipe" '
			$1 == "value" && $2 == "plain." r { plain = $3 }
			$1 == "value" && $2 == "log2ram." r { log2ram = $3 }
			$1 == "value" && $2 == "on_cowfs." r { cowfs = $3 }
			END {
				printf "    | %s | %.1f | %.1f | %.2f | %.0f | %.0f |\n", r, plain / 1048576, log2ram / 1048576, cowfs / 1048576,
					plain / (cowfs ? cowfs : 4096), log2ram / (cowfs ? cowfs : 4096)
				# a camera writes what it must; of everything else a tenth is much
				exit !(plain && cowfs * (r == "camera" ? 0.9 : 5) < plain)
			}' "$VERDICT" || fail "$recipe: cowfs saves too little"
	done
	offline_check "$DATA"
}
