# syncnode: what a change must pass, and what takes longer.
GO        ?= go
FUZZTIME  ?= 10s
SOAK      ?= 10m
FLEETS    ?= 2000
# Packages whose tests link the etcd server: too heavy to build again for the race detector on each change.
HEAVY      = /coord/etcd$$|/relay/etcd$$|/test/cluster$$|/test/compose$$|/test/docs$$|/cmd/syncnode$$|/internal/embedded$$|/node$$
LIGHT      = $(shell $(GO) list ./... | grep -Ev '$(HEAVY)')
EMBEDDING  = $(shell $(GO) list ./... | grep -E '$(HEAVY)')

# Modules of their own, for what the root module should not depend on.
NESTED     = $(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod))

# Packages with a crash matrix. The tests take a part of it; SYNCNODE_CRASH=full takes every call, kill and loss, and many more seeds.
CRASHING   = ./internal/faultfs ./journal ./journal/index ./checkpoint ./identity ./relay/dir ./session

.PHONY: help check test lint race race-all fuzz decade bench crash fleet soak cluster compose nested full build image

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: lint test race nested ## what each change must pass

test: ## the README's test command
	$(GO) test ./...

lint: ## vet, gofmt, staticcheck, module hygiene
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) mod verify

race: ## race detector on all that does not embed the etcd server
	@SYNCNODE_FULL=1 GO="$(GO)" sh internal/ci/test.sh -race -shuffle=on $(LIGHT)

race-all: race ## race detector on everything, what embeds etcd one package at a time
	@SYNCNODE_FULL=1 GO="$(GO)" sh internal/ci/test.sh -race -p 1 -count=1 -shuffle=on -timeout 30m $(EMBEDDING)

fuzz: ## every fuzz target for FUZZTIME
	@FUZZTIME=$(FUZZTIME) GO="$(GO)" sh internal/ci/fuzz.sh

decade: ## schedules against a walk by minute over ten years of thirty zones
	SYNCNODE_DECADE=1 $(GO) test -count=1 -run '^TestEveryMinuteOfThirtyZones' ./schedule

bench: ## all benchmarks once, to be compared by benchstat
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

crash: ## the whole crash matrix: a crash, a failure and a kill at each call of the golden scenarios
	@out=$$(SYNCNODE_FULL=1 SYNCNODE_CRASH=full $(GO) test -count=1 -timeout 60m -run Matrix -v $(CRASHING) 2>&1); failed=$$?; \
	printf '%s\n' "$$out" | grep -v '^=== '; exit $$failed

fleet: ## FLEETS random fleets that crash, lose, restore and collect, and then heal
	FLEET_RUNS=$(FLEETS) $(GO) test -count=1 -v -timeout 60m -run '^TestAFleetHealsFromAnything$$' ./session

soak: ## endless writes on four anchored devices for SOAK, over a folder, memory and etcd: every store stays flat
	SYNCNODE_FULL=1 SOAK=$(SOAK) $(GO) test -count=1 -v -timeout 60m -run '^TestEndlessWrites' ./session ./relay/etcd

cluster: ## all that embeds the etcd server: three-member clusters, faults, containers
	@SYNCNODE_FULL=1 GO="$(GO)" sh internal/ci/test.sh -p 1 -count=1 -shuffle=on -timeout 30m $(EMBEDDING)

nested: ## vet, tidiness and tests of each nested module
	@set -e; for m in $(NESTED); do echo "== $$m"; (cd $$m; $(GO) mod tidy -diff; $(GO) vet ./...; GO="$(GO)" sh "$(CURDIR)/internal/ci/test.sh" -count=1 ./...); done

compose: ## three nodes in containers, where Docker runs
	SYNCNODE_FULL=1 $(GO) test -count=1 -v ./test/compose/...

full: ## everything that takes long; its figures go into the release note
	$(MAKE) lint
	SYNCNODE_FULL=1 SYNCNODE_DECADE=1 $(GO) test -count=1 -shuffle=on -timeout 60m ./...
	$(MAKE) nested
	$(MAKE) race-all
	$(MAKE) crash
	$(MAKE) fuzz FUZZTIME=60s
	$(MAKE) fleet
	$(MAKE) soak
	$(MAKE) bench

build: ## the program, static, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/syncnode ./cmd/syncnode

IMAGE ?= syncnode:local
image: ## the container image IMAGE, from nothing but the static program
	@set -e; ctx=$$(mktemp -d); trap 'rm -rf "$$ctx"' EXIT; \
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o "$$ctx/syncnode" ./cmd/syncnode; \
	mkdir -m 0700 -p "$$ctx/rootfs/data"; mkdir "$$ctx/rootfs/tmp"; chmod 1777 "$$ctx/rootfs/tmp"; \
	docker build -q -t $(IMAGE) -f Dockerfile "$$ctx"
