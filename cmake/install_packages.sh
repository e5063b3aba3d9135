#!/bin/sh
# Installs what is missing of cmake/packages.txt, by name, and nothing else. Does nothing where all is
# installed; needs root or sudo where it is not.
set -eu
list=$(dirname "$0")/packages.txt

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "No dpkg here: install the equivalents of $list yourself." >&2
  exit 0
fi

missing=
for package in $(sed 's/#.*//' "$list"); do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || { echo "Install as root:$missing" >&2; exit 1; }
  as_root=sudo
fi
echo "Installing:$missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086  # the list is split on purpose
$as_root env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
