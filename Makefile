# Everything runs in .venv, made from pyproject.toml and constraints.txt; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 1
SCHEDULES ?= 10000

.PHONY: help install install-dev run cluster test test-slow faults bench soak check lint types contracts clean

help:
	@echo "make run        set up and run the default experiment"
	@echo "make cluster    set up and run five real peers on this machine"
	@echo "make test       set up with the test tools and run the tests"
	@echo "make install    set up alone"
	@echo "make check      lint, types, import contracts and tests"
	@echo "make test-slow  the tests that take long"
	@echo "make faults     peers under 10,000 schedules of faults, about ten minutes: SCHEDULES=100000 for more"
	@echo "make bench      all benchmarks, about an hour: results in benchmarks/"
	@echo "make soak       real peers for half an hour at ten times real time: do they hold more and more memory?"
	@echo "make clean      remove the set-up and the caches, not the runs"

install: $(VENV)/installed
install-dev: $(VENV)/installed-dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, and $(PYTHON) is older: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/installed

run: install
	$(BIN)/draco run poker --seed $(SEED)

$(VENV)/installed-net: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[net]'
	@touch $@ $(VENV)/installed

cluster: $(VENV)/installed-net
	$(BIN)/draco cluster poker

test: install-dev
	$(BIN)/python -m pytest -m "not slow" -n 2 --cov --cov-report=term

test-slow: install-dev
	$(BIN)/python -m pytest -m slow -n 2

faults: install-dev
	PYTHONPATH=tests $(BIN)/python -m faults --schedules $(SCHEDULES) --seed $(SEED)

bench: install-dev
	$(BIN)/python -m benchmarks

soak: install-dev
	$(BIN)/python -m benchmarks.soak

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-dev
	$(BIN)/mypy

contracts: install-dev
	$(BIN)/lint-imports

check: lint types contracts test

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
