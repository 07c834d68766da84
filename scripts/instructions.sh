#!/usr/bin/env bash
# User instructions that a node, or a proxy over three nodes, spends on a request, by callgrind: two runs that differ in the number
# of requests alone, so that start, fill and end cancel out. Repeatable to about 0.5 % on a node, whatever else the machine does, and
# for reads through a proxy, which is filled with fewer keys and asked five times as often; to 3 % for its sets, where it depends on
# how many copies answer within a turn. Needs valgrind.
#   scripts/instructions.sh BINARY [BASE]        BASE is an older build to compare with
# REQUESTS (4000) sets the length of the shorter run. LOADS names the loads, by default all. Of ROUNDS (1), the median is printed.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

new=$(realpath "${1:?usage: $0 BINARY [BASE]}")
base=${2:+$(realpath "$2")}
requests=${REQUESTS:-4000}
rounds=${ROUNDS:-1}
folder=$(mktemp -d)
server=
nodes=()
trap 'kill $server "${nodes[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT

declare -A load=(
    [get]="--keys 20000 --value-size 100"
    [set]="--keys 20000 --value-size 100 --mix set"
    [multiget100]="--keys 20000 --value-size 100 --multiget 100"
    [pipeline10]="--keys 20000 --value-size 100 --pipeline 10"
    [tiered-get]="--keys 20000 --value-size 100"
    [tiered-set]="--keys 20000 --value-size 100 --mix set"
    [ssd-get]="--keys 60000 --value-size 1000"
    [ssd-set]="--keys 20000 --value-size 1000 --mix set"
    [proxy-get]="--keys 2000 --value-size 100"
    [proxy-set]="--keys 2000 --value-size 100 --mix set"
    [proxy-pipeline10]="--keys 2000 --value-size 100 --pipeline 10"
    [proxy-multiget10]="--keys 2000 --value-size 100 --multiget 10"
)

# await PORT: until something listens there
await() {
    for _ in $(seq 300); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        sleep 0.1
    done
}

# start_nodes BINARY PORT: three nodes from that port on, as three zones of a topology
start_nodes() {
    local zone number=0
    echo 'epoch = 1' >"$folder/topology.toml"
    for zone in a b c; do
        number=$((number + 1))
        "$1" serve --cluster --writer-id "$number" -p $(($2 + number)) -l 127.0.0.1 -t 1 --admin off -m 64 >>"$folder/log" 2>&1 &
        nodes+=($!)
        printf '[[replica]]\nzone = "%s"\nnodes = ["0=127.0.0.1:%d"]\n' "$zone" $(($2 + number)) >>"$folder/topology.toml"
        await $(($2 + number))
    done
}

# instructions BINARY LOAD REQUESTS: what the whole run of the node or proxy took
instructions() {
    local binary=$1 name=$2 count=$3 port out=$folder/callgrind.out command=serve options=()
    port=$((20000 + RANDOM % 20000))
    case $name in
    tiered-*) options=(--flash "$folder/tier:256m" -m 64) ;;
    # Without a tier in RAM. A seventh of the items lie in the region that is being filled; the others are read from the device.
    ssd-*) options=(--flash "$folder/tier:256m" --l1 none) ;;
    proxy-*)
        command=proxy
        options=(--topology "$folder/topology.toml" --zone a --writer-id 4)
        start_nodes "$binary" "$port"
        ;;
    *) options=(-m 64) ;;
    esac
    rm -rf "$folder/tier" "$out"
    mkdir "$folder/tier"
    valgrind --quiet --tool=callgrind --callgrind-out-file="$out" \
        "$binary" "$command" -p "$port" -l 127.0.0.1 -t 1 --admin off "${options[@]}" >"$folder/log" 2>&1 &
    server=$!
    await "$port"
    # shellcheck disable=SC2086 # the words of an option
    "$new" bench --quiet --server "127.0.0.1:$port" --fill --warmup 0 --connections 1 --threads 1 --key-size 30 --seed 1 \
        --requests "$count" ${load[$name]} >"$folder/bench" 2>&1 || { cat "$folder/bench" "$folder/log" >&2; exit 1; }
    kill "$server"
    wait "$server" || true
    server=
    if [ ${#nodes[@]} -gt 0 ]; then
        kill "${nodes[@]}"
        wait "${nodes[@]}" || true
        nodes=()
    fi
    awk '/^(summary|totals):/ { print $2; exit }' "$out"
}

per_request() {
    local once twice count=$requests
    if [[ $2 == proxy-* ]]; then count=$((5 * requests)); fi
    for _ in $(seq "$rounds"); do
        once=$(instructions "$1" "$2" "$count")
        twice=$(instructions "$1" "$2" $((2 * count)))
        echo $(((twice - once) / count))
    done | sort -n | sed -n "$(((rounds + 1) / 2))p"
}

for name in ${LOADS:-get set multiget100 pipeline10 tiered-get tiered-set ssd-get ssd-set proxy-get proxy-set proxy-pipeline10 proxy-multiget10}; do
    is=$(per_request "$new" "$name")
    if [ -n "$base" ]; then
        was=$(per_request "$base" "$name")
        awk -v name="$name" -v is="$is" -v was="$was" 'BEGIN { printf "%-16s %8d -> %8d  %.3f\n", name, was, is, is / was }'
    else
        printf '%-16s %8d\n' "$name" "$is"
    fi
done
