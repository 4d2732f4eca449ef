# Set-up is part of every target: a clean clone needs Python 3.10 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow check clean

demo: $(READY)
	$(BIN)/omni-platforms demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# Every operator that torch tests, and real model code, on the simulated accelerator: half an hour.
test-slow: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group models
	$(BIN)/python -m pytest -m slow -n 2 --dist loadgroup

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_architecture.py

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]' --group dev
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
