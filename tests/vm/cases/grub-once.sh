# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
# An entry for one boot, as grub-reboot chooses it, in a grubenv on the protected root: GRUB takes it, and clears it on the card
# before cowfs is there. The next boot is the default again, also after a power cut, and after commits.
# guests: busybox debian12 debian13
LOADER=1 KILLED='1 2 3' MEM=1024
env=/srv/grubenv boot_at=4194304

# $1: the entry. What is left is filled up, as grub-editenv does.
environment() {
	{ printf '# GRUB Environment Block\nnext_entry=%s\n' "$1" && head -c 1024 /dev/zero | tr '\0' '#'; } | head -c 1024
}

# committed and checkpointed, as with `checkpoint = always`, and then the power goes
committed() {
	must cowctl commit root --checkpoint
	mark committed
	sleep 600
}

booted() {
	protected || fail "the root is $(root_device)"
	is "the entry" "$(sed 's/.* entry=\([a-z]*\).*/\1/' /proc/cmdline)" "$1"
	is "what is left of it" "$(sed -n 's/^next_entry=//p' $env)" ''
}

step_1() {
	protected || fail "the root is $(root_device)"
	mkdir -p /srv
	environment once >$env
	committed
}

# to the same block
step_2() {
	booted once
	environment once | dd of=$env conv=notrunc 2>/dev/null
	committed
}

step_3() {
	booted once
	echo more >/srv/more
	committed
}

step_4() {
	booted normal
	rm $env && environment once >$env
}

step_5() {
	booted once
	echo more >/srv/even-more
}

step_6() {
	booted normal
}

host_before() {
	[ "$1" = 1 ] || return 0
	debugfs -R "cat /grub/grub.cfg" "$CARD?offset=$boot_at" >"$WORK/old.cfg" 2>/dev/null
	cat - "$WORK/old.cfg" >"$WORK/grub.cfg" <<-END
		load_env -f (hd0,msdos2)$env
		set entry=normal
		if [ "\$next_entry" ]; then
			set entry=\$next_entry
			set next_entry=
			save_env -f (hd0,msdos2)$env next_entry
		fi
	END
	# shellcheck disable=SC2016 # a variable of GRUB
	sed -i 's|linux /vmlinuz.*|& entry=$entry|' "$WORK/grub.cfg"
	printf 'rm /grub/grub.cfg\nwrite %s /grub/grub.cfg\n' "$WORK/grub.cfg" |
		debugfs -w -f - "$CARD?offset=$boot_at" >"$WORK/debugfs.out" 2>&1
}

host_during() {
	[ "$1" -gt 3 ] || { wait_mark committed && vm_kill; }
}
