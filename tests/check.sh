#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes each target in turn and prints how long each took: check.sh MAKE TARGET...
# Stops at the first that fails; under make -k it goes on. Ends with 1 if one has failed.
set -u
make=$1
shift
go_on='' failed='' times='' start=$(date +%s)
# the first word holds the flags of one letter, if there are any
case ${MAKEFLAGS%% *} in
-* | *=*) ;;
*k*) go_on=1 ;;
esac
case " ${MAKEFLAGS-} " in
*" -j"* | *" --jobserver"*) jobs='' ;;
*) jobs=-j$(nproc) ;;
esac
for target; do
	from=$(date +%s)
	$make --no-print-directory ${jobs:+"$jobs"} "$target" || failed="$failed $target"
	times="$times$(printf '%6d s  %s' $(($(date +%s) - from)) "$target")
"
	[ -z "$failed" ] || [ -n "$go_on" ] || break
done
echo "check: where the time went"
printf '%s' "$times" | sort -n
printf '%6d s  in all\n' $(($(date +%s) - start))
[ -z "$failed" ] || { echo "check: FAILED:$failed" >&2; exit 1; }
