# make app    the app, in a browser, on this machine only
# make test   format, lint, types and all tests
# make bench  the figures of README.md, measured again
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: app test lint bench clean

app: $(VENV)/.installed
	@$(BIN)/simkv app

test: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(BIN)/python -m simkv.warm all
	$(BIN)/pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

bench: $(VENV)/.installed
	$(BIN)/python -m simkv.bench

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis test-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: nothing is installed again until pyproject.toml or constraints.txt changes.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing simkv into $(VENV) (some minutes the first time)"
	@$(PIP) -e .
	@$(BIN)/python -m simkv.warm
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need"
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "simkv needs Python 3.11 or newer, and there is no '$(PYTHON)' here. Install it, or name one: make app PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "simkv needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V). Name a newer one: make app PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "This Python cannot make virtual environments. On Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@touch $@
