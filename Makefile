# From a fresh clone: `make demo` shows what this is, `make test` proves it. Nothing else is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
OLDEST := .venv-oldest
# Two workers: what the smallest machine that we build for has cores.
WORKERS ?= 2

.PHONY: help demo test test-oldest test-browser soak lint format bench lock clean
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

# Warnings of frameworks as old as these are not ours to mend.
test-oldest: $(OLDEST)/.ready ## The adapters with the oldest framework versions that they work with
	$(OLDEST)/bin/pytest --numprocesses $(WORKERS) -W default $(addprefix tests/adapters/test_, \
		langchain.py openai_agents.py claude_agent.py llama_index.py pydantic_ai.py mcp.py)

$(OLDEST)/.ready: requirements/oldest.txt pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --require-hashes --requirement requirements/oldest.txt
	$(OLDEST)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

test-browser: $(READY) ## The page of a report in Debian's Chromium; installs that, which needs root
	command -v chromium >/dev/null || (apt-get update --quiet && \
		DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends chromium)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/browser.txt
	$(BIN)/pytest tests/browser

soak: $(READY) test-oldest ## The kit against every goldfish and every right store, with 50 seeds; oldest frameworks
	INDELIBLE_SEEDS=50 $(BIN)/pytest --numprocesses $(WORKERS) tests/kit/test_goldfish.py

lint: $(READY) ## Style, types and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## Ratios to the bare engine, within one run; exits 1 if one is missed
	$(BIN)/python -m benchmarks

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header

lock: $(READY) ## Renew requirements/*.txt, with hashes and without any host
	$(BIN)/pip install --quiet uv
	$(BIN)/$(LOCK) --output-file requirements/dev.txt requirements/dev.in
	$(BIN)/$(LOCK) --output-file requirements/browser.txt requirements/browser.in
	$(BIN)/$(LOCK) --output-file requirements/oldest.txt requirements/oldest.in

clean: ## Remove what was made
	rm -rf $(VENV) $(OLDEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
