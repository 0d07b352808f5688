/* SPDX-License-Identifier: MIT */
/*
 * The result of the boot, in files of /run/cowfs that outlive the initramfs. root.state holds one
 * word. root.failed or root.bypassed holds a sentence, then lines KEY=value (device=,
 * mount_options=).
 */
#ifndef COWFS_ATTACH_ROOTSTATE_H
#define COWFS_ATTACH_ROOTSTATE_H

#include "base/util.h"

enum root_state {
	ROOT_UNKNOWN = 0, /* not written: no cowfs in the initramfs, or not booted with one */
	ROOT_ON,
	ROOT_OFF, /* reserved for systems that leave cowfs */
	ROOT_FAILED,
	ROOT_BYPASSED,
	ROOT_UNCONFIGURED,
};

const char *rootstate_word(enum root_state s);
/* Replaces the previous state. mount_options and reason may be NULL. */
int rootstate_write(enum root_state s, const char *device, const char *mount_options,
		    const char *reason) MUST_CHECK;
/* why: the sentence of a root that failed or was bypassed, otherwise "". */
enum root_state rootstate_read(char *why, size_t why_bytes);
/*
 * Links /dev/cowfs/root to a loop device; COWFS_DEVDIR of the environment replaces /dev in tests.
 */
int rootstate_link(const char *loop) MUST_CHECK;

/* A file root.WHAT with this text, as good as possible. */
#define ROOT_COUNTS "counts" /* this initramfs counts boots of a root on trial */
/* this boot was one, and cowfs-accept.service is to run; text: the name of an initramfs on trial */
#define ROOT_TRIAL "trial"
#define ROOT_PLAIN "plain" /* nothing is to be composed over the root */
void rootstate_note(const char *what, const char *text);
bool rootstate_noted(const char *what);

#endif
