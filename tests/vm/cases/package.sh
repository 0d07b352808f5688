# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# The life of the Debian package on an ordinary system: installed, set up, upgraded while the root is protected and written, the power
# cut, its removal refused until the root has left cowfs, purged. No guests are named here: the packages are those of `make deb` and
# `make check-debs`, and `make check-deb` names the guest of this machine's Debian.
# guests:
LOADER=1 KILLED=3 LIMIT=2400 STEP_LIMIT=2100

# COMMAND...: must fail, and say $1
refused() {
	why=$1
	shift
	"$@" >/run/cowfs-test/out 2>&1 && fail "not refused: $*"
	grep -q "$why" /run/cowfs-test/out || fail "'$*' does not say '$why': $(cat /run/cowfs-test/out)"
}

daemons() { pgrep -x cowfs | xargs; }
writable() { wait_for 240 grep -q ' /boot ext4' /proc/mounts && mount -o remount,rw /; }

# An emulated machine takes minutes for an initramfs with all drivers, and five are made.
few_drivers() {
	if [ -d /etc/initramfs-tools ]; then
		echo MODULES=list >/etc/initramfs-tools/conf.d/small
		printf '%s\n' virtio_pci virtio_blk ext4 >>/etc/initramfs-tools/modules
	else
		echo 'hostonly="yes"' >/etc/dracut.conf.d/image.conf
	fi
}

# Writes and reads the root until it is told to end; sums has what is there then.
load() {
	n=0
	mkdir -p /srv/load
	while [ -e /run/cowfs-test/load ]; do
		n=$((n + 1)) file=/srv/load/$((n % 20))
		head -c 300000 /dev/urandom >/run/cowfs-test/data
		cp /run/cowfs-test/data $file && sync $file && cmp /run/cowfs-test/data $file || return 1
		echo $n >/run/cowfs-test/files
		sleep 0.3
	done
	sha256sum /srv/load/* >/srv/sums && sync /srv/sums
}

files() { cat /run/cowfs-test/files 2>/dev/null || echo 0; }

step_1() {
	protected && fail "it is protected already"
	writable || fail "/boot is not mounted, or / is not writable"
	few_drivers
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
	: >/run/cowfs-test/load
	load >/run/cowfs-test/load.out 2>&1 &
	load=$!
	wait_for 60 test -s /run/cowfs-test/files || fail "no load: $(cat /run/cowfs-test/load.out)"
	start=$(files)
	must dpkg -i ./next.deb
	say "files written and read during the upgrade: $(($(files) - start))"
	[ "$(files)" -gt $((start + 3)) ] || fail "the load has not gone on"
	rm /run/cowfs-test/load
	wait $load || fail "the load: $(cat /run/cowfs-test/load.out)"
	echo 3 >/proc/sys/vm/drop_caches
	sha256sum -c --quiet /srv/sums >/run/cowfs-test/load.out || fail "lost writes: $(cat /run/cowfs-test/load.out)"
	grep -q "root: version .* serves until the next boot; 9.* is installed" /run/cowfs-test/out ||
		fail "the upgrade does not say which daemon runs: $(cat /run/cowfs-test/out)"
	is "daemons after the upgrade" "$(daemons)" "$pids"
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
	is "version after the upgrade" "$(cowctl status root --json | sed 's/.*"version": *"\([^"]*\)".*/\1/')" "$(cowctl --version | sed 's/cowfs //')"
	is "a file of the last boot" "$(cat /srv-mine)" mine
	must sha256sum -c --quiet /srv/sums
	echo committed >/srv-committed
	must cowctl commit root
	echo lost >/srv-lost
	sync /srv-lost
	mark committed
	sleep 600
}

step_4() {
	protected || fail "the root is $(root_device) after a power cut: $(head -2 /run/cowfs/root.* 2>/dev/null)"
	is "a file that was committed" "$(cat /srv-committed)" committed
	[ ! -e /srv-lost ] || fail "a file that was not committed is there"
	must sha256sum -c --quiet /srv/sums
	must cowctl disable
	refused "the root is protected" dpkg -r cowfs
}

step_5() {
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

# The package as it is, and again with a higher version, also of its programs. COWFS_VM_FROM=FILE: first that package, of another build.
host_before() {
	[ "$1" = 1 ] || return 0
	package=$(package_of "$(suite_of "$GUEST")") || fail "no package"
	cp "${COWFS_VM_FROM:-$package}" "$WORK/cowfs.deb"
	dpkg-deb -R "$package" "$WORK/pack"
	sed -i 's/^\(Version: .*\)/\1+next/' "$WORK/pack/DEBIAN/control"
	# programs of another version: with another first character of its number
	version=$("$BUILD/cowctl" --version)
	version=${version#cowfs }
	find "$WORK/pack/usr" -type f -perm /111 -exec env LC_ALL=C sed -i "s/$(echo "$version" | sed 's/[.]/\\./g')/9${version#?}/g" {} +
	dpkg-deb --root-owner-group -b "$WORK/pack" "$WORK/next.deb" >/dev/null || fail "no second package"
	rm -rf "$WORK/pack"
	EXTRA="$WORK/cowfs.deb $WORK/next.deb"
}

host_during() {
	[ "$1" != 3 ] || { wait_mark committed && vm_kill; }
}

host_after() {
	[ "$1" = 5 ] || return 0
	card_extract "$WORK/part"
	e2fsck -fn "$WORK/part" >"$WORK/e2fsck.out" 2>&1 || fail "e2fsck: $(tail -3 "$WORK/e2fsck.out")"
}
