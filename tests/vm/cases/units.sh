# shellcheck shell=sh disable=SC2034,SC2154,SC2086
# SPDX-License-Identifier: MIT
# What a protected root gets from systemd: units, mount options, names, banner, volatile directories; figures for
# Prometheus; both commits at shutdown, and a clock that runs behind.
# guests: debian12-tools debian13-tools
LIMIT=1200 STEP_LIMIT=900

active() { is "$1" "$(systemctl is-active "$1")" active; }

nothing_failed() {
	failed=$(systemctl --failed --no-legend --plain | cut -d' ' -f1 | tr '\n' ' ')
	[ -z "$failed" ] || { systemctl status --no-pager $failed >>"$LOG" 2>&1; fail "units have failed: $failed"; }
}

# Is this a file that Prometheus reads? Every sample belongs to the metric announced before it, and is a number.
parses() {
	awk '
		function bad(why) { print FILENAME ": line " NR ": " why ": " $0; failed = 1; exit }
		/^# HELP [a-z_]+ ./ { next }
		/^# TYPE [a-z_]+ (counter|gauge)$/ { if (typed[$3]++) bad("announced twice"); name = $3; next }
		/^[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)*\})? -?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?$/ {
			split($0, part, /[ {]/)
			if (part[1] != name) bad("of another metric than " name)
			if (seen[substr($0, 1, length($0) - length($NF))]++) bad("twice")
			samples++
			next
		}
		{ bad("no sample") }
		END { exit failed || samples < 20 }' "$1" >>"$LOG" 2>&1
}

metrics_at_rest() {
	[ "$(systemctl is-active cowfs-metrics.service)" = inactive ]
}

# The timer, not enabled by itself, writes the file within its first minute; with all that the unit is not allowed to do.
metrics() {
	prom=/run/cowfs-metrics/cowfs.prom
	[ ! -e $prom ] || fail "$prom is there, and nobody asked for it"
	must systemctl enable --now cowfs-metrics.timer
	wait_for 150 test -s $prom || fail "the timer wrote no $prom: $(systemctl list-timers --all --no-pager cowfs-metrics.timer | head -2)"
	wait_for 60 metrics_at_rest
	is "what became of the service" "$(systemctl show -P Result cowfs-metrics.service)" success
	is "the mode of the file" "$(stat -c %a $prom)" 644
	parses $prom || fail "$prom is not what Prometheus reads: $(tail -n 3 "$LOG")"
	is "volumes in it" "$(grep '^cowfs_volumes ' $prom)" "cowfs_volumes 1"
	grep -q '^cowfs_commits_total{volume="root",cause="timer"} [1-9]' $prom || fail "no commit by timer in $prom"
	# again, over the old one, and nothing is left beside it
	before=$(stat -c %i $prom)
	must systemctl start cowfs-metrics.service
	[ "$(stat -c %i $prom)" != "$before" ] || fail "$prom was not replaced"
	is "files beside it" "$(ls -A /run/cowfs-metrics)" cowfs.prom
	must systemctl disable --now cowfs-metrics.timer
}

step_1() {
	protected || fail "the root is not protected"
	nothing_failed
	for unit in cowfs-shutdown.service cowfs-options.service cowfs-commit@root.timer cowfs-events.service; do
		active $unit
	done
	for option in noatime discard noinit_itable nodioread_nolock; do
		case ,$(findmnt -n -o OPTIONS /), in
		*,$option,* | *,discard=*) ;;
		*) fail "the root is mounted without $option" ;;
		esac
	done
	is "the seed's credit" "$(systemctl show -P Environment systemd-random-seed.service)" SYSTEMD_RANDOM_SEED_CREDIT=no
	# two file systems with one UUID
	loop=$(root_device)
	uuid=$(blkid -o value -s UUID "$loop")
	udevadm settle
	is "the device of the UUID" "$(readlink -f "/dev/disk/by-uuid/$uuid")" "$(readlink -f "$loop")"
	is "the partition's type" "$(lsblk -n -d -o FSTYPE "/dev/$(root_part)")" cowfs_base
	is "the partition's UUID" "$(lsblk -n -d -o UUID "/dev/$(root_part)")" ''
	echo changed >/root/changed
	must sync -f /root/changed
	case $(/etc/update-motd.d/90-cowfs) in
	"cowfs: root: "*"not on the card yet"*) ;;
	*) fail "no banner: $(/etc/update-motd.d/90-cowfs)" ;;
	esac
	# the new machine-id is on the card already
	wait_for 60 systemctl show -P ExecMainExitTimestamp cowfs-identity.service
	wait_for 60 journalctl -q -u cowfs-identity.service --grep 'newer than the last commit' ||
		fail "the machine got its identity, and it was not committed"
	# an interval, and a timer that commits
	printf '[root]\ncommit-interval = 10s\nvolatile = /var/tmp /srv\n' >/etc/cowfs/cowfs.conf
	chmod 1777 /var/tmp
	must systemctl daemon-reload
	must systemctl restart cowfs-commit@root.timer
	generation=$(cowctl status root --json | sed 's/.*"generation":\([0-9]*\),.*/\1/')
	echo x >/root/by-timer
	wait_for 60 sh -c "[ \$(cowctl status root --json | sed 's/.*\"generation\":\([0-9]*\),.*/\1/') -gt $generation ]" ||
		fail "no commit by timer: $(systemctl list-timers --no-pager | head -5)"
	wait_for 20 journalctl -q -u cowfs-events.service --grep 'root: commit' || fail "no event of the commit"
	# packages
	/usr/lib/cowfs/dpkg-hook pre
	is "a commit by timer inhibited" "$(cowctl commit root --timer >/dev/null 2>&1; echo $?)" 1
	/usr/lib/cowfs/dpkg-hook post
	cowctl uninhibit root >/dev/null
	must dpkg --configure -a
	case $(cowctl status root --json | sed 's/.*"inhibit_left_seconds":\([0-9.]*\).*/\1/') in
	[1-9]*) ;;
	*) fail "dpkg has not called its hook" ;;
	esac
	cowctl uninhibit root >/dev/null
	must systemctl stop cowfs-commit@root.timer
	metrics
	# the next boot is not to be full of commits
	printf '[root]\nvolatile = /var/tmp /srv\n' >/etc/cowfs/cowfs.conf
	dd if=/dev/urandom of=/root/bulk bs=1M count=20 2>/dev/null
	sha256sum /root/bulk >/root/bulk.sum
}

step_2() {
	protected || fail "the root is not protected"
	nothing_failed
	must sha256sum -c /root/bulk.sum
	[ -e /root/by-timer ] || fail "what the timer committed is gone"
	# volatile since this boot
	for dir in /var/tmp /srv; do
		is "$dir" "$(findmnt -n -o FSTYPE $dir)" tmpfs
	done
	is "the mode of /var/tmp" "$(stat -c %a /var/tmp)" 1777
	echo gone >/var/tmp/gone
	is "checkpointed" "$(cowctl status root --json | sed 's/.*"log_live_blocks":\([0-9]*\),.*/\1/')" 0
	# from now on the clock is wrong
	must cowctl commit root
	date +%s >/root/time
	systemctl disable systemd-timesyncd.service 2>/dev/null
	rm -f /var/lib/systemd/timesync/clock
	cowctl commit root >/dev/null
	# the first stage of this shutdown fails
	mkdir -p /run/systemd/system/cowfs-shutdown.service.d
	printf '[Service]\nExecStop=\nExecStop=/bin/false\n' >/run/systemd/system/cowfs-shutdown.service.d/fails.conf
	must systemctl daemon-reload
	echo x >/root/by-second-stage
}

step_3() {
	protected || fail "the root is not protected"
	[ -e /root/by-second-stage ] || fail "what a shutdown without its first stage had to commit is gone"
	[ ! -e /var/tmp/gone ] || fail "a volatile directory is not empty"
	[ "$(date +%s)" -ge "$(cat /root/time)" ] || fail "the clock runs behind the last commit: $(date)"
	dmesg | grep -q 'clock was behind the last commit' || fail "nobody has set the clock: $(date)"
}

# both stages, on the console: the first one leaves little to the second one, and fails in boot 2
host_after() {
	commits=$(grep -ac 'cowfs: root: everything is on the card, generation' "$WORK/console-$1")
	if [ "$1" = 1 ]; then
		[ "$commits" -ge 2 ] || fail "20 MiB for a card of unknown speed, and no two commits at shutdown on the console"
		return
	fi
	[ "$commits" = 1 ] || fail "$commits commits at shutdown on the console, not one"
	[ "$1" = 2 ] || grep -aq 'cowfs: root: little to commit' "$WORK/console-$1" ||
		fail "the first stage did not say that it left something out"
}

host_before() {
	[ "$1" != 3 ] || CLOCK=2001-01-01T00:00:00
}
