#!/bin/sh
# run.sh BUILD_DIR SOURCE_DIR: installs the build into an empty prefix and builds and runs a tiny
# program against it in each way that the README promises.
set -eu
build=$1
source=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

launcher=
if command -v ccache >/dev/null 2>&1; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

echo "-- install"
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"   # an installed tree can be moved
library=$(find "$work/prefix" -name libcairn.so)
LD_LIBRARY_PATH=$(dirname "$library")
export LD_LIBRARY_PATH

echo "-- find_package"
cmake -S "$here/find_package" -B "$work/find_package" -G Ninja \
  -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/find_package" >/dev/null
"$work/find_package/ask"

echo "-- pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name cairn.pc)") \
  sh "$here/pkg_config/build.sh" "$work/pkg_config_ask"
"$work/pkg_config_ask"

echo "-- add_subdirectory"
cmake -S "$here/add_subdirectory" -B "$work/add_subdirectory" -G Ninja \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCAIRN_SOURCE_DIR="$source" \
  $launcher >/dev/null   # the library once more: what matters here is that it builds, quickly
cmake --build "$work/add_subdirectory" >/dev/null
"$work/add_subdirectory/ask"
"$work/add_subdirectory/ask_cpp"
