#!/usr/bin/env bash
# The console of a cluster of three zones in a browser: console.mjs says what is looked at. MONETA_SHOTS=FOLDER: what it looks like, there.
set -euo pipefail
cd "$(dirname "$0")"
bin=${MONETA_BIN:?the program under test}
MONETA_MODULES=$(../../scripts/tool.sh console-browser)
export MONETA_MODULES
folder=$(mktemp -d)
relay=
trap '[ -z "$relay" ] || kill "$relay" || true; "$bin" cluster down --dir "$folder/cluster" >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
"$bin" cluster up --dir "$folder/cluster" --port 0 --memory 64m --flash 160m
# One that reads the cluster that it writes to, for its page.
admin=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$bin" relay --from "$folder/cluster/topology.toml" --to "$folder/cluster/topology.toml" --region 0 \
    --state-dir "$folder/relay" --admin "127.0.0.1:$admin" >/dev/null 2>&1 &
relay=$!
MONETA_RELAY="http://127.0.0.1:$admin" MONETA_CLUSTER="$folder/cluster" MONETA_PROFILE="$folder/profile" node console.mjs
