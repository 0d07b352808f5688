/* SPDX-License-Identifier: MIT */
/*
 * cowctl status --brief: one line per volume, for a login. Shows uncommitted changes, and a
 * prominent warning about a root that should be protected and is not. That state is in files of
 * the initramfs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "base/program.h"
#include "cli/cmd.h"
#include "attach/keep.h"
#include "attach/leftover.h"
#include "attach/rootstate.h"
#include "fs/flush.h"
#include "wire/risk.h"

#define WRITE_MS 2000

static bool brief_volume(struct json_object *s)
{
	struct json_object *held = json_object_object_get(s, "held"),
			   *undone = json_object_object_get(s, "undone"),
			   *pressure = json_object_object_get(s, "pressure");
	const char *alarm = json_text(s, "alarm"), *name = json_text(s, "name");
	bool failed = json_true(undone, "trial_failed"), is_away;
	struct keep_state keep;
	char away[512], other[160], who[RUNDIR_NAME_BYTES + 16];

	is_away = away_text(s, away, sizeof(away));
	if (is_away)
		printf("cowfs: %s: THE CARD IS AWAY %s; nothing is lost, and it goes on when the card is back\n",
		       name, away);
	if (json_true(s, "degraded") && (*alarm || !is_away))
		printf("cowfs: %s: NEEDS ATTENTION: %s\n", name,
		       *alarm ? alarm : "see cowctl status");
	keep_read(name, &keep);
	if (*keep.error)
		printf("cowfs: %s: NOT KEPT: %s\n", name, keep.error);
	if (!strcmp(json_text(pressure, "level"), "full"))
		printf("cowfs: %s: RAM IS FULL: writes %s\n", name,
		       json_true(pressure, "gave_up") ||
				       !strcmp(json_text(pressure, "policy"), "fail")
			       ? "fail"
			       : "wait for a commit");
	snprintf(who, sizeof(who), "cowfs: %s", name);
	risk_print(stdout, who, s, false);
	if (json_true(held, "log_low"))
		printf("cowfs: %s: LOG NEARLY FULL: %s are left for commits while generation %s is held: cowctl "
		       "accept, or cowctl undo\n",
		       name, FORMAT_SIZE(blk_to_bytes(json_u64(s, "log_room_blocks"))),
		       with_commas(json_u64(held, "generation")));
	if (held && !json_true(held, "undo_pending"))
		printf("cowfs: %s: generation %s is held: cowctl undo goes back to it, cowctl accept ends that\n",
		       name, with_commas(json_u64(held, "generation")));
	if (json_true(held, "trial"))
		printf("cowfs: %s: ON TRIAL: after %llu more boot%s without cowctl accept it goes back\n",
		       name, (unsigned long long)json_u64(held, "boots_left"),
		       plural(json_u64(held, "boots_left")));
	if (undone)
		printf("cowfs: %s: %sback at generation %s of %s (%s)\n", name,
		       failed ? "THE TRIAL HAS FAILED: " : "",
		       with_commas(json_u64(undone, "generation")),
		       format_time(json_u64(undone, "time_unix_seconds")),
		       failed ? "no boot was accepted" : "cowctl undo");
	if (version_text(s, other, sizeof(other)))
		printf("cowfs: %s: version %s\n", name, other);
	if (all_on_card(s))
		printf("cowfs: %s: all files are on the card", name);
	else
		printf("cowfs: %s: %s not on the card yet", name,
		       FORMAT_SIZE(blk_to_bytes(json_u64(s, "dirty_blocks"))));
	printf(", last commit %s", format_time(json_u64(s, "generation_unix_seconds")));
	printf("%s\n", next_text(s));
	return failed || *keep.error || json_true(s, "degraded");
}

static bool brief_root(void)
{
	char why[512];
	enum root_state state = rootstate_read(why, sizeof(why));

	if (state != ROOT_FAILED && state != ROOT_BYPASSED)
		return false;
	printf("cowfs: THE ROOT IS NOT PROTECTED%s: %s\n",
	       state == ROOT_FAILED ? " and read-only" : "", why);
	return true;
}

/* Returns their number. */
static size_t brief_dead(struct leftover_volume dead[CLIENT_VOLUMES])
{
	size_t n = leftover_volumes(dead);

	for (size_t i = 0; i < n; i++)
		printf("cowfs: %s: %s\n", dead[i].name, dead[i].text);
	return n;
}

int status_brief(void)
{
	static struct leftover_volume dead[CLIENT_VOLUMES];
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	bool bad = brief_root();
	struct failure err;

	bad |= brief_dead(dead) > 0;
	for (size_t i = 0, n = client_volumes(names); i < n; i++) {
		struct json_object *s = client_status_file(names[i], &err);

		if (s && brief_volume(s))
			bad = true;
		json_object_put(s);
	}
	return bad ? EXIT_DEGRADED : EXIT_OK;
}

/* which: " NAME" behind the command, or "" */
static void print_next(const char *command, const char *which, const char *what)
{
	char text[SHELL_WORD_BYTES + 32];

	snprintf(text, sizeof(text), "%s%s", command, which);
	printf("  %-32s %s\n", text, what);
}

/* The commands that are useful for this volume now. which: "" if it is the only one. */
static void next_for(struct json_object *s, const char *which)
{
	char text[512];

	if (away_text(s, text, sizeof(text))) { /* each of the others would wait for it, or fail */
		print_next("plug the card in again", "",
			   "it goes on by itself; another reader will do");
		return;
	}
	if (json_true(s, "degraded"))
		print_next("cowctl status", which, "what needs attention");
	if (json_true(json_object_object_get(s, "held"),
		      "undo_pending")) { /* a commit would be lost, too */
		print_next("cowctl undo --cancel", which, "keep what is mounted now");
		return;
	}
	if (json_true(s, "discard_armed"))
		print_next("cowctl discard --cancel", which,
			   "keep it at the next detach or shutdown");
	if (!all_on_card(s)) {
		print_next("cowctl commit", which, "write it to the card");
		print_next("cowctl top", which, "which files it is");
	} else {
		print_next("cowctl wear", which,
			   "what was written to the card, and how long it may last");
	}
}

struct json_object *fresh_status(const char *name)
{
	struct failure err;

	return cmd_composed(client_status(name, &err));
}

static void write_disk(void *ctx)
{
	(void)ctx;
	(void)!flush_disk(0);
}

/* False: it does not end. A program can keep a write, and with it a sync, from ending. */
static bool write_files(struct json_object *s)
{
	_cleanup_close_ int fd = open(json_fact(s, FACT_LOOP), O_RDONLY | O_CLOEXEC);

	return fd >= 0 && program_apart(fd, write_disk, NULL, WRITE_MS);
}

static void add_next_commit(struct json_object *s)
{
	_cleanup_close_ int fd = memfd_create("timers", MFD_CLOEXEC);
	char unit[RUNDIR_NAME_BYTES + 32];
	const char *const argv[] = { "systemctl", "list-timers", "--output=json", unit, NULL };
	struct json_object *timers, *next = NULL;

	snprintf(unit, sizeof(unit), "cowfs-commit@%s.timer", json_text(s, "name"));
	if (fd < 0 || program_run(argv, -1, fd) || lseek(fd, 0, SEEK_SET) < 0)
		return;
	timers = json_object_from_fd(fd);
	if (json_object_is_type(timers, json_type_array) && json_object_array_length(timers))
		next = json_object_array_get_idx(timers, 0);
	if (json_u64(next, "next"))
		json_object_object_add(s, "next_commit_unix_seconds",
				       json_object_new_uint64(json_u64(next, "next") / 1000000));
	json_object_put(timers);
}

struct json_object *status_for_people(struct json_object *s)
{
	char away[512];

	if (s && geteuid() == 0 && !away_text(s, away, sizeof(away)) &&
	    strcmp(json_text(json_object_object_get(s, "pressure"), "level"), "full")) {
		bool ended = write_files(s);
		struct json_object *written = fresh_status(json_text(s, "name"));

		if (written) {
			json_object_put(s);
			s = written;
		}
		if (!ended)
			json_object_object_add(s, "unwritten", json_object_new_boolean(true));
	}
	if (s)
		add_next_commit(s);
	return s;
}

static void next_for_dead(const struct leftover_volume *v)
{
	char dir[PATH_MAX], word[SHELL_WORD_BYTES];
	struct facts f;

	client_facts(v->name, true, &f);
	if (mounts_device_is_on(NULL, v->loop, dir))
		print_next("umount ", shell_word(clean_text(dir), word), "it returns errors");
	print_next("cowctl attach ", shell_word(clean_text(f.device[FACT_DEVICE].path), word),
		   "the last commit is on the card");
}

int overview(void)
{
	static struct leftover_volume dead[CLIENT_VOLUMES];
	char names[CLIENT_VOLUMES][RUNDIR_NAME_BYTES], which[RUNDIR_NAME_BYTES + 1] = "";
	struct json_object *status[CLIENT_VOLUMES];
	struct failure err[CLIENT_VOLUMES];
	size_t n = client_volumes(names), died = brief_dead(dead);
	bool bad = brief_root() || died;

	client_statuses(names, n, status, err);
	for (size_t i = 0; i < n; i++) {
		status[i] = status_for_people(cmd_composed(status[i]));
		if (!status[i])
			printf("cowfs: %s: %s\n", names[i], err[i].why);
		bad |= !status[i] || brief_volume(status[i]);
	}
	if (!n && !bad)
		puts("cowfs: no volume is attached");
	puts("\nnext:");
	for (size_t i = 0; i < died; i++)
		next_for_dead(&dead[i]);
	for (size_t i = 0; i < n; i++) {
		if (n > 1)
			snprintf(which, sizeof(which), " %.*s", RUNDIR_NAME_BYTES - 1, names[i]);
		if (status[i])
			next_for(status[i], which);
		json_object_put(status[i]);
	}
	if (!n && !died) {
		print_next("cowctl setup --dry-run", "",
			   "can the root of this system be protected?");
		print_next("cowctl card", "", "the devices, and what protects each of them");
	}
	print_next("cowctl --help", "", "all commands");
	return bad ? EXIT_DEGRADED : EXIT_OK;
}
