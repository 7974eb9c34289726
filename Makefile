# `make run` and `make test` need Python 3.11 or newer, and nothing else. `make e2e` needs
# Go, too, and minutes the first time.
#
# The first target sets up .venv; later ones use it until pyproject.toml or
# constraints.txt changes. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# How many seconds `make run` runs; empty for "until Ctrl-C".
FOR ?=
# Further arguments, for whatever the target starts.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test check e2e bench clean

help: ## List the targets
	@sed -n 's/^\([a-z0-9]*\):.* ## /\1\t/p' Makefile | sort | while read -r name text; \
	  do printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: $(READY) ## Create .venv with everything, exactly as pinned

run: $(READY) ## Run the demo; FOR=5 ends it after 5 seconds
	@$(BIN)/aioinformer demo $(if $(FOR),--for $(FOR)) $(ARGS)

test: $(READY) ## Run the test suite; ARGS="-k queue" and the like are passed on
	@scripts/test $(ARGS)

check: $(READY) ## Run every check: format, lint, layers, types, tests, coverage
	@scripts/check

e2e: $(READY) ## Test against a real kube-apiserver, which it builds: this needs Go
	@$(BIN)/python tests/e2e/cluster.py run -- scripts/e2e $(ARGS)

bench: $(READY) ## Measure ours and its peers side by side; ARGS="--quick" for a look
	@$(BIN)/python benchmarks/run.py $(ARGS)

clean: ## Remove .venv and everything that tools left here
	rm -rf $(VENV) dist build .coverage .coverage.* .hypothesis .import_linter_cache \
	  .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, and an interrupted set-up begins again from nothing: a
# half-installed .venv never counts as ready.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no $(PYTHON) here. aioinformer needs Python 3.11 or newer:"; \
	  echo "name one with make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "aioinformer needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; } >&2
	@echo "Setting up $(VENV) (about a minute, once) ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "No virtual environment could be made. On Debian and Ubuntu: apt install python3-venv"; \
	  rm -rf $(VENV); exit 1; } >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[all,dev]'
	@touch $(READY)
