/* SPDX-License-Identifier: MIT */
#include "attach/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clean.h"
#include "base/io.h"
#include "base/program.h"
#include "config/conf.h"
#include "wire/client.h"
#include "wire/json.h"

#define KEPT_FILE ".%s.kept" /* of a volume */

void keep_read(const char *volume, struct keep_state *ret)
{
	char path[PATH_MAX], text[PATH_MAX + 512], *where, *error;
	_cleanup_close_ int fd = open(rundir_file(path, KEPT_FILE, volume), O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	*ret = (struct keep_state){ 0 };
	if (n <= 0)
		return;
	text[n] = '\0';
	where = strchr(text, '\n');
	if (!where)
		return;
	*where++ = '\0';
	error = strchr(where, '\n');
	if (!error)
		return;
	*error++ = '\0';
	error[strcspn(error, "\n")] = '\0';
	ret->last_s = strtoull(text, NULL, 10);
	snprintf(ret->mountpoint, sizeof(ret->mountpoint), "%s", where);
	snprintf(ret->error, sizeof(ret->error), "%s", clean_text(error));
}

void keep_write(const char *volume, const struct keep_state *s)
{
	char file[RUNDIR_NAME_BYTES + 8], text[PATH_MAX + 512];

	snprintf(file, sizeof(file), KEPT_FILE, volume);
	snprintf(text, sizeof(text), "%llu\n%s\n%s\n", (unsigned long long)s->last_s,
		 strchr(s->mountpoint, '\n') ? "" : s->mountpoint, s->error);
	(void)!rundir_write(file, text); /* only the status lacks it */
}

static bool is_configured(const char *volume)
{
	struct conf *c;
	char why[512];
	bool yes;

	if (conf_load(&c, why, sizeof(why)) < 0)
		return true; /* that nothing is kept must not go unsaid */
	yes = *conf_text(c, volume, ROOTOPT_KEEP);
	conf_free(c);
	return yes;
}

/* cowctl lies beside this program. */
static bool run_keep(const char *volume)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("cowctl"));
	const char *argv[] = { "cowctl", "commit", "--kept", volume, NULL };
	char *slash;

	if (n > 0) {
		path[n] = '\0';
		slash = strrchr(path, '/');
		strcpy(slash ? slash + 1 : path, "cowctl");
		argv[0] = access(path, X_OK) == 0 ? path : "cowctl";
	}
	return program_run(argv, -1, STDERR_FILENO) == 0;
}

bool keep_before_discard(const char *volume)
{
	struct json_object *status;
	struct failure err;
	struct client c;
	bool kept = true;

	if (!is_configured(volume) || client_open(&c, volume, &err) < 0)
		return true; /* whatever is wrong with the daemon shows in the next request */
	status = client_ask(&c, COMMAND_STATUS, &err);
	client_close(&c);
	if (json_true(status, "discard_armed") &&
	    (*json_fact(status, FACT_MOUNTPOINT) || json_u64(status, "dirty_blocks") ||
	     json_u64(status, "hole_blocks")))
		kept = run_keep(volume);
	json_object_put(status);
	return kept;
}
