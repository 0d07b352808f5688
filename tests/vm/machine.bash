# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# The parts of `run`: the card, the marker disk, QEMU. Functions for test scripts are told in run.
# shellcheck disable=SC2034,SC2153 # much is shared with run

# ---- the card ----

card_make() {
	local key image
	key=$(echo "$DISK_MIB $BOOT_MIB ${EFI_MIB:-0} $BOOT_FS $ROOT_FS $ROOT_START $LOG_MIB $JOURNAL_MIB $FORMAT_OPTIONS${LOWER_FS:+ $LOWER_FS}${BELOW:+ $BELOW}" | sha256sum | cut -c1-12)
	image=$DIR/card-$key.img
	( # another run of this guest waits
		flock 9
		[ ! -e "$image" ] || exit 0
		BELOW=${BELOW:+${BELOW}_make} disk_make "$image.new" "$DIR/root"
		mv "$image.new" "$image"
	) 9>"$DIR/.card.lock"
	cp --sparse=always --reflink=auto "$image" "$CARD"
	[ "$BELOW" != md ] || leg_make
	[ -z "$DATA_MIB" ] || data_make
}

# A second card, with a plain ext4 and an empty log.
data_make() {
	truncate -s "${DATA_MIB}M" "$DATA"
	mke2fs -q -F -t ext4 -L data -J size=4 -E lazy_itable_init=0 "$DATA" $((DATA_MIB - 40))M
	"$BUILD/cowctl" prepare "$DATA" >/dev/null || die "cowctl prepare failed"
}

part_field() { # FIELD [PARTITION]
	sfdisk --json "$CARD" | jq ".partitiontable.partitions[] | select(.node | endswith(\"${2:-2}\")).$1"
}

card_extract() {
	local bytes=$((($(part_field size) - BELOW_MIB * 2048) * 512))
	rm -f "$1"
	dd if="$CARD" of="$1" bs=64K iflag=skip_bytes,count_bytes skip=$((($(part_field start) + BELOW_MIB * 2048) * 512)) \
		count=$bytes conv=sparse status=none
	truncate -s $bytes "$1"
	[ "$BELOW" != luks ] || luks_open "$1"
}

# A disk of its own with the swap "swap"
swap_make() {
	truncate -s 900M "$WORK/swap.img" && mkswap -q -L swap "$WORK/swap.img"
	DEVICES="-drive file=$WORK/swap.img,if=none,id=swap,format=raw -device virtio-blk-pci,drive=swap"
}

# The root partition's device, or what is on LUKS, LVM and RAID.
card_put() {
	local from=$1
	[ "$BELOW" != luks ] || from=$(luks_closed "$1")
	dd if="$from" of="$CARD" bs=64K oflag=seek_bytes seek=$((($(part_field start) + BELOW_MIB * 2048) * 512)) conv=notrunc \
		status=none
	[ "$from" = "$1" ] || rm "$from"
}

# The same with FILE, or if it is shorter a part of it, in the partition of the image (LOWER_FS).
lower_put() {
	dd if="$1" of="$CARD" bs=64K oflag=seek_bytes seek=$(($(part_field start 3) * 512)) conv=notrunc status=none
}

# What somebody would do with the card in a PC. $1 is not changed.
offline_check() {
	local copy=$1.check
	cp --sparse=always "$1" "$copy"
	"$BUILD/cowctl" check "$copy" >"$WORK/check.out" 2>&1 || [ $? = 3 ] || fail "cowctl check: $(tail -3 "$WORK/check.out")"
	"$BUILD/cowctl" release "$copy" >"$WORK/recover.out" 2>&1 || fail "cowctl release: $(tail -3 "$WORK/recover.out")"
	if [ "$ROOT_FS" = ext4 ]; then
		# what was deleted while open is taken away by -p, as at every mount
		e2fsck -fp "$copy" >"$WORK/e2fsck.out" 2>&1 || [ $? = 1 ] || fail "e2fsck -p: $(tail -3 "$WORK/e2fsck.out")"
		e2fsck -fn "$copy" >"$WORK/e2fsck.out" 2>&1 || fail "e2fsck -n: $(tail -3 "$WORK/e2fsck.out")"
	fi
	rm -f "$copy"
}

# ---- the marker disk ----

marker_write() {
	rm -rf "$WORK/in" "$MARKER"
	mkdir "$WORK/in"
	cp "$TOP/tests/vm/lib.sh" "$WORK/in/lib.sh"
	cp "$SCRIPT" "$WORK/in/case.sh"
	cp -r "$CASES" "$WORK/in/cases"
	echo "$N" >"$WORK/in/boot"
	echo "$GUEST" >"$WORK/in/guest"
	echo "${COWFS_VM_LONG-}" >"$WORK/in/long"
	# shellcheck disable=SC2086 # a list
	[ -z "$EXTRA" ] || cp $EXTRA "$WORK/in/"
	truncate -s 1M "$MARKER"
	tar -C "$WORK/in" -cf - . >>"$MARKER"
	truncate -s %1M "$MARKER"
}

verdict_read() {
	dd if="$MARKER" bs=64K count=1 status=none 2>/dev/null | tr -d '\0' >"$VERDICT"
}

wait_mark() {
	local n=$((${2:-0} * 2)) # without S the limit of the boot, which leaves out what QEMU waits for a processor
	until verdict_read && grep -qx "mark $1" "$VERDICT"; do
		kill -0 "$QEMU" 2>/dev/null || { echo "QEMU has ended before mark $1" >&2; return 1; }
		sleep 0.5
		[ "$n" = 0 ] || [ $((n -= 1)) -gt 0 ] || { echo "no mark $1" >&2; return 1; }
	done
}

value() { awk -v n="$1" '$1 == "value" && $2 == n { v = $3 } END { print v }' "$VERDICT"; }

# ---- the machine ----

# The firmware partition of the card, for mtools
firmware_part() { echo "$CARD@@$(($(sfdisk --json "$CARD" | jq '.partitiontable.partitions[0].start') * 512))"; }

# What the firmware of a Raspberry Pi 4 does: options of QEMU in ARGS. QEMU gets a device tree that says so.
pi_firmware() {
	local part config name
	part=$(firmware_part)
	rm -f "$WORK"/pi-*
	config=$(mtype -i "$part" ::config.txt | tr -d '\r' |
		awk 'BEGIN { on = 1 } /^\[/ { on = $0 == "[all]" || $0 == "[pi4]"; next } on') || fail "no config.txt"
	name=$(sed -n 's/^kernel=kernel\(.*\)\.img$/\1/p' <<<"$config")
	name=${name:-8}
	mcopy -i "$part" "::kernel$name.img" "$WORK/pi-kernel" || fail "no kernel"
	ARGS=(-kernel "$WORK/pi-kernel" -append "$(mtype -i "$part" ::cmdline.txt)" -dtb "$WORK/pi-tree")
	if grep -qx auto_initramfs=1 <<<"$config" && mcopy -i "$part" "::initramfs$name" "$WORK/pi-initramfs"; then
		ARGS+=(-initrd "$WORK/pi-initramfs")
	fi
	qemu-system-aarch64 -machine "virt,dumpdtb=$WORK/pi-tree" -cpu cortex-a53 -m "$MEM" -nodefaults -display none 2>/dev/null
	fdtput -t s "$WORK/pi-tree" / model 'Raspberry Pi 4 Model B Rev 1.4' || fail "no device tree"
}

# Waits until TEXT is on the console.
console_wait() {
	local n=$LIMIT
	until grep -aqF "$1" "$WORK/console-$N"; do
		kill -0 "$QEMU" 2>/dev/null || { echo "QEMU has ended before '$1'" >&2; return 1; }
		sleep 0.2
		n=$((n - 1))
		[ $((n * 5)) -gt 0 ] || { echo "no '$1' on the console" >&2; return 1; }
	done
}

# Waits until TEXT is on the console, then types KEYS there, with the escapes of printf.
console_type() {
	console_wait "$1"
	"$TOP/tests/vm/type.py" "$WORK/console.sock" "$2"
}

qmp() { "$TOP/tests/vm/qmp.py" "$SOCK" "$@"; }
qemu_writes() { qmp writes card; }
vm_kill() { kill -9 "$QEMU"; }

# card_out NAME: the card, or the second one ("data"), is pulled. card_in NAME [FILE]: it is back, or FILE is there in its place.
card_out() {
	if [ "$1-$DRIVE" = card-mmc ]; then
		qmp eject '{"device": "card", "force": true}' >/dev/null
		return
	fi
	hmp "device_del $1-disk"
	until ! hmp "info qtree" | grep -qF "\"$1-disk\""; do sleep 0.05; done
}

card_in() {
	local drive=$DRIVE file=$CARD n=0
	[ "$1" = card ] || drive=$DATA_DRIVE file=$DATA
	file=${2:-$file}
	if [ "$drive" = mmc ]; then
		qmp blockdev-change-medium "{\"device\": \"$1\", \"filename\": \"$file\", \"format\": \"raw\"}" >/dev/null
		return
	fi
	# QEMU keeps a drive until the last request to it has ended
	until hmp "drive_add 0 $(disk_drive "$1" "$file")" >"$WORK/drive" && grep -q OK "$WORK/drive"; do
		n=$((n + 1))
		[ $n -lt 50 ] || fail "$file is not taken: $(head -n 1 "$WORK/drive")"
		hmp "drive_del $1" >"$WORK/drive"
		sleep 0.2
	done
	hmp "device_add $(disk_device "$drive" "$1")" | grep . && fail "no disk with $file"
	return 0
}

# The guest's `told NAME` is true from now on: a disk of that name is there.
tell_guest() {
	hmp "drive_add 0 if=none,id=$1,driver=null-co,size=1M" | grep -q OK || fail "$1 cannot be told"
	hmp "device_add virtio-blk-pci,drive=$1,serial=$1" | grep . && fail "$1 cannot be told"
	return 0
}

# A command for people, and what it says.
hmp() { qmp human-monitor-command "{\"command-line\": \"$1\"}" | jq -r .; }

# qemu-system-... and its machine for this architecture, as words. U-Boot is no part of the disk.
qemu_machine() {
	local uboot=/usr/lib/u-boot
	case $(image_arch) in
	arm64) echo "qemu-system-aarch64 -machine virt -cpu cortex-a53 $([ -z "$LOADER" ] || [ "$LOADER" = pi ] || echo "-bios $uboot/qemu_arm64/u-boot.bin")" ;;
	# a kernel without LPAE reaches no device above 4 GiB
	armhf) echo "qemu-system-arm -machine virt,highmem=off -cpu cortex-a15 ${LOADER:+-bios $uboot/qemu_arm/u-boot.bin}" ;;
	riscv64) echo "qemu-system-riscv64 -machine virt" ;;
	*) echo "qemu-system-x86_64" ;;
	esac
}

# What QEMU is told of the card and the second card ("card", "data"): a controller, the disk at it, the file behind it.
disk_bus() { # DRIVE NAME
	case $1 in
	scsi) echo "-device virtio-scsi-pci,id=$2-bus" ;;
	usb) echo "-device qemu-xhci,id=$2-bus" ;;
	mmc) echo "-device sdhci-pci" ;;
	virtio | nvme) ;;
	*) fail "no drive is called $1" ;;
	esac
}

disk_device() { # DRIVE NAME
	case $1 in
	virtio) echo "virtio-blk-pci,drive=$2,serial=$2,id=$2-disk$([ "$2" != card ] || echo ,bootindex=1)" ;;
	scsi) echo "scsi-hd,bus=$2-bus.0,drive=$2,serial=$2,id=$2-disk" ;;
	usb) echo "usb-storage,bus=$2-bus.0,drive=$2,serial=$2,id=$2-disk" ;;
	mmc) echo "sd-card,drive=$2" ;;
	nvme) echo "nvme,drive=$2,serial=$2,id=$2-disk" ;;
	esac
}

disk_drive() { # NAME FILE
	echo "file=$2,if=none,id=$1,format=raw$([ "$1" != card ] || echo ",discard=unmap${BPS:+,throttling.bps-write=$BPS}")"
}

# shellcheck disable=SC2054 # commas are QEMU's
qemu_start() {
	local smp=${COWFS_VM_SMP:-1}
	local args=(-accel "tcg,thread=$([ "$smp" = 1 ] && echo single || echo multi)" -m "$MEM" -smp "$smp"
		-nodefaults -no-user-config -display none
		-no-reboot -chardev "socket,id=console,path=$WORK/console.sock,server=on,wait=off,logfile=$WORK/console-$N"
		-serial chardev:console -qmp "unix:$SOCK,server=on,wait=off" -device virtio-rng-pci
		-drive "$(disk_drive card "$CARD")" -drive "file=$MARKER,if=none,id=marker,format=raw")
	# shellcheck disable=SC2207 # words
	[ -z "$DATA_MIB" ] || args+=($(disk_bus "$DATA_DRIVE" data) -drive "$(disk_drive data "$DATA")"
		-device "$(disk_device "$DATA_DRIVE" data)")
	# shellcheck disable=SC2207 # words
	args+=($(disk_bus "$DRIVE" card) -device "$(disk_device "$DRIVE" card)")
	args+=(-device virtio-blk-pci,drive=marker,serial=marker)
	[ ! -e "$LEG" ] || args+=(-drive "file=$LEG,if=none,id=leg,format=raw,discard=unmap"
		-device virtio-blk-pci,drive=leg,serial=leg,id=leg-disk)
	case $LOADER in
	efi)
		args+=(-drive "if=pflash,unit=0,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE.fd"
			-drive "if=pflash,unit=1,format=raw,file=$WORK/efivars")
		[ -e "$WORK/efivars" ] || cp /usr/share/OVMF/OVMF_VARS.fd "$WORK/efivars"
		;;
	pi) pi_firmware && args+=("${ARGS[@]}") ;;
	uboot) [ ! -e "$DIR/u-boot.rom" ] || args+=(-bios "$DIR/u-boot.rom") ;;
	esac
	if [ -z "$LOADER" ]; then
		args+=(-kernel "$DIR/vmlinuz" -initrd "${INITRD:-$DIR/initrd.img}"
			-append "root=$ROOT ro console=${CONSOLE:-$(image_console)} panic=-1 $APPEND")
	fi
	# shellcheck disable=SC2206 # words
	args+=($DEVICES ${COWFS_VM_QEMU-} "$@")
	[ -z "$CLOCK" ] || args+=(-rtc "base=$CLOCK")
	rm -f "$SOCK" "$WORK/console.sock"
	# shellcheck disable=SC2046 # words
	nice -n 5 $(qemu_machine) "${args[@]}" >"$WORK/qemu-$N" 2>&1 9>&- &
	QEMU=$!
	disown # its end by a signal is nothing to report
}

# ---- one moment, many futures ----

# vm_save: the machine as it is now, with its disks, becomes $WORK/saved; QEMU ends.
vm_save() {
	mkdir -p "$WORK/saved"
	qmp stop >/dev/null
	qmp migrate "{\"uri\": \"exec:cat >$WORK/saved/state\"}" >/dev/null
	until qmp query-migrate | grep -q '"completed"'; do
		kill -0 "$QEMU" || fail "QEMU ended while it was saved"
		sleep 0.3
	done
	qmp quit >/dev/null
	wait_gone
	disks_copy "$WORK" "$WORK/saved"
}

disks_copy() { # FROM TO
	local disk
	for disk in card marker leg data; do
		[ ! -e "$1/$disk.img" ] || cp --sparse=always "$1/$disk.img" "$2/$disk.img"
	done
}

# vm_load: goes on from there. Disks are copies, so it can be done again and again.
vm_load() {
	disks_copy "$WORK/saved" "$WORK"
	qemu_start -incoming "exec:cat $WORK/saved/state"
	# it was stopped when it was saved
	until [ -S "$SOCK" ] && qmp query-status 2>/dev/null | grep -q '"paused"'; do
		kill -0 "$QEMU" || fail "QEMU ended while it was loaded: $(tail -1 "$WORK/qemu-$N")"
		sleep 0.1
	done
	qmp cont >/dev/null
}

# The power goes when the card has got its N-th write since vm_load; it stays if there are fewer.
cut_at() {
	"$TOP/tests/vm/qmp.py" "$SOCK" await card "$1" >/dev/null || :
	kill -9 "$QEMU" 2>/dev/null || :
	wait_gone
}

# One future without a cut: how many writes the card gets is in `writes`.
vm_uncut() {
	vm_load
	writes=$("$TOP/tests/vm/qmp.py" "$SOCK" await card 1000000)
	wait_gone
}

# Seconds that the machine was ready to run and had no processor, since qemu_start.
qemu_waited() {
	awk '$2 > most { most = $2 } END { printf "%d\n", most / 1e9 }' "/proc/$QEMU"/task/*/schedstat 2>/dev/null || echo 0
}

wait_gone() {
	while kill -0 "$QEMU" 2>/dev/null; do
		sleep 0.1
	done
	QEMU=''
}
