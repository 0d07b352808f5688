/* SPDX-License-Identifier: MIT */
/* cowctl reattach: a person names the device that is the card of a volume, which was away. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"
#include "base/parse.h"
#include "base/path.h"
#include "card/blockdev.h"
#include "offline/offline.h"

/* Says what the device is, and asks. */
static int ask(const struct options *o, const struct client *c, struct json_object *status,
	       const struct card *card, const char *path)
{
	const char *identity = json_text(status, "card_identity");
	char question[2 * PATH_MAX + 1024], away[512] = "", model[192];

	if (!cmd_can_ask(o))
		return cmd_fail(o, EXIT_USAGE, -EINVAL, "reattach: nobody can be asked: add --yes");
	(void)away_text(status, away, sizeof(away));
	blockdev_model(path, model, sizeof(model));
	snprintf(
		question, sizeof(question),
		"%s: the card%s%s is away %s.\n%s: %s, serial number %s, %s.\n"
		"If it has exactly the state of that card, it becomes the card of %s, and gets what is in RAM (%s). The "
		"other one keeps its last commit: do not use both.\nUse %s from now on?",
		c->name, *identity ? " with serial number " : "", identity, away, path,
		*model ? CLEAN(model) : "of an unknown model",
		card->geo.identity[0] ? CLEAN(card->geo.identity) : "unknown",
		FORMAT_SIZE(card->geo.size_bytes), c->name,
		FORMAT_SIZE(blk_to_bytes(json_u64(status, "dirty_blocks"))), path);
	if (!cmd_confirm(o, question))
		return cmd_fail(o, EXIT_FAILED, -ECANCELED, "nothing was changed");
	return EXIT_OK;
}

static void print_json(const char *name, const char *path)
{
	char text[4 * KIB];
	struct jsonw w;

	jsonw_init(&w, text, sizeof(text));
	answer_ok(&w);
	jsonw_str(&w, "name", name);
	jsonw_str(&w, "device", path);
	if (jsonw_finish(&w))
		fputs(text, stdout);
}

/* *card: closed, or left to the daemon. */
static int hand_over(const struct options *o, struct client *c, struct card **card,
		     const char *path)
{
	struct request rq = { .command = COMMAND_REATTACH };
	struct json_object *answer;
	struct blockdev_kept kept;
	int fd[BLOCKDEV_FDS], exit = EXIT_OK;
	struct failure fail;

	if (strlen(path) >= sizeof(rq.device))
		return cmd_fail(o, EXIT_FAILED, -ENAMETOOLONG, "%s: name another path", path);
	memcpy(rq.device, path, strlen(path));
	blockdev_keep(*card, &kept, fd);
	c->pass_fd = fd[0];
	c->also_fd = fd + 1;
	c->also = fd[2] < 0 ? 1 : 2;
	answer = client_call(c, &rq, NULL, NULL, &fail);
	if (!answer)
		return cmd_failed(o, &fail);
	if (!json_true(answer, "ok"))
		exit = cmd_answer_failed(o, answer);
	else
		*card = NULL; /* to close it would make the device writable */
	json_object_put(answer);
	return exit;
}

static int reattach(const struct options *o, struct client *c, const char *device)
{
	const struct request ask_rq = { .command = COMMAND_STATUS };
	struct json_object *status, *away;
	char path[PATH_MAX], why[2 * PATH_MAX];
	struct card *card = NULL;
	struct failure fail;
	int exit = EXIT_OK;

	status = client_call(c, &ask_rq, NULL, NULL, &fail);
	if (!status)
		return cmd_failed(o, &fail);
	away = json_object_object_get(status, "away");
	if (path_name(device, path, why, sizeof(why)) < 0)
		snprintf(path, sizeof(path), "%s", device);
	if (!json_true(away, "base") && !json_true(away, "log"))
		exit = cmd_fail(o, EXIT_FAILED, -EALREADY, "volume %s: its card is not away",
				c->name);
	else if (offline_claim(&card, path, &fail) < 0)
		exit = cmd_failed(o, &fail);
	if (exit == EXIT_OK)
		exit = ask(o, c, status, card, path);
	if (exit == EXIT_OK)
		exit = hand_over(o, c, &card, path);
	card_close(card);
	json_object_put(status);
	if (exit != EXIT_OK)
		return exit;
	if (has_option(o, OPT_JSON))
		print_json(c->name, path);
	else
		printf("%s: %s is its card from now on\n", c->name, CLEAN(path));
	return EXIT_OK;
}

int cmd_reattach(const struct options *o)
{
	struct failure fail;
	struct client c;
	int exit;

	if (client_open(&c, o->operands == 2 ? o->operand[0] : NULL, &fail) < 0)
		return cmd_failed(o, &fail);
	exit = reattach(o, &c, o->operand[o->operands - 1]);
	client_close(&c);
	return exit;
}
