/* SPDX-License-Identifier: MIT */
/* cowctl boot: what it knows, and what is on the card (boot_card.c). */
#ifndef COWFS_CLI_BOOT_CARD_H
#define COWFS_CLI_BOOT_CARD_H

#include <limits.h>

#include "base/msg.h"
#include "fs/fsinfo.h"
#include "log/log.h"
#include "config/cmdline.h"
#include "config/conf.h"
#include "cli/boot_trial.h"
#include "wire/failure.h"

struct boot {
	bool json;
	char device[PATH_MAX];
	char text[4096]; /* kernel command line */
	struct cmdline cmdline;
	struct conf *conf;
	struct volopts opt;	      /* the command line overrides the configuration */
	struct failure fail;	      /* of a failed operation */
	const char *mount_options;    /* of a root that failed */
	bool on_trial;		      /* this boot is one of a root on trial */
	char image[TRIAL_NAME_BYTES]; /* name of an initramfs on trial, "": it is not */
};

struct boot_found {
	struct fsinfo fs;
	bool has_log;
	bool log_missing; /* there is none, and the superblock is guarded */
	bool member; /* of an array, whose log this is: nothing may be written, and a start refuses it */
	bool holds_nothing; /* has a log, without a held generation */
	bool pending;	    /* a shrink was interrupted after its commit; state is undefined then */
	enum log_state state; /* valid if the log was requested */
};

enum boot_depth { BOOT_SUPER, BOOT_LOG };

/* Writes to the console and to the kernel log, from which the journal takes it. */
void boot_say(enum msg_level level, const char *fmt, ...) PRINTF(2, 3);
/* By the command line or the configuration. */
bool boot_enabled(const struct boot *b);
/*
 * Reads only. Opening the log takes a card a while, so it is done only if its state is requested.
 * *ret holds what was found, even after an error.
 */
int boot_look(const struct boot *b, enum boot_depth depth, struct boot_found *ret) MUST_CHECK;
bool boot_log_in_use(const struct boot_found *f);
/*
 * Prepares the partition for use without cowfs. False if it is not fit for that: *why has the
 * reason. A log that cannot be read, or that is missing, may hold a newer state. A partition that
 * nothing declares to have a log, the guard included, is assumed to have none. Without a section of
 * the root, nothing is written.
 */
bool boot_come_home(struct boot *b, const char **why);
/* Nobody can read the log. Is the partition a whole generation without it? */
bool boot_whole_alone(const struct boot *b);

#endif
