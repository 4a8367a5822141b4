# Two commands do everything: `make demo` and `make test`. Each makes its environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread for each process: two would wait for each other at every step wherever anything else runs.
export OMP_NUM_THREADS ?= 1

.PHONY: audit bench browser demo docs test test-hostile test-newest test-oldest lint types clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $@

# The demo needs little and has an environment of its own, with the small build of torch for CPUs where it can be had.
DEMO := .venv-demo
$(DEMO)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(DEMO)/bin/uv pip install --quiet --python $(DEMO)/bin/python --torch-backend cpu -c constraints.txt -e '.[demo]' || \
	  $(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo]'
	touch $@

demo: $(DEMO)/.installed
	$(DEMO)/bin/curriculum run digits --jobs 2 --out runs/demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# Pages are tested in a real browser. As root on a machine with apt (a container) it is installed; elsewhere, if it is
# missing, those tests are skipped with a reason.
browser:
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
	  { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq \
	    --no-install-recommends chromium >/dev/null; } || \
	  echo "chromium could not be installed: tests in a browser will be skipped"

test: lint types browser
	$(BIN)/python -m pytest -n 2

# The long part of the tests against hostile files, users and machines: 1,000 kills, 100,000 fuzzed inputs, every method
# in every corner, ranks in trouble.
test-hostile: $(STAMP)
	FAULT_KILLS=$${FAULT_KILLS:-1000} FUZZ=$${FUZZ:-20} $(BIN)/python -m pytest -n 2 --timeout=36000 tests/test_faults.py \
	  tests/test_fuzz.py tests/test_fuzz_records.py tests/hostile -m "hostile or not hostile"
	$(BIN)/python benchmarks/fuzz_readers.py --count $${FUZZED:-20000}
	$(BIN)/python benchmarks/ranks_check.py

# The fast suite with the lowest versions that pyproject.toml allows, and with the newest that the index has, each in an
# environment of its own, as `make test-newest PYTHON=python3.13`. Deprecations in other packages are shown, no failures.
# UV_TORCH_BACKEND=cpu takes the small build of torch.
EXTRAS := demo clean sklearn skorch lightning accelerate transformers text tensorboard wandb mlflow vision
FAST ?= tests/test_apw.py tests/test_curriculum.py tests/test_indexed.py tests/test_losses.py tests/test_record.py \
  tests/test_clean.py tests/test_fix.py tests/test_messy_tables.py \
  tests/test_checkpoint.py tests/test_sinks.py tests/test_sklearn.py tests/test_skorch.py tests/test_heads.py \
  tests/methods tests/contract/test_contract.py tests/integrations/test_lightning.py tests/integrations/test_transformers.py
comma := ,
space := $(subst ,, )
test-oldest test-newest: test-%:
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(if $(filter oldest,$*),$(PYTHON) tests/lowest.py $(EXTRAS),true) > .venv-$*/constraints.txt
	.venv-$*/bin/uv pip install --quiet --python .venv-$*/bin/python -c .venv-$*/constraints.txt \
	  -e '.[$(subst $(space),$(comma),$(EXTRAS) test)]'
	.venv-$*/bin/uv pip list --python .venv-$*/bin/python
	.venv-$*/bin/python -m pytest -n 2 -W default::DeprecationWarning -m "not slow and not hostile" $(FAST)

# Licences and known vulnerabilities of what the extras pull. Without a network it says what it could not look up.
audit: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip-audit || \
	  echo "pip-audit could not be installed"
	$(BIN)/python benchmarks/supply_chain.py

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Speed and size on this CPU, into docs/results; the GPU's figures come from benchmarks/gpu.py.
bench: $(STAMP)
	$(BIN)/python benchmarks/overhead.py --out docs/results/overhead
	$(BIN)/python benchmarks/scale.py --out docs/results/scale
	$(BIN)/python -W ignore benchmarks/loaders.py --out docs/results/loaders
	$(BIN)/python benchmarks/sharded.py --out docs/results/sharded

clean:
	rm -rf $(VENV) .venv-* runs site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
