/* SPDX-License-Identifier: MIT */
/* What generations need of the store; everybody else uses ram/generation.h. */
#ifndef COWFS_RAM_STORE_H
#define COWFS_RAM_STORE_H

#include "ram/generation.h"

/* A nameless sparse file of this size. Descriptor or -errno. Never to be mapped. */
int ram_store_file(const struct ram_store *s, uint64_t size_bytes) MUST_CHECK;

#endif
