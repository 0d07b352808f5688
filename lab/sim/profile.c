/* SPDX-License-Identifier: MIT */
/* Profiles from JSON: the meaning of each key, and the values derived from them. */
#include "sim/profile.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "base/path.h"
#include "sim/price.h"

#define FILE_MAX_BYTES (4 * MIB)
#define PROFILES_MAX 256

/* The published profiles, and those that users measured, are part of the program. */
__asm__(".pushsection .rodata\n"
	".global flash_profiles_json\n"
	".hidden flash_profiles_json\n"
	"flash_profiles_json:\n"
	".incbin \"" FLASH_PROFILES "\"\n"
	".byte 0\n"
	".popsection\n");
extern const char flash_profiles_json[] __attribute__((visibility("hidden")));

struct flash_profiles {
	size_t n, first_own;
	struct flash_profile *profile;
	struct json_object **json; /* of each profile, borrowed from the files */
	struct json_object *files; /* an array */
};

/* ---- one profile ---- */

/* State of reading one profile; bad: it is invalid, and why has the reason. */
struct reader {
	struct json_object *json, *from;
	char *why;
	size_t why_bytes;
	const char *id;
	bool bad;
};

static void PRINTF(2, 3) say(struct reader *r, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (r->bad)
		return;
	r->bad = true;
	n = snprintf(r->why, r->why_bytes, "profile '%s': ", r->id);
	va_start(ap, fmt);
	if (n >= 0 && (size_t)n < r->why_bytes)
		vsnprintf(r->why + n, r->why_bytes - (size_t)n, fmt, ap);
	va_end(ap);
}

static bool has(const struct reader *r, const char *key)
{
	return json_object_object_get_ex(r->json, key, NULL);
}

static uint64_t round_u64(double d)
{
	return (uint64_t)(d + 0.5);
}

static double one_number(struct reader *r, const char *key, struct json_object *v, double min,
			 double max)
{
	double d = json_object_get_double(v);

	if (!json_object_is_type(v, json_type_double) && !json_object_is_type(v, json_type_int)) {
		say(r, "%s is not a number", key);
		return min;
	}
	if (!(d >= min && d <= max)) {
		say(r, "%s must be from %g to %g", key, min, max);
		return min;
	}
	return d;
}

/* Reads the number times unit into *ret, if the key is there. */
static void take(struct reader *r, const char *key, double min, double max, double unit,
		 uint64_t *ret)
{
	struct json_object *v;

	if (json_object_object_get_ex(r->json, key, &v))
		*ret = round_u64(one_number(r, key, v, min, max) * unit);
}

static void take_unsigned(struct reader *r, const char *key, double min, double max, unsigned *ret)
{
	uint64_t v = *ret;

	take(r, key, min, max, 1, &v);
	*ret = (unsigned)v;
}

/* 1/x seconds in nanoseconds; 0: no such key */
static uint64_t take_per_s(struct reader *r, const char *key)
{
	struct json_object *v;

	if (!json_object_object_get_ex(r->json, key, &v))
		return 0;
	return round_u64(1e9 / one_number(r, key, v, 1e-3, 1e9));
}

static void take_text(struct reader *r, const char *key, char *buf, size_t size_bytes)
{
	struct json_object *v;

	if (!json_object_object_get_ex(r->json, key, &v))
		return;
	if (!json_object_is_type(v, json_type_string) ||
	    (size_t)json_object_get_string_len(v) >= size_bytes)
		say(r, "%s must be a text of less than %zu bytes", key, size_bytes);
	else
		snprintf(buf, size_bytes, "%s", json_object_get_string(v));
}

static void take_speed(struct reader *r, const char *rate_key, const char *overhead_key,
		       struct flash_speed *ret)
{
	struct json_object *v;

	if (!json_object_object_get_ex(r->json, rate_key, &v))
		return;
	memset(ret, 0, sizeof(*ret));
	if (!json_object_is_type(v, json_type_array)) {
		ret->affine = true;
		ret->bytes_per_s = round_u64(one_number(r, rate_key, v, 0.001, 100000) * 1e6);
		take(r, overhead_key, 0, 1000, 1e6, &ret->overhead_ns);
		return;
	}
	if (json_object_array_length(v) != FLASH_TABLE) {
		say(r, "%s must be a number or %d of them", rate_key, FLASH_TABLE);
		return;
	}
	for (size_t i = 0; i < FLASH_TABLE; i++) {
		double mb_s = one_number(r, rate_key, json_object_array_get_idx(v, i), 0.001,
					 100000);

		ret->table_ns[i] = round_u64((double)(4096u << i) / mb_s * 1e3);
	}
}

/* Index of the word in the list; -1: unknown word. */
static int take_word(struct reader *r, const char *key, const char *const *word, size_t words)
{
	struct json_object *v;
	const char *text;

	if (!json_object_object_get_ex(r->json, key, &v))
		return -1;
	text = json_object_get_string(v);
	for (size_t i = 0; i < words; i++)
		if (!strcmp(text ? text : "", word[i]))
			return (int)i;
	say(r, "%s is '%s'", key, text ? text : "null");
	return -1;
}

/* Keys that state nothing about a device, and need no source. */
static bool is_text_key(const char *key)
{
	return !strcmp(key, "title") || !strcmp(key, "source") || !strcmp(key, "note") ||
	       !strcmp(key, "member") || !strcmp(key, "models") || !strcmp(key, "from") ||
	       !strcmp(key, "plan") || !strcmp(key, "identity");
}

static const char *const known[] = {
	"class",
	"capacity_gb",
	"read_mb_s",
	"read_overhead_ms",
	"write_mb_s",
	"write_overhead_ms",
	"access_ms",
	"random_read_per_s",
	"random_write_per_s",
	"sync_write_per_s",
	"sync_rewrite_per_s",
	"page_kib",
	"unit_kib",
	"open_units",
	"open_random",
	"copy_mb_s",
	"merge_ms",
	"discard_ms",
	"absorb",
	"cheat_mib",
	"front_mib",
	"front_read_mb_s",
	"front_write_mb_s",
	"wear",
	"zone_kib",
	"spare_percent",
	"erase_limit",
	"track_ms",
	"seek_ms",
	"full_ms",
	"latency_ms",
	"inner_mb_s",
	"members",
	"raid",
	"chunk_kib",
	"bridge_us",
	"bus_mb_s",
	"append_kib",
	"append_map_every",
};

static bool is_known(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(key, known[i]))
			return true;
	return is_text_key(key);
}

static const char *from_of(struct json_object *from, const char *key)
{
	struct json_object *v;

	return from && json_object_object_get_ex(from, key, &v) ? json_object_get_string(v) : NULL;
}

static bool starts(const char *text, const char *with)
{
	return text && !strncmp(text, with, strlen(with));
}

static void check_keys(struct reader *r)
{
	json_object_object_foreach(r->json, key, v)
	{
		const char *from = from_of(r->from, key);

		(void)v;
		if (!is_known(key))
			say(r, "nothing is called %s", key);
		else if (!is_text_key(key) && !starts(from, "printed") &&
			 !starts(from, "derived") && !starts(from, "assumed") &&
			 !starts(from, "measured") && !starts(from, "not determined"))
			say(r,
			    "the origin of %s is missing (printed, measured, derived, assumed, not "
			    "determined)",
			    key);
	}
}

/* Names that a disk reports. */
static void check_models(struct reader *r)
{
	struct json_object *v;

	if (!json_object_object_get_ex(r->json, "models", &v))
		return;
	if (!json_object_is_type(v, json_type_array))
		say(r, "models must be a list of names");
	for (size_t i = 0; !r->bad && i < json_object_array_length(v); i++) {
		struct json_object *name = json_object_array_get_idx(v, i);

		if (!json_object_is_type(name, json_type_string) ||
		    !json_object_get_string_len(name))
			say(r, "models must be a list of names");
	}
}

static void take_bool(struct reader *r, const char *key, bool *ret)
{
	struct json_object *v;

	if (!json_object_object_get_ex(r->json, key, &v))
		return;
	if (!json_object_is_type(v, json_type_boolean))
		say(r, "%s must be true or false", key);
	else
		*ret = json_object_get_boolean(v);
}

/* ---- derived ---- */

static uint64_t at_least(int64_t v, uint64_t min)
{
	return v < (int64_t)min ? min : (uint64_t)v;
}

/* f and the cost of growth, from rows of an iozone table. Then the extra cost of a scattered write,
 * G, and from that the copy rate. */
static void derive_card(struct reader *r, struct flash_profile *p)
{
	int64_t linear = (int64_t)flash_write_ns(p, COW_BLK_BYTES), extra;
	uint64_t rewrite = take_per_s(r, "sync_rewrite_per_s"),
		 first = take_per_s(r, "sync_write_per_s");
	uint64_t scattered = take_per_s(r, "random_write_per_s"), access = 0, seen;

	take(r, "access_ms", 0, 10000, 1e6, &access);
	seen = take_per_s(r, "random_read_per_s");
	if (seen)
		p->random_read_ns = seen;
	else if (has(r, "access_ms") || !p->random_read_ns)
		p->random_read_ns = access + flash_read_ns(p, COW_BLK_BYTES);
	if (rewrite)
		p->sync_ns = (int64_t)rewrite - linear;
	if (rewrite && first)
		p->alloc_ns = (int64_t)first - (int64_t)rewrite;
	if (!scattered || has(r, "copy_mb_s"))
		return;
	extra = (int64_t)scattered - linear - p->sync_ns;
	if (p->absorb > 1)
		extra *= p->absorb;
	extra -= (int64_t)p->merge_ns;
	if (extra <= 0) {
		say(r,
		    "scattered writes cannot be as fast as linear ones: give absorb or copy_mb_s");
		return;
	}
	seen = p->unit_bytes - (p->absorb > 1 ? 0 : COW_BLK_BYTES);
	p->copy_bytes_per_s = at_least((int64_t)mul_div_u64(seen, 1000000000u, (uint64_t)extra), 1);
}

static void derive_disk(struct reader *r, struct flash_profile *p)
{
	uint64_t access = take_per_s(r, "random_read_per_s");

	if (access)
		access = at_least((int64_t)(access - flash_read_ns(p, COW_BLK_BYTES)), 0);
	take(r, "access_ms", 0, 10000, 1e6, &access);
	if (!has(r, "seek_ms"))
		p->seek_ns = at_least((int64_t)(access - p->latency_ns), 0);
	if (!has(r, "track_ms"))
		p->track_ns = p->seek_ns;
	if (!has(r, "full_ms"))
		p->full_ns = p->seek_ns;
	p->random_read_ns = p->seek_ns + p->latency_ns + flash_read_ns(p, COW_BLK_BYTES);
}

static void check_card(struct reader *r, const struct flash_profile *p)
{
	if (!p->unit_bytes || p->unit_bytes % COW_BLK_BYTES)
		say(r, "unit_kib must be a multiple of 4");
	else if (!p->copy_bytes_per_s)
		say(r, "copy_mb_s is missing, and so is random_write_per_s to derive it from");
	else if (p->open_random > p->open_units)
		say(r, "open_random cannot be more than open_units");
	else if (p->wear == FLASH_WEAR_ZONE && p->zone_bytes < p->unit_bytes)
		say(r, "zone_kib must be at least unit_kib");
}

static void read_units(struct reader *r, struct flash_profile *p)
{
	static const char *const wears[] = { "none", "dynamic", "zone", "global" };
	uint64_t v;
	int w;

	v = p->page_bytes;
	take(r, "page_kib", 0.5, 1024, 1024, &v);
	p->page_bytes = (uint32_t)v;
	take(r, "unit_kib", 4, 1 << 20, 1024, &p->unit_bytes);
	take_unsigned(r, "open_units", 1, 1024, &p->open_units);
	take_unsigned(r, "open_random", 0, 1024, &p->open_random);
	take_unsigned(r, "absorb", 1, 1e6, &p->absorb);
	take(r, "copy_mb_s", 0.001, 1e7, 1e6, &p->copy_bytes_per_s);
	take(r, "merge_ms", 0, 10000, 1e6, &p->merge_ns);
	v = p->discard_us;
	take(r, "discard_ms", 0, 10000, 1e3, &v);
	p->discard_us = (uint32_t)v;
	w = take_word(r, "wear", wears, ARRAY_SIZE(wears));
	if (w >= 0)
		p->wear = (enum flash_wear)w;
	take(r, "zone_kib", 4, 1 << 30, 1024, &p->zone_bytes);
	v = p->spare_ppm;
	take(r, "spare_percent", 0, 100, 10000, &v);
	p->spare_ppm = (uint32_t)v;
	v = p->erase_limit;
	take(r, "erase_limit", 0, 1e9, 1, &v);
	p->erase_limit = (uint32_t)v;
}

/* Keys of disks, arrays, and the appending layer. */
static void read_disks(struct reader *r, struct flash_profile *p)
{
	take(r, "track_ms", 0, 1000, 1e6, &p->track_ns);
	take(r, "seek_ms", 0, 1000, 1e6, &p->seek_ns);
	take(r, "full_ms", 0, 1000, 1e6, &p->full_ns);
	take(r, "latency_ms", 0, 1000, 1e6, &p->latency_ns);
	take(r, "inner_mb_s", 0.001, 1e5, 1e6, &p->inner_bytes_per_s);
	take_unsigned(r, "members", 1, 64, &p->members);
	take_unsigned(r, "raid", 0, 10, &p->raid_level);
	take(r, "chunk_kib", 4, 1 << 20, 1024, &p->chunk_bytes);
	take(r, "bridge_us", 0, 1e6, 1e3, &p->bridge_ns);
	take(r, "bus_mb_s", 0.001, 1e5, 1e6, &p->bus_bytes_per_s);
	take(r, "append_kib", 4, 1 << 20, 1024, &p->append_bytes);
	p->append_bytes = round_down_u64(p->append_bytes, COW_BLK_BYTES);
	take_unsigned(r, "append_map_every", 1, 1 << 20, &p->append_map_every);
}

static void read_one(struct reader *r, struct flash_profile *p)
{
	static const char *const classes[] = { "card", "disk" };
	bool plan = true;
	int w;

	take_text(r, "title", p->title, sizeof(p->title));
	take_text(r, "source", p->source, sizeof(p->source));
	take_text(r, "identity", p->identity, sizeof(p->identity));
	take_bool(r, "plan", &plan);
	p->unconfirmed = !plan;
	w = take_word(r, "class", classes, ARRAY_SIZE(classes));
	if (w >= 0)
		p->class = (enum flash_class)w;
	take(r, "capacity_gb", 1e-4, 1e6, 1e9, &p->capacity_bytes);
	p->capacity_bytes = round_down_u64(p->capacity_bytes, COW_BLK_BYTES);
	take_speed(r, "read_mb_s", "read_overhead_ms", &p->read);
	take_speed(r, "write_mb_s", "write_overhead_ms", &p->write);
	if (has(r, "write_mb_s"))
		p->has_write = p->class == FLASH_CARD &&
			       !starts(from_of(r->from, "write_mb_s"), "assumed");
	if (has(r, "front_mib")) {
		p->front_read = p->read;
		p->front_write = p->write;
	}
	take(r, "front_mib", 0, 1e6, (double)MIB, &p->front_bytes);
	take_speed(r, "front_read_mb_s", "-", &p->front_read);
	take_speed(r, "front_write_mb_s", "-", &p->front_write);
	take(r, "cheat_mib", 0, 65536, (double)MIB, &p->cheat_bytes);
	read_units(r, p);
	read_disks(r, p);
	if (!p->read.affine && !p->read.table_ns[0])
		say(r, "read_mb_s is missing");
	else if (!p->write.affine && !p->write.table_ns[0])
		say(r, "write_mb_s is missing");
	else if (!p->capacity_bytes)
		say(r, "capacity_gb is missing");
	if (r->bad)
		return;
	if (p->class == FLASH_DISK) {
		derive_disk(r, p);
	} else {
		derive_card(r, p);
		check_card(r, p);
	}
}

static int profile_read(struct flash_profiles *ps, const char *id, struct json_object *json,
			char *why, size_t why_bytes)
{
	struct reader r = { .json = json, .why = why, .why_bytes = why_bytes, .id = id };
	struct flash_profile p = { .open_units = 1, .absorb = 1, .members = 1, .page_bytes = 4096 };
	struct json_object *v;

	if (!json_object_is_type(json, json_type_object) || !*id || strlen(id) >= sizeof(p.id)) {
		say(&r, "not an object with a name of less than %zu bytes", sizeof(p.id));
		return -EINVAL;
	}
	json_object_object_get_ex(json, "from", &r.from);
	if (json_object_object_get_ex(json, "member", &v)) {
		const char *member = json_object_get_string(v);
		const struct flash_profile *m = flash_profiles_find(ps, member ? member : "");

		if (m)
			p = *m;
		else
			say(&r, "its member '%s' is not defined above it",
			    member ? member : "null");
	}
	snprintf(p.id, sizeof(p.id), "%s", id);
	check_keys(&r);
	check_models(&r);
	if (!r.bad)
		read_one(&r, &p);
	if (r.bad)
		return -EINVAL;
	ps->profile[ps->n] = p;
	ps->json[ps->n++] = json;
	return 0;
}

/* ---- files ---- */

static int file_text(const char *path, char **ret, size_t *ret_len, char *why, size_t why_bytes)
{
	_cleanup_close_ int fd = path_open_ours(path);
	_cleanup_free_ char *text = malloc(FILE_MAX_BYTES + 1);
	size_t len = 0;
	ssize_t n = 1;
	int r;

	if (!text)
		return -ENOMEM;
	while (fd >= 0 && len < FILE_MAX_BYTES &&
	       (n = read(fd, text + len, FILE_MAX_BYTES - len)) > 0)
		len += (size_t)n;
	if (fd < 0 || n < 0) {
		r = fd < 0 ? fd : -errno;
		snprintf(why, why_bytes, "%s", r == -EPERM ? PATH_NOT_OURS : strerror(-r));
		return r;
	}
	if (len == FILE_MAX_BYTES) {
		snprintf(why, why_bytes, "too long");
		return -EFBIG;
	}
	text[len] = 0;
	*ret = steal_ptr(text);
	*ret_len = len;
	return 0;
}

static int add_all(struct flash_profiles *ps, struct json_object *file, char *why, size_t why_bytes)
{
	json_object_object_foreach(file, id, json)
	{
		int r;

		if (!strcmp(id, "//"))
			continue;
		if (ps->n == PROFILES_MAX) {
			snprintf(why, why_bytes, "more than %d profiles", PROFILES_MAX);
			return -EINVAL;
		}
		if (flash_profiles_find(ps, id)) {
			snprintf(why, why_bytes,
				 "profile '%s' is defined twice, or has the id of a built-in one",
				 id);
			return -EEXIST;
		}
		r = profile_read(ps, id, json, why, why_bytes);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Objects that follow each other. */
static int add_text(struct flash_profiles *ps, const char *text, size_t len, char *why,
		    size_t why_bytes)
{
	struct json_tokener *tok = json_tokener_new();
	size_t at = 0;
	int r = tok ? 0 : -ENOMEM;

	while (r == 0 && (at == 0 || at < len)) {
		struct json_object *o = json_tokener_parse_ex(tok, text + at, (int)(len - at));
		enum json_tokener_error e = json_tokener_get_error(tok);

		at += json_tokener_get_parse_end(tok);
		if (!json_object_is_type(o, json_type_object)) {
			snprintf(why, why_bytes, "not a JSON object: %s at byte %zu",
				 e == json_tokener_success ? "another type"
							   : json_tokener_error_desc(e),
				 at);
			json_object_put(o);
			r = -EINVAL;
			break;
		}
		json_object_array_add(ps->files, o);
		r = add_all(ps, o, why, why_bytes);
		while (at < len && isspace((unsigned char)text[at]))
			at++;
	}
	if (tok)
		json_tokener_free(tok);
	return r;
}

int flash_profiles_parse(struct flash_profiles **ret, const char *text, size_t len, char *why,
			 size_t why_bytes)
{
	struct flash_profiles *ps = calloc(1, sizeof(*ps));
	int r = -ENOMEM;

	snprintf(why, why_bytes, "no memory");
	if (!ps)
		return r;
	ps->files = json_object_new_array();
	ps->profile = calloc(PROFILES_MAX, sizeof(*ps->profile));
	ps->json = calloc(PROFILES_MAX, sizeof(struct json_object *));
	if (ps->files && ps->profile && ps->json)
		r = add_text(ps, flash_profiles_json, strlen(flash_profiles_json), why, why_bytes);
	ps->first_own = ps->n;
	if (!r && text)
		r = add_text(ps, text, len, why, why_bytes);
	if (r < 0) {
		flash_profiles_close(ps);
		return r;
	}
	*ret = ps;
	return 0;
}

int flash_profiles_open(struct flash_profiles **ret, const char *path, char *why, size_t why_bytes)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int r = path ? file_text(path, &text, &len, why, why_bytes) : 0;

	return r < 0 ? r : flash_profiles_parse(ret, text, len, why, why_bytes);
}

void flash_profiles_close(struct flash_profiles *ps)
{
	if (!ps)
		return;
	json_object_put(ps->files);
	free(ps->profile);
	free(ps->json);
	free(ps);
}

size_t flash_profiles_count(const struct flash_profiles *ps)
{
	return ps->n;
}

const struct flash_profile *flash_profiles_at(const struct flash_profiles *ps, size_t i)
{
	return i < ps->n ? &ps->profile[i] : NULL;
}

const struct flash_profile *flash_profiles_find(const struct flash_profiles *ps, const char *id)
{
	for (size_t i = 0; i < ps->n; i++)
		if (!strcmp(ps->profile[i].id, id))
			return &ps->profile[i];
	return NULL;
}

size_t flash_profiles_first_own(const struct flash_profiles *ps)
{
	return ps->first_own;
}

int flash_profile_costs(const struct flash_profile *p, struct card_costs *ret)
{
	bool disk = p->class == FLASH_DISK;

	if (p->members > 1 || p->append_bytes)
		return -EINVAL;
	*ret = (struct card_costs){
		.unconfirmed = p->unconfirmed,
		.write = p->write,
		.unit_bytes = disk ? 0 : p->unit_bytes,
		.open_units = p->open_units,
		.open_random = p->open_random,
		.absorb = p->absorb,
		.copy_bytes_per_s = p->copy_bytes_per_s,
		.merge_ns = disk ? 0 : p->merge_ns,
		.sync_ns = flash_sync_ns(p),
		.seek_ns = disk ? p->seek_ns + p->latency_ns : 0,
	};
	memcpy(ret->id, p->id, sizeof(ret->id));
	memcpy(ret->identity, p->identity, sizeof(ret->identity));
	return 0;
}

static void write_number(FILE *f, const char *key, uint64_t v, uint64_t unsaid)
{
	if (v != unsaid)
		fprintf(f, "%s = %llu\n", key, (unsigned long long)v);
}

static void write_speed(FILE *f, const struct flash_speed *s)
{
	fputs("write_ns =", f);
	for (unsigned i = 0; i < FLASH_TABLE; i += s->affine ? FLASH_TABLE - 1 : 1)
		fprintf(f, " %llu", (unsigned long long)flash_speed_ns(s, 4096u << i));
	putc('\n', f);
}

/* The section of the file that costs_read reads. models NULL: none. An array has none. */
static void write_section(FILE *f, const struct flash_profile *p, struct json_object *models)
{
	struct card_costs c;

	if (flash_profile_costs(p, &c) < 0)
		return;
	fprintf(f, "\n[%s]\ntitle = %s\nsource = %s\n", p->id, p->title, p->source);
	if (*p->identity)
		fprintf(f, "identity = %s\n", p->identity);
	for (size_t i = 0; models && i < json_object_array_length(models); i++)
		fprintf(f, "%s%s%s", i ? ", " : "models = ",
			json_object_get_string(json_object_array_get_idx(models, i)),
			i + 1 == json_object_array_length(models) ? "\n" : "");
	if (c.unconfirmed)
		fputs("plan = no\n", f);
	write_number(f, "unit_bytes", c.unit_bytes, 0);
	write_number(f, "open_units", c.open_units, 1);
	write_number(f, "open_random", c.open_random, 0);
	write_number(f, "absorb", c.absorb, 1);
	write_speed(f, &c.write);
	write_number(f, "copy_bytes_per_s", c.copy_bytes_per_s, 0);
	write_number(f, "merge_ns", c.merge_ns, 0);
	write_number(f, "sync_ns", c.sync_ns, 0);
	write_number(f, "seek_ns", c.seek_ns, 0);
}

void flash_profiles_write(FILE *f, const struct flash_profiles *ps, bool own)
{
	struct json_object *models;

	for (size_t i = own ? ps->first_own : 0; i < (own ? ps->n : ps->first_own); i++)
		write_section(f, &ps->profile[i],
			      json_object_object_get_ex(ps->json[i], "models", &models) ? models
											: NULL);
}

int flash_profile_get(struct flash_profile *ret, const char *id)
{
	const struct flash_profile *p;
	struct flash_profiles *ps;
	char why[256];
	int r = flash_profiles_open(&ps, NULL, why, sizeof(why));

	if (r < 0)
		return r;
	p = flash_profiles_find(ps, id);
	if (p)
		*ret = *p;
	flash_profiles_close(ps);
	return p ? 0 : -ENOENT;
}

struct json_object *flash_profiles_raw(const struct flash_profiles *ps, size_t i)
{
	return i < ps->n ? ps->json[i] : NULL;
}
