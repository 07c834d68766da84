#!/usr/bin/env bash
# Builds `moneta` as it was at a commit of this repository, and prints where the binary is. What was built once is kept.
#   scripts/old-build.sh COMMIT
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(git rev-parse --verify --quiet "${1:?which commit}^{commit}") || {
    echo "this clone has no commit $1: fetch the whole history (git fetch --unshallow)" >&2
    exit 1
}
kept="${CARGO_TARGET_DIR:-$PWD/target}/old/$commit"
if [ ! -x "$kept/moneta" ]; then
    mkdir -p "$kept"
    sources=$(mktemp -d)
    trap 'rm -rf "$sources"' EXIT
    git archive "$commit" | tar -x -C "$sources"
    # A folder of its own: its binary would take the place of this build's.
    CARGO_TARGET_DIR="$kept/target" cargo build --quiet --manifest-path "$sources/Cargo.toml" -p moneta --features moneta/lmdb >&2
    cp "$kept/target/debug/moneta" "$kept/moneta"
    rm -rf "$kept/target"
fi
echo "$kept/moneta"
