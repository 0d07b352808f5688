# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# What makes a tree an image for many cards: nothing of the machine that has built it, nothing that two cards may not share.
#
#	image_settle SUITE TREE		after debian_tree
#	image_epoch			the time of all files: that of the last commit of the sources

# shellcheck disable=SC2034 # for build
IMAGE_FIRST_PACKAGES="fdisk openssh-server iproute2 less nano systemd-resolved systemd-timesyncd"

image_epoch() {
	git -C "$TOP" log -1 --format=%ct 2>/dev/null || stat -c %Y "$TOP/CHANGES.md"
}

image_settle() {
	local suite=$1 tree=$2
	rm -f "$tree"/etc/ssh/ssh_host_* "$tree"/etc/apt/sources.list{,.d/*} "$tree"/etc/apt/apt.conf.d/99mmdebstrap "$tree"/etc/*- \
		"$tree"/var/lib/dbus/machine-id "$tree"/var/lib/systemd/{random-seed,credential.secret} "$tree"/etc/.resolv.conf.*
	rm -rf "$tree"/var/lib/apt/lists/* "$tree"/var/cache/{apt,ldconfig,debconf,man}/* "$tree"/var/lib/dpkg/*-old
	find "$tree/var/log" -type f -delete
	: >"$tree/etc/machine-id"
	ln -sf ../run/systemd/resolve/stub-resolv.conf "$tree/etc/resolv.conf"
	apt_sources "$suite" >"$tree/etc/apt/sources.list" # the mirror of this machine
	image_password "$tree/etc/shadow"
	# nothing in /etc and /var is older than /usr: no boot has to renew caches
	: >"$tree/etc/.updated"
	: >"$tree/var/.updated"
	find "$tree" "$tree.boot" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# root has the password "cowfs" at the console alone, where the first login must change it: sshd lets root in by key only.
image_password() {
	# shellcheck disable=SC2016 # a hash, of crypt("cowfs", "$6$cowfs$")
	awk -F : -v OFS=: -v day=$((SOURCE_DATE_EPOCH / 86400)) \
		-v hash='$6$cowfs$inNiyome4J3fGjkPMe05VQohmxlsBUCXWMU9264oyd5HS107cAatr3ekNrJ15zhu6oKKydh8XUNgiiE52.j9D/' '
		{ $3 = day }
		$1 == "root" { $2 = hash; $3 = 0 }
		{ print }' "$1" >"$1.new"
	cat "$1.new" >"$1"
	rm "$1.new"
}
