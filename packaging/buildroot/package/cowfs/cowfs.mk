################################################################################
#
# cowfs
#
################################################################################

COWFS_VERSION = 0.2.0
# the clone that this external tree is a part of
COWFS_SITE = $(BR2_EXTERNAL_COWFS_PATH)/../..
COWFS_SITE_METHOD = local
COWFS_OVERRIDE_SRCDIR_RSYNC_EXCLUSIONS = --exclude /build --exclude "/build-*"
COWFS_LICENSE = MIT
COWFS_LICENSE_FILES = LICENSE
COWFS_DEPENDENCIES = \
	host-pkgconf e2fsprogs inih json-c libaio libfuse3 libseccomp util-linux zstd

COWFS_PARTS = \
	$(if $(BR2_PACKAGE_COWFS_ROOT),busybox) \
	$(if $(BR2_INIT_SYSTEMD),systemd) \
	$(if $(BR2_INIT_OPENRC),openrc)

# Buildroot strips
COWFS_MAKE_OPTS = \
	$(TARGET_CONFIGURE_OPTS) \
	PKG_CONFIG="$(PKG_CONFIG_HOST_BINARY)" \
	STRIP= \
	PARTS="$(strip $(COWFS_PARTS))"

define COWFS_BUILD_CMDS
	$(TARGET_MAKE_ENV) $(MAKE) $(COWFS_MAKE_OPTS) -C $(@D) programs
endef

define COWFS_INSTALL_TARGET_CMDS
	$(TARGET_MAKE_ENV) $(MAKE) $(COWFS_MAKE_OPTS) -C $(@D) \
		DESTDIR=$(TARGET_DIR) install
endef

define COWFS_LINUX_CONFIG_FIXUPS
	$(call KCONFIG_ENABLE_OPT,CONFIG_FUSE_FS)
	$(call KCONFIG_ENABLE_OPT,CONFIG_BLK_DEV_LOOP)
	$(call KCONFIG_ENABLE_OPT,CONFIG_BLK_DEV_INITRD)
	$(call KCONFIG_ENABLE_OPT,CONFIG_SECCOMP)
	$(call KCONFIG_ENABLE_OPT,CONFIG_SECCOMP_FILTER)
endef

ifeq ($(BR2_PACKAGE_COWFS_ROOT),y)
# what /init, rcS and rcK call
define COWFS_BUSYBOX_CONFIG_FIXUPS
	$(call KCONFIG_ENABLE_OPT,CONFIG_BLOCKDEV)
	$(call KCONFIG_ENABLE_OPT,CONFIG_CTTYHACK)
	$(call KCONFIG_ENABLE_OPT,CONFIG_FINDFS)
endef

# rcS remounts the root and mounts the fstab itself, when it knows that the
# root is protected
define COWFS_RCS_RCK
	$(INSTALL) -m 0755 $(TARGET_DIR)/usr/share/cowfs/busybox/rcS \
		$(TARGET_DIR)/etc/init.d/rcS
	$(INSTALL) -m 0755 $(TARGET_DIR)/usr/share/cowfs/busybox/rcK \
		$(TARGET_DIR)/etc/init.d/rcK
	$(SED) '/^::sysinit:\/bin\/mount -o remount,rw \/$$/d' \
		-e '/^::sysinit:\/bin\/mount -a$$/d' $(TARGET_DIR)/etc/inittab
endef
COWFS_TARGET_FINALIZE_HOOKS += COWFS_RCS_RCK
endif

$(eval $(generic-package))
