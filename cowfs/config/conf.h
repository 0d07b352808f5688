/* SPDX-License-Identifier: MIT */
/*
 * The configuration file: [default], and one section per volume, headed by the volume's name or by
 * the path of its device. Keys are the options of volopt.h. The whole file is checked, including
 * the parts that are not needed now: a file with an error configures nothing. A key that was removed is
 * no error: the first reading warns of it.
 */
#ifndef COWFS_CONFIG_CONF_H
#define COWFS_CONFIG_CONF_H

#include "wire/rundir.h"
#include "config/volopt.h"

struct conf;

/*
 * Keys that are not options of the daemon, but of the system around a volume: id, name, values,
 * type, where, default, help.
 */
#define ROOTOPT_TABLE(X)                                                                           \
	X(ENABLED, "enabled", "yes|no", CHOICE, ROOT, "yes", "protect the root at boot")           \
	X(PREPARE, "prepare", "no|shrink|grow", CHOICE, ROOT, "no",                                \
	  "create a log at boot, if there is none")                                                \
	X(TRIAL, "trial", "0|1|2|3|5|10", CHOICE, ROOT, "0",                                       \
	  "boots in which a new initramfs must come up, or the root is used unprotected")          \
	X(UPGRADES, "upgrades", "off|whole|trial", CHOICE, ROOT, "off",                            \
	  "an upgrade by apt is all kept, or nothing; or what is kept is on trial")                \
	X(COMPOSE, "compose", "no|overlay", CHOICE, ROOT, "no",                                    \
	  "the root is an image, and the volume holds its changes")                                \
	X(LOWER, "lower", "DEVICE[:/FILE]", LOWER, ROOT, "", "this image: squashfs or erofs")      \
	X(NEW_LOWER, "new-lower", "refuse|fresh|keep", CHOICE, ROOT, "refuse",                     \
	  "what to do with the changes of another image")                                          \
	X(VOLATILE, "volatile", "PATH...", PATHS, ROOT, "",                                        \
	  "directories that are empty at each boot and never reach the card")                      \
	X(COMMIT_INTERVAL, "commit-interval", "TIME", TIME, ANY, "1h",                             \
	  "interval of timer commits, 0: never")                                                   \
	X(IMPORT_KEYS, "import-keys", "FILE", PATHS, ANY, "",                                      \
	  "public keys, as of ssh-keygen: one of them must have signed what is imported")          \
	X(KEEP, "keep", "PATH...", PATHS, VOLUME, "",                                              \
	  "paths that are committed alone by timer, and before a discard")                         \
	X(KEEP_INTERVAL, "keep-interval", "TIME", TIME, VOLUME, "10m",                             \
	  "interval of the commits of these paths, 0: only before a discard")

#define ROOTOPT_AS_ID(id, ...) ROOTOPT_##id,
enum rootopt { ROOTOPT_TABLE(ROOTOPT_AS_ID) ROOTOPTS };

/* /etc/cowfs/cowfs.conf, or COWFS_CONF of the environment in tests (not when set-uid) */
const char *conf_path(void);
/*
 * -EINVAL with "PATH:LINE: ..." in why, -ENOMEM, or the error of reading. A missing file counts as
 * empty.
 */
int conf_load(struct conf **ret, char *why, size_t why_bytes) MUST_CHECK;
/* The same for who protects a volume or checks the file: the first one reports keys that were removed. */
int conf_load_and_tell(struct conf **ret, char *why, size_t why_bytes) MUST_CHECK;
/* The same for an open file; path is for messages. tells: of such keys. */
int conf_parse(FILE *f, const char *path, bool tells, struct conf **ret, char *why,
	       size_t why_bytes) MUST_CHECK;
void conf_free(struct conf *c);

/*
 * Fills in what is missing in *o: from the section of the volume, then from [default]. The section
 * is that of the device (also under another name of it), or that of o's name, or that of the last
 * part of the device path. Texts point into c. -EINVAL: two sections belong to this volume.
 */
int conf_volume(const struct conf *c, const char *device, struct volopts *o, char *why,
		size_t why_bytes) MUST_CHECK;

/* Is there a section of the root: [root], or one headed by a path with name = root? */
bool conf_has_root(const struct conf *c);
/* The text of a key of the root's section, or the default. */
const char *conf_root_text(const struct conf *c, enum rootopt id);
/* The options of the root's section and of [default], whatever device the section is for. */
void conf_root_options(const struct conf *c, struct volopts *o);

/* The same for the volume of this name, for queries (cowctl config). */
bool conf_has_volume(const struct conf *c, const char *volume);
/* Calls each for their names, in no particular order. */
void conf_each_volume(const struct conf *c, void (*each)(void *ctx, const char *name), void *ctx);
/* From the volume's section, [default] or the built-in default: never NULL. */
const char *conf_text(const struct conf *c, const char *volume, enum rootopt id);
/* The value of a daemon option in the file, NULL: not set. */
const char *conf_option(const struct conf *c, const char *volume, enum volopt id);
enum rootopt rootopt_find(const char *name); /* ROOTOPTS: none */
const char *rootopt_name(enum rootopt id);
const char *rootopt_help(enum rootopt id);
/* NULL: the value is valid. Otherwise what it should be, as in "is not ...". */
const char *rootopt_check(enum rootopt id, const char *value);

#endif
