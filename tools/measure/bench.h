/* SPDX-License-Identifier: MIT */
/* cowctl measure --tables: what published tables of cards contain, of a card at hand. */
#ifndef COWFS_MEASURE_BENCH_H
#define COWFS_MEASURE_BENCH_H

#include "config/options.h"

/* argv[0] is "measure". Returns the exit code. */
int bench_main(int argc, char **argv);
/* Its options, for the help; those that measure has as well have no text there. */
const struct option_spec *bench_options(void);

#endif
