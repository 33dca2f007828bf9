# Two commands matter: `make demo` (the main job, end to end) and `make test`.
#
#   VENV    environment to use; created when missing          (default .venv)
#   PYTHON  interpreter that creates it                       (default python3)
#   TORCH   what to install when the environment has no torch (default torch==2.13.0; any pip arguments)
#   TRITON  likewise for Triton, which must match torch       (default triton==3.7.1)
#
# An environment that already has torch keeps it. Nothing is installed again until a pin changes.

VENV    ?= .venv
PYTHON  ?= python3
TORCH   ?= torch==2.13.0
TRITON  ?= triton==3.7.1
PROBLEM ?= examples/problems/bias_gelu_layernorm.py

SHELL   := /bin/bash
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check -q
STAMP   := $(VENV)/.kernelevolve-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: help install demo test test-full lint format bench-problems bench-retrieval bench-engine clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -9
	@echo "targets: demo test test-full lint format bench-problems bench-retrieval bench-engine clean"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
		|| { echo "error: Python 3.11 to 3.13 is needed; name one with 'make PYTHON=python3.12 …'"; exit 3; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "error: this Python has no venv module; install your system's python3-venv package"; exit 3; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): | $(BIN)/python
	@for c in "$$CXX" g++ clang++; do command -v "$$c" >/dev/null && exit 0; done; \
		{ echo "error: no C++ compiler found; install g++ or set CXX"; exit 3; }
	@$(BIN)/python -c 'import torch' 2>/dev/null \
		|| { echo "installing $(TORCH)"; $(PIP) install $(TORCH); }
	@$(BIN)/python -c 'import triton' 2>/dev/null \
		|| { echo "installing $(TRITON)"; $(PIP) install $(TRITON); }
	@echo "installing KernelEvolve and its pinned dependencies"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@rm -f $(VENV)/.kernelevolve-*
	@touch $@

install: $(STAMP)

demo: install
	@$(BIN)/kernelevolve init
	@$(BIN)/kernelevolve search $(PROBLEM) --target cpu --generator recipe --steps 16 --time-limit 150

test: install lint
	@$(BIN)/python -m pytest -m "not full and not gpu"

test-full: install
	@$(BIN)/python -m pytest -m "full or gpu"

lint: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: install
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench-problems: install
	@$(BIN)/python benchmarks/problems.py

$(STAMP)-bench: | $(STAMP)
	@$(PIP) install -c constraints.txt -e '.[bench]'
	@touch $@

bench-retrieval: $(STAMP)-bench
	@$(BIN)/python benchmarks/retrieval_comparison.py

$(STAMP)-bench-engine: | $(STAMP)
	@$(PIP) install -c constraints.txt -e '.[bench-engine]'
	@touch $@

bench-engine: $(STAMP)-bench-engine
	@$(BIN)/python benchmarks/engine.py

clean:
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
