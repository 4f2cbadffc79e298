# Bare `make` prints what there is. Everything is installed into .venv from requirements-dev.lock.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   ?=
INSTALL ?=

.DEFAULT_GOAL := help
.PHONY: audit docs bench-operator bench-operator-short crash-matrix explore faults score fit bench-start help setup test test-unit test-controlplane test-engine test-versions test-browser test-mpi test-autoscaling lock-engine lint fmt generate soak verify lock lock-image tools demo demo-down image publish release release-tools scan sign wheel wheels kind-up kind-test kind-test-full kind-demo kind-down clean

help: ## Print this help
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/.installed: requirements-dev.lock pyproject.toml
	@echo "Installing the locked development environment into $(VENV) (downloads 150 MB, 500 MB on disk; one minute)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(BIN)/.installed ## Make the development environment in .venv
	@$(BIN)/python -m compileall -q operator/shardwright # where PYTHONDONTWRITEBYTECODE is set, every start would compile it anew

test: setup lint tools ## Everything that must pass: lint, types, layers, unit, property, golden and control plane tests
	$(BIN)/python -m pytest -n 3 --dist loadfile # two that mostly wait, each for a control plane of its own, beside one that computes
	$(BIN)/python -m pytest tests/rights --rights # what those asked of the API server against what the chart grants

test-unit: setup ## The fast tests, without a control plane, on every core
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not controlplane"

test-controlplane: setup tools ## The tests on the real control plane only
	$(BIN)/python -m pytest -m controlplane

test-engine: setup ## Every argument list before vLLM's own parser, configuration and model classes (installs 7 GB once)
	$(BIN)/python -m tests.engine install
	$(BIN)/python -m pytest tests/engine --engine

test-versions: setup ## What API servers of Kubernetes 1.31 and 1.34 make of every object (builds them once, 10 minutes)
	$(BIN)/python -m tests.harness build --older
	$(BIN)/python -m pytest tests/versions --versions

faults: setup tools ## Every fault of a real API server, those too that take their time (about 15 minutes)
	$(BIN)/python -m pytest tests/controlplane/test_faults.py tests/crash/test_in_memory.py --faults

SECONDS ?= 3600

crash-matrix: setup tools ## Each write of a model's life lost, or its operator killed or stopped there, on the real control plane (hours; POINTS=40 draws some, in 3 to 6 minutes; FATES=lost, killed or stopped)
	$(BIN)/python -m tests.crash matrix $(if $(POINTS),--points $(POINTS)) $(if $(FATES),--fates $(FATES)) $(if $(SEED),--seed $(SEED))

soak: setup tools ## Users, cluster and faults at random on the real control plane, for SECONDS; fails on a broken law or a leak
	$(BIN)/python -m tests.crash soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

test-autoscaling: setup tools ## KEDA scales models by the queue of an engine (builds KEDA once, 22 minutes of CPU and 3 GB)
	$(BIN)/python -m pytest tests/controlplane/autoscaling --autoscaling

test-mpi: setup ## Groups of TensorRT-LLM over real ssh and Open MPI, in namespaces of their own (Linux, as root)
	$(BIN)/python -m tests.mpi
	$(BIN)/python -m pytest tests/mpi --mpi

test-browser: setup ## The report and the list of plans in Chromium: every width, light and dark, keyboard (installs Debian's package, as root)
	$(BIN)/python -m tests.browser
	$(BIN)/python -m pytest tests/browser --browser

lint: setup ## Formatting, lint, types and the layer contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 operator/shardwright/rendering/programs # the oldest Python of an engine's image
	$(BIN)/lint-imports

fmt: setup ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	git ls-files --cached --others --exclude-standard --deduplicate -- ':(glob)*.md' 'docs/*.md' | xargs ls -d 2>/dev/null | xargs $(BIN)/python -m tests.support.wrapping

generate: setup ## Write every generated file: CRD, install manifest, references, the chart's documents (needs no control plane)
	$(BIN)/python -m tests.generated

verify: generate lint ## Generated files are current (used before a release)
	git diff --exit-code

lock: setup ## Resolve the dependencies anew into the five lock files (hashes, no addresses)
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra operator --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra operator --extra dev --output-file requirements-dev.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra audit --output-file requirements-audit.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra docs --output-file requirements-docs.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra aisimulate --output-file requirements-aisimulate.lock pyproject.toml

build/%/.installed: requirements-%.lock # an environment of its own
	$(PYTHON) -m venv build/$*
	build/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

audit: build/audit/.installed ## Look the locked dependencies up among known vulnerabilities (asks PyPI; fails, too, where it gets no answer)
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements.lock
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements-dev.lock

build/docs/.installed: requirements-docs.lock
	$(PYTHON) -m venv build/docs/venv
	build/docs/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

DOCUMENTS := ':(glob)*.md' LICENSE docs charts/shardwright examples/gitops manifests/kustomization.yaml # pages, and what they link to

docs: build/docs/.installed ## The documents as a site in build/docs/site; fails on a link, a heading or a page of the nav that is not there
	rm -rf build/docs/source build/docs/site
	mkdir -p build/docs/source
	git ls-files --cached --others --exclude-standard -- $(DOCUMENTS) | xargs cp --parents -t build/docs/source
	NO_MKDOCS_2_WARNING=1 build/docs/venv/bin/mkdocs build --strict

IMAGE ?= shardwright/operator:$$($(BIN)/python -c 'import shardwright; print(shardwright.__version__)')
SCANNER ?= $(firstword $(notdir $(shell command -v trivy) $(shell command -v grype)))
SCAN_trivy := trivy image --exit-code 1 --severity HIGH,CRITICAL --ignore-unfixed
SCAN_grype := grype --fail-on high --only-fixed

scan: ## Look up what is in the operator's image among known vulnerabilities, before a release (needs trivy or grype, and its database)
	@test -n "$(SCAN_$(SCANNER))" || { echo "no scan was made: neither trivy nor grype is installed, and no package registry has their databases;" \
	  "install one where its database can be downloaded and run 'make scan IMAGE=...' there" >&2; exit 1; }
	$(SCAN_$(SCANNER)) $(IMAGE)

lock-engine: setup ## Resolve what vLLM needs anew into its lock file (downloads about 3 GB to read what it asks for)
	$(BIN)/python -m tests.engine lock

tools: setup ## Build the control plane binaries once (about 7 minutes on 2 cores plus downloads, then cached)
	$(BIN)/python -m tests.harness build

demo: setup tools ## A real control plane with a fake GPU fleet, the chart installed, the samples served (DEMO=once: check and exit)
	$(BIN)/python -m tests.harness.demo $(if $(DEMO),--once)

demo-down: setup ## Stop a demo that was left running
	$(BIN)/python -m tests.harness.demo --down

KIND_OPTIONS := $(if $(KUBECONFIG_FILE),--kubeconfig $(KUBECONFIG_FILE) --operator-image $(OPERATOR_IMAGE)) $(if $(INSTALL),--install)

kind-up: setup ## A real kind cluster with the operator as its image (needs root; INSTALL=1 or CI=true installs Docker from Debian)
	$(BIN)/python -m tests.kind up $(KIND_OPTIONS)

kind-test: setup ## The tests on the kind cluster, with groups of a real engine on the CPU (KUBECONFIG_FILE: on another cluster)
	$(BIN)/python -m tests.kind test $(KIND_OPTIONS)

kind-test-full: setup ## The long tests on the kind cluster: lost and drained nodes, load, saturation, experts (up to 80 minutes)
	$(BIN)/python -m tests.kind test-full $(KIND_OPTIONS)

kind-demo: setup ## Six lines become a group of a real engine over two nodes of the kind cluster; it is left running
	$(BIN)/python -m tests.kind demo $(KIND_OPTIONS)

kind-down: setup ## Delete the kind cluster and end its Docker daemon; only the cache stays
	$(BIN)/python -m tests.kind down

TRUTH ?= ../shared/groundtruth

bench-start: setup ## CPU of a command of each kind and of the operator until its first request, from the start of the interpreter
	$(BIN)/python -m benchmarks.start

score: setup $(AGAINST:%=build/%/.installed) ## Predict the published measurements beside the checkout and print the scorer's report (AGAINST=aisimulate: and that planner's errors beside ours, SAMPLE=350 or all, SEED=7)
	@mkdir -p build
	@$(PYTHON) $(TRUTH)/score.py cases --half dev > build/cases.jsonl
	@$(BIN)/shardwright predict --input build/cases.jsonl --output build/predictions.jsonl
	@$(PYTHON) $(TRUTH)/score.py report --half dev build/predictions.jsonl
	$(if $(AGAINST),@$(BIN)/python -m benchmarks.peer --data $(TRUTH) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)))

explore: setup ## Ask the planner 2,000 questions that nobody wrote down and report the laws that it breaks (about five minutes)
	$(BIN)/python -m benchmarks.explore $(if $(QUESTIONS),--questions $(QUESTIONS)) $(if $(FIRST),--first $(FIRST))

fit: setup ## Fit the cost model to the published measurements anew, with its cross-validation (about 15 minutes)
	$(BIN)/python benchmarks/fit.py --data $(TRUTH)

bench-operator: setup tools ## Measure the operator with 1,000 models on 5,000 nodes, on the real control plane (about half an hour)
	$(BIN)/python -m benchmarks.fleet --check --write

bench-operator-short: setup tools ## The same with 100 models on 500 nodes; fails on a regression (about 3 minutes)
	$(BIN)/python -m benchmarks.fleet --size short --check

release: setup tools ## All that a user installs into dist/release/, each proved by installing it (about 5 minutes once its tools are built)
	$(BIN)/python -m release

release-tools: ## What `make release` runs images in, from Debian: bubblewrap, and QEMU for arm64 (as root, or by sudo)
	$(if $(filter 0,$(shell id -u)),,sudo) apt-get install --yes --quiet --no-install-recommends bubblewrap qemu-user-static

sign: setup ## Sign what `make release` made (COSIGN_KEY: the private key)
	$(BIN)/python -m release sign

publish: setup ## Push image and chart of dist/release/ to REGISTRY, a host and an owner
	$(BIN)/python -m release publish

lock-image: setup ## Pin the newest Debian packages below the operator's image
	$(BIN)/python -m release lock

wheel: setup ## Build the wheel into dist/
	$(BIN)/python -m build --no-isolation --wheel --outdir dist

wheels: setup ## Download the locked wheels that operator/Dockerfile takes into dist/wheels/
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: --no-deps --require-hashes --dest dist/wheels -r requirements.lock

image: $(if $(IMAGE_BASE),wheel wheels,setup) ## The operator's image for amd64 and arm64 as dist/release/*.oci.tar, without Docker (IMAGE_BASE: on a base of yours, with Docker)
	$(if $(IMAGE_BASE),docker build --network=none --build-arg BASE=$(IMAGE_BASE) -f operator/Dockerfile -t shardwright/operator:$$($(BIN)/python -c 'import shardwright; print(shardwright.__version__)') .,$(BIN)/python -m release image)

clean: ## Remove what was built here (not the cached control plane binaries)
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
