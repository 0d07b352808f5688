#!/bin/bash
# SPDX-License-Identifier: MIT
# Can the tests tell? Runs those of tests/bats with the tag "blunt", which stands above each that has an instrument, with all instruments
# blunt: shims that cut the power, fail or lose a card, or attack are empty, and no signal kills. One that passes has not used its
# instrument, or does not look at what it does. The test with the tag "sharp" has no instrument and must pass. With COWFS_TURN, a commit,
# an eighth of them, others with another commit. COWFS_CHECK_FIRST: a file for the first failure.
set -u
build=$(realpath "${COWFS_BUILD:-build}")
SHIMS='powercut eioshim goneshim hostile liar badimage nopages'
dir=$(mktemp -d "${TMPDIR:-/tmp}/blunt.XXX") || exit
chmod 755 "$dir"
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/build/tests"
for f in "$build"/* "$build"/tests/*; do
	[ "$f" = "$build/tests" ] || ln -s "$f" "$dir/build/${f#"$build"/}" || exit
done
for shim in $SHIMS; do
	[ -e "$build/tests/$shim.so" ] || { echo "blunt: no $build/tests/$shim.so" >&2; exit 1; }
	rm "$dir/build/tests/$shim.so" && cp "$build/tests/blunt.so" "$dir/build/tests/$shim.so" || exit
done
export COWFS_BUILD=$dir/build COWFS_BLUNT=1 COWFS_ON_CRASH=stop BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-60}

# FILE:TEST of each with the tag $1
tagged() {
	awk -v tag="$1" '/^# bats test_tags=/ { tagged = $0 ~ "[=,]" tag "(,|$)"; next } /^@test / { if (tagged) { sub(/^@test "/, ""); sub(/" \{.*/, "");
		gsub(/\\"/, "\""); print FILENAME ":" $0 } tagged = 0 }' tests/bats/*.bats
}
# what is anything in a regular expression
literally() { sed 's/[][(){}.*+?^$|\\]/\\&/g'; }
# FILE:TEST: its output goes to $dir/NUMBER
one() {
	mkdir -m 755 "$dir/$1.tmp"
	TMPDIR=$dir/$1.tmp timeout -k 8 300 unshare --mount --propagation private \
		bats --tap --print-output-on-failure -f "^$(literally <<<"${2#*:}")\$" "${2%%:*}" >"$dir/$1.out" 2>&1 </dev/null
}
turn=$(cksum <<<"${COWFS_TURN-}")
mapfile -t all < <(tagged blunt)
mapfile -t sharp < <(tagged sharp)
tests=()
for i in "${!all[@]}"; do
	[ -n "${COWFS_TURN-}" ] && [ $(((i + ${turn% *}) % 8)) != 0 ] || tests+=("${all[i]}")
done
run=("${sharp[@]}" "${tests[@]}")
for i in "${!run[@]}"; do
	while [ "$(jobs -pr | wc -l)" -ge "$(($(nproc) * 2))" ]; do wait -n; done
	one "$i" "${run[i]}" &
done
wait
first=''
for i in "${!run[@]}"; do
	result=$(grep -E '^(not )?ok ' "$dir/$i.out")
	[ "$i" -ge ${#sharp[@]} ] || result="sharp $result"
	case $result in
	*'# skip'* | 'sharp ok '* | 'not ok '*) continue ;;
	'sharp not '*) what='fails, although it has no instrument' ;;
	'ok '*) what='passes without its instrument' ;;
	*) what='did not run' ;;
	esac
	cat "$dir/$i.out"
	first=${first:-first failure: ${run[i]}: $what}
	echo "blunt: ${run[i]}: $what" >&2
done
echo "blunt: ${#tests[@]} of ${#all[@]} tests were run without their instruments: $(grep -lE '^not ok' "$dir"/*.out | wc -l) of them noticed it"
[ -z "$first" ] || { echo "$first" | tee -a "${COWFS_CHECK_FIRST:-/dev/null}"; exit 1; }
