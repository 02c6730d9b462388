#!/usr/bin/env bash
# Measures what a supervised worker does while TCP packets to Postgres get lost for real: after how long it is at work
# again when they come through again, and whether anything ran twice. Needs Linux, root, iptables and the programs of
# Postgres; works in a network of its own, so nothing else on the machine notices.
#   cargo build -p windlass-tests && unshare --net tests/packet_loss.sh target/debug
set -euo pipefail
programs=$(realpath "${1:?the directory of the built programs}")
PATH="$PATH:$(printf '%s:' /usr/lib/postgresql/*/bin)"
work=$(mktemp -d /tmp/windlass-loss.XXXXXX) port=5999 count=0 supervisor=''
trap 'stop' EXIT
stop() {
  kill -KILL $supervisor 2>/dev/null || true
  as_server pg_ctl stop -m immediate -D "$work/data" >/dev/null || true
  rm -rf "$work"
}
as_server() (cd / && runuser -u nobody -- "$@")
now() { date +%s%3N; }

ip link set lo up
chown nobody "$work"
as_server initdb -D "$work/data" -U postgres -A trust -E UTF8 --locale=C >/dev/null
printf '%s\n' "listen_addresses = '127.0.0.1'" "unix_socket_directories = '$work'" "port = $port" >>"$work/data/postgresql.conf"
as_server pg_ctl start -w -D "$work/data" -l "$work/data/log" >/dev/null
lossy=postgres://postgres@127.0.0.1:$port/postgres # and by the socket, of which nothing is lost
sure=postgres://postgres@${work//\//%2F}:$port/postgres
ask() { psql -h "$work" -p "$port" -U postgres -Atqc "$1"; }
"$programs/windlass" --database "$sure" migrate >/dev/null
role='{"kind":"Supervisor","url":"'$lossy'","directory":"'$work'","seed":1,"shutdown":{"secs":10,"nanos":0},
  "mix":{"killers":0,"long":0,"lot":1,"waiting":1000,"is_graceful":true}}'
RUST_LOG=warn,windlass=info "$programs/chaos" --role "$role" 2>"$work/log" & supervisor=$!

job() { # enqueues one by the socket, and prints how many milliseconds later it has finished
  local start
  start=$(now)
  count=$((count + 1))
  "$programs/windlass" --database "$sure" enqueue chaos_work '{"key":'$count',"kind":"Short","millis":1}' >/dev/null
  until [ "$(ask 'SELECT count(*) FROM solid_queue_jobs WHERE finished_at IS NULL')" = 0 ]; do
    if [ $(($(now) - start)) -gt 90000 ]; then echo 'more than 90000' && return; fi
    sleep 0.05
  done
  echo $(($(now) - start))
}
lose() { # WAY [MATCH...]: packets to the server, from it, or both
  if [ "$1" != answers ]; then iptables -w -A INPUT -p tcp --dport "$port" "${@:2}" -j DROP; fi
  if [ "$1" != questions ]; then iptables -w -A INPUT -p tcp --sport "$port" "${@:2}" -j DROP; fi
}
lose_none() { iptables -w -F INPUT; }

job >/dev/null # until all is at work
echo "nothing lost: a job takes $(job), $(job), $(job) ms"
for part in 0.05 0.2; do
  lose both -m statistic --mode random --probability "$part"
  echo "$part lost each way: a job takes $(job), $(job), $(job), $(job), $(job), $(job) ms"
  lose_none
done
for seconds in 3 8 20; do
  for way in both questions answers; do
    lose "$way" && sleep "$seconds" && lose_none
    echo "lost for $seconds s ($way): at work again after $(job) ms"
  done
done
kill -TERM "$supervisor" && start=$(now) && wait "$supervisor"
echo "it stopped in order after $(($(now) - start)) ms"
jobs=$(ask 'SELECT count(*) FROM solid_queue_jobs') runs=$(grep -c ^start "$work/effects")
failed=$(ask 'SELECT count(*) FROM solid_queue_failed_executions')
echo "$jobs jobs with those of the recurring task, $runs runs, $failed failed"
[ "$jobs" = "$runs" ] && [ "$failed" = 0 ]
