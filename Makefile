# What there is to do here: make help
.DEFAULT_GOAL := help
SHELL := /bin/bash
# Looked up when it is used, since scripts/deps may have to install it first.
export GO = $(shell scripts/deps go 2>/dev/null)
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: deps-build deps-lab deps-native
deps-build deps-lab deps-native:
	@scripts/deps $(@:deps-%=%)

.PHONY: build
build: deps-build ## build bin/rocet
	@$(MAKE) --no-print-directory bin/rocet

# Go's own cache decides what there is to compile.
.PHONY: bin/rocet
bin/rocet:
	$(GO) build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/rocet ./cmd/rocet

.PHONY: test
test: deps-build deps-lab ## everything: lint, unit tests, the native RDMA suite, the lab suite
	@scripts/test

.PHONY: unit
unit: deps-build ## unit tests only
	@scripts/test unit

.PHONY: lint
lint: deps-build ## gofmt, go vet, staticcheck
	@files=$$(find . -name '*.go' -not -path './.*' -print0 | xargs -0 "$$($(GO) env GOROOT)/bin/gofmt" -l) && \
		test -z "$$files" || { echo 'not formatted (gofmt -w):'; echo "$$files"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags lab ./...
	$(GO) run $(STATICCHECK) -tags lab ./...

.PHONY: lab
lab: deps-build ## the lab suite: in the guest, or NATIVE=1 on this kernel; RUN=pattern chooses tests
	@scripts/deps $(if $(NATIVE),native,lab)
	@$(MAKE) --no-print-directory bin/rocet
	@LAB_RUN='$(RUN)' LAB_NATIVE='$(NATIVE)' scripts/test lab

.PHONY: demo
demo: deps-build ## the Linux host reads and writes through Rocet over RDMA: in the guest, or NATIVE=1 on this kernel
ifdef NATIVE
	@scripts/deps native
	@$(MAKE) --no-print-directory bin/rocet
	@scripts/demo native
else
	@scripts/deps lab
	@$(MAKE) --no-print-directory bin/rocet
	@scripts/lab image >/dev/null
	@echo 'demo: starting the guest (a Debian 13 kernel with Soft-RoCE in QEMU)'
	@scripts/lab run --timeout 300 -- scripts/demo
endif

.PHONY: bench
bench: deps-build deps-lab ## Rocet's target and host on this machine; then fio against Rocet and the kernel's target in one guest
	@$(MAKE) --no-print-directory bin/rocet
	@scripts/bench-native $(NATIVE_ARGS)
	@scripts/bench $(ARGS)

.PHONY: install
PREFIX ?= /usr
install: ## put bin/rocet, the systemd unit, manual and examples below PREFIX (/usr) and DESTDIR
	@[ -x bin/rocet ] || { echo 'bin/rocet is not built: make build' >&2; exit 1; }
	install -D -m 755 bin/rocet '$(DESTDIR)$(PREFIX)/bin/rocet'
	install -D -m 755 scripts/vfio-bind '$(DESTDIR)$(PREFIX)/sbin/rocet-vfio-bind'
	install -D -m 644 deploy/rocet.service '$(DESTDIR)$(PREFIX)/lib/systemd/system/rocet.service'
	install -d '$(DESTDIR)/etc/rocet' '$(DESTDIR)$(PREFIX)/share/doc/rocet/examples'
	install -m 644 README.md ARCHITECTURE.md LICENSE docs/*.md '$(DESTDIR)$(PREFIX)/share/doc/rocet'
	install -m 644 deploy/*.yaml deploy/*.json deploy/*.conf '$(DESTDIR)$(PREFIX)/share/doc/rocet/examples'

.PHONY: clean
clean: ## remove what was built (the lab's image stays: rm -r .cache/lab)
	rm -rf bin bench/out
