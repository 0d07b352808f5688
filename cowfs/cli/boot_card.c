/* SPDX-License-Identifier: MIT */
#include "cli/boot_card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "card/blockdev.h"
#include "fs/shrink_mark.h"
#include "cli/cmd.h"
#include "offline/offline.h"

#define LOG_DEVICE_WAIT_NS (10 * 1000000000ull)
#define LOG_DEVICE_LOOK_US 50000

void boot_say(enum msg_level level, const char *fmt, ...)
{
	_cleanup_close_ int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "cowfs: %s\n", clean_text(text));
	if (fd < 0)
		return;
	msg_set_prog("cowfs");
	msg_to_kmsg(fd);
	msg(level, "root: %s", text);
	msg_to_kmsg(-1);
	msg_set_prog("cowctl");
}

bool boot_enabled(const struct boot *b)
{
	return b->cmdline.mode == CMDLINE_ON ||
	       (b->conf && conf_has_root(b->conf) &&
		!strcmp(conf_root_text(b->conf, ROOTOPT_ENABLED), "yes"));
}

/*
 * If cowfs does not know the file system, it does not know its end either: an apparent log in the
 * last block may be part of a file. If libblkid recognizes the content (so it is not the garbage
 * of a power cut), the use of cowfs must have been configured.
 */
static int belongs_to_other(const struct boot *b, struct card *card, const struct fsinfo *fs,
			    bool *ret)
{
	struct blk_reader r = super_reader(card);

	*ret = false;
	return fs->kind != FS_UNKNOWN || boot_enabled(b) ? 0 : shrink_mark_signature(&r, ret);
}

static int look_at_super(const struct boot *b, struct card *card, struct card *log_card,
			 enum boot_depth depth, struct boot_found *f)
{
	struct log_open_report report;
	struct log_super super;
	unsigned trouble;
	struct log *log;
	bool other;
	int e = super_find(card, log_card, &f->fs, 0, &super, &trouble), other_e;

	if (e == -ENOENT || e == -ESTALE)
		/* the file system covers the log: the blocks belong to the file system now */
		return 0;
	other_e = belongs_to_other(b, card, &f->fs, &other);
	if (other_e < 0)
		return other_e;
	if (other) {
		boot_say(MSG_WARN,
			 "%s: has something like a log but no known file system: left alone",
			 b->device);
		return 0;
	}
	f->has_log = true;
	f->member = e == -EXDEV;
	if (f->member)
		e = 0; /* its log can be read */
	f->holds_nothing = e == 0 && !(super.incompat & LOG_INCOMPAT_HELD);
	f->pending = e == 0 && super.state == SUPER_PENDING;
	if (e < 0 || f->pending || depth == BOOT_SUPER)
		return e;
	e = log_open(&log, card, log_card, &super, 0, NULL, &report);
	if (e < 0)
		return e;
	f->state = report.state;
	log_close(log);
	return 0;
}

static void wait_for_log_device(const char *path)
{
	static uint64_t until_ns; /* of the first look */

	if (!until_ns)
		until_ns = now_ns() + LOG_DEVICE_WAIT_NS;
	while (path && access(path, F_OK) < 0 && now_ns() < until_ns)
		usleep(LOG_DEVICE_LOOK_US);
}

int boot_look(const struct boot *b, enum boot_depth depth, struct boot_found *ret)
{
	const char *log_path = b->opt.text[VOLOPT_LOG];
	struct card *card = NULL, *log_card = NULL;
	struct blk_reader r;
	int e;

	*ret = (struct boot_found){ 0 };
	e = blockdev_open(&card, b->device, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL);
	if (e < 0)
		return e;
	r = super_reader(card);
	e = fsinfo_probe(&r, &ret->fs);
	wait_for_log_device(log_path);
	if (e == 0 && log_path)
		e = blockdev_open(&log_card, log_path, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL);
	if (e == 0)
		e = look_at_super(b, card, log_card ? log_card : card, depth, ret);
	ret->log_missing = e == 0 && !ret->has_log && super_log_missing(card);
	card_close(log_card);
	card_close(card);
	return e;
}

bool boot_log_in_use(const struct boot_found *f)
{
	return f->has_log && !f->pending && f->state != LOG_EMPTY && f->state != LOG_RETIRED;
}

/* Checkpoints the log, or completes a shrink. -errno: b->fail has the reason. */
static int recover(struct boot *b)
{
	struct progress progress;
	const struct recover_options opt = { .device = b->device,
					     .log_device = b->opt.text[VOLOPT_LOG],
					     .progress = cmd_progress,
					     .progress_ctx = &progress };
	struct recover_report rep;
	int e;

	progress_start(&progress);
	e = offline_recover(&opt, &rep, &b->fail);
	progress_end(&progress);
	if (e == 0)
		boot_say(MSG_NOTICE, "%s: generation %s is checkpointed, %s blocks written",
			 b->device, with_commas(rep.log.newest.ledger.commits),
			 with_commas(rep.home_blks));
	return e;
}

bool boot_come_home(struct boot *b, const char **why)
{
	bool known = !b->conf || conf_has_root(b->conf);
	struct boot_found f;
	int e = boot_look(b, BOOT_LOG, &f);

	if (e < 0 && (known || f.has_log)) {
		boot_say(MSG_ERR, "%s: cannot read its log: %s", b->device, strerrordesc_np(-e));
		*why = "its log cannot be read and may hold newer changes: see cowctl check";
		return !known;
	}
	if (f.log_missing) {
		*why = SUPER_LOG_MISSING;
		return false;
	}
	if (e < 0 || (!f.pending && !boot_log_in_use(&f)))
		return true;
	if (f.member) {
		*why = "it is a member of an array, or looks like one: see cowctl check";
		return false;
	}
	if (f.state == LOG_FOREIGN) {
		boot_say(MSG_ERR,
			 "%s: has foreign changes, and its log holds blocks that are not "
			 "checkpointed: they stay there, see cowctl check",
			 b->device);
		return true;
	}
	if (!known && b->cmdline.mode != CMDLINE_OFF) {
		*why = "a shrink of it was interrupted, and no [" ROOT_NAME
		       "] section allows writing here: run cowctl release";
		return false;
	}
	boot_say(MSG_WARN,
		 "%s: checkpointing its log, because it is going to be used without cowfs",
		 b->device);
	*why = b->fail.why;
	return recover(b) == 0;
}

bool boot_whole_alone(const struct boot *b)
{
	struct card *card;
	struct boot_found f;
	bool whole;

	if ((boot_look(b, BOOT_SUPER, &f) == 0 && (f.pending || f.member)) ||
	    blockdev_open(&card, b->device, BLOCKDEV_RDONLY | BLOCKDEV_ALLOW_FILE, NULL) < 0)
		return false;
	whole = super_whole_alone(card);
	card_close(card);
	return whole;
}
