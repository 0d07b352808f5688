/* SPDX-License-Identifier: MIT */
/*
 * The scratch image of a volume: the committed generation, and what is written on top of it, in
 * RAM. A commit of single files mounts it, copies the files into it, unmounts it and commits it.
 *
 * Nothing on the card is held for it. It ends ahead of the first write to a card that is not of its
 * own commit, when RAM runs short, and at the first read or write that fails. All its reads and
 * writes fail from then on, so it can never be committed with a part missing.
 */
#ifndef COWFS_VOLUME_SCRATCH_H
#define COWFS_VOLUME_SCRATCH_H

#include "export/view.h"

struct scratch;

/* max_bytes: of the store; nothing is written above it. Store and base must outlive its end. */
int scratch_new(struct scratch **ret, struct ram_store *store, struct card *base,
		uint64_t volume_blks, struct log_index *index, uint64_t max_bytes) MUST_CHECK;
struct scratch *scratch_ref(struct scratch *s);
uint64_t scratch_volume_blks(const struct scratch *s);
void scratch_unref(struct scratch *s); /* NULL allowed */

/* ---- any thread, any alignment: 0 or -errno ---- */
int scratch_read(struct scratch *s, uint64_t off_bytes, void *buf, size_t len_bytes) MUST_CHECK;
int scratch_write(struct scratch *s, uint64_t off_bytes, const void *buf,
		  size_t len_bytes) MUST_CHECK;
int scratch_punch(struct scratch *s, uint64_t off_bytes, uint64_t len_bytes) MUST_CHECK;
void scratch_end(struct scratch *s);
bool scratch_ended(const struct scratch *s);
uint64_t scratch_held_bytes(struct scratch *s);

/* ---- commit thread ---- */
/*
 * From now on it can only be read, and what was written is the sealed image of *ret_view
 * (view_read_sealed and so on), which stays until scratch_close. -EAGAIN: it has ended.
 */
int scratch_seal(struct scratch *s, struct view **ret_view) MUST_CHECK;
/* Ends it. */
void scratch_close(struct scratch *s);

#endif
