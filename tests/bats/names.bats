#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# shellcheck disable=SC1003,SC2016,SC2030,SC2031,SC2154 # each test is a subshell; run sets status and output
# Names that an ordinary user gives to processes, files and folders, and text that a card or a status brings: they are
# data, in one line, and nothing that a terminal, a log, a shell or a reader of events would take for more.

load lib
export LC_ALL=C.UTF-8 # for printf

# $1 has nothing that does not show, besides the ends of its lines
clean() {
	LC_ALL=C.UTF-8 python3 -c '
import re, sys, unicodedata
text = sys.stdin.buffer.read().decode("utf-8")  # no stray bytes
bad = [c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Zl", "Zp") or
       c in "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"]
if bad: print(ascii(bad), ascii(text)[:500])
sys.exit(bool(bad))' <<<"$1"
}

# Calls itself $1 (15 bytes count) and does $2, a piece of Python, in the folder $MNT; says so by the file $T/ready.
impostor() {
	touch "$T/ready" # made here, changed there
	chmod 666 "$T/ready"
	background setpriv --reuid 65534 --regid 65534 --clear-groups -- /usr/bin/python3 -c '
import ctypes, os, sys, time
os.chdir(sys.argv[3])
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
open(sys.argv[4], "w").write("ready")
exec(sys.argv[2])
time.sleep(1000)' "$1" "$2" "$MNT" "$T/ready"
	wait_for 20 test -s "$T/ready"
}

protect() {
	volume_mounted ext4 100 150
	chmod 1777 "$MNT"
}

# a status as a daemon with the alarm $1 would keep it, and somebody who answers nothing where the daemon would
status_file() {
	mkdir -p "$COWFS_RUNDIR/vol"
	background python3 -c '
import os, socket, sys, time
os.chdir(sys.argv[1])
s = socket.socket(socket.AF_UNIX)
s.bind("control")
s.listen(50)
time.sleep(1000)' "$COWFS_RUNDIR/vol"
	wait_for 10 test -S "$COWFS_RUNDIR/vol/control"
	echo "$BG" >"$COWFS_RUNDIR/vol/pid"
	jq -n --arg a "$1" '{ok: true, name: "vol", device: "/dev/\u001b[2Jx", loop: "/dev/loop\u009b0", fs_type: "ext4",
		mountpoint: "/m\nvol degraded forged", card_identity: "\u202egpj", alarm: $a, degraded: true,
		dirty_blocks: 1, generation: 7, pressure: {level: "full\nvol commit forged"},
		last: {ok: false, code: "EIO", remark: "x\r\u001b]0;forged\u0007"}}' >"$COWFS_RUNDIR/vol/status.json"
	chmod -R a+rX "$COWFS_RUNDIR"
}

@test "a process that calls itself an event keeps a file system busy" {
	protect
	impostor $'x\nvol alarm \e[2J' ''
	run -32 "$COWFS_BUILD/umount.cowfs" "$MNT"
	echo "$output"
	[[ $output == *"is used by x?vol alarm ?[2["* ]]
	# the other line is umount's
	[ "$(wc -l <<<"$output")" = 2 ]
	clean "$output"
	kill "$BG"
	detach
}

@test "a process that calls itself an event hinders a commit" {
	protect
	impostor $'x\nvol alarm' '
r, w = os.pipe()
out = os.open("spliced", os.O_RDWR | os.O_CREAT)
os.splice(r, out, 4096)'
	sleep 0.3
	echo data >"$MNT/file"
	run cow commit
	echo "$output"
	clean "$output"
	[[ $output != *$'\n'"vol alarm"* ]]
	run cow status
	clean "$output"
	run cow status --follow --once
	clean "$output"
	run ! grep -q '^vol alarm\[' <<<"$output"
	kill "$BG"
	detach
}

@test "events, banner, status: an alarm with lines of its own" {
	status_file $'x\nvol gone\n<0>panic\e[2J\u009b31m \u202eabc\u2028 \x7f'
	run -0 cow status --follow --once
	echo "$output"
	clean "$output"
	[ "$(wc -l <<<"$output")" = "$(grep -c '^vol \(pressure\|alarm\|degraded\) ' <<<"$output")" ]
	run -0 cow status --follow --once --json
	clean "$output"
	jq -e . <<<"$output"
	jq -se 'map(.detail) | any(startswith("x?vol gone") or startswith("x\nvol gone"))' <<<"$output"
	COWFS_CTL=$COWFS_BUILD/cowctl run -0 "$TOP/systemd/90-cowfs.motd"
	echo "$output"
	clean "$output"
	[[ $output == *"NEEDS ATTENTION: x?vol gone?<0>panic?[2J"* ]]
	[ "$(wc -l <<<"$output")" = 4 ]
	run as_nobody "$COWFS_BUILD/cowctl" status vol
	[[ $status == 3 ]]
	echo "$output"
	clean "$output"
	run ! grep -q '^vol' <<<"${output#volume}"
	run as_nobody "$COWFS_BUILD/cowctl" status vol --json
	clean "$output"
	# programs get what was there
	jq -e '.alarm | startswith("x\nvol gone\n<0>panic\u001b[2J\u009b31m \u202e")' <<<"$output"
	kill "$BG"
	rm -r "$COWFS_RUNDIR/vol"
}

@test "events: what a detail holds is no command of the script's shell" {
	printf '#!/bin/sh\nprintf "%%s\\\\n" "vol alarm \\$(touch %s/got) \\`touch %s/got\\` -n \\\\nx; * \\\\"\n' "$T" "$T" >"$T/cowctl"
	mkdir "$T/event.d"
	printf '#!/bin/sh\nprintf "%%s\\n" "$#" "$3" >%s/args\n' "$T" >"$T/event.d/a"
	chmod +x "$T/cowctl" "$T/event.d/a"
	COWFS_CTL=$T/cowctl COWFS_EVENT_D=$T/event.d run -1 "$TOP/systemd/events"
	echo "$output"
	[ "${lines[0]}" = "<3>vol: alarm \$(touch $T/got) \`touch $T/got\` -n \\nx; * \\" ]
	[ "$(cat "$T/args")" = $'3\n'"\$(touch $T/got) \`touch $T/got\` -n \\nx; * \\" ]
	[ ! -e "$T/got" ]
	# it never ends by itself: what ends it is a failure, after which the unit starts again
	COWFS_CTL=/bin/true run -1 "$TOP/systemd/events"
	[ "$output" = "<3>cowctl status --follow has ended" ]
}

@test "a mount point and files that a terminal would obey" {
	local odd name
	volume_attached ext4 100 150 -L $'a\e[31m\u009bb'
	odd=$T/$'m\e[2Jvol\nvol alarm \u202ex'
	mkdir "$odd"
	MNT=$odd
	mount_volume
	chmod 1777 "$MNT"
	name=$'f\nvol alarm\e]0;title\a\u009b2J\u2028\u202e\xff'
	as_nobody sh -c 'head -c 100000 /dev/zero | tr "\0" x >"$1/$2"' sh "$MNT" "$name"
	sync -f "$MNT"
	run cow status
	clean "$output"
	[[ $output == *'m?[2Jvol?vol alarm ???x'* ]]
	[ "$(status_of .mountpoint)" = "$odd" ]
	run -0 cow top -n 0
	clean "$output"
	[[ $output == *'f?vol alarm?]0;title???2J'* ]]
	run -0 cow top -n 0 --by directory
	clean "$output"
	run -0 cow top -n 0 --json
	clean "$output"
	jq -e '.rows | any(.path? | strings | contains("/f\nvol alarm\u001b]0;title\u0007\u009b2J\u2028\u202e"))' <<<"$output"
	for what in "wear" "wear --json" "wear --prometheus -" "status --brief" "commit --dry-run" "check $CARD" "prepare $CARD" \
		"release $CARD" "detach"; do
		run cow $what
		clean "$output" || { echo "cowctl $what"; return 1; }
	done
	cow wear --html - >"$T/page" 2>"$T/err"
	clean "$(cat "$T/page")"
	umount_volume
	mount "$DEV" "$odd"
	run -32 "$COWFS_BUILD/umount.cowfs" "$odd/nothing"
	clean "$output"
	umount "$odd"
	MNT=$T/mnt
	detach
}

@test "a report made of somebody's file" {
	card_prepared ext4 60 100
	answer=$(cow wear "$CARD" --json)
	jq '.card_identity = "</script><b>\u001b[2J\u202e" | .name = "\u0085x" | .device = "a\nb"' <<<"$answer" >"$T/wear"
	run -0 cow wear --html - --from "$T/wear"
	clean "$output"
	[[ $output != *'</script><b>'* ]]
}

@test "completion: names are not commands" {
	volume_attached ext4 60 100
	# a socket in a folder that no daemon made
	python3 - "$COWFS_RUNDIR" "$T" <<-'END'
		import os, socket, sys
		for name in ("$(touch got)", "`touch got`", "a b", "x\x1b[2J"):
		    os.mkdir(sys.argv[1] + "/" + name)
		    os.chdir(sys.argv[1] + "/" + name)
		    socket.socket(socket.AF_UNIX).bind("control")
	END
	cd "$T"
	mkdir cards
	mkdir $'cards/\e[2Jdir' 'cards/$(touch got)' cards/plain
	# shellcheck disable=SC1091
	source "$TOP/cowfs/cli/completion.bash"
	complete_it() {
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
		_cowctl "$COWFS_BUILD/cowctl" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" || true # compopt is for a shell that completes
	}
	complete_it cowctl status ''
	[ "${COMPREPLY[*]}" = vol ]
	complete_it cowctl attach cards/
	[ "$(printf '%s\n' "${COMPREPLY[@]}" | sort)" = $'cards/$(touch got)\ncards/plain' ]
	# a word of the line itself
	complete_it cowctl attach "-e/;1e touch got;s/" ''
	[ ! -e got ]
	[ ! -e "$COWFS_RUNDIR/got" ]
	rm -r "$COWFS_RUNDIR"/{\$*,\`*,a*,x*}
}

@test "initramfs: devices and options of the kernel command line are data" {
	local sh
	for sh in dash bash "busybox sh"; do
		cd "$T"
		touch subvol=x,y
		run -0 $sh -c '. "$1"
			cowfs_replace "a'\''b'\''" "'\''" "'\''\\'\'''\''"
			cowfs_replace "100%u%%" % %%
			cowfs_replace "" % %%
			cowfs_replace "\n*-n" % %%
			COWFS_OPTIONS=ro
			cowfs_keep_subvolume "rw,subvol=*,data=x,subvolid=5,subvol=@$(printf "\47;touch got;\47")"
			printf "%s\n" "$COWFS_OPTIONS"' sh "$TOP/initramfs/cowfs.sh"
		echo "$sh: $output"
		[ "$output" = "$(printf '%s\n' "a'\\''b'\\''" '100%%u%%%%' '' '\n*-n' "ro,subvol=*,subvolid=5,subvol=@';touch got;'")" ]
		# what local-premount leaves for its caller, who sources it
		sed -n '/^quoted()/,/^}/p' "$TOP/initramfs/initramfs-tools/local-premount" >"$T/quoted"
		$sh -c '. "$1"; . "$2"; printf "%s\n" "ROOTFLAGS=$(quoted "-o ro,subvol=@'\'';touch got;'\''\$(touch got)")" >"$3"; . "$3"
			[ "$ROOTFLAGS" = "-o ro,subvol=@'\'';touch got;'\''\$(touch got)" ]' \
			sh "$TOP/initramfs/cowfs.sh" "$T/quoted" "$T/param.conf"
		[ ! -e got ]
	done
}

@test "busybox: only a process of root is spared for its name" {
	local sh pid
	MNT=/
	impostor '@x' 'ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)'
	for sh in dash bash "busybox sh"; do
		for pid in $$ "$BG"; do
			run -0 $sh -c "$(sed -n '/^user_of()/,/^}/p' "$TOP/initramfs/busybox/system.sh"); user_of \$1" sh "$pid"
			echo "$sh $pid: $output"
			[ "$output" = "$([ "$pid" = $$ ] && echo 0 || echo 65534)" ]
		done
		# one that has ended
		run $sh -c "$(sed -n '/^user_of()/,/^}/p' "$TOP/initramfs/busybox/system.sh"); user_of 99999999"
		[ -z "$output" ]
	done
	MNT=$T/mnt
}

no_command_line() { [ "$(wc -c <"/proc/$1/cmdline")" = 0 ]; }

@test "busybox: no process passes for a kernel thread" {
	local sh pid
	MNT=/
	# without a command line, and with a name that would be the flags of one
	impostor ') S 2 0 0 0 -1' '
ctypes.CDLL(None).clearenv() # its array may be on the same page
f = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
begin, end = int(f[45]) // 4096 * 4096, int(f[46])
ctypes.CDLL(None).munmap(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin))'
	pid=$BG
	wait_for 20 no_command_line "$pid"
	sed -n '/^user_of()/,$p' "$TOP/initramfs/busybox/system.sh" >"$T/rcK"
	for sh in dash bash "busybox sh"; do
		run -0 $sh -c 'kill() { echo "kill $*"; }; . "$1"; signal_all TERM' sh "$T/rcK"
		grep -qx "kill -TERM $pid" <<<"$output"
		! grep -qxE 'kill -TERM (1|2)' <<<"$output" || return # 2: kthreadd
	done
	MNT=$T/mnt
}
