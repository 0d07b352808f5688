# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# Void's core-services, sourced before the file systems: a root that should be protected and is not stays read-only.
(. /usr/lib/cowfs/system.sh && root_state)
