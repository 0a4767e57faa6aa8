# From a fresh clone: `make demo` shows what this is, `make test` proves it. Nothing else is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Two workers: what the smallest machine that we build for has cores.
WORKERS ?= 2

.PHONY: help demo test lint format bench lock clean
.DEFAULT_GOAL := help

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## Watch a naive store forget and indelible remember
	$(BIN)/indelible demo

test: $(READY) lint ## Everything that must hold, on real engines and processes
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

lint: $(READY) ## Style, types and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## Ratios to the bare engine, within one run; exits 1 if one is missed
	$(BIN)/python -m benchmarks

lock: $(READY) ## Renew requirements/dev.txt, with hashes and without any host
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header \
		--output-file requirements/dev.txt requirements/dev.in

clean: ## Remove what was made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
