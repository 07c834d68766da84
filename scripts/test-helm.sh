#!/usr/bin/env bash
# The chart by `helm lint` and `helm template`, by Helm's own packages (tests/helm), and what its containers are started with by the
# program: each set of arguments and variables is taken. scripts/test-helm.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
helm=$(scripts/tool.sh helm)
for values in deploy/helm/moneta/ci/*-values.yaml; do
    "$helm" lint --strict --quiet --values "$values" deploy/helm/moneta
    objects=$("$helm" template cache deploy/helm/moneta --values "$values" | grep -c '^kind:')
    echo "helm template with $(basename "$values"): $objects objects"
done
cd tests/helm
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
MONETA_CHART_ENV=$folder GOTOOLCHAIN=local go test -count=1 ./...
for container in "$folder"/*; do
    read -r -a words <"$container"
    # A pod's name is known when it runs.
    mapfile -t variables < <(tail -n +2 "$container" | sed 's/[$](POD)/pod-0/')
    # As `serve` or `proxy` would take it, without being started.
    env -i "${variables[@]}" "$program" config "${words[@]:1}" >/dev/null
done
echo "what $(find "$folder" -type f | wc -l) kinds of pods are started with is taken by the program"
