/* SPDX-License-Identifier: MIT */
/* cowctl attach: starts the daemon and waits until its loop device answers. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>

#include "attach/launch.h"

static void report(const struct options *o, const struct ready *r)
{
	struct jsonw *w;

	if (!has_option(o, OPT_JSON)) {
		puts(r->loop);
		return;
	}
	w = json_begin(true);
	jsonw_str(w, "name", r->name);
	jsonw_str(w, "device", o->operand[0]);
	jsonw_str(w, "loop", r->loop);
	json_end(w);
}

static const char *explain_interrupt(unsigned nth, bool *ret_end)
{
	*ret_end = nth > 1;
	return nth > 1 ? "cowctl: not waiting any longer; see cowctl status\n"
		       : "cowctl: the daemon starts, and writes nothing to the card. Ctrl-C again: do "
			 "not wait for it; the volume may be attached then\n";
}

int cmd_attach(const struct options *o)
{
	struct volopts opt;
	struct ready r;
	char why[256];

	if (volopts_of_command(o, &opt, why, sizeof(why)) < 0)
		return cmd_usage(o, "%s", why);
	interrupt_begin(explain_interrupt);
	launch_volume(o->operand[0], &opt, 0, &r);
	interrupt_end();
	if (r.exit != EXIT_OK)
		return cmd_fail(o, r.exit, r.error, "%s", r.why);
	report(o, &r);
	return EXIT_OK;
}
