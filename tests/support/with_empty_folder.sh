#!/bin/sh
# with_empty_folder.sh COMMAND...: runs the command with an empty folder as its last argument and
# removes the folder after it.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$@" "$folder"
