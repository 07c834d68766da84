#!/usr/bin/env bash
# testssl.sh against a node's listener and its admin port; fails on whatever it rates MEDIUM or worse, but for what the certificate of
# this test lacks. Run by over-tls.sh:
#   MONETA_BIN=target/debug/moneta tests/clients/over-tls.sh tests/clients/testssl.sh
set -euo pipefail
log=$TLS_FOLDER/testssl
"$MONETA_BIN" serve -p 0 --admin 127.0.0.1:0 >"$log.node" 2>&1 &
node=$!
trap 'kill $node 2>/dev/null; wait $node 2>/dev/null || true' EXIT

# address WORDS: what the node's first screen says after them
address() {
    for _ in $(seq 600); do
        sed -nE "s,^$1 +(https://)?([0-9.:]+)( .*)?$,\2,p" "$log.node" | grep . && return
        sleep 0.1
    done
    cat "$log.node" >&2
    return 1
}

for what in "listening on" "admin on"; do
    place=$(address "$what")
    rm -f "$log.json"
    testssl --quiet --color 0 --warnings batch --add-ca "$TLS_CA" --jsonfile "$log.json" --protocols --std --fs --server-defaults \
        --vulnerable "$place" >"$log.out" 2>&1 || true
    python3 - "$log.json" "$what $place" <<'END' || { cat "$log.out"; exit 1; }
import json, sys
# Of the certificate: it lasts 30 days, and nothing tells whether it is revoked.
OWN = {"cert_expirationStatus", "cert_notAfter", "cert_revocation", "cert_validityPeriod"}
found = json.load(open(sys.argv[1]))
rated = [entry for entry in found if entry["severity"] in ("OK", "INFO", "LOW", "MEDIUM", "HIGH", "CRITICAL")]
bad = [entry for entry in found if entry["severity"] in ("MEDIUM", "HIGH", "CRITICAL", "FATAL") and entry["id"] not in OWN]
for entry in bad:
    print(f"{entry['severity']} {entry['id']}: {entry['finding']}")
print(f"testssl.sh, {sys.argv[2]}: {len(rated)} findings, {len(bad)} bad")
# So few of them mean that it could not look.
sys.exit(bool(bad) or len(rated) < 40)
END
done
