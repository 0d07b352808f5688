# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# SPDX-License-Identifier: MIT
# The second half of the case above with a Samba server instead of NFS: a client of the kernel writes while commits are made and while
# the power goes; quota is kept behind the share.
# guests: debian13-initramfs-samba
# short:
. "$CASES/above.sh"

APPEND="systemd.mask=systemd-networkd-wait-online.service systemd.mask=nmbd.service systemd.mask=samba-ad-dc.service"

step_1() {
	protected || fail "the root is $(root_device)"
	DATA_CARD=$(data_card)
	mkdir -p /mnt/data /mnt/nfs
	must wipefs -q -a "$DATA_CARD"
	data_with_quota
	cat >/etc/samba/smb.conf <<-END
		[global]
		map to guest = bad user
		disable netbios = yes
		interfaces = lo
		bind interfaces only = yes
		[data]
		path = /mnt/data
		read only = no
		guest ok = yes
		force user = root
		[free]
		path = /mnt/data/free
		read only = no
		guest ok = yes
		force user = nobody
		# threads that write for smbd are root, whom no quota stops
		aio write size = 0
	END
}

# OPTIONS are those of a client of NFS
export_on() {
	must systemctl restart smbd
	must mount -t cifs -o "guest,vers=3.1.1,${1%%,*}" //127.0.0.1/data /mnt/nfs
	must mount -t cifs -o "guest,vers=3.1.1,uid=nobody,${1%%,*}" //127.0.0.1/free /mnt/nfs/free
}
