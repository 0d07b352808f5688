/* SPDX-License-Identifier: MIT */
/*
 * Starts the daemon of a volume. Under systemd it runs as service cowfs@NAME, so that it lives in
 * its own cgroup. Stopping the cgroup of a .mount unit would kill it after 90 s in the middle of a
 * commit, and that of a user session would end with the session. Elsewhere the daemon leaves the
 * cgroup by itself.
 */
#ifndef COWFS_ATTACH_LAUNCH_H
#define COWFS_ATTACH_LAUNCH_H

#include "wire/ready.h"
#include "config/volopt.h"

/*
 * In an initramfs, for the volume that becomes the root. No service is started even under systemd,
 * because the systemd of the root would not know it.
 */
#define LAUNCH_BOOT (1u << 0)

/*
 * o comes from the command line; the rest comes from the configuration file. Returns when the loop
 * device answers; *ret reports the result.
 */
void launch_volume(const char *device, const struct volopts *o, unsigned flags, struct ready *ret);

/*
 * Fills in from the configuration file what is missing in *o; *ret_conf holds the texts:
 * conf_free. Returns the code of ret, which explains an error.
 */
struct conf;
enum exit_code launch_configure(const char *device, struct volopts *o, struct conf **ret_conf,
				struct ready *ret) MUST_CHECK;

#endif
