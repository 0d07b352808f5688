# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Completion of cowctl for bash. Commands and options come from cowctl's own help, so that there is no second list
# of them; volumes come from the run directory, devices from /dev. compgen -W would run what stands in a word, so names
# never go there.

_cowctl_commands() {
	"$1" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'
}

# "--name argument" of a command, one per line
_cowctl_options() {
	"$1" "$2" --help 2>/dev/null | sed -n -E 's/^  (--?[a-z-]+)( [^ ]+)?  *.*/\1\2/p'
}

_cowctl_volumes() {
	local d
	for d in "${COWFS_RUNDIR:-/run/cowfs}"/*/control; do
		[ -S "$d" ] || continue
		d=${d%/control}
		d=${d##*/}
		[[ $d == *[!A-Za-z0-9._-]* ]] || printf '%s\n' "$d"
	done
}

# Lines of standard input that begin with $1.
_cowctl_beginning() {
	local line
	while read -r line; do
		[[ $line != "$1"* ]] || printf '%s\n' "$line"
	done
}

# Block devices, and folders on the way to them.
_cowctl_devices() {
	local f
	compgen -f -- "${1:-/dev/}" | while IFS= read -r f; do
		[[ $f != *[[:cntrl:]]* && ( -b $f || -d $f ) ]] && printf '%s\n' "$f"
	done
}

# What may stand for an argument that the help calls $1.
_cowctl_values() {
	case $1 in
	DEVICE | '[DEVICE]') _cowctl_devices "$2" ;;
	'DEVICE|DIR')
		_cowctl_devices "$2"
		compgen -d -- "$2"
		;;
	LIST) compgen -W "all linear seek random mix iozone fragments" -- "$2" ;;
	FILE) compgen -f -- "$2" ;;
	DIR) compgen -d -- "$2" ;;
	'[N] '*PATH*)
		[ "$COMP_CWORD" != 2 ] || _cowctl_volumes | _cowctl_beginning "$2"
		compgen -f -- "$2"
		;;
	NAME | '[N]') _cowctl_volumes | _cowctl_beginning "$2" ;;
	'[N] DIR')
		_cowctl_volumes | _cowctl_beginning "$2"
		compgen -d -- "$2"
		[[ $2 != /dev/* ]] || _cowctl_devices "$2"
		;;
	'[N] NEW' | '[N] FILE')
		_cowctl_volumes | _cowctl_beginning "$2"
		compgen -f -- "$2"
		;;
	PROFILE)
		case $2 in
		/*) compgen -f -- "$2" ;;
		*)
			{
				printf '%s\n' auto none
				local cowctl
				cowctl=$(type -P cowctl)
				sed -n 's/^\[\(.*\)\]$/\1/p' "${cowctl%/*}"{,/../lib/cowfs}/cards.conf 2>/dev/null
			} | _cowctl_beginning "$2"
			;;
		esac
		;;
	'TIME|forever') compgen -W "0 30s 5min forever" -- "$2" ;;
	SIZE*) compgen -W "32M 64M 128M 256M 512M 1G" -- "$2" ;;
	*'|'*) compgen -W "${1//|/ }" -- "$2" ;;
	esac
}

_cowctl() {
	local cowctl=$1 cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]-} arg
	# "--name=value" comes as three words
	if [ "$cur" = = ]; then
		cur=''
	elif [ "$prev" = = ]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [ "$COMP_CWORD" = 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_cowctl_commands "$cowctl") --help --version" -- "$cur")
		return
	fi
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_cowctl_options "$cowctl" "$command" | cut -d' ' -f1)" -- "$cur")
		return
	fi
	if [[ $prev == -* ]]; then
		arg=$(_cowctl_options "$cowctl" "$command" | while read -r option value; do
			[ "$option" != "$prev" ] || printf '%s\n' "$value"
		done)
	fi
	# not the argument of an option: the operand
	[ -n "${arg-}" ] || arg=$("$cowctl" "$command" --help 2>/dev/null | sed -n '1s/.*\[OPTION\]\.\.\. *//p')
	mapfile -t COMPREPLY < <(_cowctl_values "$arg" "$cur" "$cowctl")
	[[ $arg != *DEVICE* && $arg != FILE && $arg != *DIR && $arg != *PATH* ]] || compopt -o filenames 2>/dev/null
}

complete -F _cowctl cowctl
