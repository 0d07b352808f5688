# An image whose root is protected by cowfs: inherit it in the recipe of the image. Needs "cowfs" in DISTRO_FEATURES.
#
# The initramfs is deployed as ${IMAGE_LINK_NAME}.cowfs-initrd.img; the boot loader must load it. The first boot makes
# room for the log behind the file system of the root, which must be ext4.

inherit features_check
REQUIRED_DISTRO_FEATURES = "cowfs"

IMAGE_INSTALL:append = " cowfs e2fsprogs-e2fsck e2fsprogs-resize2fs e2fsprogs-tune2fs"
# KiB: the log, the reserve of the shrink, and space to work
IMAGE_ROOTFS_EXTRA_SPACE:append = " + 65536"

# Lines of [root] in cowfs.conf(5), if the image has no such file
COWFS_ROOT_CONF ?= "enabled = yes\nprepare = shrink\n"

cowfs_root() {
	install -d ${IMAGE_ROOTFS}${sysconfdir}/cowfs
	[ -e ${IMAGE_ROOTFS}${sysconfdir}/cowfs/cowfs.conf ] ||
		printf '# see cowfs.conf(5)\n[root]\n${COWFS_ROOT_CONF}' >${IMAGE_ROOTFS}${sysconfdir}/cowfs/cowfs.conf
	if [ "${VIRTUAL-RUNTIME_init_manager}" = busybox ]; then
		for script in rcS rcK; do
			install -m 755 ${IMAGE_ROOTFS}${datadir}/cowfs/busybox/$script ${IMAGE_ROOTFS}${sysconfdir}/init.d/
		done
	fi
}
ROOTFS_POSTPROCESS_COMMAND += "cowfs_root"

do_cowfs_initramfs() {
	${IMAGE_ROOTFS}${datadir}/cowfs/busybox/mkinitramfs -x -k none -r ${IMAGE_ROOTFS} \
		${IMGDEPLOYDIR}/${IMAGE_NAME}.cowfs-initrd.img
	ln -sf ${IMAGE_NAME}.cowfs-initrd.img ${IMGDEPLOYDIR}/${IMAGE_LINK_NAME}.cowfs-initrd.img
}
do_cowfs_initramfs[depends] += "cpio-native:do_populate_sysroot"
addtask cowfs_initramfs after do_rootfs before do_image_complete
