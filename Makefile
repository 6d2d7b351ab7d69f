# Plimsoll: the commands of everyday work. Needs Go and a C compiler.

LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZ    ?= 10s
PYTHON  ?= python3

# The CUDA backend is built in where it can run. It needs no NVIDIA file: the flags give gorgonia.org/cu our own cuda.h
# and an empty libcuda.a (see runtime/cuda/driver). TAGS= leaves the backend out.
PLATFORM := $(shell go env GOOS)/$(shell go env GOARCH)
TAGS     := $(if $(filter linux/amd64,$(PLATFORM)),cuda)
# HiGHS, which checkmate, milp and ilp need, is linked where a C++ compiler and zlib's development files are.
HIGHS    := $(shell printf '\043include <zlib.h>\nint main() {}' | $(CXX) -x c++ - -lz -o /dev/null 2>/dev/null && echo highs)
CUDA     := $(CURDIR)/runtime/cuda
EMULATOR := $(CURDIR)/out/emulator
STRICT   := $(CURDIR)/out/emulator-strict
MPI      := $(CURDIR)/out/mpi/lib/libmpi_abi.so.1
NCCL     := $(CURDIR)/out/nccl/nvidia/nccl/lib/libnccl.so.2
TORCH    := $(CURDIR)/out/torch/bin/python
WITH_TORCH = $$($(PYTHON) -c 'import torch, torchvision, onnx, transformers' 2>/dev/null && echo $(PYTHON) || echo $(TORCH))
PTXAS    := $(CURDIR)/out/ptxas/nvidia/cuda_nvcc/bin/ptxas
NVRTC_12 := $(CURDIR)/out/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12

# One way to compile for build, tests and vet, so that each package is compiled once.
export GOFLAGS     := $(strip $(shell go env GOFLAGS) -trimpath)
export CGO_ENABLED = 1
export CGO_CFLAGS  = -O2 -g -Wno-deprecated-declarations -I$(CUDA)/include
export CGO_LDFLAGS = -O2 -g -L$(CUDA)/lib
# The compiler and the tests have small heaps: collecting them less often saves an eighth of the time.
export GOGC       ?= 400

# Tests that only the tag cuda builds, the packages that have them, and what has kernels to compile for the emulated driver.
CUDA_FILES   = $(filter-out ./cmd/plimsoll/%,$(shell grep -rl --include='*_test.go' '^//go:build .*\<cuda\>' .))
CUDA_NAMES   = ^($(subst $(space),|,$(strip $(shell grep -hoP '^func \KTest\w+' $(CUDA_FILES)))))$$
CUDA_TESTS   = $(sort $(dir $(CUDA_FILES)))
CUDA_KERNELS = $(wildcard runtime/cuda/cudatest/src kernels/cuda/src)
# What remakes papers' tables is a module of its own, which uses the program as a library.
RESEARCH = bench/research
# Packages that start goroutines or guard what these share; of the program, tests that run it in processes and interrupt it.
CONCURRENT   = $(filter-out ./cmd/plimsoll/,$(sort $(dir $(shell grep -rlE --include='*.go' '"sync|^[[:space:]]*go [a-z]|\.Go\b|parallel\.For\b' .))))
# Tests of products in large calls and in every size of tile.
PRODUCTS = ^(TestLargeCalls|TestEveryTile)$$
# Counts the tests that pass, and fails when fewer pass than tools/tally/counts.txt has for the tier.
TALLY = go run ./tools/tally
# Tests of the strategies that need HiGHS.
SOLVED = Knapsack|Refusals|Solver|Checkmate|ILP
# Packages and tests that run under the race detector on every submission; race-all runs the rest, too.
RACED = ./internal/... ./runtime/host/... ./runtime/null/... ./runtime/devices/... ./runtime/world/... ./planner/auto ./executor/checkpoint/... ./models/data
RACES = Chaos|AreOneProcess|BetweenProcesses|SeveralProcesses|TrainInRounds|StagesThatOffload|Staged|RandomTransfers|Staleness|Stuck
# Long tests of what drivers would issue and of what is planned: shorter ones of the same code run under the race detector.
PROOFS = TestEveryKindOfEventIsNeeded|TestEventsOrder|TestSlips|TestLongChain|TestLimitsHoldWhateverTheTimes

# PipeDream's profiles of a V100, batch 128 (gnmt: 32).
MEMORIES = 3GiB,4GiB,6GiB,8GiB,10GiB,16GiB
PIPELINE_CHAINS = $(foreach model,resnet50 resnext50 vgg16 gnmt densenet121,planner/profiles/testdata/pipedream/$(model).graph.txt)
V100_CHAINS = docs/chains/resnet50.json,docs/chains/resnext50.json,docs/chains/vgg16.json,docs/chains/gnmt.json
THESIS      = store-all,periodic,revolve,rotor,rotor-exact,offload-dynprog,offload-greedy,vdnn,tflms,autoswap,opportunist,autocapper,pofo
comma := ,
space := $(subst ,, )

.PHONY: $(shell grep -oE '^[a-z-]+:' $(MAKEFILE_LIST) | tr -d :)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/plimsoll
	go build -tags "$(TAGS) $(HIGHS)" -buildvcs=auto -o bin/plimsoll ./cmd/plimsoll

test: ## run every feature's tests once: 5 to 10 minutes on two cores
	go test -short -json -count=1 -parallel 4 -timeout 15m ./... | $(TALLY) -tier test
	cd examples/own-model && go vet ./... && go test -count=1 ./...
	cd $(RESEARCH) && go vet ./... && go test -short -count=1 ./...
	$(if $(HIGHS),go test -short -count=1 -timeout 15m -tags highs -run '$(SOLVED)' ./planner/milp ./planner/remat ./planner/pipeline/periodic ./planner/pipeline/ilp)

check: ## vet and test the packages with changes since BASE (origin/main): under a minute
	.ci/check $(BASE)

nightly: build test-all test-faults test-kills test-recipes test-nocgo test-cuda test-cuda-strict test-ptxas lint race-all race-processes ## run the tests of all packages at full size, faults, kills, recipes, CUDA and races: hours

test-all: ## run every test at its full size
	go test -json -count=1 -timeout 60m ./... | $(TALLY) -tier nightly
	cd $(RESEARCH) && go test -count=1 ./...
	$(if $(HIGHS),go test -count=1 -timeout 60m -tags highs -run '$(SOLVED)' ./planner/milp ./planner/remat ./planner/pipeline/periodic ./planner/pipeline/ilp)

test-nocgo: ## build everything without a C compiler, where only the planner is complete, and try the program
	CGO_ENABLED=0 go build ./...
	CGO_ENABLED=0 go test -count=1 ./planner ./planner/chain ./planner/schedule ./kernels/library
	CGO_ENABLED=0 go test -count=1 -run WithoutCgo ./cmd/plimsoll
	for os in darwin windows; do CGO_ENABLED=0 GOOS=$$os go build -o /dev/null ./cmd/plimsoll || exit 1; done

emulator: ## build the emulated driver and a fake NCCL into out/emulator
	runtime/cuda/emulator/build.sh $(EMULATOR) $(CUDA_KERNELS)
	$(CC) -std=gnu11 -O1 -shared -fPIC -fvisibility=hidden -pthread -o $(EMULATOR)/libnccl.so.2 runtime/world/nccl/fake/src/nccl.c -ldl

kernels: ## compile the changed kernels/cuda/src to PTX: make kernels NVRTC=.../libnvrtc.so.12 (PyPI: nvidia-cuda-nvrtc-cu12 12.6)
	kernels/cuda/build.sh $(NVRTC)

test-cuda: emulator ## run the CUDA backend on the emulated driver
	go vet -tags cuda $(CUDA_TESTS) ./cmd/plimsoll
	LD_LIBRARY_PATH=$(EMULATOR) go test -tags cuda -count=1 -timeout 20m -run '$(CUDA_NAMES)' $(CUDA_TESTS)
	LD_LIBRARY_PATH=$(EMULATOR) PLIMSOLL_EMULATOR_DEVICES=2 PLIMSOLL_NCCL=$(EMULATOR)/libnccl.so.2 go test -tags cuda -count=1 -run GPUsOfProcesses ./cmd/plimsoll

test-kernels: emulator ## run tests of kernels/cuda on the emulated driver: make test-kernels RUN=TestLargeCalls
	LD_LIBRARY_PATH=$(EMULATOR) go test -tags cuda -count=1 -run '$(RUN)' ./kernels/cuda

test-cuda-strict: ## run the device and the kernels on the emulated driver that watches every access
	runtime/cuda/emulator/build.sh $(STRICT) --checked $(CUDA_KERNELS)
	$(MAKE) --no-print-directory -j 2 strict-products strict-others

strict-products: # the half of the tests of kernels that takes as long as all others: the emulated GPU has one thread
	LD_LIBRARY_PATH=$(STRICT) go test -tags cuda -short -count=1 -timeout 20m -run '$(PRODUCTS)' ./kernels/cuda

strict-others:
	LD_LIBRARY_PATH=$(STRICT) go test -tags cuda -short -count=1 -timeout 20m -skip '$(PRODUCTS)' ./runtime/cuda ./kernels/cuda

test-cuda-faults: ## plant faults in the CUDA backend, each must be found, into bench/research/results/cuda-faults.md (slow)
	cd $(RESEARCH) && go run ./faults -out results/cuda-faults.md

test-ptxas: ## assemble the PTX for sm_75 to sm_100 with NVIDIA's ptxas, and compare registers with a table, where PyPI can be reached
	@[ -x $(PTXAS) ] || { $(PYTHON) -m pip download -q --no-deps --disable-pip-version-check -d out/ptxas nvidia-cuda-nvcc-cu12==12.9.86 && \
		$(PYTHON) -m zipfile -e out/ptxas/*.whl out/ptxas && chmod +x $(PTXAS); } || echo "no ptxas from PyPI: the PTX is not assembled"
	PLIMSOLL_PTXAS=$$([ -x $(PTXAS) ] && echo $(PTXAS)) go test -count=1 -v -run PTXAssembles ./kernels/cuda

test-gpu: ## run the same tests on this machine's GPUs
	go test -tags cuda -count=1 -p 1 -timeout 20m -run '$(CUDA_NAMES)' $(CUDA_TESTS)

gpu-suite: ## fill out/gpu-suite, which checks and measures any machine with a GPU (see bench/gpu/README.md)
	bench/gpu/suite.sh out/gpu-suite $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

kernels-estimated: emulator ## estimate calls of training steps on an H100 from registers, blocks and bytes, into bench/results/kernels-estimated.md
	LD_LIBRARY_PATH=$(EMULATOR) go run -tags cuda ./bench/gpu floors >out/kernels-estimated.md
	mv out/kernels-estimated.md bench/results/kernels-estimated.md

gpu-rehearsal: emulator gpu-suite ## type the commands of bench/gpu/README.md in a tree of the tracked files, on the emulated driver (many minutes)
	bench/gpu/rehearsal.sh $(EMULATOR) out/gpu-suite

check-cuda-header: ## compare our cuda.h with NVIDIA's of CUDA 12.6 and 13.5, which PyPI has: or HEADER=.../cuda.h
	@[ -n "$(HEADER)" ] || { $(PYTHON) -m pip download -q --no-deps --disable-pip-version-check -d out/cuda-headers nvidia-cuda-runtime-cu12==12.6.77 nvidia-cuda-runtime==13.5.37 && \
		for wheel in out/cuda-headers/*.whl; do $(PYTHON) -m zipfile -e $$wheel out/cuda-headers; done; }
	for header in $(or $(HEADER),out/cuda-headers/nvidia/cuda_runtime/include/cuda.h out/cuda-headers/nvidia/cu13/include/cuda.h); do $(CUDA)/include/check.sh $$header || exit 1; done

test-world: ## train in 2 to 4 processes, twelve kinds of plans bit for bit, and kill 20 runs (minutes)
	go test -v -count=1 -timeout 30m -run 'TestProcess|TestKilledProcesses' ./cmd/plimsoll

test-mpi: ## train over MPI, with the library in PLIMSOLL_MPI_ABI, else with PyPI's mpich 5.0.2
	@[ -n "$$PLIMSOLL_MPI_ABI" ] || [ -e $(MPI) ] || { $(PYTHON) -m venv out/mpi && out/mpi/bin/python -m pip install -q --disable-pip-version-check mpich==5.0.2; }
	PLIMSOLL_MPI_ABI=$${PLIMSOLL_MPI_ABI:-$(MPI)} go test -v -count=1 -timeout 20m -run . -bench Transports -benchtime 1x ./runtime/world/mpi
	PLIMSOLL_MPI_ABI=$${PLIMSOLL_MPI_ABI:-$(MPI)} go test -v -count=1 -timeout 20m -run MPI ./cmd/plimsoll

test-nccl: emulator ## move messages over a fake NCCL, and check NVIDIA's: that in PLIMSOLL_NCCL, else PyPI's 2.32.3
	@[ -n "$$PLIMSOLL_NCCL" ] || [ -e $(NCCL) ] || { $(PYTHON) -m pip download -q --no-deps --disable-pip-version-check -d out/nccl nvidia-nccl-cu12==2.32.3 && \
		$(PYTHON) -m zipfile -e out/nccl/*.whl out/nccl; }
	PLIMSOLL_NCCL=$${PLIMSOLL_NCCL:-$(NCCL)} LD_LIBRARY_PATH=$(EMULATOR) go test -tags cuda -v -count=1 -timeout 20m ./runtime/world/nccl

test-recipes: ## try the recipes of examples, follow those of docs/adding.md, hold them to the schemas that are published, and go through the Dockerfile in a new folder
	go test -count=1 -run 'Slurm|Kubernetes' ./cmd/plimsoll
	@[ -n "$(NVRTC)" ] || [ -e $(NVRTC_12) ] || { $(PYTHON) -m pip download -q --no-deps --disable-pip-version-check -d out/nvrtc nvidia-cuda-nvrtc-cu12==12.6.77 && \
		$(PYTHON) -m zipfile -e out/nvrtc/*.whl out/nvrtc; } || echo "no NVRTC from PyPI: no PTX is made of the kernel in docs/adding.md"
	PLIMSOLL_RECIPES=1 PLIMSOLL_NVRTC=$$([ -e $(or $(NVRTC),$(NVRTC_12)) ] && echo $(or $(NVRTC),$(NVRTC_12))) go test -count=1 -timeout 30m -run Recipes ./docs
	cd examples/kubernetes/schemas && go vet ./... && go test -count=1 ./...
	dir=$$(mktemp -d) && mkdir "$$dir/src" && git ls-files -z | tar --null -T - -c | tar -x -C "$$dir/src" && "$$dir/src/.ci/image" "$$dir/image" && rm -rf "$$dir"

test-pipelines: ## run every pipeline strategy on ResNet-50, DenseNet-121 and U-Net, bit for bit (slow)
	PLIMSOLL_ZOO=1 go test -tags "$(HIGHS)" -v -count=1 -timeout 2h -run EveryStrategy ./executor/pipeline

test-pipelines-cuda: emulator ## the same on the emulated driver, on 2, 4 and 8 devices (hours; bench/results/pipelines-emulated.md)
	PLIMSOLL_ZOO=1 LD_LIBRARY_PATH=$(EMULATOR) go test -tags "cuda $(HIGHS)" -v -count=1 -timeout 6h -run GPUsTrainTheZoo ./executor/pipeline

test-sizes: ## train ResNet-50, DenseNet-121 and U-Net at usual sizes on devices of a third and a quarter of what a step takes (minutes)
	PLIMSOLL_ZOO=1 go test -v -count=1 -timeout 1h -run DevicesSmallerThanStoreAll ./executor/train

test-judges: ## judge 1000 random pipeline plans (PLANS=) of each kind, and changed ones, beside the independent checker in ../shared (minutes)
	PLIMSOLL_PLANS=$(or $(PLANS),1000) go test -v -count=1 -timeout 2h -run 'BothJudges|ChangedSynchronization|EmittedSynchronization|ZeroPlans' ./planner/pipeline

test-cycles: ## judge and time 20000 random cyclic plans (PLANS=), valid and broken, beside the independent judge in ../shared (half a minute)
	PLIMSOLL_CYCLES=$(or $(PLANS),20000) go test -v -count=1 -timeout 2h -run OracleAgrees ./planner/cycle

test-state-brute: ## compare plans of weights and state with a brute force on 500 random small chains (STATES=) (an hour)
	PLIMSOLL_STATES=$(or $(STATES),500) go test -v -count=1 -timeout 4h -run BruteForce ./planner/residency

race: ## run a chosen set of tests under the race detector: devices, processes, streams, and plans with shared state
	go test -race -short -count=1 -timeout 20m $(RACED)
	go test -race -short -count=1 -timeout 20m -run '$(RACES)' ./executor ./executor/pipeline ./executor/train

race-all: ## run every package that starts goroutines under the race detector (half an hour)
	go test -race -short -count=1 -timeout 60m -skip '$(PROOFS)' $(CONCURRENT)

race-processes: ## run what starts and ends processes, from the command line down, under the race detector (minutes)
	go test -race -short -count=1 -timeout 30m -run 'Process|Interrupt|Launch|Progress|Killed' ./cmd/plimsoll

test-kills: ## kill runs on several devices, and runs whose weights move, 20 times each, and resume them
	PLIMSOLL_KILLS=20 go test -count=1 -timeout 20m -run Killed ./cmd/plimsoll

test-faults: ## let every operation on a run's files fail, on one device, two, and in two processes, with each error of a disk (minutes)
	PLIMSOLL_FAULTS=1 go test -count=1 -timeout 30m -run 'OperationOnFiles|FoldersOf|FailingDisks' ./cmd/plimsoll

demo: build ## train a ResNet under five limits, a GPT under two and one whose weights do not fit, into out/demo
	bin/plimsoll demo --out out/demo

same-weights: build ## train 69 ways with OLD=, an older bin/plimsoll, and with this one: the weights are the same bits
	bench/same-weights.sh $(OLD) bin/plimsoll

validate-offload: build ## run every kind of plan on ResNet-101 and DenseNet-121, predicted beside measured, into out/validate-offload
	bench/validate-offload.sh bin/plimsoll out/validate-offload

pipeline-versions: build ## train with every kind of weight versions, three seeds each: accuracy and time to it, into out/pipeline-versions
	bench/pipeline-versions.sh bin/plimsoll out/pipeline-versions

validate-pipelines: build ## run pipelines on virtual devices, predicted beside measured, into bench/results/validate-pipelines.md
	bench/validate-pipelines.sh bin/plimsoll out/validate-pipelines bench/results/validate-pipelines.md

paper-single: build ## compare the strategies of the thesis, chapters 2 to 4, on PipeDream's chains and ours (simulated), into out/v100 and out/own
	bin/plimsoll bench -c $(V100_CHAINS) --points 11 --bandwidths 6GB/s,12GB/s,24GB/s --strategy $(THESIS),dtr --out out/v100
	bin/plimsoll bench -c bench/results/chains/resnet101.json,bench/results/chains/densenet121.json --points 6 \
		--bandwidths 100MB/s,200MB/s,400MB/s --strategy $(THESIS) --out out/own
	for figure in docs/results/*.svg; do cp out/*/figures/$$(basename $$figure) docs/results/; done

paper-pipeline: build ## compare the pipeline strategies of the thesis and MadPipe on PipeDream's profiles (simulated), into out/pipelines
	bin/plimsoll bench pipelines -c $(subst $(space),$(comma),$(PIPELINE_CHAINS)) --devices 2,4,8 --memory 3GiB,4GiB,6GiB,8GiB,10GiB,16GiB \
		--bandwidths 12GB/s,24GB/s --strategy pipedream,contiguous,madpipe,loadline --out out/pipelines

JOINT = bin/plimsoll bench pipelines -c $(subst $(space),$(comma),$(wildcard docs/chains/*.json)) --accounting saved
NODES = --devices 8,16 --node 4 --node-bandwidth 100GB/s
FLUSHES = --microbatches 32 --strategy 1f1b-flush,gpipe-checkpoint,1f1b-recompute,joint-flush

paper-joint: build ## compare joint with what it chooses among, synchronization counted (simulated), into out/joint, -nodes, -flush
	$(JOINT) --devices 2,4,8,16 --memory $(MEMORIES) --bandwidths 12GB/s,24GB/s --strategy pipedream,contiguous,madpipe,loadline,joint --out out/joint
	$(JOINT) $(NODES) --memory $(MEMORIES) --bandwidths 12GB/s,24GB/s --strategy pipedream,contiguous,madpipe,loadline,joint --out out/joint-nodes
	$(JOINT) --devices 2,4,8,16 --memory $(MEMORIES) --bandwidths 12GB/s,24GB/s $(FLUSHES) --out out/joint-flush
	$(JOINT) $(NODES) --memory 3GiB,6GiB,10GiB,16GiB --bandwidths 12GB/s $(FLUSHES) --out out/joint-flush-nodes

paper-ingredients: ## what stages, replicas and recomputation are worth (simulated), into bench/research/results/ingredients.md
	cd $(RESEARCH) && go run ./ingredients -devices 2,8,64 -memory 3,6,10,16,80 -bandwidths 8,450 -out $(CURDIR)/out/ingredients
	cp out/ingredients.md $(RESEARCH)/results/ingredients.md
	cp out/ingredients.svg docs/results/ingredients.svg

pictures: build ## draw frontier.svg (simulated) and predicted.svg of docs/results from tables in bench/results
	bin/plimsoll frontier -c docs/chains/resnet50.json --strategy rotor-exact -o bench/results/frontier-recompute.csv
	bin/plimsoll frontier -c docs/chains/resnet50.json --bandwidth 12GB/s --points 24 -o bench/results/frontier-offload.csv
	go run ./bench/pictures

paper-torchgpipe: ## remake torchgpipe's tables and ablation with our plans (simulated), into bench/research/results/torchgpipe.md
	cd $(RESEARCH) && go run ./torchgpipe

bench: ## run the Go benchmarks
	go test -run '^$$' -bench . -benchmem -timeout 30m ./...

bench-peers: ## time our kernels beside OpenBLAS, oneDNN and PyTorch (see bench/research/peers/README.md)
	mkdir -p out/peers
	g++ -O2 -o out/peers/onednn $(RESEARCH)/peers/src/onednn.cc -ldnnl
	$(CC) -O2 -o out/peers/sgemm $(RESEARCH)/peers/src/sgemm.c -lopenblas
	go build -C $(RESEARCH) -o $(CURDIR)/out/peers/peers ./peers
	out/peers/peers -scripts $(RESEARCH)/peers/src -onednn out/peers/onednn -sgemm out/peers/sgemm -python $(PYTHON) | tee out/peers/peers.md

bench-language: torch ## time training steps of GPT-2 124M, and attention, beside PyTorch, into out/peers/language-speed.md (minutes, on idle cores)
	$(RESEARCH)/peers/language.sh $(WITH_TORCH) out/peers

torch: # PyTorch, torchvision, onnx and transformers: those of PYTHON, else of PyPI
	@$(PYTHON) -c 'import torch, torchvision, onnx, transformers' 2>/dev/null || $(TORCH) -c 'import torch, torchvision, onnx, transformers' 2>/dev/null || \
		{ $(PYTHON) -m venv out/torch && $(TORCH) -m pip install -q --disable-pip-version-check torch==2.15.0 torchvision onnx transformers==5.24.0; }

test-oracle: build torch ## judge training, optimizers, files, plans and exported models by PyTorch, in float64 where it decides: that of PYTHON, else of PyPI (minutes)
	$(WITH_TORCH) tools/plimsoll_export_test.py
	cd $(RESEARCH) && PLIMSOLL_TORCH=$$(command -v $(WITH_TORCH)) go test -count=1 -v -timeout 60m ./peers/language ./peers/exported ./peers/zoo
	PLIMSOLL_TORCH=$$(command -v $(WITH_TORCH)) go test -count=1 -v -run OptimizersArePyTorchs ./executor/pipeline
	go test -count=1 -v -run 'NoFloatStopsJSON|WeightsThatAreNoNumbers|ReportsWithoutNumbers' ./cmd/plimsoll
	cd $(RESEARCH) && PLIMSOLL_TORCH=$$(command -v $(WITH_TORCH)) PLIMSOLL_PROGRAM=$(CURDIR)/bin/plimsoll go test -count=1 -v -timeout 10m ./peers/page
	cd $(RESEARCH) && PLIMSOLL_TORCH=$$(command -v $(WITH_TORCH)) PLIMSOLL_PROGRAM=$(CURDIR)/bin/plimsoll go test -count=1 -v -timeout 60m ./peers/oracle -out $(CURDIR)/$(RESEARCH)/results/oracle.md

text-versions: build torch ## train a language model with PyTorch and with every kind of weight versions, three seeds each, into out/text-versions
	$(RESEARCH)/text-versions.sh bin/plimsoll $(WITH_TORCH) out/text-versions

notices: ## write the licenses of what is linked into THIRD_PARTY_NOTICES
	@mkdir -p out
	go run ./internal/notices >out/notices
	mv out/notices THIRD_PARTY_NOTICES

# With the tag cuda, Gorgonia needs NVIDIA's headers: the packages that import it are linted without.
lint: ## check the format, lint, and look for known vulnerabilities
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt'd: $$unformatted"; exit 1; fi
	go run $(LINT) run --build-tags "$(TAGS)" $$(go list -e -tags "$(TAGS)" -f '{{.Dir}}' ./... | grep -vE '/(models/gorgonia|kernels/cpu)$$')
	go run $(LINT) run ./models/gorgonia ./kernels/cpu
	cd $(RESEARCH) && go run $(LINT) run ./...
	go run ./tools/prose
	go run ./tools/layers -check
	.ci/vulnerabilities ./...

fuzz: ## run every fuzz target for a while: make fuzz FUZZ=1m
	@for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -h -o '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | cut -d' ' -f2); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ) $$pkg || exit 1; \
		done; \
	done

release: ## make what is published of this version into out/release: archives, checksums, notes
	.ci/release out/release

image: ## go through the steps of the Dockerfile without Docker, into out/image
	.ci/image out/image

clean: ## remove what make builds and writes
	rm -rf bin out
