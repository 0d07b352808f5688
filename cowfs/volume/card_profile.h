/* SPDX-License-Identifier: MIT */
/* Option `profile`: the profile that is used to plan a volume's commits and to estimate their
 * duration. */
#ifndef COWFS_VOLUME_CARD_PROFILE_H
#define COWFS_VOLUME_CARD_PROFILE_H

#include "flash/costs.h"

enum profile_source {
	PROFILE_NONE,
	PROFILE_GIVEN,	  /* by id, or from a file */
	PROFILE_MEASURED, /* of this card: cowctl measure --save */
	PROFILE_MATCHED,  /* by the device's own name */
	PROFILE_GUESSED,  /* no profile matches: volume_open makes one from the card's geometry */
};

struct profile_choice {
	enum profile_source source;
	bool of_another; /* with auto: the saved profile states the identity of another card */
	struct card_costs profile; /* PROFILE_GIVEN, PROFILE_MEASURED, PROFILE_MATCHED */
};

/*
 * text: "auto", "none", the id of a published card, "/FILE:ID", or "/FILE" with only one card in it
 * (flash/costs.h). model, identity: see blockdev_model. "auto" takes the measured profile of the
 * identity (costs_saved), or else that of the model. If one cannot be read, or states another identity,
 * a warning says so, because a system must start without it. Reads nothing for "none". Allocates
 * memory and frees all of it. -ENOENT no such profile, -EINVAL not such a file, -ENOMEM, errors of
 * reading. On error why gets a sentence.
 */
int profile_choose(struct profile_choice *ret, const char *text, const char *model,
		   const char *identity, char *why, size_t why_bytes) MUST_CHECK;

#endif
