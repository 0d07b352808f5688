/* SPDX-License-Identifier: MIT */
#include "base/util.h"

uint64_t mul_div_u64(uint64_t v, uint64_t by, uint64_t of)
{
	uint64_t v_high = v >> 32, v_low = v & UINT32_MAX, by_high = by >> 32,
		 by_low = by & UINT32_MAX, product, middle, high;

	if (!__builtin_mul_overflow(v, by, &product))
		return product / of;
	/* neither sum overflows: (2^32 - 1)^2 leaves room for two numbers of 32 bits */
	middle = v_high * by_low + (v_low * by_low >> 32);
	high = v_high * by_high + (middle >> 32);
	middle = v_low * by_high + (middle & UINT32_MAX);
	high += middle >> 32;
	if (high >= of)
		return UINT64_MAX;
	/* one bit of the quotient a turn: high is the remainder, the quotient follows the product */
	for (unsigned i = 0; i < 64; i++) {
		bool carry = high >> 63;

		high = high << 1 | product >> 63;
		product <<= 1;
		if (carry || high >= of) {
			high -= of;
			product |= 1;
		}
	}
	return product;
}
