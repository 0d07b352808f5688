/* SPDX-License-Identifier: MIT */
/* The part of the store that generations need; all other code uses ram/generation.h. */
#ifndef COWFS_RAM_STORE_H
#define COWFS_RAM_STORE_H

#include "ram/generation.h"

/* The files of generation id: content (must not be mapped) and map. They are made if they are not
 * there. Descriptor or -errno; -EPROTO: it has another size. */
uint64_t ram_store_new_id(struct ram_store *s);
int ram_store_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes) MUST_CHECK;
int ram_store_map_file(const struct ram_store *s, uint64_t id, uint64_t size_bytes) MUST_CHECK;
/* Are both there? */
bool ram_store_has(const struct ram_store *s, uint64_t id);
void ram_store_remove(const struct ram_store *s, uint64_t id);

#endif
