/* SPDX-License-Identifier: MIT */
/* cowctl bench: what published tables of cards contain, of a card at hand. */
#ifndef COWFS_MEASURE_BENCH_H
#define COWFS_MEASURE_BENCH_H

/* argv[0] is "bench". Returns the exit code. */
int bench_main(int argc, char **argv);

#endif
