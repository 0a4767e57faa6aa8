# From a fresh clone: `make demo` shows what this is, `make test` proves it. Nothing else is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# What is installed, from source: three packages, none of which pulls in another.
PACKAGES := packages/indelible packages/memory-contract packages/pytest-snapshot-db
PROJECTS := $(PACKAGES:%=%/pyproject.toml)
EDITABLE := --no-deps --no-build-isolation $(PACKAGES:%=--editable %)
# A locked file also constrains: without, pip takes the newest sqlalchemy for a dependency on sqlalchemy[asyncio], and then misses its hash.
LOCKED = --require-hashes --requirement $(1) --constraint $(1)
# Installs into another environment, which needs no pip of its own; of its modules, those that are imported are compiled then.
INSTALL_THERE = $(BIN)/pip --python $(@D) install --quiet --no-compile
# Older engines for the tests. Only their programs are used, so the wheels may be of any Python.
ENGINES := $(VENV)/engines
PGBOUNCER := $(VENV)/pgbouncer
OLDEST := .venv-oldest
# Frameworks that ship stores of their own, each in an environment of its own beside indelible.
FRAMEWORKS := $(patsubst requirements/frameworks/%.in,%,$(wildcard requirements/frameworks/*.in))
BESIDE := .venv-frameworks
# Those that `make test-exhaustive` installs. Those that search would take a minute (mem0) and two (CrewAI, 1.1 GB) more.
TESTED := adk strands agno
# Two for each core of the smallest machine that we build for: tests wait for disks and servers.
WORKERS ?= 4
# The quick tier takes a minute and starts no servers. Of the kit it has the tests that run no case, of goldens those of
# comparing and copying.
KIT_TESTS := packages/memory-contract/tests
GOLDEN_TESTS := packages/pytest-snapshot-db/tests
QUICK = --numprocesses $(WORKERS) -k "not redis and not postgres and not cluster" tests/test_shape.py \
	$(addprefix packages/indelible/tests/,unit behaviour) \
	$(filter-out %_agreement.py %_brute_force.py %_detection.py %_soundness.py,$(wildcard $(KIT_TESTS)/checker/test_kit_*.py)) \
	$(filter-out %_folder.py %_page.py,$(wildcard $(KIT_TESTS)/report/test_report_*.py)) \
	$(addprefix $(GOLDEN_TESTS)/test_,compare.py copy_live.py)
# The versions of Python that we support; those that pyenv or the PATH has are tested.
VERSIONS := 3.11 3.12 3.13
find_python = $(firstword $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/$(1).*/bin/python$(1)) \
	$(wildcard $(addsuffix /python$(1),$(subst :, ,$(PATH)))))
INSTALLED = $(foreach version,$(VERSIONS),$(if $(call find_python,$(version)),$(version)))
# The versions of pytest that goldens are tried on; `make test` takes the newest, `make test-exhaustive` the oldest.
PYTESTS := 8.0 8.4 9.0 newest

.PHONY: help demo quick test test-exhaustive test-pythons test-oldest test-browser test-matrix test-frameworks frameworks scoreboard soak soak-kit lint format bench bench-kit bench-scale bench-search bench-langgraph bench-peers lock clean
.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): requirements/dev.txt $(PROJECTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(call LOCKED,requirements/dev.txt)
	$(BIN)/pip install --quiet $(EDITABLE)
	@touch $@

$(ENGINES)/.ready: $(READY) requirements/engines.txt
	$(BIN)/pip install --quiet --target $(ENGINES) --upgrade --no-deps --require-hashes \
		--only-binary :all: --python-version 3.11 --requirement requirements/engines.txt
	@touch $@

# Debian's PgBouncer and its libraries, unpacked beside the engines. With lists of its own, apt needs no root.
APT := apt-get --quiet --quiet -o Dir::State::Lists=lists -o Dir::Cache=cache -o APT::Sandbox::User=root
$(PGBOUNCER)/.ready: $(READY)
	mkdir -p $(PGBOUNCER)
	cd $(PGBOUNCER) && mkdir -p lists/partial cache && $(APT) update && \
		$(APT) download pgbouncer libevent-2.1-7 libc-ares2
	for package in $(PGBOUNCER)/*.deb; do dpkg -x $$package $(PGBOUNCER) || exit 1; done
	@touch $@

demo: $(READY) ## Watch a naive store forget and indelible remember
	$(BIN)/python -m examples.demo

# Checking types and installing an environment each use one core, so they run side by side.
test: $(READY) ## Lint and the tests, on real engines and processes, but what only repeats a proof
	$(MAKE) --jobs 2 --output-sync lint test-oldest $(ENGINES)/.ready $(PGBOUNCER)/.ready
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal -m "not exhaustive"

test-exhaustive: $(READY) ## What `make test` leaves out: the same proofs on further flavours, engines and versions
	$(MAKE) --jobs 2 --output-sync $(ENGINES)/.ready $(PGBOUNCER)/.ready $(TESTED:%=$(BESIDE)/%/.ready)
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal -m exhaustive

quick: $(READY) ## What to run while you work: unit tests, and the behaviour suite on memory and SQLite
	$(BIN)/pytest $(QUICK)

# Prints at its end on which interpreters it ran.
test-pythons: $(INSTALLED:%=quick-on-%) ## The quick tier on Python 3.11, 3.12 and 3.13, if installed, also by pyenv
	@echo "The quick tier passed on Python: $(or $(INSTALLED),none)."
	@echo "Not installed: $(or $(filter-out $(INSTALLED),$(VERSIONS)),none)."
	@test -n "$(INSTALLED)"

# Kept, or make would remove the mark of a finished environment.
.PRECIOUS: $(VENV)/python-%/.ready

quick-on-%: $(VENV)/python-%/.ready
	$(VENV)/python-$*/bin/pytest $(QUICK)

$(VENV)/python-%/.ready: requirements/quick.txt $(PROJECTS) | $(READY)
	$(call find_python,$*) -m venv --clear --without-pip $(@D)
	$(INSTALL_THERE) $(call LOCKED,$<)
	$(INSTALL_THERE) $(EDITABLE)
	@touch $@

# Warnings of frameworks as old as these are not ours to mend.
test-oldest: $(OLDEST)/.ready ## The adapters with the oldest framework versions that they work with
	$(OLDEST)/bin/pytest --numprocesses $(WORKERS) -W default $(addprefix packages/indelible/tests/adapters/test_, \
		langchain.py openai_agents.py claude_agent.py llama_index.py pydantic_ai.py mcp.py)

$(OLDEST)/.ready: requirements/oldest.txt $(PROJECTS) | $(READY)
	$(PYTHON) -m venv --without-pip $(@D)
	$(INSTALL_THERE) $(call LOCKED,$<)
	$(INSTALL_THERE) $(EDITABLE)
	@touch $@

test-browser: $(READY) ## The inspector, and the page of a report, in Debian's Chromium; installs that, which needs root
	command -v chromium >/dev/null || (apt-get update --quiet && \
		DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends chromium)
	$(BIN)/pip install --quiet $(call LOCKED,requirements/browser.txt)
	$(BIN)/pytest packages/indelible/tests/browser packages/memory-contract/tests/browser

test-matrix: $(READY) ## Goldens beside other plugins, on every pytest that we support
	INDELIBLE_PYTESTS="$(PYTESTS)" $(BIN)/pytest --numprocesses $(WORKERS) packages/pytest-snapshot-db/tests/test_plugin_matrix.py

test-frameworks: $(READY) frameworks ## The kit beside every framework, also those that are too large for `make test-exhaustive`
	$(BIN)/pytest $(KIT_TESTS)/targets/test_targets_beside.py

frameworks: $(FRAMEWORKS:%=$(BESIDE)/%/.ready) ## Install the frameworks that ship stores of their own

$(BESIDE)/%/.ready: requirements/frameworks/%.txt $(PROJECTS) | $(READY)
	$(PYTHON) -m venv --without-pip $(@D)
	$(INSTALL_THERE) $(call LOCKED,$<)
	$(INSTALL_THERE) $(EDITABLE)
	@touch $@

scoreboard: $(READY) frameworks ## The kit on the frameworks' own stores; ONLY=langchain and GATE=recall for some, AGAIN=1 to compare
	$(BIN)/python -m scoreboard $(addprefix --only ,$(ONLY)) $(addprefix --gate ,$(GATE)) $(if $(AGAIN),--again)

MINUTES ?= 10
soak: $(READY) ## Every engine under load and faults for MINUTES (10); go on with SEED and CHUNK
	$(BIN)/python -m soak --minutes $(MINUTES) --record docs/soak.md \
		$(if $(SEED),--seed $(SEED)) $(if $(CHUNK),--chunk $(CHUNK))

SEEDS ?= 50
soak-kit: $(READY) ## The kit against every goldfish with SEEDS (50) seeds, each as a test; all of the fault loops
	INDELIBLE_SEEDS=$(SEEDS) INDELIBLE_SOAK=1 $(BIN)/pytest --numprocesses $(WORKERS) \
		$(KIT_TESTS)/cases/test_goldfish.py $(KIT_TESTS)/traces/test_incidents.py tests/faults

lint: $(READY) ## Style, types and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/generate_sync.py --check

format: $(READY) ## Put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## Ratios to the bare engine with their targets, in two minutes; exits 1 if one is missed
	$(BIN)/python -m benchmarks

bench-kit: $(READY) ## The same for export and import, traces and goldens: some minutes
	$(BIN)/python -m benchmarks --kit

bench-scale: $(READY) ## What grows with size: a million messages, 100,000 sessions; writes docs/scale.md
	$(BIN)/python -m benchmarks.scale

# DATA is a file of conversations with questions, in the form of LoCoMo; without it, only times are measured. The stores of up to a million
# messages take about ten minutes to build; they are kept in build/search, so that a run that was stopped continues, and the next one only searches.
bench-search: $(READY) ## What search finds and how long it takes; writes docs/search-figures.md
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement requirements/search.txt
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.search $(DATA) --stores build/search

# PEERS="--quick --only redis" and the like; see `python -m benchmarks.peers --help`.
# A second run: PEERS="--into DIR --compare benchmarks/results/peers-*.json.gz" says whether it agrees.
bench-peers: $(READY) frameworks ## indelible beside stores of other projects; writes docs/performance.md
	$(BIN)/python -m benchmarks.peers $(PEERS)

bench-langgraph: $(BESIDE)/langgraph/.ready ## Checkpointers of LangGraph side by side; writes docs/langgraph-figures.md
	$(BESIDE)/langgraph/bin/python -m benchmarks.langgraph

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header

lock: $(READY) ## Renew requirements/*.txt, with hashes and without any host
	$(BIN)/pip install --quiet uv
	$(BIN)/$(LOCK) --output-file requirements/dev.txt requirements/dev.in
	$(BIN)/$(LOCK) --output-file requirements/quick.txt requirements/quick.in
	$(BIN)/$(LOCK) --output-file requirements/browser.txt requirements/browser.in
	$(BIN)/$(LOCK) --no-deps --output-file requirements/engines.txt requirements/engines.in
	$(BIN)/$(LOCK) --no-deps --output-file requirements/search.txt requirements/search.in
	for version in $(PYTESTS); do $(BIN)/$(LOCK) --output-file requirements/matrix/pytest-$$version.txt \
		requirements/matrix/pytest-$$version.in || exit 1; done
	$(BIN)/$(LOCK) --output-file requirements/oldest.txt requirements/oldest.in
	for name in $(FRAMEWORKS); do $(BIN)/$(LOCK) --output-file requirements/frameworks/$$name.txt \
		requirements/frameworks/$$name.in || exit 1; done

clean: ## Remove what was made
	rm -rf $(VENV) $(OLDEST) $(BESIDE) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
