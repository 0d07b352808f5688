FILESEXTRAPATHS:prepend := "${THISDIR}/files:"
SRC_URI:append = "${@bb.utils.contains('DISTRO_FEATURES', 'cowfs', ' file://cowfs.cfg', '', d)}"
