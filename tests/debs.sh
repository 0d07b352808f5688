#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The Debian packages of a release, from the tarball of `make dist`, for each SUITE:ARCH: debs.sh TARBALL OUT SUITE:ARCH...
# Built twice, the second time elsewhere and 400 days later (packaging/debs): the same bits. lintian of that suite; the list of parts
# has the digests of what is in the packages; tests/deb.sh installs them in a clean Debian of that architecture, by qemu-user. As root.
# OUT/SUITE-ARCH has the packages. What has passed is made again only when it is removed there, or with another tarball.
set -euo pipefail

TOP=$(cd "$(dirname "$0")/.." && pwd)
BUILD=$TOP/build
CACHE=${COWFS_CACHE:-$BUILD/cache}
# shellcheck source-path=SCRIPTDIR source=../image/lib.bash
. "$TOP/image/lib.bash"
tarball=$1 out=$2
shift 2
start=$SECONDS sum=$(sha256sum <"$tarball")
mkdir -p "$out"

step() { echo "check-debs: $suite $arch: $* ($((SECONDS - start)) s)"; }

# What one release's lintian does not know, see tests/deb.sh
tags='package-supports-alternative-init-.*|spelling-error-in-binary'

looked_at() { # FOLDER ROOT
	mkdir "$2/srv/look"
	cp "$1"/* "$2/srv/look/"
	# shellcheck disable=SC2016 # for the inner shell
	chroot_run "$2" sh -c 'lintian --allow-root --fail-on error,warning,info,pedantic -I --pedantic --suppress-tags \
		"$(lintian-explain-tags --list-tags | grep -xE "$1" | paste -sd,)" /srv/look/cowfs_*.changes' sh "$tags" ||
		die "lintian of $suite"
}

# The digests in the list of parts are those of all programs in the packages.
parts() { # FOLDER
	local tree=$1.tree package
	for package in "$1"/cowfs_*.deb "$1"/cowfs-cardsim_*.deb "$1"/cowfs-tools_*.deb; do
		dpkg-deb -x "$package" "$tree"
	done
	jq -r '.components[] | select(.type == "file") | .hashes[0].content + "  ." + .name' "$1/cowfs.cdx.json" >"$tree/listed"
	(cd "$tree" && sha256sum --quiet -c listed) || die "cowfs.cdx.json has other programs"
	[ "$(find "$tree" -type f ! -name listed -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print | wc -l)" = "$(wc -l <"$tree/listed")" ] ||
		die "cowfs.cdx.json lacks a program"
	rm -rf "$tree"
}

# Of Debian testing, whose initramfs is that of dracut: the package's own call makes one of an enabled root, for the newest kernel.
dracut_image() { # FOLDER
	local root=$1.dracut tar=$CACHE/dracut-$suite.tar
	rootfs_tar "$suite" "$tar" dracut systemd-sysv udev e2fsprogs "$(kernel_package)"
	rootfs_unpack "$tar" "$root"
	mkdir "$root/srv/deb"
	cp "$1"/cowfs_*.deb "$root/srv/deb/"
	chroot_run "$root" sh -ec '
		apt-get -qq update
		apt-get -qq -y --no-install-recommends install /srv/deb/cowfs_*.deb
		printf "[root]\nenabled = yes\nprepare = shrink\n" >/etc/cowfs/cowfs.conf
		/usr/lib/cowfs/setup initramfs
		/usr/lib/cowfs/check-initramfs
		lsinitrd /boot/initrd.img-* >/srv/list
		lsinitrd -m /boot/initrd.img-* | grep -qx cowfs' >"$root.log" 2>&1 || { tail -20 "$root.log" >&2; die "dracut of $suite"; }
	for file in etc/cowfs/cowfs.conf usr/lib/cowfs/cowfs-root.sh usr/lib/cowfs/cowfs.sh usr/lib/cowfs/set-readonly usr/sbin/cowfs \
		usr/sbin/resize2fs initrd-root-fs.target.requires/cowfs-root.service sysroot.mount.d/50-cowfs.conf; do
		grep -qE "/?$file( |\$)" "$root/srv/list" || die "the initramfs by dracut lacks $file"
	done
	rm -rf "$root" "$root.log"
}

for pair; do
	arch_runs "${pair#*:}" || foreign_exec "${pair#*:}" "$0" "$tarball" "$out" "$@"
done
for pair; do
	suite=${pair%:*} arch=${pair#*:}
	here=$out/$suite-$arch
	[ "$(cat "$here.passed" 2>/dev/null)" != "$sum" ] || { step "has passed before" && continue; }
	if [ "$(cat "$here.built" 2>/dev/null)" != "$sum" ]; then
		KEEP=1 "$TOP/packaging/debs" "$tarball" "$suite" "$arch" "$here"
		step "built"
		looked_at "$here" "$here.chroot"
		rm -rf "$here.chroot"
		step "lintian"
		echo "$sum" >"$here.built"
	fi
	"$TOP/packaging/debs" "$tarball" "$suite" "$arch" "$here.second" odd
	for file in "$here"/*.deb "$here/cowfs.cdx.json"; do
		cmp "$file" "$here.second/${file##*/}" || die "$suite $arch: ${file##*/} differs: the build is not reproducible"
	done
	rm -rf "$here.second"
	step "the same bits again"
	parts "$here"
	"$TOP/tests/deb.sh" "$here" "$suite" "$arch"
	[ "$suite" != testing ] || { dracut_image "$here" && step "an initramfs by dracut"; }
	step "passed"
	echo "$sum" >"$here.passed"
done
