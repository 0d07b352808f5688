#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# One convention for --json: each line of standard output is an object with "ok" and "schema", an error has "error", "code"
# and "exit" as well, and standard error is empty.

load lib

# json CODE ARGUMENT...: every line is such an object; --json is added behind
json() {
	local code=$1
	shift
	run --separate-stderr cow "$@" --json
	echo "cowctl $* --json: exit $status, $output, stderr: $stderr"
	[ "$status" = "$code" ] || return
	jq -se --argjson c "$code" 'length > 0 and all(type == "object" and (.ok | type == "boolean") and (.schema | type == "number")) and
		($c == 0 or $c == 3 or all(.ok == false and .exit == $c and (.error | length > 0) and (.code | test("^E[A-Z0-9]+$"))))' <<<"$output" >/dev/null
}

# no text besides
quiet() {
	[ -z "$stderr" ]
}

# every command of the help, so that a new one is noticed
commands() {
	cow --help >"$T/help" && sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' "$T/help" | sort
}

@test "json: every command, bad use" {
	local c
	for c in $(commands); do
		json 2 "$c" --nonsense
		quiet
		case $c in
		commit | diff) ;; # any number of paths
		revert | run) json 2 "$c" ;;
		*) json 2 "$c" one two three ;;
		esac
		quiet
	done
	for c in $(cow --help | sed -n 's/^  \([a-z-]*\) DEVICE .*/\1/p'); do
		json 2 "$c"
		quiet
		json 1 "$c" "$T/missing"
		quiet
	done
	for c in detach status commit "commit --kept" top diff wear discard inhibit uninhibit trim; do
		json 4 $c nosuch
		quiet
		json 4 $c
		quiet
	done
	json 4 shutdown nosuch # its lines on standard error are for the console
	json 4 wear nosuch --prometheus "$T/out"
	quiet
	[ ! -e "$T/out" ]
	json 2 wear --prometheus -
	json 2 wear --html -
	json 4 wear nosuch --html "$T/out"
	json 1 wear --from "$T/missing" --html "$T/out"
	json 2 nosuch
	json 2 config --key nosuch
	json 2 commit --flash slc
	json 2 inhibit --for ever
	json 2 detach --commit
	json 2 factory-reset --yes
	json 2 status --brief
	quiet
}

@test "json: every command, good use" {
	local covered
	COWFS_CONF=$T/conf
	export COWFS_CONF
	printf '[data]\nram = 64M\n' >"$COWFS_CONF"
	covered="clone scrub export import disable factory-reset setup release grow run"
	json 0 --version
	json 0 config
	json 0 config --list
	json 0 config --list --key ram
	json 0 config --key ram data
	covered+=" config"
	card_make ext4 100 150
	json 0 card "$CARD"
	json 0 prepare "$CARD"
	json 0 check "$CARD"
	json 0 attach "$CARD" --name vol
	DEV=$(jq -r .loop <<<"$output") NAME=vol
	is_volume
	mount_volume
	echo 1 >"$MNT/a"
	sync -f "$MNT"
	json 0 commit --dry-run
	json 0 top
	json 0 diff
	json 0 commit
	json 0 commit
	json 0 status
	mkdir "$T/view"
	json 0 view "$T/view"
	umount "$T/view"
	json 2 revert "$MNT/a"
	echo x >>"$MNT/a"
	json 0 revert --yes "$MNT/a"
	echo x >>"$MNT/a"
	json 0 commit "$MNT/a"
	json 0 wear
	json 0 wear --html "$T/page.html"
	[ "$(jq .output_bytes <<<"$output")" = "$(stat -c %s "$T/page.html")" ]
	json 0 wear --prometheus "$T/prom"
	json 1 commit --kept # nothing is configured
	quiet
	json 0 inhibit
	json 0 uninhibit
	json 1 trim # after a commit of a path
	quiet
	json 0 commit
	json 0 trim
	[ "$(jq .trimmed_bytes <<<"$output")" -gt 1000000 ]
	json 0 discard
	json 0 discard --cancel
	json 0 status --follow --once || [ "$status" = 0 ] # nothing to report: no line
	json 0 shutdown
	jq -e .schema "$COWFS_RUNDIR/vol/status.json"
	umount_volume
	json 0 detach
	wait_for 20 no_daemons
	json 0 grow "$CARD"
	json 0 release "$CARD"
	truncate -s 40M "$T/file"
	json 0 measure --write-area all "$T/file" || { [[ $output == *"became slower"* ]]; json 0 measure --write-area all "$T/file"; }
	jq -e '.profile["measured-card"].from' <<<"$output"
	# bench: bench.bats
	covered+=" measure card prepare check attach commit top diff status view revert wear generations undo accept inhibit uninhibit trim discard detach"
	# the rest is in boot.bats, setup.bats, run.bats, clone.bats, scrub.bats and delta.bats
	[ "$(tr ' ' '\n' <<<"$covered" | sort)" = "$(commands)" ]
}
