/* SPDX-License-Identifier: MIT */
/*
 * A delta: a file with the blocks that one generation of a volume has and another, its base, has not.
 * docs/FORMAT.md, "A delta", has its bytes.
 *
 * It covers the volume in ascending order, in sections. Each names the blocks that differ, with their content and checksums
 * of what they replace, and those that are the same, with a checksum. So what is the base of a delta is said by content alone, and a volume that
 * has these blocks and gets the others has the generation, whatever it had before.
 *
 * The head has the checksum of the table of sections, and that has one of each section. So a signature of the head
 * is one of all, and nothing is believed that was not compared with it.
 */
#ifndef COWFS_OFFLINE_DELTA_H
#define COWFS_OFFLINE_DELTA_H

#include "fs/extents.h"
#include "wire/failure.h"

#define DELTA_HEAD_BYTES 4096u
#define DELTA_SIGNATURE_BYTES 4096u /* behind the head: text, then zeroes; all zeroes: none */
#define DELTA_SUM_BYTES 32u	    /* the first half of SHA-512 */

struct delta_head {
	bool whole; /* has all used blocks, and needs no base */
	char fs_type[16];
	uint8_t fs_uuid[16];
	uint64_t volume_blks;
	/* of the base and of what the volume becomes, by the clock of the card where they were made */
	uint64_t base_generation, base_s, generation, time_s;
	uint64_t kept_blks, data_blks; /* of all sections */
	uint64_t file_bytes;
	uint32_t sections;
	uint8_t table_sum[DELTA_SUM_BYTES];
};

/* Bytes of a head. The signature is over these. */
void delta_put_head(uint8_t buf[DELTA_HEAD_BYTES], const struct delta_head *h);
/* -ENOMSG: no delta at all; -EPROTONOSUPPORT: of a newer version; -EPROTO: of an older one, which has no checksums of what it
 * replaces; -EBADMSG: damaged. */
int delta_get_head(const uint8_t buf[DELTA_HEAD_BYTES], struct delta_head *ret) MUST_CHECK;

typedef void delta_progress(void *ctx, const char *phase, uint64_t done_bytes,
			    uint64_t total_bytes);

/* ---- delta_make.c ---- */

struct delta_make {
	const char *disk, *name; /* of the generation; its name for messages */
	const char *base_disk;	 /* NULL: whole */
	const char *base_name;
	/* of *head: generations and times; the rest is filled in */
	struct delta_head head;
	int fd; /* of an empty file */
	delta_progress *progress;
	void *ctx;
};

/* Writes all but the head, which goes to offset 0 in the end. 0, or -errno with *fail. */
int delta_make(struct delta_make *m, struct failure *fail) MUST_CHECK;

/* ---- delta_apply.c ---- */

struct delta_apply {
	const struct delta_head *head; /* of this file */
	int fd;			       /* the file; its size is that of the head */
	int disk_fd;		       /* the volume: O_RDWR and O_DIRECT */
	delta_progress *progress;
	void *ctx;
	/* result: */
	uint64_t written_blks; /* that were not there already */
	uint64_t other_blk;    /* -ESTALE: from here on something differs from the base */
};

/*
 * Writes what the volume lacks. Reads the file in a process without privileges. After an error a part may have been
 * written: the volume must be one that can be dropped. -EBADMSG: the file is damaged; -ESTALE: not the volume's base;
 * -EOWNERDEAD (boxed_error); -ENOSPC and others of writing.
 */
int delta_apply(struct delta_apply *a) MUST_CHECK;

#endif
