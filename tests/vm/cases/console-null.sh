# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# With console=null the kernel starts /init without standard descriptors: the root is protected all the same, and commits.
# guests: busybox debian12
# short: busybox
CONSOLE=null APPEND="earlyprintk=ttyS0,115200,keep"

step_1() {
	protected || fail "the root is $(root_device), cowfs says '$(cat /run/cowfs/root.state 2>/dev/null)'"
	dmesg | grep -q 'unable to open an initial console' || fail "init has a console"
	mkdir -p /srv && echo kept >/srv/console && sync
	must cowctl commit root
	echo lost >/srv/console && sync
	must cowctl discard root
}

step_2() {
	protected || fail "the root is $(root_device)"
	is "what was committed" "$(cat /srv/console)" kept
	must cowctl status root
}
