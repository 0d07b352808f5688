/* SPDX-License-Identifier: MIT */
/* The file of cards that the planner of commits reads: any bytes. An error has a sentence; an accepted card prices
 * requests. */
#include <errno.h>

#include "flash/costs.h"
#include "fuzz.h"

static void use(const struct card_costs *c)
{
	FUZZ_PROMISE(*c->id && !c->guessed && memchr(c->id, 0, sizeof(c->id)));
	FUZZ_PROMISE(c->unit_bytes % COW_BLK_BYTES == 0 && c->open_units && c->absorb);
	FUZZ_PROMISE(c->open_random <= c->open_units);
	for (uint64_t len = 1; len <= 64 * MIB; len *= 3)
		/* minutes for a MiB at most: no price has wrapped around */
		FUZZ_PROMISE(flash_speed_ns(&c->write, len) < 1000000000000000u);
	FUZZ_PROMISE(costs_merge_ns(c, 0) >= costs_merge_ns(c, c->unit_bytes));
}

static void read_one(const uint8_t *data, size_t len, const char *id, const char *model)
{
	struct card_costs c = { 0 };
	char why[200] = "";
	FILE *f = fmemopen((void *)data, len, "r");
	int e;

	if (!f)
		abort();
	e = costs_parse(&c, f, id, model, why, sizeof(why));
	fclose(f);

	FUZZ_PROMISE(e == 0 || (e == -ENOENT && (id || model)) || (e == -EINVAL && *why));
	if (e < 0) {
		FUZZ_PROMISE(!*c.id);
		return;
	}
	FUZZ_PROMISE(!id || !strcmp(c.id, id));
	use(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (!len) /* fmemopen refuses */
		return 0;
	read_one(data, len, NULL, NULL);
	read_one(data, len, "a-card", NULL);
	read_one(data, len, NULL, "SD a-card 00000");
	return 0;
}
