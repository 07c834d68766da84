#!/usr/bin/env bash
# Runs the Python client's tests in a virtual environment of their own, kept between runs.
set -euo pipefail
cd "$(dirname "$0")"

environment="${XDG_CACHE_HOME:-$HOME/.cache}/moneta/python-clients"
if ! cmp -s requirements.txt "$environment/requirements.txt"; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --requirement requirements.txt
    cp requirements.txt "$environment/requirements.txt"
fi
exec env PYTHONDONTWRITEBYTECODE=1 "$environment/bin/python" -m unittest -v test_pymemcache
