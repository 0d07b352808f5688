/* SPDX-License-Identifier: MIT */
/*
 * Parked requests: those that the card cannot serve now, because it is away (card.h). They hold no
 * serving thread, no slot and no buffer of the transport, so requests that RAM can serve are served
 * as ever. One thread asks for them again until the card is back, or was given up: then they fail.
 *
 * A write keeps a copy of its data. Requests that overlap may be served in any order: nothing above
 * sends the second one before the first was answered if it minds which of the two wins. Direct I/O
 * of a loop device has no order among requests in flight.
 *
 * The thread lives for as long as a request is parked.
 */
#ifndef COWFS_EXPORT_PARKED_H
#define COWFS_EXPORT_PARKED_H

#include "base/util.h"

enum { PARKED_MAX = 128 }; /* as many as the loop device has tags; more wait */

enum parked_kind { PARKED_READ, PARKED_WRITE, PARKED_PUNCH };

struct parked_request {
	void *req; /* of the transport */
	enum parked_kind kind;
	uint64_t off_bytes, len_bytes;
	struct parked_request *next; /* private */
	char data[];		     /* of a write */
};

struct parked_ops {
	size_t buf_bytes;
	/* By calls that may block. buf: for what is read. 0, -errno, or -ENOMEDIUM: it stays. */
	int (*serve)(void *ctx, const struct parked_request *r, void *buf);
	/* r and buf are gone afterwards */
	void (*answer)(void *ctx, const struct parked_request *r, void *buf, int result);
};

struct parked;

int parked_new(struct parked **ret, const struct parked_ops *ops, void *ctx) MUST_CHECK;
void parked_free(struct parked *p); /* NULL allowed. What is parked fails. Nobody parks any more. */
/* Copies the data of a write (NULL: none). Waits for memory, a thread or a place if there is none. */
void parked_add(struct parked *p, void *req, enum parked_kind kind, uint64_t off_bytes,
		uint64_t len_bytes, const void *data);
/* on: what is parked fails, and so does what will be. */
void parked_refuse(struct parked *p, bool on);

#endif
