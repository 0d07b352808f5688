# shellcheck shell=sh disable=SC2034,SC2154,SC3028
# SPDX-License-Identifier: MIT
# What lies above a data volume. LUKS or LVM inside it: no commit, the card is not written, and what was committed is there again;
# below it: a volume as any other. A swap file on it. Then quota of users and projects and an NFS server, whose client writes while commits are made and
# while the power goes (long form: 12 times, short: 3); handles stay valid, quota is kept, a shutdown ends.
# guests: debian13-initramfs-above
# short:
MEM=900 DATA_MIB=200 LIMIT=1800 STEP_LIMIT=1700
KILLED=2
# there is no network to wait for
APPEND="systemd.mask=systemd-networkd-wait-online.service systemd.mask=podman-restart.service systemd.mask=podman-auto-update.timer"

attach_card() { loop=$(cowctl attach --ram 200M --name data "$1") || fail "data: $1 is not attached"; }

# COMMAND fails and says TEXT
refused() {
	text=$1
	shift
	"$@" >/run/cowfs-test/out 2>&1 && fail "it works: $*"
	grep -q "$text" /run/cowfs-test/out || fail "$* says: $(cat /run/cowfs-test/out)"
}

data_written() { awk '{ print $7 }' "/sys/block/${DATA_CARD#/dev/}/stat"; }

luks_make() {
	echo secret | must cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "$1" -
	echo secret | must cryptsetup open --key-file - "$1" layer
	device=/dev/mapper/layer
}

luks_close() { must cryptsetup close layer; }

lvm_make() {
	must pvcreate -q -y -ff "$1"
	must vgcreate -q layer "$1"
	must lvcreate -q -y -n volume -l 100%FREE layer
	device=/dev/layer/volume
}

lvm_close() { must vgchange -q -an layer; }

# KIND WORDS: made in an attached volume
inside() {
	attach_card "$DATA_CARD"
	written=$(data_written)
	"$1_make" "$loop"
	must mkfs.ext4 -q "$device"
	must mount "$device" /mnt/data
	echo inside >/mnt/data/inside
	for cause in '' --timer --force --dry-run; do
		# shellcheck disable=SC2086 # nothing, or an option
		refused "$DATA_CARD: it holds $2" cowctl commit data $cause
	done
	cowctl status data | grep -q "it holds $2" || fail "status says: $(cowctl status data)"
	is "what RAM holds" "$(cat /mnt/data/inside)" inside
	must umount /mnt/data
	"$1_close"
	refused "$DATA_CARD: it holds $2" cowctl detach data
	is "sectors written" "$(data_written)" "$written"
	must cowctl detach --discard data
	attach_card "$DATA_CARD"
	must mount "$loop" /mnt/data
	is "what was committed" "$(cat /mnt/data/one)" one
	must umount /mnt/data
	must cowctl detach data
	say "$1 inside: refused"
}

# KIND WORDS: what the refusal advises
below() {
	must wipefs -q -a "$DATA_CARD"
	"$1_make" "$DATA_CARD"
	must mke2fs -q -t ext4 -J size=4 "$device" 140M
	must cowctl prepare "$device"
	attach_card "$device"
	must mount "$loop" /mnt/data
	echo above >/mnt/data/one
	must cowctl commit data
	echo more >/mnt/data/two
	must umount /mnt/data
	must cowctl detach data
	must e2fsck -fn "$device"
	is "what was committed" "$(debugfs -R 'cat /one' "$device" 2>/dev/null) $(debugfs -R 'cat /two' "$device" 2>/dev/null)" "above more"
	"$1_close"
	refused "holds $2" cowctl prepare "$DATA_CARD"
	say "$1 below: works"
}

swap_file() {
	must dd if=/dev/zero of=/mnt/data/swap bs=1M count=8
	chmod 600 /mnt/data/swap
	must mkswap /mnt/data/swap
	must swapon /mnt/data/swap
	must cowctl commit data
	refused busy umount /mnt/data
	must swapoff /mnt/data/swap
	rm /mnt/data/swap
}

data_with_quota() {
	must mke2fs -q -t ext4 -J size=4 -O quota,project -E quotatype=usrquota:prjquota,lazy_itable_init=0 "$DATA_CARD" 160M
	must cowctl prepare --force "$DATA_CARD"
	echo "/dev/disk/by-id/virtio-data /mnt/data cowfs name=data,ram=200M,noatime,usrquota,prjquota,nofail 0 0" >>/etc/fstab
}

step_1() {
	protected || fail "the root is $(root_device)"
	DATA_CARD=$(data_card)
	mkdir -p /mnt/data /mnt/nfs
	attach_card "$DATA_CARD"
	must mount "$loop" /mnt/data
	echo one >/mnt/data/one
	must cowctl commit data
	swap_file
	must umount /mnt/data
	must cowctl detach data
	inside luks "a LUKS device"
	inside lvm "an LVM physical volume"
	below luks "a LUKS device"
	below lvm "an LVM physical volume"
	must wipefs -q -a "$DATA_CARD"
	data_with_quota
	echo "/mnt/data 127.0.0.1(rw,no_root_squash,no_subtree_check)" >/etc/exports
	mkdir -p /etc/nfs.conf.d
	printf '[nfsd]\ngrace-time=5\nlease-time=5\n' >/etc/nfs.conf.d/test.conf
}

as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

# -u or -P, and a name
quota_kib() { repquota "$1" -O csv /mnt/data | awk -F, -v name="$2" '$1 == name { print $4 }'; }

# A second file of nobody is more than what the user may have, or the project
quota_kept() {
	for place in /mnt/nfs/free /mnt/data/project; do
		as_nobody dd if=/dev/zero of=$place/b bs=64k count=32 conv=fsync 2>/dev/null && fail "more than the quota: $place"
	done
	say "quota: nobody has $(quota_kib -u nobody) KiB of 3000, the project $(quota_kib -P '#7') of 1000"
	[ $(($(quota_kib -u nobody) > 3000 || $(quota_kib -P '#7') > 1000)) = 0 ] || fail "more than the quota"
}

# OPTIONS of the client
export_on() {
	must systemctl restart nfs-server
	must mount -t nfs -o "vers=4.2,$1" 127.0.0.1:/mnt/data /mnt/nfs
}

writer() {
	exec 8>/mnt/nfs/held
	n=0
	while [ ! -e /run/cowfs-test/stop ]; do
		n=$((n + 1))
		echo $n >&8 || break
		echo $n >/mnt/nfs/n.new || break
		mv /mnt/nfs/n.new /mnt/nfs/n || break
		dd if=/dev/zero of=/mnt/nfs/bulk bs=64k count=4 conv=fsync 2>/dev/null || break
	done
	[ -e /run/cowfs-test/stop ] || : >/run/cowfs-test/bad
}

commit_timed() {
	low=$(cat /mnt/data/n 2>/dev/null || echo 0)
	since=$(date +%s)
	must cowctl commit data
	took=$(($(date +%s) - since))
	[ $took -lt 60 ] || fail "a commit took $took s"
	[ ! -e /run/cowfs-test/bad ] || fail "the client gets errors: $(dmesg | tail -n 5)"
	value committed "$low"
}

step_2() {
	mounted /mnt/data
	mkdir /mnt/data/free /mnt/data/project
	chmod 777 /mnt/data/free /mnt/data/project
	must chattr -p 7 +P /mnt/data/project
	must setquota -u nobody 0 3000 0 0 /mnt/data
	must setquota -P 7 0 1000 0 0 /mnt/data
	export_on hard
	for place in /mnt/nfs/free /mnt/data/project; do
		as_nobody dd if=/dev/zero of=$place/a bs=64k count=8 conv=fsync 2>/dev/null || fail "nobody cannot write to $place"
	done
	writer 2>>/run/cowfs-test/writer &
	wait_for 60 [ -s /mnt/data/n ] || fail "the client does not write: $(cat /run/cowfs-test/writer)"
	for round in 1 2 3; do
		commit_timed
	done
	quota_kept
	mark ready
	sleep 4
	while :; do
		commit_timed
	done
}

host_during() {
	[ "$1" = 2 ] || return 0
	wait_mark ready && vm_save
}

judge_cut() {
	verdict_read
	! grep -q ^fail "$VERDICT" || fail "cut $i: $(sed -n 's/^fail //p' "$VERDICT")"
	offline_check "$DATA"
	cp --sparse=always "$DATA" "$WORK/data"
	"$BUILD/cowctl" release "$WORK/data" >/dev/null || fail "cowctl release"
	n=$(debugfs -R 'cat /n' "$WORK/data" 2>/dev/null)
	say "cut $i: $n; committed was $(value committed)"
	[ "${n:-0}" -ge "$(value committed)" ] || fail "older than what was committed"
}

# The kernel's clock at a line of boot 3
console_time() { sed -n "s/.*\[ *\([0-9]*\)\.[0-9]*\] $1.*/\1/p" "$WORK/console-3" | tail -n 1; }

host_after() {
	case $1 in
	2)
		cuts=3
		[ -z "$LONG" ] || cuts=12
		i=0
		while [ $i -lt $cuts ]; do
			i=$((i + 1))
			vm_load
			sleep $((4 + RANDOM % 20)).$((RANDOM % 10))
			vm_kill
			wait_gone
			judge_cut
		done
		;;
	3)
		seconds=$(($(console_time 'reboot: Power down') - $(console_time 'test: ok')))
		say "the shutdown took $seconds s"
		[ $seconds -lt 120 ] || fail "the shutdown took $seconds s"
		offline_check "$DATA"
		[ "$(debugfs -R 'cat /last' "$DATA" 2>/dev/null)" = last ] || fail "the shutdown has not committed"
		;;
	esac
}

step_3() {
	mounted /mnt/data
	# the client is on the machine of its server, and would wait for it after the server was stopped
	export_on soft,timeo=20,retrans=1
	[ "$(cat /mnt/nfs/n)" -gt 0 ] || fail "the client sees $(ls /mnt/nfs)"
	is "quota of nobody in use" "$(quota_kib -u nobody)" "$(du -ck /mnt/data/free/* /mnt/data/project/* | tail -n 1 | cut -f1)"
	is "quota of the project in use" "$(quota_kib -P '#7')" "$(du -sk /mnt/data/project | cut -f1)"
	quota_kept
	writer &
	sleep 5
	echo last >/mnt/nfs/last
}
