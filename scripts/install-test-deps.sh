#!/usr/bin/env bash
# Installs what the named set of tests needs from Debian's packages, and nothing that is already there.
#   scripts/install-test-deps.sh test|clients|build|engines
set -euo pipefail

missing=()

# need PROGRAM PACKAGE...: the packages are wanted if the program is not there
need() {
    command -v "$1" >/dev/null 2>&1 || missing+=("${@:2}")
}

# RocksDB is compiled, and its C interface read by libclang, wherever the engine `rocks` is built.
need_engines() {
    need cc build-essential pkg-config
    need c++ build-essential
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null && compgen -G '/usr/lib/llvm-*/lib/clang/*/include' >/dev/null ||
        missing+=(libclang-dev)
}

case "${1:-test}" in
build)
    need cc build-essential pkg-config
    ;;
engines)
    need_engines
    ;;
test)
    need cc build-essential pkg-config
    need memcached memcached
    need memccapable libmemcached-tools
    # The tiers on XFS and ext4 images; their tests say so and end where these cannot be mounted.
    PATH=$PATH:/usr/sbin need mkfs.xfs xfsprogs
    PATH=$PATH:/usr/sbin need mkfs.ext4 e2fsprogs
    need python3 python3 python3-venv
    python3 -c 'import ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)
    ;;
clients)
    need javac default-jdk-headless
    need mvn maven
    need go golang-go
    ;;
*)
    echo "usage: $0 build|engines|test|clients" >&2
    exit 2
    ;;
esac

if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "Please install these packages first: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo -n)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"

# Debian starts a memcached of its own on port 11211, where `make run` wants to listen; the tests start theirs.
if [[ " ${missing[*]} " == *" memcached "* ]] && command -v systemctl >/dev/null 2>&1; then
    "${as_root[@]}" systemctl disable --now memcached >/dev/null 2>&1 || true
fi
