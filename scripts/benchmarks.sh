#!/usr/bin/env bash
# The comparisons of docs/benchmarks.md. Reports go to standard output. Needs two idle cores.
#   scripts/benchmarks.sh [speed|latency|threads|front|capacity|misses|policies|proxies]...
#       with memcached, `proxies` with twemproxy (Debian: nutcracker), which is left out unless named; ROUNDS (5) and SECONDS_EACH (5) set the length, half an hour for all.
#   scripts/benchmarks.sh --base BINARY [get|set|multiget100|pipeline10|tiered-get|tiered-set|ssd-get|ssd-set]...
#       with an older build of Moneta: CPU a request in paired rounds; the first four loads if none is named. ROUNDS (20) and
#       SECONDS_EACH (3) set the length, about 3 minutes a load; WARMUP (1) is in seconds. DATA is the folder of SSD tiers.
#   scripts/benchmarks.sh --base BINARY shares
#       the same two builds, with ten times the data of RAM on SSD: what RAM answers of gets, and device reads a second at RATE
#       (10000) gets a second for SECONDS_EACH (20).
# MONETA_BIN is the build that is measured (target/release/moneta), BENCH_BIN the one whose `bench` measures it (MONETA_BIN).
# CAMPAIGNS_BIN is the program that simulates policies, which is built if it is not named.
set -euo pipefail

base=
if [ "${1:-}" = --base ]; then
    base=$(realpath "${2:?usage: $0 --base BINARY [LOAD]...}")
    [ -x "$base" ] || { echo "$base is not a program" >&2; exit 1; }
    shift 2
fi
moneta=${MONETA_BIN:+$(realpath "$MONETA_BIN")}
bench=${BENCH_BIN:+$(realpath "$BENCH_BIN")}
campaigns=${CAMPAIGNS_BIN:+$(realpath "$CAMPAIGNS_BIN")}
cd "$(dirname "$0")/.."
moneta=${moneta:-$PWD/target/release/moneta}
[ -x "$moneta" ] || { echo "build it first: cargo build --release -p moneta" >&2; exit 1; }
bench=${bench:-$moneta}
rounds=${ROUNDS:-${base:+20}}
rounds=${rounds:-5}
seconds=${SECONDS_EACH:-${base:+3}}
seconds=${seconds:-5}
user=$(if [ "$(id -u)" = 0 ]; then echo '-u root'; fi)
memcached="memcached -U 0 -p {port} -t 1 -m 1024 $user"
node="$moneta serve -p {port} -t 1 -m 1024 --admin off"

compare() {
    echo
    echo "### moneta bench compare $*"
    "$bench" bench compare --quiet "$@"
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

# Beside known policies with as much room, near 5, 10 and 20 % of what is asked for at all. PYTHON has the package libcachesim, SEED
# draws the profiles' streams. Ends with a line for each: misses over those of the best policy that does not know the future. PLOT is a
# file for the same drawn as SVG.
policies() {
    if [ -z "$campaigns" ]; then
        cargo build --release -p moneta-campaigns
        campaigns=${CARGO_TARGET_DIR:-target}/release/campaigns
    fi
    local folder
    folder=$(mktemp -d)
    trap 'rm -r "$folder"' RETURN
    if [ -n "${MONETA_WORKLOADS:-}" ]; then
        beside OLTP "11 21" "$MONETA_WORKLOADS/arc/OLTP.lis.zst" --value-size 512
        beside P3 "21 42 82" "$MONETA_WORKLOADS/arc/P3.lis.zst" --value-size 512
        beside cloudphysics "102 202 403" "$MONETA_WORKLOADS"/cloudphysics/*.bin
    fi
    local drawn=(profile --mix get=1 --ttl 0 --key-size 20 --seed "${SEED:-1}")
    beside meta-kvcache "10 19 36" "${drawn[@]}" --profile meta-kvcache --keys 400000 --limit 2000000
    beside twitter-4 "15 30 60" "${drawn[@]}" --profile twitter-4 --keys 200000 --limit 1000000
    beside twitter-7 "11 22 44" "${drawn[@]}" --profile twitter-7 --keys 200000 --limit 1000000
    beside twitter-12 "49 97 193" "${drawn[@]}" --profile twitter-12 --keys 200000 --limit 1000000
    beside twitter-26 "23 46 91" "${drawn[@]}" --profile twitter-26 --keys 200000 --limit 1000000
    beside twitter-37 "112 224 444" "${drawn[@]}" --profile twitter-37 --keys 50000 --limit 250000
    beside twitter-14 "10 19 39" "${drawn[@]}" --profile twitter-14 --keys 200000 --limit 1000000 --value-size 3000
    beside twitter-19 "20 40 79" "${drawn[@]}" --profile twitter-19 --keys 200000 --limit 1000000 --value-size 1000
    beside twitter-22 "21 41 83" "${drawn[@]}" --profile twitter-22 --keys 200000 --limit 1000000 --value-size 1000
    beside twitter-52 "13 26 51" "${drawn[@]}" --profile twitter-52 --keys 200000 --limit 1000000 --value-size 3000
    cat "$folder/summary"
    if [ -n "${PLOT:-}" ]; then scripts/miss-ratios.py <"$folder/summary" >"$PLOT"; fi
}

# beside NAME "MEMORY..." REPLAY-ARGUMENT...
beside() {
    local name=$1 memory
    local -a sizes
    read -ra sizes <<<"$2"
    shift 2
    for memory in "${sizes[@]}"; do
        "$campaigns" policies "$@" --window 16 --server "${node/1024/$memory}" --python "${PYTHON:-python3}" --quiet \
            --json "$folder/found"
        python3 - "$name" "$memory" "$folder/found" >>"$folder/summary" <<'END'
import json, sys

found = json.load(open(sys.argv[3]))
ratios = found["policies"]["miss_ratios"]
bound = ratios.pop("Belady")
best = min(ratios, key=ratios.get)
ours = found["miss_ratio"]
room = f"{found['policies']['capacity']} {found['policies']['unit']}"
print(f"{sys.argv[1]}\t{sys.argv[2]}\t{room}\t{ours:.4f}\t{best}\t{ratios[best]:.4f}\t{ours / ratios[best]:.3f}\t{ours / ratios['LRU']:.3f}\t{bound:.4f}")
END
    done
}

# The loads that compare two builds. RAM alone where no --flash is named.
declare -A build_load=(
    [get]="--keys 300000 --value-size 100"
    [set]="--keys 300000 --value-size 100 --mix set"
    [multiget100]="--keys 300000 --value-size 100 --multiget 100"
    [pipeline10]="--keys 300000 --value-size 100 --pipeline 10"
    [tiered-get]="--keys 300000 --value-size 100"
    [tiered-set]="--keys 300000 --value-size 100 --mix set"
    [ssd-get]="--keys 300000 --value-size 1000"
    [ssd-set]="--keys 300000 --value-size 1000 --mix set"
)

# A proxy beside twemproxy, one worker each, over the same six nodes on the client's core, each holding a sixth of the keys; a set to one
# copy and to three zones of two nodes; and what a proxy adds to the median at 10,000 requests a second over TCP.
proxies() {
    local node=(--node "$moneta serve --cluster --writer-id {number} -p {port} -t 1 -m 256 --admin off" --nodes)
    local one="$moneta proxy --topology {topology} -p {port} -t 1 --admin off"
    local three="$moneta proxy --topology {zones} --zone zone0 -p {port} -t 1 --admin off"
    local rest=(--rounds "$rounds" --duration "$seconds" --warmup 1 --keys 20000 --key-size 30 --value-size 100 --fill)
    local loads=("--mix get" "--mix get --pipeline 10" "--mix get --multiget 10" "--mix set") load words
    for load in "${loads[@]}"; do
        read -ra words <<< "$load"
        compare "${node[@]}" 6 --a 'nutcracker -c {twemproxy} -s {admin_port} -a 127.0.0.1' --b "$one" --connections 50 "${rest[@]}" "${words[@]}"
    done
    compare "${node[@]}" 6 --a "$one" --b "$three" --name-a one-copy --name-b three-zones --connections 50 "${rest[@]}" --mix set
    compare "${node[@]}" 1 --a '{node}' --b "$one" --name-a direct --name-b proxy --connections 8 "${rest[@]}" --rate 10000
}

# build_command BINARY LOAD FOLDER: the node of a load. Each build has a separate tier, so neither reads the other's format.
build_command() {
    local binary=$1 name=$2 tier=$3
    case $name in
    tiered-*) echo "$binary serve -p {port} -t 1 -m 256 --admin off --flash $tier:1g" ;;
    ssd-*) echo "$binary serve -p {port} -t 1 --admin off --flash $tier:1g --l1 none" ;;
    *) echo "$binary serve -p {port} -t 1 -m 1024 --admin off" ;;
    esac
}

builds() {
    local name folder
    folder=$(mktemp -d -p "${DATA:-${TMPDIR:-/tmp}}")
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$folder'" EXIT
    mkdir "$folder/base" "$folder/new"
    for name in "$@"; do
        [ -n "${build_load[$name]:-}" ] || { echo "no load named $name" >&2; exit 2; }
    done
    for name in "$@"; do
        # shellcheck disable=SC2086 # the words of an option
        compare --a "$(build_command "$base" "$name" "$folder/base")" --b "$(build_command "$moneta" "$name" "$folder/new")" \
            --name-a base --name-b new --rounds "$rounds" --duration "$seconds" --warmup "${WARMUP:-1}" --key-size 30 \
            --connections 50 --fill ${build_load[$name]} | tee "$folder/report"
        # The line of the table is: name, base, new, B/A, range, median of the pairs, interval, unit.
        awk -v name="$name" '/^server CPU per request/ {
            printf "%-12s %8.3f -> %8.3f µs  %s  95 %%: %s\n", name, $5, $6, $9, $10 }' "$folder/report" >>"$folder/summary"
    done
    echo
    echo "### server CPU per request, base -> new (medians of $rounds rounds), median ratio of the paired rounds, its 95 % interval"
    cat "$folder/summary"
}

# tier_counts PORT: gets that RAM answered, that the SSD answered, and reads of the device.
tier_counts() {
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'stats\r\nquit\r\n' >&3
    tr -d '\r' <&3 | awk '{ of[$2] = $3 } END { print of["tier_ram_hits"], of["tier_ssd_hits"], of["extstore_objects_read"] }'
    exec 3>&-
}

# What RAM answers where the SSD has ten times its data: by Zipf alone, with writes, and while a fifth of the gets goes through all keys.
shares() {
    local folder port=21950 rate=${RATE:-10000} length=${SECONDS_EACH:-20} load binary pid before after distribution mix scan scanner
    folder=$(mktemp -d -p "${DATA:-${TMPDIR:-/tmp}}")
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$folder'" EXIT
    local keys=(--server "127.0.0.1:$port" --keys 640000 --key-size 30 --value-size 1000 --quiet)
    printf 'load\tbuild\tanswered by RAM\tdevice reads/s at %s requests/s\n' "$rate" >"$folder/summary"
    for load in "zipf:0.99 get=1" "zipf:0.99 get=95,set=5" "zipf:0.9 get=1" "zipf:0.99 get=1 scan"; do
        read -r distribution mix scan <<<"$load"
        for binary in "$base" "$moneta"; do
            rm -rf "$folder/tier" && mkdir "$folder/tier"
            "$binary" serve -p $port -t 1 -m 64 --admin off --flash "$folder/tier:1g" >"$folder/log" 2>&1 &
            pid=$!
            until { true 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null; do
                kill -0 $pid || { cat "$folder/log" >&2; exit 1; }
                sleep 0.1
            done
            local requests=("${keys[@]}" --mix "$mix" --distribution "$distribution")
            "$bench" bench "${requests[@]}" --fill --seed 1 --requests 2000000 --warmup 0 >/dev/null
            before=$(tier_counts $port)
            if [ -n "$scan" ]; then
                "$bench" bench "${keys[@]}" --mix get=1 --distribution sequential --rate $((rate / 5)) --duration "$length" --warmup 0 >/dev/null &
                scanner=$!
            fi
            "$bench" bench "${requests[@]}" --seed 2 --rate "$([ -n "$scan" ] && echo $((rate * 4 / 5)) || echo "$rate")" --duration "$length" --warmup 0 >/dev/null
            [ -z "$scan" ] || wait "$scanner"
            after=$(tier_counts $port)
            kill $pid
            wait $pid || true
            awk -v load="$load" -v build="$([ "$binary" = "$base" ] && echo base || echo new)" -v seconds="$length" '
                NR == 1 { ram = $1; ssd = $2; reads = $3 }
                NR == 2 { printf "%s\t%s\t%.4f\t%.0f\n", load, build, ($1 - ram) / ($1 + $2 - ram - ssd), ($3 - reads) / seconds }
            ' <<<"$before"$'\n'"$after" | tee -a "$folder/summary"
        done
    done
    cat "$folder/summary"
}

if [ -n "$base" ]; then
    if [ "${1:-}" = shares ]; then
        shares
        exit
    fi
    if [ $# -eq 0 ]; then set -- get set multiget100 pipeline10; fi
    builds "$@"
    exit
fi
for part in "${@:-speed}"; do "$part"; done
