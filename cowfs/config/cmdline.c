/* SPDX-License-Identifier: MIT */
#include "config/cmdline.h"

#include <errno.h>
#include <string.h>

#define KEY "cowfs="
#define SPACE " \t\n"

struct parser {
	struct cmdline c;
	size_t used; /* of c.buf */
	int error;   /* error of the first bad item */
	char *why;
	size_t why_bytes;
};

static void refuse(struct parser *p, const char *item, const char *what)
{
	if (!p->error)
		snprintf(p->why, p->why_bytes, KEY "%s %s", item, what);
	p->error = -EINVAL;
}

/* A key of the root in cowfs.conf that is allowed at boot, too. */
static bool take_root_item(struct parser *p, char *item, char *value)
{
	static const enum rootopt allowed[] = { ROOTOPT_COMPOSE, ROOTOPT_LOWER, ROOTOPT_NEW_LOWER };
	char what[160];

	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
		const char *name = rootopt_name(allowed[i]), *want;
		size_t len = strlen(name);

		if (strncmp(item, name, len) || (item[len] && item + len != value))
			continue;
		want = value ? rootopt_check(allowed[i], value + 1) : "NAME:VALUE";
		snprintf(what, sizeof(what), "is not %s", want ? want : "");
		if (want)
			refuse(p, item, what);
		else
			p->c.root_text[allowed[i]] = value + 1;
		return true;
	}
	return false;
}

/* item lies in c.buf and stays there */
static void take_item(struct parser *p, char *item)
{
	char *value = strchr(item, ':'), why[160];
	size_t len = value ? (size_t)(value - item) : strlen(item);
	enum volopt id = volopt_find(item, len);

	if (!strcmp(item, "on") || !strcmp(item, "off"))
		p->c.mode = strcmp(item, "on") ? CMDLINE_OFF : CMDLINE_ON;
	else if (!strcmp(item, "discard"))
		p->c.opt.text[VOLOPT_ON_DETACH] = item;
	else if (id == VOLOPTS && take_root_item(p, item, value))
		;
	else if (id == VOLOPTS && volopt_removed(item, len))
		refuse(p, item, volopt_removed(item, len));
	else if (id == VOLOPTS)
		refuse(p, item, "is unknown: use on, off, discard or ram:SIZE");
	else if (!value)
		refuse(p, item, "needs a value behind a ':'");
	else if (!volopt_allowed(id, VOLOPT_BOOT))
		refuse(p, item, "is not allowed at boot");
	else if (volopt_check(id, value + 1, why, sizeof(why)) < 0)
		refuse(p, item, why);
	else
		p->c.opt.text[id] = value + 1;
}

/* Handles the items between commas. */
static void take_word(struct parser *p, const char *text, size_t len)
{
	if (len >= sizeof(p->c.buf) - p->used) {
		refuse(p, "", "is too long");
		return;
	}
	while (len) {
		char *item = p->c.buf + p->used;
		const char *comma = memchr(text, ',', len);
		size_t n = comma ? (size_t)(comma - text) : len;

		memcpy(item, text, n);
		item[n] = '\0';
		p->used += n + 1;
		if (n)
			take_item(p, item);
		n += comma != NULL;
		text += n;
		len -= n;
	}
}

/* The length up to the next space outside of quotes. */
static size_t word_length(const char *s)
{
	bool quoted = false;
	size_t n = 0;

	for (; s[n] && (quoted || !strchr(SPACE, s[n])); n++)
		quoted ^= s[n] == '"';
	return n;
}

int cmdline_parse(const char *line, struct cmdline *ret, char *why, size_t why_bytes)
{
	struct parser p = { .why = why, .why_bytes = why_bytes };
	size_t key = strlen(KEY), n;

	for (line += strspn(line, SPACE); *line; line += strspn(line, SPACE)) {
		n = word_length(line);
		if (n == 2 && !memcmp(line, "--", 2))
			break;
		if (n > key && !memcmp(line, KEY, key))
			take_word(&p, line + key, n - key);
		line += n;
	}
	*ret = p.c;
	for (size_t id = 0; id < VOLOPTS; id++)
		if (p.c.opt.text[id])
			ret->opt.text[id] = ret->buf + (p.c.opt.text[id] - p.c.buf);
	for (size_t id = 0; id < ROOTOPTS; id++)
		if (p.c.root_text[id])
			ret->root_text[id] = ret->buf + (p.c.root_text[id] - p.c.buf);
	return p.error;
}
