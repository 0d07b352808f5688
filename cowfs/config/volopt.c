/* SPDX-License-Identifier: MIT */
#include "config/volopt.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "wire/rundir.h"

#define HELP_COLUMN 32

static const struct entry {
	const char *name, *arg;
	enum volopt_type type;
	uint64_t min, max;
	unsigned where;
	const char *def, *help;
} table[] = {
#define AS_ENTRY(id, name, arg, type, min, max, where, def, help)                                  \
	[VOLOPT_##id] = { name, arg, VOLOPT_T_##type, min, max, where, def, help },
	VOLOPT_TABLE(AS_ENTRY)
};

const char *volopt_name(enum volopt id)
{
	return table[id].name;
}

enum volopt_type volopt_type(enum volopt id)
{
	return table[id].type;
}

bool volopt_allowed(enum volopt id, unsigned where)
{
	return (table[id].where & where) == where;
}

enum volopt volopt_find(const char *name, size_t len)
{
	unsigned id = 0;

	while (id < VOLOPTS && (strlen(table[id].name) != len || memcmp(table[id].name, name, len)))
		id++;
	return (enum volopt)id;
}

const char *volopt_removed(const char *name, size_t len)
{
	static const struct {
		const char *name, *why;
	} removed[] = {
		{ "compress", "was removed: changes in RAM are not compressed" },
		{ "transport", "was removed: volumes are always served by FUSE" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(removed); i++)
		if (strlen(removed[i].name) == len && !memcmp(removed[i].name, name, len))
			return removed[i].why;
	return NULL;
}

static uint64_t memory_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

int volopt_choice(const char *words, const char *text)
{
	size_t len = strlen(text);

	for (int i = 0; *words; i++) {
		size_t n = strcspn(words, "|");

		if (n == len && !memcmp(words, text, len))
			return i;
		words += n + (words[n] == '|');
	}
	return -1;
}

static const char *check_ram(const char *text, char *buf, size_t buf_bytes)
{
	uint64_t total = memory_bytes(), bytes;

	if (parse_size_or_percent(text, total, &bytes) < 0)
		return "is not a size such as 512M or a share such as 40%";
	if (!bytes)
		return "leaves no memory for changes";
	if (bytes <= total)
		return NULL;
	snprintf(buf, buf_bytes, "exceeds the memory of this machine, %s", FORMAT_SIZE(total));
	return buf;
}

static const char *check_size(const struct entry *e, const char *text, char *buf, size_t buf_bytes)
{
	uint64_t bytes;

	if (parse_size(text, &bytes) < 0)
		return "is not a size such as 4M";
	if (bytes >= e->min && bytes <= e->max && bytes % e->min == 0)
		return NULL;
	snprintf(buf, buf_bytes, "is not a multiple of %s up to %s", FORMAT_SIZE(e->min),
		 FORMAT_SIZE(e->max));
	return buf;
}

#define SECOND_NS 1000000000ull

static const char *check_time(const struct entry *e, const char *text, char *buf, size_t buf_bytes)
{
	uint64_t ns;

	if (parse_duration_ns(text, &ns) == 0 && ns >= e->min * SECOND_NS &&
	    ns <= e->max * SECOND_NS)
		return NULL;
	snprintf(buf, buf_bytes, "is not a time from %llus to %llus", (unsigned long long)e->min,
		 (unsigned long long)e->max);
	return buf;
}

#define FOREVER "forever"

static const char *check_limit(const struct entry *e, const char *text, char *buf, size_t buf_bytes)
{
	size_t len;

	if (!strcmp(text, FOREVER) || !check_time(e, text, buf, buf_bytes))
		return NULL;
	len = strlen(buf);
	snprintf(buf + len, buf_bytes - len, ", nor " FOREVER);
	return buf;
}

static const char *check_choice(const struct entry *e, const char *text, char *buf,
				size_t buf_bytes)
{
	if (volopt_choice(e->arg, text) >= 0)
		return NULL;
	snprintf(buf, buf_bytes, "is not one of %s", e->arg);
	return buf;
}

/* Checks only the form. The daemon reads the profiles and reports an unknown one. */
static const char *check_profile(const char *text)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	if (text[0] == '/' ? text[1] : *text && strspn(text, allowed) == strlen(text))
		return NULL;
	return "is not auto, none, the id of a profile or a file such as /etc/cowfs/cards.conf:ID";
}

int volopt_check(enum volopt id, const char *text, char *why, size_t why_bytes)
{
	const struct entry *e = &table[id];
	const char *bad = NULL;
	char buf[128];

	switch (e->type) {
	case VOLOPT_T_RAM:
		bad = check_ram(text, buf, sizeof(buf));
		break;
	case VOLOPT_T_SIZE:
		bad = check_size(e, text, buf, sizeof(buf));
		break;
	case VOLOPT_T_TIME:
		bad = check_time(e, text, buf, sizeof(buf));
		break;
	case VOLOPT_T_LIMIT:
		bad = check_limit(e, text, buf, sizeof(buf));
		break;
	case VOLOPT_T_DEVICE:
		bad = *text ? NULL : "needs a path";
		break;
	case VOLOPT_T_NAME:
		if (!rundir_name_valid(text))
			bad = RUNDIR_NO_NAME;
		break;
	case VOLOPT_T_PROFILE:
		bad = check_profile(text);
		break;
	case VOLOPT_T_CHOICE:
		bad = check_choice(e, text, buf, sizeof(buf));
		break;
	}
	if (!bad)
		return 0;
	snprintf(why, why_bytes, "%s", bad);
	return -EINVAL;
}

uint64_t volopt_value(enum volopt id, const char *text)
{
	uint64_t v = 0;
	int e = 0, choice;

	switch (table[id].type) {
	case VOLOPT_T_RAM:
		e = parse_size_or_percent(text, memory_bytes(), &v);
		break;
	case VOLOPT_T_SIZE:
		e = parse_size(text, &v);
		break;
	case VOLOPT_T_TIME:
		e = parse_duration_ns(text, &v);
		break;
	case VOLOPT_T_LIMIT:
		if (!strcmp(text, FOREVER))
			return UINT64_MAX;
		e = parse_duration_ns(text, &v);
		break;
	case VOLOPT_T_CHOICE:
		choice = volopt_choice(table[id].arg, text);
		v = choice > 0 ? (uint64_t)choice : 0;
		break;
	case VOLOPT_T_DEVICE:
	case VOLOPT_T_NAME:
	case VOLOPT_T_PROFILE:
		break;
	}
	return e < 0 ? 0 : v;
}

void volopts_fill(struct volopts *o, const struct volopts *below)
{
	for (size_t id = 0; id < VOLOPTS; id++)
		if (!o->text[id])
			o->text[id] = below->text[id];
}

int volopts_of_command(const struct options *o, struct volopts *ret, char *why, size_t why_bytes)
{
	struct volopts v = { 0 };
	char bad[160];

	for (size_t id = 0; id < VOLOPTS; id++) {
		v.text[id] = o->value[id];
		if (v.text[id] && volopt_check((enum volopt)id, v.text[id], bad, sizeof(bad)) < 0) {
			snprintf(why, why_bytes, "--%s %s %s", table[id].name, v.text[id], bad);
			return -EINVAL;
		}
	}
	*ret = v;
	return 0;
}

void volopts_help(FILE *f)
{
	for (size_t id = 0; id < VOLOPTS; id++) {
		int n = fprintf(f, "  %s=%s", table[id].name, table[id].arg);

		fprintf(f, "%*s%s (default: %s)\n", n < HELP_COLUMN ? HELP_COLUMN - n : 1, "",
			table[id].help, table[id].def);
	}
}
