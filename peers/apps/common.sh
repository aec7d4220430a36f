# shellcheck shell=bash
# Read by the scripts of this folder: a folder for files, which is removed at the end, haul, and a processor
# for each of the two programs that work at the same time.
set -eu -o pipefail

# shellcheck disable=SC2034 # The scripts that read this file use it.
haul=${HAUL:-target/release/haul}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The server runs on one processor, and its load on another if there are two. Otherwise the scheduler moves
# them, in each run differently. The first processor has most interrupts, so the server gets the last.
allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
# shellcheck disable=SC2034 # The scripts that read this file use them.
on_server="taskset -c ${allowed##*[,-]}" on_load="taskset -c ${allowed%%[,-]*}"

# needs COMMAND PACKAGE: fails if a program is missing, and names its package.
needs() {
  command -v "$1" >/dev/null 2>&1 && return
  echo "cannot test: $1 is missing: apt-get install $2" >&2
  exit 1
}
