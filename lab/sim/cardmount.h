/* SPDX-License-Identifier: MIT */
/* A file as a card on a FUSE mount, for a loop device or a virtual machine on top of it: what goes through is seen. */
#ifndef COWFS_SIM_CARDMOUNT_H
#define COWFS_SIM_CARDMOUNT_H

#include "base/util.h"

#define CARDMOUNT_NAME "card"

enum cardmount_op { CARDMOUNT_READ, CARDMOUNT_WRITE, CARDMOUNT_FLUSH, CARDMOUNT_DISCARD };

struct cardmount {
	int fd;		       /* what DIR/card is */
	const char *word_name; /* another file there, for words; NULL: none */
	bool discards;	       /* or there is no such request */
	unsigned threads;      /* 1: requests are answered in the order of these calls */
	/* After a request has been done, and before its answer. buf: of a write */
	void (*done)(enum cardmount_op op, uint64_t off_bytes, uint64_t len_bytes, const void *buf);
	/* What was written to the other file at once. -errno */
	int (*word)(const char *buf, size_t size);
};

/* Serves one mount of the program until it is unmounted. -errno */
int cardmount_serve(const struct cardmount *m, const char *dir) MUST_CHECK;

#endif
