# `make` shows the targets. The first one that needs it makes .venv and installs everything into it.
# PYTHON=/path/to/python3 chooses the interpreter, ARGS="..." is passed on to the command.

.DEFAULT_GOAL := help
.PHONY: help train test test-pages check lint types bench proofs zoo docs site clean

PYTHON ?=
ARGS ?=
# Processes of the tests, one more than cores, since some wait for processes of their own; make WORKERS=0 test runs
# them in one.
WORKERS ?= $(shell expr $$(nproc) + 1)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Tests of what stands beside the product: pages and their programs, evidence, comparisons with other libraries.
BESIDE := tests/docs tests/proofs tests/benchmarks
VENV := .venv
# The tools of the site need nothing of minding: they read its sources.
SITE := build/site-env
SITE_TOOLS := 'zensical>=0.0.73,<0.1' 'mkdocstrings[python]>=1,<2'
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CANDIDATES := $(or $(PYTHON),python3.12 python3.11 python3.10 python3)
# A shim or a stripped distribution package may be on the PATH and not work: each candidate is really run.
USABLE := import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

train: $(INSTALLED) ## train CartPole-v1 with PPO (ten seconds)
	$(BIN)/minding train cartpole_ppo $(ARGS)

# The tests start hundreds of processes, which import faster with bytecode, whatever the environment says.
test test-pages check: export PYTHONDONTWRITEBYTECODE =

test: lint types ## lint, types and all tests of the product, also the slow ones
	$(PYTEST) $(addprefix --ignore=,$(BESIDE)) $(ARGS)

test-pages: $(INSTALLED) ## the tests of pages, evidence and benchmarks
	$(PYTEST) $(BESIDE) $(ARGS)

check: lint types ## lint, types and the fast tests
	$(PYTEST) $(addprefix --ignore=,$(BESIDE)) -m "not slow" $(ARGS)

lint: $(INSTALLED) ## ruff, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED) ## mypy
	$(BIN)/mypy

bench: $(INSTALLED) ## speed against other libraries, and how it grows (about 40 minutes)
	$(BIN)/python -m benchmarks.run $(ARGS)
	test -f docs/results/async_overlap.json || $(BIN)/python -m benchmarks.async_overlap
	test -f benchmarks/results/scaling.json || $(BIN)/python -m benchmarks.scaling
	test -f benchmarks/results/dreamer.json || $(BIN)/python -m benchmarks.dreamer

proofs: $(INSTALLED) ## the long evidence (hours; continues where it stopped); with ARGS only the runs that it selects
	$(BIN)/python -m proofs.run $(ARGS)
ifeq ($(strip $(ARGS)),)
	test -f docs/results/switch.json || $(BIN)/python -m proofs.switch
	test -f docs/images/pendulum_coverage.png || $(BIN)/python -m proofs.coverage
	test -f docs/results/defaults.json || $(BIN)/python -m proofs.defaults
	$(BIN)/python -m proofs.kills
	test -f docs/results/crashes.json || $(BIN)/python -m proofs.crashes
	test -f docs/results/forged.json || $(BIN)/python -m proofs.forged
	test -f docs/results/faults.json || $(BIN)/python -m proofs.faults faults
	test -f docs/results/async_speeds.json || $(BIN)/python -m proofs.soak speeds
	test -f docs/results/async_kills.json || $(BIN)/python -m proofs.soak kills
	$(BIN)/python -m proofs.repeated_runs
	test -f docs/results/signals.json || $(BIN)/python -m proofs.faults signals
endif

zoo: $(INSTALLED) ## train the agents of zoo/ that are missing (all of them: 10 minutes)
	$(BIN)/python -m proofs.zoo $(ARGS)

docs: $(INSTALLED) ## write the tables that come from the code into docs
	$(BIN)/python docs/generate.py

site: ## build the documentation as a site in build/site/html
	@test -x $(SITE)/bin/zensical || { $(or $(PYTHON),python3) -m venv $(SITE) && \
	  $(SITE)/bin/python -m pip install --no-input --disable-pip-version-check --quiet $(SITE_TOOLS); }
	$(SITE)/bin/python docs/site.py build/site
	$(SITE)/bin/zensical build --strict --config-file build/site/en/mkdocs.yml
	$(SITE)/bin/zensical build --strict --config-file build/site/zh/mkdocs.yml
	rm -rf build/site/html && cp -r build/site/en/html build/site/html && cp -r build/site/zh/html build/site/html/zh

clean: ## remove caches and build products; keeps .venv and runs
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml setup.py constraints.txt $(wildcard policies/kernels/*.cpp policies/kernels/*.h)
	@if ! $(BIN)/python -c '$(USABLE)' >/dev/null 2>&1; then \
	  for python in $(CANDIDATES); do \
	    if "$$python" -c '$(USABLE)' >/dev/null 2>&1; then \
	      echo "$$("$$python" --version) in $(VENV)"; \
	      exec "$$python" -m venv --clear $(VENV); \
	    fi; \
	  done; \
	  echo "make: no usable Python among: $(CANDIDATES). minding needs Python 3.10, 3.11 or 3.12 with venv" >&2; \
	  echo "      (Debian: apt install python3-venv), or make PYTHON=/path/to/python3 ..." >&2; \
	  exit 1; \
	fi
	$(BIN)/python -m pip install --no-input --disable-pip-version-check --quiet -c constraints.txt -e '.[dev]'
	@touch $@
