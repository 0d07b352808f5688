# what the initramfs of cowfs, rcS and rcK call
FILESEXTRAPATHS:prepend := "${THISDIR}/${BPN}:"
SRC_URI:append = "${@bb.utils.contains('DISTRO_FEATURES', 'cowfs', ' file://cowfs.cfg', '', d)}"
