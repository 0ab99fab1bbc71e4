# The two commands of the README are `make demo` and `make test`.
PYTHON := .venv/bin/python
BUILD := build
# Debian packages on top of what the other tests need; only sandboxes start MariaDB and slurmdbd.
FOR_SITES := mariadb-server slurmdbd
FOR_ENGINES := octave openmpi-bin libopenmpi-dev mpich openjdk-17-jre-headless chromium

.PHONY: help setup plugin demo test fast matrix debian-packages environments test-sites test-matrix faults search lint docs install clean bench-allocator bench-bftrainer \
	bench-hooks bench-directory bench-tick bench-replay-reference bench-replay-better bench-replay-speed \
	bench-replay-tried bench-replay-hits bench-replay-ahead bench-observe bench-rescale bench-frameworks bench-watch bench-training-ends bench-hits bench-random bench-live bench-reaction bench-load \
	bench-engines bench-learned-curves bench-learning bench-ledger bench-impact bench-launch bench-preposition bench-reclaim bench-scale bench-library bench-optuna-search bench-state test-pyslurm test-frameworks test-engines test-metrics \
	test-browser rpm deb package-tools \
	package-lock test-packages abuse fuzz soak

help:
	@echo "make demo    an eight-node Slurm on this host, and a training job that lives in its holes"
	@echo "make test    every test, the real-Slurm ones included (make fast: without those)"
	@echo "make search  properties and the model with examples that nobody has seen; LIVES=3000"
	@echo "make test-sites  how sites differ: QOS, accounting on MariaDB, reservations, partitions, hosts"
	@echo "make faults  what breaks in Slurm and in ours, one by one: a table and one JSON object"
	@echo "make test-matrix  plugin, promises and demo on other Debian releases' Slurms; root only"
	@echo "make test-pyslurm SLURM_SOURCE=FILE  the same, and the adapter, on a Slurm built from source for pyslurm"
	@echo "make fuzz [FUZZ_ARGS=\"--inputs 1000000\"]  every parser fed with damaged texts: a table and one JSON object"
	@echo "make abuse  what an ordinary user can try against the rest, on a real Slurm: a table and one JSON object"
	@echo "make test-metrics, make test-browser  rules and dashboard in a real Prometheus, the report in a real browser"
	@echo "make test-frameworks  Lightning, transformers and accelerate, in an environment of their own (2 GB)"
	@echo "make test-engines  Optuna, Dask, Ray, Spark, MPI, TensorFlow, JAX and Octave as pools and gangs, in an environment of their own (4 GB)"
	@echo "make lint    format, types, imports, Lua, shell"
	@echo "make docs    write the reference of all settings anew"
	@echo "make bench-NAME  what docs/performance.md shows; NAME: allocator, bftrainer, directory, hooks, impact, launch, learned-curves, learning, ledger, tick, load, training-ends,"
	@echo "             rescale, random, frameworks, watch, hits, live, optuna-search, reaction, reclaim, scale, observe, library, state, replay-reference, replay-better, replay-hits, replay-ahead,"
	@echo "             replay-speed, replay-tried"
	@echo "make rpm, make deb    packages in dist/; make test-packages installs, upgrades and removes them in"
	@echo "             roots of their own; make package-lock pins the libraries that they carry anew"
	@echo "make install [DESTDIR=DIR]  plugin, Lua, hooks, units, settings; enables nothing"
	@echo "make clean   remove what was built; the environment in .venv stays"

setup:
	@packaging/install-missing.sh

plugin: setup
	@$(MAKE) --no-print-directory -C plugins/spank BUILD_DIR=$(CURDIR)/$(BUILD)/spank all

demo: plugin
	@$(PYTHON) examples/demo/run.py $(DEMO_ARGS)

# Two at a time, since real Slurms mostly wait; a file stays together, because its tests share a sandbox.
# More of them would miss their times on two cores. One after the other: PYTEST_ARGS=-n0
test: plugin lint
	@$(PYTHON) -m pytest -m "not prometheus and not browser and not package and not frameworks and not engines and not abuse and not faults" --ignore=tests/sites \
		-n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-sites:
	@packaging/install-missing.sh $(FOR_SITES)
	@$(MAKE) --no-print-directory plugin
	@$(PYTHON) -m pytest tests/sites -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

fuzz: setup
	@PYTHONPATH=.:tests $(PYTHON) tests/fuzz/run.py $(FUZZ_ARGS)

# Root only: a user of the host attacks, as another.
abuse: plugin
	@PYTHONPATH=.:tests $(PYTHON) tests/abuse/run.py $(PYTEST_ARGS)

# Slurm, its daemons and ours broken on purpose: one table, and one JSON object as the last line.
faults:
	@packaging/install-missing.sh libfaketime $(FOR_SITES)
	@$(MAKE) --no-print-directory plugin
	@$(PYTHON) -m pytest tests/faults -q -n 2 --dist loadfile $(PYTEST_ARGS)

# Examples that nobody has seen yet, where `make test` repeats its own.
search: export HYPOTHESIS_PROFILE := search
search: export LIVES ?= 3000
search: setup
	@$(PYTHON) -m pytest -k "properties or model or curves or solvers" -m "not slurm and not torch and not package" $(PYTEST_ARGS)

fast: setup
	@$(PYTHON) -m pytest -m "not slurm and not torch and not slow and not package and not prometheus and not browser \
		and not frameworks and not engines" \
		-n auto --dist worksteal $(PYTEST_ARGS)

test-matrix: plugin
	@packaging/matrix.sh $(MATRIX_ARGS) $(PYTEST_ARGS)

matrix: test-matrix

# What further suites install, ahead of them: first Debian's packages, then the environments of two.
debian-packages:
	@packaging/install-missing.sh $(FOR_SITES) $(FOR_ENGINES)

environments: debian-packages
	@packaging/frameworks.sh --install $(BUILD)/frameworks
	@packaging/engines.sh --install $(BUILD)/engines

# Into an environment of its own: two gigabytes, of which nothing else knows.
test-frameworks:
	@packaging/frameworks.sh $(BUILD)/frameworks $(PYTEST_ARGS)

# Into an environment of its own too; Debian has the programs that are not Python.
test-engines:
	@packaging/install-missing.sh $(FOR_ENGINES)
	@$(MAKE) --no-print-directory plugin
	@packaging/engines.sh $(BUILD)/engines $(PYTEST_ARGS)

test-pyslurm: plugin
	@packaging/pyslurm.sh "$(SLURM_SOURCE)" $(PYTEST_ARGS)

# In a real Prometheus and a real browser, which neither `make test` nor a site needs.
test-metrics:
	@packaging/install-missing.sh prometheus
	@$(MAKE) --no-print-directory plugin
	@$(PYTHON) -m pytest -m prometheus $(PYTEST_ARGS)

test-browser:
	@packaging/install-missing.sh chromium
	@$(PYTHON) -m pytest -m browser $(PYTEST_ARGS)

lint: setup
	@.venv/bin/ruff check --no-cache .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@luacheck --quiet --config plugins/lua/.luacheckrc plugins/lua tests/lua tests/fuzz
	@shellcheck slurm_hooks/hooks/*.sh packaging/*.sh packaging/debian/*inst packaging/debian/*rm
	@shellcheck --shell=sh packaging/scripts/*.sh .ci/*

# The generated part of the documentation; a test keeps what is checked in alike.
docs: setup
	@PYTHONPATH=. $(PYTHON) packaging/reference.py

package-tools:
	@packaging/install-missing.sh packages

rpm: package-tools
	@packaging/build-rpm.sh $(or $(DIST),dist) $(RPMBUILD_ARGS)

deb: package-tools
	@packaging/build-deb.sh $(or $(DIST),dist)

package-lock: package-tools
	@packaging/lock.sh

test-packages: package-tools setup
	@$(PYTHON) -m pytest -m package $(PYTEST_ARGS) tests/packages

bench-allocator: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/allocator.py --png $(BUILD)/bench-allocator.png

bench-bftrainer: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/bftrainer.py

bench-directory: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/directory_load.py $(BENCH_ARGS)

bench-hooks: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/hooks.py

bench-tick: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/tick.py

bench-replay-reference bench-replay-better bench-replay-hits bench-replay-ahead bench-replay-speed bench-replay-tried: bench-replay-%: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/replay_$*.py

# On a real Slurm; HITS_PYTHON as below.
bench-learned-curves: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/learned_curves.py $(BENCH_ARGS)

bench-learning: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/learning.py $(BENCH_ARGS)

bench-launch: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/launch.py $(BENCH_ARGS)

bench-preposition: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/preposition.py $(BENCH_ARGS)

# A day of a real machine in 24 minutes and more; SOAK_ARGS="--hours 4" for four of its hours.
soak: plugin
	@PYTHONPATH=.:tests $(PYTHON) benchmarks/soak.py $(SOAK_ARGS)

bench-impact: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/impact.py $(BENCH_ARGS)

bench-scale: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/scale.py

bench-reclaim: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/reclaim.py $(BENCH_ARGS)

bench-ledger: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/ledger.py $(BENCH_ARGS)

bench-state: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/state.py $(BENCH_ARGS)

bench-load: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/load.py $(BENCH_ARGS)

# On a Slurm for which there is a pyslurm: make test-pyslurm builds one.
bench-library: setup
	@cd $(BUILD)/slurm-25.11 && PATH=$$PWD/root/bin:$$PWD/root/sbin:$$PATH PYTHONPATH=$(CURDIR) \
		venv/bin/python $(CURDIR)/benchmarks/library.py $(BENCH_ARGS)

bench-observe: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/observe_cost.py $(BENCH_ARGS)

bench-reaction: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/reaction.py $(BENCH_ARGS)

bench-rescale: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/rescale.py $(BENCH_ARGS)

# A recorded machine on a real Slurm, beside the replay of it.
bench-live: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/live_replay.py $(BENCH_ARGS)

# HITS_PYTHON=FILE: an interpreter that has lightning, transformers and accelerate.
bench-hits: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/hits.py $(BENCH_ARGS)

# Libraries for MPI and TensorFlow: `make test-engines` puts them into build/engines.
bench-engines: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/rescale.py \
		--engines malleable torchft command mpi tensorflow pool $(BENCH_ARGS)

# Two hundred changes made by hand on this host; with --slurm by a real Slurm and its ticks.
bench-random: plugin
	@PYTHONPATH=. $(PYTHON) benchmarks/rescale_random.py $(BENCH_ARGS)

bench-watch: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/watch_cost.py $(BENCH_ARGS)

bench-training-ends: setup
	@PYTHONPATH=. $(PYTHON) benchmarks/training_ends.py $(BENCH_ARGS)

bench-optuna-search: plugin
	@packaging/engines.sh --bench optuna_search $(BUILD)/engines $(BENCH_ARGS)

bench-frameworks:
	@packaging/frameworks.sh --bench $(BUILD)/frameworks $(BENCH_ARGS)

# Slurm's side of it, for a host without packages of it; enables nothing. The command itself
# comes first, so that the unit can name it: pip install '.[highs]'
SHARE := $(DESTDIR)/usr/share/slurm-malleable
LIBEXEC := $(DESTDIR)/usr/libexec/slurm-malleable
CONFIG := $(DESTDIR)/etc/slurm-malleable
UNITS := $(DESTDIR)/usr/lib/systemd/system
PRESETS := $(DESTDIR)/usr/lib/systemd/system-preset
SYSUSERS := $(DESTDIR)/usr/lib/sysusers.d
TMPFILES := $(DESTDIR)/usr/lib/tmpfiles.d
MAN := $(DESTDIR)/usr/share/man/man
# Where `malleable` is, for unit and cron line: neither looks at PATH.
BINDIR ?= $(or $(patsubst %/malleable,%,$(shell command -v malleable)),/usr/local/bin)

COMPLETIONS := $(DESTDIR)/usr/share/bash-completion/completions

# Users' jobs read all of it, so modes are set, whatever the umask.
install: plugin docs
	umask 022 && $(MAKE) --no-print-directory -C plugins/spank BUILD_DIR=$(CURDIR)/$(BUILD)/spank install
	umask 022 && install -d $(SHARE)/lua $(SHARE)/cron $(LIBEXEC) $(CONFIG) $(UNITS) $(MAN)1 $(MAN)5 $(COMPLETIONS) \
		$(SYSUSERS) $(TMPFILES) $(PRESETS)
	install -m 644 etc/presets/*.preset $(PRESETS)
	install -m 644 etc/sysusers/*.conf $(SYSUSERS)
	install -m 644 etc/tmpfiles/*.conf $(TMPFILES)
	install -m 644 plugins/lua/*.lua $(SHARE)/lua
	umask 022 && $(PYTHON) -m slurm_hooks.cli render job-path $(SHARE)/jobpath
	install -m 755 slurm_hooks/hooks/epilog.sh $(LIBEXEC)
	umask 022 && install -d $(SHARE)/preposition
	install -m 644 slurm_hooks/hooks/preposition/*.py $(SHARE)/preposition
	@# A slurm.conf may still name the Prolog that older versions had, and one that is missing drains nodes.
	[ ! -e $(LIBEXEC)/prolog.sh ] || printf '#!/bin/sh\nexit 0\n' >$(LIBEXEC)/prolog.sh
	for unit in etc/systemd/*; do \
		sed 's|@BINDIR@|$(BINDIR)|' $$unit | install -m 644 /dev/stdin $(UNITS)/$${unit##*/} || exit 1; done
	sed 's|@BINDIR@|$(BINDIR)|' etc/cron/slurm-malleable | install -m 644 /dev/stdin $(SHARE)/cron/slurm-malleable
	for page in docs/man/*; do install -m 644 $$page $(MAN)$${page##*.} || exit 1; done
	install -m 644 $(BUILD)/bash-completion/malleable $(COMPLETIONS)
	for tree in dashboards jupyterhub ondemand ondemand-notebook; do cp -R etc/$$tree $(SHARE) && chmod -R a+rX $(SHARE)/$$tree || exit 1; done
	[ -e $(CONFIG)/malleable.toml ] || install -m 644 etc/malleable.toml $(CONFIG)
	@id slurm-malleable >/dev/null 2>&1 || \
		echo "note: the unit runs as slurm-malleable: systemd-sysusers && systemd-tmpfiles --create; docs/packages.md"
	@[ -x $(BINDIR)/malleable ] || \
		echo "note: unit and cron line run $(BINDIR)/malleable, which is not here: pip install it, or make install BINDIR=DIR"

clean:
	rm -rf $(BUILD) dist demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
