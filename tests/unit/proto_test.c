/* SPDX-License-Identifier: MIT */
/* The request parser against invalid input, and against json-c; the JSON writer; the line
 * buffer. */
#include "test.h"

#include <json-c/json.h>

#include "wire/linebuf.h"
#include "wire/proto.h"

static struct request rq;
static char why[200];

/* In a block of its own size, so that a sanitizer detects an access one byte beyond it. */
static int parse_bytes(const char *bytes, size_t len)
{
	char *exact = malloc(len ? len : 1);
	int e;

	memcpy(exact, bytes, len);
	memset(&rq, 0x5a, sizeof(rq));
	e = request_parse(exact, len, &rq, why, sizeof(why));
	free(exact);
	assert_true(e == 0 || *why);
	return e;
}

static int parse(const char *text)
{
	return parse_bytes(text, strlen(text));
}

TEST(test_good)
{
	assert_int_equal(parse("{\"version\":1,\"command\":\"status\"}"), 0);
	assert_int_equal(rq.command, COMMAND_STATUS);
	assert_false(rq.dry_run || rq.checkpoint || rq.force || rq.no_wait || rq.cancel ||
		     rq.discard);
	assert_int_equal(parse(" {\t\"dry_run\" : true,\"command\":\"commit\" , \"version\":1, "
			       "\"force\":false} \r"),
			 0);
	assert_int_equal(rq.command, COMMAND_COMMIT);
	assert_true(rq.dry_run);
	assert_false(rq.force);
	/* unknown fields of any kind are ignored */
	assert_int_equal(
		parse("{\"x\":[1,{\"command\":3},-0.5e+7,null,\"\\u00e4\\n\"],\"version\":1,"
		      "\"command\":\"detach\",\"discard\":true,\"y\":{}}"),
		0);
	assert_int_equal(rq.command, COMMAND_DETACH);
	assert_true(rq.discard);
}

TEST(test_bad)
{
	static const struct {
		const char *text;
		int error;
	} bad[] = {
		{ "", -EINVAL },
		{ "{", -EINVAL },
		{ "{}", -EINVAL },
		{ "[]", -EINVAL },
		{ "null", -EINVAL },
		{ "status", -EINVAL },
		{ "\"status\"", -EINVAL },
		{ "{\"version\":1}", -EINVAL },
		{ "{\"command\":\"status\"}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\"} x", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\"}{}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",}", -EINVAL },
		{ "{\"version\":1 \"command\":\"status\"}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status}", -EINVAL },
		{ "{\"version\":1,\"command\":\"sta\\qtus\"}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",\"x\":\"\\u12g4\"}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",\"x\":\"\\u1", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",\"x\":\"\\", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",\"x\":01}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",\"x\":1.}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",\"x\":-}", -EINVAL },
		{ "{\"version\":1,\"command\":\"status\",\"x\":truth}", -EINVAL },
		{ "{\"version\":1,\"command\":7}", -EINVAL },
		{ "{\"version\":1,\"command\":\"commit\",\"dry_run\":\"yes\"}", -EINVAL },
		{ "{\"version\":1,\"command\":\"commit\",\"dry_run\":1}", -EINVAL },
		{ "{\"version\":2,\"command\":\"status\"}", -EPROTONOSUPPORT },
		{ "{\"version\":\"1\",\"command\":\"status\"}", -EPROTONOSUPPORT },
		{ "{\"version\":1.0,\"command\":\"status\"}", -EPROTONOSUPPORT },
		{ "{\"version\":1,\"command\":\"reboot\"}", -EOPNOTSUPP },
		{ "{\"version\":1,\"command\":\"\"}", -EOPNOTSUPP },
		{ "{\"version\":1,\"command\":\"statu\"}", -EOPNOTSUPP },
		{ "{\"version\":1,\"command\":\"status\\u0000\"}", -EOPNOTSUPP },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (parse(bad[i].text) != bad[i].error)
			fail_msg("%s: %d, %s", bad[i].text, parse(bad[i].text), why);
	assert_int_equal(parse_bytes("{\"version\":1,\"command\":\"status\"\0}", 33), -EINVAL);
	assert_int_equal(parse_bytes("{\"version\":1,\"command\":\"status\"}\0", 33), -EINVAL);
	parse("{\"version\":1,\"command\":\"reboot\"}");
	assert_non_null(strstr(why, "reboot"));
}

TEST(test_deep_and_long)
{
	static const char head[] = "{\"version\":1,\"command\":\"status\",\"x\":";
	static char text[PROTO_LINE_BYTES + 16];
	size_t n;

	n = (size_t)sprintf(text, "%s%s%s}", head, "[[[[[[[", "]]]]]]]");
	assert_int_equal(parse_bytes(text, n), 0); /* 7 and the object */
	n = (size_t)sprintf(text, "%s%s%s}", head, "[[[[[[[[", "]]]]]]]]");
	assert_int_equal(parse_bytes(text, n), -E2BIG);
	n = (size_t)sprintf(text, "%s", head);
	memset(text + n, '[', PROTO_LINE_BYTES - n - 1);
	assert_int_equal(parse_bytes(text, PROTO_LINE_BYTES - 1), -E2BIG);
	memset(text + n, ' ', PROTO_LINE_BYTES + 1 - n);
	memcpy(text + PROTO_LINE_BYTES - 3, "1}", 2);
	assert_int_equal(parse_bytes(text, PROTO_LINE_BYTES - 1), 0);
	assert_int_equal(parse_bytes(text, PROTO_LINE_BYTES), -E2BIG);
}

static uint32_t seed = 12345;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

/* json-c accepts everything that the parser accepts, with the same result. (It is more lenient, so
 * not the reverse.) */
static void compare(const char *text, size_t len)
{
	struct json_tokener *tok;
	struct json_object *o;
	const char *command;

	if (parse_bytes(text, len) < 0)
		return;
	tok = json_tokener_new();
	o = json_tokener_parse_ex(tok, text, (int)len);
	if (!o)
		fail_msg("json-c does not take: %.*s", (int)len, text);
	command = json_object_get_string(json_object_object_get(o, "command"));
	assert_int_equal(rq.command == COMMAND_COMMIT, !strcmp(command, "commit"));
	assert_int_equal(rq.dry_run, json_object_get_boolean(json_object_object_get(o, "dry_run")));
	json_object_put(o);
	json_tokener_free(tok);
}

TEST(test_mutations)
{
	static const char base[] = "{\"version\":1,\"command\":\"commit\",\"dry_run\":true,\"x\":["
				   "1,-2.5e3,\"a\\u0041\\n\"],"
				   "\"y\":{\"z\":null,\"w\":[]}}";
	static const char charset[] = "{}[]\",:\\0123456789-+.eEtfnu alsrcomid\n\t\x01\xff";
	char text[256];

	for (int i = 0; i < 200000; i++) {
		size_t len = sizeof(base) - 1;

		memcpy(text, base, len);
		for (uint32_t k = draw(3) + 1; k; k--) {
			size_t at = draw((uint32_t)len);

			switch (draw(3)) {
			case 0:
				text[at] = charset[draw(sizeof(charset) - 1)];
				break;
			case 1:
				memmove(text + at, text + at + 1, --len - at);
				break;
			default:
				memmove(text + at + 1, text + at, len++ - at);
				break;
			}
		}
		compare(text, draw(8) ? len : draw((uint32_t)len));
	}
}

TEST(test_render)
{
	const struct request all = { .command = COMMAND_COMMIT,
				     .dry_run = true,
				     .checkpoint = true,
				     .force = true,
				     .no_wait = true,
				     .cancel = true,
				     .discard = true,
				     .seconds = 7,
				     .timer = true,
				     .shutdown = true,
				     .deadline_ms = 9,
				     .first = 8,
				     .scratch = true,
				     .now = true };
	char text[512];
	size_t len = request_render(&all, text, sizeof(text));

	assert_true(len && text[len - 1] == '\n');
	assert_int_equal(parse_bytes(text, len - 1), 0);
	assert_int_equal(rq.command, all.command);
	assert_int_equal(rq.deadline_ms, 9);
	assert_true(rq.dry_run && rq.checkpoint && rq.force && rq.no_wait && rq.cancel &&
		    rq.discard && rq.timer && rq.shutdown && rq.seconds == 7 && rq.first == 8 &&
		    rq.scratch && rq.now);
	assert_int_equal(request_render(&all, text, 20), 0);
}

TEST(test_writer)
{
	char text[256];
	struct json_object *o;
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	jsonw_object(&w, NULL);
	jsonw_str(&w, "s", "a\"b\\c\n\x7f\xc3\xa4\xff\xed\xa0\x80");
	jsonw_u64(&w, "u", UINT64_MAX);
	jsonw_seconds(&w, "t", 1250000999);
	jsonw_uuid(&w, "i", (const uint8_t *)"0123456789abcdef");
	jsonw_array(&w, "a");
	jsonw_bool(&w, NULL, true);
	jsonw_object(&w, NULL);
	assert_true(jsonw_finish(&w));
	assert_null(memchr(text, '\n', strlen(text) - 1));
	o = json_tokener_parse(text);
	assert_non_null(o);
	assert_string_equal(
		json_object_get_string(json_object_object_get(o, "s")),
		"a\"b\\c\n\x7f\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	assert_true(json_object_get_uint64(json_object_object_get(o, "u")) == UINT64_MAX);
	assert_string_equal(json_object_to_json_string(json_object_object_get(o, "t")), "1.250000");
	assert_string_equal(json_object_get_string(json_object_object_get(o, "i")),
			    "30313233-3435-3637-3839-616263646566");
	assert_int_equal(json_object_array_length(json_object_object_get(o, "a")), 2);
	json_object_put(o);
	for (size_t size = 0; size < 64; size++) { /* never beyond its buffer, and reports it */
		char *small = malloc(size + 1);

		small[size] = 'x';
		jsonw_init(&w, small, size);
		answer_error(&w, -EFBIG, EXIT_FAILED, "too large for this");
		assert_int_equal(jsonw_finish(&w), 0);
		assert_int_equal(small[size], 'x');
		free(small);
	}
}

TEST(test_answer)
{
	char text[256];
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	answer_error(&w, -EFBIG, EXIT_FAILED, "no");
	jsonw_finish(&w);
	assert_string_equal(
		text,
		"{\"ok\":false,\"schema\":1,\"error\":\"no\",\"code\":\"EFBIG\",\"exit\":1}\n");
}

TEST(test_linebuf)
{
	struct linebuf b = { .max_bytes = 4096 };
	const char *line;
	char big[5000];
	size_t len;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(linebuf_fill(&b, fds[0]), -EAGAIN);
	assert_int_equal(write(fds[1], "one\ntwo\nthr", 11), 11);
	assert_int_equal(linebuf_fill(&b, fds[0]), 11);
	line = linebuf_line(&b, &len);
	assert_memory_equal(line, "one", len);
	linebuf_drop_line(&b, len);
	line = linebuf_line(&b, &len);
	assert_memory_equal(line, "two", len);
	linebuf_drop_line(&b, len);
	assert_null(linebuf_line(&b, &len));
	memset(big, 'x', sizeof(big));
	assert_int_equal(write(fds[1], big, sizeof(big)), sizeof(big));
	while ((len = (size_t)linebuf_fill(&b, fds[0])) <= 4096)
		;
	assert_int_equal((ssize_t)len, -E2BIG);
	assert_int_equal(b.len, 4096);
	linebuf_free(&b);
	assert_int_equal(linebuf_append(&b, big, 4000), 0);
	assert_int_equal(linebuf_append(&b, big, 97), -ENOBUFS);
	assert_int_equal(b.len, 4000);
	assert_int_equal(linebuf_flush(&b, fds[0]), 0);
	assert_int_equal(b.len, 0);
	close(fds[1]);
	while ((len = (size_t)linebuf_fill(&b, fds[0])) && len <= 4096)
		;
	linebuf_free(&b);
	close(fds[0]);
}
