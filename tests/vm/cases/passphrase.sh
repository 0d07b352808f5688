# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# As cycle, with a LUKS volume that is opened by a passphrase, typed on the console.
# guests: debian12-luks-ask debian13-luks-ask
# short:
. "$CASES/cycle.sh"

host_during() {
	case $GUEST in
	debian12*) console_type 'unlock disk root' 'cowfs\n' ;;
	*) console_type 'passphrase for' 'cowfs\n' ;;
	esac
}
