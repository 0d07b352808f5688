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

/* ---- questions of a planner ---- */

/* Picoseconds per byte at the rate of 1 MiB */
static uint64_t byte_ps(const struct flash_speed *s)
{
	return s->affine ? flash_rate_ns(1000, s->bytes_per_s)
			 : s->table_ns[FLASH_TABLE - 1] * 1000 / TABLE_MAX;
}

uint64_t flash_bridge_gap_bytes(const struct flash_profile *p, bool gap_is_at_hand)
{
	uint64_t w_ps = byte_ps(&p->write), r_ps = gap_is_at_hand ? 0 : byte_ps(&p->read);
	uint64_t one_ps = flash_write_ns(p, COW_BLK_BYTES) * 1000, linear_ps = w_ps * COW_BLK_BYTES;

	/* the head passes the gap anyway; bridging it saves less than half a turn */
	if (p->class == FLASH_DISK)
		one_ps = linear_ps + p->latency_ns * 1000;
	return one_ps > linear_ps && w_ps + r_ps ? (one_ps - linear_ps) / (w_ps + r_ps) : 0;
}

uint64_t flash_pad_from_bytes(const struct flash_profile *p)
{
	int64_t w_ps = (int64_t)byte_ps(&p->write), r_ps = (int64_t)byte_ps(&p->read);
	int64_t c_ps = (int64_t)flash_rate_ns(1000, p->copy_bytes_per_s);
	/* per byte that padding writes, and that sorting leaves to the card */
	int64_t rest_ps = r_ps + w_ps - c_ps;
	int64_t blk_ps = (int64_t)flash_write_ns(p, COW_BLK_BYTES) * 1000 +
			 (r_ps - c_ps) * COW_BLK_BYTES;
	uint64_t blks;

	if (p->class == FLASH_DISK || blk_ps <= 0)
		return FLASH_NEVER;
	if (rest_ps <= 0)
		return COW_BLK_BYTES;
	blks = mul_div_u64(p->unit_bytes, (uint64_t)rest_ps, (uint64_t)blk_ps) + 1;
	return blks * COW_BLK_BYTES <= p->unit_bytes ? blks * COW_BLK_BYTES : FLASH_NEVER;
}

uint64_t flash_rewrite_from_bytes(const struct flash_profile *p)
{
	uint64_t unit_ns, blk_ns, blks;

	if (p->class == FLASH_DISK)
		return FLASH_NEVER;
	unit_ns = flash_read_ns(p, p->unit_bytes) + flash_write_ns(p, p->unit_bytes);
	blk_ns = flash_random_write_ns(p, COW_BLK_BYTES);
	blks = unit_ns / blk_ns + 1;
	return blks * COW_BLK_BYTES <= p->unit_bytes ? blks * COW_BLK_BYTES : FLASH_NEVER;
}
