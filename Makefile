# You can type every target's commands by hand; `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
C_FILES = $(wildcard csrc/*/*.[ch] tests/c/*.[ch] tests/gpu/*/*.[ch])
PY_FILES = setup.py python tests tools benchmarks

.PHONY: help check check-native check-unit test ctest dev build lint format demo clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

test:  ## virtual environment, C tests, pytest without the slow tests
	VENV=$(VENV) $(PYTHON) tools/run_tests.py

check: build  ## a change, in about 3 minutes: lint, plain C tests, unit and native tests
	@$(MAKE) --no-print-directory -j3 -Otarget lint check-native check-unit

# Tests wait a third of their time, so two cores run three jobs.  The two halves of the tests are
# about equally long; the first has the tests that need a browser.
check-native:
	$(PYTHON) tools/ctest.py plain
	$(BIN)/python -m pytest -q -m 'not slow' tests/native tests/unit/test_html_page.py

check-unit:
	$(BIN)/python -m pytest -q -m 'not slow' tests/unit --ignore=tests/unit/test_html_page.py

ctest:  ## the C core: plain, ASan+UBSan, TSan, valgrind
	$(PYTHON) tools/ctest.py all

dev:  ## a virtual environment with the pinned tools
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -e '.[dev]'

build:  ## the extension in place, warnings as errors
	FASTPROF_WERROR=1 $(BIN)/python setup.py -q build_ext --inplace

lint:  ## the checks of CI's lint phase, except the build
	$(BIN)/ruff check $(PY_FILES)
	$(BIN)/ruff format --check $(PY_FILES)
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(BIN)/python tools/layers_c.py
	$(BIN)/python tools/layers_python.py
	$(BIN)/python tools/words.py

format:  ## rewrite the sources in the one style
	$(BIN)/ruff check --fix $(PY_FILES)
	$(BIN)/ruff format $(PY_FILES)
	$(BIN)/clang-format -i $(C_FILES)

demo: $(BIN)/fastprof  ## train a small network under the profiler
	$(BIN)/fastprof demo

$(BIN)/fastprof:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install .

clean:  ## remove the files that builds and tests leave behind
	rm -rf build dist .ci/work .pytest_cache .mypy_cache .ruff_cache .hypothesis python/*.egg-info
	find python tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -f python/fastprof/_core*.so
