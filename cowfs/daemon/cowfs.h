/* SPDX-License-Identifier: MIT */
/* The daemon as a function: a program of its own, and a part of that of an initramfs. */
#ifndef COWFS_DAEMON_COWFS_H
#define COWFS_DAEMON_COWFS_H

/* Arguments and exit codes are those of cowfs(8). argv[0] is overwritten. */
int cowfs_main(int argc, char **argv);

#endif
