# Everything here needs Go; `make test` installs the rest where it can (scripts/test-deps).
# Tools are built at the versions below into .tools/ and stay out of the system.

GOFUMPT_VERSION     := v0.12.0
STATICCHECK_VERSION := v0.8.2
GOLANGCI_VERSION    := v2.15.0

TOOLS       := $(CURDIR)/.tools
GOFUMPT     := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
STATICCHECK := $(TOOLS)/staticcheck-$(STATICCHECK_VERSION)
GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 10s

# Debian keeps servers where only root looks for them.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

.PHONY: help serve build test check fuzz fmt tools clean
.DEFAULT_GOAL := help

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

serve: ## start regiond on 127.0.0.1:8080, in memory, with no configuration
	go run ./cmd/regiond serve

build: ## build bin/regiond
	go build -trimpath -buildvcs=auto -ldflags "-X main.version=$(VERSION)" -o bin/regiond ./cmd/regiond

test: ## install what the tests need, then run them all
	scripts/test-deps
	CGO_ENABLED=1 go test -race -shuffle=on -count=1 -timeout 15m ./...

check: tools ## format, vet, lint, import rules, tidy go.mod
	@out=$$($(GOFUMPT) -l .) && test -z "$$out" || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }
	go vet ./...
	$(STATICCHECK) ./...
	$(GOLANGCI) run
	go mod tidy -diff

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

clean: ## remove what was built here
	rm -rf bin .tools
