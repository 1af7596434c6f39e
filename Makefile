# Every target sets up what it needs: `make train` on a fresh clone is enough.

VENV   := .venv
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup train test mutation check bench overhead faithfulness docs clean

help:            ## these lines
	@sed -n 's/^\([a-z]*\): .*## /  make \1	/p; s/^\([a-z]*\):  *## /  make \1	/p' Makefile

setup: $(READY)  ## the virtual environment that all the others use

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "anypo needs Python 3.11 or newer with its venv module:" \
	  "install it (on Debian: apt install python3 python3-venv)," \
	  "or name it: make PYTHON=/path/to/python3.12"; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)

# The stamp is written last, so an interrupted installation is taken up again.
$(READY): requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing the locked packages into $(VENV): some minutes the first time."
	$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps \
	  --no-build-isolation -e .
	@touch $@

train: setup     ## train a real language model on one-digit arithmetic, with the defaults
	$(BIN)/anypo train

test: export OMP_NUM_THREADS = 1
test: setup      ## the whole suite, the slow tests and the checks included
	$(BIN)/python -m pytest -m "" -n $(JOBS) --dist worksteal

mutation: setup  ## break every line of arithmetic, one by one, and list what no test notices
	nice -n 10 $(BIN)/python -m tests.mutation --jobs $(JOBS)

check: setup     ## lint, types, import layers, line budgets: seconds
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache  # a cached graph misses files that came later
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	$(BIN)/python -m pytest -q tests/architecture/test_budgets.py

bench: setup     ## how fast this machine is (POLICIES="tiny smollm2-135m")
	$(BIN)/python -m benchmarks $(POLICIES)

overhead: setup  ## what every recipe's arithmetic costs of an iteration of smollm2-135m
	$(BIN)/python -m benchmarks.objective_arithmetic

faithfulness: setup  ## docs/faithfulness.md and the package's own record, from the vectors; translations
	OMP_NUM_THREADS=1 $(BIN)/python -m pages

docs: setup      ## the documentation, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:           ## everything that the targets made, runs/ excepted
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
