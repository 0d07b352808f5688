# SPDX-License-Identifier: MIT
# The same for people, as lines of 80 columns.
include "outlook";

# a number with so many digits behind the point
def fixed($digits): (. * pow(10; $digits) | round | tostring) as $n | if $digits == 0 then $n else
	("0" * ([0, $digits + 1 - ($n | length)] | max) // "") + $n | .[:-$digits] + "." + .[-$digits:] end;
def commas: floor | tostring | length as $n
	| [range($n) as $i | .[$i:$i + 1] + (if $i + 1 < $n and ($n - $i - 1) % 3 == 0 then "," else "" end)] | join("");
def size: [., 0] | until(.[0] < 1024 or .[1] == 5; [.[0] / 1024, .[1] + 1])
	| (.[0] | fixed(1)) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][.[1]];
# a life with one significant digit; null: without end
def life: def many($unit): round | "\(.) \($unit)\(if . == 1 then "" else "s" end)";
	if . == null then "more than 20 years" else (. / 31557600) as $y
	| if $y > 20 then "more than 20 years" elif $y >= 9.5 then (if $y < 15 then "10 years" else "20 years" end)
	  elif $y >= 0.95 then $y | many("year") elif $y >= 1 / 12 then $y * 12 | many("month")
	  elif $y * 365.25 < 0.5 then "less than a day" else $y * 365.25 | many("day") end end;
# words in lines
def wrapped: reduce (visible | split(" ")[]) as $w ([];
	if length > 0 and (.[-1] | length) + ($w | length) < 77 then .[-1] += " " + $w else . + [$w] end) | "  " + join("\n  ");
def row($word): if . == null then empty else "  " + ($word + " " * 22)[:22] + (tostring | visible) end;
def range_of(f): if .high == null then (.low | f) + " to ?" elif (.low | f) == (.high | f) then .low | f
	else (.low | f) + " to " + (.high | f) end;
def factor($word; f): if . == null or .low == null then empty else ((range_of(f) + " " * 24)[:24] + " " + .basis) | row($word) end;
def percent: . * 100 | "\(round) %";

def sentences: .projection as $p | if $p.enough_data | not then "Projected life: \($p.why_not)." | wrapped else
	$p.scenarios as $s | $p.factors.sooner_without_cowfs as $sooner
	| ("At the rate of the last \($p.observed_days | commas) days its flash lasts \($s.whole_card.seconds_low | life) to "
	   + "\($s.whole_card.seconds_high | life) if the card levels wear, and at least \($s.hottest_erase_block.seconds_low | life) if it does not."
	   | wrapped),
	  (if ($sooner.high | number) >= 1.05 then ("Without cowfs it would be worn out \($sooner.low | fixed(1)) times sooner by the bytes and erase "
	   + "blocks counted, up to \($sooner.high | fixed(0)) times on a card that erases a block for each write." | wrapped) else empty end),
	  ("This is about wear only, not about a controller that fails or a card that does not survive a power cut." | wrapped) end;

def health_rows: .health as $h |
	(if ($h.model | text) != "" then "\($h.model), \($h.disk_bytes | number | size)" else null end | row("device")),
	($h.life_used[] | (if .high > 1 then "more than \(.low | percent)" else "\(.low * 100 | round) to \(.high | percent)" end)
	 + " (\(.part): \(.raw))" | row("life used")),
	(if $h.pre_eol != "unknown" then $h.pre_eol else null end | row("reserved blocks")),
	($h.erase_cycles | objects | "\(.average | commas) on average, \(.most | commas) at most, rated for \(if .rated then .rated | commas else "unknown" end)"
	 | row("erase cycles")),
	($h.spare | objects | if .percent then "\(.percent) % (limit \(.threshold_percent) %)" else .blocks end | row("spare blocks")),
	(if $h.unknown_because != "" then "Unknown: \($h.unknown_because)." | wrapped else empty end),
	(if $h.passed == false then "ATTENTION: the device reports that it is FAILING." | wrapped else empty end);

def outlook_text: [sentences, "", "Health reported by the device" + (if .health.source != "" then " (\(.health.source))" else "" end),
	health_rows, "", "What the projection is based on",
	(.projection.factors | (.daily_bytes | factor("written a day"; size)), (.daily_bytes_without_cowfs | factor("without cowfs"; size)),
	 (.device_amplification | factor("device amplification"; fixed(2))), (.erase_cycles | factor("erase cycles"; commas)),
	 (.capacity_bytes | factor("capacity"; size)), (.life_left | factor("life left"; percent)))] | join("\n");
