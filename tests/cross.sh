#!/bin/sh
# SPDX-License-Identifier: MIT
# Tests programs of another architecture: cross.sh QEMU IMAGES NATIVE. B: where they were built. Unit tests except those that cross.txt
# names, the golden images written again, the corpora of the fuzz targets, cards that go between them and the build NATIVE, and
# IMAGES of the crash driver.
set -eu
qemu=$1 images=$2 native=$3
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

echo "check-cross: $qemu, without:"
sed -n '/^[^#]/s/^/  /p' tests/cross.txt
sed -n 's/^\([^# @]*\)[ @].*/\1/p' tests/cross.txt | while read -r name; do
	[ -e "$B/tests/$name" ] || { echo "cross.txt names $name, which is no test" >&2; exit 1; }
done
# shellcheck disable=SC2046 # names without blanks
COWFS_EMULATOR=$qemu COWFS_UNIT_SECONDS=${COWFS_UNIT_SECONDS:-1800} tests/run-unit.sh $(for t in "$B"/tests/*_test; do
	grep -q -e "^${t##*/} " -e "^${t##*/}@${B##*/} " tests/cross.txt || echo "$t"
done)

echo "check-cross: golden images, written again byte for byte"
$qemu "$B/tests/mkgolden" "$dir"
for f in "$dir"/*; do
	cmp "$f" "tests/golden/${f##*/}"
done
echo "check-cross: fuzz corpora"
for t in tests/fuzz/corpus/*; do
	$qemu "$B/tests/fuzz_${t##*/}" "$t" 0
done
echo "check-cross: cards made here are recovered there, and the reverse"
tests/cards.sh "$native" "$B" "$qemu"
echo "check-cross: power cuts"
$qemu "$B/tests/crash" --images "$images"
