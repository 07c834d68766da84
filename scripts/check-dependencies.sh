#!/usr/bin/env bash
# Checks the dependencies by deny.toml: licences, bans, sources, and known faults where their list can be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

deny="$(scripts/tool.sh cargo-deny)"
"$deny" --workspace check licenses bans sources

# The list of known faults lives in a separate repository; a machine without a way there must still be able to work. A copy that was
# fetched before is used, and what was not checked is said twice: here, and at the end of .ci/run.
note() {
    {
        echo '########################################################################'
        printf '## NOT CHECKED: %s\n' "$@"
        echo '########################################################################'
    } >&2
    if [ -n "${MONETA_NOTES:-}" ]; then
        printf 'NOT CHECKED: %s\n' "$@" >>"$MONETA_NOTES"
    fi
}
if "$deny" fetch db >/dev/null 2>&1; then
    "$deny" --workspace check advisories
elif compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/.git" >/dev/null; then
    "$deny" --offline --workspace check advisories
    note 'advisories of today: their database cannot be fetched from here, an older copy was used'
elif [ -n "${MONETA_ADVISORIES:-}" ]; then
    echo 'the advisory database cannot be had, and MONETA_ADVISORIES wants it' >&2
    exit 1
else
    note 'known faults of dependencies (advisories): their database cannot be had from here.' \
        'MONETA_ADVISORIES=1 makes that an error.'
fi
