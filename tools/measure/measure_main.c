/* SPDX-License-Identifier: MIT */
/* cowctl-measure: cowctl measure, whose argv it gets. */
#include "base/msg.h"
#include "base/program.h"
#include "config/options.h"
#include "measure/bench.h"
#include "measure/measure.h"
#include "offline/measured.h"

int main(int argc, char **argv)
{
	program_begin();
	msg_set_prog("cowctl");
	measured_start();
	return options_name_given(argc, argv, "tables") && !options_name_given(argc, argv, "help")
		       ? bench_main(argc, argv)
		       : measure_main(argc, argv);
}
