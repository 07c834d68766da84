#!/usr/bin/env bash
# Shows two regions on this machine: a write that crosses a link of 80 ms, a region that is cut off, and healed. It ends what it starts.
#     deploy/regions/run.sh [MONETA]
set -euo pipefail
moneta=$(realpath "${1:-$(command -v moneta || echo target/quick/moneta)}")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
link=
ended() {
    [ -z "$link" ] || kill "$link" 2>/dev/null || true
    "$moneta" cluster down --dir "$dir" >/dev/null || true
    rm -rf "$dir"
}
trap ended EXIT

# Both directions, as clients speak: one request, one answer.
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf '%b\r\nquit\r\n' "$2" >&3
    tr -d '\r' <&3
    exec 3>&-
}
# Waits until a key shows a value, and says how long that took.
until_it_is() {
    local from=$EPOCHREALTIME
    for _ in $(seq 3000); do
        if [ "$(ask "$1" "mg $2 v" | sed -n 2p)" = "$3" ]; then
            awk -v from="$from" -v now="$EPOCHREALTIME" 'BEGIN { printf "  read there after %.0f ms\n", (now - from) * 1000 }'
            return
        fi
        sleep 0.01
    done
    echo "  $2 is not there after 30 seconds" && return 1
}

"$moneta" cluster up --regions 2 --port 0 --dir "$dir" >"$dir/screen"
east=$(awk '$1 == "1" { print $2 }' "$dir/screen")
west=$(awk '$1 == "2" { print $2 }' "$dir/screen")
east=${east##*:} west=${west##*:}
echo "two regions run: clients of region 1 write to port $east, those of region 2 to port $west"

# The nodes of region 1 as region 2 reaches them: by forwarders.
nodes=$(grep -oE 'address = "[0-9.]+:[0-9]+"' "$dir/region-1/outside.toml" | cut -d'"' -f2)
ways=() edit=()
for node in $nodes; do
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    ways+=("$port=$node")
    edit+=(-e "s/$node\"/127.0.0.1:$port\"/")
done
cut() {
    kill "$link" || true
    wait "$link" 2>/dev/null || true
    link=
}
heal() { python3 "$here/link.py" 0.04 "${ways[@]}" & link=$!; }
heal
sed "${edit[@]}" -e 's/^epoch = .*/epoch = 2/' "$dir/region-1/outside.toml" >"$dir/outside.new"
mv "$dir/outside.new" "$dir/region-1/outside.toml"
sleep 3

echo "a write in region 1"
ask "$east" 'set greeting 0 0 5\r\nhello' >/dev/null
until_it_is "$west" greeting hello
echo "region 1 is cut off: both go on alone"
cut
ask "$east" 'set greeting 0 0 9\r\nfrom east' >/dev/null
ask "$west" 'set other 0 0 9\r\nfrom west' >/dev/null
sleep 2
echo "  region 1 reads $(ask "$east" 'mg greeting v' | sed -n 2p), region 2 reads $(ask "$west" 'mg greeting v' | sed -n 2p)"
echo "the link is healed"
heal
until_it_is "$west" greeting 'from east'
until_it_is "$east" other 'from west'
