#!/usr/bin/env bash
# Runs tests of this folder against a proxy over three Moneta nodes, then against one over three memcached:
#   MONETA_BIN=target/debug/moneta tests/clients/through-proxy.sh COMMAND...
# The tests get proxy.sh for MONETA_BIN, and start as many of it as they start servers.
set -euo pipefail
export PROXY_PROGRAM="${MONETA_BIN:?names the moneta to test}"
PROXY_FOLDER=$(mktemp -d)
export PROXY_FOLDER
trap 'rm -rf "$PROXY_FOLDER"' EXIT
MONETA_BIN=$(realpath "$(dirname "$0")/proxy.sh")
export MONETA_BIN

for nodes in moneta memcached; do
    echo "through a proxy over three of $nodes:"
    PROXY_NODES=$nodes "$@"
done
