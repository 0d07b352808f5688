/* SPDX-License-Identifier: MIT */
/* Commands that are one request to a running daemon. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>

#include "attach/keep.h"
#include "base/parse.h"
#include "volume/pressure.h"
#include "wire/risk.h"

static void print_discard(const char *name, const struct options *o, struct json_object *answer)
{
	(void)answer;
	printf("%s: %s at the next detach or shutdown\n", name,
	       has_option(o, OPT_CANCEL) ? "changes will be committed"
					 : "uncommitted changes will be discarded");
}

int cmd_discard(const struct options *o)
{
	const struct request rq = { .command = COMMAND_DISCARD,
				    .cancel = has_option(o, OPT_CANCEL) };

	if (!rq.cancel && cmd_asks(o)) {
		struct failure err;
		struct json_object *status = client_status(which_volume(o), &err);

		if (!status)
			return cmd_failed(o, &err);
		printf("%s: %s that are not on the card would be lost at the next detach or shutdown, and what is written until "
		       "then\n",
		       json_text(status, "name"),
		       FORMAT_SIZE(blk_to_bytes(json_u64(status, "dirty_blocks"))));
		json_object_put(status);
		if (!cmd_confirm(o, "Go on?"))
			return cmd_fail(o, EXIT_FAILED, -ECANCELED, "nothing was changed");
	}
	return ask_and_print(o, &rq, print_discard);
}

static void print_trim(const char *name, const struct options *o, struct json_object *answer)
{
	(void)o;
	printf("%s: trimmed %s (%s bytes)\n", name, FORMAT_SIZE(json_u64(answer, "trimmed_bytes")),
	       with_commas(json_u64(answer, "trimmed_bytes")));
}

int cmd_trim(const struct options *o)
{
	const struct request rq = { .command = COMMAND_TRIM };

	return ask_and_print(o, &rq, print_trim);
}

static void print_inhibit(const char *name, const struct options *o, struct json_object *answer)
{
	(void)o;
	printf("%s: no timer commits for %s s\n", name,
	       with_commas(json_u64(answer, "inhibit_seconds")));
}

int cmd_inhibit(const struct options *o)
{
	const char *text = o->value[OPT_FOR];
	uint64_t ns = INHIBIT_DEFAULT_S * 1000000000ull;
	struct request rq = { .command = COMMAND_INHIBIT };

	if (text && (parse_duration_ns(text, &ns) < 0 || !ns))
		return cmd_usage(o, "--for %s is not a time such as 10m or 2h", text);
	if (ns > INHIBIT_MAX_S * 1000000000ull)
		return cmd_usage(
			o, "--for %s is too long: timer commits are inhibited for at most 24 hours",
			text);
	rq.seconds = (ns + 999999999u) / 1000000000u;
	return ask_and_print(o, &rq, print_inhibit);
}

static void print_uninhibit(const char *name, const struct options *o, struct json_object *answer)
{
	(void)o;
	(void)answer;
	printf("%s: timer commits resumed\n", name);
}

int cmd_uninhibit(const struct options *o)
{
	const struct request rq = { .command = COMMAND_UNINHIBIT };

	return ask_and_print(o, &rq, print_uninhibit);
}

static void print_detach(const char *name, const struct options *o, struct json_object *answer)
{
	const char *remark = json_text(answer, "remark");

	if (*remark)
		printf("%s: detached, %s\n", name, remark);
	else if (wrote_nothing(answer, false))
		printf("%s: detached, nothing was written\n", name);
	else
		printf("%s: detached, everything is on the card as generation %s\n", name,
		       with_commas(json_u64(answer, "generation")));
	if (!wrote_nothing(answer, false) && has_option(o, OPT_VERBOSE))
		print_bill(answer);
	print_remarks(answer);
}

/*
 * Before the end of the volume, or an armed discard. A daemon that does not say how it is does not detach either: the end
 * of a machine waits for it. Whatever else is wrong shows in the request that follows.
 */
static int before_detach(const struct options *o, bool discard, uint64_t away_ns)
{
	char who[RUNDIR_NAME_BYTES + 16];
	struct json_object *status;
	struct keep_state keep;
	struct failure err;
	struct client c;

	if (client_open(&c, which_volume(o), &err) < 0)
		return EXIT_OK;
	status = client_ask(&c, COMMAND_STATUS, &err);
	if (status && away_ns && !discard) {
		json_object_put(status);
		(void)await_card(&c, away_ns, true);
		status = client_ask(&c, COMMAND_STATUS, &err);
	}
	client_close(&c);
	if (!status)
		return cmd_failed(o, &err);
	snprintf(who, sizeof(who), "cowctl: %s", c.name);
	if (!discard && !has_option(o, OPT_JSON))
		risk_print(stderr, who, status, true);
	json_object_put(status);
	if (discard || keep_before_discard(c.name))
		return EXIT_OK;
	keep_read(c.name, &keep);
	if (*keep.mountpoint)
		return cmd_fail(
			o, EXIT_FAILED, -EIO,
			"%s: not all kept paths were committed, so it stays attached: cowctl commit, or cowctl "
			"detach --discard",
			c.name);
	/* it is not known where they are */
	fprintf(stderr, "cowctl: %s: not all kept paths were committed\n", c.name);
	return EXIT_OK;
}

int cmd_detach(const struct options *o)
{
	const struct request rq = {
		.command = COMMAND_DETACH,
		.discard = has_option(o, OPT_DISCARD),
	};

	uint64_t away_ns = 0;
	int exit = await_time(o, &away_ns);

	if (exit == EXIT_OK)
		exit = before_detach(o, rq.discard, away_ns);
	return exit == EXIT_OK ? ask_and_print(o, &rq, print_detach) : exit;
}
