#!/usr/bin/env bash
# Runs tests of this folder against nodes that speak TLS and have users:
#   MONETA_BIN=target/debug/moneta tests/clients/over-tls.sh COMMAND...
# The tests get tls.sh for MONETA_BIN, TLS_CA for what they believe, and LOGIN_USER and LOGIN_SECRET to log in by.
set -euo pipefail
export TLS_PROGRAM="${MONETA_BIN:?names the moneta to test}"
MONETA_BIN=$(realpath "$(dirname "$0")/tls.sh")
TLS_FOLDER=$(mktemp -d)
export MONETA_BIN TLS_FOLDER
trap 'rm -rf "$TLS_FOLDER"' EXIT

export TLS_CA=$TLS_FOLDER/ca.pem LOGIN_USER=tests
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc)
{
    openssl req -x509 "${key[@]}" -days 30 -subj /CN=tests -keyout "$TLS_FOLDER/ca.key" -out "$TLS_CA"
    openssl req "${key[@]}" -subj /CN=localhost -keyout "$TLS_FOLDER/node.key" -out "$TLS_FOLDER/node.csr"
    openssl x509 -req -days 30 -in "$TLS_FOLDER/node.csr" -CA "$TLS_CA" -CAkey "$TLS_FOLDER/ca.key" -CAcreateserial \
        -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") -out "$TLS_FOLDER/node.pem"
} 2>"$TLS_FOLDER/openssl" || { cat "$TLS_FOLDER/openssl" >&2; exit 1; }
rights=read,write,flush,list,stats,operate
LOGIN_SECRET=$("$TLS_PROGRAM" user add "$TLS_FOLDER/users.toml" "$LOGIN_USER" --rights "$rights")
export LOGIN_SECRET

echo "over TLS, logged in:"
"$@"
