/* SPDX-License-Identifier: MIT */
/* Shared by the commands of cowctl. A command prints its result and returns the exit code. */
#ifndef COWFS_CLI_CMD_H
#define COWFS_CLI_CMD_H

#include <limits.h>
#include <signal.h>

#include <json-c/json.h>

#include "attach/view_mount.h"
#include "base/numbers.h"
#include "commit/commit.h"
#include "wire/client.h"
#include "wire/failure.h"
#include "wire/json.h"
#include "wire/progress.h"
#include "config/options.h"
#include "wire/proto.h"
#include "config/volopt.h"

enum cmd_option {
	OPT_LOG = VOLOPT_LOG,
	OPT_ERASE_BLOCK = VOLOPT_ERASE_BLOCK,
	OPT_JSON = VOLOPTS,
	OPT_HELP,
	OPT_LOG_SIZE,
	OPT_FORCE,
	OPT_DISCARD,
	OPT_DRY_RUN,
	OPT_CHECKPOINT,
	OPT_NO_WAIT,
	OPT_TIMER,
	OPT_FOR,
	OPT_ACCEPT,
	OPT_SHRINK,
	OPT_JOURNAL_SIZE,
	OPT_KEY,
	OPT_DEVICE,
	OPT_CMDLINE,
	OPT_CONF,
	OPT_WITHIN,
	OPT_DEADLINE,
	OPT_IF_LONGER,
	OPT_ONCE,
	OPT_BRIEF,
	OPT_LIST,
	OPT_SWAP_OFF,
	OPT_NO_TRIAL,
	OPT_YES,
	OPT_IMAGE,
	OPT_LOWER,
	OPT_ROOT,
	OPT_LAG,
	OPT_FLASH,
	OPT_CMD56,
	OPT_HTML,
	OPT_PROMETHEUS,
	OPT_OUTLOOK,
	OPT_FROM,
	OPT_ROWS,
	OPT_BY,
	OPT_INTERVAL,
	OPT_VERBOSE,
	OPT_FOLLOW,
	OPT_NOW,
	OPT_STAT,
	OPT_NULL,
	OPT_KEPT,
	OPT_VERSION,
	OPT_COMPOSE,
	OPT_ALL,
	OPT_HOLD,
	OPT_CANCEL,
	OPT_VOLUME,
	OPT_GENERATION,
	OPT_TRIAL,
	OPT_NO_VERIFY,
	OPT_BASE,
	OPT_SIGN,
	OPT_OLDER,
	OPT_DISK,
	OPT_AWAY_WAIT,
	OPT_WINDOW,
	OPT_FACTS,
	OPT_END
};
_Static_assert(OPT_END <= OPTIONS_MAX, "options_parse has room for their values");

/* cowctl as a function: a program of its own, and a part of that of an initramfs (cowfs/boot). Exit
 * codes are those of cowctl(8). */
int cowctl_main(int argc, char **argv);

/*
 * What the cowctl of an initramfs lacks: its link takes no object for such a function, and its address is NULL there.
 * The program cowctl is linked with all objects of this folder.
 */
#define NOT_IN_INITRAMFS __attribute__((weak))

/* cowfs-recover has check, release and view alone. */
#ifdef COWFS_RECOVER
#define NOT_IN_RECOVER __attribute__((weak))
#else
#define NOT_IN_RECOVER
#endif

int cmd_card(const struct options *o) NOT_IN_INITRAMFS;
int cmd_scrub(const struct options *o) NOT_IN_INITRAMFS;
int cmd_clone(const struct options *o) NOT_IN_INITRAMFS;
int cmd_export(const struct options *o) NOT_IN_INITRAMFS;
int cmd_import(const struct options *o) NOT_IN_INITRAMFS;
int cmd_prepare(const struct options *o) NOT_IN_RECOVER;
int cmd_attach(const struct options *o) NOT_IN_RECOVER;
int cmd_detach(const struct options *o) NOT_IN_RECOVER;
int cmd_status(const struct options *o) NOT_IN_RECOVER;
int cmd_commit(const struct options *o) NOT_IN_RECOVER;
int cmd_discard(const struct options *o) NOT_IN_RECOVER;
int cmd_inhibit(const struct options *o) NOT_IN_RECOVER;
int cmd_trim(const struct options *o) NOT_IN_RECOVER;
int cmd_factory_reset(const struct options *o) NOT_IN_INITRAMFS;
int cmd_accept(const struct options *o) NOT_IN_INITRAMFS;
int cmd_undo(const struct options *o) NOT_IN_INITRAMFS;
int cmd_run(const struct options *o) NOT_IN_INITRAMFS;
int cmd_generations(const struct options *o) NOT_IN_INITRAMFS;
int cmd_uninhibit(const struct options *o) NOT_IN_RECOVER;
int cmd_check(const struct options *o);
int cmd_release(const struct options *o);
int cmd_grow(const struct options *o) NOT_IN_RECOVER;
int cmd_config(const struct options *o) NOT_IN_RECOVER;
int cmd_boot(const struct options *o) NOT_IN_RECOVER;
int cmd_shutdown(const struct options *o) NOT_IN_RECOVER;
int cmd_top(const struct options *o) NOT_IN_INITRAMFS;
int cmd_diff(const struct options *o) NOT_IN_INITRAMFS;
int cmd_view(const struct options *o) NOT_IN_INITRAMFS;
int cmd_wear(const struct options *o) NOT_IN_INITRAMFS;
int cmd_revert(const struct options *o) NOT_IN_INITRAMFS;
int cmd_setup(const struct options *o) NOT_IN_INITRAMFS;
int cmd_disable(const struct options *o) NOT_IN_INITRAMFS;

static inline bool has_option(const struct options *o, enum cmd_option id)
{
	return o->value[id] != NULL;
}

/* ---- cmd.c ---- */

/*
 * Prints one sentence on stderr, or JSON on stdout with --json. Returns exit. error: -errno, for
 * the JSON.
 */
int cmd_fail(const struct options *o, enum exit_code exit, int error, const char *fmt, ...)
	PRINTF(4, 5);
#define cmd_usage(o, ...) cmd_fail(o, EXIT_USAGE, -EINVAL, __VA_ARGS__)
/* The same for a failed operation; without --json it includes the output of a failed program. */
int cmd_failed(const struct options *o, const struct failure *f);
/*
 * what excludes other options, the last id is OPT_END. EXIT_OK, or the return value of cmd_fail for the first that is
 * given.
 */
int cmd_excludes(const struct options *o, const char *what, ...) MUST_CHECK;
/* A line of a table: the label, or "" below the one before, and a cleaned text. */
void cmd_row(const char *label, const char *fmt, ...) PRINTF(2, 3);
/*
 * Puts those of n options that were given on the command line of another program, as --NAME and their values. Returns
 * the number of words.
 */
unsigned cmd_pass_on(const struct options *o, const enum cmd_option *ids, size_t n,
		     const char **argv);
/* A commit_progress; ctx is a struct progress. */
void cmd_progress(void *ctx, enum commit_phase phase, uint64_t done_blks, uint64_t total_blks);
/* Can the user be asked on a terminal, or is that not needed (--yes)? */
bool cmd_can_ask(const struct options *o);
/* On a terminal without --yes: of a command that scripts give, too. */
bool cmd_asks(const struct options *o);
/* Asks a question that only "y" answers with yes; --yes: does not ask. */
bool cmd_confirm(const struct options *o, const char *question);
/*
 * The status of a daemon: a composed root is mounted over the volume, and the daemon sees the mount
 * below. Replaces the mount point, and adds "lower". status may be NULL.
 */
struct json_object *cmd_composed(struct json_object *status);
/*
 * Replaces the file that an option names, atomically: concurrent readers see the old or the new text. The file is
 * readable for all. "-": standard output. EXIT_OK, or the return value of cmd_fail.
 */
int cmd_write_file(const struct options *o, enum cmd_option option, const char *path,
		   const char *text, size_t len) MUST_CHECK;

/* ---- lib_path.c ---- */

/* The path of a file in a folder beside that of the program. -ENAMETOOLONG, errors of reading /proc. */
int cmd_beside(char path[PATH_MAX], const char *folder, const char *name) MUST_CHECK;
/* In ../lib/cowfs, or in COWFS_LIBDIR of the environment. */
int cmd_lib_path(char path[PATH_MAX], const char *name) MUST_CHECK;

/* ---- cmd_tools.c: programs of the package cowfs-tools, ../libexec/cowfs/cowctl-NAME (or in COWFS_LIBEXEC) ---- */

/* Runs the one of argv[1] with argv of main. Returns only if it cannot be run: the exit code. */
int cmd_tool(char **argv) NOT_IN_INITRAMFS;
bool cmd_has_tool(const char *name) NOT_IN_INITRAMFS;
/* A line with their names; nothing if there are none. */
void cmd_print_tools(FILE *f) NOT_IN_INITRAMFS;
/*
 * Runs the one of argv[0] with the document as its input. *ret: what it printed, for the caller to free. EXIT_OK, or the return
 * value of cmd_fail.
 */
int cmd_filter(const struct options *o, const char *argv[], struct json_object *doc, char **ret,
	       size_t *ret_bytes) MUST_CHECK;

/* ---- cmd_prepare.c ---- */

struct format_options;
struct format_report;
/* The options of a log that is made: size, erase block, lag. EXIT_OK, or the return value of cmd_fail. */
int cmd_parse_log(const struct options *o, struct format_options *ret) MUST_CHECK;
/* After a dry run that returned e: the commands that protect the device, in their order. The caller puts it. */
struct json_object *prepare_steps(const struct options *o, const struct format_options *opt, int e,
				  const struct format_report *r);
/* cmd_prepare. informs: with --dry-run, and a device that has a log, or needs room for one, is no failure. */
int prepare_card(const struct options *o, bool informs);
/* card_facts.c: card --facts DEVICE */
int card_facts(const struct options *o);

/* ---- cmd_view.c ---- */

/*
 * A view of a volume, or of a device that is not attached: VIEW_HELD of the generation that is held there, else of the
 * newest one. which NULL: the only volume. As view_mount_open, or (VIEW_DISK) view_mount_disk.
 */
int cmd_view_open(const struct options *o, const char *which, enum view_kind kind,
		  enum view_use use, struct view_mount *ret, struct failure *err) MUST_CHECK;
/* Warns if the view of this volume lacks what was written last. */
void cmd_view_warn(const struct view_mount *m, const char *name);
/* ---- name_files.c ---- */

struct extents;
/* Names the files that own these blocks, as the view has them: lines for people, or (w) strings for an open array. */
void name_files(const struct view_mount *m, const struct extents *blks, struct jsonw *w);

/* ---- interrupt.c: Ctrl-C while something goes on that it does not end ---- */

/*
 * What goes on, and what the next Ctrl-C does, as a line with its end. nth: 1 for the first signal.
 * *ret_end: the program ends now, by the signal. Runs in a signal handler.
 */
typedef const char *interrupt_fn(unsigned nth, bool *ret_end);
void interrupt_begin(interrupt_fn *fn);
void interrupt_end(void);
/* From now on SIGINT, SIGTERM and SIGHUP only set interrupt_stop. */
void interrupt_catch(void);
extern volatile sig_atomic_t interrupt_stop;

/* ---- await_card.c ---- */

/* If the card is away, says on standard error (and to the kernel log) which one, and what would be lost, and waits for it. False: it is still away. */
bool await_card(struct client *c, uint64_t limit_ns, bool kmsg);
/* --away-wait, if it is given. EXIT_OK, or the return value of cmd_fail. */
int await_time(const struct options *o, uint64_t *ret_ns) MUST_CHECK;

/* ---- cmd_brief.c ---- */

/*
 * The status from the daemon; for users without that permission from its file. The caller puts it.
 * NULL: it does not answer.
 */
struct json_object *fresh_status(const char *name);
/*
 * The same for people: what the kernel has not written yet is in no count, so it writes that first; and
 * "next_commit_unix_seconds", if a timer of systemd commits. Takes status, which may be NULL.
 */
struct json_object *status_for_people(struct json_object *status);
/* status --brief. Returns the exit code. */
int status_brief(void);
/* cowctl without a command: the same, and what to do next. Returns the exit code. */
int overview(void);

/* ---- cmd_commit_files.c ---- */

struct places;
/*
 * Commits these paths alone. The caller puts the answer of the daemon. name: of the volume. 0, or
 * -errno with *err; -EINTR also in each call after a signal.
 */
int commit_files(const struct options *o, const struct places *p, struct json_object **ret,
		 char name[RUNDIR_NAME_BYTES], struct failure *err) NOT_IN_INITRAMFS MUST_CHECK;

/* ---- commit_trial.c ---- */

/*
 * Can both generations of a trial be booted? The root on trial is in this folder; -1: it runs. EXIT_OK, or the return
 * value of cmd_fail.
 */
int commit_trial_check(const struct options *o, int new_root_fd) NOT_IN_INITRAMFS;

/* ---- cmd_held.c ---- */

/*
 * Does --generation name the one that is held, or the newest one? Of the volume of c, or (NULL) of a
 * card. EXIT_OK, or the return value of cmd_fail.
 */
int choose_generation(const struct options *o, struct client *c, const char *device,
		      bool *ret_held) NOT_IN_INITRAMFS MUST_CHECK;

/* ---- ask_volume.c ---- */

/* The operand that names the volume; NULL: the only one. */
const char *which_volume(const struct options *o);
/*
 * Opens, sends the request, shows the progress, reports a failure. EXIT_OK with the answer, which the caller puts; c
 * stays open. Else the exit code.
 */
int ask_volume(struct client *c, const struct options *o, const struct request *rq,
	       struct json_object **ret) MUST_CHECK;
/* The request to an open daemon, with its progress. Returns as client_call. */
struct json_object *ask_client(struct client *c, const struct request *rq, struct failure *err);
/* Without a word; false: it stays attached. */
bool detach_volume(struct client *c);
typedef void print_answer_fn(const char *name, const struct options *o, struct json_object *answer);
/* Shows an answer, and puts it; print: without --json. */
void show_answer(const char *name, const struct options *o, struct json_object *answer,
		 print_answer_fn *print);
/* The whole of a command that is one request; print: without --json. Returns the exit code. */
int ask_and_print(const struct options *o, const struct request *rq, print_answer_fn *print);
/* Calls fn for each volume as the only operand, also if one fails. The first exit code that is not 0
 * counts. */
int each_volume(const struct options *o, char names[][RUNDIR_NAME_BYTES], size_t n,
		int (*fn)(const struct options *o, size_t nth, void *ctx), void *ctx);

/* ---- commit_volume.c ---- */

/* BOOTS of --trial, 0: it is not given. EXIT_OK, or the return value of cmd_fail. */
int trial_boots(const struct options *o, uint64_t *ret) MUST_CHECK;
/* Fills *ret from the options of commit. EXIT_OK, or the return value of cmd_fail. */
int commit_request(const struct options *o, struct request *ret) MUST_CHECK;
/* Of a dry run: adds the share of the card's life that the commit would use. */
void commit_add_life(struct client *c, const struct options *o, struct json_object *answer);
/* Commits everything of the one volume that o names, and prints. By timer, the root before a volume of /boot. Returns the exit
 * code. */
int commit_volume(const struct options *o);
/* Ahead of a commit and its checkpoint, for what reads the bare card and replays no log: the driver writes its metadata home.
 * Without --checkpoint only of a volume with checkpoint = always. A remark to stderr if it cannot. */
void commit_metadata_home(const char *which, const struct request *rq);
void print_commit(const char *name, const struct options *o, struct json_object *answer);
/* A commit of free blocks alone writes nothing, not even a record. */
bool wrote_nothing(struct json_object *answer, bool dry_run);

/* ---- cmd_commit_all.c ---- */

/* Commits each volume by itself, in turn. Returns the exit code. */
int commit_all(const struct options *o) NOT_IN_INITRAMFS;

/* ---- turns.c ---- */

/* Volumes in the order in which they are committed: data volumes, the root, those on /boot; before each those that lie on it. */
struct turns {
	char name[CLIENT_VOLUMES][RUNDIR_NAME_BYTES];
	bool on_boot[CLIENT_VOLUMES];
	size_t n;
};

/* Commits the volume, unless it is left out: then only says so. *ret_committed stays false if the next start does not have its
 * state of now. Returns the exit code. */
typedef int turn_fn(void *ctx, const char *name, bool left_out, bool *ret_committed);

/* All running volumes. */
void turns_of_all(struct turns *ret);
/* The root and this volume, if that is on /boot and has changes; false: it is not, or there is no root. */
bool turns_of_boot(struct turns *ret, const char *which);
/* Does one of them lie on this volume? */
bool turns_has_inner(const struct turns *t, const char *name);
/* Adds one at the end. */
void turns_add(struct turns *t, const char *name, bool on_boot);
/*
 * Calls turn for each, also if one fails. If the root comes before them and is not committed, the volumes on /boot are left out.
 * again: of the root once more if these were written meanwhile. Returns the first exit code that is not 0.
 */
int turns_take(const struct turns *t, bool again, turn_fn *turn, void *ctx);
/* Of an answer to a commit: has it all that was written before? */
bool commit_synced(struct json_object *answer);
/* *ret_committed of that. */
bool turn_committed(struct json_object *answer);
/* Why it was left out. Returns err->error. */
int turn_left_out(struct failure *err, const char *name);

/* ---- commit_kept.c ---- */

/* Commits the kept paths of the volume alone (commit --kept). Returns the exit code. */
int commit_kept(const struct options *o) NOT_IN_INITRAMFS;

/* ---- status_follow.c ---- */

/* Prints events until it is stopped (status --follow), or once. Returns the exit code. */
int status_follow(const struct options *o) NOT_IN_INITRAMFS;

/* ---- print.c: answers of a daemon for people ---- */

/* verbose: all rows. */
void print_status(struct json_object *status, bool verbose);
/* Does the card have all files? A file system also writes to its superblock after a commit. */
bool all_on_card(struct json_object *status);
/* "" or ", next TIME" */
const char *next_text(struct json_object *status);
/* False: no card of the volume is away. "for 12 s: /dev/sdb1 was pulled out, or has reset" */
bool away_text(struct json_object *status, char *ret, size_t size_bytes);
/* Does another version than this one serve the volume, because the package was upgraded? Then a clause that
 * begins with that version. */
bool version_text(struct json_object *s, char *ret, size_t n);
/* prints what a commit wrote: {"report":{},"quiesce":{}} */
void print_bill(struct json_object *result);
/* prints what was unusual about it */
void print_remarks(struct json_object *result);

/* ---- wear_gather.c ---- */

/*
 * The history of a card with cowfs, as documented in WEAR.md: of a running volume (which may be
 * NULL), or of a device without a daemon. The caller puts *ret. EXIT_OK, or the return value of
 * cmd_fail.
 */
int wear_gather(const struct options *o, const char *which, struct json_object **ret) MUST_CHECK;

/* ---- past.c ---- */

struct log_past;
/* What the ledger of a card (which: as for wear_gather) is for a clone of it. False: not known. */
bool past_of(const struct options *o, const char *which, struct log_past *ret) MUST_CHECK;
/* Adds "predecessor" to the document of a card that is a clone. */
void past_add(struct json_object *wear);

/* ---- wear_print.c, wear_tools.c: forms of it; those return the exit code ---- */

void print_wear(struct json_object *wear);
/* form: OPT_HTML, OPT_OUTLOOK or OPT_PROMETHEUS */
int wear_tool(const struct options *o, enum cmd_option form, struct json_object *doc);
int wear_prometheus(const struct options *o);

#endif
