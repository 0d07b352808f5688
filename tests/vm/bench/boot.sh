# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# For bench-boot: how long this boot took until multi-user.target, by the guest's clock, which starts with the kernel.
BOOTS=1 LIMIT=900

step() {
	settled
	value boot_us "$(systemctl show -P ActiveEnterTimestampMonotonic multi-user.target)"
	read -r up idle </proc/uptime
	value idle_s "$idle"
	value off_s "$up"
}

host_after() {
	end=$(sed -n 's/^\[ *\([0-9.]*\)\] reboot: Power down.*/\1/p' "$WORK/console-$1")
	echo "$GUEST $(value boot_us) $(value off_s) $end $(value idle_s)" >>"$BENCH_OUT"
}
