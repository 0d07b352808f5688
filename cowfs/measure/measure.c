/* SPDX-License-Identifier: MIT */
#include "measure/measure.h"

#include <stdio.h>

int measure_main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	fputs("cowctl: measure: not built yet\n", stderr);
	return 1;
}
