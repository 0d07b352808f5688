/* SPDX-License-Identifier: MIT */
/* cowctl prepare: creates an empty log in the room behind the file system, or on another device. */
#include "cli/cmd.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clean.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "card/blockdev.h"
#include "fs/fs_ops.h"
#include "offline/offline.h"
#include "volume/pressure.h"

#define SMALL_REQUEST_KB 64u

static int parse_journal_size(const struct options *o, uint64_t *ret)
{
	const char *text = o->value[OPT_JOURNAL_SIZE];

	if (text && !has_option(o, OPT_SHRINK))
		return cmd_usage(o, "--journal-size needs --shrink");
	if (text && (parse_size(text, ret) < 0 || *ret < 4 * MIB || *ret > GIB || *ret % MIB))
		return cmd_usage(o, "--journal-size %s is not a whole number of MiB, at least 4M",
				 text);
	return EXIT_OK;
}

int cmd_parse_log(const struct options *o, struct format_options *ret)
{
	const char *log_size = o->value[OPT_LOG_SIZE], *eb = o->value[OPT_ERASE_BLOCK],
		   *lag = o->value[OPT_LAG];
	uint64_t eb_bytes = 0;

	if (log_size && (parse_size(log_size, &ret->log_bytes) < 0 || !ret->log_bytes))
		return cmd_usage(o, "--log-size %s is not a size such as 32M", log_size);
	if (eb && (parse_size(eb, &eb_bytes) < 0 || !eb_bytes))
		return cmd_usage(o, "--erase-block %s is not a size such as 4M", eb);
	if (eb_bytes % COW_BLK_BYTES || eb_bytes > GIB)
		return cmd_usage(o, "--erase-block must be a multiple of 4 KiB, at most 1 GiB");
	if (lag && strcmp(lag, "0") && strcmp(lag, "1"))
		return cmd_usage(o, "--lag must be 0 or 1");
	ret->erase_block_bytes = (uint32_t)eb_bytes;
	ret->lag = lag && lag[0] == '1';
	return EXIT_OK;
}

static const char *log_device(const struct format_options *opt)
{
	return opt->log_device ? opt->log_device : opt->device;
}

static bool is_committed_unmounted(const struct fsinfo *fs)
{
	return fs->kind != FS_UNKNOWN && !fsinfo_any_moment(fs);
}

/* Explains a small log where all changes may have to go through it. */
static void print_whole(const struct format_report *r)
{
	uint64_t capacity = super_capacity_blks(&r->super);
	unsigned kb = pressure_requests(capacity).kb;

	if (fs_ops(r->fs.kind)->counts_on_free)
		return;
	if (!fsinfo_any_moment(&r->fs)) {
		printf("warning: everything written to the %s between two unmounts must fit in "
		       "the log (%s)\n",
		       r->fs.type, FORMAT_SIZE(blk_to_bytes(pressure_ring_fits(capacity))));
		return;
	}
	cmd_row("commits",
		"all changes of %s may have to pass through the log: it commits on its "
		"own from %s on",
		r->fs.type, FORMAT_SIZE(blk_to_bytes(pressure_ring_commits(capacity))));
	if (!pressure_ring_suffices(capacity))
		printf("warning: the log is so small that a burst of writes can make a commit "
		       "impossible: use at least 16 MiB\n");
	else if (kb < SMALL_REQUEST_KB)
		printf("warning: with so small a log, writes are split into %u KiB and commits "
		       "are frequent; a log of %s avoids both\n",
		       kb, FORMAT_SIZE(FORMAT_WHOLE_LOG_BYTES));
}

/* The command that protects it; of an image file a loop device is needed. */
static const char *attach_command(const char *device, const char *log, char ret[5 * PATH_MAX])
{
	char word[SHELL_WORD_BYTES], log_word[SHELL_WORD_BYTES];
	struct stat st;
	bool image = stat(device, &st) == 0 && S_ISREG(st.st_mode);

	snprintf(ret, 5 * PATH_MAX, "cowctl attach%s%s %s%s%s", log ? " --log " : "",
		 log ? shell_word(log, log_word) : "", image ? "\"$(losetup -f --show " : "",
		 shell_word(device, word), image ? ")\"" : "");
	return ret;
}

static void print_log(const struct format_options *opt, const struct format_report *r)
{
	const struct log_super *s = &r->super;
	char attach[5 * PATH_MAX];

	printf("%s: an empty log %s written\n", log_device(opt), opt->dry_run ? "would be" : "was");
	cmd_row("file system", "%s of %s%s", r->fs.type, FORMAT_SIZE(s->fs_bytes),
		s->external || r->fs.size_bytes <= s->fs_bytes ? ", untouched" : "");
	cmd_row("log", "%s at %s, %u segments of %s",
		FORMAT_SIZE((uint64_t)s->seg_bytes * s->seg_count), FORMAT_SIZE(s->ring_off_bytes),
		s->seg_count, FORMAT_SIZE(s->seg_bytes));
	cmd_row("erase block", "%s%s", FORMAT_SIZE(s->erase_block_bytes),
		s->eb_source == CARD_EB_GUESSED	   ? " (assumed; set --erase-block if you know it)"
		: s->eb_source == CARD_EB_REPORTED ? " (reported by the card)"
						   : "");
	for (unsigned i = 0; i < 2; i++) {
		const char *path = i ? opt->log_device : opt->device,
			   *layer = path ? blockdev_layer(path) : NULL;

		if (layer)
			cmd_row("note", CARD_LAYER, path, layer);
	}
	if (s->lag)
		cmd_row("lag",
			"%u: the previous commit is kept in case the card loses the "
			"newest one",
			s->lag);
	print_whole(r);
	if (is_committed_unmounted(&r->fs))
		printf("warning: this %s is committed only while it is not mounted, or read-only%s\n",
		       r->fs.type,
		       fs_ops(r->fs.kind)->settle
			       ? ". With a journal it is committed at any time: tune2fs -j"
			       : "");
	if (r->fs.inline_data)
		printf("warning: the ext4 has the feature inline_data. Linux 6.18 can deadlock with it "
		       "and a small journal,\n  and sync then hangs on the whole machine. Make the file "
		       "system with -O ^inline_data\n");
	if (opt->dry_run)
		return;
	attach_command(opt->device, s->external ? log_device(opt) : NULL, attach);
	if (strchr(attach, '(') || s->external)
		printf("protect it with: %s\n", attach);
	else
		printf("protect it with: mount -t cowfs %s DIR (or %s, and mount what it prints)\n",
		       attach + strlen("cowctl attach "), attach);
}

static void print_text(const struct format_options *opt, const struct format_report *r)
{
	if (r->shrunk) {
		printf("%s: the file system was shrunk to %s, was %s\n", opt->device,
		       FORMAT_MIB(r->super.fs_bytes), FORMAT_MIB(r->fs.size_bytes));
		cmd_row("written", "%s, in one commit", FORMAT_SIZE(r->written_bytes));
	}
	print_log(opt, r);
}

/* ---- what to do next ---- */

static PRINTF(2, 3) void add_step(struct json_object *steps, const char *fmt, ...)
{
	char text[5 * PATH_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_object_array_add(steps, json_object_new_string(text));
}

/* The options of this command line that the next one needs as well. */
static void same_options(const struct options *o, char *ret, size_t size_bytes)
{
	static const enum cmd_option all[] = { OPT_LOG, OPT_LOG_SIZE, OPT_ERASE_BLOCK, OPT_LAG,
					       OPT_FORCE };
	char word[SHELL_WORD_BYTES];
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all) && len < size_bytes; i++)
		if (has_option(o, all[i]))
			len += (size_t)snprintf(ret + len, size_bytes - len, " --%s%s%s",
						options_spec(o, all[i])->name,
						*o->value[all[i]] ? " " : "",
						shell_word(o->value[all[i]], word));
}

struct json_object *prepare_steps(const struct options *o, const struct format_options *opt, int e,
				  const struct format_report *r)
{
	struct json_object *steps = json_object_new_array();
	char where[PATH_MAX] = "", word[SHELL_WORD_BYTES], more[5 * PATH_MAX] = "",
	     attach[5 * PATH_MAX];
	const char *device = shell_word(opt->device, word), *log = o->value[OPT_LOG];
	bool shrinks = e == -ENOSPC && !log && fs_ops(r->fs.kind)->can_shrink;

	if (*r->attached)
		add_step(steps, "cowctl status %s", r->attached);
	if (*r->attached || (e < 0 && !shrinks && !r->has_log))
		return steps;
	(void)mounts_device_is_on(NULL, opt->device, where);
	if (!strcmp(where, "/")) {
		add_step(steps, "cowctl setup");
		return steps;
	}
	if (*where) {
		char dir[SHELL_WORD_BYTES];

		add_step(steps, "umount %s", shell_word(where, dir));
	}
	same_options(o, more, sizeof(more));
	if (!r->has_log)
		add_step(steps, "cowctl prepare%s%s %s", shrinks ? " --shrink" : "", more, device);
	add_step(steps, "%s", attach_command(opt->device, log, attach));
	return steps;
}

static void print_steps(FILE *f, struct json_object *steps)
{
	for (size_t i = 0, n = json_object_array_length(steps); i < n; i++)
		fprintf(f, "%s  %s\n", i ? "" : "next:\n",
			CLEAN(json_object_get_string(json_object_array_get_idx(steps, i))));
}

static void print_json(const struct format_options *opt, const struct format_report *r,
		       struct json_object *steps)
{
	const struct commit_report *c = &r->shrink.commit;
	const struct log_super *s = &r->super;
	struct jsonw *w = json_begin(true);

	jsonw_str(w, "device", opt->device);
	jsonw_str(w, "log_device", log_device(opt));
	jsonw_str(w, "fs_type", r->fs.type);
	jsonw_u64(w, "volume_bytes", s->fs_bytes);
	jsonw_u64(w, "log_offset_bytes", s->ring_off_bytes);
	jsonw_u64(w, "log_bytes", (uint64_t)s->seg_bytes * s->seg_count);
	jsonw_u64(w, "segment_bytes", s->seg_bytes);
	jsonw_u64(w, "erase_block_bytes", s->erase_block_bytes);
	jsonw_u64(w, "lag", s->lag);
	jsonw_bool(w, "inline_data", r->fs.inline_data);
	if (r->shrunk) {
		jsonw_u64(w, "shrunk_from_bytes", r->fs.size_bytes);
		jsonw_u64(w, "direct_blocks", c->direct);
		jsonw_u64(w, "logged_blocks", c->logged);
		jsonw_u64(w, "zero_blocks", c->zero);
		jsonw_u64(w, "home_blocks", r->shrink.home_blks);
		jsonw_u64(w, "written_bytes", r->written_bytes);
	}
	if (steps)
		jsonw_array(w, "next");
	for (size_t i = 0, n = steps ? json_object_array_length(steps) : 0; i < n; i++)
		jsonw_str(w, NULL, json_object_get_string(json_object_array_get_idx(steps, i)));
	json_end(w);
}

static struct format_stop stop;

static const char *explain_interrupt(unsigned nth, bool *ret_end)
{
	(void)ret_end;
	if (stop.committing)
		return "cowctl: the smaller file system is being committed, which cannot be stopped. "
		       "A power cut is safe: the same command then goes on\n";
	if (nth == 1)
		return "cowctl: nothing is written to the card before the commit. Ctrl-C again: stop "
		       "now\n";
	stop.wanted = true;
	if (stop.program)
		kill(stop.program, SIGTERM);
	return "cowctl: stopping; nothing is written to the card\n";
}

/* Why this device needs no log, or has no room for one yet: no failure of a command that only shows. */
static void print_remark(const struct options *o, const struct format_options *opt,
			 const struct format_report *r, const char *remark,
			 struct json_object *steps)
{
	struct json_object *answer = json_answer(true);

	if (has_option(o, OPT_JSON)) {
		json_object_object_add(answer, "device", json_object_new_string(opt->device));
		json_object_object_add(answer, "fs_type", json_object_new_string(r->fs.type));
		json_object_object_add(answer, "remark", json_object_new_string(remark));
		json_object_object_add(answer, "next", json_object_get(steps));
		json_print(answer);
	} else {
		printf("%s\n", remark);
		print_steps(stdout, steps);
	}
	json_object_put(answer);
}

static int show(const struct options *o, const struct format_options *opt,
		const struct format_report *r, int e, const struct failure *fail, bool informs)
{
	struct json_object *steps = opt->dry_run ? prepare_steps(o, opt, e, r) : NULL;
	int exit = EXIT_OK;

	if (e < 0 && informs && json_object_array_length(steps)) {
		print_remark(o, opt, r, fail->why, steps);
		json_object_put(steps);
		return EXIT_OK;
	}
	if (e < 0)
		exit = cmd_failed(o, fail);
	if (e == 0 && has_option(o, OPT_JSON))
		print_json(opt, r, steps);
	else if (e == 0)
		print_text(opt, r);
	if (steps && !has_option(o, OPT_JSON))
		print_steps(e < 0 ? stderr : stdout, steps);
	json_object_put(steps);
	return exit;
}

int prepare_card(const struct options *o, bool informs)
{
	struct progress progress;
	struct format_options opt = {
		.device = o->operand[0],
		.log_device = o->value[OPT_LOG],
		.over = has_option(o, OPT_FORCE) ? FORMAT_OVER_ALL : FORMAT_OVER_NOTHING,
		.shrink = has_option(o, OPT_SHRINK),
		.dry_run = has_option(o, OPT_DRY_RUN),
		.stop = &stop,
		.progress = cmd_progress,
		.progress_ctx = &progress,
	};
	struct format_report report;
	struct failure fail;
	int e, exit = cmd_parse_log(o, &opt);

	if (exit == EXIT_OK && opt.dry_run)
		exit = cmd_excludes(o, "--dry-run", OPT_SHRINK, OPT_END);
	if (exit == EXIT_OK)
		exit = parse_journal_size(o, &opt.journal_bytes);
	if (exit != EXIT_OK)
		return exit;
	if (opt.shrink)
		interrupt_begin(explain_interrupt);
	progress_start(&progress);
	e = offline_format(&opt, &report, &fail);
	progress_end(&progress);
	interrupt_end();
	return show(o, &opt, &report, e, &fail, informs);
}

int cmd_prepare(const struct options *o)
{
	return prepare_card(o, false);
}
