#!/usr/bin/env bash
# The console of a cluster of three zones in a browser: console.mjs says what is looked at. MONETA_SHOTS=FOLDER: what it looks like, there.
set -euo pipefail
cd "$(dirname "$0")"
bin=${MONETA_BIN:?the program under test}
MONETA_MODULES=$(../../scripts/tool.sh console-browser)
export MONETA_MODULES
folder=$(mktemp -d)
trap '"$bin" cluster down --dir "$folder/cluster" >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
"$bin" cluster up --dir "$folder/cluster" --port 0 --memory 64m --flash 160m
MONETA_CLUSTER="$folder/cluster" MONETA_PROFILE="$folder/profile" node console.mjs
