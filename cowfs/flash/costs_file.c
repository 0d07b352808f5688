/* SPDX-License-Identifier: MIT */
/* What costs_read reads, and where it lies. */
#include "flash/costs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/io.h"
#include "base/parse.h"
#include "base/path.h"

#define FILE_MAX_BYTES (4 * MIB)

struct reader {
	const char *id, *model; /* which one is wanted */
	struct card_costs *ret, now;
	unsigned cards, found;
	bool is_it; /* now is the one */
	int error;
	char *why;
	size_t why_bytes;
};

static void PRINTF(2, 3) say(struct reader *r, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (r->error)
		return;
	r->error = -EINVAL;
	n = snprintf(r->why, r->why_bytes, "profile '%s': ", r->now.id);
	va_start(ap, fmt);
	if (n >= 0 && (size_t)n < r->why_bytes)
		vsnprintf(r->why + n, r->why_bytes - (size_t)n, fmt, ap);
	va_end(ap);
}

static const struct {
	const char *key;
	size_t at;
	uint64_t min, max;
} numbers[] = {
	{ "unit_bytes", offsetof(struct card_costs, unit_bytes), 0, GIB },
	{ "open_units", offsetof(struct card_costs, open_units), 1, 1024 },
	{ "open_random", offsetof(struct card_costs, open_random), 0, 1024 },
	{ "absorb", offsetof(struct card_costs, absorb), 1, 1000000 },
	{ "copy_bytes_per_s", offsetof(struct card_costs, copy_bytes_per_s), 1, 10000000000000u },
	{ "merge_ns", offsetof(struct card_costs, merge_ns), 0, 10000000000u },
	{ "sync_ns", offsetof(struct card_costs, sync_ns), 0, 1000000000000u },
	{ "seek_ns", offsetof(struct card_costs, seek_ns), 0, 10000000000u },
};

static void take_write(struct reader *r, const char *value)
{
	struct flash_speed *s = &r->now.write;
	char text[256], *save = NULL;
	unsigned n = 0;
	uint64_t ns;

	snprintf(text, sizeof(text), "%s", value);
	for (char *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
		if (n == FLASH_TABLE || parse_u64(w, &ns) < 0 || !ns || ns > 1000000000000u) {
			n = 0;
			break;
		}
		s->table_ns[n++] = ns;
	}
	if (n == 2 && s->table_ns[1] > s->table_ns[0]) {
		/* the line through both */
		ns = s->table_ns[1] - s->table_ns[0];
		s->affine = true;
		s->bytes_per_s = mul_div_u64(FLASH_TABLE_MAX - FLASH_TABLE_MIN, 1000000000u, ns);
		ns = mul_div_u64(FLASH_TABLE_MIN, ns, FLASH_TABLE_MAX - FLASH_TABLE_MIN);
		s->overhead_ns = s->table_ns[0] > ns ? s->table_ns[0] - ns : 0;
	} else if (n != FLASH_TABLE) {
		say(r, "write_ns must be 2 or %d times", FLASH_TABLE);
	}
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = text; len && (at = strcasestr(at, word)); at++)
		if ((at == text || isspace((unsigned char)at[-1])) &&
		    (!at[len] || isspace((unsigned char)at[len])))
			return true;
	return false;
}

static void take_models(struct reader *r, const char *value)
{
	char text[512], *save = NULL;

	snprintf(text, sizeof(text), "%s", value);
	for (char *w = strtok_r(text, ",", &save); w && r->model; w = strtok_r(NULL, ",", &save))
		r->is_it = r->is_it || has_word(r->model, w + strspn(w, " \t"));
}

static void take(struct reader *r, const char *key, const char *value)
{
	uint64_t v;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		if (strcmp(key, numbers[i].key) != 0)
			continue;
		if (parse_u64(value, &v) < 0 || v < numbers[i].min || v > numbers[i].max)
			say(r, "%s must be a whole number from %llu to %llu", key,
			    (unsigned long long)numbers[i].min, (unsigned long long)numbers[i].max);
		else
			memcpy((char *)&r->now + numbers[i].at, &v, sizeof(v));
		return;
	}
	if (!strcmp(key, "write_ns"))
		take_write(r, value);
	else if (!strcmp(key, "models"))
		take_models(r, value);
	else if (!strcmp(key, "identity"))
		snprintf(r->now.identity, sizeof(r->now.identity), "%s", value);
	else if (!strcmp(key, "plan"))
		r->now.unconfirmed = strcmp(value, "yes") != 0;
	else if (strcmp(key, "title") != 0 && strcmp(key, "source") != 0)
		say(r, "nothing is called %s", key);
}

/* The section is complete. */
static void finish(struct reader *r)
{
	const struct card_costs *c = &r->now;

	if (!*c->id)
		return;
	if (!c->write.table_ns[0])
		say(r, "write_ns is missing");
	else if (c->unit_bytes % COW_BLK_BYTES || (!c->unit_bytes && !c->seek_ns))
		say(r, "unit_bytes must be a multiple of 4096");
	else if (c->unit_bytes && !c->copy_bytes_per_s)
		say(r, "copy_bytes_per_s is missing");
	else if (c->open_random > c->open_units)
		say(r, "open_random cannot be more than open_units");
	r->cards++;
	if (!r->error && r->is_it && r->found++ == 0)
		*r->ret = *c;
}

/* The ini_handler. Always reports success: say() keeps what is wrong. */
static int take_pair(void *ctx, const char *section, const char *key, const char *value)
{
	struct reader *r = ctx;

	if (strcmp(section, r->now.id) != 0) {
		finish(r);
		r->now = (struct card_costs){ .open_units = 1, .absorb = 1 };
		snprintf(r->now.id, sizeof(r->now.id), "%s", section);
		r->is_it = r->id ? !strcmp(section, r->id) : !r->model;
	}
	if (!*section)
		say(r, "%s must follow a [section]", key);
	else
		take(r, key, value);
	return 1;
}

static int read_cards(struct reader *r, FILE *f)
{
	int c = getc(f), line;

	if (c == '{') {
		snprintf(r->why, r->why_bytes,
			 "is a profile in JSON, as cowfs 0.1 read it: 'cowctl measure --convert "
			 "FILE' makes what is read now");
		return -EINVAL;
	}
	(void)ungetc(c, f);
	line = ini_parse_file(f, take_pair, r);
	finish(r);
	if (line > 0 && !r->error) {
		r->error = -EINVAL;
		snprintf(r->why, r->why_bytes, "line %d is neither [SECTION] nor KEY = VALUE",
			 line);
	}
	return line < 0 ? -ENOMEM : r->error;
}

int costs_parse(struct card_costs *ret, FILE *f, const char *id, const char *model, char *why,
		size_t why_bytes)
{
	struct card_costs found;
	struct reader r = {
		.id = id, .model = model, .ret = &found, .why = why, .why_bytes = why_bytes
	};
	int e = read_cards(&r, f);

	if (e == 0 && r.found == 0 && (id || model))
		return -ENOENT;
	if (e == 0 && r.found != 1) {
		snprintf(why, why_bytes, "has %u profiles: name one, FILE:ID", r.cards);
		return -EINVAL;
	}
	if (e == 0)
		*ret = found;
	return e;
}

int costs_read(struct card_costs *ret, const char *path, const char *id, const char *model,
	       char *why, size_t why_bytes)
{
	int fd = path_open_ours(path), e = fd;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	struct stat st;

	*why = '\0';
	if (f &&
	    (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)FILE_MAX_BYTES)) {
		snprintf(why, why_bytes, "not a text file of cards");
		e = -EINVAL;
	} else if (f) {
		e = costs_parse(ret, f, id, model, why, why_bytes);
	}
	if (f)
		(void)fclose(f);
	if (e < 0 && !*why && (fd < 0 || e != -ENOENT))
		snprintf(why, why_bytes, "%s", e == -EPERM ? PATH_NOT_OURS : strerrordesc_np(-e));
	return e;
}

/* ---- where they are ---- */

int costs_published(char path[static PATH_MAX])
{
	static const char *const places[] = { "/cards.conf", "/../lib/cowfs/cards.conf" };
	const char *given = secure_getenv("COWFS_CARDS");
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	const char *slash;

	if (given && *given)
		return snprintf(path, PATH_MAX, "%s", given) < PATH_MAX ? 0 : -ENAMETOOLONG;
	if (n < 0)
		return -errno;
	exe[n] = '\0';
	slash = strrchr(exe, '/');
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (snprintf(path, PATH_MAX, "%.*s%s", (int)(slash ? slash - exe : 0), exe,
			     places[i]) >= PATH_MAX)
			return -ENAMETOOLONG;
		if (access(path, F_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

int costs_saved(const char *identity, char *ret, size_t size_bytes)
{
	const char *dir = secure_getenv("COWFS_PROFILES");
	char name[64];
	size_t n = 0;

	if (!*identity)
		return -ENOENT;
	for (; identity[n] && n < sizeof(name) - 1; n++) {
		unsigned char c = (unsigned char)identity[n];

		name[n] = isalnum(c) || c == '-' || c == '_' ? (char)c : '_';
	}
	name[n] = '\0';
	/* characters that were replaced, or cut off, still count */
	return snprintf(ret, size_bytes, "%s/%s-%08x.conf",
			dir && *dir ? dir : "/etc/cowfs/profiles", name,
			crc32c(0, identity, strlen(identity))) < (int)size_bytes
		       ? 0
		       : -ENAMETOOLONG;
}
