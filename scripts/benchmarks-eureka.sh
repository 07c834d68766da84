#!/usr/bin/env bash
# Eureka's server, as Spring Cloud packs it, and the control plane: the same fleet of clients of Eureka, one after the other on one core.
#   scripts/benchmarks-eureka.sh [options of `campaigns eureka`]...
# Needs Maven and Java 17. MONETA_BIN, CAMPAIGNS_BIN: programs that are built already. JAVA_OPTIONS: of the other server.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
if [ -z "${MONETA_BIN:-}" ]; then
    cargo build --release -p moneta
fi
if [ -z "${CAMPAIGNS_BIN:-}" ]; then
    cargo build --release -p moneta-campaigns
fi
moneta=${MONETA_BIN:-$target/release/moneta}
campaigns=${CAMPAIGNS_BIN:-$target/release/campaigns}

built="$target/eureka-server"
mvn --batch-mode --no-transfer-progress --quiet --file scripts/eureka-server/pom.xml "-Dbuild.folder=$built" package
spring="java ${JAVA_OPTIONS:--Xmx512m} -jar $built/eureka-server-1.jar --server.port={port}"
# By itself: it asks no other Eureka server.
spring+=" --eureka.client.register-with-eureka=false --eureka.client.fetch-registry=false"

"$campaigns" eureka --server "$spring" \
    --server "$moneta control --data {folder} --listen 127.0.0.1:0 --eureka 127.0.0.1:{port} --renew-every 30" \
    --server-cpus 0 --client-cpus 1 "$@"
