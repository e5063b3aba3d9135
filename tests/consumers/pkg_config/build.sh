#!/bin/sh
# One line is enough where pkg-config finds cairn.pc. build.sh OUTPUT
set -eu
# shellcheck disable=SC2046  # flags are split on purpose
cc -std=c99 -pedantic "$(dirname "$0")/../ask.c" -o "$1" $(pkg-config --cflags --libs cairn)
