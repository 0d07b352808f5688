/* SPDX-License-Identifier: MIT */
/* How large is a card really? */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/parse.h"
#include "offline/offline.h"

#define HEAD_BLKS 32u /* these are left alone */
#define SPOTS_MAX 64u
#define SPOT_BLKS 64u /* distance of a spot from a power of two */

static size_t spots(uint64_t blks, uint64_t ret[SPOTS_MAX])
{
	size_t n = 0;

	ret[n++] = SPOT_BLKS;
	for (uint64_t p = 2 * SPOT_BLKS; p + SPOT_BLKS < blks && n < SPOTS_MAX / 2; p *= 2)
		ret[n++] = p + SPOT_BLKS;
	for (unsigned i = 1; i < 16; i++)
		ret[n++] = max_u64(HEAD_BLKS, blks / 16 * i + i);
	ret[n++] = blks - 1;
	return n;
}

int clone_check_size(struct card *to, char *buf, struct failure *fail)
{
	uint64_t spot[SPOTS_MAX], nonce[2] = { 0 };
	size_t n = spots(to->geo.size_bytes / COW_BLK_BYTES, spot);
	int r = getrandom(nonce, sizeof(nonce[0]), GRND_NONBLOCK) < 0 ? -errno : 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		nonce[1] = spot[i];
		memset(buf, 0, COW_BLK_BYTES);
		memcpy(buf, nonce, sizeof(nonce));
		r = card_write(to, blk_to_bytes(spot[i]), buf, COW_BLK_BYTES);
	}
	if (r == 0)
		r = card_flush(to);
	for (size_t i = 0; i < n && r == 0; i++) {
		nonce[1] = spot[i];
		r = card_read(to, blk_to_bytes(spot[i]), buf, COW_BLK_BYTES);
		if (r == 0 && memcmp(buf, nonce, sizeof(nonce)))
			return failure(
				fail, -EIO,
				"%s: says that it has %s, but a block at %s does not keep what is written "
				"there. Nothing was copied",
				to->geo.path, FORMAT_SIZE(to->geo.size_bytes),
				FORMAT_SIZE(blk_to_bytes(spot[i])));
	}
	return r < 0 ? failure(fail, r,
			       "%s: %s. It is incomplete; the same command goes on with it",
			       to->geo.path, strerrordesc_np(-r))
		     : 0;
}
