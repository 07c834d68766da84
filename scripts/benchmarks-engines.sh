#!/usr/bin/env bash
# Every engine that can have all items, on one disk, one after the other: the table of engines in docs/benchmarks.md.
#   scripts/benchmarks-engines.sh [options of `campaigns engines`]...
# Run as root, which dropping the page cache takes, on an otherwise idle machine; about 15 minutes.
# DATA: folder on the disk to measure (/tmp). THREADS: worker threads of each server (2). RESULT: where the table goes, as Markdown,
# and beside it as JSON (target/benchmarks-engines.md).
set -euo pipefail
cd "$(dirname "$0")/.."

data=${DATA:-/tmp}
threads=${THREADS:-2}
result=${RESULT:-target/benchmarks-engines.md}
moneta=${MONETA_BIN:-}
if [ -z "$moneta" ]; then
    make setup FOR=engines
    cargo build --release -p moneta --features rocks,lmdb
    moneta=${CARGO_TARGET_DIR:-target}/release/moneta
fi
moneta=$(realpath "$moneta")
campaigns=${CAMPAIGNS_BIN:-}
if [ -z "$campaigns" ]; then
    cargo build --release -p moneta-campaigns
    campaigns=${CARGO_TARGET_DIR:-target}/release/campaigns
fi
user=$(if [ "$(id -u)" = 0 ]; then echo '-u root'; fi)

# One tier each: nothing is served from a RAM tier.
node="$moneta serve -p {port} --admin 127.0.0.1:{admin_port} -t $threads --l1 none"
rocks="$node --rocks {flash}/rocks:{flash_size}m --rocks-compaction"
# As in benchmarks-ssd.sh: memcached's settings of its own performance tests, but that values may go to the file at once.
extstore="ext_path={flash}/extstore:{flash_size}m,ext_threads=8,ext_wbuf_size=16"
extstore+=",ext_item_age=0,ext_max_sleep=10000,ext_recache_rate=0,hashpower=21,no_hashexpand"

mkdir -p "$(dirname "$result")"
"$campaigns" engines --data "$data" --markdown "$result" --json "${result%.md}.json" \
    --engine "flash=$node --flash {flash}:{flash_size}m" \
    --engine "rocks, FIFO=$rocks fifo" \
    --engine "rocks, universal=$rocks universal" \
    --engine "rocks, level=$rocks level" \
    --engine "lmdb=$node --lmdb {flash}/lmdb:{flash_size}m" \
    --engine "memcached with extstore=memcached $user -U 0 -l 127.0.0.1 -p {port} -t $threads -m 320 -o $extstore" \
    "$@"
