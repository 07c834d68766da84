#!/usr/bin/env bash
# Runs `cargo test --no-fail-fast` with the given arguments. With MONETA_RETRY=1, as in CI, a test program that failed runs once
# more by itself: a test that depends on how busy the machine is must not refuse a change, and must not go unseen, so what
# passes then is named in a line that begins with FLAKY.
#   scripts/cargo-test.sh --workspace --features ... [-- NAMES]
set -uo pipefail
cd "$(dirname "$0")/.." || exit

cargo=${CARGO:-cargo}
chosen=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    chosen+=("$1")
    shift
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$cargo" test --no-fail-fast "${chosen[@]}" "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" -eq 0 ] || [ "${MONETA_RETRY:-0}" != 1 ]; then
    exit "$status"
fi

# At its end cargo names what failed: `-p moneta-flash --test breaking`. The same arguments with the target alone build nothing anew.
# shellcheck disable=SC2016 # the backquotes are in the text
mapfile -t failed < <(sed -n 's/^ *`\(-p [^ ]* \)\?\(--[a-z]*\( [^ `]*\)\?\)`$/\2/p' "$log" | sort -u)
if [ ${#failed[@]} -eq 0 ]; then
    exit "$status"
fi
others=()
for ((index = 0; index < ${#chosen[@]}; index++)); do
    if [ "${chosen[index]}" = --test ]; then
        index=$((index + 1))
    else
        others+=("${chosen[index]}")
    fi
done
flaky=()
for target in "${failed[@]}"; do
    echo "running once more: $target"
    # shellcheck disable=SC2086 # an option and its value
    if "$cargo" test "${others[@]}" $target "$@"; then
        flaky+=("$target")
    else
        exit "$status"
    fi
done
printf 'FLAKY: failed, then passed: %s\n' "${flaky[@]}"
