#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Profiles that users share (lab/sim/measured): may each become a part of the program? Whether it can be read and is sane is
# for the programs, which all have it. Here: is it a measurement, does its name fit, and does it tell nothing of its owner.
#
#	tests/measured.sh [FILE]...	all, if none is named
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- lab/sim/measured/*.json
bad=0

# One line for each thing that is wrong.
# shellcheck disable=SC2016 # a program for jq
rules='
def text: [.. | strings];
def serial: [scan("[0-9A-Za-z_-]+") | select(([scan("[0-9]")] | length) >= 8)];
if type != "object" or length != 1 then "is not one profile" else
	to_entries[0] as {key: $id, value: $p} |
	($p | if type != "object" then "is not one profile" else
		(if $name != $id + ".json" then "must be called \($id).json, by its id" else empty end),
		(if $id | test("^(unnamed|measured)-") then "has no name: call it after its maker and model" else empty end),
		(if has("identity") then "has the identity of a card: make it with --share" else empty end),
		(keys - $known | select(. != []) | "has keys that no measurement has: \(join(", "))"),
		(if (.title | type) != "string" or (.title | test("^(|A card.*|PUT HERE.*)$"))
			then "has no title: write what is printed on the card" else empty end),
		(if (.source | type) != "string" or
			(.source | test("^cowctl measure [0-9][0-9a-z.~+-]*, [0-9]{4}-[0-9]{2}, Linux [0-9.]+, area of [0-9.]+ [KMG]iB$") | not)
			then "its source is not that of --share" else empty end),
		(if (.plan | type) != "boolean" then "has no plan: true or false" else empty end),
		((.from // {}) | to_entries[] | select(.value | tostring | test("^(measured|derived|not determined|assumed)") | not) |
			"\(.key) is not from a measurement: \(.value)"),
		(text[] | select(test("/(dev|home|mnt|media|run|etc|sys|tmp|root|var)(/|$)")) | "names a path: \(.)"),
		(text[] | select(test("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-")) | "has a UUID: \(.)"),
		(.title, .models // [] | text[] | serial | select(. != []) | "has what looks like a serial number: \(join(", "))")
	end)
end'
known='["title","source","note","models","plan","from","capacity_gb","read_mb_s","write_mb_s","random_read_per_s","random_write_per_s",
"sync_rewrite_per_s","page_kib","unit_kib","open_units","open_random","copy_mb_s","merge_ms","absorb","wear","spare_percent"]'

for file; do
	wrong=$(jq -r --arg name "${file##*/}" --argjson known "$known" "$rules" "$file" 2>&1) || wrong="is not JSON: $wrong"
	[ "$wrong" ] || continue
	bad=1
	while IFS= read -r line; do
		printf '%s: %s\n' "$file" "$line" >&2
	done <<<"$wrong"
done
exit $bad
