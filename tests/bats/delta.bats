#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl export and import: what one card has more than another, as a file for all cards of the same image.
# seconds: 130
# turn: 3

load lib
load delta

# The volume that is attached shows the tree SUM when it is attached again, alone it is whole, and it commits.
card_has_sum() { # FS
	attach_mounted
	[ "$(tree_sum "$MNT")" = "$SUM" ] || return
	touch "$MNT/more"
	cow commit >/dev/null
	umount_volume
	detach_whole "$1"
}

unchanged() { # COMMAND...: and the card has the same bytes
	local before
	before=$(image_sum "$T/card.img")
	"$@" || return
	[ "$(image_sum "$T/card.img")" = "$before" ]
}

becomes_the_other() { # FS FS_MIB CARD_MIB
	two_cards "$@"
	change_master
	export_delta --base "$IMAGE"
	attach
	run -0 cow import "$T/delta"
	echo "$output"
	[[ $output == *"detached, because nothing was mounted"* ]]
	wait_for 10 no_daemons # they end a moment after the import
	# a second time nothing is left to do
	attach
	unchanged run -0 cow import "$T/delta"
	[[ $output == *"has this already; nothing was written"* ]]
	detach
	card_has_sum "$1"
}

@test "ext4: a card of the same image becomes what the other one is" { becomes_the_other ext4 100 150; }
@test "xfs: a card of the same image becomes what the other one is" { becomes_the_other xfs 320 400; }
@test "lag 1: a card of the same image becomes what the other one is" { LAG=1 becomes_the_other ext4 100 150; }
@test "btrfs: a card of the same image becomes what the other one is" { becomes_the_other btrfs 150 250; }

# What is mounted goes on as if nothing had come, and nothing of it is committed.
beside_what_runs() { # FS FS_MIB CARD_MIB
	local live
	two_cards "$@"
	change_master
	export_delta --base "$IMAGE"
	COWFS_DEATHS=100 attach --on-crash replace
	mount_volume
	random_file "$MNT/lost" 2
	dd if=/dev/urandom of="$MNT/big" bs=4096 count=9 seek=300 conv=notrunc status=none
	rm "$MNT"/lib/1/*
	live=$(tree_sum "$MNT")
	run -0 cow import "$T/delta"
	[[ $output == *"The next attach has it. What is mounted now goes on, and all that is not committed is lost"* ]]
	read_again "$MNT"
	[ "$(tree_sum "$MNT")" = "$live" ]
	fails 1 'the next start has generation .*, which was imported' commit
	fails 1 'was imported' commit --hold
	run -0 cow commit --timer
	run -0 cow status
	[[ $output == *"the next attach has generation "*", which was imported, and what is mounted now is lost"* ]]
	[ "$(status_of .replaced_by)" = "$(status_of .generation)" ]
	if [ "$1" != btrfs ]; then
		fails 1 'was imported' commit "$MNT/lost"
	fi
	# a worker that takes over knows it, too
	kill -9 "$(worker_pid)"
	touch "$MNT/after"
	sync -f "$MNT"
	wait_for 20 fails 1 'was imported' commit
	rm "$MNT/after"
	read_again "$MNT"
	[ "$(tree_sum "$MNT")" = "$live" ]
	detach
	card_has_sum "$1"
}

@test "ext4: beside what runs, which goes on and is lost" { beside_what_runs ext4 100 150; }
@test "xfs: beside what runs, which goes on and is lost" { beside_what_runs xfs 320 400; }
@test "btrfs: beside what runs, which goes on and is lost" { beside_what_runs btrfs 150 250; }

@test "the base is the image of before it had a log" {
	card_make ext4 60 110
	mount "$CARD" "$MNT"
	random_file "$MNT/old" 2
	umount "$MNT"
	IMAGE=$T/image.img
	cp --sparse=always "$T/card.img" "$IMAGE"
	cow prepare "$CARD"
	cp --sparse=always "$T/card.img" "$T/master.img"
	loop_up "$T/master.img"
	MASTER=$LOOP
	mkdir "$T/m"
	CARD=$MASTER attach --name master
	mount "$(cow status master --json | jq -r .loop)" "$T/m"
	random_file "$T/m/new" 3
	SUM=$(tree_sum "$T/m")
	umount "$T/m"
	cow detach master
	export_delta --base "$IMAGE"
	attach
	cow import "$T/delta"
	card_has_sum ext4
}

@test "from a volume that runs, and what is held there; a second update on the first" {
	two_cards ext4 100 150
	CARD=$MASTER attach --name master --hold previous
	mkdir "$T/m"
	mount "$(cow status master --json | jq -r .loop)" "$T/m"
	fails 1 'no generation is held, so name the base: --base DEVICE, or --all' export master "$T/none"
	random_file "$T/m/one" 2
	cow commit master
	echo uncommitted >"$T/m/not-in-it"
	cow export master "$T/delta1" --json >"$T/json"
	[ "$(jq -c '[.ok, .whole, .signed, .fs_type]' "$T/json")" = '[true,false,false,"ext4"]' ]
	[ "$(jq .file_bytes "$T/json")" = "$(stat -c %s "$T/delta1")" ]
	run -0 cow export master "$T/without"
	[[ $output == *$'\n'"  without what is not committed, "*": commit first to have it in the file" ]]
	rm "$T/m/not-in-it"
	random_file "$T/m/two" 2
	rm "$T/m/one"
	cow commit master
	run -0 cow export master "$T/delta2"
	[[ $output != *"not committed"* ]]
	SUM=$(tree_sum "$T/m")
	umount "$T/m"
	cow detach master >/dev/null
	rm "$T/delta2" # the card alone has both, too
	fails 1 "$CARD: no generation is held, so name the base" export "$CARD" "$T/none"
	cow export "$MASTER" "$T/delta2"
	attach
	unchanged fails 1 'delta2: is for generation [0-9]+ of .* has generation 2 of .*, which is another one from block [0-9]+ on; nothing was written' import "$T/delta2"
	cow import "$T/delta1" --json >"$T/json"
	[ "$(jq -c '[.ok, .imported, .signature_verified, .detached]' "$T/json")" = '[true,true,false,true]' ]
	attach
	mount_volume # an import follows on one that waits
	answer=$(cow import "$T/delta2" --json)
	jq -e '.detached == false' <<<"$answer"
	detach
	card_has_sum ext4
}

@test "a card with a commit of its own, in blocks that the file brings: refused, and its files stay" {
	two_cards ext4 100 150
	CARD=$MASTER attach --name master
	mkdir "$T/m"
	mount "$(cow status master --json | jq -r .loop)" "$T/m"
	echo update >"$T/m/update"
	umount "$T/m"
	cow detach master
	export_delta --base "$IMAGE"
	# takes the inode of the other one, and its place in the folder
	attach_mounted
	echo own >"$MNT/own"
	cow commit
	unchanged fails 1 'delta: is for generation .* which is another one from block [0-9]+ on; nothing was written' import "$T/delta"
	umount_volume
	detach
	mount -o ro "$CARD" "$MNT"
	[ "$(cat "$MNT/own")" = own ]
}

@test "an update that is older than the last one is refused, unless it is ordered" {
	two_cards ext4 100 150
	sleep 1.1 # times are in seconds
	change_master
	export_delta --base "$IMAGE"
	attach
	cow import "$T/delta"
	# back to where it came from
	cow export --base "$MASTER" "$IMAGE" "$T/back"
	attach
	unchanged fails 1 'is of .*, and older than what was imported last: --older' import "$T/back"
	cow import --older "$T/back"
	cow export --all "$IMAGE" "$T/whole"
	attach
	unchanged fails 1 'older' import "$T/whole"
	run -0 cow import --older "$T/whole"
	[[ $output == *"has this already"* ]]
	detach_whole ext4
}

@test "a whole one for a card of another history; an xfs refuses that" {
	two_cards ext4 60 110
	change_master
	export_delta --all
	attach_mounted
	random_file "$MNT/own" 4
	cow commit
	umount_volume
	cow import "$T/delta"
	card_has_sum ext4
	# another file system of the same size
	mke2fs -q -F -t ext4 "$CARD" 60M
	cow prepare "$CARD" --force
	attach
	unchanged fails 1 'is of another file system than that of vol' import "$T/delta"
	detach
}

@test "xfs: only forward" {
	two_cards xfs 320 400
	change_master
	export_delta --all
	attach
	unchanged fails 1 'an xfs can only go on, from its base' import "$T/delta"
	detach
}

@test "each byte counts: cut off, flipped, exchanged, doubled" {
	local bytes i
	two_cards ext4 60 110
	change_master
	export_delta --base "$IMAGE"
	bytes=$(stat -c %s "$T/delta")
	attach
	for i in 0 1 4095 4096 8192 $((bytes / 2)) $((bytes - 40)) $((bytes - 1)); do
		head -c "$i" "$T/delta" >"$T/bad"
		unchanged fails 1 '(fetch the rest|was cut off)' import "$T/bad"
	done
	cat "$T/delta" "$T/delta" >"$T/bad"
	unchanged fails 1 'has .* bytes, and should have' import "$T/bad"
	# the signature's room is not checked without a key
	for i in 0 17 40 3000 4095 8192 8200 9000 $((bytes / 3)) $((bytes / 2)) $((bytes - 2000)) $((bytes - 41)) $((bytes - 1)); do
		cp "$T/delta" "$T/bad"
		python3 - "$T/bad" "$i" <<-'P'
			import sys
			f = open(sys.argv[1], "r+b"); f.seek(int(sys.argv[2])); b = f.read(1)
			f.seek(int(sys.argv[2])); f.write(bytes([b[0] ^ 1 << 3]))
		P
		unchanged fails 1 '(is damaged|is not what cowctl export writes)' import "$T/bad"
	done
	head -c 20000 /dev/urandom >"$T/bad"
	unchanged fails 1 'is not what cowctl export writes' import "$T/bad"
	unchanged fails 1 'No such file' import "$T/none"
	unchanged fails 1 'is not a regular file' import "$T"
	mkfifo "$T/pipe"
	unchanged fails 1 'is not a regular file' import "$T/pipe"
	[ "$(status_of '.views.list | length')" = 0 ]
	cow import "$T/delta"
	card_has_sum ext4
}

@test "a key in cowfs.conf: what it did not sign is refused" {
	two_cards ext4 60 110
	change_master
	ssh-keygen -q -t ed25519 -N '' -f "$T/key"
	ssh-keygen -q -t ed25519 -N '' -f "$T/other"
	export_delta --base "$IMAGE"
	cp "$T/delta" "$T/unsigned"
	export_delta --base "$IMAGE" --sign "$T/other"
	cp "$T/delta" "$T/foreign"
	run -0 export_delta --base "$IMAGE" --sign "$T/key"
	[[ $output == *", signed"* ]]
	# as docs/FORMAT.md says: by hand, where the key is
	cp "$T/unsigned" "$T/by-hand"
	head -c 4096 "$T/by-hand" | ssh-keygen -Y sign -n cowfs -f "$T/key" |
		dd of="$T/by-hand" bs=4096 seek=1 conv=notrunc status=none
	export COWFS_CONF=$T/conf
	{ echo '# of the builders'; cat "$T/key.pub"; } >"$T/keys"
	printf '[vol]\nimport-keys = %s\n' "$T/keys" >"$COWFS_CONF"
	attach
	unchanged fails 1 'is not signed, and import-keys of cowfs.conf asks for that' import "$T/unsigned"
	unchanged fails 1 'its signature is of no key of' import "$T/foreign"
	# what the caller's PATH has in place of ssh-keygen is not asked
	mkdir "$T/bin"
	ln -s /bin/true "$T/bin/ssh-keygen"
	PATH=$T/bin:$PATH unchanged fails 1 'its signature is of no key of' import "$T/foreign"
	# the head of one with the signature of another
	cp "$T/foreign" "$T/mixed"
	dd if="$T/delta" of="$T/mixed" bs=4096 skip=1 seek=1 count=1 conv=notrunc status=none
	head -c 4096 "$T/unsigned" | cmp -s - <(head -c 4096 "$T/delta") || unchanged fails 1 'signature' import "$T/mixed"
	head -c 8192 /dev/urandom | dd of="$T/mixed" bs=4096 seek=1 count=1 conv=notrunc status=none
	unchanged fails 1 'signature|is not signed' import "$T/mixed"
	chmod 666 "$T/keys"
	unchanged fails 1 'other users can change it' import "$T/delta"
	chmod 644 "$T/keys"
	printf '[vol]\nimport-keys = %s\n' "$T/missing" >"$COWFS_CONF"
	unchanged fails 1 'missing: No such file' import "$T/delta"
	printf '[default]\nimport-keys = %s\n' "$T/keys" >"$COWFS_CONF"
	answer=$(cow import "$T/by-hand" --json)
	jq -e .signature_verified <<<"$answer"
	attach
	run -0 cow import "$T/delta"
	[[ $output == *"has this already"* ]]
	detach
	fails 1 'not signed: ssh-keygen' export --base "$IMAGE" --sign "$T/none" "$MASTER" "$T/d2"
	card_has_sum ext4
}

# bats test_tags=blunt
@test "an import that is killed, or cut at any write, is all there or not at all" {
	local n code old got
	two_cards ext4 60 110
	change_master
	export_delta --base "$IMAGE"
	attach_mounted
	old=$(tree_sum "$MNT")
	detach
	for n in $(some 1 40); do
		blockdev --setrw "$CARD"
		dd if="$IMAGE" of="$CARD" bs=1M conv=fsync status=none
		truncate -s 4096 "$T/arm"
		LD_PRELOAD=$COWFS_BUILD/tests/powercut.so COWFS_CUT_FILE=$T/arm COWFS_CUT_SEED=$n attach
		printf %s "$n" | dd of="$T/arm" conv=notrunc status=none
		give_up_early
		code=0
		cow import "$T/delta" >/dev/null 2>&1 || code=$?
		if [ $code = 0 ]; then
			wait_for 10 no_daemons || detach --discard
		else
			clear_after_cut
		fi
		rm "$T/arm" "$T/volumes"
		blockdev --setrw "$CARD"
		attach_mounted
		got=$(tree_sum "$MNT")
		echo "cut $n: exit $code, $([ "$got" = "$SUM" ] && echo new || echo old)"
		[ "$got" = "$SUM" ] || { [ "$got" = "$old" ]; [ $code != 0 ]; }
		detach --discard
		[ $code != 0 ] || break
	done
	[ "$n" -ge 5 ]
	[ "$n" -lt 40 ] # every write was cut once
	# the command itself is killed: nothing is left of it
	blockdev --setrw "$CARD"
	dd if="$IMAGE" of="$CARD" bs=1M conv=fsync status=none
	attach
	for n in 1 2 3 4 5 6; do
		timeout -s KILL "0.0$((n * 13))" "$COWFS_BUILD/cowctl" import "$T/delta" >/dev/null 2>&1 && break
	done
	# the daemon may be about to end, behind an import whose command was killed
	wait_for 10 eval 'no_daemons || cow import "$T/delta"'
	card_has_sum ext4
}

# Kills the process that makes the write to a block device, or the sync of one, at which the number in KILL_AT becomes 0.
kill_shim() {
	cat >"$T/kill.c" <<-'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <fcntl.h>
		#include <signal.h>
		#include <stdlib.h>
		#include <sys/mman.h>
		#include <sys/stat.h>
		#include <sys/uio.h>
		#include <unistd.h>
		static _Atomic int *at;
		__attribute__((constructor)) static void map(void)
		{
			int fd = open(getenv("KILL_AT"), O_RDWR);
			at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			close(fd);
		}
		static void count(int fd)
		{
			struct stat st;
			if (*at > 0 && fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) && --*at == 0)
				kill(getpid(), SIGKILL);
		}
		#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
		#define WRITE(name, type, offset) ssize_t name(int fd, type b, size_t n, offset o) { count(fd); return NEXT(name)(fd, b, n, o); }
		#define WRITEV(name, offset) ssize_t name(int fd, const struct iovec *b, int n, offset o) { count(fd); return NEXT(name)(fd, b, n, o); }
		#define WRITEV2(name, offset) ssize_t name(int fd, const struct iovec *b, int n, offset o, int f) { count(fd); return NEXT(name)(fd, b, n, o, f); }
		#define SYNC(name) int name(int fd) { count(fd); return NEXT(name)(fd); }
		WRITE(pwrite, const void *, off_t) WRITE(pwrite64, const void *, off64_t)
		WRITEV(pwritev, off_t) WRITEV(pwritev64, off64_t) WRITEV2(pwritev2, off_t) WRITEV2(pwritev64v2, off64_t)
		SYNC(fsync) SYNC(fdatasync)
	END
	gcc -shared -fPIC -o "$T/kill.so" "$T/kill.c"
	head -c 4096 /dev/zero >"$T/at"
	export KILL_AT=$T/at
}
kill_in() { printf "\\x$(printf %02x "$1")" | dd of="$T/at" conv=notrunc status=none; }
was_killed() { [ "$(head -c 1 "$T/at" | od -An -tu1)" -eq 0 ]; }

@test "a worker that is killed at any write of an import: the next one goes on as if nothing had come, or knows it" {
	local n got
	two_cards ext4 60 110
	change_master
	export_delta --base "$IMAGE"
	FIRST=$SUM
	second_update
	kill_shim
	for n in $(some 1 40); do
		dd if="$IMAGE" of="$CARD" bs=1M conv=fsync status=none
		LD_PRELOAD=$T/kill.so COWFS_DEATHS=100 attach --on-crash replace
		mount_volume
		echo live >"$MNT/live"
		kill_in "$n"
		run cow import "$T/delta"
		was_killed || kill_in 0
		wait_for 20 status_of .generation
		got=$(status_of .replaced_by)
		echo "kill $n: exit $status, replaced by $got"
		if [ "$got" = null ]; then
			[ "$status" != 0 ]
			cow commit
			echo more >"$MNT/live"
			cow commit
		else
			fails 1 'was imported' commit
			# a second one that is killed does not end the refusal
			kill_in 5
			fails 4 'ended before it answered' import "$T/foreign"
			was_killed
			wait_for 20 status_of .generation
			fails 1 'was imported' commit
		fi
		detach
		attach_mounted
		if [ "$got" = null ]; then
			[ "$(cat "$MNT/live")" = more ]
		else
			[ "$(tree_sum "$MNT")" = "$FIRST" ]
		fi
		detach
		[ "$got" = null ] || break
	done
	[ "$n" -gt 5 ] && [ "$n" -lt 40 ]
}

@test "killed at any write of a trial's import: no hold stays" {
	local n
	root_cards ext4 60 110
	printf '[root]\nram = 64M\non-crash = replace\n' >"$T/cowfs.conf"
	umount_volume
	cow detach root
	kill_shim
	for n in $(some 1 80); do
		dd if="$IMAGE" of="$CARD" bs=1M conv=fsync status=none
		LD_PRELOAD=$T/kill.so COWFS_DEATHS=100 boots
		kill_in "$n"
		run cow import root "$T/delta" --trial 2
		was_killed || kill_in 0
		wait_for 20 status_of .generation
		echo "kill $n: exit $status, $(status_of '.held.generation')"
		umount_volume
		if [ "$(status_of .replaced_by)" = null ]; then
			wait_for 5 eval '[ "$(status_of .held)" = null ]'
			cow detach root
		else
			[ "$(status_of .held.trial)" = true ]
			break
		fi
	done
	[ "$n" -gt 9 ]
	[ "$n" -lt 80 ]
	cow detach root
}

@test "after an import a commit that is refused leaves what is held" {
	local held
	two_cards ext4 60 110
	change_master
	export_delta --all
	attach_mounted --hold previous
	commit_word a
	rm "$MNT/a"
	cow commit
	cow import "$T/delta"
	held=$(status_of .held.generation)
	[ "$held" != null ]
	echo b >"$MNT/b"
	fails 1 'was imported' commit
	fails 1 'was imported' commit --checkpoint
	[ "$(status_of .held.generation)" = "$held" ]
	detach
}

@test "an import that has no room beside what is held leaves that; one that never has says so" {
	local held
	LOG=6M two_cards ext4 60 110
	change_master
	export_delta --all
	over() { dd if=/dev/urandom of="$MNT/big" bs=1M count="$1" conv=notrunc,fsync status=none && cow commit; }
	attach_mounted
	cow commit --hold
	held=$(status_of .held.generation)
	while [ "$(status_of .log_room_blocks)" -gt 700 ]; do over 2; done
	fails 1 "no room for this commit while generation $held is held" import "$T/delta"
	[ "$(status_of '"\(.held.generation) \(.replaced_by)"')" = "$held null" ]
	cow accept
	over 6
	umount_volume
	detach
	attach_mounted --hold previous
	fails 1 'nothing was imported: the log is too small for it: .* needed, .* available' import "$T/delta"
	[ "$(status_of '"\(.held) \(.replaced_by)"')" = "null null" ]
	over 1
	detach
}

@test "an import that is too large leaves what hold = previous holds" {
	local held
	LOG=6M two_cards ext4 60 110
	change_master
	export_delta --all
	attach_mounted --hold previous
	dd if=/dev/urandom of="$MNT/big" bs=1M count=6 conv=notrunc,fsync status=none
	cow commit
	echo more >"$MNT/more"
	cow commit
	held=$(status_of .held.generation)
	[ "$held" != null ]
	fails 1 'nothing was imported: the log is too small for it: .* needed, .* available' import "$T/delta"
	[ "$(status_of '"\(.held.generation) \(.replaced_by)"')" = "$held null" ]
	umount_volume
	detach
}

@test "after an import without a trial, commit --trial does not put it on trial" {
	root_cards ext4 60 110
	cow import root "$T/delta"
	echo b >"$MNT/b"
	fails 1 'was imported' commit root --trial 3
	[ "$(status_of .held)" = null ]
	umount_volume
	cow detach root
}

@test "commit --all: a volume for which an import waits fails, and the others are committed" {
	two_cards ext4 60 110
	change_master
	export_delta --base "$IMAGE"
	attach_mounted
	CARD=$MASTER attach --name master
	mount "$(cow status master --json | jq -r .loop)" "$T/m"
	echo more >"$T/m/more"
	cow import vol "$T/delta"
	echo lost >"$MNT/lost"
	run -1 --separate-stderr cow commit --all
	[[ $output == "master: committed"* ]]
	[[ $stderr == "cowctl: vol: not committed: the next start has generation "*", which was imported"* ]]
	umount "$T/m"
	cow detach master
	umount_volume
	cow detach vol
}

@test "more than RAM has room for is refused, and nothing is left" {
	two_cards ext4 100 150
	CARD=$MASTER attach --name master
	mkdir "$T/m"
	mount "$(cow status master --json | jq -r .loop)" "$T/m"
	random_file "$T/m/new" 40
	umount "$T/m"
	cow detach master >/dev/null
	export_delta --base "$IMAGE"
	attach --ram 32M
	unchanged fails 1 'nothing was imported: it needs up to 4.* of the RAM of vol' import "$T/delta"
	mount_volume
	echo goes on >"$MNT/on"
	cow commit
	umount_volume
	detach_whole ext4
}

@test "bad input: both modes, a file that exists, a card that is not one, trial of a data volume" {
	two_cards ext4 60 110
	fails 2 'mutually exclusive' export --all --base "$IMAGE" "$MASTER" "$T/x"
	echo mine >"$T/mine"
	fails 1 'mine: exists already' export --all "$MASTER" "$T/mine"
	[ "$(cat "$T/mine")" = mine ]
	fails 4 'no volume is attached as nosuch' export --all nosuch "$T/x"
	mke2fs -q -F "$T/plain" 20M
	fails 1 'plain and /dev/.* are not of one file system' export --base "$T/plain" "$MASTER" "$T/x"
	fails 4 'no volume is attached as .*none' export --base "$T/none" "$MASTER" "$T/x"
	[ -z "$(ls "$T"/x* 2>/dev/null)" ]
	mkdir "$T/dir"
	fails 1 'dir: exists already' export --all "$MASTER" "$T/dir"
	fails 1 'No such file' export --all "$MASTER" "$T/none/x"
	change_master
	export_delta --base "$IMAGE"
	attach
	fails 2 'trial is for the root alone' import --trial 3 "$T/delta"
	fails 2 'usage: cowctl import' import
	if setpriv --reuid 65534 --clear-groups true 2>/dev/null; then
		run setpriv --reuid 65534 --clear-groups "$COWFS_BUILD/cowctl" import "$T/delta"
		[ "$status" != 0 ]
	fi
	detach
}

# ---- a root, with its boots ----

@test "a root on trial: the next boot has it, and without accept it goes back" {
	local n
	root_cards ext4 100 150
	run -0 cow import root "$T/delta" --trial 2
	echo "$output"
	[[ $output == *"The next boot has it."*"On trial: after 2 boots without cowctl accept it goes back"* ]]
	[ "$(tree_sum "$MNT")" = "$OLD" ]
	run -0 cow status
	[[ $output == *"UNTIL cowctl accept: after 2 more boots"* ]]
	for n in 1 0; do
		cut_boots
		[[ $stderr == *"is ON TRIAL, $n more boot"* ]]
		[ "$(tree_sum "$MNT")" = "$NEW" ]
		[ "$(status_of .replaced_by)" = null ]
	done
	cut_boots
	[[ $stderr == *"THE TRIAL HAS FAILED"* ]]
	[ "$(tree_sum "$MNT")" = "$OLD" ]
	[ "$(status_of .imported_unix_seconds)" = null ] # an older one may follow
	# the same once more, and accepted
	cow import root "$T/delta" --trial 2
	cut_boots
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	cow export --base "$MASTER" "$IMAGE" "$T/back"
	fails 1 'what runs now is on trial itself: cowctl accept, then import' import root "$T/back" --older
	cow accept root --trial
	[ "$(status_of .imported_unix_seconds)" -gt 0 ]
	touch "$MNT/more"
	cow commit root
	NEW=$(tree_sum "$MNT")
	cut_boots
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	detach_whole ext4
}

@test "lag 1: a root on trial goes back, and nothing else is committed in between" {
	LAG=1 root_cards ext4 100 150
	cow import root "$T/delta" --trial 1
	fails 1 'nothing of now can be committed' discard root --cancel
	fails 1 'was imported' commit root --dry-run
	fails 1 'what was imported comes first' trim root
	random_file "$MNT/lost" 3
	sync -f "$MNT"
	fails 1 'was imported' commit root
	umount_volume
	cow detach root # commits nothing, and the log keeps what is held
	boots
	[[ $stderr == *"is ON TRIAL, 0 more boot"* ]]
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	cut_boots
	[[ $stderr == *"THE TRIAL HAS FAILED"* ]]
	[ "$(tree_sum "$MNT")" = "$OLD" ]
	detach_whole ext4
}

@test "a trial needs the generation before: not beside another hold, unless hold = previous moves it" {
	local held
	root_cards ext4 100 150
	cow commit root --hold
	cow export --all "$MASTER" "$T/whole"
	unchanged fails 1 'another generation is held, and a trial needs the one before it: cowctl accept, then import' import root "$T/whole" --trial 2
	umount_volume
	cow detach root
	printf '[root]\nram = 64M\nhold = previous\n' >"$T/cowfs.conf"
	boots
	held=$(status_of .held.generation)
	cow import root "$T/whole" --trial 2
	[ "$(status_of .held.generation)" -gt "$held" ]
	cut_boots
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	cow accept root
	# without a trial it is the one before all the same
	cow export --base "$MASTER" "$IMAGE" "$T/back" >/dev/null
	cow export --all "$IMAGE" "$T/back-whole" >/dev/null
	cow import root "$T/back-whole" --older
	cow undo root
	cut_boots
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	detach_whole ext4
}

@test "undo takes back an import on trial; a shutdown commits nothing over it" {
	root_cards ext4 100 150
	cow import root "$T/delta" --trial 3
	random_file "$MNT/lost" 1
	run -0 cow shutdown root
	echo "$output"
	cut_boots
	[ "$(tree_sum "$MNT")" = "$NEW" ]
	cow accept root --trial
	cut_boots
	SUM=$(tree_sum "$MNT")
	cow export --base "$MASTER" "$IMAGE" "$T/back"
	cow import root "$T/back" --trial 3 --older
	cow undo root
	run -0 cow status
	[[ $output == *"undo"* ]]
	cut_boots
	[ "$(tree_sum "$MNT")" = "$SUM" ]
	detach_whole ext4
}
