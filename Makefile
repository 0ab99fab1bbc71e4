PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest --again
BUILD := build
# Debian packages on top of what the other tests need; only sandboxes start MariaDB and slurmdbd.
FOR_SITES := mariadb-server slurmdbd
FOR_METRICS := prometheus
FOR_MACHINES := mmdebstrap user-mode-linux e2fsprogs iproute2 openssh-client qemu-system-x86
FOR_ENGINES := octave openmpi-bin libopenmpi-dev mpich openjdk-17-jre-headless chromium
WORKERS := $(shell n=$$(nproc); echo $$((n < 6 ? 3 * n : 16)))
EVERYWHERE := not prometheus and not browser and not package and not frameworks and not engines and not abuse and not faults and not machines and not gpu
TOGETHER := -n $(WORKERS) --dist loadscope --no-loadscope-reorder

# Programs are started thousands of times by tests. Without bytecode each start compiles all sources.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup plugin demo test fast debian-packages environments test-sites test-matrix faults search lint docs site \
	install clean test-nightly test-pyslurm test-gpu test-frameworks test-programs test-engines test-metrics test-browser rpm deb package-tools \
	package-lock wheel test-packages test-machines abuse fuzz soak

help:
	@echo "Try it"
	@echo "  demo       a Slurm of eight nodes on this host, and a training in its holes"
	@echo "Test it"
	@echo "  fast       the tests without a real Slurm: two minutes"
	@echo "  test       those with a real Slurm too, but for the night's: 16 minutes"
	@echo "  search     properties with new examples: LIVES=3000"
	@echo "  faults     Slurm and ours broken on purpose"
	@echo "  abuse      attacks by an ordinary user; root only"
	@echo "  fuzz       damaged texts for every parser: FUZZ_ARGS=\"--inputs 1000000\""
	@echo "  test-X     nightly, sites, metrics, browser, packages, engines (4 GB),"
	@echo "             frameworks (2 GB), programs (2 GB), matrix (root only), machines (root only), gpu,"
	@echo "             pyslurm SLURM_SOURCE=FILE"
	@echo "Change it"
	@echo "  lint       format, types, imports, Lua, shell, plain words, links"
	@echo "  docs       write generated pages and diagrams"
	@echo "  site       the documents as pages for a browser: build/site/index.html"
	@echo "  clean      remove what was built; .venv stays"
	@echo "Measure it"
	@echo "  bench-X    a benchmark: BENCH_ARGS=--help; an unknown X lists all"
	@echo "  soak       a day of a real machine in 24 minutes"
	@echo "Package it"
	@echo "  rpm, deb   packages in dist/; package-lock pins their libraries"
	@echo "  wheel      for a user whose site has installed nothing, in dist/"
	@echo "  install    DESTDIR=DIR BINDIR=DIR; enables nothing"

setup:
	@packaging/install-missing.sh

plugin: setup
	@$(MAKE) --no-print-directory -C plugins/spank BUILD_DIR=$(CURDIR)/$(BUILD)/spank all

demo: plugin
	@$(PYTHON) examples/demo/run.py $(DEMO_ARGS)

# Many at a time, since real Slurms mostly wait; each worker keeps one. One after the other: PYTEST_ARGS=-n0
test: plugin
	@$(PYTEST) -m "$(EVERYWHERE) and not nightly" --ignore=tests/sites $(TOGETHER) $(PYTEST_ARGS)

test-nightly: plugin
	@$(PYTEST) -m "$(EVERYWHERE) and nightly" --ignore=tests/sites $(TOGETHER) $(PYTEST_ARGS)

test-sites:
	@packaging/install-missing.sh $(FOR_SITES)
	@$(MAKE) --no-print-directory plugin
	@$(PYTEST) tests/sites $(TOGETHER) -n 3 $(PYTEST_ARGS)

fuzz: setup
	@PYTHONPATH=.:tests $(PYTHON) tests/fuzz/run.py $(FUZZ_ARGS)

abuse: plugin
	@PYTHONPATH=.:tests $(PYTHON) tests/abuse/run.py $(PYTEST_ARGS)

# Slurm, its daemons and ours broken on purpose: one table, and one JSON object as the last line.
faults:
	@packaging/install-missing.sh libfaketime $(FOR_SITES)
	@$(MAKE) --no-print-directory plugin
	@$(PYTEST) tests/faults -q -n 2 --dist loadfile $(PYTEST_ARGS)

search: setup
	@HYPOTHESIS_PROFILE=search LIVES=$(or $(LIVES),3000) $(PYTHON) -m pytest -k "properties or model or curves or solvers" -m "not slurm and not torch and not package" $(PYTEST_ARGS)

fast: setup
	@$(PYTEST) -m "$(EVERYWHERE) and not slurm and not torch and not slow" -n auto --dist worksteal $(PYTEST_ARGS)

test-matrix: plugin
	@packaging/matrix.sh $(MATRIX_ARGS) $(PYTEST_ARGS)

# What further suites install, ahead of them: first Debian's packages, then the environments of two.
debian-packages:
	@packaging/install-missing.sh $(FOR_SITES) $(FOR_METRICS) $(FOR_ENGINES)

environments: debian-packages
	@packaging/frameworks.sh --install $(BUILD)/frameworks
	@packaging/engines.sh --install $(BUILD)/engines

# Into an environment of its own: two gigabytes, of which nothing else knows.
test-frameworks:
	@packaging/frameworks.sh $(BUILD)/frameworks $(PYTEST_ARGS)

# The programs that users know, an hour: the night's. Each change of size becomes a line of build/programs.jsonl.
test-programs: plugin
	@LIST=programs packaging/frameworks.sh $(BUILD)/programs -k known_programs $(PYTEST_ARGS)

# Into an environment of its own too; Debian has the programs that are not Python.
test-engines:
	@packaging/install-missing.sh $(FOR_ENGINES)
	@$(MAKE) --no-print-directory plugin
	@packaging/engines.sh $(BUILD)/engines $(PYTEST_ARGS)

# On a host with GPUs; elsewhere all is skipped. PYTEST_ARGS=--stand-in tries the suite itself, on the CPU.
test-gpu: setup
	@$(PYTHON) -m pytest tests/gpu -q -m gpu $(PYTEST_ARGS)

test-pyslurm: plugin
	@packaging/pyslurm.sh "$(SLURM_SOURCE)" $(PYTEST_ARGS)

# In a real Prometheus and a real browser, which neither `make test` nor a site needs.
test-metrics:
	@packaging/install-missing.sh $(FOR_METRICS)
	@$(MAKE) --no-print-directory plugin
	@$(PYTEST) -m prometheus $(PYTEST_ARGS)

test-browser:
	@packaging/install-missing.sh chromium
	@$(PYTEST) -m browser $(PYTEST_ARGS)

lint: setup
	@.venv/bin/ruff check --no-cache .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PYTHON) packaging/prose.py
	@$(PYTHON) packaging/budget.py
	@packaging/hashes.sh
	@luacheck --quiet --config plugins/lua/.luacheckrc plugins/lua tests/lua tests/fuzz
	@shellcheck slurm_hooks/hooks/*.sh packaging/*.sh packaging/debian/*inst packaging/debian/*rm
	@shellcheck --shell=sh packaging/scripts/*.sh .ci/run
	@$(MAKE) --no-print-directory site

docs: setup
	@PYTHONPATH=. $(PYTHON) packaging/reference.py
	@$(PYTHON) packaging/diagrams.py

# Strict: a dead link or anchor, or a page that the navigation lacks, is an error.
site: setup
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --config-file packaging/site/mkdocs.yml

package-tools:
	@packaging/install-missing.sh packages

rpm deb: package-tools
	@packaging/build-$@.sh $(or $(DIST),dist) $(RPMBUILD_ARGS)

wheel:
	@PYTHONPATH=. $$(test -x $(PYTHON) && echo $(PYTHON) || echo python3) packaging/wheel.py dist

package-lock: package-tools
	@packaging/lock.sh

test-packages: package-tools setup
	@$(PYTEST) -m package $(PYTEST_ARGS) tests/packages

# A controller and three nodes with kernels, clocks and disks of their own: an hour, 6 GB of memory.
test-machines: package-tools setup
	@packaging/install-missing.sh $(FOR_MACHINES)
	@$(PYTHON) -m pytest tests/machines -m machines $(PYTEST_ARGS)

bench-%: plugin
	@[ -e benchmarks/$(subst -,_,$*).py ] || { echo "There is no bench-$*. There are:" && cd benchmarks && \
		ls *.py | sed 's/\.py$$//; s/_/-/g; s/^/bench-/' && exit 2; }
	@PYTHONPATH=.:tests:benchmarks $(PYTHON) benchmarks/$(subst -,_,$*).py $(BENCH_ARGS)

soak: bench-soak

install: plugin docs
	@PYTHON=$(PYTHON) BUILD=$(BUILD) packaging/install.sh

clean:
	rm -rf $(BUILD) dist demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
