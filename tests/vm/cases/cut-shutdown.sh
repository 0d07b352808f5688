# shellcheck shell=sh disable=SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# The power goes while the machine shuts down (long form: 50 times, short: 8), at any write of the commits and around them. The machine is
# saved once, before the shutdown, and goes on from there each time. Offline: generation N or N+1 in every file, e2fsck clean.
# Some of the cut cards are booted as well.
# guests: debian12 debian13 busybox busybox-squashfs busybox-arm64 debian12-arm64 debian13-arm64
# short:
KILLED=1
FILES=60

tree_write() { # generation
	n=0
	mkdir -p /srv/gen
	while [ $n -lt $FILES ]; do
		n=$((n + 1))
		{ echo "$1" && dd if=/dev/urandom bs=1k count=$((n * 3)) 2>/dev/null; } >/srv/gen/f$n
	done
	echo "$1" >"/srv/gen/only-$1"
}

step_1() {
	protected || fail "the root is $(root_device)"
	tree_write 1
	must cowctl commit root --checkpoint
	must cowctl inhibit root --for 60m
	rm /srv/gen/only-1
	tree_write 2
	sync
	mark ready
	sleep 4
	cut_moment
}

# overridden in cut-commit
cut_moment() { :; }

step_2() {
	protected || fail "the root is $(root_device)"
	g=$(head -1 /srv/gen/f1)
	n=0
	while [ $n -lt $FILES ]; do
		n=$((n + 1))
		is "generation of file $n" "$(head -1 /srv/gen/f$n)" "$g"
	done
	[ -e "/srv/gen/only-$g" ] || fail "generation $g without its file"
	[ ! -e "/srv/gen/only-$((3 - g))" ] || fail "generation $g with a file of the other one"
	say "generation $g"
}

host_during() {
	[ "$1" = 1 ] || return 0
	wait_mark ready && vm_save
}

# Which generation is it? By the files of a file system that nobody has mounted.
gen_of() { # file of the partition
	n=0
	: >"$WORK/gens"
	while [ $n -lt $FILES ]; do
		n=$((n + 1))
		debugfs -R "cat ${LOWER_FS:+/upper}/srv/gen/f$n" "$1" 2>/dev/null | head -1 | grep -a '^[12]$' >>"$WORK/gens" || :
	done
	[ "$(wc -l <"$WORK/gens")" = $FILES ] || fail "only $(wc -l <"$WORK/gens") of $FILES files are there"
	[ "$(sort -u "$WORK/gens" | wc -l)" = 1 ] || fail "a mixture: $(sort "$WORK/gens" | uniq -c | tr '\n' ' ')"
	head -1 "$WORK/gens"
}

# The cut card, offline.
judge_cut() {
	card_extract "$WORK/part"
	offline_check "$WORK/part"
	"$BUILD/cowctl" release "$WORK/part" >/dev/null || fail "cowctl release"
	[ "$ROOT_FS" = ext4 ] || return 0
	gen=$(gen_of "$WORK/part") || exit 1
	eval "seen_$gen=\$((seen_$gen + 1))"
}

host_after() {
	[ "$1" = 1 ] || return 0
	cuts=8 seen_1=0 seen_2=0
	[ -z "$LONG" ] || cuts=50
	vm_uncut
	judge_cut
	[ "$seen_2" = 1 ] || fail "the shutdown has not committed"
	say "$writes writes from the moment that was saved to the end"
	i=0
	while [ $i -lt $cuts ]; do
		i=$((i + 1))
		vm_load
		cut_at $((RANDOM % (writes + 2)))
		judge_cut
		[ -n "$LONG" ] && [ $((i % 10)) = 0 ] && boot 2
	done
	say "$cuts cuts: $seen_1 times N, $((seen_2 - 1)) times N+1"
}
