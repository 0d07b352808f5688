# SPDX-License-Identifier: MIT
# What the document of cowctl wear means: `health`, what the device reports of itself, and `projection`, how long the card may
# last: always an interval, and each factor with its source. The fields: docs/WEAR.md.
#
#	life = erase cycles * capacity * life left / (bytes a day * the device's amplification)

def number: if type == "number" then . else 0 end;
def text: if type == "string" then . else "" end;
# what a terminal or a page would not show, or obey
def visible: text | gsub("[\\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]"; "?");
def list: if type == "array" then . else [] end;
def member($key): if type == "object" then .[$key] else null end;
def larger($a; $b): if $a == null or $b == null then null elif $a > $b then $a else $b end;
def smaller($a; $b): if $a == null or $b == null then null elif $a < $b then $a else $b end;
# null: without end
def over($a; $b): if $a == null or $b == null or $b == 0 then null else $a / $b end;
def interval($low; $high; $basis; $source): {low: $low, high: $high, basis: $basis, source: $source};
def has_word($words): . as $name | any($words[]; . as $w | $name | contains($w));

# ---- health ----

def used($part; $low; $high; $raw): {part: $part, low: (if $low < 0 then 0 else $low end), high: $high, raw: $raw};
# a device that reports a whole per cent has used up to as much
def percent_used($part; $percent; $what):
	used($part; ($percent - 1) / 100; $percent / 100; "\($what) \($percent) %");

def hex: ascii_downcase | sub("^0x"; "") | explode
	| if length == 0 or any(.[]; (. < 48 or . > 57) and (. < 97 or . > 102)) then null
	  else reduce .[] as $c (0; . * 16 + $c - (if $c > 57 then 87 else 48 end)) end;

# JEDEC: two kinds of flash, in steps of a tenth; 0: not defined, 11: beyond the rated life, which has no upper limit
def emmc($disk):
	($disk.life_time | text | [splits("\\s+") | select(. != "")]) as $raw
	| ($raw | map(hex)) as $steps
	| (["unknown", "normal", "warning", "urgent"][$disk.pre_eol_info | text | hex // 0] // "unknown") as $eol
	| [if ($steps | length) < 2 or any($steps[]; . == null) then empty else range(2) | . as $i | $steps[$i]
	   | select(. > 0 and . <= 11) | used(["a", "b"][$i]; (. - 1) / 10; if . > 10 then 2 else . / 10 end; $raw[$i]) end] as $used
	| {kind: "emmc", pre_eol: $eol, life_used: $used}
	| if $eol != "unknown" or ($used | length) > 0 then . + {source: "sysfs: life_time, pre_eol_info"}
	  else . + {unknown_because: "the eMMC does not report it (older than version 5.0, or not defined)"} end;

# What vendors answer to CMD56: {arg: bytes}
def cmd56($answers):
	def little($at): .[$at] + 256 * (.[$at + 1] + 256 * (.[$at + 2] + 256 * .[$at + 3]));
	def known: . as {$arg, data: $d} |
		if ($d | length) < 512 then []
		elif $arg == 1 and $d[0] == 68 and ($d[1] == 83 or $d[1] == 87) and $d[8] <= 200 then [percent_used("all"; $d[8]; "used (SanDisk)")]
		elif $arg == 1 and $d[0] == 112 and $d[1] == 88 and ($d | little(44)) <= 100 then
			[percent_used("all"; 100 - ($d | little(44)); "used (Longsys)")]
		elif $arg == 285214203 and $d[0] == 77 and $d[1] == 69 and $d[8] <= 200 and $d[9] <= 200 then
			[percent_used("tlc"; $d[8]; "used (Micron)"), percent_used("slc"; $d[9]; "used (Micron)")]
		elif $arg == 1396834305 and $d[0] == 83 and $d[1] == 119 and $d[80] <= 100 then [percent_used("all"; 100 - $d[80]; "used (Swissbit)")]
		else [] end;
	[$answers | list | .[] | objects | select(has("data")) | known | select(length > 0)] as $found
	| if $found[0] then {source: "CMD56", life_used: $found[0]}
	  elif any($answers | list | .[]; has("data")) then {unknown_because: "the card's answer to CMD56 has an unknown format"}
	  else {unknown_because: "the card does not answer CMD56: \(($answers | list)[-1].error // "not asked")"} end;

# "..._32MiB", "..._GiB", "..._LBAs..." as smartctl's database names them; 0: unknown unit
def unit_of: if contains("32MiB") then 33554432 elif contains("GiB") then 1073741824 elif contains("LBAs") then 512 else 0 end;

def ata($table):
	[$table | list | .[] | objects | select((.id | type) == "number" and (.value | type) == "number")
	 | {id, name: (.name | text), value, raw: (.raw | member("value"))} | select(.raw | type == "number")] as $all
	| def first($name): [$all[] | select(.name | contains($name)) | .raw][0];
	  (first("Average_Erase_Count") // 0) as $average | (first("Max_Erase_Count_of_Spec") // 0) as $rated
	| ([$all[] | select((.name | contains("Max_Erase_Count")) and (.name | contains("of_Spec") | not)) | .raw][0] // 0) as $most
	| [$all[] | .name as $n | (.name | unit_of) as $u | select($u > 0 and ($n | has_word(["Flash_Writes", "NAND_Writes", "TLC_Writes", "SLC_Writes"])))
	   | .raw * $u] as $flash
	| [$all[] | .name as $n | (.name | unit_of) as $u | select($u > 0 and ($n | has_word(["Flash_Writes", "NAND_Writes", "TLC_Writes", "SLC_Writes"]) | not)
	   and ($n | has_word(["Host_Writes", "Total_LBAs_Written", "Lifetime_Writes_GiB", "Total_Writes_GiB"]))) | .raw * $u] as $host
	| [$all[] | if (.name | contains("Percent_Lifetime_Used")) and .raw <= 200 then percent_used("all"; .raw; .name)
	   elif .value <= 100 and (.name | has_word(["SSD_Life_Left", "Media_Wearout_Indicator", "Percent_Lifetime_Remain", "Wear_Leveling_Count",
	        "Remaining_Lifetime_Perc"])) then
		# of this one the raw value is the life that is left in per cent; of the others the normalized one
		(if (.name | contains("Remaining_Lifetime")) and .raw <= 100 then .raw else .value end) as $left
		| used("all"; (100 - $left) / 100 - 0.01; (100 - $left) / 100; "\(.name) \($left)")
	   else empty end] as $told
	| {kind: "ata", attributes: $all, any: (($table | list | length) > 0),
	   life_used: (if ($told | length) > 0 then $told[:1] elif $rated > 0 and $average > 0 then
		[used("all"; $average / $rated; ($average + 1) / $rated; "\($average) of \($rated) erase cycles")] else [] end)}
	| if ($host | length) > 0 then .host_written_bytes = $host[-1] else . end
	| if ($flash | length) > 0 then .flash_written_bytes = ($flash | add) else . end
	| if $average > 0 or $most > 0 then .erase_cycles = {average: $average, least: (first("Min_Erase_Count") // 0), most: $most,
		rated: (if $rated > 0 then $rated else null end)} else . end
	| (first("Valid_Spare_Block") // 0) as $spare | if $spare > 0 then .spare = {blocks: $spare} else . end;

def nvme($log):
	{kind: "nvme", any: true, life_used: [$log | member("percentage_used") | numbers | percent_used("all"; .; "percentage_used")]}
	| ($log | member("data_units_written")) as $v | if ($v | type) == "number" then .host_written_bytes = $v * 512000 else . end
	| ($log | member("media_errors")) as $v | if ($v | type) == "number" then .media_errors = $v else . end
	| ($log | member("available_spare")) as $v | ($log | member("available_spare_threshold")) as $limit
	| if ($v | type) == "number" and ($limit | type) == "number" then .spare = {percent: $v, threshold_percent: $limit} else . end;

def smart($s):
	if ($s | type) != "object" then null else
	(if $s | has("nvme_smart_health_information_log") then nvme($s.nvme_smart_health_information_log) else {any: false} end)
	+ (if $s | has("ata_smart_attributes") then ata($s.ata_smart_attributes | member("table")) else {} end)
	+ (if ($s.model_name | text) != "" then {model: $s.model_name} else {} end)
	+ (($s.smart_status | member("passed")) as $p | if ($p | type) == "boolean" then {passed: $p, any: true} else {} end)
	| if .any then del(.any) + {source: "smartctl"} else null end end;

# $asked: what the device has answered: {smart, smart_error, cmd56}; null: nothing was asked
def health($asked):
	(.disk | if type == "object" then . else {} end) as $disk
	| {kind: "unknown", disk: ($disk.device | text), model: ($disk.model | text), disk_bytes: ($disk.bytes | number), source: "", unknown_because: "",
	   life_used: [], pre_eol: "unknown", host_written_bytes: null, flash_written_bytes: null, erase_cycles: null, spare: null,
	   media_errors: null, passed: null, attributes: []}
	+ if $disk.kind == "emmc" then emmc($disk)
	  elif $disk.kind == "sd" then {kind: "sd"} + if $asked.cmd56 then cmd56($asked.cmd56) else
		{unknown_because: "SD cards have no standard for it; --cmd56 uses a vendor's command"} end
	  elif $disk.kind == "disk" then smart($asked.smart) // {unknown_because: ($asked.smart_error // "it was not asked: this document is of another machine")}
	  elif $disk.kind == "file" then {unknown_because: "an image file"}
	  elif $disk.kind == "virtual" then {unknown_because: "not a physical device (a loop device, for example)"}
	  else {unknown_because: "the device is not in sysfs"} end;

# ---- projection ----

def cycles_of: {unknown: [500, 5000], slc: [30000, 100000], mlc: [1500, 5000], tlc: [500, 3000], qlc: [100, 1000]}[.];

def device_amplification:
	(.health.host_written_bytes | number) as $host | (.health.flash_written_bytes | number) as $flash
	| (.erase_blocks.erase_block_bytes | number) as $eb | (.totals.written_bytes | number) as $written
	| (.totals.erase_block_visits | number) as $visits
	| if $host > 0 and $flash > 0 then interval($flash / $host; $flash / $host; "measured";
		"the device: bytes written to flash per byte written by the host, over its life")
	  elif $written <= 0 or $visits <= 0 or $eb <= 0 then interval(1; null; "bounded"; "nothing written yet")
	  else interval(1; larger(1; $eb * $visits / $written); "bounded"; "from no copying to one erase block copied per visit") end;

# The most worn part decides. Without an account of the device only what cowfs wrote is known to be used.
def life_left($cycles; $amp; $capacity):
	[.health.life_used | list | .[] | objects | [(.low | number), (.high | number)]] as $used
	| if ($used | length) > 0 then
		interval([1, ($used[] | larger(0; 1 - .[1]))] | min; [$used[] | larger(0; 1 - .[0])] | min; "measured"; "reported by the device")
	  else over(.totals.written_bytes | number; $capacity) as $written
	  | (if $written != null and $written > 0 then [
		(if $amp.high == null then null else larger(0; 1 - $written * $amp.high / $cycles.low) end),
		larger(0; 1 - $written * $amp.low / $cycles.high)] else [1, 1] end) as $left
	  | interval($left[0]; $left[1]; "assumed"; "the card reports nothing: assumed to be new at its first attach, less what cowfs wrote") end;

# The whole days from the first that counts to yesterday; those without a line had no write. It is the first behind the last long
# pause: a machine without a battery-backed clock begins with the date of some package, years ago, and days that were not
# would dilute all others.
def days($today):
	[.history | member("days") | list | .[] | objects] as $lines
	| [$lines[] | .unix_day | number] as $all
	| ([$all[] | select(. > 0 and . <= $today)] | sort) as $set
	| (reduce range(($set | length) - 1; -1; -1) as $i ({first: $today, open: true};
		if .open and $today - $set[$i] <= 4000 and ($i + 1 == ($set | length) or $set[$i + 1] - $set[$i] <= 60)
		then .first = $set[$i] else .open = false end) | .first) as $first
	| [$lines[] | select((.unix_day | number) >= $first and (.unix_day | number) < $today)] as $in
	| def sums($key): reduce $in[] as $d ({}; .[$d.unix_day | tostring] += ($d[$key] | number));
	  def total($key): [$in[] | .[$key] | number] | add // 0;
	  sums("written_bytes") as $written | sums("absorbed_bytes") as $absorbed
	| {observed: ($today - $first), ignored: ([$all[] | select(. <= 0 or . > $today)] | length),
	   written: [range($first; $today) | $written[tostring] // 0], absorbed: [range($first; $today) | $absorbed[tostring] // 0],
	   written_bytes: total("written_bytes"), absorbed_bytes: total("absorbed_bytes"), absorbed_writes: total("absorbed_writes"),
	   visits: total("erase_block_visits")};

# Median and 90th percentile (nearest rank), and the average where that lies outside of them: where nearly all is written on a few days,
# the percentile alone would predict an endless life.
def spread($source): length as $n | (add / $n) as $mean | sort
	| interval(smaller(.[($n - 1) / 2 | floor]; $mean); larger(.[((9 * $n + 9) / 10 | floor) - 1]; $mean); "measured"; $source);

# The visits of the hottest block came in the time since the first record, if the clock was right then; in at least the time attached,
# and the days observed. Each visit erases: one erase block of the unit, or all of them in turn.
def hottest($cycles; $left; $days; $now):
	(.erase_blocks.hottest | list | .[0] | member("visits") | number) as $visits
	| larger(.totals.attached_seconds | number; $days.observed * 86400) as $least
	| ((.totals.first_unix_seconds | number) | if . > 0 then larger($now - .; $least) else $least end) as $most
	| ((.erase_blocks.unit_bytes | number) / larger(1; .erase_blocks.erase_block_bytes | number)) as $shared
	| {seconds_low: (if $left.low == null then null else over($cycles.low * $left.low * $least; $visits) end),
	   seconds_high: (if $left.high == null then null else over($cycles.high * $left.high * larger(1; $shared) * $most; $visits) end),
	   basis: "bounded", source: "no wear levelling: the most visited erase block, erased at each visit"};

# All writes of programs at once to the card: erase cycles, capacity and the card's amplification are the same then.
def sooner($d): ($d.absorbed_bytes / larger(1; $d.written_bytes)) as $bytes | ($d.absorbed_writes / larger(1; $d.visits)) as $erases
	| interval(smaller($bytes; $erases); larger($bytes; $erases); "model"; "from the bytes alone to one erase for each write and visit");

def scenarios($cycles; $left; $amp; $capacity; $daily; $days; $now):
	def life($cycles; $left; $daily; $amp): if $left == null or $amp == null then null else over($cycles * $capacity * $left * 86400; $daily * $amp) end;
	{whole_card: {seconds_low: life($cycles.low; $left.low; $daily.high; $amp.high), seconds_high: life($cycles.high; $left.high; $daily.low; $amp.low),
	   basis: $amp.basis, source: "the wear is spread over the whole card"},
	 hottest_erase_block: hottest($cycles; $left; $days; $now)};

# Adds it, and ratios.device_amplification, which it uses.
def project($flash; $now):
	device_amplification as $amp | (.health.erase_cycles | member("rated") | number) as $rated | ($flash | cycles_of) as $assumed
	| (if $rated > 0 then interval($rated; $rated; "measured"; "the device's rating")
	   else interval($assumed[0]; $assumed[1]; "assumed"; $flash) end) as $cycles
	| (.health.disk_bytes | number) as $disk | (.device_bytes | number) as $part
	| (if $disk > 0 then interval($disk; $disk; "measured"; "the whole disk")
	   else interval($part; $part; "bounded"; "the partition; the disk is at least as large") end) as $capacity
	| life_left($cycles; $amp; $capacity.low) as $left | days($now / 86400 | floor) as $days
	| ($days.observed >= 7) as $enough
	| {erase_cycles: $cycles, capacity_bytes: $capacity, life_left: $left, device_amplification: $amp} as $factors
	| .ratios.device_amplification = $amp
	| .projection = {enough_data: $enough,
	   why_not: (if $enough then "" else "not enough data: \($days.observed) whole days, at least 7 are needed" end),
	   observed_days: $days.observed, ignored_days: $days.ignored, scenarios: null, factors: $factors}
	| if $enough then
		($days.written | spread("median and 90th percentile of the days observed, or their average")) as $daily
		| .projection.factors += {daily_bytes: $daily, daily_bytes_without_cowfs: ($days.absorbed | spread("the same for what programs wrote")),
		   sooner_without_cowfs: sooner($days)}
		| .projection.scenarios = scenarios($cycles; $left; $amp; $capacity.low; $daily; $days; $now)
	  else . end;

# What is already there stays: it was found on the machine of the card.
def outlook($asked; $flash):
	reduce ("totals", "ratios", "erase_blocks", "history") as $part (.; if .[$part] | type == "object" then . else .[$part] = {} end)
	| if (.health | type) == "object" then . else .health = health($asked) end
	| if (.projection | type) == "object" and $flash == "" then . else
		project(if $flash == "" then "unknown" else $flash end; .generated_unix_seconds | number) end;
