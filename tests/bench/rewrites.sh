#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What it costs a write that rewrites are counted (build/tests/rewritecost tells how that is measured). The figures of
# docs/BENCHMARKS.md, "Who fills the RAM". As root.
#
#	tests/bench/rewrites.sh [ROUNDS]	(41)
# shellcheck disable=SC2119 # functions whose arguments may be left out
set -euo pipefail

ROUNDS=${1:-41}
[[ $# -le 1 && $ROUNDS =~ ^[0-9]+$ ]] || { echo "usage: tests/bench/rewrites.sh [ROUNDS]" >&2; exit 2; }
# shellcheck source=tests/bench/lib.bash
. "$(dirname "$0")/lib.bash"

cow_setup
trap volume_tidy EXIT
card_make ext4 200 300
cow format "$CARD" >/dev/null
attach --ram 256M
LOOP_OF_VOLUME=$(status_of .loop)
"$TOP/build/tests/rewritecost" "$LOOP_OF_VOLUME" "$ROUNDS"
cow detach --discard vol >/dev/null
