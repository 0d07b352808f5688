# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# Power that ends: the card takes 5 MB/s, a program never stops writing, and 10 s (max-commit-time) after cowfs-power.service was started
# the machine is cut. What was written before is on the card. Before that, commits at several moments take no longer.
# guests: debian13
BPS=5000000 APPEND=cowfs=max-commit-time:10s KILLED=1

now() { cut -d. -f1 /proc/uptime; }

writer() {
	n=0
	while :; do
		n=$((n + 1))
		dd if=/dev/urandom of=/srv/p/$((n % 30)) bs=65536 count=$((n % 16 + 1)) status=none || return
		echo $n >/srv/p/new && mv /srv/p/new /srv/p/n
	done
}

step_1() {
	protected || fail "the root is $(root_device)"
	is "the limit" "$(cowctl status root --json | grep -o '"max_commit_seconds": *[0-9]*')" '"max_commit_seconds":10'
	mkdir -p /srv/p
	writer &
	sleep 20
	for pause in 1 3 2 5 4 1; do
		sleep $pause
		from=$(now)
		must cowctl commit root
		took=$(($(now) - from))
		say "a commit took $took s"
		[ $took -le 10 ] || fail "a commit took $took s"
	done
	cat /srv/p/n >/srv/signal
	mark signal
	systemctl start --no-block cowfs-power.service
	sleep 60
}

step_2() {
	protected || fail "the root is $(root_device)"
	[ -s /srv/signal ] || fail "what was written before the signal is not there"
	[ "$(cat /srv/p/n)" -ge "$(cat /srv/signal)" ] || fail "an older file of the same generation"
}

host_during() {
	[ "$1" != 1 ] || { wait_mark signal 600 && sleep 10 && vm_kill; }
}
