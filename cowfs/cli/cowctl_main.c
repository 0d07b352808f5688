/* SPDX-License-Identifier: MIT */
#include "cli/cmd.h"

int main(int argc, char **argv)
{
	return cowctl_main(argc, argv);
}
