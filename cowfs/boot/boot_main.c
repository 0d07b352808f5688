/* SPDX-License-Identifier: MIT */
/*
 * cowfs-boot: cowfs and cowctl of an initramfs in one program, because they share most of their
 * code. It is the daemon unless it is called as cowctl.
 */
#include <string.h>

#include "cli/cmd.h"
#include "daemon/cowfs.h"

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *name = !argc ? "" : slash ? slash + 1 : argv[0];

	return !strcmp(name, "cowctl") ? cowctl_main(argc, argv) : cowfs_main(argc, argv);
}
