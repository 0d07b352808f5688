/* SPDX-License-Identifier: MIT */
/* How a measured profile is called, and what of the card and its machine it tells. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/numbers.h"
#include "base/parse.h"
#include "measure/engine.h"
#include "offline/measured.h"

/* What an id may not have is a dash, and there is no dash at the end. */
static void make_id(char *id)
{
	char *p = id;

	for (; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '_')
			*p = '-';
	while (p > id && p[-1] == '-')
		*--p = '\0';
}

/* "2026-11-26"; the first 7 characters are the month */
static void today(char ret[16])
{
	time_t now = time(NULL);
	struct tm tm;

	if (!gmtime_r(&now, &tm) || !strftime(ret, 16, "%Y-%m-%d", &tm))
		strcpy(ret, "?");
}

static void kernel_release(struct utsname *u)
{
	if (uname(u) < 0)
		strcpy(u->release, "?");
}

struct json_object *names_own(const char *device, const char *identity, uint64_t start_bytes,
			      uint64_t end_bytes, const struct measurement *m)
{
	char id[FLASH_ID_BYTES], title[128], source[128], model[192], day[16];
	struct result_names names = { id, title, source, identity };
	struct utsname u;

	measured_model(device, model, sizeof(model));
	snprintf(id, sizeof(id), "measured-%.38s", *identity ? identity : "card");
	make_id(id);
	snprintf(title, sizeof(title), "%.80s, measured", *model ? model : "A card");
	today(day);
	kernel_release(&u);
	snprintf(source, sizeof(source), "cowctl measure, %s, Linux %.24s, %llu+%llu, seed %llu",
		 day, u.release, (unsigned long long)start_bytes,
		 (unsigned long long)(end_bytes - start_bytes), (unsigned long long)m->p.seed);
	return result_profile(m, &names);
}

struct json_object *names_shared(const char *device, const struct measurement *m)
{
	char id[FLASH_ID_BYTES], title[128], source[128], model[192], day[16];
	struct result_names names = { id, title, source, NULL };
	struct utsname u;

	measured_model(device, model, sizeof(model));
	snprintf(id, sizeof(id), "%.32s-%.0fg", *model ? model : "unnamed",
		 (double)m->profile.capacity_bytes / 1e9);
	for (char *p = id; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	make_id(id);
	snprintf(title, sizeof(title), "%.80s",
		 *model ? model : "PUT HERE WHAT IS PRINTED ON THE CARD");
	today(day);
	kernel_release(&u);
	/* a release may end with the name of who built it */
	u.release[strspn(u.release, "0123456789.")] = '\0';
	snprintf(source, sizeof(source), "cowctl measure %s, %.7s, Linux %.16s, area of %s",
		 COWFS_VERSION, day, u.release, FORMAT_MIB(m->work_bytes));
	return result_profile(m, &names);
}
