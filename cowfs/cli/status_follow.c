/* SPDX-License-Identifier: MIT */
/*
 * Prints each change for the worse or the better as one line. The daemons keep status.json
 * current, and this command watches these files. It sends no request to a daemon, so it runs
 * without privileges.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>

#include "base/clean.h"
#include "base/parse.h"
#include "cli/cmd.h"
#include "attach/leftover.h"

#define LOOK_ANYWAY_MS 60000 /* a daemon that died publishes nothing */
#define SETTLE_MS 200
#define TELL_NS (60 * 1000000000ull)

struct seen {
	char name[RUNDIR_NAME_BYTES], level[16], alarm[256], view_end[256], undo[64];
	bool degraded, log_low, here, dead, away;
	uint64_t generation, checkpoints;
	uint64_t away_s;
	uint64_t away_told_ns, alarm_told_ns, degraded_told_ns; /* 0: never */
};

struct watch {
	struct seen seen[CLIENT_VOLUMES];
	size_t n;
	bool first;
	int wait_ms; /* at most, until the next look */
};

static bool as_json;

/* NAME EVENT DETAIL */
static void event(const struct seen *s, const char *what, const char *detail)
{
	struct jsonw *w;

	if (!as_json) {
		printf("%s %s%s%s\n", CLEAN(s->name), what, *detail ? " " : "", CLEAN(detail));
		return;
	}
	w = json_begin(true);
	jsonw_str(w, "name", s->name);
	jsonw_str(w, "event", what);
	jsonw_str(w, "detail", detail);
	json_end(w);
}

static void look_at_undo(struct watch *w, struct seen *s, struct json_object *status)
{
	struct json_object *held = json_object_object_get(status, "held"),
			   *undone = json_object_object_get(status, "undone");
	bool pending = json_true(held, "undo_pending");
	char text[sizeof(s->undo)] = "";

	if (pending || undone)
		snprintf(text, sizeof(text), "%s generation %llu",
			 pending			     ? "pending"
			 : json_true(undone, "trial_failed") ? "trial-failed"
							     : "done",
			 (unsigned long long)json_u64(pending ? held : undone, "generation"));
	if (strcmp(text, s->undo) && !(w->first && !*text))
		event(s, "undo", *text ? text : "cancelled");
	memcpy(s->undo, text, sizeof(text));
}

static void look_at_room(struct seen *s, struct json_object *status)
{
	struct json_object *held = json_object_object_get(status, "held");
	bool low = json_true(held, "log_low");
	char text[64] = "ok";

	if (low == s->log_low)
		return;
	if (low)
		snprintf(text, sizeof(text), "low %s while generation %llu is held",
			 FORMAT_SIZE(blk_to_bytes(json_u64(status, "log_room_blocks"))),
			 (unsigned long long)json_u64(held, "generation"));
	event(s, "log-room", text);
	s->log_low = low;
}

/*
 * What a card, or who has taken over a worker, can make begin and end at any rate is told once a minute: each
 * line starts programs. What still holds is told at the end of that minute.
 */
static bool may_tell(struct watch *w, uint64_t *told_ns)
{
	uint64_t now = now_ns(), left_ns = *told_ns ? *told_ns + TELL_NS : 0;

	left_ns -= min_u64(left_ns, now);
	if (left_ns)
		w->wait_ms = (int)min_u64((uint64_t)w->wait_ms, left_ns / 1000000 + 1);
	else
		*told_ns = now;
	return !left_ns;
}

static void look_at_away(struct watch *w, struct seen *s, struct json_object *status)
{
	struct json_object *a = json_object_object_get(status, "away");
	char text[512];
	bool away = away_text(status, text, sizeof(text));

	if (away)
		s->away_s = json_u64(a, "seconds");
	if (away && !s->away && may_tell(w, &s->away_told_ns)) {
		s->away = true;
		event(s, "away", text);
	} else if (!away && s->away) {
		s->away = false;
		snprintf(text, sizeof(text), "after %llu s, %llu time%s since attach",
			 (unsigned long long)s->away_s, (unsigned long long)json_u64(a, "times"),
			 plural(json_u64(a, "times")));
		event(s, "back", text);
	}
}

static void look_at(struct watch *w, struct seen *s, struct json_object *status)
{
	struct json_object *p = json_object_object_get(status, "pressure"), *last;
	const char *view_end = json_text(json_object_object_get(status, "views"), "last_end");
	const char *level = json_text(p, "level"), *alarm = json_text(status, "alarm");
	uint64_t generation = json_u64(status, "generation");
	uint64_t checkpoints = json_u64(json_object_object_get(status, "lifetime"), "checkpoints");
	bool degraded = json_true(status, "degraded");
	char text[64];

	if (strcmp(level, s->level) && !(w->first && !strcmp(level, "ok"))) {
		snprintf(text, sizeof(text), "%s %s", level,
			 FORMAT_SIZE(json_u64(status, "ram_used_bytes")));
		event(s, "pressure", text);
	}
	if (strncmp(alarm, s->alarm, sizeof(s->alarm) - 1) &&
	    (!*alarm || may_tell(w, &s->alarm_told_ns))) {
		event(s, *alarm ? "alarm" : "alarm-over", *alarm ? alarm : s->alarm);
		snprintf(s->alarm, sizeof(s->alarm), "%s", alarm);
	}
	look_at_away(w, s, status);
	if (away_text(status, text, sizeof(text)))
		degraded = s->degraded; /* that is known */
	if (degraded != s->degraded && (!degraded || may_tell(w, &s->degraded_told_ns))) {
		event(s, degraded ? "degraded" : "healthy", *alarm ? alarm : "see cowctl status");
		s->degraded = degraded;
	}
	look_at_undo(w, s, status);
	look_at_room(s, status);
	if (strcmp(view_end, s->view_end) && !w->first)
		event(s, "view-ended", view_end);
	last = json_object_object_get(status, "last");
	if (generation != s->generation && !w->first && last) {
		snprintf(text, sizeof(text), "%llu %s", (unsigned long long)generation,
			 FORMAT_SIZE(json_u64(json_object_object_get(last, "report"),
					      "written_bytes")));
		event(s, "commit", text);
	} else if (checkpoints != s->checkpoints && !w->first) {
		event(s, "checkpoint", "");
	}
	snprintf(s->level, sizeof(s->level), "%s", level);
	snprintf(s->view_end, sizeof(s->view_end), "%s", view_end);
	s->generation = generation;
	s->checkpoints = checkpoints;
}

static struct seen *find(struct watch *w, const char *name)
{
	for (size_t i = 0; i < w->n; i++)
		if (!strcmp(w->seen[i].name, name))
			return &w->seen[i];
	if (w->n == CLIENT_VOLUMES)
		return NULL;
	w->seen[w->n] = (struct seen){ .level = "ok" };
	snprintf(w->seen[w->n].name, RUNDIR_NAME_BYTES, "%s", name);
	if (!w->first)
		event(&w->seen[w->n], "attached", "");
	return &w->seen[w->n++];
}

/* A volume that is dead when the watch begins is reported as well. */
static void look_at_dead(struct watch *w)
{
	struct leftover_volume list[CLIENT_VOLUMES];
	size_t n = leftover_volumes(list);

	for (size_t i = 0; i < n; i++) {
		struct seen *s = find(w, list[i].name);

		if (!s)
			continue;
		if (!s->dead)
			event(s, "died", list[i].text);
		s->dead = s->here = true;
	}
}

static void look(struct watch *w)
{
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	size_t n = client_volumes(names);
	struct failure err;

	w->wait_ms = LOOK_ANYWAY_MS;
	for (size_t i = 0; i < w->n; i++)
		w->seen[i].here = false;
	look_at_dead(w);
	for (size_t i = 0; i < n; i++) {
		struct seen *s = find(w, names[i]);
		struct json_object *status = s ? client_status_file(names[i], &err) : NULL;

		if (status)
			look_at(w, s, status);
		if (s && (status || !s->dead)) {
			s->here = true;
			s->dead = false;
		}
		json_object_put(status);
	}
	for (size_t i = 0; i < w->n; i++) {
		if (w->seen[i].here)
			continue;
		event(&w->seen[i], "gone", "");
		w->seen[i--] = w->seen[--w->n];
	}
	w->first = false;
	fflush(stdout);
}

/* Watches all that is there, also a volume that does not answer yet; a repeated call does not add a second watch. */
static void add_watches(int fd)
{
	DIR *dir = opendir(rundir_path());
	struct dirent *e;

	(void)inotify_add_watch(fd, rundir_path(), IN_CREATE | IN_DELETE | IN_MOVED_TO);
	while (dir && (e = readdir(dir))) {
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", rundir_path(), e->d_name);
		if (e->d_name[0] != '.')
			(void)inotify_add_watch(fd, path,
						IN_ONLYDIR | IN_MOVED_TO | IN_CREATE | IN_DELETE);
	}
	if (dir)
		closedir(dir);
}

int status_follow(const struct options *o)
{
	struct watch w = { .first = true };
	_cleanup_close_ int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	char buf[4096];

	as_json = has_option(o, OPT_JSON);
	if (fd < 0)
		return cmd_fail(o, EXIT_FAILED, -errno, "no inotify: %s", strerrordesc_np(errno));
	for (;;) {
		add_watches(fd);
		look(&w);
		if (ferror(stdout))
			return EXIT_FAILED;
		if (has_option(o, OPT_ONCE))
			return EXIT_OK;
		poll(&pfd, 1, w.wait_ms);
		poll(NULL, 0, SETTLE_MS);
		while (read(fd, buf, sizeof(buf)) > 0)
			;
	}
}
