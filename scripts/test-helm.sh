#!/usr/bin/env bash
# The chart by Helm's own packages (tests/helm), and what its containers are started with by the program: each set of arguments and
# variables is taken. scripts/test-helm.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/../tests/helm"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
MONETA_CHART_ENV=$folder GOTOOLCHAIN=local go test -count=1 ./...
for container in "$folder"/*; do
    read -r command flags <"$container"
    # A pod's name is known when it runs.
    mapfile -t variables < <(tail -n +2 "$container" | sed 's/\$(POD)/pod-0/')
    case "$command" in
    # shellcheck disable=SC2086 # flags are words
    serve) env -i "${variables[@]}" "$program" config $flags >/dev/null ;;
    proxy) env -i "${variables[@]}" "$program" config >/dev/null ;;
    *) echo "$container: $command" >&2 && exit 1 ;;
    esac
done
echo "what $(find "$folder" -type f | wc -l) kinds of pods are started with is taken by the program"
