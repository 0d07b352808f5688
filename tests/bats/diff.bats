#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cowctl diff: the files that differ between the last commit and now, on live volumes.
# turn: 3

load lib

# A mounted volume with a committed tree. [FS [MKFS_OPTION]...]
protect() {
	local fs=${1:-ext4}
	shift || true
	case $fs in
	ext*) card_make "$fs" 60 160 "$@" ;;
	*) card_make "$fs" 400 600 "$@" ;;
	esac
	cow prepare "$CARD" --log-size 64M
	attach
	mount_volume -o noatime
	mkdir -p "$MNT/a/b" "$MNT/c"
	echo 1 >"$MNT/a/one"
	echo 2 >"$MNT/a/b/two"
	echo 3 >"$MNT/c/three"
	echo 4 >"$MNT/c/four"
	ln -s target "$MNT/link"
	random_file "$MNT/large" 2
	cow commit >/dev/null
}

same_lines() { # EXPECTED
	local got
	got=$(diff_of vol)
	[ "$got" = "$1" ] || { printf 'got:\n%s\n' "$got"; return 1; }
}

change() {
	echo 1+ >>"$MNT/a/one"
	chmod 600 "$MNT/a/b/two"
	mv "$MNT/c/three" "$MNT/c/3"
	rm "$MNT/c/four"
	ln -sfn other "$MNT/link"
	echo new >"$MNT/new"
	mkdir "$MNT/d"
	dd if=/dev/urandom of="$MNT/large" bs=4096 seek=7 count=1 conv=notrunc status=none
}

CHANGED='A /d/
A /new
D /c/four
M ct /a/one
M ct /large
M ct /link
R /c/three -> /c/3
m p /a/b/two'

@test "diff: what changed since the last commit, over commits, checkpoints and fstrim (ext4)" {
	protect
	same_lines ''
	change
	same_lines "$CHANGED"
	fstrim "$MNT" || true
	same_lines "$CHANGED"
	[ "$(cow diff --json | jq -r '[(.files | length), .totals.added.files, .walked] | join(" ")')" = '8 2 false' ]
	[ "$(cow diff --json | jq -r '.files[] | select(.kind == "renamed") | .from + " " + .path')" = "$MNT/c/three $MNT/c/3" ]
	answer=$(cow diff --stat)
	grep -q '^A  *2 added' <<<"$answer"
	[ "$(cow diff --stat --json | jq 'has("files")')" = false ]
	cow commit >/dev/null
	same_lines ''
	rm "$MNT/large"
	fstrim "$MNT"
	same_lines 'D /large'
	cow commit --checkpoint >/dev/null
	same_lines ''
	touch -d 2020-02-02 "$MNT/new"
	same_lines 'm t /new'
	detach_whole ext4
}

inodes() { # FS
	protect "$1"
	change
	same_lines "$CHANGED"
	[ "$(cow diff --json | jq .walked)" = false ]
	cow commit >/dev/null
	same_lines ''
	detach
}

@test "diff: inodes of xfs that differ" { inodes xfs; }
@test "diff: the same, btrfs" { inodes btrfs; }

@test "diff: names that harm a terminal, a list or JSON" {
	protect
	echo x >"$MNT"/c/$'new\nline'
	echo x >"$MNT"/c/$'esc\033[31m'
	echo x >"$MNT"/c/$'byte\xff'
	cow diff >"$T/text"
	[ "$(wc -l <"$T/text")" = 3 ]
	run -1 grep -q $'\033' "$T/text"
	cow diff -z >"$T/names"
	tr '\0' '|' <"$T/names" >"$T/null"
	grep -q "|$MNT/c/byte"$'\xff|' "$T/null" || LC_ALL=C grep -qaF $'byte\xff|' "$T/null"
	grep -qF $'esc\033[31m|' "$T/null"
	answer=$(cow diff --json)
	jq -e '[.files[].path] | map(endswith("new\nline")) | any' <<<"$answer" >/dev/null
	[ "$(cow diff "$MNT"/c/$'new\nline' | wc -l)" = 1 ]
	detach
}

@test "diff: a path that no call takes does not hide other files (ext4, xfs)" {
	for fs in ext4 xfs; do
		protect "$fs"
		python3 -c '
import os, sys
os.chdir(sys.argv[1])
for i in range(17):
    os.mkdir("d" * 255)
    os.chdir("d" * 255)
' "$MNT"
		echo new >"$MNT/new"
		cow diff >"$T/text" 2>"$T/warnings"
		grep -q "/new$" "$T/text"
		grep -Eq "1 name left out: the path is longer" "$T/warnings"
		answer=$(cow diff --json)
		jq -e '.too_long == 1' <<<"$answer" >/dev/null
		detach
	done
}

@test "diff: operands" {
	local long
	protect
	change
	ln -s /etc "$MNT/out"
	ln -s a "$MNT/in"
	mkdir "$T/bind"
	mount --bind "$MNT/a" "$T/bind"
	mkdir "$MNT/sub"
	mount -t tmpfs none "$MNT/sub"
	long=$(printf 'x/%.0s' $(seq 2048))
	# names of the volume, and places on it
	[ "$(diff_of "$MNT/a")" = "$(printf 'M ct /a/one\nm p /a/b/two')" ]
	[ "$(diff_of vol "$MNT/a/b" "$MNT/link")" = "$(printf 'M ct /link\nm p /a/b/two')" ]
	[[ $(cow diff "$MNT/link" 2>&1 >/dev/null) == "cowctl: $MNT/link: is a symbolic link: the link itself is compared"* ]]
	[ -z "$(cow diff "$MNT/a" 2>&1 >/dev/null)" ]
	[ "$(diff_of "$MNT" "$MNT/c/four")" = 'D /c/four' ]
	[ "$(diff_of "$MNT/c/three")" = 'R /c/three -> /c/3' ]
	[ "$(diff_of "$T/bind/one")" = 'M ct /a/one' ]
	[ "$(diff_of "$T/bind")" = "$(printf 'M ct /a/one\nm p /a/b/two')" ]
	[ "$(diff_of "$MNT/in/one")" = 'M ct /a/one' ]
	[ "$(diff_of "$DEV" | wc -l)" = "$(diff_of | wc -l)" ]
	[ "$(cd "$MNT/a/b" && diff_of ../one ./two)" = "$(printf 'M ct /a/one\nm p /a/b/two')" ]
	# a folder that is gone
	rm -r "$MNT/c"
	[ "$(diff_of "$MNT/c/four")" = 'D /c/four' ]
	fails 1 'exists neither in generation [0-9]+ nor now' diff "$MNT/c/five"
	fails 1 'exists neither' diff vol "$MNT/nothing"
	fails 2 'does not lie on volume vol' diff vol /etc/passwd
	fails 2 'does not lie on volume vol' diff vol "$MNT/out/passwd"
	fails 2 'does not lie on volume vol' diff vol "$MNT/sub/x"
	fails 2 'does not lie on volume vol' diff vol "$MNT/sub"
	fails 2 'too long' diff vol "$MNT/$long"
	fails 2 'behind a folder' diff vol "$MNT/gone/../a"
	fails 4 'no volume is attached as' diff nothing-of-this-name
	fails 2 'excludes' diff -z --stat
	fails 1 nothing diff vol "$MNT/nothing"
	umount "$MNT/sub" "$T/bind"
	detach
}

# The same by a program that knows nothing of blocks: what rsync would transfer between two views.
by_rsync() {
	mkdir -p "$T/old" "$T/now"
	cow view vol "$T/old" >/dev/null
	cow view --now vol "$T/now" >/dev/null
	rsync -anXAi --checksum --modify-window=-1 --delete "$T/now/" "$T/old/" | LC_ALL=C sed -E \
		-e '/^\.d\.\.t\.+ /d' -e 's/^\*deleting +/D /' -e 's/^[<>ch]f\+{9} /A /' -e 's/^c[dLDS]\+{9} /A /' \
		-e 's/^[^AD ][^ ]{10} /M /' -e 's/ -> .*//' | LC_ALL=C sort
	umount "$T/old" "$T/now"
}

by_cowctl() {
	cow diff --json >"$T/json" || return
	jq -r '.files[] | (if .type == "directory" then "/" else "" end) as $s |
		if .kind == "renamed" then "D " + .from + $s, "A " + .path + $s
		elif .kind == "added" then "A " + .path + $s elif .kind == "deleted" then "D " + .path + $s
		else "M " + .path + $s end' "$T/json" | sed "s| $MNT/| |" |
		# a file in the place of one that was renamed
		awk '{ k = $0; sub(/^. /, "", k); how[k] = how[k] substr($0, 1, 1) }
			END { for (k in how) print (length(how[k]) > 1 ? "M" : how[k]) " " k }' | LC_ALL=C sort
}

as_rsync() {
	local round i f seed
	protect "$1"
	seed=$(seeds 1)
	echo "SEEDS=$seed"
	RANDOM=$seed
	for round in $(seq "${COWFS_DIFF_ROUNDS:-3}"); do
		for i in $(seq 60); do
			f=$MNT/c/f$((RANDOM % 40))
			case $((RANDOM % 8)) in
			0 | 1 | 2) head -c $((RANDOM * 3)) /dev/urandom >"$f" ;;
			3) rm -f "$f" ;;
			4) [ ! -e "$f" ] || mv "$f" "$MNT/a/g$RANDOM" ;;
			5) [ ! -e "$f" ] || chmod $((RANDOM % 8))44 "$f" ;;
			6) cp "$MNT/a/one" "$f" ;;
			7) [ ! -e "$f" ] || truncate -s $((RANDOM)) "$f" ;;
			esac
		done
		((RANDOM % 2)) || fstrim "$MNT"
		by_rsync >"$T/rsync"
		by_cowctl >"$T/cowctl"
		[ -s "$T/rsync" ]
		diff "$T/rsync" "$T/cowctl"
		cow commit >/dev/null
	done
	same_lines ''
	detach
}

@test "diff: the same as rsync finds, with commits and fstrim between random changes, ext4" { as_rsync ext4; }
@test "diff: the same as rsync, xfs" { as_rsync xfs; }
@test "diff: the same as rsync, btrfs" { as_rsync btrfs; }

# What a view of these folders shows has other names than the live tree, and fscrypt's flag cannot be copied.
@test "diff, commit PATH, revert: folders that fscrypt has encrypted are named" {
	local what
	protect ext4 -O encrypt
	mkdir -p "$MNT/home/secret"
	encrypt "$MNT" "$MNT/home/secret" || skip "this kernel has no fscrypt"
	echo one >"$MNT/home/file"
	echo one >"$MNT/home/secret/file"
	cow commit
	echo two | tee "$MNT/home/secret/file" >"$MNT/home/file"
	for what in "$MNT/home/secret" "$MNT/home/secret/file" "$MNT/home/secret/missing"; do
		fails 1 "$what: encrypted \(fscrypt\)" diff "$what"
		fails 1 "$what: encrypted \(fscrypt\)" commit "$what"
		fails 1 "$what: encrypted \(fscrypt\)" revert --yes "$what"
	done
	run -0 --separate-stderr cow diff
	[[ $stderr == *"home/secret is encrypted (fscrypt): names in it are shown without the key" ]]
	fails 1 'home/secret: .*\(encrypted, or another' commit "$MNT/home"
	fails 1 'home/secret: .*\(encrypted, or another' revert --yes "$MNT/home"
	# neither is changed
	[ "$(cat "$MNT/home/secret/file" "$MNT/home/file" | xargs)" = "two two" ]
	[ "$(status_of .generation)" = 2 ]
	detach
}
