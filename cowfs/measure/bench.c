/* SPDX-License-Identifier: MIT */
#include "measure/bench.h"

#include <stdio.h>

int bench_main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	fputs("cowctl: bench: not built yet\n", stderr);
	return 1;
}
