#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds all fuzz targets in the way of OSS-Fuzz: SRC, WORK, OUT, CC, CFLAGS and LIB_FUZZING_ENGINE come from there.
# make check-oss-fuzz runs it here.
set -eu
cd "$SRC/cowfs"
# the machine that runs the targets has neither the libraries nor mkfs programs
# shellcheck disable=SC2016 # for make and its shell
make -s -j"$(nproc)" fuzz-programs B="$WORK/build" CC="$CC" CFLAGS="$CFLAGS" NO_SECCOMP=1 SMALL= \
	LIB_FUZZING_ENGINE="$LIB_FUZZING_ENGINE" LDFLAGS="$CFLAGS"' -Wl,-rpath,\$$ORIGIN/lib'
mkdir -p "$OUT/lib"
cp -r --sparse=always "$WORK/build/tests/images" "$OUT/"
for program in "$WORK"/build/tests/libfuzzer_*; do
	target=${program##*/libfuzzer_}
	[[ $target != *.* ]] || continue # what main.c or a crash left there
	cp "$program" "$OUT/$target"
	ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// && $1 !~ /^(libc|libm|libdl|librt|libpthread|libresolv|libgcc_s)\.so/ { print $3 }' |
		xargs -r cp -n -L -t "$OUT/lib"
	rm -f "$OUT/${target}_seed_corpus.zip"
	(cd "tests/fuzz/corpus/$target" && python3 -m zipfile -c "$OUT/${target}_seed_corpus.zip" ./*)
	[ ! -e "tests/fuzz/$target.dict" ] || cp "tests/fuzz/$target.dict" "$OUT/"
done
