# Everything here sets up what it needs itself: a virtual environment, the package, and for the tests tshark, jq,
# mosquitto and Java from Debian's packages when they are missing and can be installed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := captures/v5-publish-properties/capture.pcapng

# Of the source as it is written, and of what is generated from it.
STRUCTURE := tests/test_structure.py tests/test_language.py tests/test_generated.py tests/dev

# What `make test` runs beside each other, each in a process of its own, which collects no tests but its own and sends
# no results through a third process. Spark is started once. What is new belongs to the last part by itself. Some wait
# for others (brokers, Java, stores), or have most to do; the rest only computes, and fills in where these wait.
WAITING := spark live commands lakes
PARTS := $(WAITING) bytes packets rest
spark_TESTS := tests/spark tests/cli/pipeline tests/analysis
live_TESTS := tests/broker_test tests/capture tests/mutate tests/proxy tests/replay tests/transport
commands_TESTS := $(filter-out tests/cli/pipeline,$(patsubst %/,%,$(wildcard tests/cli/*/)) $(wildcard tests/cli/test_*.py))
lakes_TESTS := tests/browse tests/lake tests/parallel
bytes_TESTS := tests/mqtt tests/net tests/report
packets_TESTS := tests/corpus tests/dissect tests/lint tests/session tests/stats tests/test_docs.py
rest_TESTS := $(filter-out $(foreach part,$(PARTS),$($(part)_TESTS)) tests/cli tests/__pycache__ $(STRUCTURE), \
	$(patsubst %/,%,$(wildcard tests/*/)) $(wildcard tests/test_*.py))

# Tests come in an order that is drawn, and with generated examples: `make test` draws the same ones each time, so that
# what it says can be had again. `make test SEED=7` draws others, and so does pytest by itself.
SEED ?= 1
PYTEST := $(BIN)/python -m pytest --randomly-seed=$(SEED)

# Some tests take longer than all others together: clusters, streams, floods, every capture through everything. Shorter
# ones show most of it in part, so that `make test` ends in minutes; `make test-long` runs them.
WHICH := not long
LONG := long or examples

# Python starts hundreds of times here, and what it compiled is to be found again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test $(PARTS:%=test-%) test-long test-lowest long-spark long-lakes test-others style structure coverage exhaustive check lint types layers unit generate site bench fuzz clean venv dev tools wheel release

demo: venv
	@$(BIN)/mqttscope inspect $(DEMO)

venv: $(VENV)/.installed

$(VENV)/.made: .ci/make_venv.sh
	@sh .ci/make_venv.sh $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.made
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q mqttscope
	@touch $@

dev: $(VENV)/.installed-dev

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(BIN)/python .ci/install_group.py dev
	@touch $@

tools:
	@sh .ci/install_tools.sh

## The tests, with tshark and mosquitto; those that take long by themselves have a command of their own.
test: $(VENV)/.made
	@# pip beside apt-get; making the environment may have needed apt-get as well.
	@$(MAKE) --no-print-directory --jobs=2 dev tools
	@$(MAKE) --no-print-directory --keep-going --jobs=7 $(PARTS:%=test-%)

test-long: dev tools
	@MQTTSCOPE_THOROUGH=1 $(MAKE) --no-print-directory --keep-going --jobs=3 WHICH="$(LONG)" long-spark long-lakes test-others

# Two of Spark, which take as long as all others.
LAKES := tests/spark/test_engine.py tests/spark/test_joins.py tests/spark/test_million.py tests/analysis/test_notebook.py \
	tests/cli/pipeline
long-spark: TESTS = tests/spark $(LAKES:%=--ignore=%)
long-lakes: TESTS = $(LAKES)
long-spark long-lakes:
	@said=$$($(PYTEST) -q -p no:xdist -m "$(WHICH)" $(TESTS) 2>&1); failed=$$?; printf "%s\n" "$$said"; exit $$failed

## What is said about the source without running it.
style: dev lint types layers generated structure

# What a process says comes in one piece. The notebook of the lakes is one of Spark's.
$(PARTS:%=test-%): test-%:
	@said=$$($(if $(filter $*,$(WAITING)),,nice -n 5) $(PYTEST) -q -p no:xdist -m "$(WHICH)" \
		$(if $(filter spark,$*),,$(spark_TESTS:%=--ignore=%)) $($*_TESTS) 2>&1); failed=$$?; printf "%s\n" "$$said"; exit $$failed

test-others:
	@# So that tests are compiled once, not by each worker.
	@$(BIN)/python -m pytest --collect-only -qq $(spark_TESTS:%=--ignore=%) >/dev/null 2>&1 || true
	@$(PYTEST) -n 3 --dist worksteal -m "$(WHICH)" $(spark_TESTS:%=--ignore=%)

# Pages are made with the newest versions, and hold the words of those. Rich before 15 puts one more space beside a sign such as µ.
LOWEST := build/lowest
ALIGNED_TESTS := tests/stats/test_as_text.py::test_latencies \
	tests/report/replay/test_text.py::test_both_packets_stand_side_by_side \
	tests/report/replay/test_summary.py::test_recorded_and_live_times_stand_below_each_other
GENERATED_TESTS := tests/dev tests/test_generated.py tests/test_site.py tests/test_docs.py tests/test_structure.py

## The quick tests with the lowest versions of all dependencies that pyproject.toml allows.
test-lowest: $(VENV)/.made tools
	$(BIN)/python .ci/make_lowest.py $(LOWEST)
	$(LOWEST)/bin/python -m pytest --randomly-seed=$(SEED) -q -n 3 --dist worksteal $(GENERATED_TESTS:%=--ignore=%) \
		$(ALIGNED_TESTS:%=--deselect=%) \
		-m "not slow and not long and not tshark and not broker"

## The same, with what the tests have not run.
coverage: dev tools
	$(BIN)/python -m pytest -n 3 --dist worksteal --cov --cov-report=term:skip-covered

## All tests, and all that they leave out: hours.
exhaustive: dev tools
	MQTTSCOPE_EXHAUSTIVE=1 $(BIN)/python -m pytest -n 2 --dist worksteal

## The quick part: style, types, layers, generated files, unit tests.
check: style unit

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports

generated:
	$(BIN)/python -m mqttscope.dev.generate --check

structure:
	$(BIN)/python -m pytest -q -p no:xdist $(STRUCTURE)

unit:
	$(BIN)/python -m pytest -n 3 --dist worksteal -q -m "not slow and not long and not tshark and not broker"

## Write the generated files: completions, command reference.
generate: dev
	$(BIN)/python -m mqttscope.dev.generate

## The wheel, into dist.
wheel: venv
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

## What is published: built twice, tried in empty environments, into dist; checksums and dependencies into build/release.
release: dev
	@$(BIN)/python .ci/install_group.py release
	@$(BIN)/python .ci/release.py dist build/release

## The documentation as a site, in build/site.
site: dev
	$(BIN)/zensical build --strict

bench: dev tools
	$(BIN)/python -m tests.bench

fuzz: dev
	$(BIN)/python .ci/install_group.py fuzz
	$(BIN)/python -m tests.fuzz

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
