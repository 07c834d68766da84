#!/usr/bin/env bash
# Tools of fixed versions that Debian does not have, kept in a cache folder from one run to the next.
#   scripts/tool.sh NAME             prints the path of its program
#   scripts/tool.sh --check NAME     fails if it is not there
#   scripts/tool.sh --install NAME   installs it if it is not there
set -euo pipefail
cd "$(dirname "$0")/.."

action=path
case "${1:-}" in
--check | --install)
    action=${1#--}
    shift
    ;;
esac
name=${1:?usage: $0 [--check|--install] cargo-deny|typos|python-clients|console-browser|moto|versitygw|azurite|mdbook|helm|kafka|etcd}
cache="${XDG_CACHE_HOME:-$HOME/.cache}/moneta"

# environment FOLDER REQUIREMENTS: a Python environment with the packages that a file names
environment() {
    rm -rf "$1"
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2"
    cp "$2" "$1/requirements.txt"
}

case "$name" in
cargo-deny)
    version=0.20.2
    folder="$cache/cargo-deny-$version"
    program=$(command -v cargo-deny || echo "$folder/bin/cargo-deny")
    is_there() { [ -x "$program" ]; }
    # Its own build must not use, or fill, the workspace's target folder. It takes some minutes.
    fetch() { env -u CARGO_TARGET_DIR cargo install --quiet --locked --root "$folder" --version "$version" cargo-deny; }
    ;;
typos | python-clients | moto)
    # Built programs from the Python package index: seconds, where `cargo install typos-cli` takes minutes.
    case "$name" in
    typos) requirements=scripts/typos-requirements.txt program="$cache/typos/bin/typos" ;;
    moto) requirements=tests/stores/moto-requirements.txt program="$cache/moto/bin/moto_server" ;;
    python-clients) requirements=tests/clients/python/requirements.txt program="$cache/python-clients/bin/python" ;;
    esac
    is_there() { cmp -s "$requirements" "$cache/$name/requirements.txt"; }
    fetch() { environment "$cache/$name" "$requirements"; }
    ;;
console-browser)
    # What drives the browser of the console's tests: the packages that its lock file names, and no program of theirs is run.
    program="$cache/console-browser/node_modules"
    is_there() { cmp -s tests/console/package-lock.json "$cache/console-browser/installed"; }
    fetch() {
        mkdir -p "$cache/console-browser"
        cp tests/console/package.json tests/console/package-lock.json "$cache/console-browser/"
        (cd "$cache/console-browser" && npm ci --ignore-scripts --no-audit --no-fund --silent)
        cp tests/console/package-lock.json "$cache/console-browser/installed"
    }
    ;;
versitygw)
    # A server that speaks S3 over a directory.
    version=v1.8.0
    program="$cache/versitygw-$version/versitygw"
    is_there() { [ -x "$program" ]; }
    # Its sums are in Go's database of them. A Go that is too old fetches a newer one.
    fetch() { GOTOOLCHAIN=auto GOBIN="${program%/*}" go install "github.com/versity/versitygw/cmd/versitygw@$version"; }
    ;;
azurite)
    # A server that speaks the protocol of Azure's blobs.
    program="$cache/azurite/node_modules/.bin/azurite-blob"
    is_there() { cmp -s tests/stores/azurite/package-lock.json "$cache/azurite/installed"; }
    fetch() {
        mkdir -p "$cache/azurite"
        cp tests/stores/azurite/package.json tests/stores/azurite/package-lock.json "$cache/azurite/"
        (cd "$cache/azurite" && npm ci --ignore-scripts --no-audit --no-fund --silent)
        cp tests/stores/azurite/package-lock.json "$cache/azurite/installed"
    }
    ;;
kafka)
    # A broker and its tools: the jars that Maven resolves.
    program="$cache/kafka/jars"
    is_there() { cmp -s tests/kafka/pom.xml "$cache/kafka/pom.xml"; }
    fetch() {
        rm -rf "$cache/kafka"
        mvn --batch-mode --quiet --file tests/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$program"
        cp tests/kafka/pom.xml "$cache/kafka/"
    }
    ;;
etcd)
    # The server of 3.5, beside which Debian's is older. Its modules replace each other, so it is built by one that names it.
    program="$cache/etcd/etcd"
    is_there() { cmp -s tests/etcd/go.sum "$cache/etcd/go.sum"; }
    fetch() {
        (cd tests/etcd && GOTOOLCHAIN=auto go build -ldflags '-s -w' -o "$program" .)
        cp tests/etcd/go.sum "$cache/etcd/"
    }
    ;;
mdbook)
    version=0.5.2
    folder="$cache/mdbook-$version"
    program=$(command -v mdbook || echo "$folder/bin/mdbook")
    is_there() { [ -x "$program" ]; }
    # Without its server: a third of the crates. It takes minutes.
    fetch() {
        env -u CARGO_TARGET_DIR cargo install --quiet --locked --root "$folder" --version "$version" --no-default-features --features search mdbook
    }
    ;;
helm)
    # The version that tests/helm has, too. Its own build tells it which Kubernetes it is for.
    version=v3.17.3
    program="$cache/helm-$version/helm"
    is_there() { [ -x "$program" ]; }
    fetch() {
        util=helm.sh/helm/v3/pkg/chartutil
        GOTOOLCHAIN=auto GOBIN="${program%/*}" go install -ldflags "-s -w -X $util.k8sVersionMajor=1 -X $util.k8sVersionMinor=32 \
            -X helm.sh/helm/v3/internal/version.version=$version" "helm.sh/helm/v3/cmd/helm@$version"
    }
    ;;
*)
    echo "$0: unknown tool: $name" >&2
    exit 2
    ;;
esac

case "$action" in
check) is_there ;;
install) is_there || fetch ;;
path)
    is_there || { echo "$name is missing: 'make setup' installs it" >&2; exit 1; }
    echo "$program"
    ;;
esac
