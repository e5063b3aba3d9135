#!/usr/bin/env bash
# Builds with the preset "ci" and runs every test but the exhaustive ones. With arguments for ctest
# it runs what they choose: "tests/run.sh -L slow" the exhaustive ones (an hour and a half).
# Works from any folder and on a machine where nothing is installed yet.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake/install_packages.sh

launcher=()
if command -v ccache >/dev/null 2>&1; then
  launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset ci "${launcher[@]}"
cmake --build --preset ci

(($#)) || set -- -LE slow
# The tests first, their summary last; the status is ctest's.
exec ctest --test-dir build/ci --output-on-failure -j "$(nproc)" "$@"
