/* SPDX-License-Identifier: MIT */
#include "base/clean.h"

#include <stdio.h>
#include <string.h>

size_t utf8_bytes(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80			 ? 1
		   : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
		   : (s[0] & 0xf0) == 0xe0	 ? 3
		   : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
						 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

static uint32_t code_point(const char *s, size_t n)
{
	uint32_t c = n > 1 ? (unsigned char)*s & (0x7fu >> n) : (unsigned char)*s;

	for (size_t i = 1; i < n; i++)
		c = c << 6 | ((unsigned char)s[i] & 0x3f);
	return c;
}

bool utf8_shows(const char *s, size_t n)
{
	/* includes the direction marks of Unicode's Bidi_Control */
	static const struct {
		uint32_t first, last;
	} hidden[] = {
		{ 0, 0x1f },	    { 0x7f, 0x9f },	{ 0x61c, 0x61c },   { 0x200e, 0x200f },
		{ 0x2028, 0x202e }, { 0x2066, 0x2069 }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb },
	};
	uint32_t c = code_point(s, n);

	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		if (c >= hidden[i].first && c <= hidden[i].last)
			return false;
	return n > 0;
}

char *clean_text(char *text)
{
	for (char *s = text; *s;) {
		size_t n = utf8_bytes(s), step = n ? n : 1;

		if (!utf8_shows(s, n))
			memset(s, '?', step);
		s += step;
	}
	return text;
}

char *clean_copy(char *buf, size_t size_bytes, const char *text)
{
	/* a character cut at the end of the buffer is not valid UTF-8 */
	snprintf(buf, size_bytes, "%s", text);
	return clean_text(buf);
}

const char *shell_word(const char *text, char ret[SHELL_WORD_BYTES])
{
	char *at = ret;

	if (!text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			       "/._-+:@%=,")])
		return text;
	*at++ = '\'';
	for (; *text && at < ret + SHELL_WORD_BYTES - 6; text++)
		if (*text == '\'')
			at = stpcpy(at, "'\\''");
		else
			*at++ = *text;
	strcpy(at, "'");
	return ret;
}

size_t clean_columns(const char *text)
{
	size_t columns = 0;

	for (; *text; text++)
		columns += (*text & 0xc0) != 0x80;
	return columns;
}
