# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# A root on trial beside an entry of systemd-boot that counts its own boots (NAME+TRIES.conf). The boot loader counts before the
# kernel, the initramfs after it: a good update, a new kernel that ends before the root is counted or cannot be loaded, a root that
# fails, and the power cut behind the end of the one trial and before that of the other.
# guests: debian12-sdboot
KILLED="3 4 6 7 9 10" LIMIT=900 STEP_LIMIT=600
efi=/boot/efi mark=/usr/share/trial-sdboot
PATH=$PATH:/usr/lib/systemd:/lib/systemd

# The entry that was booted, all entries, and the root
booted() { # ENTRY ENTRIES ROOT
	protected || fail "the root is $(root_device)"
	wait_for 60 mountpoint -q $efi || fail "no $efi"
	is "the entry" "$(sed 's/.* entry=\([a-z]*\).*/\1/; t; s/.*/debian/' /proc/cmdline)" "$1"
	is "the entries" "$(cd $efi/loader/entries && echo *)" "$2"
	is "the root" "$(cat $mark)" "$3"
}

# Entry $1 with a kernel that is newer than the others ($2), to be tried twice
new_entry() {
	mkdir $efi/"$1"
	cp $efi/debian/* $efi/"$1"
	sed "s/^version .*/version $2/; s|/debian/|/$1/|; s/^options .*/& entry=$1/" $efi/loader/entries/debian.conf \
		>$efi/loader/entries/"$1+2.conf"
	sync -f $efi
}

on_trial() {
	END=reboot
	echo "$1" >$mark
	must cowctl commit root --trial 2
}

counted() { dmesg | grep -q "is ON TRIAL, $1 more boot" || fail "the boot is not counted"; }
good() { systemctl -q is-active systemd-bless-boot; }
monotonic() { systemctl show -P "$2" "$1"; }

root_accepted() {
	wait_for 200 accepted || fail "nothing accepts the root: $(cowctl status root) $(systemctl status cowfs-accept)"
}

both_accepted() {
	root_accepted
	good || fail "the entry is not good: $(systemctl status systemd-bless-boot)"
	first=$(monotonic systemd-bless-boot ExecMainExitTimestampMonotonic)
	[ "$first" -le "$(monotonic cowfs-accept ExecMainStartTimestampMonotonic)" ] || fail "the root was accepted before the entry"
}

step_1() {
	echo zero >$mark
	booted debian debian.conf zero
	new_entry new 2
	# in both generations
	mkdir /lib/modules/9.9
	: >/lib/modules/9.9/modules.dep
	cowctl commit root --trial 2 >/run/cowfs-test/out 2>&1 && fail "a kernel whose modules the old root lacks"
	grep -q 'kernel 9.9 is new, and the boot loader does not read it from the volume' /run/cowfs-test/out ||
		fail "the reason is $(cat /run/cowfs-test/out)"
	must cowctl commit root
	on_trial one
}

step_2() {
	counted 1
	both_accepted
	booted new "debian.conf new.conf" one
	new_entry broken 3
	# what this init needs is not there
	mkdir -p /run/new
	printf '#!/bin/sh\n' >/run/new/init
	chmod 755 /run/new/init
	(cd /run/new && find . | cpio --quiet -o -H newc) >$efi/broken/initrd.img
	sync -f $efi
	on_trial two
}

# the other kernel, with the new root
step_5() {
	counted 1
	root_accepted
	booted new "broken+0-2.conf debian.conf new.conf" two
	rm -r $efi/broken $efi/loader/entries/broken*
	new_entry third 4
	printf '%s\n' '[Unit]' Before=boot-complete.target '[Service]' Type=oneshot ExecStart=/bin/false '[Install]' \
		RequiredBy=boot-complete.target >/etc/systemd/system/check.service
	must systemctl enable check.service
	on_trial three
}

step() { END=none; }

step_8() {
	booted new "debian.conf new.conf third+0-2.conf" two
	cowctl status root >/run/cowfs-test/out
	is "the status of cowctl status" $? 3
	grep -q 'THE TRIAL HAS FAILED' /run/cowfs-test/out || fail "the status does not tell"
	rm -r $efi/third $efi/loader/entries/third*
	new_entry fourth 5
	mkdir -p /etc/cowfs/accept.d
	printf '#!/bin/sh\nexec sleep 500\n' >/etc/cowfs/accept.d/wait
	chmod 755 /etc/cowfs/accept.d/wait
	on_trial four
}

# The power goes when the entry is good and the root is not accepted yet.
between() {
	booted fourth "debian.conf fourth.conf new.conf" four
	accepted && fail "the root is accepted"
	mark between
	END=none
	sleep 300
}
step_9() {
	counted 1
	wait_for 200 good || fail "the entry is not good: $(systemctl status systemd-bless-boot)"
	between
}
step_10() {
	counted 0
	between
}

step_11() {
	booted fourth "debian.conf fourth.conf new.conf" two
	cowctl status root >/run/cowfs-test/out
	is "the status of cowctl status" $? 3
	must cowctl commit root
}

# half a kernel
host_before() {
	[ "$1" = 4 ] || return 0
	head -c 3000000 "$DIR/vmlinuz" >"$WORK/half"
	mcopy -o -i "$(efi_part)" "$WORK/half" ::broken/vmlinuz
}

host_during() {
	case $1 in
	4) console_wait 'failed to start' && vm_kill ;;
	9 | 10) wait_mark between && vm_kill ;;
	esac
}

says() { grep -aq "$1" "$WORK/console-$N" || fail "the console of boot $N does not have '$1'"; }

efi_part() { echo "$CARD@@$(($(part_field start 3) * 512))"; }
entries() { mdir -b -i "$(efi_part)" ::loader/entries | sed 's|.*/||' | tr -d '\r' | sort | xargs; }

host_after() {
	case $1 in
	3 | 4)
		[ "$1" = 4 ] || says 'Kernel panic'
		[ "$(entries)" = "broken+$((4 - $1))-$(($1 - 2)).conf debian.conf new.conf" ] || fail "the entries are $(entries)"
		card_extract "$WORK/root.img"
		left=$("$BUILD/cowctl" generations "$WORK/root.img" --json | jq .boots_left)
		rm "$WORK/root.img"
		[ "$left" = 2 ] || fail "the root has $left boots left"
		;;
	6 | 7)
		says "is ON TRIAL, $((7 - $1)) more boot"
		says 'ON TRIAL, and this boot is not accepted: restart in 30 s'
		[ "$(entries)" = "debian.conf new.conf third+$((7 - $1))-$(($1 - 5)).conf" ] || fail "the entries are $(entries)"
		;;
	8 | 11) says 'THE TRIAL HAS FAILED' ;;
	esac
}
