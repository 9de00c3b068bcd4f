# Every target sets up all that it needs from a bare checkout: Python 3.11+, git and make suffice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cksum < pyproject.toml | cut -d' ' -f1)
SEEDS ?= 300
JOBS ?= 2
ARGS ?=

.PHONY: help setup lint format tools test bench soak sim demo clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | awk -F'|' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing dependencies into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[local,dev]'
	@touch $@

setup: $(STAMP) ## create .venv with everything

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

tools: setup ## what tests run: Chromium, Prometheus; by Go a Kubernetes control plane, kustomize, helm, h2spec, gRPC clients (15-25 min, once)
	-$(BIN)/python -m tests.packages
	$(BIN)/python -m tests.kustomize
	$(BIN)/python -m tests.go_tools
	$(BIN)/python -m tests.control_plane.build

# JOBS files at a time, in this order: most tests of whole fleets wait. JOBS=0 is one process.
PYTEST := pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# With ARGS='-k NAME' one of the two halves may well have nothing of that name (pytest's exit code 5).
NONE_IS_FINE := $(if $(ARGS),|| test $$? -eq 5)

test: setup ## the sources: unit, contract, simulation; then compiled, as an image runs them: unit, integration, end-to-end
	$(BIN)/python -m $(PYTEST) tests/unit tests/contract tests/sim $(ARGS) $(NONE_IS_FINE)
	$(BIN)/python -m tests.compiled --run $(PYTEST) --import-mode=append \
		tests/unit tests/integration tests/e2e $(ARGS) $(NONE_IS_FINE)

sim: setup ## the whole fleet in virtual time: SEEDS=300 runs with faults, or ARGS='--seed N' to replay one
	$(BIN)/python -m tests.sim --seeds $(SEEDS) $(ARGS)

demo: setup ## a whole fleet on this machine, with faults, and what came of the traffic
	$(BIN)/epp-fleet demo $(ARGS)

bench: setup ## performance table, also as build/bench.json
	$(BIN)/python -m tests.bench $(ARGS)

soak: setup ## figures of a whole fleet on a real control plane (35 min; ONLY=moves, kill, hundred, ...: see --help)
	$(BIN)/python -m tests.soak $(if $(ONLY),--only $(ONLY)) $(ARGS)

clean: ## remove everything that make created
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
