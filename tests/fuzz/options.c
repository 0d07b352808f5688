/* SPDX-License-Identifier: MIT */
/*
 * All text that users type: sizes, shares, durations, numbers, mount -o, the kernel command line,
 * command lines. Input: kind u8, then text.
 */
#include <errno.h>

#include "base/parse.h"
#include "config/cmdline.h"
#include "config/mntopts.h"
#include "config/volopt.h"
#include "fuzz.h"

static char why[200];

static void sizes(char *s)
{
	char buf[24];
	uint64_t v = 0;

	if (parse_size(s, &v) == 0) {
		FUZZ_PROMISE(v <= INT64_MAX);
		format_size(v, buf, sizeof(buf));
		FUZZ_PROMISE(strlen(buf) < sizeof(buf) && *buf);
	}
	if (parse_size_or_percent(s, 1000 * MIB, &v) == 0)
		FUZZ_PROMISE(v <= INT64_MAX);
	if (parse_duration_ns(s, &v) == 0)
		FUZZ_PROMISE(v <= INT64_MAX);
	if (parse_u64(s, &v) == 0)
		FUZZ_PROMISE(*s >= '0' && *s <= '9');
	for (unsigned id = 0; id < VOLOPTS; id++) {
		*why = '\0';
		if (volopt_check((enum volopt)id, s, why, sizeof(why)) == 0)
			volopt_value((enum volopt)id, s);
		else
			FUZZ_PROMISE(*why);
	}
}

static void command_line_of_kernel(char *s)
{
	struct cmdline c = { 0 };
	int e = cmdline_parse(s, &c, why, sizeof(why));

	FUZZ_PROMISE(e == 0 || (e == -EINVAL && *why));
	for (unsigned id = 0; id < VOLOPTS; id++) {
		const char *t = c.opt.text[id];

		if (t) {
			FUZZ_PROMISE(t >= c.buf && t < c.buf + sizeof(c.buf));
			FUZZ_PROMISE(volopt_allowed((enum volopt)id, VOLOPT_BOOT));
			FUZZ_PROMISE(volopt_check((enum volopt)id, t, why, sizeof(why)) == 0);
		}
	}
}

static void mount_options(char *s)
{
	static struct mntopts m;
	int e;

	memset(&m, 0, sizeof(m));
	e = mntopts_add(&m, s, why, sizeof(why));
	FUZZ_PROMISE(e == 0 || (e == -EINVAL && *why));
	FUZZ_PROMISE(memchr(m.rest, '\0', sizeof(m.rest)));
	for (unsigned id = 0; id < VOLOPTS; id++)
		if (m.vol.text[id])
			FUZZ_PROMISE(volopt_check((enum volopt)id, m.vol.text[id], why,
						  sizeof(why)) == 0);
}

/* One word per line. */
static void command_line(char *s)
{
	enum { OPT_HELP = VOLOPTS, OPT_FORCE };
	static const struct option_spec specs[] = { VOLOPT_SPECS{ OPT_HELP, "help", NULL, "" },
						    { OPT_FORCE, "force", NULL, "" },
						    { 0 } };
	struct options o = { 0 };
	struct volopts v = { 0 };
	char *argv[40];
	int argc = 0, e;

	for (char *p = strtok(s, "\n"); p && argc < 40; p = strtok(NULL, "\n"))
		argv[argc++] = p;
	e = options_parse(argc, argv, specs, &o, why, sizeof(why));
	FUZZ_PROMISE(e == 0 || (e == -EINVAL && *why));
	FUZZ_PROMISE(o.operands <= OPERANDS_MAX);
	if (e == 0)
		e = volopts_of_command(&o, &v, why, sizeof(why));
	FUZZ_PROMISE(e == 0 || (e == -EINVAL && *why));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const kinds[])(char *) = { sizes, command_line_of_kernel, mount_options,
						 command_line };
	char *s;

	if (!len)
		return 0;
	s = fuzz_text(data + 1, len - 1);
	*why = '\0';
	kinds[data[0] % ARRAY_SIZE(kinds)](s);
	free(s);
	return 0;
}
