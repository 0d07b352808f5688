/* SPDX-License-Identifier: MIT */
/*
 * A card that a program of tools/ measures: what it is, what on it may be overwritten, and the free
 * room of its log. With base/ and some headers of wire/ and config/ this is all of the core that such
 * a program sees (docs/HACKING.md). Functions return 0, or -errno with *fail filled.
 */
#ifndef COWFS_OFFLINE_MEASURED_H
#define COWFS_OFFLINE_MEASURED_H

#include "base/util.h"
#include "wire/failure.h"

struct measured_card;

struct measured_facts {
	uint64_t size_bytes, disk_off_bytes; /* of its start on the disk */
	uint64_t erase_block_bytes;
	bool reports_erase_block, guessed_erase_block; /* both false: announced in another way */
	char identity[64], model[192];		       /* "": none */
};

/* At the start of the program, before any thread. */
void measured_start(void);
/* The name that a device gives itself; "": none. */
void measured_model(const char *device, char *ret, size_t size_bytes);
/* Only reads, and claims nothing. */
int measured_look(const char *device, struct measured_facts *ret) MUST_CHECK;
/* What is lost if the device is written to; fd: of it. "": no signature, and no log of cowfs. */
int measured_content(const char *device, int fd, char *ret, size_t size_bytes) MUST_CHECK;

/* Claims the device or file. in_log: the free room of its log is measured, otherwise it is only read here. */
int measured_open(struct measured_card **ret, const char *device, bool in_log,
		  struct measured_facts *facts, struct failure *fail) MUST_CHECK;
void measured_close(struct measured_card *m); /* NULL allowed */
/* Its descriptor, which stays the card's. */
int measured_fd(const struct measured_card *m);
/* Is the log one whose free room may be overwritten? */
int measured_check_log(struct measured_card *m, struct failure *fail) MUST_CHECK;
/* May this part be overwritten? *end_bytes UINT64_MAX: all, of which it gets the size. fd: of the device. */
int measured_check_area(struct measured_card *m, int fd, uint64_t start_bytes, uint64_t *end_bytes,
			struct failure *fail) MUST_CHECK;
/* Another claim may begin. What is left sees whether the card is there. */
void measured_unclaim(struct measured_card *m);
/* Is error e that of a card that is gone? Then *fail says so, and what is on it now. */
bool measured_lost(struct measured_card *m, int e, const char *now, struct failure *fail);

/* Writes the records that keep the log safe meanwhile, and gets the part that may be overwritten: at least least_bytes. */
int measured_begin(struct measured_card *m, uint64_t enough_bytes, uint64_t least_bytes,
		   uint64_t *ret_start_bytes, uint64_t *ret_end_bytes,
		   struct failure *fail) MUST_CHECK;
/* Requests to that part, which the ledger of the card counts. -errno */
int measured_write(struct measured_card *m, uint64_t off_bytes, const void *buf,
		   size_t len_bytes) MUST_CHECK;
int measured_flush(struct measured_card *m) MUST_CHECK;
/* The log is as before, and its wear ledger has what was written, or with -errno lacks it. */
int measured_end(struct measured_card *m, uint64_t *ret_written_bytes) MUST_CHECK;

#endif
