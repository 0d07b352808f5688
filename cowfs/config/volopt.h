/* SPDX-License-Identifier: MIT */
/*
 * The options of a volume: one table for the command lines of cowfs and cowctl, for mount -o, for
 * the configuration file and for the kernel command line. The help texts come from it, and
 * tests/help.sh checks the manuals against it.
 */
#ifndef COWFS_CONFIG_VOLOPT_H
#define COWFS_CONFIG_VOLOPT_H

#include <stdio.h>

#include "config/options.h"

enum volopt_type {
	VOLOPT_T_RAM,	 /* a size or a share of the memory; not 0, not more than the machine has */
	VOLOPT_T_SIZE,	 /* min to max, a multiple of min */
	VOLOPT_T_TIME,	 /* min to max seconds */
	VOLOPT_T_LIMIT,	 /* min to max seconds, or forever: UINT64_MAX */
	VOLOPT_T_DEVICE, /* a path */
	VOLOPT_T_NAME,	 /* as rundir_name_valid requires */
	/* a word, or a path, optionally with a colon and a word; volume/card_profile.h */
	VOLOPT_T_PROFILE,
	VOLOPT_T_CHOICE, /* one of the words of arg; the first one is the default */
};

/* Where an option may be set besides command line, mount -o and a volume's section of the file. */
enum {
	VOLOPT_DEFAULT = 1 << 0, /* [default] of the file: useful for more than one volume */
	VOLOPT_BOOT = 1 << 1,	 /* cowfs= of the kernel command line */
};

/* id, name, argument, type, min, max, where, default, help */
#define VOLOPT_TABLE(X)                                                                            \
	X(RAM, "ram", "SIZE|N%", RAM, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT, "50% of the memory",     \
	  "limit of the layer in RAM")                                                             \
	X(ON_DETACH, "on-detach", "commit|discard", CHOICE, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT,    \
	  "commit", "what happens to changes at detach, umount and shutdown")                      \
	X(PRESSURE, "pressure", "commit|fail", CHOICE, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT,         \
	  "commit", "when the layer in RAM is full: commit, or fail writes")                       \
	X(LOG, "log", "DEVICE", DEVICE, 0, 0, 0, "DEVICE itself", "the log is on this device")     \
	X(NAME, "name", "NAME", NAME, 0, 0, 0, "name of the device", "name of the volume")         \
	X(ERASE_BLOCK, "erase-block", "SIZE", SIZE, 4 * KIB, GIB, VOLOPT_DEFAULT,                  \
	  "reported by the card, or as formatted", "erase block of the card")                      \
	X(PROFILE, "profile", "PROFILE", PROFILE, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT, "auto",      \
	  "how the card behaves: auto, none, a profile's id, or /FILE:ID")                         \
	X(CHECKPOINT, "checkpoint", "due|always|idle", CHOICE, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT, \
	  "due", "checkpoint if the log needs it, after each commit, or when the card is idle")    \
	X(TRIM, "trim", "weekly|off", CHOICE, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT, "weekly",        \
	  "tell the card which blocks are free, when it is idle: once a week, or never")           \
	X(HOLD, "hold", "off|previous", CHOICE, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT, "off",         \
	  "each commit by hand holds the generation before it, for cowctl undo")                   \
	X(MAX_COMMIT_TIME, "max-commit-time", "TIME", TIME, 1, 600, VOLOPT_DEFAULT | VOLOPT_BOOT,  \
	  "no limit", "hold no more in RAM than can be committed in this time")                    \
	X(AWAY_LIMIT, "away-limit", "TIME|forever", LIMIT, 0, 86400 * 7,                           \
	  VOLOPT_DEFAULT | VOLOPT_BOOT, "5min; forever for a root",                                \
	  "how long reads wait for a card that is pulled out, or that has reset")                  \
	X(ON_CRASH, "on-crash", "replace|reboot|stop", CHOICE, 0, 0, VOLOPT_DEFAULT | VOLOPT_BOOT, \
	  "replace", "a daemon that dies is replaced, or its volume ends")

#define VOLOPT_AS_ID(id, ...) VOLOPT_##id,
enum volopt { VOLOPT_TABLE(VOLOPT_AS_ID) VOLOPTS };

/*
 * Entries for a table of struct option_spec. The ids are those above; a program's own ids follow
 * VOLOPTS.
 */
#define VOLOPT_AS_SPEC(id, name, arg, type, min, max, where, def, help)                            \
	{ VOLOPT_##id, name, arg, help " (default: " def ")" },
#define VOLOPT_SPECS VOLOPT_TABLE(VOLOPT_AS_SPEC)

/* Texts that volopt_check has accepted; NULL: not given. Not owned. */
struct volopts {
	const char *text[VOLOPTS];
};

const char *volopt_name(enum volopt id);
enum volopt_type volopt_type(enum volopt id);
bool volopt_allowed(enum volopt id, unsigned where);
/* The option of this name, or VOLOPTS if there is none. */
enum volopt volopt_find(const char *name, size_t len);
/* An option that an earlier version had: the end of a sentence that begins with its name. NULL: there was
 * none of this name. A file or an fstab that still has it must not keep a machine from its boot. */
const char *volopt_removed(const char *name, size_t len);
/* 0, or -EINVAL with the end of a sentence that begins with option and text ("is no name ..."). */
int volopt_check(enum volopt id, const char *text, char *why, size_t why_bytes) MUST_CHECK;

/* The index of text among the words "a|b|c", -1 if it is none of them. */
int volopt_choice(const char *words, const char *text);
/* Value of an accepted text: bytes, number, nanoseconds, or index of the choice (0 is the default). */
uint64_t volopt_value(enum volopt id, const char *text);
enum { ON_DETACH_COMMIT, ON_DETACH_DISCARD };
enum { PRESSURE_COMMIT, PRESSURE_FAIL };
enum { ON_CRASH_REPLACE, ON_CRASH_REBOOT, ON_CRASH_STOP };
enum { TRIM_WEEKLY, TRIM_OFF };
enum { HOLD_OFF, HOLD_PREVIOUS };
enum { CHECKPOINT_DUE, CHECKPOINT_ALWAYS, CHECKPOINT_IDLE };

/* Fills in from below what is missing in *o. */
void volopts_fill(struct volopts *o, const struct volopts *below);
/* Checks the options of a command line whose table has VOLOPT_SPECS. -EINVAL with a sentence. */
int volopts_of_command(const struct options *o, struct volopts *ret, char *why,
		       size_t why_bytes) MUST_CHECK;
/* Prints the help of mount.cowfs. */
void volopts_help(FILE *f);

#endif
