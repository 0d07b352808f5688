/* SPDX-License-Identifier: MIT */
/* A commit of everything of one volume: the request, and its result for people. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/fs.h>

#include "base/parse.h"
#include "attach/rootstate.h"
#include "fs/find_mount.h"
#include "fs/fs_ops.h"
#include "wear/card_life.h"

#define FREEZE_MS 10000

bool wrote_nothing(struct json_object *answer, bool dry_run)
{
	struct json_object *r = json_object_object_get(answer, "report");
	bool clean = !json_u64(r, "dirty_blocks") && !json_u64(r, "hole_blocks");

	return (clean || !dry_run) && !json_u64(r, "written_bytes");
}

/*
 * Adds the share of the card's life that this would use, as an interval: from no copying to every
 * erase block copied.
 */
void commit_add_life(struct client *c, const struct options *opt, struct json_object *answer)
{
	const struct flash_kind *flash =
		flash_kind_of(has_option(opt, OPT_FLASH) ? opt->value[OPT_FLASH] : "unknown");
	struct json_object *r = json_object_object_get(answer, "report"), *o, *wear;
	double low, high, capacity, eb_bytes;
	struct failure err;
	char text[32];

	if (!has_option(opt, OPT_DRY_RUN) || wrote_nothing(answer, true))
		return;
	o = json_object_new_object();
	wear = client_ask(c, COMMAND_WEAR, &err);
	capacity = wear ? (double)card_life_bytes(json_fact(wear, FACT_DEVICE)) : 0;
	if (wear && capacity <= 0)
		capacity = (double)json_u64(wear, "device_bytes");
	eb_bytes = (double)json_u64(json_object_object_get(wear, "erase_blocks"),
				    "erase_block_bytes");
	json_object_put(wear);
	if (capacity > 0 && eb_bytes > 0) {
		card_life_share(flash, capacity, eb_bytes, (double)json_u64(r, "written_bytes"),
				(double)(json_u64(r, "erase_blocks") +
					 json_u64(r, "checkpoint_erase_blocks")),
				&low, &high);
		snprintf(text, sizeof(text), "%.3g", low);
		json_object_object_add(o, "low", json_object_new_double_s(low, text));
		snprintf(text, sizeof(text), "%.3g", high);
		json_object_object_add(o, "high", json_object_new_double_s(high, text));
		snprintf(text, sizeof(text), "%.0f to %.0f", flash->cycles_low, flash->cycles_high);
		json_object_object_add(o, "assumed_erase_cycles", json_object_new_string(text));
		json_object_object_add(answer, "life_share", json_object_get(o));
	}
	json_object_put(o);
}

static void print_life_share(struct json_object *answer)
{
	struct json_object *s = json_object_object_get(answer, "life_share");

	if (s)
		printf("  life: %.1g to %.1g %% of the flash's endurance, if that is %s erase "
		       "cycles\n",
		       json_number(s, "low") * 100, json_number(s, "high") * 100,
		       json_text(s, "assumed_erase_cycles"));
}

void print_commit(const char *name, const struct options *o, struct json_object *answer)
{
	struct json_object *r = json_object_object_get(answer, "report");
	const char *remark = json_text(answer, "remark");
	bool nothing = wrote_nothing(answer, has_option(o, OPT_DRY_RUN));

	if (nothing)
		printf("%s: nothing to commit, generation %s is current\n", name,
		       with_commas(json_u64(answer, "generation")));
	else if (!json_u64(r, "dirty_blocks") && !json_u64(r, "hole_blocks"))
		printf("%s: nothing to commit, generation %s is current; %s %s written home\n",
		       name, with_commas(json_u64(answer, "generation")),
		       FORMAT_SIZE(blk_to_bytes(json_u64(r, "checkpoint_blocks"))),
		       has_option(o, OPT_DRY_RUN) ? "would be" : "were");
	else if (has_option(o, OPT_DRY_RUN))
		printf("%s: a commit now would write, on top of generation %s:\n", name,
		       with_commas(json_u64(answer, "generation")));
	else
		printf("%s: committed %s as generation %s in %.2f s\n", name,
		       FORMAT_SIZE(json_u64(r, "written_bytes")),
		       with_commas(json_u64(answer, "generation")),
		       json_number(r, "duration_seconds"));
	if (!nothing && (has_option(o, OPT_DRY_RUN) || has_option(o, OPT_VERBOSE)))
		print_bill(answer);
	print_remarks(answer);
	print_life_share(answer);
	if (*remark)
		printf("  %s\n", remark);
}

/* Whether a commit fits is known for the whole volume, and without a checkpoint. */
static int take_deadline(const struct options *o, uint64_t *ret_ms)
{
	const char *text = o->value[OPT_DEADLINE];
	uint64_t ns = 0;

	if (!text)
		return EXIT_OK;
	if (parse_duration_ns(text, &ns) < 0 || ns < 1000000 || ns / 1000000 > UINT32_MAX)
		return cmd_usage(o, "--deadline %s is not a time such as 5s", text);
	if (has_option(o, OPT_DRY_RUN) || has_option(o, OPT_CHECKPOINT))
		return cmd_usage(o,
				 "--deadline is for a commit without --checkpoint and --dry-run");
	*ret_ms = ns / 1000000;
	return EXIT_OK;
}

int trial_boots(const struct options *o, uint64_t *ret)
{
	*ret = 0;
	if (!has_option(o, OPT_TRIAL))
		return EXIT_OK;
	if (parse_u64(o->value[OPT_TRIAL], ret) < 0 || !*ret || *ret > RECORD_BOOTS_MAX)
		return cmd_usage(o, "--trial %s is not a number from 1 to %u", o->value[OPT_TRIAL],
				 RECORD_BOOTS_MAX);
	if (!rootstate_noted(ROOT_COUNTS))
		return cmd_fail(
			o, EXIT_FAILED, -EOPNOTSUPP,
			"the initramfs of this boot does not count boots: rebuild it, and reboot");
	return EXIT_OK;
}

int commit_request(const struct options *o, struct request *ret)
{
	int exit;

	*ret = (struct request){
		.command = COMMAND_COMMIT,
		.dry_run = has_option(o, OPT_DRY_RUN),
		.checkpoint = has_option(o, OPT_CHECKPOINT),
		.force = has_option(o, OPT_FORCE),
		.no_wait = has_option(o, OPT_NO_WAIT),
		.hold = has_option(o, OPT_HOLD),
		.timer = has_option(o, OPT_TIMER),
	};
	exit = trial_boots(o, &ret->trial);
	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_FLASH) && (!ret->dry_run || !flash_kind_of(o->value[OPT_FLASH])))
		return cmd_usage(o, "--flash %s %s", o->value[OPT_FLASH],
				 flash_kind_of(o->value[OPT_FLASH])
					 ? "needs --dry-run"
					 : "is not one of slc, mlc, tlc, qlc, unknown");
	return take_deadline(o, &ret->deadline_ms);
}

/* *begun: from here on it may be this process that has frozen it. */
static __attribute__((noreturn)) void freeze_and_thaw(volatile bool *begun)
{
	int r;

	*begun = true;
	r = ioctl(0, FIFREEZE, 0);
	if (r == 0)
		r = ioctl(0, FITHAW, 0);
	*begun = false;
	_exit(r < 0 ? errno : 0);
}

/*
 * Two processes, so that the kill of either one leaves nothing frozen: one freezes and thaws, the other one thaws if that one
 * was killed in between. Neither has anything else open.
 */
static __attribute__((noreturn)) void freeze_watched(int mount_fd)
{
	bool *begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			   -1, 0);
	int status = 0;
	pid_t pid;

	setsid();
	if (begun == MAP_FAILED || dup2(mount_fd, 0) < 0 || close_range(1, ~0U, 0) < 0)
		_exit(errno);
	pid = fork();
	if (pid == 0)
		freeze_and_thaw(begun);
	if (pid < 0)
		_exit(errno);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (*(volatile bool *)begun)
		_exit(ioctl(0, FITHAW, 0) < 0 ? errno : 0);
	_exit(WEXITSTATUS(status));
}

/*
 * An open descriptor of the mount. Only for such a kind: it keeps an unmount waiting. Root knows the disk and the kernel
 * the kind, so the worker is asked of no other.
 */
static int mount_that_hides(const char *which, bool asked)
{
	_cleanup_close_ int proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct mount_search s = { .proc_dirfd = proc_fd, .mount_fd = -1 };
	struct json_object *status = NULL;
	bool hides;
	struct failure err;
	struct client c;
	struct facts f;

	if (proc_fd < 0 || client_open(&c, which, &err) < 0)
		return -1;
	client_facts(c.name, false, &f);
	s.dev = f.device[FACT_LOOP].rdev;
	hides = s.dev && find_mount_search(&s) == 1 && fs_ops_named(s.type)->log_hides;
	if (hides && !asked)
		status = client_ask(&c, COMMAND_STATUS, &err);
	client_close(&c);
	hides = hides && (asked || json_true(status, "checkpoint_always"));
	json_object_put(status);
	return hides ? find_mount_open(proc_fd, s.dev) : -1;
}

/* A program can keep a freeze waiting: after some time the commit goes on. */
void commit_metadata_home(const char *which, const struct request *rq)
{
	_cleanup_close_ int mount_fd = rq->dry_run ? -1 : mount_that_hides(which, rq->checkpoint),
			    pidfd = -1;
	int status, error = 0;
	struct pollfd p;
	pid_t pid;

	if (mount_fd < 0)
		return;
	pid = fork();
	if (pid == 0)
		freeze_watched(mount_fd);
	pidfd = pid < 0 ? -1 : pidfd_open(pid, 0);
	p = (struct pollfd){ .fd = pidfd, .events = POLLIN };
	if (pidfd < 0)
		error = errno;
	else if (poll(&p, 1, FREEZE_MS) == 0)
		error = ETIMEDOUT;
	else if (waitpid(pid, &status, WNOHANG) == pid)
		error = WEXITSTATUS(status);
	if (error)
		fprintf(stderr,
			"cowctl: the file system could not be frozen for a moment (%s): a boot loader may not find what is new\n",
			error == ETIMEDOUT ? "a program keeps a write to it from ending"
					   : strerrordesc_np(error));
}

static int commit_one(const struct options *o, bool *ret_committed)
{
	struct json_object *answer;
	struct request rq;
	struct client c;
	int exit = commit_request(o, &rq);

	if (exit != EXIT_OK)
		return exit;
	commit_metadata_home(which_volume(o), &rq);
	exit = ask_volume(&c, o, &rq, &answer);
	if (exit != EXIT_OK)
		return exit;
	commit_add_life(&c, o, answer);
	*ret_committed = turn_committed(answer);
	show_answer(c.name, o, answer, print_commit);
	client_close(&c);
	return EXIT_OK;
}

/* A timer's. */
static int commit_turn(void *ctx, const char *name, bool left_out, bool *ret_committed)
{
	struct options one = *(const struct options *)ctx;
	struct failure err;

	one.operand[0] = name;
	one.operands = 1;
	if (!left_out)
		return commit_one(&one, ret_committed);
	turn_left_out(&err, name);
	return cmd_failed(&one, &err);
}

int commit_volume(const struct options *o)
{
	struct turns t;
	bool committed;

	return has_option(o, OPT_TIMER) && turns_of_boot(&t, which_volume(o))
		       ? turns_take(&t, !has_option(o, OPT_DRY_RUN), commit_turn, (void *)o)
		       : commit_one(o, &committed);
}
