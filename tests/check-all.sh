#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes targets one after another, each by check.sh: check-all.sh MAKE STATE TARGET...
# The file STATE has the results, so it goes on where it was interrupted: what has passed is made again only when STATE is removed.
# Ends with a table of all of them: when, at which commit, how long, with which result. COWFS_CHECK_SECONDS: at most for each target
# (half a day).
set -u
make=$1 state=$2
shift 2
here=${0%/*} child='' stopped='' bad=0
dir=$(mktemp -d) || exit
row=$dir/row
trap 'rm -rf "$dir"' EXIT
trap 'stopped=1; [ -z "$child" ] || kill "$child"' HUP INT TERM
touch "$state" || exit

for target; do
	[ -z "$stopped" ] || break
	! grep -q " $target ok\$" "$state" || continue
	rm -f "$row"*
	: >"$row"
	when="$(date -u +%F) $(git describe --always --dirty 2>/dev/null || echo tarball)"
	COWFS_CHECK_TABLE=$row COWFS_CHECK_SECONDS=${COWFS_CHECK_SECONDS:-43200} "$here/check.sh" "$make" "$target" &
	child=$!
	while kill -0 $child 2>/dev/null; do # a signal ends a wait
		wait $child
	done
	child=''
	sed -i "/ $target /d" "$state"
	sed "s/^/$when /" "$row" >>"$state"
done

printf '\n%-10s  %-16s %8s  %-22s %s\n' date commit time part result
for target; do
	read -r day commit seconds _ result <<<"$(grep " $target " "$state" || echo "- - 0 $target not run")"
	printf '%-10s  %-16s %6d s  %-22s %s\n' "$day" "$commit" "$seconds" "$target" "$result"
	[ "$result" = ok ] || bad=1
done
exit $bad
