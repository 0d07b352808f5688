SUMMARY = "Copy-on-write layer in RAM over a flash card"
DESCRIPTION = "Keeps the flash card of a running system read-only. Commits are atomic."
SECTION = "base"
LICENSE = "MIT"
LIC_FILES_CHKSUM = "file://LICENSE;md5=0679f560b87e460f43084164c909d82e"

DEPENDS = "e2fsprogs fuse3 json-c libaio libinih libseccomp util-linux zstd"

SRC_URI = "git://${COWFS_CLONE};protocol=file;branch=${COWFS_BRANCH}"
SRCREV = "${AUTOREV}"
PV = "0.2.0+git"

inherit pkgconfig bash-completion

# what make install installs beside the programs: docs/PACKAGING.md. The initramfs of cowfs-image.bbclass is part busybox
COWFS_PARTS ?= "busybox ${@bb.utils.contains('DISTRO_FEATURES', 'systemd', 'systemd', '', d)}"

EXTRA_OEMAKE = "STRIP= PARTS='${COWFS_PARTS}' prefix=${prefix} sbindir=${sbindir} mandir=${mandir} docdir=${docdir}/cowfs"

do_compile() {
	oe_runmake programs
}

do_install() {
	oe_runmake install DESTDIR=${D}
}

FILES:${PN} += "${libdir}/cowfs ${datadir}/cowfs ${nonarch_libdir} ${exec_prefix}/lib"

# prepare = shrink
RRECOMMENDS:${PN} = "e2fsprogs-e2fsck e2fsprogs-resize2fs e2fsprogs-tune2fs util-linux-sfdisk"
RRECOMMENDS:${PN} += "kernel-module-fuse kernel-module-loop"
