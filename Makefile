# The other targets call `setup`; it does nothing when .venv is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test test-slow check bench fidelity proto clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup      a virtual environment in .venv with everything pinned
setup: $(STAMP)

TYPED := $(wildcard simulator/kernel/*.pxd policies/learned/sched2/state/*.pxd)

$(STAMP): pyproject.toml constraints.txt setup.sh setup.py $(TYPED) $(TYPED:.pxd=.py)
	@PYTHON=$(PYTHON) ./setup.sh $(VENV)
	@touch $@

## make demo       twelve training jobs on a real mini-cluster, with Headway and without it beside
demo: setup
	@$(BIN)/python -m slurm.demo

## make test       every check and every test (those on a real Slurm where root allows)
test: setup check
	$(BIN)/python -m slurm.prerequisites --install-if-root
	# Three at a time, on two cores too: half of the tests wait for a real Slurm most of the time.
	$(BIN)/python -m pytest -m "not slow" --numprocesses 3 --dist loadfile --durations 15

test-slow: setup
	$(BIN)/python -m slurm.prerequisites --install-if-root
	$(BIN)/python -m pytest -m slow

## make check      ruff, mypy --strict, order of the layers, generated code and docs up to date
check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m protos.generate --check
	$(BIN)/python -m controller.daemon.config_docs --check

## make bench      the figures of docs/benchmarks.md; JSON into bench-results/
bench: setup
	$(BIN)/python -m tests.bench

## make fidelity   real training jobs on a mini-cluster against the simulator (docs/fidelity.md; a quarter of an hour)
fidelity: setup
	$(BIN)/python -m slurm.prerequisites --install-if-root
	$(BIN)/python -m tests.fidelity

## make proto      generated code from protos/
proto: setup
	$(BIN)/python -m protos.generate

clean:
	rm -rf $(VENV) build dist bench-results .mypy_cache .ruff_cache .pytest_cache
