#!/bin/sh
# SPDX-License-Identifier: MIT
# Every command and option of the help is in the manual, and the reverse. COWFS_BUILD: where the programs are.
set -eu
LC_ALL=C
export LC_ALL
root=$(cd "$(dirname "$0")/.." && pwd)
build=${COWFS_BUILD:-$root/build}
bad=0

# options of a help text on stdin, with their arguments
help_options() {
	sed -n -E 's/^  --?([a-z-]*) ?([A-Z][A-Z|N%]*[a-z]*|[a-z]+(\|[a-z]+)+)? .*/\1 \2/p' | sed 's/ *$//' | sort
}

# "name argument default" of the volume options of a help text on stdin: "  --ram SIZE|N%  ... (default: 50%)"
volume_options() {
	sed -n -E 's/^  -?-?([a-z-]+)[ =]([^ ]+) .*\(default: (.*)\)$/\1 \2 \3/p'
}

# the same of a manual on stdin
man_volume_options() {
	awk '/^\.It (Fl -|Cm )/ { sub(/^\.It (Fl -|Cm )/, ""); sub(/ (Ns = Ns|No =)? ?Ar /, " "); item = $0 }
		/^The default is / && item != "" { sub(/^The default is (the )?/, ""); sub(/\.$/, ""); print item " " $0; item = "" }'
}

# options of a part of a manual on stdin
man_options() {
	sed -n 's/^\.It Fl -\{0,1\}\([a-z-]*\)\( Ar \(.*\)\)\{0,1\}$/\1 \3/p' | sed 's/ *$//' | sort
}

# $1 manual, $2 command: what stands under its heading
man_part() {
	awk -v c="$2" '/^\.S[sh] /{ on = ($1 == ".Ss" && $2 == c) } on' "$1"
}

# $1 what, $2 from the help, $3 from the manual
compare() {
	if [ "$2" != "$3" ]; then
		bad=1
		printf '%s: help and manual differ\n  help:   %s\n  manual: %s\n' "$1" "$(echo "$2" | tr '\n' ',')" \
			"$(echo "$3" | tr '\n' ',')" >&2
	fi
}

compare cowfs "$("$build/cowfs" --help | help_options)" "$(man_options <"$root/docs/cowfs.8")"

man=$root/docs/cowctl.8
common=$(awk '/^\.Ss /{ exit } 1' "$man" | man_options)
# those of the help, and what only units and an initramfs call
commands=$({ echo boot; echo shutdown; "$build/cowctl" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'; } | sort)
compare "commands of cowctl" "$commands" "$(sed -n 's/^\.Ss \([a-z-]*\).*/\1/p' "$man" | sort)"
[ "$(echo "$commands" | wc -l)" -ge 10 ] || { echo "no commands found in the help" >&2; bad=1; }
for c in $commands; do
	all=$({ man_part "$man" "$c" | man_options; echo "$common"; } | sort | sed '/^$/d')
	compare "cowctl $c" "$("$build/cowctl" "$c" --help | help_options)" "$all"
	compare "operand of cowctl $c" "$("$build/cowctl" "$c" --help | sed -n '1s/.*\[OPTION\]\.\.\. *//p')" \
		"$(sed -n "s/^\.Ss $c *//p" "$man" | sed 's/\\&$//')"
done

sim=$root/docs/cowfs-cardsim.1
compare cowfs-cardsim "$("$build/cowfs-cardsim" --help | help_options)" "$(man_options <"$sim")"
compare "commands of cowfs-cardsim" "$("$build/cowfs-cardsim" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p' | sort)" \
	"$(sed -n '/^\.Sh COMMANDS/,/^\.Sh THE/s/^\.It Cm \([a-z]*\).*/\1/p' "$sim" | sort)"

# the table of volume options: the same in every help, and in every manual
table=$("$build/mount.cowfs" --help | volume_options)
[ "$(echo "$table" | wc -l)" -ge 7 ] || { echo "no volume options found in the help" >&2; bad=1; }
compare "volume options of cowfs" "$("$build/cowfs" --help | volume_options)" "$table"
compare "volume options of cowctl attach" "$("$build/cowctl" attach --help | volume_options)" "$table"
compare "volume options in cowfs.8" "$table" "$(man_volume_options <"$root/docs/cowfs.8")"
compare "volume options in cowctl.8" "$table" "$(man_part "$man" attach | man_volume_options)"
compare "volume options in mount.cowfs.8" "$table" "$(man_volume_options <"$root/docs/mount.cowfs.8")"
compare "volume options in cowfs.conf.5" "$table" "$(man_volume_options <"$root/docs/cowfs.conf.5")"
# keys of the root's section, from their table and the manual
rootopts=$(sed -n -E 's/^\tX\([A-Z_]+, "([a-z-]+)", .*/\1/p' "$root/cowfs/config/conf.h" | sort)
compare "root keys in cowfs.conf.5" "$rootopts" "$(sed -n 's/^\.It Cm \([a-z-]*\) = Ar .*/\1/p' "$root/docs/cowfs.conf.5" | sort)"
compare "keys of cowfs.conf.example" "$(printf '%s\n' "$(echo "$table" | cut -d' ' -f1)" "$rootopts" | sort)" \
	"$(sed -n 's/^#\{0,1\}\([a-z-]*\) = .*/\1/p' "$root/systemd/cowfs.conf.example" | sort -u)"
for helper in mount.cowfs umount.cowfs; do
	for flag in $("$build/$helper" --help | sed -n 's/^  -\([a-z]\) .*/\1/p' | grep -v h); do
		grep -q "^\.Fl .*\<$flag\>" "$root/docs/mount.cowfs.8" || { echo "$helper -$flag is not in its manual" >&2; bad=1; }
	done
done
exit $bad
