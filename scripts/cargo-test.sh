#!/usr/bin/env bash
# Builds tests with the given arguments of `cargo test` and runs the test programs, TEST_JOBS (2) at a time: many of them wait for
# devices and timeouts longer than they compute, and cargo runs one after the other. A program that passes gets one line, one that
# fails its whole output.
#
# With MONETA_RETRY=1, as in CI, a program that failed runs once more by itself: a test that depends on how busy the machine is
# must not refuse a change, and must not go unseen, so a line that begins with FLAKY names what passes then.
#   scripts/cargo-test.sh --workspace --features ... [-- NAMES]
set -uo pipefail
cd "$(dirname "$0")/.." || exit

cargo=${CARGO:-cargo}
chosen=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    chosen+=("$1")
    shift
done
[ $# -eq 0 ] || shift
# Names have no spaces.
export TEST_NAMES="$*"
# What runs so long hangs: the longest program takes two minutes on a quiet machine.
export TEST_SECONDS=900
TEST_LOGS=$(mktemp -d)
export TEST_LOGS
trap 'rm -rf "$TEST_LOGS"' EXIT

# run_program FOLDER PROGRAM LABEL: as cargo runs it, in the folder of its package.
run_program() {
    local folder=$1 program=$2 label=$3 log status=0 started=$SECONDS
    log=$(mktemp -p "$TEST_LOGS")
    # shellcheck disable=SC2086 # names of tests
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder timeout "$TEST_SECONDS" "$program" $TEST_NAMES) >"$log" 2>&1 || status=$?
    {
        flock 9
        if [ "$status" -eq 0 ]; then
            printf 'ok %4d s  %-45s %s\n' $((SECONDS - started)) "$label" \
                "$(sed -n 's/^test result: ok\. \([0-9]* passed\); [0-9]* failed\(; [1-9][0-9]* ignored\)\?.*/\1\2/p' "$log")"
        else
            cat "$log"
            printf 'FAILED after %d s, status %d: %s\n' $((SECONDS - started)) "$status" "$label"
            printf '%s\0' "$folder" "$program" "$label" >>"$TEST_LOGS/failed"
        fi
    } 9>>"$TEST_LOGS/lock"
    return 0
}
export -f run_program

# One line of JSON for each artifact; those of tests are taken.
"$cargo" test --no-run --message-format=json-render-diagnostics "${chosen[@]}" >"$TEST_LOGS/artifacts" || exit
programs=()
while IFS=$'\t' read -r manifest source program; do
    folder=$(dirname "$manifest")
    programs+=("$folder" "$program" "$(basename "$folder") ${source#"$folder/"}")
done < <(sed -n 's/.*"manifest_path":"\([^"]*\)".*"src_path":"\([^"]*\)".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1\t\2\t\3/p' \
    "$TEST_LOGS/artifacts")
[ ${#programs[@]} -gt 0 ] || { echo "no test programs" >&2; exit 1; }
: >"$TEST_LOGS/failed"
printf '%s\0' "${programs[@]}" | xargs -0 -n 3 -P "${TEST_JOBS:-2}" bash -c 'run_program "$@"' run_program || exit

mapfile -d '' -t failed <"$TEST_LOGS/failed"
status=0
if [ ${#failed[@]} -gt 0 ] && [ "${MONETA_RETRY:-0}" = 1 ]; then
    flaky=()
    for ((index = 0; index < ${#failed[@]}; index += 3)); do
        : >"$TEST_LOGS/failed"
        echo "running once more: ${failed[index + 2]}"
        run_program "${failed[@]:index:3}"
        if [ -s "$TEST_LOGS/failed" ]; then status=1; else flaky+=("${failed[index + 2]}"); fi
    done
    [ ${#flaky[@]} -eq 0 ] || printf 'FLAKY: failed, then passed: %s\n' "${flaky[@]}"
elif [ ${#failed[@]} -gt 0 ]; then
    for ((index = 2; index < ${#failed[@]}; index += 3)); do echo "FAILED: ${failed[index]}"; done
    status=1
fi

# Examples in documentation, unless single targets were asked for.
if [[ " ${chosen[*]} " != *" --test "* ]] && [ -z "$TEST_NAMES" ]; then
    "$cargo" test --quiet --doc "${chosen[@]}" || status=1
fi
exit "$status"
