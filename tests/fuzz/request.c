/* SPDX-License-Identifier: MIT */
/* Requests of the control protocol: any bytes. Every error has a sentence, and an accepted request
 * can be written again. */
#include <errno.h>

#include "wire/proto.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct request rq, twice;
	char why[120], line[1024];
	size_t n;
	int e = request_parse((const char *)data, len, &rq, why, sizeof(why));

	FUZZ_PROMISE(e <= 0 && memchr(why, '\0', sizeof(why)));
	if (e < 0) {
		FUZZ_PROMISE(*why);
		return 0;
	}
	n = request_render(&rq, line, sizeof(line));
	FUZZ_PROMISE(n && n < sizeof(line));
	FUZZ_PROMISE(request_parse(line, n, &twice, why, sizeof(why)) == 0);
	FUZZ_PROMISE(!memcmp(&rq, &twice, sizeof(rq)));
	return 0;
}
