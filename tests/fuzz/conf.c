/* SPDX-License-Identifier: MIT */
/* The configuration file: any bytes. An error has a place and a sentence; an accepted file has been
 * checked. */
#include <errno.h>

#include "config/conf.h"
#include "fuzz.h"

static void look_up(const struct conf *c, const char *device)
{
	struct volopts o = { 0 };
	char why[200] = "";
	int e = conf_volume(c, device, &o, why, sizeof(why));

	FUZZ_PROMISE(e == 0 || (e == -EINVAL && *why));
	for (unsigned id = 0; e == 0 && id < VOLOPTS; id++)
		if (o.text[id])
			FUZZ_PROMISE(volopt_check((enum volopt)id, o.text[id], why, sizeof(why)) ==
				     0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct conf *c = NULL;
	char why[200] = "";
	FILE *f;
	int e;

	if (!len) /* fmemopen refuses */
		return 0;
	f = fmemopen((void *)data, len, "r");
	if (!f)
		abort();
	e = conf_parse(f, "conf", false, &c, why, sizeof(why));
	fclose(f);
	FUZZ_PROMISE(e <= 0);
	if (e < 0) {
		FUZZ_PROMISE(*why && !strncmp(why, "conf", 4));
		return 0;
	}
	look_up(c, "/dev/null");
	look_up(c, "/nowhere/root");
	look_up(c, "");
	conf_free(c);
	return 0;
}
