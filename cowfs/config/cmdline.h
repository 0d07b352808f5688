/* SPDX-License-Identifier: MIT */
/* cowfs= on the kernel command line: whether the root is protected, and with which options. */
#ifndef COWFS_CONFIG_CMDLINE_H
#define COWFS_CONFIG_CMDLINE_H

#include "config/conf.h"

enum cmdline_mode { CMDLINE_UNSET, CMDLINE_OFF, CMDLINE_ON };

struct cmdline {
	enum cmdline_mode mode;		 /* UNSET: no mode was given, or only options */
	struct volopts opt;		 /* its texts are in buf */
	const char *root_text[ROOTOPTS]; /* likewise; only of a composed root */
	char buf[512];
};

/*
 * line: what /proc/cmdline holds. All words cowfs=ITEM[,ITEM]... count, later ones win; ITEM is
 *	on | off | discard		discard: short for on-detach:discard
 *	NAME:VALUE			an option of volopt.h allowed at boot, as in ram:256M, or
 *					compose, lower, new-lower of conf.h
 * Text in "quotes" or behind " -- " is not for cowfs. Pure. -EINVAL with a sentence in why about
 * the first bad item. *ret then holds the valid items, just as a kernel ignores a parameter that
 * it does not know.
 */
int cmdline_parse(const char *line, struct cmdline *ret, char *why, size_t why_bytes) MUST_CHECK;

#endif
