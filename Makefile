# Two commands set everything up: `make demo` and `make test`. Both need only Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := requirements/constraints.txt
UV := $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check)

.PHONY: demo test lint format docs-demo lock clean

demo: $(VENV)/.base
	@$(BIN)/mineru parse demo/paper.pdf demo/contract_scan.pdf -o output --overwrite
	@echo "Markdown: output/paper/paper.md and output/contract_scan/contract_scan.md"

test: $(VENV)/.dev
	$(BIN)/python -m pytest --ignore tests/server
	$(BIN)/python -m pytest tests/server --numprocesses 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Write the demo documents and their ground truth again (they are committed; the bytes do not change).
docs-demo: $(VENV)/.dev
	$(BIN)/python demo/make_demo.py

# Resolve all dependencies anew and pin what was tested.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade pip
	build/lock/bin/python -m pip install --quiet '.[dev,serve,report]'
	build/lock/bin/python -m pip freeze --exclude mineru --exclude pip --exclude setuptools > $(CONSTRAINTS)

clean:
	rm -rf $(VENV) build output .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(if $(UV),$(UV) venv --quiet --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

$(VENV)/.base: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(INSTALL) -c $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(INSTALL) -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@ $(VENV)/.base
