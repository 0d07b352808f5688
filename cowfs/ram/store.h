/* SPDX-License-Identifier: MIT */
/* The part of the store that generations need; all other code uses ram/generation.h. */
#ifndef COWFS_RAM_STORE_H
#define COWFS_RAM_STORE_H

#include "ram/generation.h"

/* A nameless sparse file of this size. Descriptor or -errno. Must not be mapped. */
int ram_store_file(const struct ram_store *s, uint64_t size_bytes) MUST_CHECK;

#endif
