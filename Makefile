# Everything here needs Go; `make test` installs the rest where it can (scripts/test-deps).
# Tools are built at the versions below into .tools/ and stay out of the system.

GOFUMPT_VERSION     := v0.12.0
STATICCHECK_VERSION := v0.8.2
GOLANGCI_VERSION    := v2.15.0
NFPM_VERSION        := v2.45.2
CYCLONEDX_VERSION   := v1.10.0
ACTIONLINT_VERSION  := v1.7.12

TOOLS       := $(CURDIR)/.tools
GOFUMPT     := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
STATICCHECK := $(TOOLS)/staticcheck-$(STATICCHECK_VERSION)
GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
NFPM        := $(TOOLS)/nfpm-$(NFPM_VERSION)
CYCLONEDX   := $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION)
ACTIONLINT  := $(TOOLS)/actionlint-$(ACTIONLINT_VERSION)

# middleware is a module of its own and has no dependencies; the Go example imports it
# as users do.
MODULES := . middleware examples/go
# Tests that need modules the program does without, such as Prometheus's parser, Helm and
# envoyproxy/ratelimit.
FOREIGN := test/foreign test/ratelimit test/helm

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 10s
SIMTIME  ?= 2m
HOURS    ?= 10000

# Tests that take over the machine are built only when asked for, and checked always.
TAGS := chaos,chaoslong,compose

# Debian installs servers in root's PATH.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

.PHONY: help serve build release image man test race foreign screenshot check lines paths mutants chaos chaos-long sim sim-strict accuracy bench compare fuzz fmt tools clean compose-keys compose-images compose-test compose-clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

lines: ## print how large the code is
	scripts/lines

paths: ## print which files one check goes through, and one delta
	go run -C test/paths .

serve: ## start regiond on 127.0.0.1:8080, in memory, with no configuration
	go run ./cmd/regiond serve

# grpcnotrace leaves out a page of grpc-go that nothing here shows and whose templates call methods by name: with it
# the linker has to keep every method of every type, 15 MB of them. scripts/release and the Dockerfile do the same.
build: ## build bin/regiond
	go build -trimpath -buildvcs=auto -tags grpcnotrace -ldflags "-X main.version=$(VERSION)" -o bin/regiond ./cmd/regiond

release: $(NFPM) $(CYCLONEDX) ## write archives, packages, bills of materials and checksums of VERSION into bin/release
	NFPM=$(NFPM) CYCLONEDX=$(CYCLONEDX) scripts/release "$(VERSION)" bin/release

image: ## build the image regiond:VERSION; needs a Docker engine
	docker build --build-arg VERSION="$(VERSION)" --build-arg COMMIT="$$(git rev-parse HEAD)" \
		--build-arg DATE="$$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)" \
		$(foreach v,GOPROXY GOSUMDB GONOSUMDB GOFLAGS,--build-arg $(v)) -t "regiond:$(VERSION)" .

man: ## write man pages and completions into bin/man
	mkdir -p bin/man
	go test -count=1 -run 'TestManPages$$' ./cmd/regiond -man $(CURDIR)/bin/man

# Without the race detector, and so with one build of everything: with it all dependencies would be compiled twice, and
# tests take several times the processor time. make race runs the same tests of the program under it. make check vets, so
# that need not be done twice; nothing here needs a debugger's data, nor do the programs that tests build. Many tests wait
# for servers, so three packages run at a time on two processors.
# A compiler that collects garbage less often takes a fifth less processor time; the tests themselves have the default.
TESTFLAGS := -p 3 -vet=off -shuffle=on -count=1 -timeout 15m -exec 'env -u GOGC'
test race: export GOFLAGS := $(GOFLAGS) -ldflags=-w
test race: export GOGC := 400
# A gateway that lacks processor time for as long as its timeout fails open (docs/gateways.md). So what load on a
# gateway does is tested where nothing else runs: by make foreign.
ALONE := ^TestUnderLoad
# How much of strict limits of few units loans use is a figure of 20 worlds each, which make sim plays.
FEW   := ^TestFew$$
test: ## install what the tests need, then run the tests of the program
	scripts/test-deps
	@failed=; for m in $(MODULES); do \
		echo "go test -C $$m $(TESTFLAGS) ./..."; go test -C $$m $(TESTFLAGS) -skip '$(ALONE)|$(FEW)' ./... || failed=yes; \
	done; test -z "$$failed"

# What judges the program in test/ does not need the race detector; the longest worlds take four times as long with it,
# and make chaos-long runs them so.
LONG := ^TestLongWorld
race: ## run the tests of the program's packages under the race detector
	scripts/test-deps
	@failed=; for m in $(MODULES); do echo "go test -C $$m -race $(TESTFLAGS) (all but test/)"; \
		CGO_ENABLED=1 go test -C $$m -race $(TESTFLAGS) -skip '$(LONG)|$(ALONE)' $$(go list -C $$m ./... | grep -v '^github.com/regiond/regiond/test/') || failed=yes; \
	done; test -z "$$failed"

foreign: $(NFPM) $(CYCLONEDX) ## check deploy/, docker-compose.multi.yml, packages and rate limit files with other programs, and gateways under load
	scripts/test-deps foreign
	scripts/package-image
	CGO_ENABLED=1 go test -race $(TESTFLAGS) -p 1 -run '$(ALONE)' ./examples/...
	@set -e; for m in $(FOREIGN); do echo "go test -C $$m ./..."; go test -C $$m -count=1 -timeout 15m ./...; done

screenshot: ## take docs/page.png and page-dark.png, the pictures of the page; needs chromium
	scripts/test-deps
	SCREENSHOT=$(CURDIR)/docs go test -C test/foreign -count=1 -run 'TestScreenshot$$' -v .

mutants: ## change the code in small ways and count what no test notices, for half an hour; ARGS="-seed 7 -only quota -for 3m"
	scripts/test-deps
	go run ./test/mutants $(ARGS)

check: tools $(ACTIONLINT) ## format, vet, lint, import rules, tidy go.mod, THIRD_PARTY.md, workflows
	@out=$$($(GOFUMPT) -l .) && test -z "$$out" || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }
	@set -e; for m in $(MODULES) $(FOREIGN) test/paths; do cd $(CURDIR)/$$m; echo "check $$m"; \
		go vet -tags $(TAGS) ./...; \
		$(STATICCHECK) -tags $(TAGS) ./...; \
		$(GOLANGCI) run --build-tags $(TAGS) --config $(CURDIR)/.golangci.yml; \
		go mod tidy -diff; \
	done
	scripts/third-party -check
	$(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml

# Figures of every scenario, and a report of each that failed.
CHAOSREPORT ?= $(CURDIR)/bin/chaos
# How long the random nemesis of chaos-long goes on.
CHAOSTIME ?= 10m

chaos: ## three regions under faults, in real processes; needs Linux, root and /dev/net/tun
	scripts/test-deps
	mkdir -p "$(CHAOSREPORT)" && rm -f "$(CHAOSREPORT)"/Test*
	CHAOSREPORT="$(CHAOSREPORT)" go test -tags chaos -p 1 -count=1 -timeout 35m -v ./test/chaos/...; \
		failed=$$?; go run ./test/chaos/table "$(CHAOSREPORT)" || failed=1; exit $$failed

chaos-long: ## every fault at three durations, then faults at random for CHAOSTIME (10m)
	scripts/test-deps
	CGO_ENABLED=1 go test -race $(TESTFLAGS) -run '$(LONG)' ./internal/daemon
	mkdir -p "$(CHAOSREPORT)" && rm -f "$(CHAOSREPORT)"/Test*
	CHAOSLONG=1 CHAOSTIME=$(CHAOSTIME) CHAOSREPORT="$(CHAOSREPORT)" \
		go test -tags chaos,chaoslong -p 1 -count=1 -timeout 0 -v ./test/chaos/...; \
		failed=$$?; go run ./test/chaos/table "$(CHAOSREPORT)" || failed=1; exit $$failed

bench: ## measure what the goals are stated for, in about eight minutes; needs redis-server
	go run ./test/bench

compare: ## measure this tree beside an older binary of regiond: make compare OLD=/tmp/regiond
	go run ./test/bench -old "$(OLD)"

sim: ## run the corpus of simulated worlds, then random ones or from SIMFROM on, for SIMTIME (2m); or the world of SEED
	$(if $(SEED),,go test -count=1 -timeout 15m -run '$(FEW)' ./test/loansim)
	go run ./test/sim/cmd/sim -time $(SIMTIME) $(if $(SIMFROM),-from $(SIMFROM)) $(if $(SEED),-seed $(SEED))

sim-strict: ## play HOURS=10000 region-hours of limits with a bound; after an interruption go on with SIMFROM, its first seed and the worlds that it ran
	go run ./test/sim/cmd/sim -strict -lasts 10m -hours $(HOURS) -from $(or $(SIMFROM),1)

accuracy: ## measure how exact global limits are and write docs/accuracy.md's figures, in about half an hour
	go run ./test/sim/cmd/accuracy -docs docs

fuzz: ## run each fuzz target for FUZZTIME (10s)
	FUZZTIME=$(FUZZTIME) scripts/fuzz

fmt: tools ## format all Go files
	$(GOLANGCI) fmt

tools: $(GOFUMPT) $(STATICCHECK) $(GOLANGCI) ## build the tools that check and fmt use

$(GOFUMPT):
	scripts/install-tool $@ mvdan.cc/gofumpt@$(GOFUMPT_VERSION)

$(STATICCHECK):
	scripts/install-tool $@ honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

$(GOLANGCI):
	scripts/install-tool $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(NFPM):
	scripts/install-tool $@ github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)

$(CYCLONEDX):
	scripts/install-tool $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)

$(ACTIONLINT):
	scripts/install-tool $@ github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)

clean: ## remove what was built here
	rm -rf bin .tools

compose-keys: ## make the secrets of docker-compose.multi.yml in deploy/secrets, once
	scripts/compose-keys

compose-images: ## pull the images of docker-compose.multi.yml, or build stand-ins where no registry answers
	scripts/compose-images

compose-test: compose-images ## three regions in containers: one limit, networks, rights; needs a Docker engine
	go test -tags compose -count=1 -timeout 20m -v ./test/compose

compose-clean: ## remove stand-ins, regiond's images, and what an interrupted compose-test left
	scripts/compose-images clean
