#!/usr/bin/env bash
# Starts deploy/compose/compose.yaml with an image, by podman-compose: three zones serve, lose a node, and keep their data over `down`.
# In namespaces and with a storage of its own, which end with it. Needs root; says so and ends where containers cannot be started.
#   scripts/test-compose.sh PROGRAM IMAGE.tar
set -euo pipefail
program=$(realpath "$1") image=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/play.sh" <<'PLAY'
set -eEuo pipefail
program=$1 image=$2 work=$3
. scripts/containers.sh
export MONETA_FLASH_SIZE=160m MONETA_MEMORY=32m
podman load --quiet --input "$image"
podman run --rm --network none moneta:0.1.0 --version || exit 77
podman network create probe >/dev/null && podman run --rm --network probe moneta:0.1.0 --version || exit 77
cd "$work/compose"
compose() { podman-compose "$@" >>"$work/compose.log" 2>&1; }
failed() {
    tail -50 "$work/compose.log" >&2
    for container in $(podman ps -aq); do podman logs "$container" 2>&1 | tail -20 >&2; done
}
trap failed ERR
# until_it COMMAND...: within two minutes
until_it() {
    for _ in $(seq 240); do
        if "$@"; then return; fi
        sleep 0.5
    done
    echo "never: $*" >&2
    return 1
}
ready() { curl --silent --fail --max-time 5 --output /dev/null "http://127.0.0.1:$1/readyz"; }
all_ready() { ready 11291 && ready 11292 && ready 11293; }
is() { [ "$("$program" get "$1" --server "127.0.0.1:$3" 2>/dev/null)" = "$2" ]; }
sets() { "$program" set "$1" "$2" --server "127.0.0.1:$3" 2>/dev/null; }

compose up -d
until_it all_ready
until_it sets kept before 11221
until_it is kept before 11223
podman stop --time 60 compose_node-b_1 >/dev/null
until_it sets without two 11222
until_it is without two 11221
podman start compose_node-b_1 >/dev/null
until_it podman exec compose_node-b_1 /usr/bin/moneta get without --server 127.0.0.1:11211 >/dev/null
# What compose.yaml says about `top`.
podman exec compose_proxy-a_1 /usr/bin/moneta top --once | grep -q node-c
sleep 2
compose down
[ -z "$(podman ps -aq)" ]
compose up -d
until_it all_ready
is kept before 11222
compose down -v
echo 'compose: three zones served, lost a node, and kept their data'
PLAY
cp -r deploy/compose "$work/compose"
status=0
unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private true 2>/dev/null || status=77
[ $status -ne 0 ] ||
    unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private bash "$work/play.sh" "$program" "$image" "$work" || status=$?
if [ $status -eq 77 ]; then
    echo 'test-compose: no container can be started here: compose.yaml was not' | tee -a "${MONETA_NOTES:-/dev/null}"
    exit 0
fi
exit $status
