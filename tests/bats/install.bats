#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What is installed, the unit, and completion for bash.
# turn: 3

load lib

@test "make install and uninstall: DESTDIR and prefix" {
	local f
	local -a files=(usr/local/sbin/{cowfs,cowctl,mount.cowfs,umount.cowfs}
		usr/local/share/man/man8/{cowctl,cowfs,mount.cowfs,umount.cowfs}.8 usr/local/share/man/man5/cowfs.conf.5
		usr/local/bin/cowfs-cardsim usr/local/share/man/man1/cowfs-cardsim.1
		usr/local/share/doc/cowfs/{cowfs.conf.example,examples/cowfs.rules.yml,examples/cowfs-dashboard.json} usr/local/share/bash-completion/completions/cow{ctl,fs-cardsim}
		usr/local/lib/systemd/system/cowfs@.service usr/local/lib/cowfs/{cards.conf,cowfs.sh,cowfs-boot,set-readonly}
		usr/local/libexec/cowfs/{cowctl-{clone-disk,measure,wear-html,wear-outlook,wear-prometheus},wear/{outlook.jq,page.html,uPlot.js,uPlot.LICENSE,wear.schema.json}}
		etc/initramfs-tools/{hooks,scripts/local-premount,scripts/local-bottom}/cowfs
		usr/lib/dracut/modules.d/90cowfs/{module-setup.sh,cowfs-root.service,cowfs-root.conf,cowfs-root.sh,cowfs-pre-mount.sh,cowfs-compose.service}
		usr/lib/dracut/dracut.conf.d/50-cowfs.conf
		usr/local/lib/cowfs/fleet/{ship,rauc,swupdate} usr/share/mender/modules/v3/cowfs usr/lib/swupdate/conf.d/50-cowfs
		usr/local/share/cowfs/busybox/{init,rcS,rcK,mkinitramfs}
		usr/local/lib/cowfs/{setup,setup-checks,setup-image,in-tree,check-initramfs,dpkg-hook,grub-probe,identity,events,root-device,root-options,which-device,bin/grub-install}
		usr/local/lib/systemd/system/cowfs-{shutdown,options,identity,events,leave}.service
		usr/local/lib/systemd/system/cowfs-{commit,keep}@.{service,timer}
		usr/local/lib/systemd/system-generators/cowfs-generator usr/lib/systemd/system-{shutdown,sleep}/cowfs
		usr/local/lib/udev/rules.d/61-cowfs.rules
		etc/{update-motd.d/90-cowfs,dpkg/dpkg.cfg.d/cowfs,apt/apt.conf.d/80cowfs,default/grub.d/cowfs.cfg}
		etc/kernel/postinst.d/{x-cowfs,zzz-cowfs} etc/kernel/postrm.d/zzz-cowfs
		etc/initramfs/post-update.d/{cowfs,zzz-cowfs})
	# no more than what is built already
	run -0 make -C "$TOP" -o all -s install DESTDIR="$T/dest" prefix=/usr/local B="$COWFS_BUILD"
	for f in "${files[@]}"; do
		[ -s "$T/dest/$f" ] || { echo "missing: $f"; return 1; }
	done
	grep -q '^ExecStart=/usr/local/sbin/cowfs ' "$T/dest/usr/local/lib/systemd/system/cowfs@.service"
	run ! grep -rlE '/usr/(sbin/cow|lib/cowfs|share/cowfs)' "$T/dest/usr/local/"{lib,share/cowfs} "$T/dest/etc" "$T/dest/usr/"{lib,share}
	grep -q 'UNITDIR:-/usr/local/lib/systemd/system}' "$T/dest/usr/local/lib/systemd/system-generators/cowfs-generator"
	# beside the daemon, which they look for there
	[ "$(readlink "$T/dest/sbin/mount.cowfs")" = /usr/local/sbin/mount.cowfs ]
	[ "$(readlink "$T/dest/sbin/umount.cowfs")" = /usr/local/sbin/umount.cowfs ]
	run -0 make -C "$TOP" -s uninstall DESTDIR="$T/dest" prefix=/usr/local B="$COWFS_BUILD"
	# nor a folder
	[ -z "$(find "$T/dest" -mindepth 1)" ]
	run -0 make -C "$TOP" -o all -s install DESTDIR="$T/usr" B="$COWFS_BUILD"
	"$T/usr/usr/sbin/mount.cowfs" -V
	# the installed cowctl finds its tools
	"$T/usr/usr/sbin/cowctl" measure --help | grep -q '^usage: cowctl measure'
	"$T/usr/usr/sbin/cowctl" --help | grep -q '^Installed tools: clone-disk measure wear-html wear-outlook wear-prometheus$'
	"$T/usr/usr/libexec/cowfs/cowctl-wear-outlook" --here --cmd56 <<<'{"disk": {"kind": "sd", "device": "/dev/nosuch"}}' |
		jq -e '.health.unknown_because == "the card does not answer CMD56: No such file or directory"'
	"$TOP/tests/report/sample.py" | "$T/usr/usr/sbin/cowctl" wear --from - --html - | grep -q '<title>Wear of root'
	[ ! -e "$T/usr/sbin" ]
}

symbols() { readelf -SW "$1" | grep -qF .symtab; }

@test "make install: programs without symbols, with them by STRIP=" {
	local f
	run -0 make -C "$TOP" -o all -s install DESTDIR="$T/dest" B="$COWFS_BUILD"
	run -0 make -C "$TOP" -o all -s install DESTDIR="$T/whole" STRIP= B="$COWFS_BUILD"
	for f in sbin/{cowfs,cowctl,mount.cowfs,umount.cowfs} lib/cowfs/{cowfs-boot,set-readonly} libexec/cowfs/cowctl-measure; do
		run ! symbols "$T/dest/usr/$f"
		symbols "$T/whole/usr/$f"
	done
	# what was built keeps its own
	for f in cowfs cowctl mount.cowfs umount.cowfs cowfs-boot set-readonly libexec/cowctl-measure; do
		symbols "$COWFS_BUILD/$f"
	done
}

# glibc loads libgcc_s from the root for these, and the daemon of a root has none
@test "programs of an initramfs: nothing is loaded later" {
	local f
	for f in cowfs cowfs-boot set-readonly; do
		readelf --dyn-syms -W "$COWFS_BUILD/$f" >"$T/symbols"
		grep -q ' UND open' "$T/symbols"
		run ! grep -E 'UND (pthread_(cancel|exit)|backtrace|_Unwind|dlopen|iconv_open|fuse_(session_)?loop)' "$T/symbols"
	done
}

@test "the unit: systemd-analyze verify" {
	command -v systemd-analyze >/dev/null || skip "no systemd-analyze"
	sed "s|/usr/sbin/|$COWFS_BUILD/|" "$TOP/systemd/cowfs@.service" >"$T/cowfs@.service"
	run -0 systemd-analyze verify --man=no "$T/cowfs@.service"
	# one line at most, and that is meant
	[[ $output != *$'\n'* && ( -z $output || $output == *"Unit uses KillMode=none"* ) ]]
}

# completes the words; the last one is under the cursor
complete_words() {
	# shellcheck disable=SC1091
	source "$TOP/cowfs/cli/completion.bash"
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	_cowctl "$COWFS_BUILD/cowctl" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	printf '%s\n' "${COMPREPLY[@]}"
}

# $1 what must come out, sorted; then the words
completes() {
	local want=$1
	shift
	run -0 complete_words "$@"
	echo "$*: $output"
	[ "$(sort <<<"$output" | xargs)" = "$want" ]
}

# $1 must be among what comes out
offers() {
	local want=$1
	shift
	run -0 complete_words "$@"
	grep -qxF -- "$want" <<<"$output"
}

@test "completion: commands, options, values, volumes, devices" {
	offers status cowctl ''
	completes 'card check clone commit config' cowctl c
	completes 'prepare' cowctl pr
	completes '--erase-block' cowctl attach --er
	completes '--checkpoint' cowctl commit --check
	completes 'commit discard' cowctl attach --on-detach ''
	completes 'discard' cowctl attach --on-detach d
	completes 'discard' cowctl attach --on-detach = d
	completes 'commit fail' cowctl attach --pressure =
	completes 'none' cowctl attach --profile n
	PATH=$COWFS_BUILD:$PATH completes 'x-flashbench-readme x-kingston-sa04g-4g x-slow-4g' cowctl attach --profile x-
	completes 'directory file' cowctl top --by ''
	offers -n cowctl top -
	offers --once cowctl top --
	completes '' cowctl top -n ''
	completes '64M' cowctl attach /dev/null --ram 6
	completes 'detach diff disable discard' cowctl d
	completes '' cowctl attach /dev/nul
	completes '--html' cowctl wear --ht
	touch "$T/page.html"
	completes "$T/page.html" cowctl wear --html "$T/pa"
	completes '' cowctl status ''
	completes '' cowctl nonsense ''
	card_prepared ext4 60 100
	offers "$CARD" cowctl prepare "$CARD"
	offers "$CARD" cowctl attach ''
	attach
	mkdir "$COWFS_RUNDIR/dead" # of a daemon that left no socket
	completes 'vol' cowctl status ''
	completes 'vol' cowctl detach --discard v
	completes 'vol' cowctl clone v
	completes 'vol' cowctl export v
	completes 'vol' cowctl scrub v
	completes 'scrub setup status' cowctl s
	completes '' cowctl commit x
	detach
}
