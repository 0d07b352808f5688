/* SPDX-License-Identifier: MIT */
/* Estimated cost of requests, from a profile alone. */
#include "flash/price.h"

#define TABLE_MIN 4096u
#define TABLE_MAX (TABLE_MIN << (FLASH_TABLE - 1))

uint64_t flash_rate_ns(uint64_t bytes, uint64_t bytes_per_s)
{
	return bytes_per_s ? mul_div_u64(bytes, 1000000000u, bytes_per_s) : 0;
}

uint64_t flash_speed_ns(const struct flash_speed *s, uint64_t len_bytes)
{
	unsigned i;

	if (!len_bytes)
		return 0;
	if (s->affine)
		return s->overhead_ns + flash_rate_ns(len_bytes, s->bytes_per_s);
	if (len_bytes <= TABLE_MIN)
		return s->table_ns[0];
	if (len_bytes >= TABLE_MAX)
		return mul_div_u64(s->table_ns[FLASH_TABLE - 1], len_bytes, TABLE_MAX);
	for (i = 0; len_bytes > (uint64_t)TABLE_MIN << (i + 1); i++)
		;
	/* the difference may be negative: some cards are slower at 128 KiB than at 256 */
	return (uint64_t)((int64_t)s->table_ns[i] +
			  ((int64_t)s->table_ns[i + 1] - (int64_t)s->table_ns[i]) *
				  (int64_t)(len_bytes - ((uint64_t)TABLE_MIN << i)) /
				  (int64_t)((uint64_t)TABLE_MIN << i));
}

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
