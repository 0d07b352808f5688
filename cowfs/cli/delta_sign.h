/* SPDX-License-Identifier: MIT */
/* Signatures of a delta's head, by ssh-keygen(1), in the namespace "cowfs". */
#ifndef COWFS_CLI_DELTA_SIGN_H
#define COWFS_CLI_DELTA_SIGN_H

#include "offline/delta.h"

/* key: as of ssh-keygen -Y sign -f. ret: text, then zeroes. 0, or -errno with *fail. */
int delta_sign(const uint8_t head[DELTA_HEAD_BYTES], const char *key,
	       char ret[DELTA_SIGNATURE_BYTES], struct failure *fail) MUST_CHECK;
/*
 * Is it of one of the public keys of this file, one a line? name: of what is signed. -EKEYREJECTED with *fail: no;
 * other errors: not known.
 */
int delta_verify(const uint8_t head[DELTA_HEAD_BYTES], const char signature[DELTA_SIGNATURE_BYTES],
		 const char *keys, const char *name, struct failure *fail) MUST_CHECK;

#endif
