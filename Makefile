# Everything here sets up what it needs itself: a virtual environment, the package, and for the tests tshark, jq,
# mosquitto and Java from Debian's packages when they are missing and can be installed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := captures/v5-publish-properties/capture.pcapng

# Of the source as it is written, and of what is generated from it.
STRUCTURE := tests/test_structure.py tests/test_house.py tests/test_language.py tests/test_generated.py tests/dev

# What `make test` runs beside each other, each in a process of its own, which collects no tests but its own and sends
# no results through a third process. Spark is started once. What is new belongs to the last part by itself. Some wait
# for others (brokers, Java, stores), or have most to do; the rest only computes, and fills in where these wait.
WAITING := spark live brokers commands programs lakes
PARTS := $(WAITING) bytes packets rest
spark_TESTS := tests/spark tests/cli/pipeline tests/analysis
brokers_TESTS := tests/broker_test tests/kernel tests/secrets tests/test_installation.py
live_TESTS := tests/capture tests/mutate tests/proxy tests/replay tests/transport
programs_TESTS := $(wildcard tests/cli/test_[m-z]*.py)
commands_TESTS := $(filter-out tests/cli/pipeline $(programs_TESTS), \
	$(patsubst %/,%,$(wildcard tests/cli/*/)) $(wildcard tests/cli/test_*.py))
lakes_TESTS := tests/browse tests/lake
bytes_TESTS := tests/mqtt tests/net tests/report
packets_TESTS := tests/corpus tests/dissect tests/lint tests/session tests/stats tests/test_docs.py
rest_TESTS := $(filter-out $(foreach part,$(PARTS),$($(part)_TESTS)) tests/cli tests/__pycache__ $(STRUCTURE), \
	$(patsubst %/,%,$(wildcard tests/*/)) $(wildcard tests/test_*.py))

# Tests come in an order that is drawn, and with generated examples: `make test` draws the same ones each time, so that
# what it says can be had again. `make test SEED=7` draws others, and so does pytest by itself.
SEED ?= 1
# -rs says why tests were skipped, and -rfE which failed. A module that cannot be imported fails, and the others run.
PYTEST := $(BIN)/python -m pytest -rfEs --continue-on-collection-errors
DRAWN := $(PYTEST) --randomly-seed=$(SEED)

# Reports of the parts, of which the last lines are the sum. pytest ends with 1 when tests fail; with anything else it
# died, and its report does not count.
REPORTS := build/tests
WITH_REPORT = $(1) --junit-xml=$(REPORTS)/$(2).xml $(3); code=$$?; \
	[ $$code -le 1 ] || rm -f $(REPORTS)/$(2).xml; exit $$code
# What a part prints comes in one piece.
RUN_PART = printed=$$(exec 2>&1; $(WITH_REPORT)); code=$$?; printf "%s\n" "$$printed"; exit $$code
SUM_UP = code=$$?; $(BIN)/python .ci/sum_up_tests.py $(REPORTS) $(1) || code=1; exit $$code

# Some tests take longer than all others together: clusters, streams, floods, every capture through everything. Shorter
# ones show most of it in part, so that `make test` ends in minutes; `make test-long` runs them.
WHICH := not long
LONG := long or examples

# Python starts hundreds of times here, and what it compiled is to be found again.
unexport PYTHONDONTWRITEBYTECODE
# Python 3.11 reads the path of an editable install in the encoding of the locale, and these have none but ASCII.
ifneq ($(filter C POSIX,$(LC_ALL)),)
export LC_ALL := C.UTF-8
endif

.PHONY: demo test $(PARTS:%=test-%) test-long test-corpora test-lowest long-spark long-lakes test-others style structure coverage exhaustive check lint types layers unit generate site browser-page bench lab mutants fuzz clean venv dev tools style-tools long-tools wheel release

demo: venv
	@$(BIN)/mqttscope inspect $(DEMO)
	@$(BIN)/mqttscope --version | tail -n 1

venv: $(VENV)/.installed

$(VENV)/.made: .ci/make_venv.sh
	@sh .ci/make_venv.sh $(PYTHON) $(VENV)
	@touch $@

# The kernel is compiled with the installation.
$(VENV)/.installed: pyproject.toml hatch_build.py $(wildcard mqttscope/kernel/*.[ch]) $(VENV)/.made
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -m compileall -q mqttscope
	@touch $@

dev: $(VENV)/.installed-dev

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(BIN)/python .ci/install_group.py dev
	@touch $@

# What most tests need, what those of `make style` need, and what only tests that take long need.
tools: TOOLS = tshark mosquitto mosquitto_pub jq nc xxd openssl java
style-tools: TOOLS = groff zsh fish
long-tools: TOOLS = chromium pdftotext azurite-blob npm prometheus
tools style-tools long-tools:
	@sh .ci/install_tools.sh $(TOOLS)

$(VENV)/.installed-long: $(VENV)/.installed-dev
	@$(BIN)/python .ci/install_group.py long
	@touch $@

## The tests, with tshark and mosquitto; those that take long by themselves have a command of their own.
test: $(VENV)/.made
	@# pip beside apt-get; making the environment may have needed apt-get as well.
	@$(MAKE) --no-print-directory --jobs=2 dev tools
	@rm -rf $(REPORTS)
	@$(MAKE) --no-print-directory --keep-going --jobs=9 $(PARTS:%=test-%); $(call SUM_UP,$(PARTS))

test-long: $(VENV)/.installed-long tools long-tools
	@rm -rf $(REPORTS)
	@MQTTSCOPE_THOROUGH=1 $(MAKE) --no-print-directory --keep-going --jobs=3 WHICH="$(LONG)" long-spark long-lakes \
		test-others; $(call SUM_UP,long-spark long-lakes others)

## The tests that read the corpora, which MQTTSCOPE_CORPORA names.
test-corpora: dev tools
	@$(DRAWN) -q -p no:xdist -m corpora $(shell grep -rlE 'corpora\.(needs|cases|collections)' tests --include='test_*.py')

# Two of Spark, which take as long as all others.
LAKES := tests/spark/test_engine.py tests/spark/test_joins.py tests/spark/test_million.py tests/spark/test_cluster.py \
	tests/spark/test_linting.py tests/analysis/test_notebook.py tests/cli/pipeline
long-spark: TESTS = tests/spark $(LAKES:%=--ignore=%)
long-lakes: TESTS = $(LAKES)
long-spark long-lakes:
	@$(call RUN_PART,$(DRAWN) -q -p no:xdist -m "$(WHICH)",$@,$(TESTS))

## What is said about the source without running it.
style: dev style-tools lint types layers generated structure size

# The notebook of the lakes is one of Spark's.
$(PARTS:%=test-%): test-%:
	@$(call RUN_PART,$(if $(filter $*,$(WAITING)),,nice -n 5) $(DRAWN) -q -p no:xdist -m "$(WHICH)" \
		$(if $(filter spark,$*),,$(spark_TESTS:%=--ignore=%)),$*,$($*_TESTS))

test-others:
	@# So that tests are compiled once, not by each worker.
	@$(BIN)/python -m pytest --collect-only -qq $(spark_TESTS:%=--ignore=%) >/dev/null 2>&1 || true
	@$(call WITH_REPORT,$(DRAWN) -n 3 --dist worksteal -m "$(WHICH)",others,$(spark_TESTS:%=--ignore=%))

# Pages are made with the newest versions, and hold the words of those. Rich before 15 puts one more space beside a sign such as µ.
LOWEST := build/lowest
ALIGNED_TESTS := tests/stats/test_as_text.py::test_latencies \
	tests/report/replay/test_text.py::test_both_packets_stand_side_by_side \
	tests/report/replay/test_summary.py::test_recorded_and_live_times_stand_below_each_other
GENERATED_TESTS := tests/dev tests/test_generated.py tests/test_site.py tests/test_docs.py tests/test_structure.py

## The quick tests with the lowest versions of all dependencies that pyproject.toml allows.
test-lowest: $(VENV)/.made tools
	$(BIN)/python .ci/make_lowest.py $(LOWEST)
	$(LOWEST)/bin/python -m pytest -rfEs --randomly-seed=$(SEED) -q -n 3 --dist worksteal $(GENERATED_TESTS:%=--ignore=%) \
		$(ALIGNED_TESTS:%=--deselect=%) \
		-m "not slow and not long and not tshark and not broker"

## The same, with what the tests have not run.
coverage: $(VENV)/.installed-long tools long-tools
	$(PYTEST) -n 3 --dist worksteal --cov --cov-report=term:skip-covered

## All tests, and all that they leave out: hours.
exhaustive: $(VENV)/.installed-long tools long-tools
	MQTTSCOPE_EXHAUSTIVE=1 $(PYTEST) -n 2 --dist worksteal

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

size:
	$(BIN)/python .ci/size.py $(BASE)

structure:
	$(PYTEST) -q -p no:xdist -m "$(WHICH)" $(STRUCTURE)

unit:
	$(PYTEST) -n 3 --dist worksteal -q -m "not slow and not long and not tshark and not broker"

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
site: dev browser-page
	$(BIN)/zensical build --strict
	@cp -r build/browser-page/. build/site/browser

## mqttscope as a page for browsers, in build/browser-page: static files, which a web server serves. Pyodide comes from npm.
browser-page: venv
	@$(BIN)/python .ci/make_browser_page.py build/browser-page

bench: dev tools
	-@sh .ci/install_tools.sh tcpdump
	$(BIN)/python -m tests.bench

CASES ?= 300
## Faults that are drawn and planted, and what explain and lint say about them: build/lab/report.md. CASE=17 repeats
## one, and FAULT=normal draws one kind alone.
lab: dev tools
	nice $(BIN)/python -m tests.lab --seed $(SEED) $(if $(CASE),--case $(CASE),--cases $(CASES)) $(if $(FAULT),--fault $(FAULT))

MUTANTS ?= 300
## Small faults that are drawn and planted in the core, and which of them the tests find: build/mutants/report.md.
mutants: dev tools
	nice $(BIN)/python -m tests.mutants --seed $(SEED) --count $(MUTANTS) $(if $(AREA),--area $(AREA))

fuzz: dev
	$(BIN)/python .ci/install_group.py fuzz
	$(BIN)/python -m tests.fuzz

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
