#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Several volumes are committed in turn, each by itself: data volumes, the root, and the one of /boot last.
# seconds: 110

load lib

teardown() {
	local name
	for name in c b; do # the cards of these are on other volumes
		[ ! -e "$T/$name.on" ] || {
			timeout 60 umount -q "$T/$name" || true
			cow detach --discard "$name" || true
			[ ! -e "/sys/class/block/${CARDS[$name]#/dev/}/partition" ] || delpart "${CARDS[$name]%p1}" 1 || true
			loop_end "${CARDS[$name]%p1}" || true
		}
	done
	umount -q /boot || true # of the namespace of this file
	cow_teardown
}

where() { [ "$1" = boot ] && echo /boot || echo "$T/$1"; }

# up NAME...: attaches and mounts these volumes, whose cards exist: CARDS, DEVS by name. Each obeys its own file for eioshim.c.
up() {
	local name
	for name; do
		CARD=${CARDS[$name]}
		COWFS_EIO_FILE=$T/eio.$name LD_PRELOAD=$COWFS_BUILD/tests/eioshim.so ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS-}" \
			attach --name "$name"
		DEVS[$name]=$DEV
		mkdir -p "$(where "$name")"
		mount "$DEV" "$(where "$name")"
	done
	NAME=''
}

volumes() {
	local name
	declare -gA CARDS=() DEVS=()
	for name; do
		IMG=$T/$name.img
		card_prepared ext4 64 110 -J size=4
		CARDS[$name]=$CARD
	done
	up "$@"
}

# slow NAME MS: of each write to its card
slow() {
	eio_order "$T/eio.$1" "slow $2"
}

fails_to_write() { eio_order "$T/eio.$1" "write 0 1000"; }
works() { eio_order "$T/eio.$1"; }

# new N: something to commit on each volume
new() {
	local name
	for name in "${!CARDS[@]}"; do
		echo "$1" >"$(where "$name")/n"
		sync -f "$(where "$name")"
	done
}

n_of() { cat "$(where "$1")/n"; }

# All daemons die at once, and with them what RAM had.
cut_all() {
	local name pids=()
	for name in "${!CARDS[@]}"; do
		pids+=("$(NAME=$name worker_pid)")
	done
	kill -9 "${pids[@]}"
	wait_for 20 no_daemons
	for name in "${!CARDS[@]}"; do
		timeout 300 umount "$(where "$name")" || return
		volume_gone "${DEVS[$name]}" || losetup -d "${DEVS[$name]}" || volume_gone "${DEVS[$name]}"
		wait_for 20 volume_gone "${DEVS[$name]}"
		works "$name"
	done
}

down() {
	local name
	for name in "${!CARDS[@]}"; do
		wait_for 5 timeout 300 umount "$(where "$name")"
		cow detach "$name"
		fsck ext4 "${CARDS[$name]}"
	done
}

@test "commit --all: text, JSON, a dry run, and one that fails" {
	volumes a b
	new x
	run -0 cow commit --all
	[[ $output == "a: committed "*$'\n'"b: committed "* ]]
	new y
	run -0 --separate-stderr cow commit --all --json
	jq -e '.ok and .schema == 1 and [.volumes[].name] == ["a", "b"] and
		all(.volumes[]; .ok and (.withheld | not) and .generation > 0 and .report.written_bytes > 0)' <<<"$output"
	run -0 cow commit --all
	[[ $output == *"a: nothing to commit"* ]]
	new z
	run -0 cow commit --all --dry-run
	[[ $output == *"a: a commit now would write"*"life:"*"b: a commit now would write"* ]]
	run -0 --separate-stderr cow commit --all --dry-run --json
	jq -se 'length == 1 and .[0].ok and [.[0].volumes[].name] == ["a", "b"] and all(.[0].volumes[]; .ok and .report.dirty_blocks > 0 and .life_share)' <<<"$output"
	fails 2 'mutually exclusive' commit --all --deadline 5s
	fails 2 'takes no volume' commit --all a
	# the card of one of them fails: the other one is committed, and RAM has everything of this one
	fails_to_write a
	run -1 --separate-stderr cow commit --all
	[[ $output == "b: committed "* ]]
	[[ $stderr == "cowctl: a: the card reports an error"* ]]
	new zz
	run -1 --separate-stderr cow commit --all --json
	[ "$(jq -c '[.ok, .exit, (.volumes | map([.name, .ok, .code]))]' <<<"$output")" = '[false,1,[["a",false,"EIO"],["b",true,null]]]' ]
	cut_all
	up a b
	[ "$(n_of a)$(n_of b)" = yzz ]
	down
	fails 4 'no volume is attached' commit --all
}

@test "commit --all: /boot comes last, and not without the root" {
	volumes aboot boot root
	new 1
	run -0 --separate-stderr cow commit --all --json
	[ "$(jq -c '[.volumes[].name]' <<<"$output")" = '["aboot","root","boot"]' ]
	new 2
	fails_to_write root
	run -1 --separate-stderr cow commit --all
	[[ $output == "aboot: committed "* && $output != *boot:*boot:* ]]
	[[ $stderr == "cowctl: root: the card reports an error"*$'\n'"cowctl: boot: not committed: the next start does not have the root as it is now"*"cowctl commit boot" ]]
	run -1 --separate-stderr cow commit --all --json
	[ "$(jq -c '.volumes | map([.name, .ok, .exit])' <<<"$output")" = '[["aboot",true,null],["root",false,1],["boot",false,1]]' ]
	cut_all
	up aboot boot root
	[ "$(n_of aboot) $(n_of root) $(n_of boot)" = "2 1 1" ]
	# a /boot that fails holds up nothing
	new 3
	fails_to_write boot
	run -1 --separate-stderr cow commit --all
	[[ $output == "aboot: committed "*$'\n'"root: committed "* ]]
	works boot
	# by its name
	new 4
	fails_to_write root
	cow commit boot
	works root
	[ "$(NAME=root status_of .generation) $(NAME=boot status_of .generation)" = "2 2" ]
	down
}

@test "commit --timer of /boot: first the root" {
	local generation
	COWFS_SYNC_HANGS=$T/hang volumes boot root
	new 1
	run -0 cow commit boot --timer
	[[ $output == "root: committed "*"boot: committed "* ]]
	# without changes there it costs the root nothing
	generation=$(NAME=root status_of .generation)
	echo 2 >"$T/root/n"
	sync -f "$T/root"
	run -0 cow commit boot --timer
	[[ $output == "boot: "*"nothing has changed"* ]]
	[ "$(NAME=root status_of .generation)" = "$generation" ]
	# half an upgrade
	generation=$(NAME=boot status_of .generation)
	new 3
	cow inhibit root --for 1m
	run -1 --separate-stderr cow commit boot --timer
	[[ $stderr == "cowctl: "*"timer commits are inhibited"*"cowctl: not committed: the next start does not have the root"* ]]
	[ "$(NAME=boot status_of .generation)" = "$generation" ]
	cow uninhibit root
	# nor if the changes of the root are to be discarded, or the next boot goes back
	cow discard root
	run -1 --separate-stderr cow commit boot --timer
	[[ $output == *"the changes are to be discarded"* && $stderr == *"not committed: the next start does not have the root"* ]]
	[ "$(NAME=boot status_of .generation)" = "$generation" ]
	cow discard --cancel root
	cow commit root --hold
	cow undo root
	run -1 --separate-stderr cow commit boot --timer
	[[ $output == "root: "* && $stderr == *"the next start does not have the root"* ]]
	run -1 cow shutdown
	[[ $output == *"root: not committed: the next start goes back"*"boot: not committed: the next start does not have the root"* ]]
	[ "$(NAME=boot status_of .generation)" = "$generation" ]
	cow undo root --cancel
	cow accept root
	run -0 cow commit boot --timer
	[[ $output == "root: "*"boot: committed "* ]]
	# nor with a root that could not be synced
	new 4
	touch "$T/hang"
	run -1 --separate-stderr cow commit --all
	rm "$T/hang"
	[[ $output == "root: committed "* && $stderr == "cowctl: boot: not committed: "* ]]
	down
}

@test "commit --all: /boot is known by any of its mounts, and without an answer of a daemon" {
	volumes boot root
	umount /boot
	mkdir "$T/first"
	mount "${DEVS[boot]}" "$T/first"
	mount "${DEVS[boot]}" /boot
	new 1
	fails_to_write root
	run -1 --separate-stderr cow commit --all
	[[ $output$stderr == *"root: "*"boot: not committed: the next start does not have the root"* ]]
	works root
	umount "$T/first"
	cow commit --all
	new 2
	export COWFS_SILENCE=5s
	kill -STOP "$(NAME=boot worker_pid)"
	run --separate-stderr cow commit --all --json
	kill -CONT "$(NAME=boot worker_pid)"
	[ "$(jq -c '.volumes | map([.name, .ok])' <<<"$output")" = '[["root",true],["boot",false]]' ]
	new 3
	kill -STOP "$(NAME=root worker_pid)"
	run --separate-stderr cow commit boot --timer
	kill -CONT "$(NAME=root worker_pid)"
	unset COWFS_SILENCE
	[ "$status" = 1 ]
	[[ $stderr == *"root does not answer"*"not committed: the next start does not have the root"* ]]
	down
}

# A root that takes long: what an upgrade writes meanwhile is in neither, or in both.
@test "commit --all: /boot does not get what came after the root was sealed" {
	local how
	volumes boot root
	for how in "cow commit --all" "cow commit boot --timer" "without_devices $COWFS_BUILD/cowctl commit boot --timer"; do
		new 1
		cow commit --all
		new 2
		random_file "$T/root/f" 4
		slow root 60000
		# shellcheck disable=SC2086 # several words
		$how >"$T/out" 2>&1 3>&- &
		BG=$!
		wait_for 20 eval '[ "$(blockdev --getro "${CARDS[root]}")" = 0 ]' # sealed, its first write hangs
		echo 3 | tee "$T/root/n" >/boot/n
		works root
		wait "$BG"
		cat "$T/out"
		cut_all
		up boot root
		[ "$(n_of root)$(n_of boot)" = 33 ]
	done
	# somebody who writes to both all the time: each commit of the root takes a while
	new 4
	slow root 100
	while [ ! -e "$T/stop" ]; do echo 5 | tee "$T/root/n" >/boot/n; done 3>&- &
	BG=$!
	run -1 --separate-stderr cow commit --all
	touch "$T/stop"
	wait "$BG"
	works root
	[ "$(grep -c '^root: ' <<<"$output")" = 3 ]
	[[ $stderr == "cowctl: boot: not committed: the next start does not have the root"* ]]
	cow commit --all
	down
}

@test "turns: the power is cut between them: /boot is never newer than the root" {
	local i data root boot last next generation kinds=''
	newer() { [ "$(NAME=$last status_of .generation)" -gt "$generation" ]; }
	volumes data boot root
	new 0
	cow commit --all
	for i in 1 2 3 4 5 6; do
		new "$i"
		for name in data root boot; do
			slow "$name" 100
		done
		last=data next=root
		((i % 3)) || last=root next=boot
		slow $next 5000
		generation=$(NAME=$last status_of .generation)
		if ((i % 2)); then
			cow commit --all >"$T/out" 2>&1 3>&- &
		else
			cow shutdown >"$T/out" 2>&1 3>&- &
		fi
		BG=$!
		((i % 3 == 1)) || wait_for 60 newer
		sleep "0.$((RANDOM % 10))"
		cut_all
		wait "$BG" || true
		up data boot root
		data=$(n_of data) root=$(n_of root) boot=$(n_of boot)
		echo "cut $i: data $data, root $root, boot $boot"
		((data >= root && root >= boot && data - boot <= 1))
		kinds+="$((data - root))$((root - boot)) "
		new "$i"
		cow commit --all
	done
	say "$kinds"
	[[ $kinds == *10* && $kinds == *01* ]]
	down
}

@test "shutdown: several volumes, in turn" {
	local i generation
	volumes a boot root
	for i in a boot root; do
		random_file "$(where "$i")/f" 3
	done
	run -0 --separate-stderr cow shutdown --within 300s
	[[ $stderr == "cowfs: a: everything is on the card"*"cowfs: root: every"*"cowfs: boot: every"* ]]
	for i in a boot root; do
		[ "$(NAME=$i status_of .log_live_blocks)" = 0 ]
	done
	# not those that are to be discarded
	cow discard a
	new 1
	run -0 cow shutdown
	[[ $output == "cowfs: a: not committed: the changes are to be discarded"*"root: every"*"boot: every"* ]]
	cow discard --cancel a
	# one that fails does not keep the others
	new 2
	fails_to_write a
	run -1 cow shutdown
	[[ $output == "cowfs: a: NOT COMMITTED: "*"cowfs: root: everything is on the card"*"cowfs: boot: everything is on the card"* ]]
	# one that has failed comes last
	new 3
	run -1 cow shutdown
	[[ $output == "cowfs: root: everything is on the card"*"cowfs: boot: everything is on the card"*"cowfs: a: NOT COMMITTED: "* ]]
	works a
	cow commit --all
	# but the root keeps /boot
	generation=$(NAME=boot status_of .generation)
	new 4
	fails_to_write root
	run -1 --separate-stderr cow shutdown --json
	[[ $stderr == "cowfs: a: everything is on the card"*"cowfs: root: NOT COMMITTED: "*"cowfs: boot: not committed: the next start does not have the root"* ]]
	[ "$(jq -sc 'map(.ok)' <<<"$output")" = '[true,false,false]' ]
	# and once more, when it is known to fail
	run -1 cow shutdown
	[[ $output == "cowfs: a: everything"*"cowfs: root: NOT COMMITTED: "*"cowfs: boot: not committed: the next start does not have the root"* ]]
	[ "$(NAME=boot status_of .generation)" = "$generation" ]
	works root
	run -0 cow shutdown
	[[ $output == *"cowfs: root: everything is on the card"*"cowfs: boot: everything is on the card"* ]]
	# what is left to the end of the shutdown is that of /boot as well
	new 5
	run -0 cow shutdown --if-longer 24h
	[[ $output == *"root: little to commit"*"boot: little to commit"* ]]
	down
}

@test "shutdown: a card that hangs does not hold up the other volumes" {
	volumes a b root
	new 1
	cow commit --all
	new 2
	slow a 20000
	run cow shutdown --within 36s
	echo "$output"
	[[ $output == *"cowfs: a: takes long, so the other volumes come first"*"cowfs: b: everything"*"cowfs: root: everything"*"out of time"* ]]
	works a
	cow commit --all
	down
}

# lies_on NAME OUTER MIB [START LENGTH]: the card of a volume is an image file on the other one, or a partition in that
lies_on() {
	local image
	image=$(where "$2")/image
	truncate -s "$3M" "$image"
	CARDS[$1]=$(losetup -f --show "$image")
	[ $# = 3 ] || {
		addpart "${CARDS[$1]}" 1 "$4" "$5"
		CARDS[$1]+=p1
	}
	touch "$T/$1.on"
	mke2fs -q -F -t ext4 -E nodiscard,lazy_itable_init=0 -J size=4 "${CARDS[$1]}" 40M
	cow prepare "${CARDS[$1]}"
	up "$1"
}

@test "turns: a volume whose card is a file on another one comes before that" {
	local name
	IMG=$T/a.img
	card_prepared ext4 300 400 -J size=4
	declare -gA CARDS=([a]=$CARD) DEVS=()
	up a
	lies_on b a 200 2048 $((190 * 2048))
	lies_on c b 90
	new 1
	run -0 --separate-stderr cow commit --all --json
	[ "$(jq -c '[.volumes[].name]' <<<"$output")" = '["c","b","a"]' ]
	new 2
	run -0 cow shutdown --within 300s
	[[ $output == "cowfs: c: everything is on the card"*"cowfs: b: every"*"cowfs: a: every"* ]]
	# one that fails does not keep them; they are committed behind it once more
	fails_to_write c
	new 3
	run -1 cow shutdown
	new 4
	run -1 cow shutdown
	[[ $output == "cowfs: b: every"*"cowfs: a: every"*"cowfs: c: NOT COMMITTED: "*"cowfs: b: every"*"cowfs: a: every"* ]]
	works c
	new 5
	run -0 cow shutdown
	for name in c b; do
		wait_for 30 timeout 300 umount "$T/$name"
		cow detach "$name"
		fsck ext4 "${CARDS[$name]}"
		[ $name = c ] || delpart "${CARDS[b]%p1}" 1
		loop_end "${CARDS[$name]%p1}"
		rm "$T/$name.on"
	done
	unset 'CARDS[b]' 'CARDS[c]'
	down
}
