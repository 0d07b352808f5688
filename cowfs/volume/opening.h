/* SPDX-License-Identifier: MIT */
/* Parts of opening a volume; private to volume/. Messages in why are sentences. */
#ifndef COWFS_VOLUME_OPENING_H
#define COWFS_VOLUME_OPENING_H

#include "volume/private.h"

/* ---- open_log.c ---- */

/* card: 0 the base, 1 the log; for the broker. */
int volume_open_device(struct card **ret, unsigned card, const char *path, uint32_t eb_bytes,
		       char *why, size_t n) MUST_CHECK;
/* Finds and opens the log of v->base on v->log_card, and finishes a shrink. flags: of log_open. */
int volume_open_log(struct volume *v, unsigned flags, char *why, size_t n) MUST_CHECK;
/* Fills v->fs from the newest generation. -EOPNOTSUPP: such a volume cannot be committed. */
int volume_probe_fs(struct volume *v, char *why, size_t n) MUST_CHECK;

/* ---- opening.c ---- */

int volume_open_monitor(struct volume *v, const struct monitor_params *mp, char *why,
			size_t n) MUST_CHECK;
int volume_open_snapshots(struct volume *v, char *why, size_t n) MUST_CHECK;
/* choice: NULL, v->choice has it. */
void volume_take_profile(struct volume *v, const struct profile_choice *choice);
/* The kernel's account of both cards, as it is now. */
void volume_note_counters(struct volume *v);

/* ---- takeover.c ---- */

/* In memory that outlives this process: what another one would need of the attach. */
void volume_keep_attach(struct volume *v, const struct monitor_params *mp);
int volume_take_over(struct volume *v, const struct volume_params *p, char *why,
		     size_t n) MUST_CHECK;

#endif
