/* SPDX-License-Identifier: MIT */
/* Prints lab/sim/cards.conf: the published cards as the planner of commits knows them. */
#include <stdio.h>

#include "sim/profile.h"

int main(void)
{
	struct flash_profiles *ps;
	char why[256];

	if (flash_profiles_open(&ps, NULL, why, sizeof(why)) < 0) {
		fprintf(stderr, "mkcards: %s\n", why);
		return 1;
	}
	puts("# Published cards and disks, and cards that users measured, as the planner of commits knows them: profile in cowfs.conf(5).\n"
	     "# Made from lab/sim/profiles.json, which has the origin of each number, by make cards.");
	flash_profiles_write(stdout, ps, false);
	flash_profiles_close(ps);
	return fflush(stdout) ? 1 : 0;
}
