# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Completion of cowfs-cardsim for bash, from its own help.

_cowfs_cardsim() {
	local me=$1 cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words
	case $prev in
	--image | --profiles | --trace) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
	--wear) mapfile -t COMPREPLY < <(compgen -W "none dynamic zone global" -- "$cur"); return ;;
	--cache | --seed | --erase-limit) return ;;
	esac
	words=$("$me" --help 2>/dev/null | sed -n -E 's/^  (--[a-z-]+).*/\1/p')
	if [ "$COMP_CWORD" = 1 ] || [ "$prev" = show ] || [[ $prev == --* ]]; then
		words="$words $("$me" list 2>/dev/null | cut -d' ' -f1)"
	fi
	if [ "$COMP_CWORD" = 1 ]; then
		words="$words $("$me" --help 2>/dev/null | sed -n -E 's/^  ([a-z]+) .*/\1/p')"
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"; compgen -d -- "$cur")
}
complete -F _cowfs_cardsim cowfs-cardsim
