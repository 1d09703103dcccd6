# syncnode: what a change must pass, and what takes longer.
GO        ?= go
FUZZTIME  ?= 10s
# Packages whose tests link the etcd server: too heavy to build again for the race detector on each change.
HEAVY      = /coord/etcd$$|/relay/etcd$$|/test/cluster$$|/test/compose$$|/cmd/syncnode$$|/internal/embedded$$|/node$$
LIGHT      = $(shell $(GO) list ./... | grep -Ev '$(HEAVY)')
EMBEDDING  = $(shell $(GO) list ./... | grep -E '$(HEAVY)')

.PHONY: help check test lint race race-all fuzz bench cluster compose full build image

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check: lint test race ## what each change must pass

test: ## the README's test command
	$(GO) test ./...

lint: ## vet, gofmt, staticcheck, module hygiene
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) mod verify

race: ## race detector on all that does not embed the etcd server
	@GO="$(GO)" sh internal/ci/test.sh -race -shuffle=on $(LIGHT)

race-all: race ## race detector on everything, what embeds etcd one package at a time
	@GO="$(GO)" sh internal/ci/test.sh -race -p 1 -count=1 -shuffle=on -timeout 30m $(EMBEDDING)

fuzz: ## every fuzz target for FUZZTIME
	@FUZZTIME=$(FUZZTIME) GO="$(GO)" sh internal/ci/fuzz.sh

bench: ## all benchmarks once, to be compared by benchstat
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

cluster: ## all that embeds the etcd server: three-member clusters, faults, containers
	@GO="$(GO)" sh internal/ci/test.sh -p 1 -count=1 -shuffle=on $(EMBEDDING)

compose: ## three nodes in containers, where Docker runs
	$(GO) test -count=1 -v ./test/compose/...

full: ## everything that takes long; its figures go into the release note
	$(MAKE) lint
	$(GO) test -count=1 -shuffle=on ./...
	SYNCNODE_FULL=1 $(GO) test -count=1 -v -timeout 60m -run EveryMinute ./schedule
	$(MAKE) race-all
	$(MAKE) fuzz FUZZTIME=60s
	$(MAKE) bench

build: ## the program, static, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/syncnode ./cmd/syncnode

IMAGE ?= syncnode:local
image: ## the container image IMAGE, from nothing but the static program
	@set -e; ctx=$$(mktemp -d); trap 'rm -rf "$$ctx"' EXIT; \
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o "$$ctx/syncnode" ./cmd/syncnode; \
	mkdir -m 0700 -p "$$ctx/rootfs/data"; mkdir "$$ctx/rootfs/tmp"; chmod 1777 "$$ctx/rootfs/tmp"; \
	docker build -q -t $(IMAGE) -f Dockerfile "$$ctx"
