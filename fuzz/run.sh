#!/bin/sh
# Fuzzes every target for so many seconds each (60 by default), beginning with the committed seeds. What it finds lies in
# fuzz/artifacts; what it learns stays in fuzz/corpus, which is not committed.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install cargo-fuzz --locked
fi
for target in decoder refused session region login parking replies dump http topology users feed hints segment tls; do
    mkdir -p "fuzz/corpus/$target"
    cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048
done
