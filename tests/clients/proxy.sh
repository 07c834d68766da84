#!/usr/bin/env bash
# A server for the tests of this folder, in place of `moneta serve ARGUMENT...`: a proxy with these arguments over three zones of a
# node each. through-proxy.sh sets the environment. The nodes are killed when the proxy ends, however it ends.
set -euo pipefail
[ "$1" = serve ]
shift
folder=$(mktemp -d -p "$PROXY_FOLDER")
user=()
if [ "$(id -u)" = 0 ]; then user=(-u root); fi

{
    writer=0
    for zone in a b c; do
        case $PROXY_NODES in
        moneta) node=("$PROXY_PROGRAM" serve --admin off -t 1 --cluster --writer-id "$writer" -s "$folder/$zone") ;;
        memcached) node=(memcached "${user[@]}" -t 1 -s "$folder/$zone") ;;
        esac
        setpriv --pdeathsig KILL "${node[@]}" >&2 &
        writer=$((writer + 1))
        printf '[[replica]]\nzone = "%s"\nnodes = ["0=%s"]\n' "$zone" "$folder/$zone"
    done
} >"$folder/topology.toml"
for zone in a b c; do
    until [ -S "$folder/$zone" ]; do sleep 0.02; done
done
# A node that has just started creates nothing that came from elsewhere.
if [ "$PROXY_NODES" = moneta ]; then sleep 1; fi
# Nothing hangs here, so what is late is a busy machine.
exec "$PROXY_PROGRAM" proxy --topology "$folder/topology.toml" --zone a --node-timeout 20s "$@"
