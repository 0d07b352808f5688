/* SPDX-License-Identifier: MIT */
/* Text from outside in one line of a terminal, a log, JSON: replaced and unchanged characters. */
#include "test.h"
#include <json-c/json.h>

#include "base/clean.h"
#include "base/msg.h"
#include "wire/jsonw.h"

static const struct {
	const char *text, *clean;
} table[] = {
	{ "", "" },
	{ "plain text, ~!@#$%^&*()\\\"'", "plain text, ~!@#$%^&*()\\\"'" },
	{ "x\nvol alarm", "x?vol alarm" },
	{ "\r\t\v\b\x7f\x1b[2J", "??????[2J" },
	/* two, three and four bytes that are characters */
	{ "K\xc3\xa4se \xe2\x82\xac \xf0\x9f\x90\x84",
	  "K\xc3\xa4se \xe2\x82\xac \xf0\x9f\x90\x84" },
	/* C1 as UTF-8 (U+009B begins a sequence of a terminal), and as single bytes */
	{ "a\xc2\x9b"
	  "2Jb\xc2\x85\xc2\x80\xc2\x9f",
	  "a??2Jb??????" },
	{ "a\xc2\xa0\x9b"
	  "31m",
	  "a\xc2\xa0?31m" },
	/* direction of writing: override, isolate, marks */
	{ "gpj\xe2\x80\xae.exe", "gpj???.exe" },
	{ "\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xaa\xe2\x81\xa6\xe2\x81\xa9\xd8\x9c",
	  "?????????????????" },
	/* separators of lines and paragraphs, byte order mark */
	{ "a\xe2\x80\xa8"
	  "b\xe2\x80\xa9"
	  "c\xef\xbb\xbf",
	  "a???b???c???" },
	/* their visible neighbours */
	{ "\xe2\x80\x90\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa",
	  "\xe2\x80\x90\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa" },
	/* not UTF-8: alone, cut, overlong, surrogate, beyond the end of Unicode */
	{ "\xff\xfe"
	  "a\x80",
	  "??a?" },
	{ "a\xe2\x82", "a??" },
	{ "\xc3\x1b[2J \xe2\x1b\xac b\xc3", "??[2J ??? b?" },
	{ "\xc0\x8a\xc1\xbf\xe0\x80\x8a\xf0\x80\x80\x8a", "???????????" },
	{ "\xed\xa0\x80\xf4\x90\x80\x80\xf5\x80\x80\x80", "???????????" },
};

TEST(test_table)
{
	char buf[256];

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		snprintf(buf, sizeof(buf), "%s", table[i].text);
		assert_ptr_equal(clean_text(buf), buf);
		assert_string_equal(buf, table[i].clean);
		assert_int_equal(strlen(buf), strlen(table[i].text));
		assert_string_equal(clean_text(buf), table[i].clean);
		assert_string_equal(CLEAN(table[i].text), table[i].clean);
	}
}

/* Every code point is either unchanged or replaced; the result never has a byte of a control
 * character. */
TEST(test_each_character)
{
	char text[8];
	size_t n;

	for (uint32_t c = 1; c < 0x110000; c++) {
		if (c >= 0xd800 && c < 0xe000)
			continue;
		if (c < 0x80)
			n = (size_t)snprintf(text, sizeof(text), "%c", (int)c);
		else if (c < 0x800)
			n = (size_t)snprintf(text, sizeof(text), "%c%c", (int)(0xc0 | c >> 6),
					     (int)(0x80 | (c & 0x3f)));
		else if (c < 0x10000)
			n = (size_t)snprintf(text, sizeof(text), "%c%c%c", (int)(0xe0 | c >> 12),
					     (int)(0x80 | (c >> 6 & 0x3f)),
					     (int)(0x80 | (c & 0x3f)));
		else
			n = (size_t)snprintf(text, sizeof(text), "%c%c%c%c", (int)(0xf0 | c >> 18),
					     (int)(0x80 | (c >> 12 & 0x3f)),
					     (int)(0x80 | (c >> 6 & 0x3f)),
					     (int)(0x80 | (c & 0x3f)));
		assert_int_equal(utf8_bytes(text), n);
		assert_int_equal(utf8_shows(text, n), strcmp(CLEAN(text), text) == 0);
		if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e))
			assert_false(utf8_shows(text, n));
	}
}

TEST(test_cut)
{
	char buf[5];

	assert_string_equal(clean_copy(buf, sizeof(buf), "abcdefg"), "abcd");
	/* a character that does not fit leaves no half of it */
	assert_string_equal(clean_copy(buf, sizeof(buf), "ab\xe2\x82\xac"), "ab??");
	assert_int_equal(clean_columns("a\xc3\xa4\xe2\x82\xac?"), 4);
}

/* Programs get back the original text; JSON in a terminal shows only visible characters. */
TEST(test_json)
{
	char out[512], shown[512];
	struct json_object *o;
	struct jsonw w;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *text = table[i].text;
		bool valid = true;

		for (const char *s = text; *s; s += utf8_bytes(s) ? utf8_bytes(s) : 1)
			valid = valid && utf8_bytes(s);
		jsonw_init(&w, out, sizeof(out));
		jsonw_object(&w, NULL);
		jsonw_str(&w, "k", text);
		assert_true(jsonw_finish(&w) > 0);
		out[strlen(out) - 1] = '\0'; /* the end of the line */
		snprintf(shown, sizeof(shown), "%s", out);
		assert_string_equal(clean_text(shown), out);
		o = json_tokener_parse(out);
		assert_non_null(o);
		if (valid)
			assert_string_equal(json_object_get_string(json_object_object_get(o, "k")),
					    text);
		json_object_put(o);
	}
}

TEST(test_shell_word)
{
	static char ret[SHELL_WORD_BYTES], long_text[PATH_MAX];

	assert_string_equal(shell_word("/dev/disk/by-id/a-b_c:0,1", ret),
			    "/dev/disk/by-id/a-b_c:0,1");
	assert_string_equal(shell_word("/media/a b", ret), "'/media/a b'");
	assert_string_equal(shell_word("/media/it's $(x)", ret), "'/media/it'\\''s $(x)'");
	memset(long_text, '\'', sizeof(long_text) - 1);
	assert_int_equal(strlen(shell_word(long_text, ret)) % 4, 2); /* whole quotes */
	assert_true(strlen(ret) < sizeof(ret));
}

/* A message is one line, whatever it contains. */
TEST(test_msg)
{
	char text[512];
	int fd[2];
	ssize_t n;

	assert_int_equal(pipe(fd), 0);
	msg_to_kmsg(fd[1]);
	msg(MSG_ERR, "%s hinders", "x\n<0>panic\x1b[2J");
	msg_to_kmsg(-1);
	n = read(fd[0], text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	assert_string_equal(text, "<3>cowfs: x?<0>panic?[2J hinders\n");
	close(fd[0]);
	close(fd[1]);
}
