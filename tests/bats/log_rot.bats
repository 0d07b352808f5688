#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# One byte of one block of the log is damaged: at most what that block alone describes is lost, and check names it.
# seconds: 40
# turn: 3

load lib

# generations FS N: a card with these generations, /fK in each from the K-th on. FULL: what is home before.
generations() {
	local n
	volume_mounted "$1" "$([ "$1" = ext4 ] && echo 100 || echo 310)" "$([ "$1" = ext4 ] && echo 140 || echo 350)" -- --log-size 4M --erase-block 512K
	for ((n = 1; n <= $2; n++)); do
		head -c $((n * 9000)) /dev/urandom >"$MNT/f$n"
		commit_of "$1"
	done
	SUM=$(tree_sum "$MNT")
	power_cut rw
}

# Each block of the log that is not empty: metadata all, payload each STRIDE-th. Prints what is wrong.
sweep() { # STRIDE
	local sum
	sum=$(image_sum)
	python3 - "$COWFS_BUILD/cowctl" "$IMG" "$1" <<-'END' || return
		import json, subprocess, sys
		cowctl, image, stride = sys.argv[1], sys.argv[2], int(sys.argv[3])
		def check():
		    p = subprocess.run([cowctl, "check", "--json", image], capture_output=True, text=True)
		    return p.returncode, json.loads(p.stdout)
		code, good = check()
		assert code == 0 and good["log_state"] == "live", good
		seen = {}
		with open(image, "r+b", buffering=0) as f:
		    f.seek(good["log_offset_bytes"])
		    log = f.read(good["log_bytes"])
		    for i, at in enumerate(range(0, len(log), 4096)):
		        block = log[at:at + 4096]
		        kind = block[:8].decode("latin1") if block[:5] == b"COWFS" else "payload"
		        if not any(block) or kind == "payload" and i % stride:
		            continue
		        where = good["log_offset_bytes"] + at + (i * 37 % 1500 if i % 2 else 100)
		        f.seek(where)
		        byte = f.read(1)
		        f.seek(where)
		        f.write(bytes([byte[0] ^ 0x55]))
		        code, now = check()
		        f.seek(where)
		        f.write(byte)
		        what = {k: now.get(k) for k in ("log_state", "generation", "bad_blocks", "passed_record", "torn_record", "rejected_why")}
		        if now["log_state"] not in ("live", "fell-back", "clean") or now["bad_blocks"] > 1 or (
		            kind != "payload" and now["bad_blocks"]) or now["generation"] < good["generation"] - 1:
		            sys.exit(f"{kind} at block {i} of the log, byte {where % 4096}: {code} {what}")
		        result = "lost" if now["generation"] < good["generation"] else "bad" if now["bad_blocks"] else \
		            "passed" if now["passed_record"] else "same"
		        if result in ("passed", "bad") and code == 0 or result == "lost" and code != 3 and not now["torn_record"]:
		            sys.exit(f"{kind} at block {i}: not named: {code} {what}")
		        seen[kind, result] = seen.get((kind, result), 0) + 1
		print(seen)
		assert seen["COWFSREC", "passed"] and seen["COWFSDSC", "passed"]
	END
	[ "$(image_sum)" = "$sum" ]
}

@test "a damaged block of the log: of 1 to 9 generations on ext4" {
	generations ext4 "${COWFS_ROT_GENERATIONS:-5}"
	sweep "${COWFS_ROT_STRIDE:-8}"
}

@test "a damaged block of the log: on xfs" {
	generations xfs "${COWFS_ROT_GENERATIONS:-3}"
	sweep "${COWFS_ROT_STRIDE:-16}"
}

@test "a damaged block of the log: on btrfs" {
	generations btrfs "${COWFS_ROT_GENERATIONS:-3}"
	sweep "${COWFS_ROT_STRIDE:-16}"
}

# where KIND N: the offset of the N-th block of this kind in the image
where() {
	python3 -c 'import sys
image, kind, n = open(sys.argv[1], "rb").read(), sys.argv[2].encode(), int(sys.argv[3])
print([at for at in range(0, len(image), 4096) if image[at:at + 8] == b"COWFS" + kind][n])' "$IMG" "$1" "$2"
}

@test "a damaged block of the log: release takes the newest generation past an old record and old descriptors" {
	local kind at
	generations ext4 3
	cp --sparse=always "$IMG" "$T/before"
	for kind in REC DSC; do
		at=$(where $kind 1)
		cp --sparse=always "$T/before" "$IMG"
		logedit flip $((at + 90))
		run -3 cow check "$CARD"
		[[ $output == *"state "*"live"*"finding "*"record "*" of the log, or its descriptors, is damaged; what they said is known from other blocks"*"verdict: usable"* ]]
		recovers_to ext4 "$SUM"
	done
}

@test "a damaged block of the log: an attach serves it, and a checkpoint leaves it behind" {
	generations ext4 3
	logedit flip $(($(where REC 1) + 90))
	attach_has "$SUM"
	commit_word later
	run -3 cow check "$CARD"
	run -0 cow commit --checkpoint
	detach
	run -0 cow check "$CARD"
	fsck ext4
	on_bare '[ -e "$MNT/later" ] && [ -e "$MNT/f1" ]'
}

# A cut leaves the same on a card that tears a block.
@test "a damaged block of the log: of the newest record, a remark" {
	generations ext4 3
	logedit flip $(($(logedit newest) + 90))
	run -0 cow check "$CARD"
	[[ $output == *"note "*"behind the newest one, is incomplete: its commit was cut off by a loss of power, or it was damaged since; that commit is not there"*"verdict: good"* ]]
	attach
	cow status >/dev/null
	mount_volume
	[ -e "$MNT/f2" ] && [ ! -e "$MNT/f3" ]
}
