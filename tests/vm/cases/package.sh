# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# The life of the Debian package on an ordinary system: installed, set up, upgraded while the root is protected, its removal refused
# until the root has left cowfs, purged. No guests are named here: the packages are those of the host's Debian, and `make check-deb`
# names the guest of that.
# guests:
LOADER=1 LIMIT=2400 STEP_LIMIT=2100

# COMMAND...: must fail, and say $1
refused() {
	why=$1
	shift
	"$@" >/run/cowfs-test/out 2>&1 && fail "not refused: $*"
	grep -q "$why" /run/cowfs-test/out || fail "'$*' does not say '$why': $(cat /run/cowfs-test/out)"
}

daemons() { pgrep -x cowfs | xargs; }
writable() { wait_for 240 grep -q ' /boot ext4' /proc/mounts && mount -o remount,rw /; }

step_1() {
	protected && fail "it is protected already"
	writable || fail "/boot is not mounted, or / is not writable"
	before=$(cksum /boot/initrd.img-*)
	must dpkg -i ./cowfs.deb
	is "the initramfs after an installation" "$(cksum /boot/initrd.img-*)" "$before"
	is "what an installation has configured" "$(ls /etc/cowfs)" ""
	is "units of cowfs" "$(systemctl list-units --no-legend --plain 'cowfs*' | grep -v '^cowfs-test')" ""
	must cowctl setup --yes
	refused "enabled in /etc/cowfs/cowfs.conf" dpkg -r cowfs
	must dpkg --audit
	# any package may ask for this before the reboot
	must systemctl daemon-reload
	is "state of the root before the reboot" "$(cat /run/cowfs/root.state 2>/dev/null)" ""
}

step_2() {
	protected || fail "the root is $(root_device): $(head -2 /run/cowfs/root.* 2>/dev/null)"
	pids=$(daemons)
	before=$(cksum /boot/initrd.img-*)
	must dpkg -i ./next.deb
	grep -q 'root: version .* replaced by ' /run/cowfs-test/out ||
		fail "the upgrade does not say which daemon runs: $(cat /run/cowfs-test/out)"
	[ "$(daemons)" != "$pids" ] || fail "the daemon is the old one"
	pids=$(daemons)
	is cowfs-shutdown.service "$(systemctl is-active cowfs-shutdown.service)" active
	[ "$(cksum /boot/initrd.img-*)" != "$before" ] || fail "the initramfs is the old one"
	must cowctl commit root
	refused "the root is protected" dpkg -r cowfs
	dpkg-query -W -f '${Version} ${Status}\n' cowfs >/run/cowfs-test/out
	# the first word is what was wanted, and dpkg keeps it
	grep -q '+next [a-z]* ok installed$' /run/cowfs-test/out || fail "after the refusal: $(cat /run/cowfs-test/out)"
	is "daemons after the refusal" "$(daemons)" "$pids"
	is cowfs-shutdown.service "$(systemctl is-active cowfs-shutdown.service)" active
	echo mine >/srv-mine
}

step_3() {
	protected || fail "the root is $(root_device) after the upgrade: $(head -2 /run/cowfs/root.* 2>/dev/null)"
	is "a file of the last boot" "$(cat /srv-mine)" mine
	must cowctl disable
	refused "the root is protected" dpkg -r cowfs
}

step_4() {
	protected && fail "it is protected still"
	writable || fail "/boot is not mounted, or / is not writable"
	wait_for 240 test ! -e /etc/cowfs/leaving ||
		fail "it does not leave: $(systemctl status --no-pager cowfs-leave.service 2>&1 | tail -n 5)"
	# what the guest had from make install belongs to the package since
	dpkg -L cowfs >/run/cowfs-test/list
	must dpkg -P cowfs
	lsinitramfs /boot/initrd.img-* >/run/cowfs-test/out 2>/dev/null || lsinitrd /boot/initrd.img-* >/run/cowfs-test/out
	! grep cowctl /run/cowfs-test/out || fail "cowfs is in the initramfs still"
	while read -r file; do
		[ -d "$file" ] || [ ! -e "$file" ] || fail "$file is left"
	done </run/cowfs-test/list
	[ ! -e /etc/cowfs ] || fail "/etc/cowfs is left: $(ls -A /etc/cowfs)"
	is "a file of before" "$(cat /srv-mine)" mine
}

# The package as it is, and again with a higher version.
host_before() {
	[ "$1" = 1 ] || return 0
	set -- "$BUILD"/deb/cowfs_*.deb
	[ -e "$1" ] || fail "no package: make deb"
	cp "$1" "$WORK/cowfs.deb"
	dpkg-deb -R "$1" "$WORK/pack"
	sed -i 's/^\(Version: .*\)/\1+next/' "$WORK/pack/DEBIAN/control"
	dpkg-deb --root-owner-group -b "$WORK/pack" "$WORK/next.deb" >/dev/null || fail "no second package"
	rm -rf "$WORK/pack"
	EXTRA="$WORK/cowfs.deb $WORK/next.deb"
}

host_after() {
	[ "$1" = 4 ] || return 0
	card_extract "$WORK/part"
	e2fsck -fn "$WORK/part" >"$WORK/e2fsck.out" 2>&1 || fail "e2fsck: $(tail -3 "$WORK/e2fsck.out")"
}
