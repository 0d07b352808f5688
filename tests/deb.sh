#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The Debian packages that `make deb` has built: lintian, a second build with the same bits, installation, refusals, upgrade and
# purge in a clean Debian of this release, piuparts. As root. What needs a booted system is tests/vm/cases/package.sh.
#
#	tests/deb.sh [FOLDER SUITE ARCH]	packages of another release or architecture: tests/debs.sh has looked at the bits
set -euo pipefail
export COWFS_ON_CRASH="${COWFS_ON_CRASH:-stop}" # what kills a daemon here wants it to end

TOP=$(cd "$(dirname "$0")/.." && pwd)
BUILD=$TOP/build
DEB=${1:-$BUILD/deb}
CACHE=${COWFS_CACHE:-$BUILD/cache}
# shellcheck source-path=SCRIPTDIR source=../image/lib.bash
. "$TOP/image/lib.bash"
[ "$(id -u)" = 0 ] || die "needs root (chroot): run it as root"
SUITE=${2:-$(. /etc/os-release && echo "${VERSION_CODENAME-}")} native=$(dpkg --print-architecture)
ARCH=${3:-$native}
[ "$ARCH" = "$native" ] || export IMAGE_ARCH=$ARCH
mkdir -p "$CACHE"
WORK=$(mktemp -d "$BUILD/check-deb.XXXXXX")
ROOT=$WORK/root
trap 'rm -rf "$WORK"' EXIT
trap 'echo "check-deb: FAILED, line $LINENO: $BASH_COMMAND" >&2' ERR
set -E

version=$(dpkg-parsechangelog -l "$TOP/debian/changelog" -S Version)
package=$(echo "$DEB"/cowfs_*.deb) cardsim=$(echo "$DEB"/cowfs-cardsim_*.deb) tools=$(echo "$DEB"/cowfs-tools_*.deb)

is() { # WHAT GOT WANTED
	[ "$2" = "$3" ] || die "$1 is '$2', not '$3'"
}

step() { echo "check-deb: $*"; }

inside() { chroot_run "$ROOT" "$@"; }

# What a file system below $ROOT holds, without the data bases of apt, dpkg and accounts, and what every run of them changes.
files() {
	(
		cd "$ROOT"
		local places=(! -path './proc/*' ! -path './sys/*' ! -path './dev/*' ! -path './tmp/*' ! -path './var/lib/dpkg/*'
			! -path './var/lib/apt/*' ! -path './var/cache/*' ! -path './var/log/*' ! -path ./etc/ld.so.cache
			! -path './etc/passwd*' ! -path './etc/group*' ! -path './etc/shadow*' ! -path './etc/gshadow*')
		find . "${places[@]}" -printf '%p %M %u %g %l\n'
		find . "${places[@]}" -type f -print0 | xargs -0 sha256sum | awk '{ print $2, $1 }'
	) | sort
}

# users and groups, without their numbers
accounts() { sed 's/:x:[0-9:]*/:/' "$ROOT/etc/passwd" "$ROOT/etc/group" | sort; }

# TEXT COMMAND...: must fail and say TEXT, and the package is as it was
refused() {
	local text=$1
	shift
	if inside "$@" >"$WORK/out" 2>&1; then die "not refused: $*"; fi
	grep -qF -- "$text" "$WORK/out" || { cat "$WORK/out" >&2; die "'$*' does not say: $text"; }
	grep -qF 'then remove the package' "$WORK/out" || [ "${ADVICE-}" ] || die "'$*' does not say what to do"
	# shellcheck disable=SC2016 # dpkg's
	is "the package after a refusal" "$(inside dpkg-query -W -f '${db:Status-Status}' cowfs)" installed
}

must() {
	inside "$@" >"$WORK/out" 2>&1 || { cat "$WORK/out" >&2; die "failed: $*"; }
}

# Of packages that were built in this tree: lintian, and the same bits again.
bits() {
	step "lintian"
	is "the version in debian/changelog" "${version%-*}" "$(sed -n 's/^VERSION := //p' "$TOP/Makefile")"
	# What one release's lintian does not know cannot be overridden in the package: a missing script of init.d, because cowctl setup
	# protects a root under systemd only, other systems commit by the scripts in /usr/share/cowfs/busybox (cowfs-boot(7)), and no
	# script of init.d comes after everything; instructions that read as a misspelt word, in some builds.
	unknown=$(lintian-explain-tags --list-tags | grep -xE 'package-supports-alternative-init-.*|spelling-error-in-binary' | paste -sd,)
	lintian --allow-root --fail-on error,warning,info,pedantic -I --pedantic --suppress-tags "$unknown" "$DEB"/cowfs_*.changes

	step "a second build: another folder, umask, time zone and language"
	mkdir "$WORK/second"
	cp -r "$DEB/cowfs-${version%-*}" "$WORK/second/elsewhere"
	(
		cd "$WORK/second/elsewhere"
		umask 077
		TZ=Pacific/Kiritimati LC_ALL=C.UTF-8 DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -b -us -uc -Jauto >"$WORK/log" 2>&1
	) || { tail -20 "$WORK/log" >&2; die "the second build failed"; }
	for file in "$DEB"/*.deb; do
		cmp "$file" "$WORK/second/${file##*/}" || die "${file##*/} differs: the build is not reproducible"
	done
	rm -rf "$WORK/second"
}

[ $# != 0 ] || bits

step "a clean Debian $SUITE for $ARCH"
depends=$({ dpkg-deb -f "$package" Depends; dpkg-deb -f "$tools" Depends; } | sed 's/([^)]*)//g; s/|[^,]*//g; s/[ ,]\+/ /g')
# shellcheck disable=SC2086 # words
rootfs_tar "$SUITE" "$CACHE/deb-$SUITE-$ARCH-$(sha256sum <<<"$depends" | cut -c1-12).tar" $depends
rootfs_unpack "$CACHE/deb-$SUITE-$ARCH-$(sha256sum <<<"$depends" | cut -c1-12).tar" "$ROOT"
mkdir -p "$ROOT/srv/deb" "$WORK/pack"
cp "$package" "$cardsim" "$tools" "$ROOT/srv/deb/"
dpkg-deb -R "$package" "$WORK/pack"
sed -i 's/^\(Version: .*\)/\1+next/' "$WORK/pack/DEBIAN/control"
dpkg-deb --root-owner-group -b "$WORK/pack" "$ROOT/srv/deb/next.deb" >/dev/null
files >"$WORK/before"
accounts >"$WORK/accounts"

step "installed: its own files and nothing else"
must dpkg -i "/srv/deb/${package##*/}"
must cowctl --help
files >"$WORK/installed"
dpkg-deb -c "$package" | awk '{ print $6 }' | sed 's|^\./|/|; s|/$||' | sort >"$WORK/list"
comm -13 "$WORK/before" "$WORK/installed" | sed 's/^\.\([^ ]*\) .*/\1/' | sort -u | while read -r file; do
	# Debian 12 has its units below a link
	grep -qxF -e "$file" -e "${file#/usr}" "$WORK/list" || echo "$file"
done >"$WORK/more"
# the state of debhelper's helper for units, which a purge removes
is "what else is there" "$(sed '/^\/var\/lib\/systemd\/deb-systemd-helper/d' "$WORK/more" | xargs)" ""
is "/etc/cowfs" "$(ls -A "$ROOT/etc/cowfs")" ""

accounts | diff "$WORK/accounts" - || die "accounts have changed, see above"

step "the tools: said to be missing, installed, and used"
"$TOP/tests/report/sample.py" >"$ROOT/srv/wear.json"
if inside cowctl wear --from /srv/wear.json --html /srv/page.html >"$WORK/out" 2>&1; then die "a page without its tool"; fi
grep -q 'cowfs-tools' "$WORK/out" || die "the package of the tool is not named"
must dpkg -i "/srv/deb/${tools##*/}"
must cowctl wear --from /srv/wear.json --html /srv/page.html
must cowctl wear --from /srv/wear.json --outlook
must cowctl wear --prometheus /srv/prom
must cowctl measure --help
rm "$ROOT"/srv/{wear.json,page.html,prom}
must dpkg -P cowfs-tools

step "removal refused: enabled, invalid, leaving, protected"
conf=$ROOT/etc/cowfs/cowfs.conf
printf '[root]\nenabled = yes\n' >"$conf"
refused "the root is enabled" dpkg -r cowfs
refused "Run 'cowctl disable' and reboot" apt-get -y purge cowfs
printf '[root]\nenabled = maybe\n' >"$conf"
ADVICE=1 refused "cowfs.conf is invalid" dpkg -r cowfs
printf '[root]\nenabled = no\n' >"$conf"
: >"$ROOT/etc/cowfs/leaving"
refused "'cowctl disable' is not finished" dpkg -r cowfs
rm "$ROOT/etc/cowfs/leaving"
# every program inside has a /run of its own
# shellcheck disable=SC2016 # for the inner shell
protected=(sh -c 'mkdir -p /run/cowfs && echo on >/run/cowfs/root.state && "$@"' sh)
refused "the root is protected" "${protected[@]}" dpkg -r cowfs

step "upgraded while the root is protected"
printf '[root]\nenabled = yes\n' >"$conf"
must "${protected[@]}" dpkg -i /srv/deb/next.deb
refused "the root is protected" "${protected[@]}" dpkg -r cowfs

step "removed and purged: nothing is left but the user"
printf '[root]\nenabled = no\n' >"$conf"
must dpkg -i "/srv/deb/${cardsim##*/}"
must dpkg -r cowfs cowfs-cardsim
[ -e "$conf" ] || die "a removal without purge has removed the configuration"
must dpkg -P cowfs cowfs-cardsim
files >"$WORK/after"
diff "$WORK/before" "$WORK/after" || die "purge leaves or changes files, see above"
accounts | diff "$WORK/accounts" - || die "purge has changed accounts, see above"

if [ "$ARCH" = "$native" ]; then
	step "piuparts"
	tar -C "$ROOT" -czf "$WORK/root.tar.gz" --exclude ./srv/deb .
	apt_sources "$SUITE" | sed -n 1p >"$WORK/sources"
	piuparts -b "$WORK/root.tar.gz" -d "$SUITE" -m "$(cut -d' ' -f2 "$WORK/sources")" --no-eatmydata --warn-on-others \
		-l "$WORK/piuparts.log" "$package" "$cardsim" "$tools" >/dev/null 2>&1 ||
		{ grep -E 'ERROR|WARN|FAIL' "$WORK/piuparts.log" | tail -20 >&2; die "piuparts failed"; }
fi
step "passed"
