#!/bin/sh
# run.sh SOURCE_DIR BUILD_DIR SECONDS: builds the libFuzzer targets with clang and runs each for so long, from
# its seed corpus. What it finds is left in BUILD_DIR as crash-*.
set -eu
source=$1
build=$2
seconds=$3

launcher=
if command -v ccache >/dev/null 2>&1; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

cmake -S "$source" --preset fuzz -B "$build" $launcher >/dev/null
cmake --build "$build" --target output_parser_fuzz
for target in output_parser; do
  mkdir -p "$build/$target"
  "$build/tests/fuzz/${target}_fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1 \
    -dict="$source/tests/fuzz/$target.dict" -artifact_prefix="$build/crash-" \
    "$build/$target" "$source/tests/fuzz/corpus/$target" 2>"$build/$target.log" || {
      tail -n 60 "$build/$target.log"; exit 1; }
  grep -E "^(Done|stat::number)" "$build/$target.log"
done
