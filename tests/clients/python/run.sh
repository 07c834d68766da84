#!/usr/bin/env bash
# Runs the Python client's tests in an environment that `make setup FOR=python` makes.
set -euo pipefail
cd "$(dirname "$0")"

exec env PYTHONDONTWRITEBYTECODE=1 "$(../../../scripts/tool.sh python-clients)" -m unittest -v test_pymemcache
