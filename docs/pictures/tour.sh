#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What the animated picture of the README shows, as real commands on a card that is a file: `make pictures` records it. As root.
# shellcheck disable=SC2016 # what is shown is evaluated afterwards
set -euo pipefail
[ "${TOUR_NAMESPACE-}" ] || TOUR_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
export LC_ALL=C.UTF-8
T=$(mktemp -d)
CARD='' AFTER=''
tidy() {
	set +e
	umount -l "$T/data" 2>/dev/null
	cowctl detach --discard card >/dev/null 2>&1
	[ -z "$CARD" ] || losetup -d "$CARD"
	[ -z "$AFTER" ] || losetup -d "$AFTER"
	rm -rf "$T"
}
trap tidy EXIT

# types a command, and runs it
run() {
	local i text="$*"
	text=${text//\$card/$CARD} text=${text//\$after/$AFTER}
	printf '# '
	for ((i = 0; i < ${#text}; i += 6)); do
		printf '%s' "${text:i:6}"
		sleep 0.1
	done
	printf '\n'
	sleep 0.3
	eval "$text"
	sleep "${PAUSE:-1.2}"
}
tell() {
	printf '\033[1;36m# %s\033[0m\n' "$*"
	sleep 0.6
}

truncate -s 512M "$T/card.img"
mkfs.ext4 -q -J size=8 -b 4096 "$T/card.img" 470M
CARD=$(losetup --direct-io=on --show -f "$T/card.img")
mkdir "$T/data" "$T/after"
cd "$T"

tell "a card with an ext4, and room behind it"
run 'cowctl prepare --log-size 32M $card | head -1'
run 'mount.cowfs $card data -o name=card,ram=128M'
tell "300 records with a flush each: all of it stays in RAM"
run 'for i in {1..300}; do echo "record $i" >>data/journal; sync data/journal; done'
run 'cowctl status -v card | grep -E "^(uncommitted|card) "'
tell "one commit writes them, once and atomically"
run 'cowctl commit card'
run 'echo "record 301, not committed" >>data/journal; sync data/journal'
tell "the power fails: what is on the card now?"
cp --sparse=always card.img after.img
AFTER=$(losetup --show -f after.img)
run 'cowctl view $after after; tail -1 after/journal'
umount after
tell "and how long may the card last?"
PAUSE=4 run 'cowctl wear card | head -12'
