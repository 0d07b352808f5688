/* SPDX-License-Identifier: MIT */
#include "cli/cmd.h"

#include <string.h>
#include <unistd.h>

volatile sig_atomic_t interrupt_stop;
static interrupt_fn *explain;
static volatile sig_atomic_t times;
static bool on_terminal;

static void say(const char *text)
{
	/* ends the line of the progress */
	if (on_terminal && write(STDERR_FILENO, "\n", 1) < 0)
		return;
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return;
}

static void on_signal(int sig)
{
	bool end = false;
	const char *text = explain((unsigned)++times, &end);

	say(text);
	if (!end)
		return;
	signal(sig, SIG_DFL);
	raise(sig);
}

void interrupt_begin(interrupt_fn *fn)
{
	struct sigaction old, sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	/* a shell's background job ignores it */
	if (sigaction(SIGINT, NULL, &old) < 0 || old.sa_handler == SIG_IGN)
		return;
	explain = fn;
	times = 0;
	on_terminal = isatty(STDERR_FILENO);
	sigaction(SIGINT, &sa, NULL);
}

void interrupt_end(void)
{
	if (explain)
		signal(SIGINT, SIG_DFL);
	explain = NULL;
}

static void on_stop(int sig)
{
	(void)sig;
	interrupt_stop = 1;
}

void interrupt_catch(void)
{
	const struct sigaction sa = { .sa_handler = on_stop };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}
