# shellcheck shell=bash
# Read by the scripts of this folder: a folder for files, which is removed at the end, and haul.
set -eu -o pipefail

haul=${HAUL:-target/release/haul}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# needs COMMAND PACKAGE: fails if a program is missing, and names its package.
needs() {
  command -v "$1" >/dev/null 2>&1 && return
  echo "cannot test: $1 is missing: apt-get install $2" >&2
  exit 1
}
