# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Where things are, for the programs in this folder.
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${COWFS_BUILD:-$TOP/build}
VM=$BUILD/vm
CACHE=${COWFS_VM_CACHE:-$VM/cache}
export LC_ALL=C.UTF-8
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || { echo "${0##*/}: needs root (chroot): run it as root" >&2; exit 1; }
mkdir -p "$VM" "$CACHE"

# The architecture that a guest's name ends with; none: the machine's own.
guest_arch() {
	case $1 in
	*-arm64*) echo arm64 ;;
	*-armhf*) echo armhf ;;
	*-riscv64*) echo riscv64 ;;
	esac
}

# The package cowfs for a Debian release: that of `make deb` for this machine's own, that of `make check-debs` for others. Debian
# testing gets that of Debian 13.
package_of() { # SUITE
	set -- "${1/testing/trixie}"
	local arch folder how
	arch=$(dpkg --print-architecture)
	folder=$BUILD/debs/$1-$arch how="make check-debs DEBS=$1:$arch"
	# shellcheck disable=SC1091
	[ "$1" != "$(. /etc/os-release && echo "${VERSION_CODENAME-}")" ] || { folder=$BUILD/deb && how="make deb"; }
	set -- "$folder"/cowfs_*.deb
	[ -e "$1" ] || { echo "${0##*/}: no package in ${folder#"$TOP"/}: $how" >&2; exit 1; }
	echo "$1"
}

# guest_foreign PROGRAM GUEST...: starts PROGRAM again where the programs of all GUESTs run, if they do not here.
guest_foreign() {
	local guest arch missing=
	for guest in "${@:2}"; do
		arch=$(guest_arch "$guest")
		[ -z "$arch" ] || arch_runs "$arch" || missing=$arch
	done
	[ "$missing" ] || return 0
	type qemu-system-aarch64 qemu-system-riscv64 >/dev/null 2>&1 ||
		{ echo "${0##*/}: no machine for $missing: apt-get install qemu-system-arm qemu-system-misc" >&2; exit 1; }
	foreign_exec "$missing" "$@"
}
