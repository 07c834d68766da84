#!/usr/bin/env bash
# Every comparison with memcached that docs/benchmarks.md tells of, in turn. Needs two idle cores and about half an hour.
#   scripts/benchmarks.sh [speed|latency|threads|front|capacity|misses]...
# ROUNDS (5) and SECONDS_EACH (5) set the length. Reports go to standard output.
set -euo pipefail
cd "$(dirname "$0")/.."

moneta=${MONETA_BIN:-target/release/moneta}
[ -x "$moneta" ] || { echo "build it first: cargo build --release -p moneta" >&2; exit 1; }
moneta=$(realpath "$moneta")
rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-5}
user=$(if [ "$(id -u)" = 0 ]; then echo '-u root'; fi)
memcached="memcached -U 0 -p {port} -t 1 -m 1024 $user"
node="$moneta serve -p {port} -t 1 -m 1024 --admin off"

compare() {
    echo
    echo "### moneta bench compare $*"
    "$moneta" bench compare --quiet "$@"
}

load() {
    compare --a "$memcached" --b "$node" --rounds "$rounds" --duration "$seconds" --warmup 1 \
        --key-size 30 --connections 50 --fill "$@"
}

speed() {
    load --keys 300000 --value-size 100
    load --keys 300000 --value-size 100 --mix set
    load --keys 200000 --value-size 1024
    load --keys 200000 --value-size 1024 --mix set
    load --keys 300000 --value-size 100 --multiget 100
    load --keys 300000 --value-size 100 --pipeline 10
}

latency() {
    load --keys 300000 --value-size 100 --rate-from-peak 0.5
}

threads() {
    # One worker against two, with both cores for either: the cost of a request must not grow with the second.
    compare --a "$node" --b "${node/-t 1/-t 2}" --rounds "$rounds" --duration "$seconds" --warmup 1 \
        --server-cpus 0,1 --client-cpus 0,1 --keys 300000 --key-size 30 --value-size 100 --connections 50 --fill
}

front() {
    # What `moneta serve` in front of a memcached on a Unix socket adds, for a client that could ask it directly.
    local folder
    folder=$(mktemp -d)
    # shellcheck disable=SC2086 # an option and its value
    memcached -s "$folder/l1.sock" -t 1 -m 1024 $user &
    local peer=$!
    trap 'kill $peer; wait $peer; rm -r "$folder"' RETURN
    local proxy="$moneta serve -s {socket} -t 1 --admin off --l1 none --l2 remote:$folder/l1.sock"
    for _ in $(seq 100); do if [ -S "$folder/l1.sock" ]; then break; fi; sleep 0.1; done
    # At a fixed rate, what each adds; then as fast as it goes, where client, server and front share the cores.
    local load
    for load in "--rate 20000 --arrivals poisson" "" "--multiget 10"; do
        # shellcheck disable=SC2086 # the words of an option
        compare --a "$folder/l1.sock" --b "$proxy" --rounds "$rounds" --duration "$seconds" --warmup 1 --name-a direct \
            --name-b front --key-size 30 --keys 100000 --value-size 100 --connections 8 --fill $load
    done
}

capacity() {
    compare --a "${memcached/1024/\{memory\}}" --b "${node/1024/\{memory\}}" -m 1024 --capacity \
        --key-size 30 --value-size 100
}

replay() {
    local memory=$1
    shift
    compare --a "${memcached/1024/\{memory\}}" --b "${node/1024/\{memory\}}" -m "$memory" --replay "$@"
}

misses() {
    if [ -n "${MONETA_WORKLOADS:-}" ]; then
        local trace memory
        for memory in 16 32 64; do replay "$memory" "$MONETA_WORKLOADS/arc/OLTP.lis.zst" --window 16; done
        for memory in 32 64; do replay "$memory" "$MONETA_WORKLOADS/arc/P3.lis.zst" --window 16; done
        for trace in "$MONETA_WORKLOADS"/cloudphysics/*.bin; do replay 64 "$trace" --window 16; done
    else
        echo "MONETA_WORKLOADS is not set: no traces to replay" >&2
    fi
    replay 64 profile --profile meta-kvcache --keys 500000 --limit 2000000 --window 16
    local timed=(--limit 600000 --rate 20000 --window 4)
    replay 64 profile --profile twitter-26 --keys 100000 --ttl-scale 0.05 "${timed[@]}"
    replay 64 profile --profile twitter-7 --keys 100000 --ttl-scale 0.01 "${timed[@]}"
    replay 16 profile --profile twitter-52 --keys 300000 --ttl-scale 0.0005 "${timed[@]}"
    replay 16 profile --profile twitter-19 --keys 500000 --ttl-scale 0.01 "${timed[@]}"
}

for part in "${@:-speed}"; do "$part"; done
