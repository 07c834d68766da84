#!/bin/sh
# Runs under Miri what can be run there of the code with `unsafe` in it and of what lies around it: needs nightly Rust, takes some
# minutes. Threads that fill room in a page without its lock are what it is for.
set -eu
cd "$(dirname "$0")/.."
rustup component add miri rust-src --toolchain nightly
# Tests read the environment, and the locks make pointers of numbers.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation -Zmiri-permissive-provenance}"
miri() {
    cargo +nightly miri test "$@"
}
miri -p moneta-pages --lib
miri -p moneta-memory --test neighbours
miri -p moneta-memory --test pinned
miri -p moneta-item --lib -- aligned:: item::
