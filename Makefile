# The other targets call `setup`; it does nothing when .venv is up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DOCS_STAMP := $(VENV)/.docs-ready
PACKAGE_STAMP := $(VENV)/.package-ready
DEEPSPEED_STAMP := $(VENV)/.deepspeed-ready
TYPES_LOG := $(VENV)/types.log
RELEASE ?= $(shell . /etc/os-release && echo $$VERSION_CODENAME)

WHEELS ?= dist
.PHONY: setup demo test test-slow test-releases collect check docs man packages wheel hooks screenshots bench fidelity proto clean
.DEFAULT_GOAL := help
# Tests start hundreds of Python processes, each of which would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE
# A story of tests/campaign takes another course with each order of sets: every run of the tests plays the same ones.
export PYTHONHASHSEED ?= 0

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup      a virtual environment in .venv with everything pinned
setup: $(STAMP)

TYPED := $(wildcard simulator/kernel/*.pxd policies/learned/sched2/state/*.pxd)

$(STAMP): pyproject.toml constraints.txt setup.sh setup.py $(TYPED) $(TYPED:.pxd=.py)
	@PYTHON=$(PYTHON) ./setup.sh $(VENV)
	@touch $@

# What builds the documentation site is installed when it is first needed.
$(DOCS_STAMP): $(STAMP)
	@./setup.sh $(VENV) docs
	@touch $@

# And what builds the packages.
$(PACKAGE_STAMP): $(STAMP)
	@./setup.sh $(VENV) package
	@touch $@

# And what tests of DeepSpeed need.
$(DEEPSPEED_STAMP): $(STAMP)
	@./setup.sh $(VENV) deepspeed
	@touch $@

## make demo       twelve training jobs on a real mini-cluster, with Headway and without it beside (PAGE=1: and its web page at the end)
demo: setup
	@$(BIN)/python -m slurm.demo $(if $(PAGE),--page)

## make test       every check and every test; it says first which tests will be skipped, and why
test: setup $(DOCS_STAMP)
	@$(BIN)/python -m slurm.prerequisites --install-if-root
	@echo "tests that take minutes will be left out: \`make test-slow\` runs them" >&2
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target collect $(filter-out check-types,$(CHECKS:%=check-%))
	# Eight at a time, on two cores too: tests on a real Slurm wait most of the time. tests/file_order.py has the order of the files;
	# by default those with the fewest tests would come last. mypy, which takes more than a minute of a core, runs while they wait.
	@$(BIN)/mypy >$(TYPES_LOG) 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -m "not slow" --numprocesses 8 --dist loadfile --no-loadscope-reorder --durations 15; tests=$$?; \
	wait $$types; typed=$$?; cat $(TYPES_LOG); exit $$((tests || typed))

# Every process of the tests imports all of them. The first import compiles them, which all processes would do at once.
collect: setup
	@found=$$($(BIN)/python -m pytest -m "not slow" --collect-only --quiet --quiet) || { echo "$$found"; exit 1; }

test-slow: setup $(PACKAGE_STAMP) $(DEEPSPEED_STAMP)
	$(BIN)/python -m slurm.prerequisites --install-if-root
	$(BIN)/python -m pytest -m slow

## make test-releases  Slurm 22.05, 24.11 and 26.05 in Debian roots of their own, and Headway in them (root; an hour or more)
test-releases: setup
	$(BIN)/python -m tests.releases

## make check      ruff, mypy --strict, order of the folders, generated code and docs up to date
CHECKS := lint format types imports protos settings
.PHONY: $(CHECKS:%=check-%)
check: $(CHECKS:%=check-%)

# .pre-commit-config.yaml runs the same.
check-lint: setup
	$(BIN)/ruff check .
check-format: setup
	$(BIN)/ruff format --check .
check-types: setup
	$(BIN)/mypy
check-imports: setup
	PYTHONPATH=headway_job/src:headway_client/src $(BIN)/lint-imports
check-protos: setup
	$(BIN)/python -m protos.generate --check
check-settings: setup
	$(BIN)/python -m controller.daemon.config_docs --check

## make hooks      have git run the checks before each commit
hooks: setup
	$(BIN)/pre-commit install

## make docs       the documentation site, in build/docs
docs: setup $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/docs/index.html"

## make man        manual pages and shell completions of all programs, in build/share
man: setup
	@$(BIN)/python -m policies.serving.manual --out build/share

## make packages   .deb, .rpm and SBOM in dist/, for this release of Debian (RELEASE=trixie: another); as root, with debootstrap
packages: setup $(PACKAGE_STAMP)
	@systemd/packages/build.sh $(RELEASE) dist

## make wheel      wheels of Headway and of its two libraries for users, in dist/, for this Python
wheel: setup
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEELS) . ./headway_client ./headway_job
	@rm -rf headway_client/build headway_job/build headway_job/*.egg-info

## make screenshots  the pictures of the web page in docs/, from a made-up cluster; needs chromium
screenshots: setup
	$(BIN)/python -m tests.unit.controller.web.screenshots

## make bench      the figures of docs/benchmarks.md; JSON into bench-results/
bench: setup
	$(BIN)/python -m tests.bench

## make fidelity   real training jobs on a mini-cluster against the simulator (docs/fidelity.md; a quarter of an hour)
fidelity: setup
	$(BIN)/python -m slurm.prerequisites --install-if-root
	@mkdir -p bench-results
	$(BIN)/headway-minicluster fidelity --out bench-results/fidelity-measured.json

## make proto      generated code from protos/
proto: setup
	$(BIN)/python -m protos.generate

clean:
	rm -rf $(VENV) build dist bench-results .mypy_cache .ruff_cache .pytest_cache
