/* SPDX-License-Identifier: MIT */
#include "volume/card_profile.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"

static int choose(struct profile_choice *ret, const struct flash_profile *p, char *why, size_t n)
{
	/* its estimates would be those of one member, and of writes that its layer never makes */
	if (p->members > 1 || p->append_bytes) {
		snprintf(why, n,
			 "profile %s describes an array or a translation layer, not a card: it "
			 "cannot be used for planning",
			 p->id);
		return -EINVAL;
	}
	*ret = (struct profile_choice){ .source = PROFILE_GIVEN, .profile = *p };
	return 0;
}

static int no_profile(const char *id, const char *where, char *why, size_t n)
{
	snprintf(why, n, "unknown profile %s%s%s: 'cowfs-cardsim list' shows the built-in ones", id,
		 *where ? " in " : "", where);
	return -ENOENT;
}

/* "/FILE:ID" or "/FILE" */
static int from_file(struct profile_choice *ret, const char *text, char *why, size_t n)
{
	const char *colon = strrchr(text, ':'),
		   *id = colon && !strchr(colon, '/') ? colon + 1 : NULL;
	const struct flash_profile *p = NULL;
	struct flash_profiles *ps;
	char path[PATH_MAX], what[256];
	size_t first;
	int r;

	if (snprintf(path, sizeof(path), "%.*s", id ? (int)(colon - text) : (int)strlen(text),
		     text) >= (int)sizeof(path)) {
		snprintf(why, n, "profile %s: the name is too long", text);
		return -ENAMETOOLONG;
	}
	r = flash_profiles_open(&ps, path, what, sizeof(what));
	if (r < 0) {
		snprintf(why, n, "profile %s: %s: %s", text, path, what);
		return r;
	}
	first = flash_profiles_first_own(ps);
	for (size_t i = first; i < flash_profiles_count(ps) && !p; i++)
		if (!id || !strcmp(flash_profiles_at(ps, i)->id, id))
			p = flash_profiles_at(ps, i);
	if (!id && flash_profiles_count(ps) != first + 1) {
		snprintf(why, n, "%s has %zu profiles: name one, %s:ID", path,
			 flash_profiles_count(ps) - first, path);
		r = -EINVAL;
	} else {
		r = p ? choose(ret, p, why, n) : no_profile(id, path, why, n);
	}
	flash_profiles_close(ps);
	return r;
}

static int from_program(struct profile_choice *ret, const char *id, const char *model, char *why,
			size_t n)
{
	const struct flash_profile *p;
	struct flash_profiles *ps;
	int r = flash_profiles_open(&ps, NULL, why, n);

	if (r < 0)
		return r;
	p = id ? flash_profiles_find(ps, id) : flash_profiles_match(ps, model);
	if (p)
		r = choose(ret, p, why, n);
	else if (id)
		r = no_profile(id, "", why, n);
	if (r == 0 && !id)
		ret->source = p ? PROFILE_MATCHED : PROFILE_GUESSED;
	flash_profiles_close(ps);
	return r;
}

/* false: this card has no measured profile that can be read */
static bool from_measurement(struct profile_choice *ret, const char *identity, bool *ret_of_another)
{
	char path[PATH_MAX], why[512];

	if (flash_profile_path(identity, path, sizeof(path)) < 0 || access(path, F_OK) < 0)
		return false;
	if (from_file(ret, path, why, sizeof(why)) < 0) {
		msg(MSG_WARN, "%s", why);
		return false;
	}
	if (*ret->profile.identity && strcmp(ret->profile.identity, identity) != 0) {
		msg(MSG_WARN, "%s: is the profile of another card (%s): not used", path,
		    ret->profile.identity);
		*ret = (struct profile_choice){ .source = PROFILE_NONE };
		*ret_of_another = true;
		return false;
	}
	ret->source = PROFILE_MEASURED;
	return true;
}

int profile_choose(struct profile_choice *ret, const char *text, const char *model,
		   const char *identity, char *why, size_t why_bytes)
{
	struct profile_choice c = { .source = PROFILE_NONE };
	bool of_another = false;
	int r = 0;

	if (!strcmp(text, "auto") && from_measurement(&c, identity, &of_another))
		r = 0;
	else if (!strcmp(text, "auto") && !*model)
		c.source = PROFILE_GUESSED;
	else if (!strcmp(text, "auto"))
		r = from_program(&c, NULL, model, why, why_bytes);
	else if (text[0] == '/')
		r = from_file(&c, text, why, why_bytes);
	else if (strcmp(text, "none") != 0)
		r = from_program(&c, text, "", why, why_bytes);
	c.of_another = of_another;
	malloc_trim(0); /* a daemon that locks its memory never returns it otherwise */
	if (r == 0)
		*ret = c;
	return r;
}
