# `make run` and `make test` need only Python 3.11 or newer. `make e2e` also needs Go, and
# several minutes for the first build.
#
# The first target sets up .venv: `make run` installs what the demo needs, other targets add
# the dependency group that they need. .venv is set up again when pyproject.toml or
# constraints.txt changes. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps of the set-up: for the demo, and with a dependency group on top.
RUN := $(VENV)/.ready-run
DEV := $(VENV)/.ready-dev
# Python compiles the modules that it imports. Compiling all of them now takes much longer.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
  --constraint constraints.txt

# Duration of `make run` in seconds; empty to run until Ctrl-C.
FOR ?=
# Further arguments for the command of the target.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test check e2e bench dist docs clean same-python
# Two installations must not change .venv at the same time.
.NOTPARALLEL:

help: ## List the targets
	@sed -n 's/^\([a-z0-9]*\):.* ## /\1\t/p' Makefile | sort | while read -r name text; \
	  do printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: $(DEV) ## Create .venv with the pinned versions

run: $(RUN) ## Run the demo; FOR=5 stops it after 5 seconds
	@$(BIN)/aioinformer demo $(if $(FOR),--for $(FOR)) $(ARGS)

test: $(DEV) ## Run the test suite; pass arguments to pytest with ARGS="-k queue"
	@scripts/test $(ARGS)

check: $(DEV) ## Run every check: format, lint, layers, types, tests, coverage
	@scripts/check

e2e: $(DEV) ## Build a real kube-apiserver and test against it; needs Go
	@$(BIN)/python tests/e2e/cluster.py run -- scripts/e2e $(ARGS)

bench: $(DEV) ## Compare with other clients; ARGS="--quick" for a short run
	@$(BIN)/python benchmarks/run.py $(ARGS)

dist: $(DEV) $(VENV)/.ready-dist ## Build what is published, and check it
	@scripts/dist

docs: $(VENV)/.ready-docs ## Build the documentation site in build/site, and check it
	@scripts/docs $(ARGS)

clean: ## Remove .venv and the files of all tools
	rm -rf $(VENV) dist build .coverage .coverage.* .hypothesis .import_linter_cache \
	  .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so an interrupted set-up starts over: a half-installed .venv
# never counts as ready.
$(RUN): pyproject.toml constraints.txt | same-python
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) not found. aioinformer needs Python 3.11 or newer."; \
	  echo "Choose one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "aioinformer needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Choose another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@echo "Setting up $(VENV) (about 15 seconds, once) ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Cannot create a virtual environment. On Debian and Ubuntu: apt install python3-venv"; \
	  rm -rf $(VENV); exit 1; } >&2
	@$(INSTALL) --editable '.[cli]'
	@touch $@

# An existing .venv keeps its Python, so another one that the caller names would be ignored.
same-python:
ifneq ($(origin PYTHON),file)
	@[ ! -x $(BIN)/python ] || \
	  [ "$$($(PYTHON) -VV 2>&1)" = "$$($(BIN)/python -VV 2>&1)" ] || { \
	  echo "$(VENV) has $$($(BIN)/python --version 2>&1), which is not that of $(PYTHON)."; \
	  echo "Remove it first: make clean"; exit 1; } >&2
endif

# Older versions of pip, which Python ships, do not know dependency groups.
$(VENV)/.ready-%: $(RUN)
	@echo "Installing the dependency group $* (about a minute, once) ..."
	@$(INSTALL) pip
	@$(INSTALL) --editable '.[all]' --group $*
	@touch $@
