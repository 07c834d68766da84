#!/usr/bin/env bash
# A server for the tests of this folder, in place of `moneta serve ARGUMENT...`: a node that speaks TLS, whose clients have to be
# users unless the arguments have a log-in of their own. over-tls.sh sets the environment.
set -euo pipefail
users=(--users "$TLS_FOLDER/users.toml")
for argument in "$@"; do
    if [ "$argument" = -Y ]; then users=(); fi
done
exec "$TLS_PROGRAM" "$@" --tls-cert "$TLS_FOLDER/node.pem" --tls-key "$TLS_FOLDER/node.key" "${users[@]}"
