# shellcheck shell=bash
# Makes a database cluster with pgbench's tables, and sets `server`, its command. PostgreSQL refuses to run
# as root, so root runs it as the user postgres.
# shellcheck source=peers/apps/common.sh
. "$(dirname "$0")/../common.sh"
for bin in /usr/lib/postgresql/*/bin; do :; done
needs "$bin/pgbench" postgresql

as=
if [ "$(id -u)" = 0 ]; then
  as='setpriv --reuid=postgres --regid=postgres --clear-groups'
  chown postgres "$folder"
  # haul too, because the server writes the profile of its copies into a folder of haul's.
  haul="$as $(realpath "$haul")"
  export HOME=$folder
  for ((at = 1; at < $#; at++)); do
    [ "${!at}" = --out ] || continue
    next=$((at + 1))
    mkdir -p "${!next}"
    chown postgres "${!next}"
  done
fi
# shellcheck disable=SC2034 # The scripts that read this file use it.
server="$on_server $bin/postgres -D $folder/data -k $folder -c listen_addresses= -c fsync=off -c shared_buffers=512MB"
{
  $as "$bin/initdb" -D "$folder/data" -U postgres --auth=trust
  $as "$bin/pg_ctl" -D "$folder/data" -o "-k $folder -c listen_addresses=" -w start
  "$bin/pgbench" -h "$folder" -U postgres -q -i -s 10 postgres
  $as "$bin/pg_ctl" -D "$folder/data" -w stop
} >"$folder/log" 2>&1
