/* SPDX-License-Identifier: MIT */
/* cowfs-measure: the commands of cowctl that measure a card. cowctl runs it with its own argv. */
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "fs/fsproc.h"
#include "measure/bench.h"
#include "measure/measure.h"
#include "wire/client.h"

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = { { "measure", measure_main }, { "bench", bench_main } };

	msg_set_prog("cowctl");
	client_no_seed();
	fsproc_start_when_asked();
	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	fputs("cowfs-measure: is run by 'cowctl measure' and 'cowctl bench'\n", stderr);
	return 2;
}
