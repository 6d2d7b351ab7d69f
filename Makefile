# Plimsoll: the commands of everyday work. Needs Go and a C compiler.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZ    ?= 10s
PYTHON  ?= python3

export CGO_ENABLED = 1

.PHONY: help build test race demo bench bench-peers lint fuzz clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/plimsoll
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/plimsoll ./cmd/plimsoll

test: ## vet and run every test
	go vet ./...
	go test -count=1 -timeout 9m ./...

race: ## run every package under the race detector
	go test -race -short -count=1 -timeout 30m ./...

demo: build ## train a ResNet under five limits, predicted beside measured, into out/demo
	bin/plimsoll demo --out out/demo

bench: ## run the Go benchmarks
	go test -run '^$$' -bench . -benchmem -timeout 30m ./...

bench-peers: ## time our kernels beside OpenBLAS, oneDNN and PyTorch (see bench/peers/README.md)
	mkdir -p out/peers
	g++ -O2 -o out/peers/onednn bench/peers/src/onednn.cc -ldnnl
	$(CC) -O2 -o out/peers/sgemm bench/peers/src/sgemm.c -lopenblas
	go build -o out/peers/peers ./bench/peers
	out/peers/peers -onednn out/peers/onednn -sgemm out/peers/sgemm -python $(PYTHON) | tee out/peers/peers.md

lint: ## check the format and lint
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt'd: $$unformatted"; exit 1; fi
	go vet ./...
	go run $(LINT) run ./...

fuzz: ## run every fuzz target for a while: make fuzz FUZZ=1m
	@for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -h -o '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | cut -d' ' -f2); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ) $$pkg || exit 1; \
		done; \
	done

clean: ## remove what make builds and writes
	rm -rf bin out
