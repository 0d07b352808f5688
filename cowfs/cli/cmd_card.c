/* SPDX-License-Identifier: MIT */
/* cowctl card: the devices that may be meant, each with its next command; of one what prepare --dry-run prints, which is no failure
 * if there is a next command. Reads only. */
#include "cli/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mounts.h"
#include "base/parse.h"
#include "base/program.h"
#include "card/disk.h"
#include "fs/fs_ops.h"
#include "offline/offline.h"

#define SECTOR_BYTES 512u
#define ANSWER_NS (3 * 1000000000ull) /* to open, read and probe a device */
#define ANSWER_BYTES 16384
#define AT_ONCE 32

/* Not: disks without a card, RAM, optical drives, disks of cowfs itself. */
static bool is_meant(const struct dirent *e, uint64_t *ret_bytes)
{
	static const char *const others[] = { "ram", "zram", "sr", "fd" };
	char path[PATH_MAX], file[16];
	uint64_t sectors;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strncmp(e->d_name, others[i], strlen(others[i])))
			return false;
	snprintf(path, sizeof(path), "/sys/class/block/%s/loop/backing_file", e->d_name);
	if (io_read_text(AT_FDCWD, path, file, sizeof(file)) > 0 && !strncmp(file, "/cowfs", 6))
		return false;
	snprintf(path, sizeof(path), "/sys/class/block/%s/size", e->d_name);
	if (io_read_u64(AT_FDCWD, path, &sectors) < 0)
		return false;
	*ret_bytes = sectors * SECTOR_BYTES;
	return sectors;
}

static struct json_object *row_of(const char *device, uint64_t bytes, const char *fs_type,
				  const char *where, struct json_object *next)
{
	struct json_object *row = json_object_new_object();

	json_object_object_add(row, "device", json_object_new_string(device));
	json_object_object_add(row, "bytes", json_object_new_uint64(bytes));
	json_object_object_add(row, "fs_type", json_object_new_string(fs_type));
	json_object_object_add(row, "mountpoint", json_object_new_string(where));
	json_object_object_add(row, "next", next);
	return row;
}

static struct json_object *look(const struct options *o, const char *device, uint64_t bytes)
{
	const struct format_options opt = { .device = device, .dry_run = true };
	struct json_object *row, *steps;
	char where[PATH_MAX] = "", why[PATH_MAX + 16];
	struct format_report r = { 0 };
	struct failure fail;
	int e = offline_format(&opt, &r, &fail);

	(void)mounts_device_is_on(NULL, device, where);
	steps = prepare_steps(o, &opt, e, &r);
	snprintf(why, sizeof(why), "cowctl card %s" /* which says why not */, device);
	row = row_of(device, bytes, r.fs.type, where,
		     json_object_array_length(steps)
			     ? json_object_get(json_object_array_get_idx(steps, 0))
			     : json_object_new_string(why));
	json_object_put(steps);
	return row;
}

/* ---- one dying card is no reason to show none: each device has a process of its own, and its time ---- */

struct question {
	char device[sizeof("/dev/") + NAME_MAX];
	uint64_t bytes, until_ns;
	pid_t pid;
	int answer_fd;		 /* -1: not asked, or answered */
	struct json_object *row; /* NULL: nothing to show */
};

/* A pipe of the caller must not stay open with a process that sleeps. */
static _Noreturn void answer(const struct options *o, const struct question *q, int fd)
{
	struct disk_part part[DISK_PARTS_MAX];
	size_t parts = 0;

	dup2(fd, STDIN_FILENO);
	close_range(STDIN_FILENO + 1, ~0u, 0);
	program_begin(); /* numbers 1 and 2 */
	/* of a disk with partitions only those */
	if (disk_parts(q->device, part, &parts) < 0 || !parts)
		dprintf(STDIN_FILENO, "%s",
			json_object_to_json_string(look(o, q->device, q->bytes)));
	_exit(0);
}

static void ask(const struct options *o, struct question *q)
{
	int pair[2];

	if (pipe2(pair, O_CLOEXEC) < 0)
		return;
	q->until_ns = now_ns() + ANSWER_NS;
	q->pid = fork();
	if (q->pid == 0)
		answer(o, q, pair[1]);
	close(pair[1]);
	q->answer_fd = pair[0];
}

/* A process that sleeps in the kernel ends when its device lets it. */
static void end(struct question *q, bool has_answered)
{
	char text[ANSWER_BYTES], why[PATH_MAX];
	ssize_t n = has_answered ? read(q->answer_fd, text, sizeof(text) - 1) : 0;

	text[n > 0 ? n : 0] = '\0';
	if (!has_answered) {
		snprintf(why, sizeof(why), "# %s does not answer", q->device);
		q->row = row_of(q->device, q->bytes, "", "", json_object_new_string(why));
	} else if (n > 0) {
		q->row = json_tokener_parse(text);
	}
	if (q->pid > 0)
		kill(q->pid, SIGKILL);
	close(steal_fd(&q->answer_fd));
}

/* Waits until one of them has answered, or has had its time. */
static void wait_for_one(struct question **asked, size_t *n)
{
	struct pollfd p[AT_ONCE];
	uint64_t until_ns = UINT64_MAX, now = now_ns();
	size_t left = 0;

	for (size_t i = 0; i < *n; i++) {
		p[i] = (struct pollfd){ .fd = asked[i]->answer_fd, .events = POLLIN };
		until_ns = min_u64(until_ns, asked[i]->until_ns);
	}
	if (poll(p, *n, until_ns > now ? (int)((until_ns - now) / 1000000) + 1 : 0) < 0)
		return;
	for (size_t i = 0; i < *n; i++) {
		if (p[i].revents || now_ns() >= asked[i]->until_ns)
			end(asked[i], p[i].revents);
		else
			asked[left++] = asked[i];
	}
	*n = left;
}

static void ask_all(const struct options *o, struct question *q, size_t n)
{
	struct question *asked[AT_ONCE];
	size_t running = 0;

	for (size_t i = 0; i < n || running;) {
		for (; i < n && running < AT_ONCE; i++) {
			ask(o, &q[i]);
			if (q[i].answer_fd >= 0)
				asked[running++] = &q[i];
		}
		if (running)
			wait_for_one(asked, &running);
	}
}

static void print_device(struct json_object *row)
{
	const char *where = json_text(row, "mountpoint");

	printf("%-16s %10s  %-6s %s%s%s\n", json_text(row, "device"),
	       FORMAT_SIZE(json_u64(row, "bytes")), json_text(row, "fs_type"),
	       json_text(row, "next"), *where ? "   # mounted on " : "", where);
}

static int list(const struct options *o)
{
	struct json_object *answer = json_answer(true), *rows = json_object_new_array();
	struct dirent **e = NULL;
	int n = scandir("/sys/class/block", &e, NULL, alphasort);
	struct question *q = calloc(n > 0 ? (size_t)n : 1, sizeof(*q));
	size_t meant = 0;
	char *p;

	for (int i = 0; i < n; i++) {
		if (q && e[i]->d_name[0] != '.' && is_meant(e[i], &q[meant].bytes)) {
			snprintf(q[meant].device, sizeof(q->device), "/dev/%s", e[i]->d_name);
			while ((p = strchr(q[meant].device, '!')))
				*p = '/';
			q[meant++].answer_fd = -1;
		}
		free(e[i]);
	}
	free(e);
	ask_all(o, q, meant);
	for (size_t i = 0; i < meant; i++)
		if (q[i].row)
			json_object_array_add(rows, q[i].row);
	free(q);
	json_object_object_add(answer, "devices", rows);
	if (has_option(o, OPT_JSON))
		json_print(answer);
	for (size_t i = 0; !has_option(o, OPT_JSON) && i < json_object_array_length(rows); i++)
		print_device(json_object_array_get_idx(rows, i));
	json_object_put(answer);
	return EXIT_OK;
}

int cmd_card(const struct options *o)
{
	char device[PATH_MAX];
	struct options one = *o;
	struct stat st;

	if (has_option(o, OPT_FACTS) && o->operands)
		return card_facts(o);
	if (!o->operands)
		return list(o);
	one.value[OPT_DRY_RUN] = "";
	if (stat(o->operand[0], &st) == 0 && S_ISDIR(st.st_mode)) {
		if (!mounts_device_on(o->operand[0], device))
			return cmd_fail(o, EXIT_FAILED, -ENOTBLK,
					"%s: no device is mounted there: name a device, an image "
					"file or a mount point",
					o->operand[0]);
		one.operand[0] = device;
	}
	return prepare_card(&one, true);
}
