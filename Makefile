# Two commands do everything: `make demo` (the main job on this machine) and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE_FILES := $(wildcard csrc/*/*.h csrc/*/*.cpp csrc/*/*/*.h csrc/*/*/*.cpp)
# pip compiles no bytecode: Python does so for the modules that are imported, a small part of all packages.
PIP := $(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-hostile checks lint types layers unit coverage nightly arm64 sanitize wheel schemas docs docs-serve page page-vendor clean

demo: $(STAMP)
	$(BIN)/python -m benchmarks.demo

# Checks run beside the tests, one after the other: each of them keeps a single core busy.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 unit checks

checks: lint types layers

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(NATIVE_FILES)

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

# Bytecode is written even where the environment says otherwise: else every process that tests start compiles Helm anew.
unexport PYTHONDONTWRITEBYTECODE

unit: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile --durations=12

# Beside busy cores, one of them throttled: no test may depend on how fast the machine is.
test-hostile: $(STAMP)
	$(BIN)/python tests/support/hostile.py $(BIN)/pytest -n 2 --dist loadfile --durations=12

# Of schemas, planner and simulator, at least 90 %. Tracing makes their tests three times as long.
coverage: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile --cov --cov-report=term tests/schemas tests/planner tests/simulator

nightly: coverage
	$(BIN)/pytest -m 'nightly and not cuda'
	$(BIN)/python -m benchmarks.gate

# Cross-compiled and emulated: needs qemu-user, g++-aarch64-linux-gnu and, the first time, apt-get and the network.
arm64: $(STAMP)
	$(BIN)/python tests/support/arm64.py
	$(BIN)/pytest -m nightly tests/executor/test_arm64.py

# Under ASan and UBSan: tests of csrc, then 10,000 executed plans. Under TSan: tests with threads of csrc. Needs g++.
sanitize: $(STAMP)
	$(BIN)/python tests/support/sanitizers.py address
	$(BIN)/python tests/support/sanitizers.py plans
	$(BIN)/python tests/support/sanitizers.py thread

# A wheel that needs no compiler where it is installed, in dist/; tried in an empty environment. Needs the package index.
wheel:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python tests/support/wheel.py

schemas: $(STAMP)
	$(BIN)/python -m helmsman.schemas.generate

# The site, in build/site: pages of docs/ and those that are made of the code. A broken link is an error.
docs: $(STAMP)
	$(BIN)/python -m docs.generator
	$(BIN)/python -m zensical build --strict --clean --config-file build/zensical.toml

# The same at http://127.0.0.1:8000, where it can be searched.
docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

# The page of helm-web in Debian's Chromium (`apt-get install chromium`), and what npm has for its tests.
page: $(STAMP)
	$(PIP) playwright
	npm ci --silent --prefix tests/page
	$(BIN)/pytest -m browser tests/page

# The page's chart library and typeface as npm has them, whose digests a test knows.
page-vendor:
	cd service/planner/page/vendor && npm ci --silent && npm run vendor

# What Helm and its extras need, a line each; but Ray, whose interface tests stand in for.
REQUIREMENTS := import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
  extras = [name for extra, names in p['optional-dependencies'].items() if extra != 'ray' \
    for name in names if 'helmsman' not in name]; \
  print(*p['dependencies'], *extras, sep='\n')

# One core unpacks what is needed while the other compiles.
$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(NATIVE_FILES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(PIP) scikit-build-core pybind11 cmake ninja
	mkdir -p build && $(BIN)/python -c "$(REQUIREMENTS)" > build/requirements.txt
	$(PIP) -r build/requirements.txt & needed=$$!; trap "kill $$needed" INT TERM HUP; \
	  $(PIP) --no-build-isolation --no-deps -e .; built=$$?; wait $$needed && exit $$built
	touch $@

clean:
	rm -rf build $(STAMP)
