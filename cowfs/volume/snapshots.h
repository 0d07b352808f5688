/* SPDX-License-Identifier: MIT */
/*
 * The snapshots of a volume. Private to volume/, except what volume.h declares.
 *
 * A snapshot never delays or fails anything that the volume does. It is ended when RAM for it runs
 * out, when a block cannot be read before it is overwritten, and before it would raise the level of
 * RAM pressure.
 */
#ifndef COWFS_VOLUME_SNAPSHOTS_H
#define COWFS_VOLUME_SNAPSHOTS_H

#include "export/snapshot.h"
#include "export/view.h"
#include "volume/volume.h"

struct snapshots;

/* max_bytes: of the store; nothing is saved above it. The volume's cards call it ahead of their
 * writes from now on. */
int snapshots_new(struct snapshots **ret, const char *volume_name, struct ram_store *store,
		  struct view *v, uint64_t max_bytes) MUST_CHECK;
void snapshots_free(struct snapshots *set); /* NULL allowed; none is left */
/* struct card, before_write */
void snapshots_before_write(void *ctx, struct card *c, uint64_t off_bytes, size_t len_bytes);

/* ---- commit thread ---- */
/* Adds a snapshot; the set takes a reference of its own. -EMFILE: there are VOLUME_VIEWS. */
int snapshots_add(struct snapshots *set, struct snapshot *s, bool now, uint64_t generation,
		  uint64_t time_s) MUST_CHECK;

/* ---- any thread ---- */
void snapshots_remove(struct snapshots *set, struct snapshot *s);
bool snapshots_any(struct snapshots *set);
bool snapshots_full(struct snapshots *set);
/* RAM that only snapshots use. */
uint64_t snapshots_held_bytes(struct snapshots *set);
/* Ends the snapshot that holds the most RAM; false: none holds any. */
bool snapshots_end_largest(struct snapshots *set, const char *why);
void snapshots_status(struct snapshots *set, struct volume_views *ret);

#endif
