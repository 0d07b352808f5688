#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl wear --html: one page with the figures of cowctl wear, without a browser (that is make check-report).
# turn: 3
# seconds: 40

load lib

sample() { "$BATS_TEST_DIRNAME/../report/sample.py" "$@"; }

# The document in a page on stdin.
document() { sed -n 's|^<script type="application/json" id="data">\(.*\)</script>$|\1|p'; }

none() { # REGEX FILE
	if grep -Eo -- ".{0,40}($1)" "$2"; then return 1; fi
}

# Everything that must hold for each page: complete, small enough, no address of anything outside in what we wrote.
is_page() { # FILE
	[ "$(head -1 "$1")" = '<!DOCTYPE html>' ]
	[ "$(tail -1 "$1")" = '</html>' ]
	[ "$(stat -c %s "$1")" -le 400000 ]
	[ "$(grep -c '<!--{\|}-->\|^@.*@$' "$1")" = 0 ]
	grep -q "Content-Security-Policy\" content=\"default-src 'none'" "$1"
	none '<(link|img|iframe|object|base)|<[a-z]+ [^>]*(src|href)=|@import|url\(' "$1"
	grep -q 'Copyright (c) 2022 Leon Sorokin' "$1"
	document <"$1" | jq -e .ok >/dev/null
}

# Each <data> has the number of the document that it names.
figures_are_right() { # FILE
	local value path n=0
	document <"$1" >"$T/doc"
	while read -r value path; do
		jq -e --argjson v "$value" "(.$path - \$v) | fabs <= (\$v | fabs) * 1e-9" "$T/doc" >/dev/null ||
			{ echo "$path is not $value"; return 1; }
		n=$((n + 1))
	done < <(grep -o '<data value="[^"]*" data-json="[^"]*"' "$1" | sed 's/.*value="\(.*\)" data-json="\(.*\)"/\1 \2/')
	[ $n -ge 30 ]
}

@test "report: of a volume, of its device, and the figures are those of wear" {
	volume_mounted ext4 300 340 -J size=8
	random_file "$MNT/a" 2
	sync -f "$MNT"
	random_file "$MNT/a" 2
	cow commit
	cow wear --html "$T/page.html"
	is_page "$T/page.html"
	figures_are_right "$T/page.html"
	# the same but for what goes on: the clock, and what is not of a commit
	cow wear --outlook --json >"$T/json"
	jq -S 'del(.generated_unix_seconds, .truth, .totals.absorbed_bytes, .totals.absorbed_writes, .totals.attached_seconds,
		.ratios.absorption)' "$T/json" >"$T/want"
	document <"$T/page.html" | jq -S 'del(.generated_unix_seconds, .truth, .totals.absorbed_bytes, .totals.absorbed_writes,
		.totals.attached_seconds, .ratios.absorption)' | diff "$T/want" -
	grep -q "<bdi>vol</bdi> on <bdi>$CARD</bdi>" "$T/page.html"
	grep -q "not enough data: 0 whole days" "$T/page.html"
	cow wear vol --html=- >"$T/page"
	document <"$T/page" | jq -e '.name == "vol" and .attached'
	detach
	cow wear --html - "$CARD" --flash mlc >"$T/page"
	document <"$T/page" | jq -e '.attached == false and .projection.factors.erase_cycles.low == 1500'
}

@test "report: of a document, up to the largest that there can be" {
	local args
	for args in "" "health=urgent foreign=4096" "days=0 commits=0 units=1" "days=3" "big=1 log_units=8192 days=400"; do
		sample $args >"$T/wear.json"
		cow wear --from "$T/wear.json" --html "$T/page.html"
		is_page "$T/page.html"
		figures_are_right "$T/page.html"
		[ "$(jq -S 'del(.erase_blocks.visits, .erase_blocks.written_blocks)' "$T/wear.json" | sha256sum)" = \
			"$(jq -S 'del(.erase_blocks.visits, .erase_blocks.written_blocks, .erase_blocks.page_units_per_cell)' "$T/doc" | sha256sum)" ]
		[ "$(jq '.erase_blocks | (.visits, .written_blocks) | add' "$T/wear.json")" = \
			"$(jq '.erase_blocks | (.visits, .written_blocks) | add' "$T/doc")" ]
		case $args in
		big*) jq -e '.erase_blocks | .page_units_per_cell > 1 and (.visits | length) == 16384 / .page_units_per_cell' "$T/doc" ;;
		*) jq -e '.erase_blocks.page_units_per_cell == null' "$T/doc" ;;
		esac
		[ "$(sed -n '/<table id="days">/,/<.table>/p' "$T/page.html" | grep -c '^<tr><td>20')" = "$(jq '.history.days | length' "$T/doc")" ]
	done
}

@test "report: the headline is that of the worst alarm" {
	headline() { sample "$@" | cow wear --html - --from - >"$T/page" && sed -n 's|.*<section class="verdict \([a-z]*\)"><h2>\(.*\)</h2>|\1: \2|p' "$T/page"; }
	[ "$(headline)" = "good: No sign of trouble" ]
	[ "$(headline health=good)" = "good: The card is fine" ]
	[ "$(headline health=urgent)" = "act: This card needs attention" ]
	[ "$(headline foreign=4096)" = "act: This card needs attention" ]
	# the others, each alone
	alarm() { sample health=good | jq -c "$1" | cow wear --html - --from - >"$T/page.html" &&
		sed -n 's|.*<section class="verdict \([a-z]*\)">.*|\1|p' "$T/page.html" && grep -c '<li><b class="tag' "$T/page.html"; }
	[ "$(alarm '.health.passed = false' | xargs)" = "act 1" ]
	[ "$(alarm '.health.pre_eol = "warning"' | xargs)" = "watch 1" ]
	[ "$(alarm '.health.life_used[0] |= (.low = 1 | .high = 2)' | xargs)" = "act 1" ]
	[ "$(alarm '.health.life_used[0] |= (.low = 0.8 | .high = 0.9)' | xargs)" = "watch 1" ]
	[ "$(alarm '.health.spare = {"percent": 5, "threshold_percent": 10}' | xargs)" = "act 1" ]
	[ "$(alarm '.health.spare = {"percent": 50, "threshold_percent": 10}' | xargs)" = "good 0" ]
	[ "$(alarm '.health.media_errors = 3' | xargs)" = "watch 1" ]
	[ "$(alarm '.totals.commits_failed = 1' | xargs)" = "watch 1" ]
	[ "$(alarm '.totals.foreign_bytes = 4096' | xargs)" = "watch 1" ]
	[ "$(alarm '.projection.scenarios.whole_card.seconds_high = 60000000' | xargs)" = "watch 1" ]
	[ "$(alarm '.projection.scenarios.whole_card.seconds_high = 6000000' | xargs)" = "act 1" ]
	[ "$(alarm '.totals.table_losses = 1' | xargs)" = "good 1" ]
	[ "$(alarm '.projection.ignored_days = 1' | xargs)" = "good 1" ]
	[ "$(alarm '.have_table = false' | xargs)" = "good 1" ]
	[ "$(alarm '.log_state = "broken"' | xargs)" = "act 1" ]
	[ "$(alarm '.log_state = "foreign"' | xargs)" = "act 1" ]
}

@test "report: of what another machine saved with the core alone" {
	sample days=30 | jq -c 'del(.health, .projection, .ratios.device_amplification) | .disk = {kind: "emmc", bytes: 32010928128, model: "DF4032",
		life_time: "0x01 0x0a", pre_eol_info: "0x01"}' >"$T/wear.json"
	cow wear --from "$T/wear.json" --html "$T/page.html" --flash mlc >/dev/null
	is_page "$T/page.html"
	figures_are_right "$T/page.html"
	document <"$T/page.html" | jq -e '.health.kind == "emmc" and .health.life_used[1].high == 1 and .projection.factors.erase_cycles.low == 1500 and
		.ratios.device_amplification.low == 1 and .projection.scenarios.whole_card.seconds_high > 0'
	grep -q 'up to 100 % of its rated life is used' "$T/page.html"
	# a disk of another machine is not asked here
	jq -c '.disk.kind = "disk"' "$T/wear.json" | COWFS_SMARTCTL=/bin/false cow wear --from - --outlook --json |
		jq -e '.health.unknown_because | test("of another machine")'
	# alone, as on a machine without cowctl
	"$COWFS_BUILD/libexec/cowctl-wear-html" <"$T/wear.json" >"$T/alone.html"
	is_page "$T/alone.html"
}

@test "report: what the document means, from its numbers" {
	run -0 "$BATS_TEST_DIRNAME/../report/outlook.py"
}

@test "report: names with markup are text" {
	sample name=hostile >"$T/wear.json"
	cow wear --from "$T/wear.json" --html "$T/page.html"
	is_page "$T/page.html"
	[ "$(document <"$T/page.html" | jq -r .device)" = "$(jq -r .device "$T/wear.json")" ]
	none '<script>alert|<img' "$T/page.html"
	grep -q '<bdi>/dev/&lt;/script&gt;&lt;script&gt;alert(1)' "$T/page.html"
	[ "$(grep -c '</script>' "$T/page.html")" = 3 ]
	# every text of the document
	sample | jq -c 'walk(if type == "string" then "<b>\u0027\"&</script>" else . end) | .ok = true' | cow wear --html - --from - >"$T/page.html"
	is_page "$T/page.html"
	none "<b>'" "$T/page.html"
	[ "$(grep -c '</script>' "$T/page.html")" = 3 ]
}

@test "report: a document that is none, or has fields of another type" {
	local text path
	for text in '' 'nonsense' '[]' '{}' '{"ok":true,"schema":2,"totals":{}}' '{"ok":false,"error":"x"}' '{"ok":true,"schema":1,"totals":[]}'; do
		echo "$text" >"$T/wear.json"
		fails 1 "is not what 'cowctl wear --json' prints" wear --html - --from "$T/wear.json"
	done
	echo '{"ok":true,"schema":1,"totals":{}}' | cow wear --html - --from - >"$T/page.html"
	is_page "$T/page.html"
	# fields of another type are a part of report/outlook.py; the whole way for some
	sample units=20 days=9 commits=3 | jq -c 'del(.health, .projection)' >"$T/wear.json"
	for path in .history .history.days[0] .erase_blocks .erase_blocks.visits[0] .ratios .health .projection; do
		for text in '"x"' 1e308; do
			jq -c "$path = $text" "$T/wear.json" | cow wear --html - --from - >"$T/page.html" || { echo "$path = $text"; return 1; }
			is_page "$T/page.html"
		done
	done
}

@test "report: where the page goes, and bad input" {
	sample units=20 >"$T/wear.json"
	mkdir "$T/out"
	echo old >"$T/out/page.html"
	cow wear --from "$T/wear.json" --html "$T/out/page.html"
	is_page "$T/out/page.html"
	[ "$(ls "$T/out")" = page.html ]
	[ "$(stat -c %a "$T/out/page.html")" = 644 ]
	fails 1 'nowhere/page.html cannot be written: No such file' wear --from "$T/wear.json" --html "$T/nowhere/page.html"
	fails 1 'cannot be written: it is not a regular file' wear --from "$T/wear.json" --html "$T/out"
	fails 1 'cannot be written: it is not a regular file' wear --from "$T/wear.json" --html /dev/null
	[ -c /dev/null ]
	fails 1 'cannot be written: it is not a regular file' wear --prometheus /dev/null
	# a full disk: the old page stays, and nothing beside it
	mkdir "$T/full"
	mount -t tmpfs -o size=64k none "$T/full"
	echo old >"$T/full/page.html"
	fails 1 'cannot be written: No space left' wear --from "$T/wear.json" --html "$T/full/page.html"
	[ "$(ls "$T/full")" = page.html ]
	[ "$(cat "$T/full/page.html")" = old ]
	umount "$T/full"
	if [ -c /dev/full ]; then
		to_full() { cow wear --html - --from "$T/wear.json" >/dev/full; }
		run -1 to_full
		[[ $output == *"cannot write the result"* ]]
	fi
	fails 1 'nosuchfile cannot be read: No such file' wear --html - --from "$T/nosuchfile"
	fails 4 'no volume|not running' wear --html - nobody
	fails 2 'from takes no volume' wear --html - vol --from "$T/wear.json"
	fails 2 'mutually exclusive' wear --html - --outlook --from "$T/wear.json"
	fails 2 'json with --html needs a file' wear --json --html -
	fails 2 'mutually exclusive' wear --html a --prometheus b
	fails 2 'needs an argument: FILE' wear --html
	fails 2 'usage' wear --html - a b
	# a terminal is no place for it
	run script -qec "'$COWFS_BUILD/cowctl' wear --html - --from '$T/wear.json'" /dev/null
	[[ $output == *"not for a terminal: name a file"* ]]
}
