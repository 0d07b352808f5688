/* SPDX-License-Identifier: MIT */
#include "daemon/cowfs.h"

int main(int argc, char **argv)
{
	return cowfs_main(argc, argv);
}
