#!/usr/bin/env bash
# Installs what the named targets of the Makefile need, and nothing that is already there: packages of Debian, and the tools of
# scripts/tool.sh in a cache folder. Nothing else in this repository installs anything.
#   scripts/setup.sh [--check] build|test|monitoring|packages|hour|docs|helm|zones|python|stores|kafka|tls|clients|console|engines|lint...
# With --check nothing is installed; it fails if something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

check=
if [ "${1:-}" = --check ]; then
    check=yes
    shift
fi
packages=()
tools=()

# need PROGRAM PACKAGE...: the packages are wanted if the program is not there
need() {
    command -v "$1" >/dev/null 2>&1 || packages+=("${@:2}")
}

need_tool() {
    scripts/tool.sh --check "$1" || tools+=("$1")
}

for target in "${@:-test}"; do
    case "$target" in
    build)
        need cc build-essential pkg-config
        ;;
    test)
        need cc build-essential pkg-config
        need memcached memcached
        need memccapable libmemcached-tools
        need openssl openssl
        # The ledger's backend, on real members.
        need etcd etcd-server
        need etcdctl etcd-client
        # Has a member of it wait for its disk.
        need strace strace
        # The tiers on XFS and ext4 images; their tests say so and end where these cannot be mounted.
        PATH=$PATH:/usr/sbin need mkfs.xfs xfsprogs
        PATH=$PATH:/usr/sbin need mkfs.ext4 e2fsprogs
        ;;
    monitoring)
        need promtool prometheus
        need openssl openssl
        ;;
    packages)
        need dpkg-deb dpkg
        need objdump binutils
        # What starts the image and the compose file.
        need podman podman crun iptables
        need podman-compose podman-compose
        [ -e /usr/lib/podman/netavark ] || packages+=(netavark aardvark-dns)
        ;;
    hour)
        PATH=$PATH:/usr/sbin need debootstrap debootstrap
        need tmux tmux
        need chromium chromium
        [ -e /usr/share/fonts/truetype/liberation ] || packages+=(fonts-liberation)
        command -v npm >/dev/null 2>&1 || packages+=(nodejs npm)
        need_tool console-browser
        ;;
    docs)
        need_tool mdbook
        ;;
    helm)
        need go golang-go
        need_tool helm
        ;;
    zones)
        PATH=$PATH:/usr/sbin need ip iproute2
        ;;
    python)
        python3 -c 'import ensurepip' >/dev/null 2>&1 || packages+=(python3 python3-venv)
        need openssl openssl
        need_tool python-clients
        ;;
    tls)
        need openssl openssl
        need testssl testssl.sh
        ;;
    clients)
        need javac default-jdk-headless
        need mvn maven
        need go golang-go
        need openssl openssl
        ;;
    console)
        need chromium chromium
        # What pages are written in where a machine has no fonts.
        [ -e /usr/share/fonts/truetype/liberation ] || packages+=(fonts-liberation)
        # Where Node.js came from elsewhere, it has npm with it, and Debian's would not go with it.
        command -v npm >/dev/null 2>&1 || packages+=(nodejs npm)
        need_tool console-browser
        ;;
    stores)
        python3 -c 'import ensurepip' >/dev/null 2>&1 || packages+=(python3 python3-venv)
        need go golang-go
        need_tool moto
        need_tool versitygw
        command -v npm >/dev/null 2>&1 || packages+=(nodejs npm)
        need_tool azurite
        ;;
    kafka)
        need java default-jre-headless
        need mvn maven
        need_tool kafka
        ;;
    engines)
        # RocksDB is compiled, and its C interface read by libclang, wherever the engine `rocks` is built.
        need cc build-essential pkg-config
        need c++ build-essential
        compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null && compgen -G '/usr/lib/llvm-*/lib/clang/*/include' >/dev/null ||
            packages+=(libclang-dev)
        ;;
    lint)
        need shellcheck shellcheck
        python3 -c 'import ensurepip' >/dev/null 2>&1 || packages+=(python3 python3-venv)
        need_tool typos
        need_tool cargo-deny
        ;;
    *)
        echo "usage: $0 [--check] build|test|monitoring|packages|hour|docs|helm|zones|python|stores|kafka|tls|clients|console|engines|lint..." >&2
        exit 2
        ;;
    esac
done

if [ -n "$check" ]; then
    [ ${#packages[@]} -eq 0 ] && [ ${#tools[@]} -eq 0 ]
    exit
fi

if [ ${#packages[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "Please install these packages first: apt-get install ${packages[*]}" >&2
            exit 1
        fi
        as_root=(sudo -n)
    fi
    echo "installing: ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" apt-get install -q -y --no-install-recommends "${packages[@]}"

    # Debian starts a memcached on port 11211, where `make run` wants to listen; the tests start theirs.
    if [[ " ${packages[*]} " == *" memcached "* ]] && command -v systemctl >/dev/null 2>&1; then
        "${as_root[@]}" systemctl disable --now memcached >/dev/null 2>&1 || true
    fi
    # The same for Prometheus.
    if [[ " ${packages[*]} " == *" prometheus "* ]] && command -v systemctl >/dev/null 2>&1; then
        "${as_root[@]}" systemctl disable --now prometheus prometheus-node-exporter >/dev/null 2>&1 || true
    fi
    # The same for etcd, which nothing here uses as it is installed.
    if [[ " ${packages[*]} " == *" etcd-server "* ]] && command -v systemctl >/dev/null 2>&1; then
        "${as_root[@]}" systemctl disable --now etcd >/dev/null 2>&1 || true
    fi
fi
for tool in "${tools[@]}"; do
    echo "installing: $tool"
    scripts/tool.sh --install "$tool"
done
