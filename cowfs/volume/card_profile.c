/* SPDX-License-Identifier: MIT */
#include "volume/card_profile.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/msg.h"

/* "/FILE:ID" or "/FILE" */
static int from_file(struct profile_choice *ret, const char *text, char *why, size_t n)
{
	const char *colon = strrchr(text, ':'),
		   *id = colon && !strchr(colon, '/') ? colon + 1 : NULL;
	char path[PATH_MAX], what[256];
	int r;

	if (snprintf(path, sizeof(path), "%.*s", id ? (int)(colon - text) : (int)strlen(text),
		     text) >= (int)sizeof(path)) {
		snprintf(why, n, "profile %s: the name is too long", text);
		return -ENAMETOOLONG;
	}
	r = costs_read(&ret->profile, path, id, NULL, what, sizeof(what));
	if (r == -ENOENT && !*what)
		snprintf(why, n, "unknown profile %s in %s", id, path);
	else if (r < 0)
		snprintf(why, n, "%s: %s", path, what);
	ret->source = PROFILE_GIVEN;
	return r;
}

/* One of the published cards. */
static int by_name(struct profile_choice *ret, const char *id, char *why, size_t n)
{
	char path[PATH_MAX], what[256] = "";
	int r = costs_published(path);

	if (r == 0)
		r = costs_read(&ret->profile, path, id, NULL, what, sizeof(what));
	if (r == -ENOENT)
		snprintf(why, n, "unknown profile %s: %s has those that have a name", id, path);
	else if (r < 0)
		snprintf(why, n, "profile %s: %s: %s", id, path,
			 *what ? what : strerrordesc_np(-r));
	ret->source = PROFILE_GIVEN;
	return r;
}

/* Is there one of this card, measured, that can be read? */
static bool from_measurement(struct profile_choice *ret, const char *identity)
{
	char path[PATH_MAX], why[512];
	int r = costs_saved(identity, path, sizeof(path));

	if (r < 0)
		return false;
	r = costs_read(&ret->profile, path, NULL, NULL, why, sizeof(why));
	if (r == -ENOENT) { /* in the form of cowfs 0.1? */
		strcpy(strrchr(path, '.'), ".json");
		r = costs_read(&ret->profile, path, NULL, NULL, why, sizeof(why));
	}
	if (r < 0 && r != -ENOENT)
		msg(MSG_WARN, "%s: %s", path, why);
	ret->of_another = r == 0 && *ret->profile.identity &&
			  strcmp(ret->profile.identity, identity);
	if (ret->of_another)
		msg(MSG_WARN, "%s: is the profile of another card (%s): not used", path,
		    ret->profile.identity);
	ret->source = PROFILE_MEASURED;
	return r == 0 && !ret->of_another;
}

/* By the name that the device gives itself; what cannot be read keeps no system from starting. */
static void by_model(struct profile_choice *ret, const char *model)
{
	char path[PATH_MAX], why[256] = "";
	int r = *model ? costs_published(path) : -ENOENT;

	if (r == 0)
		r = costs_read(&ret->profile, path, NULL, model, why, sizeof(why));
	if (r < 0 && r != -ENOENT)
		msg(MSG_WARN, "%s: %s", path, why);
	ret->source = r == 0 ? PROFILE_MATCHED : PROFILE_GUESSED;
}

int profile_choose(struct profile_choice *ret, const char *text, const char *model,
		   const char *identity, char *why, size_t why_bytes)
{
	struct profile_choice c = { .source = PROFILE_NONE };
	int r = 0;

	if (!strcmp(text, "auto")) {
		if (!from_measurement(&c, identity))
			by_model(&c, model);
		if (c.source == PROFILE_GUESSED)
			c.profile = (struct card_costs){ 0 };
	} else if (text[0] == '/') {
		r = from_file(&c, text, why, why_bytes);
	} else if (strcmp(text, "none") != 0) {
		r = by_name(&c, text, why, why_bytes);
	}
	malloc_trim(0); /* a daemon that locks its memory never returns it otherwise */
	if (r == 0)
		*ret = c;
	return r;
}
