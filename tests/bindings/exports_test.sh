#!/bin/sh
# exports_test.sh LIBRARY MAP: the library exports the functions of the map and nothing else, under
# the soname that is meant to stay.
set -eu
library=$1
map=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -n 's/^ *\(cairn_[a-z0-9_]*\);$/\1/p' "$map" | sort >"$work/expected"
nm -D --defined-only "$library" | sed -n 's/^[0-9a-f]* [^A] //p' | sed 's/@.*//' |
  sort >"$work/exported"
if ! diff "$work/expected" "$work/exported"; then
  echo "$library: exports (>) differ from cairn.map (<)"
  exit 1
fi
objdump -p "$library" | grep -q 'SONAME *libcairn\.so\.1$' || { echo "wrong soname"; exit 1; }
