#!/usr/bin/env bash
# Run a command with DATABASE_URL pointing to an empty PostgreSQL of its own, on a Unix socket only, gone afterwards.
#   scripts/with_postgresql.sh python -m pytest tests/console
set -euo pipefail
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || { echo "PostgreSQL is not installed. Install it (apt-get install postgresql), then run this again." >&2; exit 1; }
folder=$(mktemp -d)
as=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses to run as root
    chown postgres "$folder"
    as=(setpriv --reuid=postgres --regid=postgres --init-groups)
fi
"${as[@]}" "$bin/initdb" -D "$folder/data" -A trust -U console --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$folder/data" -w -s -l "$folder/log" \
    -o "-c listen_addresses='' -c unix_socket_directories='$folder' -c fsync=off" start
trap '"${as[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate -s stop || true; rm -rf "$folder"' EXIT
DATABASE_URL="postgres://console@${folder//\//%2F}/postgres" "$@"
