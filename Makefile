# What a developer runs, and CI runs the same: `make lint test test-zones test-engines test-clients`.

CARGO ?= cargo
FUZZ_SECONDS ?= 60
# How often `make crash` repeats each test of the crash model.
ZONES ?= short
CRASH_ROUNDS ?= 50
# How long each attack of `make hostile` goes on.
HOSTILE_SECONDS ?= 4
# The build that `make test-mixed` puts beside this one.
OLD ?= 9d43525
# The build whose control plane, nodes and proxies `make test-mixed-control` puts beside those of this one.
OLD_CONTROL ?= 273a893a
# Where `make run` keeps items, and how much of it.
FLASH ?= data:1g
# What `make setup` installs what is needed for: build, test, python, engines, lint, clients, console.
FOR ?= test python engines lint

# Where `make install` puts the program: DESTDIR PREFIX/bin.
PREFIX ?= /usr/local
DESTDIR ?=
# Where `make deb`, `make image` and `make release` put what they make.
DIST ?= dist
COMMIT = $(shell git describe --always --dirty --exclude '*')

# Where cargo puts what it builds; the tests of real clients take the server from there.
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),$(CURDIR)/target)
SERVER := $(TARGET)/debug/moneta
# What `make run` and `make cluster` build, by a profile that compiles in a third of the time.
QUICK := $(TARGET)/quick/moneta
# What `make test` builds and tests: all but RocksDB, which alone compiles for 20 minutes on two cores, and the micro-benchmarks.
# Not all features: `shuttle` changes what is tested.
TESTED := --workspace --exclude moneta-rocks --exclude moneta-microbench --features moneta/lmdb,moneta/parquet,moneta/age,moneta/stores,moneta/etcd,moneta/kafka
# The same with RocksDB. The same packages and features in each command, so that RocksDB is compiled once.
ENGINES := -p moneta-rocks -p moneta -p moneta-conformance --features moneta/rocks,moneta/lmdb,moneta-conformance/engines
# What packages have beside the default features: heavy, and so not in `make run`.
PACKAGED := stores,parquet,age,etcd,kafka
# What clippy and the documentation cover: RocksDB's crate too, for which RocksDB is compiled.
LINTED ?= --workspace --all-features
# What the engines change: the tests of RocksDB's crate, those of options, and the stacks with an engine on a library. The rest
# `make test` has run.
ENGINE_TESTS := $(patsubst crates/rocks/tests/%.rs,--test %,$(wildcard crates/rocks/tests/*.rs)) \
	--test precedence --test refusals --test documents
STACK_TESTS := --test differential --test memccapable --test linearizability

SCRIPTS := .ci/run $(wildcard scripts/*.sh) fuzz/run.sh deploy/split/run.sh deploy/regions/run.sh tests/clients/python/run.sh $(wildcard tests/clients/*.sh) tests/console/run.sh

# $(call needs,FOR): `make setup`, where something is missing.
needs = @scripts/setup.sh --check $(1) || $(MAKE) --no-print-directory setup FOR="$(1)"

.PHONY: help setup run cluster install release-build deb image release test-packages first-hour docs test-monitoring test-helm build test test-engines test-zones test-regions measure-regions measure-bulk measure-repair test-control test-etcd measure-fleet test-warm hostile test-mixed test-mixed-control test-stores test-kafka bulk-days test-python test-clients test-tls test-console console-pages test-go test-java lint fuzz crash mutants miri bench microbench

help:
	@echo 'make setup         install what tests and lint need; FOR=clients for Go and Java. The others call it where something is missing'
	@echo 'make run           start a node on 127.0.0.1:11211, with $(FLASH) for its SSD tier'
	@echo 'make cluster       start three zones of two nodes and a proxy each and a control plane on this machine, and say what to try; TLS=1: over TLS; REGIONS=2: two such regions with relays'
	@echo 'make install       the full release build, as moneta in $(DESTDIR)$(PREFIX)/bin; PREFIX and DESTDIR choose where'
	@echo 'make deb           a Debian package in $(DIST); make image an OCI image; make release both, with checksums and an SBOM'
	@echo 'make test          everything but RocksDB and the Go and Java clients; TEST_JOBS (2) test programs at a time'
	@echo 'make test-engines  the engines on RocksDB and LMDB in a node; compiles RocksDB, 20 minutes on two cores'
	@echo 'make test-zones    a cluster in network namespaces whose nodes and zones fail; a minute'
	@echo 'make test-control  a control plane on etcd whose leaders and members are killed and stopped; minutes'
	@echo 'make test-etcd     the same on etcd 3.5, which it builds with Go; minutes'
	@echo 'make measure-fleet what clients see while a replica is added, a zone drained, a node replaced, a property rolled out; three minutes'
	@echo 'make test-regions  two regions whose relays, copies and links fail; some minutes'
	@echo 'make test-warm     replicas filled by jobs whose workers, sources and control plane are killed; a million rows; some minutes'
	@echo 'make hostile       attackers beside good clients of a cluster in network namespaces; a minute'
	@echo 'make test-mixed    a cluster of this build and of an older one (OLD), which it builds'
	@echo 'make test-mixed-control  a control plane, nodes and proxies of this build and of an older one (OLD_CONTROL)'
	@echo 'make test-stores   dumps, jobs, backups and rows in object stores: moto, versitygw and Azurite, also over a bad line; four minutes'
	@echo 'make test-kafka    regions with a real Kafka between them, whose broker and relays are killed and stopped; two minutes'
	@echo 'make bulk-days     dump, populate, source and target are killed in turns, for five minutes'
	@echo 'make test-clients  real clients in Go and Java'
	@echo 'make test-console  the console in a browser: every page, by keyboard, against axe; half a minute. SHOTS=1 writes docs/console/*.png'
	@echo 'make console-pages how long its pages take with 18,000 instances'
	@echo 'make test-tls      floods of handshakes, ten thousand clients at once, testssl.sh against a node; two minutes'
	@echo 'make lint          formatting, clippy, fuzz targets, documentation, links, scripts, spelling, circles of files, dependencies'
	@echo 'make test-monitoring  dashboard and alerts against a real Prometheus; a minute'
	@echo 'make test-helm     the chart, rendered and decoded; compiles Kubernetes types at first'
	@echo 'make test-packages    the Debian package, the image and the compose file, installed and run; two minutes'
	@echo 'make first-hour    plays docs/first-hour.md in a fresh Debian and puts in what it sees; a minute, at first three'
	@echo 'make docs          the manual as a site, in $(DIST)/manual; compiles mdbook at first, minutes'
	@echo 'make fuzz          fuzz every target of fuzz/README.md for FUZZ_SECONDS ($(FUZZ_SECONDS)); needs nightly Rust'
	@echo 'make crash         run the crash model CRASH_ROUNDS ($(CRASH_ROUNDS)) times; MONETA_SEED=N begins with that seed'
	@echo 'make mutants       guards of clusters, taken out one by one: a test fails without each; some minutes'
	@echo 'make miri          the code with unsafe in it under Miri; needs nightly Rust'
	@echo 'make bench         how to compare with memcached'
	@echo 'make microbench    the decoder, the index, RAM and SSD by themselves; FILTER chooses'

setup:
	scripts/setup.sh $(FOR)

run:
	$(call needs,build)
	@mkdir -p data
	$(CARGO) build --profile quick -p moneta
	$(QUICK) serve --flash $(FLASH) --batch-port 11212

cluster:
	$(call needs,build)
	$(CARGO) build --profile quick -p moneta
	$(QUICK) cluster up $(if $(TLS),--tls) $(if $(REGIONS),--regions $(REGIONS) --dir moneta-regions)

# The full release build, which names its commit.
release-build:
	$(call needs,build)
	MONETA_COMMIT=$(COMMIT) $(CARGO) build --release -p moneta --features $(PACKAGED)

install: release-build
	install -D -m 755 $(TARGET)/release/moneta $(DESTDIR)$(PREFIX)/bin/moneta

# PROGRAM: one that is built already.
deb: $(if $(PROGRAM),,release-build)
	scripts/deb.sh $(or $(PROGRAM),$(TARGET)/release/moneta) $(DIST)

image: $(if $(PROGRAM),,release-build)
	@mkdir -p $(DIST)
	scripts/image.py $(or $(PROGRAM),$(TARGET)/release/moneta) $(DIST)/moneta-image.tar

# All that a release has: the program, the package, the image, what they are built of, and checksums over all.
release: deb image
	tar -C $(dir $(or $(PROGRAM),$(TARGET)/release/moneta)) --owner=0 --group=0 -czf $(DIST)/moneta-$(shell uname -m)-linux.tar.gz moneta
	scripts/sbom.py $(PACKAGED) > $(DIST)/moneta.cdx.json
	cd $(DIST) && sha256sum *.deb *.tar *.tar.gz *.json > SHA256SUMS

# The package: installed, upgraded while a node serves, rolled back and purged, in a copy of this machine's files; the image; and
# the compose file, by podman-compose.
test-packages: build
	$(call needs,test packages)
	scripts/test-packages.sh $(SERVER)
	scripts/sbom.py --check $(PACKAGED)

# The manual as one site.
docs:
	$(call needs,docs)
	scripts/docs.py $(DIST)/manual

# What docs/first-hour.md tells to do, done in a fresh Debian, and what is seen put into the page.
first-hour: build
	$(call needs,test packages hour)
	scripts/first-hour.py $(SERVER)

# The chart: linted and rendered by Helm with several sets of values, each object decoded strictly.
test-helm: build
	$(call needs,helm)
	scripts/test-helm.sh $(SERVER)

# Panels and rules of deploy/monitoring against a real Prometheus that scrapes nodes and a proxy under load.
test-monitoring: build
	$(call needs,test monitoring)
	MONETA_BIN=$(SERVER) scripts/test-monitoring.py

# The same packages, profile and features as the tests, so that nothing is built twice.
build:
	$(call needs,test)
	$(CARGO) build --all-targets $(TESTED)

test: build
	scripts/cargo-test.sh $(TESTED)
	scripts/cargo-test.sh -p moneta-memory --features shuttle --test shuttle
	$(MAKE) test-python

test-engines:
	$(call needs,test engines)
	scripts/cargo-test.sh $(ENGINES) $(ENGINE_TESTS)
	scripts/cargo-test.sh $(ENGINES) $(STACK_TESTS) -- rocks lmdb

# Two regions whose relays, copies and links fail for minutes; and the script that shows two of them.
test-regions: build
	deploy/regions/run.sh $(SERVER)
	scripts/cargo-test.sh $(TESTED) --test regions -- --ignored for_minutes for_an_hour a_write_that

# What a write takes to another region over 80 ms, on a machine that does nothing else. REGIONS_SECONDS, REGIONS_CUT.
measure-regions:
	$(CARGO) test --release -p moneta --test regions -- --ignored --nocapture a_write_takes

# Repair of a million keys, of which a thousand differ, and a tenth is evicted on each side. REPAIR_KEYS.
measure-repair:
	$(CARGO) test --release -p moneta --test regions -- --ignored --nocapture among_a_million
# What dumps and copies cost. WHAT: ssd dead memcached ring; ITEMS; PROGRAM: one that is built already.
measure-bulk: $(if $(PROGRAM),,release-build)
	scripts/measure-bulk.py $(or $(PROGRAM),$(TARGET)/release/moneta) $(WHAT) --items $(or $(ITEMS),1000000)

# A cluster in network namespaces whose nodes and zones fail. ZONES=long: four minutes; PLOT=FILE: a plot by second, as SVG.
test-zones: build
	$(call needs,test zones)
	MONETA_ZONES=$(ZONES) $(if $(PLOT),MONETA_ZONES_PLOT=$(abspath $(PLOT))) PATH=$$PATH:/usr/sbin $(CARGO) test $(TESTED) --test zones -- --ignored --nocapture a_cluster_loses

# What clients see while an operator works on a cluster, as a table. PLOT=FILE: a plot by second, as SVG.
measure-fleet: build
	$(call needs,test)
	MONETA_BIN=$(SERVER) $(if $(PLOT),MONETA_FLEET_PLOT=$(abspath $(PLOT))) scripts/measure-fleet.py

# Long days of the control plane: etcd that loses its leaders, members that are stopped and killed, many instances silent at once.
test-control: build
	$(call needs,test)
	$(CARGO) test $(TESTED) --test control -- --ignored --nocapture --test-threads 1

# The ledger and the control plane on etcd 3.5, which Go builds: minutes at first.
test-etcd: build
	scripts/tool.sh --install etcd
	PATH=$$(dirname "$$(scripts/tool.sh etcd)"):$$PATH $(CARGO) test $(TESTED) --test ledger --test control -- etcd:: members:: forgetful:: clients::
	PATH=$$(dirname "$$(scripts/tool.sh etcd)"):$$PATH $(CARGO) test $(TESTED) --test control -- --ignored --test-threads 1 etcd leaders keeper stuck

# Replicas that jobs fill while their parts fail, a million rows that are loaded by commands that are killed, and jobs beside clients whose
# gets become slow.
test-warm: build
	$(CARGO) test $(TESTED) --test warm --test load --test moving -- --ignored --skip object_store --skip the_same_for_long

# Attackers beside good clients of the same proxies; HOSTILE_SECONDS for each attack.
hostile: build
	$(call needs,test zones)
	MONETA_HOSTILE_SECONDS=$(HOSTILE_SECONDS) PATH=$$PATH:/usr/sbin $(CARGO) test $(TESTED) --test zones -- --ignored --nocapture what_one_of_them

# A cluster with processes of an older build among its own. OLD: the commit that it is built from.
test-mixed: build
	MONETA_OLD_BIN="$$(scripts/old-build.sh $(OLD))" $(CARGO) test $(TESTED) --test mixed -- --ignored --nocapture --skip control_planes

# A control plane, nodes and proxies, each of this build and of an older one. OLD_CONTROL: the commit that that is built from.
test-mixed-control: build
	MONETA_OLD_BIN="$$(scripts/old-build.sh $(OLD_CONTROL))" $(CARGO) test $(TESTED) --test mixed -- --ignored --nocapture control_planes

# Dumps in object stores: a model of S3 and a real server, which scripts/tool.sh installs.
test-stores: build
	$(call needs,test stores)
	MONETA_TEST_MOTO="$$(scripts/tool.sh moto)" MONETA_TEST_VERSITYGW="$$(scripts/tool.sh versitygw)" MONETA_TEST_AZURITE="$$(scripts/tool.sh azurite)" $(CARGO) test $(TESTED) --test stores --test warm -- --ignored --skip a_replica_is_filled_while --skip a_replica_is_filled_by

# Regions with a topic of Kafka between them; scripts/tool.sh collects the jars.
test-kafka: build
	$(call needs,test kafka)
	MONETA_TEST_KAFKA="$$(scripts/tool.sh kafka)" $(CARGO) test $(TESTED) --test kafka -- --ignored

# Who takes part in moving items by files is killed at random, for five minutes.
bulk-days: build
	$(CARGO) test $(TESTED) --test moving -- --ignored --nocapture the_same_for_long

test-python: build
	$(call needs,python)
	MONETA_BIN=$(SERVER) tests/clients/python/run.sh
	MONETA_BIN=$(SERVER) tests/clients/through-proxy.sh tests/clients/python/run.sh
	MONETA_BIN=$(SERVER) tests/clients/over-tls.sh tests/clients/python/run.sh

# testssl.sh against what a node speaks; floods of handshakes, and ten thousand clients that come back at once.
test-tls: build
	$(call needs,tls)
	$(CARGO) test $(TESTED) --test tls -- --ignored --nocapture --test-threads 1
	MONETA_BIN=$(SERVER) tests/clients/over-tls.sh tests/clients/testssl.sh

test-clients: test-go test-java

# The console of a cluster in a browser. SHOTS=1: what it looks like, for docs/console.md.
test-console: build
	$(call needs,console)
	MONETA_BIN=$(SERVER) $(if $(SHOTS),MONETA_SHOTS=$(CURDIR)/docs/console) tests/console/run.sh

# Milliseconds and KiB of each page with 18,000 instances, by an optimised build.
console-pages:
	$(call needs,build)
	$(CARGO) test --profile quick -p moneta-console --test pages -- --ignored --nocapture pages_of_eighteen_thousand

test-go: build
	$(call needs,clients)
	cd tests/clients/go && GOTOOLCHAIN=local MONETA_BIN=$(SERVER) go test -count=1 ./...
	cd tests/clients/go && GOTOOLCHAIN=local MONETA_BIN=$(SERVER) ../through-proxy.sh go test -count=1 ./...
	cd tests/clients/go && GOTOOLCHAIN=local MONETA_BIN=$(SERVER) ../over-tls.sh go test -count=1 ./...

test-java: build
	$(call needs,clients)
	cd tests/clients/java && MONETA_BIN=$(SERVER) mvn --batch-mode --no-transfer-progress test
	cd tests/clients/java && MONETA_BIN=$(SERVER) ../through-proxy.sh mvn --batch-mode --no-transfer-progress test
	cd tests/clients/java && MONETA_BIN=$(SERVER) ../over-tls.sh mvn --batch-mode --no-transfer-progress test
	cd tests/clients/eureka && MONETA_BIN=$(SERVER) mvn --batch-mode --no-transfer-progress test

# All features: the engines on RocksDB and LMDB, too. LINTED leaves some out. The fuzz targets are type-checked by stable Rust; they
# are not linked, and any file in the place of libFuzzer saves compiling its C++.
lint:
	$(call needs,engines lint)
	$(CARGO) fmt --all --check
	rustfmt --check --edition 2024 scripts/circles.rs
	scripts/check-circles.sh
	scripts/check-links.py
	shellcheck $(SCRIPTS)
	"$$(scripts/tool.sh typos)"
	$(CARGO) clippy $(LINTED) --all-targets -- -D warnings
	CUSTOM_LIBFUZZER_PATH=$(CURDIR)/fuzz/Cargo.toml CARGO_TARGET_DIR=$(TARGET) $(CARGO) check --manifest-path fuzz/Cargo.toml
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' $(CARGO) doc $(LINTED) --no-deps --document-private-items
	scripts/check-dependencies.sh

fuzz:
	fuzz/run.sh $(FUZZ_SECONDS)

crash:
	MONETA_CRASH_ROUNDS=$(CRASH_ROUNDS) $(CARGO) test -p moneta-flash --test breaking crash:: -- --nocapture

# Each guard of crates/cluster/tests/mutants.toml taken out: some test has to fail.
mutants:
	CARGO=$(CARGO) scripts/mutants.py crates/cluster

miri:
	scripts/miri.sh

bench:
	@echo 'docs/benchmarks.md has the commands; a first one:'
	@echo '  cargo run --release -p moneta -- bench compare --help'

microbench:
	$(call needs,build)
	$(CARGO) bench -p moneta-microbench --bench parts -- $(FILTER)
