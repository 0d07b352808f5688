/* SPDX-License-Identifier: MIT */
/*
 * Slots: the state of a read that was started and is answered later. Their number is fixed, and
 * their buffers are locked and allocated before the first request. Most reads are small, so there
 * are many small slots and a few large ones.
 */
#ifndef COWFS_EXPORT_SLOTS_H
#define COWFS_EXPORT_SLOTS_H

#include "export/view.h"

#define SLOTS_SMALL 32
#define SLOTS_LARGE 4
#define SLOT_SMALL_BYTES (8u * KIB)
_Static_assert(SLOTS_SMALL + SLOTS_LARGE <= VIEW_READS, "every slot may have a read in flight");

struct slots;

struct slot {
	struct view_read rd;
	void *req; /* of FUSE; belongs to the user, like the next three */
	uint64_t off_bytes;
	size_t len_bytes;
	uint64_t since_ns;
	char *buf; /* aligned for direct I/O */
	/* private */
	struct slots *slots;
	struct slot *next;
	bool large;
};

int slots_new(struct slots **ret, size_t large_bytes) MUST_CHECK;
void slots_free(struct slots *s); /* NULL allowed; no slot in use */
/* A slot whose buffer holds len_bytes (<= large_bytes). NULL: all slots of that size are in use.
 * Any thread, also for slot_put. */
struct slot *slot_get(struct slots *s, size_t len_bytes);
void slot_put(struct slot *slot);
unsigned slots_used(const struct slots *s);
void slots_wait(struct slots *s); /* until none is in use */

#endif
