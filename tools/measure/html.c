/* SPDX-License-Identifier: MIT */
#include "measure/html.h"

#include "base/clean.h"

void html_text(FILE *f, const char *text)
{
	while (*text) {
		size_t n = utf8_bytes(text), step = n ? n : 1;

		switch (*text) {
		case '&':
			fputs("&amp;", f);
			break;
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		case '\'':
			fputs("&#39;", f);
			break;
		default:
			if (utf8_shows(text, n))
				fwrite(text, 1, step, f);
			else
				fputs("\xef\xbf\xbd", f); /* U+FFFD */
		}
		text += step;
	}
}

void html_name(FILE *f, const char *name)
{
	fputs("<bdi>", f);
	html_text(f, name);
	fputs("</bdi>", f);
}
