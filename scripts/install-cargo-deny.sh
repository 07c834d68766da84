#!/usr/bin/env bash
# Prints the path of cargo-deny, installing it into a cache folder first if it is not there.
set -euo pipefail

version=0.20.2

if command -v cargo-deny >/dev/null 2>&1; then
    command -v cargo-deny
    exit 0
fi
folder="${XDG_CACHE_HOME:-$HOME/.cache}/moneta/cargo-deny-$version"
if [ ! -x "$folder/bin/cargo-deny" ]; then
    # Its own build must not use, or fill, the workspace's target folder.
    env -u CARGO_TARGET_DIR cargo install --locked --root "$folder" --version "$version" cargo-deny >&2
fi
echo "$folder/bin/cargo-deny"
