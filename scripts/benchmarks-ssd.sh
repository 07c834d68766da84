#!/usr/bin/env bash
# The SSD tier beside memcached with extstore: everything docs/benchmarks.md tells of it, in one run.
#   scripts/benchmarks-ssd.sh [full|quick] [options of `campaigns ssd`]...
# full (the default): 4 million items of 1000 B, 1 GiB of RAM, files of 8 GiB; about 20 minutes. quick: a tenth, about 4 minutes;
# shows that everything runs, not how fast. Run as root, which dropping the page cache takes, on an otherwise idle machine.
# DATA: folder on the disk to measure (/tmp). THREADS: worker threads of each server (1). RESULT: where the table goes, as
# Markdown, and beside it as JSON (target/benchmarks-ssd.md).
set -euo pipefail
cd "$(dirname "$0")/.."

mode=full
case "${1:-}" in full | quick) mode=$1 && shift ;; esac
data=${DATA:-/tmp}
threads=${THREADS:-1}
result=${RESULT:-target/benchmarks-ssd.md}
moneta=${MONETA_BIN:-}
if [ -z "$moneta" ]; then
    cargo build --release -p moneta
    moneta=${CARGO_TARGET_DIR:-target}/release/moneta
fi
moneta=$(realpath "$moneta")
campaigns=${CAMPAIGNS_BIN:-}
if [ -z "$campaigns" ]; then
    cargo build --release -p moneta-campaigns
    campaigns=${CARGO_TARGET_DIR:-target}/release/campaigns
fi
user=$(if [ "$(id -u)" = 0 ]; then echo '-u root'; fi)

if [ "$mode" = full ]; then
    memory=1024 hashpower=22 buffers=32
    scale=(--keys 4000000 --flash-size 8192 --small-flash-size 1280 --rounds 3 --duration 10 --online-warmup 30)
else
    memory=256 hashpower=19 buffers=16
    scale=(--keys 400000 --flash-size 1024 --small-flash-size 192 --rounds 1 --duration 3 --online-warmup 5)
fi

# memcached's settings are those of its own performance tests of extstore (8 threads, write buffers of 32 MB, a hash table of
# the right size from the start) but for two: ext_item_age=0 lets values go to the file as soon as they have left the newest
# part of the LRU, without which it evicts most of a bulk load before it was written; and ext_recache_rate=0 with it.
extstore="ext_path={flash}/extstore:{flash_size}m,ext_threads=8,ext_wbuf_size=$buffers"
extstore+=",ext_item_age=0,ext_max_sleep=10000,ext_recache_rate=0,hashpower=$hashpower,no_hashexpand"
peer="memcached $user -U 0 -l 127.0.0.1 -p {port} -t $threads -m $memory -o $extstore"
node="$moneta serve -p {port} --batch-port {batch_port} --admin 127.0.0.1:{admin_port} -t $threads -m $memory"
node+=" --flash {flash}:{flash_size}m"

mkdir -p "$(dirname "$result")"
"$campaigns" ssd --node "$node" --name-node Moneta --peer "$peer" --name-peer extstore --data "$data" \
    "${scale[@]}" --markdown "$result" --json "${result%.md}.json" "$@"
