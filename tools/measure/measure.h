/* SPDX-License-Identifier: MIT */
/* cowctl measure: measures a card and makes its profile. */
#ifndef COWFS_MEASURE_MEASURE_H
#define COWFS_MEASURE_MEASURE_H

/* argv[0] is "measure". Returns the exit code. */
int measure_main(int argc, char **argv);

#endif
