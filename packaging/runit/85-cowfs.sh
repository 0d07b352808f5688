# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# Void's shutdown.d, sourced: the commit when nothing writes any more. runit sets no time limit.
COWFS_WITHIN=1h /usr/lib/cowfs/last-commit
