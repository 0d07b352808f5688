/* SPDX-License-Identifier: MIT */
/* Estimated cost of requests, from a profile alone. */
#include "sim/price.h"

uint64_t flash_read_ns(const struct flash_profile *p, uint64_t len_bytes)
{
	return flash_speed_ns(&p->read, len_bytes);
}

uint64_t flash_write_ns(const struct flash_profile *p, uint64_t len_bytes)
{
	return flash_speed_ns(&p->write, len_bytes);
}

uint64_t flash_random_read_ns(const struct flash_profile *p, uint64_t len_bytes)
{
	int64_t more;

	if (!len_bytes)
		return 0;
	if (p->class == FLASH_DISK)
		return p->seek_ns + p->latency_ns + flash_read_ns(p, len_bytes);
	more = (int64_t)flash_read_ns(p, len_bytes) - (int64_t)flash_read_ns(p, COW_BLK_BYTES);
	return (uint64_t)((int64_t)p->random_read_ns + more);
}

uint64_t flash_copy_ns(const struct flash_profile *p, uint64_t copy_bytes)
{
	return flash_rate_ns(copy_bytes, p->copy_bytes_per_s) + p->merge_ns;
}

uint64_t flash_merge_ns(const struct flash_profile *p, uint64_t new_bytes)
{
	if (p->class == FLASH_DISK)
		return 0;
	return flash_copy_ns(p, new_bytes < p->unit_bytes ? p->unit_bytes - new_bytes : 0);
}

uint64_t flash_random_write_ns(const struct flash_profile *p, uint64_t len_bytes)
{
	uint64_t write_ns = flash_write_ns(p, len_bytes);

	if (p->class == FLASH_DISK)
		return p->seek_ns + p->latency_ns + write_ns;
	if (p->absorb > 1 && len_bytes < p->unit_bytes)
		return write_ns +
		       flash_merge_ns(p, 0) *
			       min_u64(p->absorb, (len_bytes + COW_BLK_BYTES - 1) / COW_BLK_BYTES) /
			       p->absorb;
	return write_ns + flash_merge_ns(p, len_bytes);
}

uint64_t flash_sync_ns(const struct flash_profile *p)
{
	return p->sync_ns > 0 ? (uint64_t)p->sync_ns : 0;
}
