#!/usr/bin/env bash
# Fails if files of a crate import each other in a circle that scripts/circles.txt does not list, or if that list names one that is
# no more.
#   scripts/check-circles.sh           compares
#   scripts/check-circles.sh --why     shows the circles and the names that tie their files together
#   scripts/check-circles.sh --write   writes the list anew
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}"
program="$target/circles"
if [ ! -x "$program" ] || [ scripts/circles.rs -nt "$program" ]; then
    mkdir -p "$target"
    rustc --edition 2024 -O -D warnings -o "$program" scripts/circles.rs
fi

case "${1:-}" in
--why)
    "$program" . --why
    ;;
--write)
    "$program" . >scripts/circles.txt
    ;;
*)
    if ! "$program" . | diff -U0 scripts/circles.txt - | sed -n '/^[-+]crates/p' >&2; then
        cat >&2 <<'END'
The files that import each other in circles are not those of scripts/circles.txt: one with + is new, one with - is in none any more.
Move what two files need into a file below both; `scripts/check-circles.sh --why` names it. If there are fewer now: --write.
END
        exit 1
    fi
    ;;
esac
