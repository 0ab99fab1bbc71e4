# The two commands of the README are `make demo` and `make test`.
PYTHON := .venv/bin/python
BUILD := build

.PHONY: help setup plugin demo test fast lint bench-allocator bench-rescale clean

help:
	@echo "make demo    an eight-node Slurm on this host, and a training job that lives in its holes"
	@echo "make test    every test, the real-Slurm ones included (make fast: without those)"
	@echo "make lint    format, types, imports, Lua, shell"
	@echo "make clean   remove what was built; the environment in .venv stays"

setup:
	@packaging/install-missing.sh

plugin: setup
	@$(MAKE) --no-print-directory -C plugins/spank BUILD_DIR=$(CURDIR)/$(BUILD)/spank all

demo: plugin
	@$(PYTHON) examples/demo/run.py $(DEMO_ARGS)

test: plugin lint
	@$(PYTHON) -m pytest $(PYTEST_ARGS)

fast: setup
	@$(PYTHON) -m pytest -m "not slurm and not torch" $(PYTEST_ARGS)

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@luacheck --quiet --config plugins/lua/.luacheckrc plugins/lua tests/lua
	@shellcheck slurm_hooks/hooks/*.sh packaging/*.sh

bench-allocator: setup
	@$(PYTHON) benchmarks/allocator.py

bench-rescale: setup
	@$(PYTHON) benchmarks/rescale.py $(BENCH_ARGS)

clean:
	rm -rf $(BUILD) dist demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
