/* SPDX-License-Identifier: MIT */
#include "flash/costs.h"

#include "base/parse.h"

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
	if (len_bytes <= FLASH_TABLE_MIN)
		return s->table_ns[0];
	if (len_bytes >= FLASH_TABLE_MAX)
		return mul_div_u64(s->table_ns[FLASH_TABLE - 1], len_bytes, FLASH_TABLE_MAX);
	for (i = 0; len_bytes > (uint64_t)FLASH_TABLE_MIN << (i + 1); i++)
		;
	/* the difference may be negative: some cards are slower at 128 KiB than at 256 */
	return (uint64_t)((int64_t)s->table_ns[i] +
			  ((int64_t)s->table_ns[i + 1] - (int64_t)s->table_ns[i]) *
				  (int64_t)(len_bytes - ((uint64_t)FLASH_TABLE_MIN << i)) /
				  (int64_t)((uint64_t)FLASH_TABLE_MIN << i));
}

uint64_t costs_merge_ns(const struct card_costs *c, uint64_t new_bytes)
{
	uint64_t copied = new_bytes < c->unit_bytes ? c->unit_bytes - new_bytes : 0;

	return c->unit_bytes ? flash_rate_ns(copied, c->copy_bytes_per_s) + c->merge_ns : 0;
}

void costs_guess(struct card_costs *ret, uint64_t unit_bytes)
{
	*ret = (struct card_costs){
		.id = "guessed",
		.guessed = true,
		.write = { .affine = true, .overhead_ns = 1000000, .bytes_per_s = 10000000 },
		.unit_bytes = unit_bytes,
		.open_units = 3,
		.open_random = 3,
		.copy_bytes_per_s = 20000000,
		.absorb = 1,
	};
}
