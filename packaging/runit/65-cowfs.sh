# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# Void's shutdown.d, sourced: 70-pkill.sh must spare the daemons that serve file systems.
if [ -d /run/cowfs ]; then
	. /usr/lib/cowfs/system.sh
	pkill() { # --inverse -s0,1 -SIGNAL
		for signal; do :; done
		# shellcheck disable=SC2154 # the last word
		signal_all "${signal#-}" "$(stat_of "$$" 4)"
	}
fi
