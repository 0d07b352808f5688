/* SPDX-License-Identifier: MIT */
/* The profile that a volume's commits are planned and priced by: option `profile`. */
#ifndef COWFS_VOLUME_CARD_PROFILE_H
#define COWFS_VOLUME_CARD_PROFILE_H

#include "flash/profile.h"

enum profile_source {
	PROFILE_NONE,
	PROFILE_GIVEN,	 /* by id, or from a file */
	PROFILE_MATCHED, /* by what the device calls itself */
	PROFILE_GUESSED, /* nothing matches: volume_open makes one of the card's geometry */
};

struct profile_choice {
	enum profile_source source;
	struct flash_profile profile; /* PROFILE_GIVEN, PROFILE_MATCHED */
};

/*
 * text: "auto", "none", the id of a profile of the program, "/FILE:ID", or "/FILE" with only one
 * profile in it. model: see blockdev_model. Nothing is read for "none", nor for "auto" if the
 * device has no name. Allocates, and gives all of it back. -ENOENT no such profile, -EINVAL a file
 * that is none or a profile of more than a single device, -ENOMEM, what reading gives; why gets a
 * sentence.
 */
int profile_choose(struct profile_choice *ret, const char *text, const char *model, char *why,
		   size_t why_bytes) MUST_CHECK;

#endif
