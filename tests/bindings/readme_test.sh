#!/bin/sh
# readme_test.sh COMPILER README INCLUDE_DIR: the C program that the README shows compiles.
set -eu
sed -n '/^```c$/,/^```$/p' "$2" | sed '/^```/d' |
  "$1" -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only -I"$3" -x c -
