/* SPDX-License-Identifier: MIT */
#include "base/util.h"

uint64_t mul_u64(uint64_t v, uint64_t by, uint64_t *ret_low)
{
	uint64_t v_high = v >> 32, v_low = v & UINT32_MAX, by_high = by >> 32,
		 by_low = by & UINT32_MAX;
	/* neither sum overflows: (2^32 - 1)^2 leaves room for two numbers of 32 bits */
	uint64_t upper = v_high * by_low + (v_low * by_low >> 32);
	uint64_t lower = v_low * by_high + (upper & UINT32_MAX);

	*ret_low = v * by;
	return v_high * by_high + (upper >> 32) + (lower >> 32);
}

uint64_t mul_div_u64(uint64_t v, uint64_t by, uint64_t of)
{
	uint64_t low, high = mul_u64(v, by, &low);

	if (!high)
		return low / of;
	if (high >= of)
		return UINT64_MAX;
	/* one bit of the quotient a turn: high is the remainder, the quotient follows the product */
	for (unsigned i = 0; i < 64; i++) {
		bool carry = high >> 63;

		high = high << 1 | low >> 63;
		low <<= 1;
		if (carry || high >= of) {
			high -= of;
			low |= 1;
		}
	}
	return low;
}
