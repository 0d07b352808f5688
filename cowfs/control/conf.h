/* SPDX-License-Identifier: MIT */
/*
 * The configuration file: [default], and one section per volume, headed by the volume's name or by
 * the path of its device; keys are the options of volopt.h. All of it is checked, also what is of
 * no interest now: a file with an error configures nothing.
 */
#ifndef COWFS_CONTROL_CONF_H
#define COWFS_CONTROL_CONF_H

#include "control/volopt.h"

struct conf;

/* /etc/cowfs/cowfs.conf, or COWFS_CONF of the environment in tests (not when set-uid) */
const char *conf_path(void);
/* -EINVAL with "PATH:LINE: ..." in why, -ENOMEM, or what reading said. No file is an empty one. */
int conf_load(struct conf **ret, char *why, size_t why_bytes) MUST_CHECK;
/* The same of an open file; path for messages. */
int conf_parse(FILE *f, const char *path, struct conf **ret, char *why,
	       size_t why_bytes) MUST_CHECK;
void conf_free(struct conf *c);

/*
 * Fills in what *o has not: from the section of the volume, then from [default]. Which section:
 * the one of the device (also under another name of it), or the one of o's name, else the
 * device's last part. Texts point into c. -EINVAL: two sections are of this volume.
 */
int conf_volume(const struct conf *c, const char *device, struct volopts *o, char *why,
		size_t why_bytes) MUST_CHECK;

#endif
