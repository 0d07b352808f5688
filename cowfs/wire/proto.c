/* SPDX-License-Identifier: MIT */
/*
 * The request parser is a plain recursive-descent reader of JSON that remembers the few top-level
 * fields it knows and checks the form of the rest. The daemon uses it instead of a library,
 * because a library allocates and may abort when it cannot.
 */
#include "wire/proto.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct reader {
	const char *p, *end;
	unsigned depth;
};

enum value_kind { VALUE_NULL, VALUE_BOOL, VALUE_NUMBER, VALUE_STRING, VALUE_OBJECT, VALUE_ARRAY };

struct value {
	enum value_kind kind;
	const char *text; /* as written; a string without its quotes */
	size_t len;
};

static int read_value(struct reader *r, struct value *ret);

static void skip_space(struct reader *r)
{
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || *r->p == '\n'))
		r->p++;
}

/* the next character after white space, 0 at the end */
static char peek(struct reader *r)
{
	skip_space(r);
	return r->p < r->end ? *r->p : '\0';
}

static bool take(struct reader *r, char c)
{
	if (peek(r) != c || r->p == r->end)
		return false;
	r->p++;
	return true;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static int read_string(struct reader *r, struct value *ret)
{
	const char *start;

	if (!take(r, '"'))
		return -EINVAL;
	for (start = r->p; r->p < r->end; r->p++) {
		if (*r->p == '"') {
			*ret = (struct value){ VALUE_STRING, start, (size_t)(r->p++ - start) };
			return 0;
		}
		if ((unsigned char)*r->p < 0x20)
			return -EINVAL;
		if (*r->p != '\\')
			continue;
		if (++r->p == r->end || !*r->p || !strchr("\"\\/bfnrtu", *r->p))
			return -EINVAL;
		if (*r->p != 'u')
			continue;
		if (r->end - r->p < 5)
			return -EINVAL;
		for (int i = 0; i < 4; i++)
			if (!is_hex(*++r->p))
				return -EINVAL;
	}
	return -EINVAL;
}

static bool digits(struct reader *r)
{
	const char *start = r->p;

	while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
		r->p++;
	return r->p > start;
}

static int read_number(struct reader *r, struct value *ret)
{
	const char *start = r->p;

	if (r->p < r->end && *r->p == '-')
		r->p++;
	if (r->p < r->end && *r->p == '0')
		r->p++; /* no leading zeros */
	else if (!digits(r))
		return -EINVAL;
	if (r->p < r->end && *r->p == '.') {
		r->p++;
		if (!digits(r))
			return -EINVAL;
	}
	if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
		r->p++;
		if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
			r->p++;
		if (!digits(r))
			return -EINVAL;
	}
	*ret = (struct value){ VALUE_NUMBER, start, (size_t)(r->p - start) };
	return 0;
}

static int read_word(struct reader *r, struct value *ret)
{
	static const struct {
		const char *word;
		enum value_kind kind;
	} words[] = { { "true", VALUE_BOOL }, { "false", VALUE_BOOL }, { "null", VALUE_NULL } };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		size_t len = strlen(words[i].word);

		if ((size_t)(r->end - r->p) < len || memcmp(r->p, words[i].word, len))
			continue;
		*ret = (struct value){ words[i].kind, r->p, len };
		r->p += len;
		return 0;
	}
	return -EINVAL;
}

/* Calls field for each member; field NULL: form only. */
static int read_object(struct reader *r,
		       int (*field)(void *ctx, const struct value *name, const struct value *v),
		       void *ctx)
{
	struct value name, v;
	int e;

	if (!take(r, '{'))
		return -EINVAL;
	if (take(r, '}'))
		return 0;
	do {
		e = read_string(r, &name);
		if (e < 0)
			return e;
		if (!take(r, ':'))
			return -EINVAL;
		e = read_value(r, &v);
		if (e == 0 && field)
			e = field(ctx, &name, &v);
		if (e < 0)
			return e;
	} while (take(r, ','));
	return take(r, '}') ? 0 : -EINVAL;
}

static int read_array(struct reader *r)
{
	struct value v;

	if (!take(r, '['))
		return -EINVAL;
	if (take(r, ']'))
		return 0;
	do {
		int e = read_value(r, &v);

		if (e < 0)
			return e;
	} while (take(r, ','));
	return take(r, ']') ? 0 : -EINVAL;
}

static int read_value(struct reader *r, struct value *ret)
{
	char c = peek(r);
	int e;

	if (c == '"')
		return read_string(r, ret);
	if (c == '-' || (c >= '0' && c <= '9'))
		return read_number(r, ret);
	if (c != '{' && c != '[')
		return read_word(r, ret);
	if (r->depth == PROTO_DEPTH)
		return -E2BIG;
	*ret = (struct value){ .kind = c == '{' ? VALUE_OBJECT : VALUE_ARRAY, .text = r->p };
	r->depth++;
	e = c == '{' ? read_object(r, NULL, NULL) : read_array(r);
	r->depth--;
	return e;
}

/* ---- fields ---- */

static const struct {
	const char *name;
	enum proto_command command;
} commands[] = {
	{ "status", COMMAND_STATUS },	{ "commit", COMMAND_COMMIT },
	{ "discard", COMMAND_DISCARD }, { "detach", COMMAND_DETACH },
	{ "inhibit", COMMAND_INHIBIT }, { "uninhibit", COMMAND_UNINHIBIT },
	{ "wear", COMMAND_WEAR },	{ "changes", COMMAND_CHANGES },
	{ "view", COMMAND_VIEW },	{ "trim", COMMAND_TRIM },
	{ "accept", COMMAND_ACCEPT },	{ "undo", COMMAND_UNDO },
	{ "renew", COMMAND_RENEW },
};

struct field {
	const char *name;
	size_t offset;
};

static const struct field numbers[] = {
	{ "first", offsetof(struct request, first) },
	{ "trial", offsetof(struct request, trial) },
	{ "replaces", offsetof(struct request, replaces) },
	{ "deadline_ms", offsetof(struct request, deadline_ms) },
	{ "seconds", offsetof(struct request, seconds) },
};

static const struct field flags[] = {
	{ "dry_run", offsetof(struct request, dry_run) },
	{ "checkpoint", offsetof(struct request, checkpoint) },
	{ "force", offsetof(struct request, force) },
	{ "hold", offsetof(struct request, hold) },
	{ "held", offsetof(struct request, held) },
	{ "no_wait", offsetof(struct request, no_wait) },
	{ "timer", offsetof(struct request, timer) },
	{ "shutdown", offsetof(struct request, shutdown) },
	{ "cancel", offsetof(struct request, cancel) },
	{ "on_trial", offsetof(struct request, on_trial) },
	{ "discard", offsetof(struct request, discard) },
	{ "now", offsetof(struct request, now) },
	{ "scratch", offsetof(struct request, scratch) },
	{ "when_unmounted", offsetof(struct request, when_unmounted) },
};

struct parse {
	struct request rq;
	bool have_version, have_command;
	char *why;
	size_t why_bytes;
};

static bool is(const struct value *v, const char *s)
{
	return v->len == strlen(s) && !memcmp(v->text, s, v->len);
}

static int take_command(struct parse *ps, const struct value *v)
{
	if (v->kind != VALUE_STRING) {
		snprintf(ps->why, ps->why_bytes, "the field 'command' must be a string");
		return -EINVAL;
	}
	ps->have_command = true;
	ps->rq.command = COMMAND_NONE;
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (is(v, commands[i].name))
			ps->rq.command = commands[i].command;
	if (ps->rq.command == COMMAND_NONE) {
		snprintf(ps->why, ps->why_bytes, "unknown command '%.*s'", (int)min_u64(v->len, 32),
			 v->text);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int take_number(struct parse *ps, const struct field *to, const struct value *v)
{
	uint64_t n = 0;

	for (size_t i = 0; i < v->len && v->kind == VALUE_NUMBER && n <= UINT32_MAX; i++) {
		if (v->text[i] < '0' || v->text[i] > '9')
			break;
		n = n * 10 + (uint64_t)(v->text[i] - '0');
		if (i + 1 == v->len && n <= UINT32_MAX) {
			*(uint64_t *)((char *)&ps->rq + to->offset) = n;
			return 0;
		}
	}
	snprintf(ps->why, ps->why_bytes, "the field '%s' must be a whole number", to->name);
	return -EINVAL;
}

static int take_field(void *ctx, const struct value *name, const struct value *v)
{
	struct parse *ps = ctx;

	if (is(name, "command"))
		return take_command(ps, v);
	if (is(name, "version")) {
		ps->have_version = true;
		if (v->kind == VALUE_NUMBER && is(v, "1"))
			return 0;
		snprintf(ps->why, ps->why_bytes,
			 "this daemon speaks version %u of the protocol only", PROTO_VERSION);
		return -EPROTONOSUPPORT;
	}
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (is(name, numbers[i].name))
			return take_number(ps, &numbers[i], v);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (!is(name, flags[i].name))
			continue;
		if (v->kind != VALUE_BOOL) {
			snprintf(ps->why, ps->why_bytes, "the field '%s' must be true or false",
				 flags[i].name);
			return -EINVAL;
		}
		*(bool *)((char *)&ps->rq + flags[i].offset) = is(v, "true");
	}
	return 0;
}

int request_parse(const char *line, size_t len_bytes, struct request *ret, char *why,
		  size_t why_bytes)
{
	struct parse ps = { .why = why, .why_bytes = why_bytes };
	struct reader r = { .p = line, .end = line + len_bytes, .depth = 1 };
	int e;

	snprintf(why, why_bytes, "%s", "");
	if (len_bytes >= PROTO_LINE_BYTES) {
		snprintf(why, why_bytes, "the request is longer than %llu KiB",
			 PROTO_LINE_BYTES / KIB);
		return -E2BIG;
	}
	e = read_object(&r, take_field, &ps);
	skip_space(&r);
	if (e == 0 && r.p != r.end)
		e = -EINVAL;
	if (e == 0 && (!ps.have_version || !ps.have_command)) {
		snprintf(why, why_bytes, "the request has no '%s'",
			 ps.have_version ? "command" : "version");
		e = -EINVAL;
	}
	if (e < 0) {
		if (!*why)
			snprintf(why, why_bytes,
				 e == -E2BIG ? "the request is nested too deep"
					     : "the request is not a JSON object");
		return e;
	}
	*ret = ps.rq;
	return 0;
}

size_t request_render(const struct request *rq, char *buf, size_t size_bytes)
{
	struct jsonw w;

	jsonw_init(&w, buf, size_bytes);
	jsonw_object(&w, NULL);
	jsonw_u64(&w, "version", PROTO_VERSION);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].command == rq->command)
			jsonw_str(&w, "command", commands[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (*(const bool *)((const char *)rq + flags[i].offset))
			jsonw_bool(&w, flags[i].name, true);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		uint64_t n = *(const uint64_t *)((const char *)rq + numbers[i].offset);

		if (n)
			jsonw_u64(&w, numbers[i].name, n);
	}
	return jsonw_finish(&w);
}

void answer_ok(struct jsonw *w)
{
	jsonw_object(w, NULL);
	jsonw_bool(w, "ok", true);
	jsonw_u64(w, "schema", JSON_SCHEMA);
}

void answer_error(struct jsonw *w, int error, enum exit_code exit, const char *why)
{
	const char *code = strerrorname_np(-error);

	jsonw_object(w, NULL);
	jsonw_bool(w, "ok", false);
	jsonw_u64(w, "schema", JSON_SCHEMA);
	jsonw_str(w, "error",
		  why && *why		    ? why
		  : strerrordesc_np(-error) ? strerrordesc_np(-error)
					    : "?");
	jsonw_str(w, "code", code ? code : "EIO");
	jsonw_u64(w, "exit", exit);
}
