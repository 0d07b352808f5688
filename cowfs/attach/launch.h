/* SPDX-License-Identifier: MIT */
/*
 * Starts the daemon of a volume. Under systemd as service cowfs@NAME, so that it lives in a cgroup
 * of its own: not in that of a .mount unit, whose stop would kill it after 90 s in mid-commit, and
 * not in that of somebody's session. Elsewhere the daemon leaves the cgroup by itself.
 */
#ifndef COWFS_ATTACH_LAUNCH_H
#define COWFS_ATTACH_LAUNCH_H

#include "wire/ready.h"
#include "config/volopt.h"

/* In an initramfs, for the volume that becomes the root: no service, though systemd may be there;
 * it would not be known to the one of the root. */
#define LAUNCH_BOOT (1u << 0)

/* o from the command line; the rest comes from the configuration file. Returns when the loop device
 * answers; *ret tells how it went. */
void launch_volume(const char *device, const struct volopts *o, unsigned flags, struct ready *ret);

/* Takes from the configuration file what *o has not; *ret_conf holds the texts: conf_free. The
 * code of ret, which then tells why. */
struct conf;
enum exit_code launch_configure(const char *device, struct volopts *o, struct conf **ret_conf,
				struct ready *ret) MUST_CHECK;

#endif
