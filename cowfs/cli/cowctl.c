/* SPDX-License-Identifier: MIT */
/* The tool: one table of commands, their options and their help. The commands are in cmd_*.c. */
#include <blkid.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/msg.h"
#include "base/program.h"
#include "fs/fsproc.h"
#include "wire/client.h"
#include "cli/cmd.h"

#ifdef COWFS_RECOVER
#define ABOUT                                                                                      \
	"Reads a card of cowfs, or makes it a plain file system, on a machine without cowfs.\n\n"
#define OPERANDS "A DEVICE, or an image file, may also be given as "
#define ABSENT "not in cowfs-recover, only in cowctl"
#else
#define ABOUT "Controls volumes that cowfs protects from writes.\n\n"
#define OPERANDS                                                                                   \
	"N is the name of a volume, its device, loop device or mount point; it may be omitted "    \
	"when only\none is attached. A DEVICE may be given as "
#define ABSENT "not in an initramfs, only in the cowctl of the system"
#endif

#define SPEC(...)                                                                                  \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define COMMON                                                                                     \
	SPEC(OPT_JSON, "json", NULL, "print the result as JSON"),                                  \
		SPEC(OPT_HELP, "help", NULL, "show this help"), SPEC(0)
#define LOG_OPTION                                                                                 \
	SPEC(OPT_LOG, "log", "DEVICE", "the device that holds the log, if not DEVICE itself")
#define FLASH_OPTION                                                                               \
	SPEC(OPT_FLASH, "flash", "slc|mlc|tlc|qlc|unknown",                                        \
	     "kind of flash, for the assumed number of erase cycles (default: unknown)")
/* of a log that is made */
#define NEW_LOG_OPTIONS                                                                                                    \
	SPEC(OPT_LOG_SIZE, "log-size", "SIZE",                                                                             \
	     "size of the log (default: 32M, 64M on 1 GiB and more, or 8 erase blocks if more; other than ext: a 16th of " \
	     "the file system, at most 160M)"),                                                                            \
		SPEC(OPT_ERASE_BLOCK, "erase-block", "SIZE",                                                               \
		     "erase block of the card (default: as the card reports, or 4M)"),                                     \
		SPEC(OPT_LAG, "lag", "N",                                                                                  \
		     "1: also keep the previous commit, for a card that may lose acknowledged writes (default: 0)")
static const struct option_spec prepare_options[] = {
	NEW_LOG_OPTIONS,
	LOG_OPTION,
	{ OPT_SHRINK, "shrink", NULL, "make space first: shrink the ext2/3/4, atomically" },
	{ OPT_JOURNAL_SIZE, "journal-size", "SIZE",
	  "with --shrink: largest size of the journal (default: 16M)" },
	{ OPT_FORCE, "force", NULL, "overwrite an old log, if no block is only in it" },
	{ OPT_DRY_RUN, "dry-run", NULL,
	  "write nothing: print what would be written, or why not, and the next commands" },
	COMMON
};
static const struct option_spec clone_options[] = {
	NEW_LOG_OPTIONS,
	LOG_OPTION,
	{ OPT_DISK, "disk", NULL, "NEW, also a file, is to have all partitions of the disk" },
	{ OPT_NO_VERIFY, "no-verify", NULL, "do not read the copy back" },
	{ OPT_YES, "yes", NULL, "do not ask" },
	/* for clone-disk of cowfs-tools: a part of NEW, which it has claimed; --dry-run: is there room? */
	{ OPT_WINDOW, "window", "NUMBER:START:BYTES", NULL },
	{ OPT_DRY_RUN, "dry-run", NULL, NULL },
	COMMON
};
/* for cowfs-tools: what DEVICE is and holds */
static const struct option_spec card_options[] = { { OPT_FACTS, "facts", NULL, NULL }, COMMON };
static const struct option_spec export_options[] = {
	{ OPT_BASE, "base", "DEVICE",
	  "the base is the newest generation of this card or image (default: the held one of N)" },
	{ OPT_ALL, "all", NULL, "no base: all used blocks" },
	{ OPT_SIGN, "sign", "KEY", "sign it: ssh-keygen -Y sign -f KEY" },
	LOG_OPTION,
	COMMON
};
static const struct option_spec import_options[] = {
	{ OPT_TRIAL, "trial", "BOOTS",
	  "of the root: it goes back by itself after BOOTS boots (1 to 14) without cowctl accept" },
	{ OPT_OLDER, "older", NULL, "also if it is older than what was imported last" },
	{ OPT_FORCE, "force", NULL, "with --trial: whatever kernels the two roots have" },
	COMMON
};
static const struct option_spec scrub_options[] = {
	LOG_OPTION,
	{ OPT_YES, "yes", NULL, "have blocks written again without a question" },
	{ OPT_TIMER, "timer", NULL,
	  "for timers: ends at once if a pass was complete in the last 30 days" },
	COMMON
};
static const struct option_spec attach_options[] = { VOLOPT_SPECS COMMON };
#define VERBOSE_OPTION                                                                             \
	SPEC(OPT_VERBOSE, "v", NULL, "short for --verbose"),                                       \
		SPEC(OPT_VERBOSE, "verbose", NULL, "print an account of what was written")
static const struct option_spec detach_options[] = {
	{ OPT_DISCARD, "discard", NULL, "discard uncommitted changes" },
	{ OPT_AWAY_WAIT, "away-wait", "TIME", "wait so long for a card that is away (default: 0)" },
	VERBOSE_OPTION,
	COMMON
};
static const struct option_spec commit_options[] = {
	{ OPT_DRY_RUN, "dry-run", NULL,
	  "only print what a commit would write, and how much of the card's life it takes" },
	FLASH_OPTION,
	{ OPT_CHECKPOINT, "checkpoint", NULL,
	  "checkpoint everything at once, so that the card is a plain file system" },
	{ OPT_FORCE, "force", NULL,
	  "commit although the file system has an error flag or a bad checksum" },
	{ OPT_DEADLINE, "deadline", "TIME",
	  "begin only what will be done in this time, such as 5s" },
	{ OPT_HOLD, "hold", NULL, "keep this generation until cowctl accept, for cowctl undo" },
	{ OPT_TRIAL, "trial", "BOOTS",
	  "the root goes back by itself after BOOTS boots (1 to 14) without cowctl accept" },
	{ OPT_ALL, "all", NULL, "commit all volumes, one after another: that of /boot last" },
	{ OPT_KEPT, "kept", NULL, "commit only the paths that keep= of cowfs.conf names" },
	{ OPT_NO_WAIT, "no-wait", NULL, "fail at once if another commit is under way" },
	{ OPT_TIMER, "timer", NULL, "for timers: fails while inhibited, skips needless writes" },
	VERBOSE_OPTION,
	COMMON
};
static const struct option_spec undo_options[] = {
	{ OPT_DRY_RUN, "dry-run", NULL, "only print what it would go back to" },
	{ OPT_CANCEL, "cancel", NULL, "take an undo back, until the next boot or commit" },
	{ OPT_YES, "yes", NULL, "do not ask, even on a terminal" },
	LOG_OPTION,
	COMMON
};
static const struct option_spec accept_options[] = {
	{ OPT_DRY_RUN, "dry-run", NULL, "only print what it would end" },
	{ OPT_TRIAL, "trial", NULL, "for units: only what commit --trial made" },
	LOG_OPTION,
	COMMON
};
static const struct option_spec run_options[] = {
	{ OPT_VOLUME, "volume", "N", "the volume (default: the root)" },
	{ OPT_TRIAL, "trial", "BOOTS", "of the root: what is kept is on trial, as commit --trial" },
	COMMON
};
static const struct option_spec discard_options[] = {
	{ OPT_CANCEL, "cancel", NULL, "take it back" },
	{ OPT_YES, "yes", NULL, "do not ask, even on a terminal" },
	COMMON
};
static const struct option_spec inhibit_options[] = {
	{ OPT_FOR, "for", "TIME", "duration, such as 90s, 10m, 2h (default: 10m; at most 24h)" },
	COMMON
};
static const struct option_spec offline_options[] = { LOG_OPTION, COMMON };
static const struct option_spec wear_options[] = {
	{ OPT_HTML, "html", "FILE",
	  "write the same as one page with charts, which needs no network; -: standard output" },
	{ OPT_OUTLOOK, "outlook", NULL,
	  "how long the card may last, and what it reports of its health" },
	{ OPT_PROMETHEUS, "prometheus", "FILE",
	  "write the figures of all volumes, or of one, for Prometheus; -: standard output" },
	{ OPT_FROM, "from", "FILE",
	  "use FILE written by 'cowctl wear --json' (-: standard input) instead of a volume" },
	FLASH_OPTION,
	{ OPT_CMD56, "cmd56", NULL,
	  "read an SD card's health with a vendor's command, which may hang for some seconds" },
	LOG_OPTION,
	COMMON
};
static const struct option_spec top_options[] = {
	{ OPT_ROWS, "n", "ROWS", "number of rows, 0 for all (default: 20)" },
	{ OPT_BY, "by", "file|directory", "a row for each file or directory (default: file)" },
	{ OPT_INTERVAL, "interval", "TIME",
	  "repeat at this interval, such as 5s, and show what is new" },
	{ OPT_ONCE, "once", NULL, "with --interval: end after one interval" },
	COMMON
};
#ifndef COWFS_RECOVER
static const struct option_spec view_options[] = {
	{ OPT_NOW, "now", NULL,
	  "a consistent snapshot of the volume, with uncommitted changes, instead of the newest commit" },
	{ OPT_GENERATION, "generation", "GENERATION",
	  "this one: held, or a number that cowctl generations lists" },
	LOG_OPTION,
	COMMON
};
#endif
static const struct option_spec diff_options[] = {
	{ OPT_STAT, "stat", NULL, "print only how many files differ, and their sizes" },
	{ OPT_NULL, "z", NULL, "short for --null" },
	{ OPT_NULL, "null", NULL, "end each field with a NUL, and print names as they are" },
	{ OPT_GENERATION, "generation", "GENERATION",
	  "compare with this one, held or its number, instead of the last commit" },
	COMMON
};
static const struct option_spec release_options[] = {
	LOG_OPTION,
	{ OPT_ACCEPT, "accept", "base|log|lost",
	  "keep the file system as it is: discard the blocks in the log; or write the log over the foreign changes; or write "
	  "zeroes for blocks of the log that cannot be read" },
	COMMON
};
static const struct option_spec status_options[] = {
	{ OPT_VERBOSE, "v", NULL, "short for --verbose" },
	{ OPT_VERBOSE, "verbose", NULL, "print all that is known, also while all is well" },
	{ OPT_BRIEF, "brief", NULL, "a line per volume, for a login" },
	{ OPT_FOLLOW, "follow", NULL,
	  "print what changes, an event a line, until stopped: NAME EVENT DETAIL" },
	{ OPT_ONCE, "once", NULL, "with --follow: print what needs attention now, and end" },
	COMMON
};
static const struct option_spec shutdown_options[] = {
	{ OPT_WITHIN, "within", "TIME", "give up after this time, such as 80s (default: never)" },
	{ OPT_IF_LONGER, "if-longer", "TIME",
	  "leave a commit that takes less time to the next call, such as 10s" },
	{ OPT_AWAY_WAIT, "away-wait", "TIME",
	  "wait so long for a card that is away (default: 60s, half of --within at most)" },
	COMMON
};
/* root, for tests: examine the system below DIR; implies --dry-run */
#define SETUP_OPTIONS                                                                              \
	SPEC(OPT_DRY_RUN, "dry-run", NULL, "only check, and print what would be done"),            \
		SPEC(OPT_YES, "yes", NULL, "do not ask, even on a terminal"),                      \
		SPEC(OPT_ROOT, "root", "DIR", NULL)
static const struct option_spec setup_options[] = {
	SETUP_OPTIONS,
	{ OPT_SWAP_OFF, "swap-off", NULL, "switch off swap files on the root" },
	{ OPT_FORCE, "force", NULL, "go on if the boot loader is unknown" },
	{ OPT_NO_TRIAL, "no-trial", NULL, "stay read-only if the protected root does not come up" },
	{ OPT_IMAGE, "image", "DIR",
	  "prepare the system that is installed in DIR for being the image of a root" },
	{ OPT_LOWER, "lower", "DEVICE",
	  "with --image: where the image will be, DEVICE or DEVICE:/FILE" },
	COMMON
};
static const struct option_spec disable_options[] = { SETUP_OPTIONS, COMMON };
static const struct option_spec revert_options[] = { { OPT_DRY_RUN, "dry-run", NULL,
						       "only print what would be done" },
						     { OPT_YES, "yes", NULL, "do not ask" },
						     COMMON };
static const struct option_spec factory_reset_options[] = { { OPT_YES, "yes", NULL, "do not ask" },
							    COMMON };
static const struct option_spec config_options[] = {
	{ OPT_LIST, "list", NULL, "print the names of the configured volumes" },
	{ OPT_KEY, "key", "KEY",
	  "print only the value of this key; with --list also K,K: one line NAME KEY VALUE per "
	  "volume and key" },
	COMMON
};
static const struct option_spec boot_options[] = {
	{ OPT_DEVICE, "device", "DEVICE",
	  "the partition (default: root= of the kernel command line)" },
	{ OPT_CMDLINE, "cmdline", "TEXT", "instead of the content of /proc/cmdline" },
	{ OPT_CONF, "conf", "FILE", "instead of /etc/cowfs/cowfs.conf" },
	{ OPT_COMPOSE, "compose", "DIR",
	  "last step: the volume is mounted on DIR; mount the composed root over it" },
	COMMON
};
static const struct option_spec common_options[] = { COMMON };
static const struct option_spec general_options[] = {
	{ OPT_VERSION, "version", NULL, "show the version" }, COMMON
};

/* Of a program of its own, which reads its options itself. */
static const struct option_spec tool_options[] = { { 0 } };

/* A heading of commands that the help leaves out. */
#define FOR_UNITS ""

static const struct command {
	const char *group;	    /* the heading above it; NULL: that of the one before */
	const char *name, *operand; /* NULL: none; "[N]" is optional, "..." any number */
	const char *summary, *more;
	int (*run)(const struct options *o);
	const struct option_spec *options;
} commands[] = {
	{ "Look", "status", "[N]", "show what is in RAM, in the log and on the card",
	  "The exit code is 3 if something needs attention.", cmd_status, status_options },
	{ NULL, "top", "[N]", "show which files fill the RAM",
	  "What lies in RAM is not on the card yet.", cmd_top, top_options },
	{ NULL, "diff", "[N] [PATH...]", "show which files differ from the last commit",
	  "A added, D deleted, M content changed, m only metadata, R renamed. Then what differs: c content, p "
	  "permissions, o owner, t time, x extended attributes, a ACL, f flags.",
	  cmd_diff, diff_options },
#ifdef COWFS_RECOVER
	{ NULL, "view", "DEVICE DIR", "mount the newest generation of a card on DIR, read-only",
	  "Writes nothing to DEVICE. umount DIR ends the view.", cmd_view, offline_options },
#else
	{ NULL, "view", "[N] DIR", "mount a read-only image of a volume, or of a card, on DIR",
	  "The volume continues to work and to commit. umount DIR ends the view.\n"
	  "N may also be a device or image file that is not attached: nothing is written to it.",
	  cmd_view, view_options },
#endif
	{ NULL, "wear", "[N]", "show the wear of the card and how long it may last",
	  "N may also be a device that is not attached.", cmd_wear, wear_options },
	{ "Commit and take back", "commit", "[N] [PATH...]",
	  "write what is in RAM to the card, atomically", "With PATH only these files and folders.",
	  cmd_commit, commit_options },
	{ NULL, "revert", "[N] PATH...", "bring files back from the committed generation, at once",
	  "Lists what it will do, and asks.", cmd_revert, revert_options },
	{ NULL, "generations", "[N]", "list the generations that are on the card",
	  "N may also be a device or image file that is not attached.", cmd_generations,
	  offline_options },
	{ NULL, "undo", "[N]",
	  "go back to the held generation at the next attach, the root at the next boot",
	  "What was committed since commit --hold is lost.\n"
	  "N may also be a device or image file that is not attached.",
	  cmd_undo, undo_options },
	{ NULL, "accept", "[N]", "end the hold of commit --hold: keep what was committed since",
	  "N may also be a device or image file that is not attached.", cmd_accept,
	  accept_options },
	{ NULL, "run", "COMMAND [ARG]...", "keep all that a command changes, or nothing",
	  "Write -- before COMMAND. If it fails, or the power is cut, the volume goes back.",
	  cmd_run, run_options },
	{ NULL, "discard", "[N]", "discard uncommitted changes at the next detach or shutdown",
	  NULL, cmd_discard, discard_options },
	{ NULL, "inhibit", "[N]", "suspend timer commits for some time",
	  "RAM pressure still commits.", cmd_inhibit, inhibit_options },
	{ NULL, "uninhibit", "[N]", "allow timer commits again", NULL, cmd_uninhibit,
	  common_options },
	{ "Protect a volume", "card", "[DEVICE]",
	  "list the devices, or show one, with the commands that protect it",
	  "Reads only. With DEVICE, which may also be a mount point: as prepare --dry-run.",
	  cmd_card, card_options },
	{ NULL, "prepare", "DEVICE", "write an empty log into the space behind the file system",
	  "Without --shrink the file system is not touched. DEVICE must not be mounted.",
	  cmd_prepare, prepare_options },
	{ NULL, "attach", "DEVICE", "protect a volume; prints the loop device to mount",
	  "From now on only commits write to DEVICE.", cmd_attach, attach_options },
	{ NULL, "detach", "[N]", "end the protection of a volume",
	  "Its loop device must not be in use. Afterwards DEVICE is a plain file system.",
	  cmd_detach, detach_options },
	{ NULL, "check", "DEVICE", "verify the log and the last generations; reads only",
	  "Exit code 3: repairable damage, 1: not repairable.", cmd_check, offline_options },
	{ NULL, "release", "DEVICE",
	  "make the card a plain file system again: checkpoint all, retire the log",
	  "A second run writes nothing.", cmd_release, release_options },
	{ NULL, "grow", "DEVICE", "after the partition grew: record its new size in the log",
	  "DEVICE must not be mounted or attached.", cmd_grow, offline_options },
	{ NULL, "clone", "[N] NEW",
	  "copy a volume, or the disk around it, as it is now to another card",
	  "NEW is a partition or a file for the volume alone, or a disk for all partitions and the boot\n"
	  "loader; all of it is overwritten. N may also be a device or image file that is not attached.\n"
	  "An interrupted clone goes on where it stopped.",
	  cmd_clone, clone_options },
	{ NULL, "export", "[N] FILE", "write what the newest generation has and another has not",
	  "For cowctl import on other cards of the same image.\n"
	  "N may also be a device or image file that is not attached.",
	  cmd_export, export_options },
	{ NULL, "import", "[N] FILE", "commit what export wrote: the next attach or boot has it",
	  "All of it, or nothing. What is mounted goes on, and what it writes is lost then.",
	  cmd_import, import_options },
	{ NULL, "scrub", "[N]",
	  "read all used blocks of a card, and name the files that it reads badly",
	  "Only reads, and gives way to everything else. An interrupted scrub goes on where it was.\n"
	  "N may also be a device or image file that is not attached.\n"
	  "Exit code 3: blocks could not be read, or not at first.",
	  cmd_scrub, scrub_options },
	{ NULL, "trim", "[N]", "tell the card which blocks no generation uses (TRIM)",
	  "Prints how much that is. Makes way for commits.", cmd_trim, common_options },
	{ NULL, "measure", "DEVICE|DIR", "measure a card, and make its profile", NULL, NULL,
	  tool_options },
	{ NULL, "config", "[N]", "show what cowfs.conf says about a volume (default: root)", NULL,
	  cmd_config, config_options },
	{ "Protect the root", "setup", NULL,
	  "protect the root of this system, from the next boot on",
	  "Checks everything first. --dry-run prints what it would do.", cmd_setup, setup_options },
	{ NULL, "disable", NULL,
	  "end the protection of the root from the next boot on; undoes setup", NULL, cmd_disable,
	  disable_options },
	{ NULL, "factory-reset", NULL,
	  "drop all changes of an image root (compose = overlay) at the next boot",
	  "Commits this decision. Until the next boot nothing changes.", cmd_factory_reset,
	  factory_reset_options },
	{ FOR_UNITS, "shutdown", "[N]", "commit all volumes for the last time: for shutdown hooks",
	  "Prints a line per volume with its result.", cmd_shutdown, shutdown_options },
	{ NULL, "boot", NULL,
	  "protect the root, before it is mounted: for an initramfs; prints what to mount",
	  "Exit codes: 0 protected, 1 not configured, 3 could not start (mount it read-only), 4 bypassed with cowfs=off.",
	  cmd_boot, boot_options },
};

/* An initramfs has no cmd_tool. */
static bool is_tool(const struct command *c)
{
	return cmd_tool && c->options == tool_options;
}

/* Is it in this program? */
static bool is_here(const struct command *c)
{
	return c->run || is_tool(c);
}

/* What a name of another program, or a former one of a command, is here. */
struct other_name {
	const char *name, *here;
};
static const struct other_name other_words[] = {
	{ "save", "commit" },	{ "sync", "commit" },	{ "snapshot", "view --now" },
	{ "rollback", "undo" }, { "umount", "detach" }, { "log", "generations" },
	{ "help", "--help" },
};
/* These still work: a refusal would leave a card unprotected in the middle of somebody's script. */
static const struct other_name former_names[] = { { "format", "prepare" },
						  { "recover", "release" } };

static const char *name_of(const struct other_name *all, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(all[i].name, name))
			return all[i].here;
	return NULL;
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (is_here(&commands[i]) && !strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static void usage(FILE *f)
{
	const char *group = NULL;

	fputs("usage: " COWCTL " COMMAND [OPTION]... [OPERAND]\n" ABOUT, f);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		int n;

		if (commands[i].group)
			group = commands[i].group;
		if (!is_here(&commands[i]) || (group && !strcmp(group, FOR_UNITS)))
			continue;
		if (group)
			fprintf(f, "%s:\n", group);
		group = NULL;
		n = fprintf(f, "  %s %s", commands[i].name,
			    commands[i].operand ? commands[i].operand : "");
		fprintf(f, "%*s%s\n", n < 22 ? 22 - n : 1, "", commands[i].summary);
	}
	fputc('\n', f);
	if (cmd_print_tools)
		cmd_print_tools(f);
	fputs(OPERANDS
	      "UUID=, LABEL=, PARTUUID= or PARTLABEL=.\n'" COWCTL " COMMAND --help' lists "
	      "the options.\nExit codes: 0 ok, 1 failed, 2 usage, 3 degraded, 4 not running, "
	      "5 the card is away.\n",
	      f);
}

static void command_help(const struct command *c)
{
	printf("usage: " COWCTL " %s [OPTION]...%s%s\n%s\n", c->name, c->operand ? " " : "",
	       c->operand ? c->operand : "", c->summary);
	if (c->more)
		printf("%s\n", c->more);
	putchar('\n');
	options_help(stdout, c->options);
}

static int unknown_command(const struct options *o, const char *name)
{
	const char *meant = name_of(other_words, ARRAY_SIZE(other_words), name);

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!is_here(&commands[i]) && !strcmp(commands[i].name, name))
			return cmd_usage(o, "%s: " ABSENT, name);
	if (meant)
		return cmd_usage(o, "unknown command %s: is " COWCTL " %s meant?", name, meant);
	return cmd_usage(o, "unknown command %s (try '" COWCTL " --help')", name);
}

static int print_version(const struct options *o)
{
	struct jsonw *w;

	if (!has_option(o, OPT_JSON)) {
		puts("cowfs " COWFS_VERSION);
		return EXIT_OK;
	}
	w = json_begin(true);
	jsonw_str(w, "version", COWFS_VERSION);
	jsonw_u64(w, "protocol", PROTO_VERSION);
	jsonw_u64(w, "log_format", LOG_FORMAT_VERSION);
	json_end(w);
	return EXIT_OK;
}

/* UUID=..., LABEL=..., PARTUUID=..., PARTLABEL=...: the device instead. 0, or -ENODEV: none has it. */
static int resolve_tag(const char **operand)
{
	static const char *const tags[] = { "UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=" };

	for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
		if (strncmp(*operand, tags[i], strlen(tags[i])))
			continue;
		*operand = blkid_evaluate_spec(*operand, NULL); /* lives as long as the program */
		return *operand ? 0 : -ENODEV;
	}
	return 0;
}

/* Does the number of operands fit? */
static bool operands_fit(const struct command *c, const struct options *o)
{
	unsigned least = 0, most = 0;

	for (const char *p = c->operand; p; p = strchr(p, ' ')) {
		p += *p == ' ';
		least += *p != '[';
		most++;
	}
	if (c->operand && strstr(c->operand, "..."))
		most = OPERANDS_MAX;
	return o->operands >= least && o->operands <= most;
}

/* For an error before the options are known: --json anywhere counts. */
static void take_json(int argc, char **argv, struct options *o)
{
	if (options_name_given(argc, argv, "json"))
		o->value[OPT_JSON] = "";
}

/* Does it only print? Then it ends with its reader (cowctl diff | head). */
static bool prints_only(const struct command *c)
{
	static int (*const printing[])(
		const struct options *o) = { cmd_status,      cmd_top,	cmd_diff,  cmd_wear,
					     cmd_generations, cmd_card, cmd_check, cmd_config };
	size_t i = 0;

	while (i < ARRAY_SIZE(printing) && c->run != printing[i])
		i++;
	return i < ARRAY_SIZE(printing);
}

static int run(const struct command *c, int argc, char **argv)
{
	struct options o = { 0 };
	char why[256];

	if (options_parse(argc, argv, c->options, &o, why, sizeof(why)) < 0) {
		take_json(argc, argv, &o);
		return cmd_usage(&o, "%s: %s (try '" COWCTL " %s --help')", c->name, why, c->name);
	}
	if (has_option(&o, OPT_HELP)) {
		command_help(c);
		return EXIT_OK;
	}
	if (!operands_fit(c, &o))
		return cmd_usage(&o, "usage: " COWCTL " %s [OPTION]...%s%s", c->name,
				 c->operand ? " " : "", c->operand ? c->operand : "");
	/* further operands are paths */
	if (o.operands) {
		const char *tag = o.operand[0];

		if (resolve_tag(&o.operand[0]) < 0)
			return cmd_fail(&o, EXIT_FAILED, -ENODEV, "no device has %s", tag);
	}
	if (prints_only(c))
		signal(SIGPIPE, SIG_DFL);
	return c->run(&o);
}

/* With --json among the arguments in JSON. */
static int unknown(int argc, char **argv)
{
	struct options o = { 0 };

	take_json(argc, argv, &o);
	return unknown_command(&o, argv[0]);
}

/* Options without a command. */
static int without_command(int argc, char **argv)
{
	struct options o = { 0 };
	char why[256];

	if (options_parse(argc, argv, general_options, &o, why, sizeof(why)) < 0) {
		take_json(argc, argv, &o);
		return cmd_usage(&o, "%s (try '" COWCTL " --help')", why);
	}
	if (o.operands)
		return unknown_command(&o, o.operand[0]);
	if (has_option(&o, OPT_VERSION))
		return print_version(&o);
	if (!has_option(&o, OPT_HELP))
		return cmd_usage(&o, "no command (try '" COWCTL " --help')");
	usage(stdout);
	return EXIT_OK;
}

int cowctl_main(int argc, char **argv)
{
	const struct command *c;
	const char *former;
	int exit;

	program_begin();
	msg_set_prog(COWCTL);
	client_no_seed();
	fsproc_start(true, false);
#ifdef COWFS_RECOVER
	if (argc < 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
#else
	if (argc < 2)
		return overview();
#endif
	former = name_of(former_names, ARRAY_SIZE(former_names), argv[1]);
	if (former) {
		fprintf(stderr, COWCTL ": %s is called %s now\n", argv[1], former);
		argv[1] = (char *)(uintptr_t)former;
	}
	c = find(argv[1]);
	if (c ? is_tool(c) : cmd_has_tool && cmd_has_tool(argv[1]))
		return cmd_tool(argv);
	if (c)
		exit = run(c, argc - 2, argv + 2);
	else if (argv[1][0] == '-')
		exit = without_command(argc - 1, argv + 1);
	else
		exit = unknown(argc - 1, argv + 1);
	if (fflush(stdout) == EOF || ferror(stdout)) {
		fprintf(stderr, COWCTL ": cannot write the result\n");
		return EXIT_FAILED;
	}
	return exit;
}
