# SPDX-License-Identifier: MIT
# For mutants.sh and invariants.sh, which break cowfs in a copy of the source. Arguments: [--apply] [NAME...]
# shellcheck shell=bash

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/cowfs-mutants.XXXXXX")
trap 'rm -rf "$work"' EXIT
read -ra run <<<"${MUTANT_RUN-}"
bad=0 n=0 apply='' verdict='' noticed=''
[ "${1-}" != --apply ] || { apply=1; shift; }
only=" $* "

[ -n "$apply" ] || tar -C "$root" --exclude=./build* --exclude=./.git -cf - . | tar -C "$work" -xf -

# chosen NAME: is it to be broken?
chosen() {
	[ "$only" = '  ' ] || [[ $only == *" $1 "* ]] || return 1
	n=$((n + 1))
}

# changed PROGRAM FILE OLD NEW: FILE has NEW instead of OLD, and build/tests/PROGRAM is built. OLD must be in FILE once, however
# it is broken into lines. Fails with a verdict if not, and without one if nothing is to be run.
changed() {
	verdict='' noticed=''
	rm -f "$work/saved"
	if [ -n "$apply" ]; then
		printf '%s\0' "$root/$2" "$3" "$4" >>"$work/all"
		return 1
	elif ! cp "$work/$2" "$work/saved" || ! printf '%s\0' "$work/$2" "$3" "$4" | replaced; then
		verdict='cannot be applied'
	elif ! build "$1"; then
		verdict="does not build: $(grep -m1 error "$work/make.log" || tail -1 "$work/make.log")"
	fi
	[ -z "$verdict" ]
}

# FILE, OLD and NEW of stdin, each ended by a null. With --apply nothing is written, and there may be many. Ends with the number that
# cannot be applied.
replaced() {
	python3 -c '
import re, sys
words, bad = sys.stdin.read().split("\0")[:-1], 0
for path, old, new in zip(words[::3], words[1::3], words[2::3]):
    text = open(path).read()
    indent = re.match(r"\t*", old).group()
    found = re.findall("\n" * bool(indent) + indent + r"\s*".join(re.escape(c) for c in old if not c.isspace()), text)
    if len(found) != 1:
        bad += 1
        print(f"{path}: {len(found)} times, cannot be applied: {old}", file=sys.stderr)
    elif not sys.argv[1]:
        open(path, "w").write(text.replace(found[0], "\n" * bool(indent) + new))
sys.exit(min(bad, 99))' "$apply"
}

build() {
	"${run[@]}" make -s -C "$work" "build/tests/$1" >"$work/make.log" 2>&1
}

# judged NAME FILE: FILE is as it was, and the result is printed: what has $noticed it, or else the verdict.
judged() {
	[ ! -e "$work/saved" ] || cp "$work/saved" "$work/$2"
	[ -n "$noticed$verdict" ] || return 0 # only applied
	printf '%-20s %s\n' "$1" "${noticed:-$verdict}"
	[ -n "$noticed" ] || bad=$((bad + 1))
}

# Ends the script.
summary() {
	[ $n -gt 0 ] || { echo "$0: nothing has these names:$only" >&2; exit 2; }
	[ -z "$apply" ] || replaced <"$work/all" || bad=$?
	echo "${0##*/}: $n${apply:+ to be applied}, $bad failed"
	[ $bad = 0 ]
}
