/* SPDX-License-Identifier: MIT */
#include "config/mntopts.h"

#include <errno.h>
#include <string.h>

#include "base/msg.h"
#include "config/conf.h"

static bool is(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && !memcmp(text, word, len);
}

/* Options for systemd or for the mount(8) that called us, or options that cowfs sets itself. */
static bool not_passed(const char *text, size_t len)
{
	static const char *const prefixes[] = { "x-systemd.", "x-initrd.", "x-mount.",
						"X-mount.",   "helper=",   "uhelper=" };

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (len >= strlen(prefixes[i]) && !memcmp(text, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static int pass(struct mntopts *m, const char *text, size_t len)
{
	size_t used = strlen(m->rest);

	if (used + len + 2 > sizeof(m->rest))
		return -E2BIG;
	if (used)
		m->rest[used++] = ',';
	memcpy(m->rest + used, text, len);
	m->rest[used + len] = '\0';
	return 0;
}

int mntopts_pass(struct mntopts *m, const char *option)
{
	return pass(m, option, strlen(option));
}

/* value: the text after the '=' of a cowfs option; NULL: it has none */
static int take_own(struct mntopts *m, enum volopt id, const char *value, size_t len, char *why,
		    size_t why_bytes)
{
	char *text = m->own + m->own_bytes, bad[160];

	if (!value) {
		snprintf(why, why_bytes, "%s needs a value: %s=...", volopt_name(id),
			 volopt_name(id));
		return -EINVAL;
	}
	if (m->own_bytes + len + 1 > sizeof(m->own))
		return -E2BIG;
	memcpy(text, value, len);
	text[len] = '\0';
	if (volopt_check(id, text, bad, sizeof(bad)) < 0) {
		snprintf(why, why_bytes, "%s=%s %s", volopt_name(id), text, bad);
		return -EINVAL;
	}
	m->own_bytes += len + 1;
	m->vol.text[id] = text;
	return 0;
}

static void notice(struct mntopts *m, const char *text, size_t len)
{
	if (is(text, len, "ro") || is(text, len, "rw"))
		m->readonly = text[1] == 'o';
	else if (is(text, len, "remount"))
		m->remount = true;
	else if (is(text, len, "discard") || is(text, len, "nodiscard") ||
		 (len > 8 && !memcmp(text, "discard=", 8)))
		m->discard = true;
	else if (is(text, len, "dioread_lock") || is(text, len, "dioread_nolock"))
		m->dioread = true;
}

/* Letters in another order: -o rma=256M would be the file system's to refuse. */
static bool is_slip(const char *text, size_t len, const char *name)
{
	int left[256] = { 0 };

	for (size_t i = 0; i < len; i++) {
		left[(unsigned char)text[i]]++;
		left[(unsigned char)name[i]]--;
		if (!name[i])
			return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(left); i++)
		if (left[i])
			return false;
	return !name[len];
}

/* What the file system would refuse without a word of cowfs. */
static int check_foreign(const char *text, size_t len, char *why, size_t why_bytes)
{
	for (enum rootopt i = 0; i < ROOTOPTS; i++)
		if (is(text, len, rootopt_name(i)))
			return msg_why(why, why_bytes, -EINVAL,
				       "%s is no mount option: it stands in cowfs.conf",
				       rootopt_name(i));
	for (enum volopt i = 0; i < VOLOPTS; i++)
		if (is_slip(text, len, volopt_name(i)))
			return msg_why(why, why_bytes, -EINVAL, "%.*s is unknown: did you mean %s?",
				       (int)len, text, volopt_name(i));
	return 0;
}

static int take(struct mntopts *m, const char *text, size_t len, char *why, size_t why_bytes)
{
	const char *eq = memchr(text, '=', len), *removed;
	size_t name_len = eq ? (size_t)(eq - text) : len;
	enum volopt id = volopt_find(text, name_len);

	if (id != VOLOPTS)
		return take_own(m, id, eq ? eq + 1 : NULL, eq ? len - name_len - 1 : 0, why,
				why_bytes);
	if (!len || not_passed(text, len))
		return 0;
	removed = volopt_removed(text, name_len);
	if (removed) {
		/* btrfs has one of this name */
		msg(MSG_WARN, "mount option %.*s %s; remove it%s", (int)len, text, removed,
		    is(text, name_len, "compress") ? " (for btrfs: compress-force)" : "");
		return 0;
	}
	if (eq && check_foreign(text, name_len, why, why_bytes) < 0)
		return -EINVAL;
	notice(m, text, len);
	return pass(m, text, len);
}

/* Length up to the next comma outside of quotes: context="system_u:object_r:tmp_t:s0:c127,c456" */
static size_t option_length(const char *s)
{
	bool quoted = false;
	size_t n = 0;

	for (; s[n] && (quoted || s[n] != ','); n++)
		quoted ^= s[n] == '"';
	return n;
}

int mntopts_add(struct mntopts *m, const char *text, char *why, size_t why_bytes)
{
	int e = 0;

	while (e == 0 && *text) {
		size_t len = option_length(text);

		e = take(m, text, len, why, why_bytes);
		text += len + (text[len] == ',');
	}
	if (e == -E2BIG) {
		snprintf(why, why_bytes, "too many options");
		e = -EINVAL;
	}
	return e;
}
