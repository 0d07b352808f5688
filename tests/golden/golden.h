/* SPDX-License-Identifier: MIT */
/*
 * Golden images: cards as text, and what opening them must tell, as text. Written by
 * tests/tools/mkgolden.c once for each format version, read by tests/unit/golden_test.c for ever.
 * docs/TESTING.md, "Golden image".
 *
 * 	card SIZE ERASE_BLOCK DISK_OFFSET	a card; with two, the first is the base, the second the log's
 * 	b BLOCK				a block of it that is not all zero:
 * 	w WORD				16 hex digits, over and over
 * 	+OFFSET HEX			or its bytes, where they are not zero
 */
#ifndef COWFS_TESTS_GOLDEN_H
#define COWFS_TESTS_GOLDEN_H

#include <stdio.h>

#include "toy.h"

/* false: the file is damaged. The cards are new ones. */
bool golden_load(FILE *f, struct card **ret_base, struct card **ret_card) MUST_CHECK;
void golden_save(FILE *f, struct card *c);
void golden_save_block(FILE *f, uint64_t blk, const uint8_t p[COW_BLK_BYTES]);

/* What recovery finds: superblock of the log, generation, ledger, index, content. The toy is open. */
void golden_report(FILE *f, struct toy *t);
void golden_print_super(FILE *f, const struct log_super *s);
void golden_print_head(FILE *f, const struct log_head *h);
void golden_print_record(FILE *f, const struct log_record *r);
void golden_print_extent(FILE *f, const struct desc_extent *e);

#endif
