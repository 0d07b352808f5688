#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The hooks and scripts of other distributions, on trees of files. What builds packages is not run here: docs/PACKAGING.md.
# turn: 3

load lib

# PART: its files below $T/dest, and nothing of another part
part() {
	rm -rf "$T/dest"
	run -0 make -C "$TOP" -o all -s install DESTDIR="$T/dest" PARTS="$1" B="$COWFS_BUILD"
	(cd "$T/dest" && find . -type f -o -type l) | sed 's/^\.//' | grep -vE '/(man|doc|bash-completion)/' | sort >"$T/files"
}

has() { # PATH...
	local f
	for f; do
		grep -qxF "$f" "$T/files" || { echo "missing: $f"; cat "$T/files"; return 1; }
	done
}

@test "make install: PARTS" {
	part ''
	[ "$(cat "$T/files")" = "$(printf '%s\n' /usr/lib/cowfs/{cards.conf,cowfs-boot,cowfs.sh,set-readonly} /usr/sbin/{cowctl,cowfs,mount.cowfs,umount.cowfs})" ]
	part tools
	has /usr/libexec/cowfs/cowctl-{clone-disk,measure,wear-html,wear-outlook,wear-prometheus} /usr/libexec/cowfs/wear/{metrics.jq,page.js} \
		/usr/libexec/cowfs/measure/tables.py
	part mkinitcpio
	has /usr/lib/initcpio/{install,hooks,post}/cowfs /etc/mkinitcpio.conf.d/cowfs.conf /usr/lib/cowfs/cowfs-root.{sh,service,conf} \
		/usr/lib/cowfs/{setup,check-initramfs}
	part openrc
	has /etc/init.d/cowfs{,-root,-shutdown} /etc/rc.conf.d/cowfs.conf /usr/lib/cowfs/{system.sh,commit-timer,last-commit,root-options}
	part runit
	has /etc/sv/cowfs/run /etc/runit/core-services/02-cowfs.sh /etc/runit/shutdown.d/{65,85}-cowfs.sh /usr/lib/cowfs/last-commit
	run ! grep -E 'systemd|dracut|initramfs-tools|dpkg' "$T/files"
	part busybox
	has /usr/share/cowfs/busybox/{init,rcS,rcK,mkinitramfs} /usr/lib/cowfs/{system.sh,commit-timer}
	run ! grep -E '^/etc' "$T/files"
	# rpmbuild fails at a file that the spec does not name
	part "$(sed -n "s/.*PARTS='\([^']*\)'.*/\1/p" "$TOP/packaging/fedora/cowfs.spec")"
	sed -n '/^%files/,${s/%{lib_all}/\/usr\/lib/;s/%{_\([a-z]*\)dir}/\/usr\/\1/;s/\*$//;/^\/usr/p}' "$TOP/packaging/fedora/cowfs.spec" >"$T/named"
	has /usr/bin/cowfs-cardsim
	run ! grep -vFf "$T/named" "$T/files"
}

# The functions of mkinitcpio that the build hook calls, as far as their effect goes. HOOKS...
mkinitcpio_build() {
	local _hooks=("$@")
	BUILDROOT=$T/image
	map() { local f=$1 a; shift; for a; do "$f" "$a" || return; done; }
	in_array() { local a n=$1; shift; for a; do [ "$a" != "$n" ] || return 0; done; return 1; }
	error() { echo "ERROR: $*"; return 1; }
	add_module() { echo "$1" >>"$BUILDROOT/modules"; }
	add_file() {
		case $1 in
		/usr/lib/cowfs/*) install -D -m "${3:-644}" "$T/dest$1" "$BUILDROOT${2:-$1}" ;;
		*) install -D -m "${3:-644}" "$1" "$BUILDROOT${2:-$1}" ;;
		esac
	}
	add_binary() {
		local path
		case $1 in
		/usr/lib/cowfs/*) path=$T/dest$1 ;;
		*) path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$1") || return ;;
		esac
		install -D "$path" "$BUILDROOT${2:-$1}"
	}
	add_symlink() { mkdir -p "$BUILDROOT${1%/*}" && ln -s "$2" "$BUILDROOT$1"; }
	add_runscript() { echo runscript >>"$BUILDROOT/modules"; }
	rm -rf "$BUILDROOT"
	mkdir -p "$BUILDROOT/bin"
	ln -s busybox "$BUILDROOT/bin/sh"
	: >"$BUILDROOT/bin/busybox"
	sed "s|/usr/sbin/cow|$COWFS_BUILD/cow|g; s|/etc/cowfs/cowfs.conf|$T/cowfs.conf|g" "$T/dest/usr/lib/initcpio/install/cowfs" \
		>"$T/hook"
	# shellcheck disable=SC1091
	source "$T/hook"
	COWFS_CONF=$T/cowfs.conf build
}

@test "mkinitcpio: what the build hook puts into an image" {
	part mkinitcpio
	printf '[root]\nenabled = yes\n' >"$T/cowfs.conf"
	mkinitcpio_build base udev cowfs
	[ "$(cat "$T/image/modules")" = $'fuse\nloop\nrunscript' ]
	[ "$(readlink "$T/image$COWFS_BUILD/cowctl")" = cowfs ]
	[ -x "$T/image/usr/lib/cowfs/set-readonly" ]
	cmp "$T/image$COWFS_BUILD/cowfs" "$T/dest/usr/lib/cowfs/cowfs-boot"
	[ -e "$T/image/usr/lib/cowfs/cowfs.sh" ]
	cmp "$T/image/usr/lib/cowfs/cards.conf" "$TOP/lab/sim/cards.conf"
	[ -e "$T/image$T/cowfs.conf" ]
	[ ! -e "$T/image/usr/bin/e2fsck" ]
	printf '[root]\nprepare = shrink\n' >"$T/cowfs.conf"
	mkinitcpio_build base systemd cowfs
	[ -e "$T/image/usr/bin/e2fsck" ]
	[ -e "$T/image/usr/bin/resize2fs" ]
	[ -e "$T/image/usr/bin/tune2fs" ]
	[ -x "$T/image/usr/lib/cowfs/cowfs-root.sh" ]
	[ -e "$T/image/usr/lib/systemd/system/sysroot.mount.d/50-cowfs.conf" ]
	[ -e "$T/image/usr/lib/systemd/system/systemd-fsck-root.service.d/50-cowfs.conf" ]
	[ -e "$T/image/usr/lib/systemd/system/initrd-root-fs.target.requires/cowfs-root.service" ]
	run ! grep runscript "$T/image/modules"
	printf '[root]\nprepare = grow\n' >"$T/cowfs.conf"
	mkinitcpio_build base systemd cowfs
	[ -e "$T/image/usr/bin/sfdisk" ]
	[ -e "$T/image/usr/bin/resize2fs" ]
	[ -x "$T/image/usr/lib/cowfs/grow-root" ]
	printf '[root]\nnonsense = 1\n' >"$T/cowfs.conf"
	run -1 mkinitcpio_build base udev cowfs
	[[ $output == *"ERROR: $T/cowfs.conf is invalid"* ]]
}

# STATE OF COWCTL BOOT, WHAT IT PRINTS: variables of init after the run hook
mkinitcpio_run() {
	mkdir -p "$T/run"
	echo 'mount_options=ro,noload' >"$T/run/root.failed"
	printf '#!/bin/sh\necho "%s"\nexit %d\n' "$2" "$1" >"$T/cowctl"
	chmod +x "$T/cowctl"
	sed "s|^COWFS_CTL=.*|COWFS_CTL=$T/cowctl|; s|^COWFS_RUN=.*|COWFS_RUN=$T/run|" "$TOP/initramfs/cowfs.sh" >"$T/cowfs.sh"
	sed "s|/usr/lib/cowfs/cowfs.sh|$T/cowfs.sh|; s|/tmp/cmdline|$T/cmdline|" "$TOP/initramfs/mkinitcpio/hook" >"$T/hook"
	echo 'root=UUID=x' >"$T/cmdline"
	busybox sh -c 'modprobe() { :; }; resolve_device() { [ "$1" = UUID=x ] && echo /dev/card2; }
		root=UUID=x rwopt=rw rootflags=subvol=@,data=journal fastboot=
		. "$1" && run_hook && echo "$root $rwopt $rootflags $fastboot"' sh "$T/hook"
	tail -n 1 "$T/cmdline"
}

@test "mkinitcpio: what the run hook makes of the root" {
	[ "$(mkinitcpio_run 0 /dev/loop7)" = $'/dev/loop7 rw subvol=@,data=journal \nroot=/dev/loop7' ]
	[ "$(mkinitcpio_run 3 /dev/card2)" = $'/dev/card2 ro ro,noload,subvol=@ y\nroot=/dev/card2' ]
	[ "$(mkinitcpio_run 1 /dev/card2)" = $'UUID=x rw subvol=@,data=journal \nroot=UUID=x' ]
	[ "$(mkinitcpio_run 4 /dev/card2)" = $'UUID=x rw subvol=@,data=journal \nroot=UUID=x' ]
}

# In a pid namespace of its own: an ordinary process ends, a marked one stays, and so does what is in the session.
KILLS='mount -t proc proc /proc; mkdir -p /run/cowfs
	setsid sleep 100 & ordinary=$!; setsid bash -c "exec -a @cowfs sleep 101" & marked=$!
	sh -c "sleep 102" & own=$!
	until grep -qs ^sleep /proc/$ordinary/cmdline && grep -qs ^@cowfs /proc/$marked/cmdline; do :; done
	ends() { for i in $(seq 200); do kill -0 $1 2>/dev/null || return; sleep 0.05; done; }'

# OpenRC sources the configuration before it calls start(); Void sources its files one after another.
@test "openrc, runit: what ends all processes spares the daemons" {
	local kills script
	sed "s|/usr/lib/cowfs/system.sh|$TOP/initramfs/busybox/system.sh|" "$TOP/packaging/openrc/cowfs.conf" >"$T/openrc"
	sed "s|/usr/lib/cowfs/system.sh|$TOP/initramfs/busybox/system.sh|" "$TOP/packaging/runit/65-cowfs.sh" >"$T/runit"
	for kills in "RC_SVCNAME=killprocs; . $T/openrc; kill_all 9" ". $T/runit; pkill --inverse -s0,1 -KILL"; do
		script="$KILLS; $kills; ends \$ordinary; for p in ordinary marked own; do eval \"kill -0 \\\$\$p\" 2>/dev/null && echo \$p; done; :"
		# pid 1 waits for its children, as an init does, and is in another session
		run -0 timeout 300 unshare --mount --pid --fork --kill-child --propagation private \
			bash -c 'mount -t tmpfs run /run; setsid -w sh -c "$1"' sh "$script"
		echo "$output"
		[ "$output" = $'marked\nown' ]
	done
}

runs_until() { # WORDS N: it has called so N times
	called() { [ "$(grep -cs "$1" "$T/calls")" -ge "$2" ]; }
	: >"$T/calls"
	COWFS_CTL=$T/cowctl background "$TOP/initramfs/busybox/commit-timer"
	wait_for 30 called "$@"
	kill "$BG"
	wait "$BG" || true
}

@test "commit-timer: commits, also after one that failed" {
	printf '#!/bin/sh\n[ "$1" != config ] || { [ "$4" = keep ] || echo 0.1; exit; }\necho "$*" >>%s/calls\nexit 1\n' "$T" >"$T/cowctl"
	chmod +x "$T/cowctl"
	runs_until 'commit root' 2
	[ "$(sort -u "$T/calls")" = "commit root --timer" ]
}

@test "commit-timer: kept paths have a clock of their own, which ends with it" {
	cat >"$T/cowctl" <<-END
		#!/bin/sh
		case "\$*" in
		*"--key keep") echo /srv/db ;;
		*"--key keep-interval") echo 0.1 ;;
		config*) echo 1 ;;
		*) echo "\$*" >>$T/calls ;;
		esac
	END
	chmod +x "$T/cowctl"
	runs_until 'commit root' 3
	[ "$(sort -u "$T/calls")" = $'commit --kept root --timer\ncommit root --timer' ]
	[ "$(grep -c kept "$T/calls")" -gt "$(grep -c 'commit root' "$T/calls")" ]
	wait_for 2 eval '! grep -qszF "COWFS_CTL=$T/cowctl" /proc/[0-9]*/environ'
}

@test "mkinitramfs -x: the same files without running what is in the tree" {
	command -v readelf >/dev/null || skip "no readelf"
	part busybox
	local tree=$T/dest lib sum
	mkdir -p "$tree"/{bin,lib,etc/cowfs/profiles}
	: >"$tree/etc/cowfs/profiles/card.conf"
	cp /bin/busybox "$tree/bin/"
	for lib in $(ldd "$COWFS_BUILD/cowfs-boot" | grep -o '/[^ ]*'); do
		install -D "$lib" "$tree$lib"
	done
	# as in Debian 12: the loader's name is an absolute link, and this machine has another one there; so is that of its folder
	lib=$(ldd "$COWFS_BUILD/cowfs-boot" | grep -o '/[^ ]*ld-linux[^ ]*')
	printf x >>"$tree$lib"
	sum=$(cksum <"$tree$lib")
	mkdir -p "$tree/usr/lib/place"
	mv "$tree$lib" "$tree/usr/lib/place/ld.so"
	ln -s /usr/lib/place/ld.so "$tree$lib"
	mv "$tree${lib%/*}" "$tree/usr/lib/folder"
	ln -s /usr/lib/folder "$tree${lib%/*}"
	run -0 "$tree/usr/share/cowfs/busybox/mkinitramfs" -k none -r "$tree" "$T/native"
	run -0 "$tree/usr/share/cowfs/busybox/mkinitramfs" -x -k none -r "$tree" "$T/cross"
	zcat "$T/native" | cpio -t --quiet | sort >"$T/native.list"
	zcat "$T/cross" | cpio -t --quiet | sort >"$T/cross.list"
	grep -q libblkid "$T/cross.list"
	grep -qx usr/lib/cowfs/set-readonly "$T/cross.list"
	grep -qx usr/lib/cowfs/cards.conf "$T/cross.list"
	grep -qx etc/cowfs/profiles/card.conf "$T/cross.list"
	run ! grep -E "cowctl-|libexec" "$T/cross.list"
	zcat "$T/cross" | (cd "$T" && cpio -id --quiet 'usr/sbin/*')
	cmp "$T/usr/sbin/cowctl" "$tree/usr/lib/cowfs/cowfs-boot"
	mkdir "$T/loader"
	zcat "$T/cross" | (cd "$T/loader" && cpio -id --quiet)
	[ "$(cksum <"$T/loader$lib")" = "$sum" ]
	# nothing is missing; the loader may have a second name
	[ -z "$(comm -23 "$T/native.list" "$T/cross.list")" ]
}

@test "make: a folder with a blank in its path is refused at once" {
	mkdir "$T/a folder"
	cp "$TOP/Makefile" "$T/a folder"
	run -2 make -C "$T/a folder" all
	[[ $output == *"move '$T/a folder' to a folder without a blank"* ]]
	[ "$(ls "$T/a folder")" = Makefile ]
}

@test "make dist: the same bytes for a commit, and nothing that is not committed" {
	local git=(git -C "$T/tree" -c user.name=x -c user.email=x@x.invalid)
	mkdir -p "$T/tree/"{tests,lab}
	cp "$TOP/Makefile" "$T/tree"
	cp "$TOP/lab/lab.mk" "$T/tree/lab"
	cp "$TOP/tests/tests.mk" "$T/tree/tests"
	echo /build/ >"$T/tree/.gitignore"
	run -2 make -s -C "$T/tree" dist
	[[ $output == *"this is not a clone"* ]]
	"${git[@]}" init -q
	"${git[@]}" add .
	"${git[@]}" commit -qm x
	(umask 077 && make -s -C "$T/tree" dist)
	mv "$T/tree/build/dist/"*.gz "$T/first"
	touch -d 2020-01-01 "$T/tree/Makefile"
	chmod g+w "$T/tree/Makefile"
	(umask 002 && TZ=Asia/Tokyo make -s -C "$T/tree" dist)
	cmp "$T/first" "$T/tree/build/dist/"*.gz
	[ "$(tar -tzf "$T/first" | sed 's|^[^/]*/||' | xargs)" = ".gitignore Makefile lab/ lab/lab.mk tests/ tests/tests.mk" ]
	[[ $(tar -tvzf "$T/first" | sort -u -k2,2) == *root/root* ]]
	echo >>"$T/tree/Makefile"
	run -2 make -s -C "$T/tree" dist
	[[ $output == *"not committed:"*"M Makefile"* ]]
}

@test "release: digests and a signature that can be checked" {
	mkdir -p "$T/release/a b"
	echo one >"$T/release/one"
	echo two >"$T/release/a b/two"
	minisign -G -W -p "$T/public" -s "$T/secret" >/dev/null
	run -1 "$TOP/packaging/sign" "$T/release" "$T/none"
	[[ $output == *"minisign -G"* ]]
	(cd "$T" && "$TOP/packaging/sign" release secret 'cowfs 1')
	cd "$T/release"
	minisign -Vqm SHA256SUMS -p "$T/public"
	run -0 sha256sum -c SHA256SUMS
	[ "$output" = $'a b/two: OK\none: OK' ]
	sed -i 's/^../00/' SHA256SUMS
	run -1 minisign -Vqm SHA256SUMS -p "$T/public"
	minisign -G -W -p "$T/other" -s "$T/secret2" >/dev/null
	"$TOP/packaging/sign" . "$T/secret2"
	minisign -Vqm SHA256SUMS -p "$T/other"
	run -1 minisign -Vqm SHA256SUMS -p "$T/public"
}
