# Every target sets up what it needs: a clean clone, Python 3.11 or newer and make are enough.
# pip's own configuration decides where packages come from.

PYTHON ?= python3
ARGS ?=
SEEDS ?= 1
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
BENCH := .venv-bench
TABLE_TESTS := $(foreach room,app diagnosis artifact,tests/$(room) src/equipoise/$(room)) \
  $(foreach file,data/atomic_writing export,tests/$(dir $(file))test_$(notdir $(file)).py src/equipoise/$(file).py) tests/test_guide.py

# PIP_CONSTRAINT pins what is installed; newer versions of pip want PIP_BUILD_CONSTRAINT for the build backend.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
       $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup reproduce study tune compare compare-small test test-heart test-table test-without-fast \
  test-processors check lint types format net mutants bench figure clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with pinned dependencies and this package in it (PYTHON=python3.11 picks the interpreter)

reproduce: $(STAMP) ## run the paper's battery study (SEEDS=5 for five seeds) into runs/battery
	@$(BIN)/python -m studies.battery reproduce --seeds $(SEEDS) $(ARGS)

study: $(STAMP) ## ablation, fewer rows, whole discharges left out (about an hour; goes on where it stopped)
	@$(BIN)/python -m studies.battery study --seeds $(SEEDS) $(ARGS)

tune: $(STAMP) ## search the study's architecture and rates on its validation rows
	@$(BIN)/python -m studies.battery.tune $(ARGS)

compare: $(STAMP) ## every rival method on the battery and five other cases (hours; goes on where it stopped)
	@$(BIN)/equipoise compare battery --seeds 5 --first-seed 10 --workers 2 -o runs/compare-battery
	@$(BIN)/equipoise compare tank flash biased hierarchy few --seeds 3 --first-seed 10 --workers 2 -o runs/compare-cases
	@$(BIN)/python -m equipoise.rivals.comparison runs/compare-battery/compare.json runs/compare-cases/compare.json \
	  --reading docs/comparison-reading.md -o docs/comparison.md
	@mkdir -p docs/results
	@for name in battery cases; do cp runs/compare-$$name/compare.json docs/results/compare-$$name.json; done

compare-small: $(STAMP) ## the same in miniature: few epochs, one case; the numbers mean nothing
	@$(BIN)/equipoise compare few --quick --seeds 2 -o runs/compare-small

# Tests are kept compiled, whatever the environment says: each worker would do it again.
test: $(STAMP) ## run the tests and doctests (ARGS="-k sentence" passes options to pytest)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadgroup --no-loadscope-reorder $(ARGS)

test-table: $(STAMP) ## those of what a user's own table goes through: commands, job, reading, diagnosis, report, model file
	@$(MAKE) --no-print-directory test ARGS="$(TABLE_TESTS) $(ARGS)"

# Other processors sum in another order. These variables have torch, MKL, oneDNN, OpenBLAS, NumPy and numba do without
# the newer instructions of this one; what they compute then differs by rounding.
AVX2 := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell \
  NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=+avx2,+fma NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR"
SSE := ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 \
  OPENBLAS_CORETYPE=Nehalem NUMBA_CPU_NAME=nehalem NUMBA_CPU_FEATURES=+sse4.2 \
  NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
ROOM := .cache/headroom.jsonl

test-processors: $(STAMP) ## run the tests as on older processors (AVX2, then SSE), and list bands that rounding may fill
	@mkdir -p $(dir $(ROOM)) && rm -f $(ROOM)
	@$(MAKE) --no-print-directory test ARGS="-p headroom --headroom $(CURDIR)/$(ROOM) $(ARGS)"
	@$(AVX2) $(MAKE) --no-print-directory test ARGS="-p headroom --headroom $(CURDIR)/$(ROOM) $(ARGS)"
	@$(SSE) $(MAKE) --no-print-directory test ARGS="-p headroom --headroom $(CURDIR)/$(ROOM) $(ARGS)"
	@$(BIN)/python tests/headroom.py $(ROOM)

HEART := $(foreach room,balances gaussian data network training prediction,tests/$(room)) tests/test_estimator.py \
  tests/test_compiled.py
BARE := .cache/without-fast

test-heart: $(STAMP) ## the tests of the core: balances, algebra, network, training, prediction, estimator
	@$(MAKE) --no-print-directory test ARGS="$(HEART) $(ARGS)"

test-without-fast: $(STAMP) ## the same without the compiled loops, in a copy of the sources from which they are deleted
	@rm -rf $(BARE) && mkdir -p $(BARE) && cp -r src $(BARE)/src && rm -r $(BARE)/src/equipoise/fast
	@PYTHONPATH=$(CURDIR)/$(BARE)/src $(BIN)/python -c "import importlib.util as u, equipoise; \
	  assert '$(BARE)' in equipoise.__file__ and u.find_spec('equipoise.fast') is None, equipoise.__file__"
	@PYTHONPATH=$(CURDIR)/$(BARE)/src $(MAKE) --no-print-directory test \
	  ARGS="$(HEART) tests/testing tests/reconciliation tests/artifact tests/test_export.py $(ARGS)"

check: lint types test test-without-fast ## lint, types and tests, also without compiled loops: what CI runs

lint: $(STAMP) ## check style, formatting, and which rooms import which
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/lint-imports --no-cache > .lint-imports.log || { cat .lint-imports.log; rm .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log

types: $(STAMP) ## check types
	@$(BIN)/pyright

format: $(STAMP) ## format the code and repair what the linter can
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

net: $(STAMP) ## compare what this tree computes with a commit: make net OLD=COMMIT ARGS="--mode rounding"
	@$(BIN)/python -m benchmarks.net --old $(OLD) $(ARGS)

mutants: $(STAMP) ## put a hundred kept faults into the code, one by one: do the tests still notice them? (20 minutes)
	@$(BIN)/python -m benchmarks.mutants check $(ARGS)

bench: $(BENCH)/.stamp ## time the algebra, a training step, prediction and streaming beside their peers, in .venv-bench
	@$(BENCH)/bin/python -m benchmarks $(ARGS)

figure: $(STAMP) ## draw the figure in the README again
	@$(BIN)/python docs/figures/readme.py

clean: ## remove caches and build products (.venv stays; delete it by hand to start afresh)
	@rm -rf .pytest_cache .ruff_cache .hypothesis .benchmarks .coverage htmlcov build dist docs/_build .cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# Peers have an environment of their own: some bring torchvision, and qpth is taken without what it asks for.
$(BENCH)/.stamp: pyproject.toml constraints.txt
	@echo "Setting up $(BENCH) with the peers (some minutes the first time) ..."
	@$(PYTHON) -m venv $(BENCH)
	@$(PIP:$(BIN)/%=$(BENCH)/bin/%) "$$(grep '^torch==' constraints.txt)"
	@$(PIP:$(BIN)/%=$(BENCH)/bin/%) --editable ".[battery,cluster,compare,parquet,tune,bench]"
	@$(PIP:$(BIN)/%=$(BENCH)/bin/%) --no-deps qpth
	@touch $@

# The stamp is written last, so an interrupted set-up is taken up again. torch comes first: its pin decides
# which build everything after it must agree with.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Equipoise needs Python 3.11 or newer, but got $(PYTHON) ($$($(PYTHON) --version 2>/dev/null || echo not found))."; \
	  echo "Name a newer interpreter: make setup PYTHON=python3.11"; exit 1; } >&2
	@echo "Setting up $(VENV) (a few minutes the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "  torch"
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@echo "  equipoise and its tools"
	@$(PIP) --editable ".[dev]"
	@touch $@
	@echo "Done. For the command 'equipoise' in this shell: . $(BIN)/activate"
