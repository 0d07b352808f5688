# SPDX-License-Identifier: MIT
# Prometheus' text format. Base units; the names of counters that only grow end in _total. The names: docs/WEAR.md.

include "outlook";

def value_of: if type == "boolean" then (if . then 1 else 0 end) else . end | if type == "number" then . else empty end;
def escaped: visible | gsub("(?<c>[\"\\\\])"; "\\\(.c)");
def labels: to_entries | map("\(.key)=\"\(.value | escaped)\"") | join(",");
# blocks of 4 KiB as bytes; also of an object of them
def blocks: if type == "object" then map_values(if type == "number" then . * 4096 else . end) elif type == "number" then . * 4096 else . end;

def family($name; $type; $help): "# HELP \($name) \($help)", "# TYPE \($name) \($type)";
def sample($name; $tags; $of): ($tags | labels) as $in | $of | value_of | "\($name){\($in)} \(.)";
# of each volume the one value, and the values of an object, whose keys are the values of a label
def one($name; $type; $help; value): family($name; $type; $help),
	(.volumes[] | sample($name; {volume: .name}; value));
def each($name; $type; $help; $word; values): family($name; $type; $help),
	(.volumes[] | .name as $volume | (values // {}) | to_entries[] | sample($name; {volume: $volume, ($word): .key}; .value));

def metrics($wear): .volumes |= [to_entries[] | .value + {wear: $wear[.key]}] |
	family("cowfs_build_info"; "gauge"; "Version of cowctl."), "cowfs_build_info{version=\"\(.version)\"} 1",
	family("cowfs_volumes"; "gauge"; "Attached volumes."), "cowfs_volumes \(.volumes | length)",
	family("cowfs_volume_info"; "gauge"; "Device, card and file system of a volume."),
	(.volumes[] | sample("cowfs_volume_info"; {volume: .name, device: .wear.device, card: .wear.card_identity, fs_type: .status.fs_type}; 1)),
	family("cowfs_root_unprotected"; "gauge"; "1: the root should be protected and is not."),
	"cowfs_root_unprotected \(.root_unprotected | value_of)",
	one("cowfs_absorbed_bytes_total"; "counter"; "Bytes that programs wrote into RAM."; .wear.totals.absorbed_bytes),
	one("cowfs_absorbed_writes_total"; "counter"; "Writes of programs."; .wear.totals.absorbed_writes),
	one("cowfs_discarded_bytes_total"; "counter"; "Bytes that were discarded in RAM."; .wear.totals.punched_bytes),
	each("cowfs_skipped_bytes_total"; "counter"; "Dirty bytes that commits skipped, by reason."; "reason";
		.wear.totals | {free: .skipped_free_blocks, journal: .skipped_journal_blocks, same: .skipped_same_blocks, hole: .skipped_hole_blocks} | blocks),
	each("cowfs_committed_bytes_total"; "counter"; "Bytes of commits and checkpoints, by destination."; "how";
		.wear.totals | {direct: .direct_blocks, logged: .logged_blocks, checkpoint: .checkpoint_blocks, padding: .padded_blocks, log: .log_metadata_blocks, super: .super_blocks} | blocks),
	one("cowfs_card_written_bytes_total"; "counter"; "Bytes that cowfs sent to the card."; .wear.totals.written_bytes),
	one("cowfs_card_writes_total"; "counter"; "Write calls to the card."; .wear.totals.write_calls),
	one("cowfs_card_flushes_total"; "counter"; "Flushes of the card."; .wear.totals.flushes),
	one("cowfs_card_erase_block_visits_total"; "counter"; "Moves to another erase block."; .wear.totals.erase_block_visits),
	one("cowfs_card_writable_seconds_total"; "counter"; "Time during which the card was writable."; .wear.totals.writable_seconds),
	one("cowfs_attached_seconds_total"; "counter"; "Time during which cowfs had the card attached."; .wear.totals.attached_seconds),
	each("cowfs_commits_total"; "counter"; "Commits, by cause."; "cause";
		.wear.totals.commits_by_cause | {manual, timer, pressure, shutdown, detach, recover}),
	one("cowfs_commit_failures_total"; "counter"; "Commits that failed."; .wear.totals.commits_failed),
	one("cowfs_card_retries_total"; "counter"; "Reads and writes of the card that had to be made again."; .wear.totals.retried_requests),
	one("cowfs_card_aways_total"; "counter"; "How often the card's device was gone."; .wear.totals.times_away),
	one("cowfs_checkpoints_total"; "counter"; "Checkpoints of the log."; .wear.totals.checkpoints),
	one("cowfs_attaches_total"; "counter"; "Attaches that wrote."; .wear.totals.attaches),
	one("cowfs_foreign_written_bytes_total"; "counter"; "Bytes on the card that cowfs did not write."; .wear.totals.foreign_bytes),
	one("cowfs_wear_table_losses_total"; "counter"; "Attaches that could not read part of the wear table."; .wear.totals.table_losses),
	one("cowfs_erase_block_units_touched"; "gauge"; "Units of erase blocks that were written to."; .wear.erase_blocks.touched_units),
	one("cowfs_absorption_ratio"; "gauge"; "Bytes that programs wrote per byte that reached the card, since the first attach.";
		.wear.ratios.absorption),
	one("cowfs_amplification_ratio"; "gauge"; "Bytes that reached the card per byte of changes."; .wear.ratios.cowfs_amplification),
	each("cowfs_device_amplification_ratio"; "gauge"; "Bytes written to the flash per byte that reached the card."; "bound";
		.wear.ratios.device_amplification | {low, high}),
	each("cowfs_projected_life_seconds"; "gauge"; "Time until the flash is worn out at the rate of the days observed."; "bound";
		.wear.projection.scenarios.whole_card | {low: .seconds_low, high: .seconds_high}),
	one("cowfs_ram_used_bytes"; "gauge"; "RAM that holds uncommitted changes."; .status.ram_used_bytes),
	one("cowfs_ram_limit_bytes"; "gauge"; "Limit of that."; .status.ram_limit_bytes),
	one("cowfs_dirty_bytes"; "gauge"; "Uncommitted changes."; .status.dirty_blocks | blocks),
	one("cowfs_log_live_bytes"; "gauge"; "Committed changes that exist in the log only."; .status.log_live_blocks | blocks),
	one("cowfs_generation"; "gauge"; "Number of the newest generation."; .status.generation),
	one("cowfs_last_commit_timestamp_seconds"; "gauge"; "When the newest generation was committed."; .status.generation_unix_seconds),
	one("cowfs_degraded"; "gauge"; "1: something needs attention, see cowctl status."; .status.degraded),
	one("cowfs_card_away_seconds"; "gauge"; "How long the card has been away: pulled out, or reset. 0: it is there."; .status.away.seconds),
	one("cowfs_daemon_replacements_total"; "counter"; "Workers of the daemon that died and were replaced, since the attach.";
		.status.replaced),
	one("cowfs_on_trial"; "gauge"; "1: the newest generation is on trial."; .status.held.trial // false),
	one("cowfs_trial_failed"; "gauge"; "1: no boot of a trial was accepted, and it went back."; .status.undone.trial_failed // false),
	one("cowfs_hottest_erase_block_visits"; "gauge"; "Visits of the most visited unit of erase blocks."; .wear.erase_blocks.hottest[0].visits),
	family("cowfs_device_life_used_ratio"; "gauge"; "Used life that the device reports, from low to high."),
	(.volumes[] | .name as $volume | .wear.health.life_used[] | .part as $part | {low, high} | to_entries[]
	 | sample("cowfs_device_life_used_ratio"; {volume: $volume, part: $part, bound: .key}; .value)),
	family("cowfs_device_pre_eol_info"; "gauge"; "1 for the state of the reserved blocks that the device reports."),
	(.volumes[] | sample("cowfs_device_pre_eol_info"; {volume: .name, state: .wear.health.pre_eol}; 1));
