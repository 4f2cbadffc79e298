# Bare `make` prints what there is. Everything is installed into .venv from requirements-dev.lock.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   ?=
INSTALL ?=

.DEFAULT_GOAL := help
.PHONY: audit collected docs bench-operator bench-operator-short crash-matrix explore faults score fit bench-start mass help setup test test-unit test-controlplane test-engine test-versions test-browser test-mpi test-autoscaling recovery test-queues lock-engine lint fmt generate soak verify lock lock-image tools demo demo-down image publish release release-tools router-wheels scan sign wheel wheels kind-up kind-test kind-test-full kind-demo kind-down clean

help: ## Print this help
	@if [ -t 1 ] && [ -z "$$NO_COLOR" ]; then on=36 off=0; else on= off=; fi; \
	awk -F':.*## ' -v on=$$on -v off=$$off '/^[a-z-]+:.*## /{name = sprintf("%-20s", $$1); \
	  if (on) name = "\033[" on "m" name "\033[" off "m"; print "  " name "  " $$2}' $(MAKEFILE_LIST)

$(BIN)/.installed: requirements-dev.lock pyproject.toml
	@echo "Installing the locked development environment into $(VENV) (downloads 150 MB, 500 MB on disk; one minute)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(BIN)/.installed ## Make the development environment in .venv
	@$(BIN)/python -m compileall -q operator/shardwright # where PYTHONDONTWRITEBYTECODE is set, every start would compile it anew

test: setup tools ## Everything that must pass: lint, types, layers, all tests but those below
	$(MAKE) --no-print-directory -j2 lint collected
	$(BIN)/python -m pytest -n 3 --dist loadfile # two that mostly wait, each for a control plane of its own, beside one that computes
	$(BIN)/python -m pytest tests/rights --rights # what those asked of the API server against what the chart grants

# mypy has one core: on the other one, what pytest makes of the asserts is made once and not by each process
collected: setup
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null || true # the run that follows says what is wrong

test-unit: setup ## The fast tests, without a control plane, on every core
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not controlplane"

test-controlplane: setup tools ## The tests on the real control plane only
	$(BIN)/python -m pytest -m controlplane

test-engine: setup ## Argument lists before vLLM's own parser and classes (7 GB once)
	$(BIN)/python -m tests.engine install
	$(BIN)/python -m pytest tests/engine --engine

test-versions: setup ## Every object on API servers of 1.34 to 1.36 (15 minutes once)
	$(BIN)/python -m tests.harness build --older
	$(BIN)/python -m pytest tests/versions --versions

faults: setup tools ## Every fault of a real API server, slow ones too (about 15 minutes)
	$(BIN)/python -m pytest tests/controlplane/test_faults.py tests/crash/test_in_memory.py --faults

SECONDS ?= 3600

# POINTS=40 draws some, in 3 to 6 minutes; FATES=lost, killed or stopped
crash-matrix: setup tools ## Each write of a model's life lost (hours; POINTS=40, FATES=lost, SEED=7)
	$(BIN)/python -m tests.crash matrix $(if $(POINTS),--points $(POINTS)) $(if $(FATES),--fates $(FATES)) $(if $(SEED),--seed $(SEED))

soak: setup tools ## Users, cluster and faults at random for SECONDS, on the real control plane
	$(BIN)/python -m tests.crash soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

test-autoscaling: setup tools ## KEDA scales models by an engine's queue (22 minutes and 3 GB once)
	$(BIN)/python -m pytest tests/controlplane/autoscaling --autoscaling

recovery: setup tools ## How long groups take to come back from each fault, as a table (3 minutes)
	$(BIN)/python -m pytest tests/controlplane/recovery --recovery

test-queues: setup tools ## Kueue and Coscheduling hold groups back and place them (10 minutes once)
	$(BIN)/python -m pytest tests/controlplane/queues --queues

test-mpi: setup ## Groups of TensorRT-LLM over real ssh and Open MPI (Linux, as root)
	$(BIN)/python -m tests.mpi
	$(BIN)/python -m pytest tests/mpi --mpi

test-browser: setup ## The report and the list of plans in Chromium (installs it, as root)
	$(BIN)/python -m tests.browser
	$(BIN)/python -m pytest tests/browser --browser

lint: setup ## Formatting, lint, types and the layer contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 operator/shardwright/rendering/programs # the oldest Python of an engine's image
	$(BIN)/lint-imports

fmt: setup ## Format, and fix the lint errors that can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	git ls-files --cached --others --exclude-standard --deduplicate -- ':(glob)*.md' 'docs/*.md' | xargs ls -d 2>/dev/null | xargs $(BIN)/python -m tests.support.wrapping

generate: setup ## Write every generated file: CRD, manifests, references, dashboards
	$(BIN)/python -m tests.generated

verify: generate lint ## Generated files are current (used before a release)
	git diff --exit-code

lock: setup ## Resolve the dependencies anew into the six lock files
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --output-file requirements-router.lock release/router/requirements.in
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra operator --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra operator --extra dev --output-file requirements-dev.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra audit --output-file requirements-audit.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra docs --output-file requirements-docs.lock pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-options --no-header --extra aisimulate --output-file requirements-aisimulate.lock pyproject.toml

build/%/.installed: requirements-%.lock # an environment of its own
	$(PYTHON) -m venv build/$*
	build/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

audit: build/audit/.installed ## Look the locked dependencies up among known vulnerabilities (asks PyPI)
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements.lock
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements-dev.lock

build/docs/.installed: requirements-docs.lock
	$(PYTHON) -m venv build/docs/venv
	build/docs/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

DOCUMENTS := ':(glob)*.md' LICENSE docs charts/shardwright examples/gitops manifests/kustomization.yaml # pages, and what they link to

docs: build/docs/.installed ## The documents as a site in build/docs/site; fails on a broken link
	rm -rf build/docs/source build/docs/site
	mkdir -p build/docs/source
	git ls-files --cached --others --exclude-standard -- $(DOCUMENTS) | xargs cp --parents -t build/docs/source
	NO_MKDOCS_2_WARNING=1 build/docs/venv/bin/mkdocs build --strict

IMAGE ?= shardwright/operator:$$($(BIN)/python -c 'import shardwright; print(shardwright.__version__)')
SCANNER ?= $(firstword $(notdir $(shell command -v trivy) $(shell command -v grype)))
SCAN_trivy := trivy image --exit-code 1 --severity HIGH,CRITICAL --ignore-unfixed
SCAN_grype := grype --fail-on high --only-fixed

router-wheels: setup ## What release/router/Dockerfile copies: the locked wheels of vllm-router
	rm -rf dist/router-wheels
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: --no-deps --require-hashes --dest dist/router-wheels -r requirements-router.lock

scan: ## Look the operator's image up among known vulnerabilities (trivy or grype)
	@test -n "$(SCAN_$(SCANNER))" || { echo "no scan was made: neither trivy nor grype is installed, and no package registry has their databases;" \
	  "install one where its database can be downloaded and run 'make scan IMAGE=...' there" >&2; exit 1; }
	$(SCAN_$(SCANNER)) $(IMAGE)

lock-engine: setup ## Resolve what vLLM needs anew into its lock file (downloads about 3 GB)
	$(BIN)/python -m tests.engine lock

tools: setup ## Build the control plane binaries once (about 10 minutes, then cached)
	$(BIN)/python -m tests.harness build

demo: setup tools ## A real control plane, a fake GPU fleet, the samples served (DEMO=once)
	$(BIN)/python -m tests.harness.demo $(if $(DEMO),--once)

demo-down: setup ## Stop a demo that was left running
	$(BIN)/python -m tests.harness.demo --down

KIND_OPTIONS := $(if $(KUBECONFIG_FILE),--kubeconfig $(KUBECONFIG_FILE) --operator-image $(OPERATOR_IMAGE)) $(if $(INSTALL),--install)

# INSTALL=1 or CI=true installs Docker from Debian; KUBECONFIG_FILE: on another cluster
kind-up: setup ## A kind cluster with the operator's image (as root; INSTALL=1: and Docker)
	$(BIN)/python -m tests.kind up $(KIND_OPTIONS)

kind-test: setup ## The tests on it, with a real engine on the CPU (KUBECONFIG_FILE: elsewhere)
	$(BIN)/python -m tests.kind test $(KIND_OPTIONS)

kind-test-full: setup ## The long tests on it: lost nodes, load, saturation (up to 80 minutes)
	$(BIN)/python -m tests.kind test-full $(KIND_OPTIONS)

kind-demo: setup ## Eight lines become a group of a real engine over two nodes of it
	$(BIN)/python -m tests.kind demo $(KIND_OPTIONS)

kind-down: setup ## Delete the kind cluster and end its Docker daemon; only the cache stays
	$(BIN)/python -m tests.kind down

TRUTH ?= ../shared/groundtruth

mass: setup ## Lines, statements, modules of each room, and what a first plan runs
	$(BIN)/python -m benchmarks.mass $(if $(KEEP),--keep "$(KEEP)") $(if $(CI_MINUTES),--ci-minutes $(CI_MINUTES))

bench-start: setup ## CPU of a command of each kind, and of the operator until its first request
	$(BIN)/python -m benchmarks.start

# AGAINST=aisimulate: that planner's errors beside ours, SAMPLE=350 or all, SEED=7
score: setup $(AGAINST:%=build/%/.installed) ## Predict the published measurements and score it (AGAINST=aisimulate)
	@mkdir -p build
	@$(PYTHON) $(TRUTH)/score.py cases --half dev > build/cases.jsonl
	@$(BIN)/shardwright predict --input build/cases.jsonl --output build/predictions.jsonl
	@$(PYTHON) $(TRUTH)/score.py report --half dev build/predictions.jsonl
	$(if $(AGAINST),@$(BIN)/python -m benchmarks.peer --data $(TRUTH) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)))

explore: setup ## Ask the planner 2,000 random questions; reports broken laws (5 minutes)
	$(BIN)/python -m benchmarks.explore $(if $(QUESTIONS),--questions $(QUESTIONS)) $(if $(FIRST),--first $(FIRST))

fit: setup ## Fit the cost model to the measurements (15 minutes; CHECK=1 compares)
	$(BIN)/python benchmarks/fit.py --data $(TRUTH) $(if $(CHECK),--check)

bench-operator: setup tools ## Measure the operator with 1,000 models on 5,000 nodes (half an hour)
	$(BIN)/python -m benchmarks.fleet --check --write

bench-operator-short: setup tools ## 100 models on 500 nodes; fails on a regression (about 3 minutes)
	$(BIN)/python -m benchmarks.fleet --size short --check

release: setup tools ## All that a user installs into dist/release/, proved by installing it
	$(BIN)/python -m release

release-tools: ## What `make release` runs images in, from Debian (as root, or by sudo)
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

# IMAGE_BASE: on a base of yours, with Docker
image: $(if $(IMAGE_BASE),wheel wheels,setup) ## The operator's image for amd64 and arm64, without Docker (IMAGE_BASE: with)
	$(if $(IMAGE_BASE),docker build --network=none --build-arg BASE=$(IMAGE_BASE) -f operator/Dockerfile -t shardwright/operator:$$($(BIN)/python -c 'import shardwright; print(shardwright.__version__)') .,$(BIN)/python -m release image)

clean: ## Remove what was built here (not the cached control plane binaries)
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
