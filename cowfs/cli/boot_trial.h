/* SPDX-License-Identifier: MIT */
/*
 * An initramfs on trial: `trial = BOOTS` of the configuration gives it a name when it is made. Until a
 * boot of it was accepted, the root may be used without cowfs if it does not come up.
 */
#ifndef COWFS_CLI_BOOT_TRIAL_H
#define COWFS_CLI_BOOT_TRIAL_H

#include "base/util.h"

#define TRIAL_NAME_BYTES 64

/* The name of this initramfs: the file `trial` beside the configuration. False: it is not on trial. */
bool trial_name(char buf[TRIAL_NAME_BYTES]);
uint32_t trial_crc(const char *name);
/*
 * Was a boot of it accepted, as far as the device can say? The log knows, and if that cannot be read,
 * /etc/cowfs/proven in the file system, which systemd/proven wrote. cmdline: of the kernel, for rootflags=.
 */
bool trial_proven(const char *name, const char *device, const char *log_device,
		  const char *cmdline);

#endif
