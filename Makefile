# Set-up is part of every target: a clean clone needs Python 3.10 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# On a vendor's machine, TORCH=system keeps the torch that the vendor installed.
TORCH ?= constraints

SIMULATED := npu xpu musa sim
HARDWARE := cuda rocm npu xpu musa
CONFORM := $(BIN)/omni-platforms conform

.PHONY: demo test test-slow check clean conform conform-cpu example docs support changelog dist api-check api-record
.PHONY: $(SIMULATED:%=conform-%) $(HARDWARE:%=hardware-%)

demo: $(READY)
	$(BIN)/omni-platforms demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# Every operator that torch tests, and real model code, on the simulated accelerator: half an hour.
test-slow: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group models
	$(BIN)/python -m pytest -m slow -n 2 --dist loadgroup

# The conformance suite: what needs no hardware, each device by itself, and each vendor's hardware.
conform: conform-cpu $(SIMULATED:%=conform-%)

conform-cpu: $(READY)
	$(CONFORM) cpu --report reports/cpu

$(SIMULATED:%=conform-%): conform-%: $(READY)
	$(CONFORM) $* --simulate --report reports/$*-simulated

$(HARDWARE:%=hardware-%): hardware-%: $(READY)
	$(CONFORM) $* --require-device --report reports/$*

# A plugin from its wheel, beside the core's wheel, in a fresh environment outside the checkout.
example: $(READY)
	rm -rf build/example && mkdir -p build/example
	$(BIN)/python -m hatchling build -t wheel -d build/example
	cd examples/omni_platforms_acme && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/build/example
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder/venv" \
		&& "$$folder/venv/bin/python" -m pip install --quiet --no-compile --constraint constraints.txt \
			"$$(echo build/example/omni_platforms-*.whl)[conformance]" build/example/omni_platforms_acme-*.whl \
		&& (cd "$$folder" && venv/bin/omni-platforms conform acme --simulate --report $(CURDIR)/reports/acme)

# The pages and the reference, in build/docs. A warning is an error.
docs: $(READY)
	$(BIN)/python -m sphinx --fresh-env --write-all --fail-on-warning --keep-going --quiet -b html docs build/docs
	@echo "build/docs/index.html"

# The tables of docs/support.md and README.md, from a new run of the conformance suite.
support: conform
	$(BIN)/python tools/support_matrix.py reports/*/conformance.json docs/conformance/*-*.json

# What the next release will say is new.
changelog: $(READY)
	$(BIN)/towncrier build --draft --version next

# What a release uploads, and whether it is as it should be.
dist: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group release
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tools/check_dist.py dist

# What breaks in the public interface since the record in tools/api; and to keep it anew.
api-check: $(READY)
	$(BIN)/python tools/check_api.py

api-record: $(READY)
	$(BIN)/python tools/check_api.py --write $(RELEASE)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_architecture.py

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Python 3.10 or newer is needed; name one with: make PYTHON=python3.12"; exit 1; }
ifeq ($(TORCH),system)
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[conformance]'
else
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[demo,ray]' --group dev
	@# pip compiles on one core. A file that is no Python of this version is no reason to stop.
	-@$(BIN)/python -m compileall -q -j 0 "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
endif
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist reports demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
