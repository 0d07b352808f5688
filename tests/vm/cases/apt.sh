# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# upgrades = whole and trial, with apt itself: a package that is installed, one whose script fails, one in the middle of which
# the power goes, and one that is on trial.
# guests: debian12 debian13
KILLED="2"

# a package of nothing but a file and a script
package() { # NAME SCRIPT...
	mkdir -p "/run/deb/$1/DEBIAN" "/run/deb/$1/usr/share/$1"
	printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' "$1" >"/run/deb/$1/DEBIAN/control"
	echo "$1" >"/run/deb/$1/usr/share/$1/file"
	printf '#!/bin/sh\n%s\n' "$2" >"/run/deb/$1/DEBIAN/postinst"
	chmod 755 "/run/deb/$1/DEBIAN/postinst"
	must dpkg-deb --root-owner-group -b "/run/deb/$1" "/run/$1.deb"
}

install() {
	apt-get -y -o Dpkg::Use-Pty=0 -qq install "/run/$1.deb" >/run/apt.out 2>&1
	code=$?
	sed 's/^/# /' /run/apt.out >>"$LOG"
	return $code
}

set_upgrades() {
	sed -i '/^upgrades/d; s/^\[root\]/&\nupgrades = '"$1"'/' /etc/cowfs/cowfs.conf
	is "the key upgrades" "$(cowctl config --key upgrades)" "$1"
}

step_1() {
	END=reboot
	protected || fail "the root is $(root_device)"
	set_upgrades whole
	must cowctl commit root
	package good true
	install good || fail "apt fails"
	grep -q 'this upgrade is kept' /run/apt.out || fail "apt does not tell"
	! cowctl status root --json | grep -q '"held":' || fail "a generation is held"
	package bad false
	install bad && fail "apt does not fail"
	grep -q 'THE UPGRADE IS NOT COMPLETE' /run/apt.out || fail "apt does not tell of the failure"
	[ -e /usr/share/bad/file ] || fail "bad is not unpacked"
	must cowctl commit root
}

step_2() {
	protected || fail "the root is $(root_device)"
	[ -e /usr/share/good/file ] || fail "good is lost"
	[ ! -e /usr/share/bad/file ] || fail "half of bad is there"
	is "dpkg --audit" "$(dpkg --audit)" ""
	package cut 'cowctl commit root; echo CUT ME >/dev/console; sleep 1000'
	install cut
	fail "nobody has cut the power"
}

step_3() {
	END=reboot
	[ ! -e /usr/share/cut/file ] || fail "half of cut is there"
	is "dpkg --audit" "$(dpkg --audit)" ""
	set_upgrades trial
	must cowctl commit root
	package tried true
	install tried || fail "apt fails"
	grep -q 'this upgrade is on trial' /run/apt.out || fail "apt does not tell"
}

step_4() {
	[ -e /usr/share/tried/file ] || fail "tried is lost"
	wait_for 100 accepted || fail "nothing accepts the root: $(cowctl status root)"
}

host_during() {
	[ "$1" != 2 ] || { console_wait "CUT ME" && vm_kill; }
}
