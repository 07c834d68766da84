#!/usr/bin/env bash
# Checks the dependencies by deny.toml: licences, bans, sources, and known faults where their list can be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

deny="$(scripts/tool.sh cargo-deny)"
"$deny" --workspace check licenses bans sources

# The list of known faults lives in a separate repository; a machine without a way there must still be able to work.
if "$deny" fetch db >/dev/null 2>&1; then
    "$deny" --workspace check advisories
else
    echo "the advisory database cannot be fetched from here: advisories were not checked" >&2
fi
