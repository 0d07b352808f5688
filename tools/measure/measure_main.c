/* SPDX-License-Identifier: MIT */
/* cowfs-measure: cowctl measure, which cowctl runs with its own argv. */
#include <stdio.h>
#include <string.h>

#include "base/msg.h"
#include "base/program.h"
#include "config/options.h"
#include "fs/fsproc.h"
#include "measure/bench.h"
#include "measure/measure.h"
#include "wire/client.h"

int main(int argc, char **argv)
{
	program_begin();
	msg_set_prog("cowctl");
	client_no_seed();
	fsproc_start(true, false);
	if (argc < 2 || strcmp(argv[1], "measure") != 0) {
		fputs("cowfs-measure: is run by 'cowctl measure'\n", stderr);
		return 2;
	}
	return options_name_given(argc, argv, "tables") && !options_name_given(argc, argv, "help")
		       ? bench_main(argc - 1, argv + 1)
		       : measure_main(argc - 1, argv + 1);
}
