# Two commands for a fresh machine:
#
#   make tutorial    the tutorial on this machine: four nodes, four ranks, a trained model
#   make test        lint, types and tests; of large tables a representative (make test-all, as in CI: all of them)
#
# While you work: make unit (seconds), make lint, make docs, make notebooks; make models trains all kinds of models on two
# ranks and on one; make gallery runs the recipes of Batch AI. Seldom: make search (Optuna, MLflow, TensorBoard), make azure
# PINS=oldest (the oldest Azure packages that setup.cfg allows), make upstream (Microsoft's tests of its clients of files, blobs and Batch AI), make clients (other storage clients),
# make drills (poison, power cuts, growth: 20 minutes), make release (the wheel, and the tutorial from it), make first-hour (all that a
# stranger does first, from the wheel).
#
# Each does its own set-up once, in a .venv of this checkout, and says what it does. PYTHON=python3.12 takes another Python.

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
# The PyTorch that the tests of the second Keras backend use; TORCH= leaves it (and them) out.
TORCH ?= $(if $(filter python3,$(PYTHON)),torch==2.13.0)

ENGINE ?= processes
DATASET ?= digits
DATA ?=
EPOCHS ?=
ARGS ?=
# Much of a test's time is waiting: three workers on two cores.
WORKERS ?= 3

# COVERAGE=1 measures what the tests reach, the programs that they start included, and fails below this percentage.
COVERAGE ?=
FLOOR ?= 90
PINS ?= newest

PY := $(VENV)/bin/python
SAY = @printf '\033[1m== %s\033[0m\n'
# Plain paths instead of a finder hook, which editors cannot follow.
COMPAT := --config-settings editable_mode=compat
PIP := PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --disable-pip-version-check --no-warn-script-location

.PHONY: help tutorial test test-all lint unit models gallery search docs notebooks azure upstream upstream-blobs upstream-batchai clients drills release first-hour clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//; 1,11p' Makefile

tutorial: $(VENV)/.runtime $(VENV)/.horovod
	@$(PY) -m batchhvd tutorial --engine $(ENGINE) --dataset $(DATASET) \
	  $(if $(DATA),--data '$(DATA)') $(if $(EPOCHS),--epochs $(EPOCHS)) $(ARGS)

# Thousands of programs start here: without the bytecode of before, each compiles what it imports again.
test test-all unit: export PYTHONDONTWRITEBYTECODE =
test-all: export BATCHHVD_TESTS = all
test-all: test
test: lint
	$(SAY) 'tests (pytest $(ARGS))'
	@rm -f .coverage .coverage.*
	@$(PY) $(if $(COVERAGE),-m coverage run) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not notebooks' $(ARGS)
	@$(if $(COVERAGE),$(PY) -m coverage combine --quiet && $(PY) -m coverage report --fail-under=$(FLOOR))

lint: $(VENV)/.runtime $(VENV)/.test $(VENV)/.horovod
	$(SAY) 'lint and types (ruff, mypy)'
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy && $(PY) -m codespell_lib

unit: $(VENV)/.test
	@$(PY) -m pytest tests/unit --hypothesis-profile=quick $(ARGS)

models: $(VENV)/.test $(VENV)/.horovod
	$(SAY) 'two ranks and one with every kind of model, on both backends'
	@MODEL_TABLE=all $(PY) -m pytest tests/e2e/trainer/test_model_table_tensorflow.py tests/e2e/trainer/test_model_table_torch.py $(ARGS)

gallery: $(VENV)/.test $(VENV)/.horovod
	$(SAY) 'the job files of the recipe gallery, each run to its end'
	@GALLERY=1 $(PY) -m pytest tests/gallery $(ARGS)

search: $(VENV)/.test
	$(SAY) 'sweeps by Optuna, exports to MLflow and TensorBoard, read back with the real tools'
	@$(PIP) $(COMPAT) -e '.[optuna,mlflow,tensorboard]'
	@$(PY) -m pytest tests/wire/client/test_client_search.py tests/wire/client/test_client_export.py $(ARGS)

docs: $(VENV)/.docs
	$(SAY) 'documentation, warnings are errors'
	@$(PY) -m mkdocs build --strict --quiet && echo 'site/index.html'

notebooks: $(VENV)/.test $(VENV)/.horovod
	$(SAY) 'notebooks'
	@$(if $(WRITE),BATCHHVD_WRITE_NOTEBOOKS=1) $(PY) -m pytest -m notebooks tests/e2e/test_notebooks.py $(ARGS)

azure: .venv-azure-$(PINS)/.done
	$(SAY) 'the client and the service with the $(PINS) Azure packages'
	@.venv-azure-$(PINS)/bin/python -m pytest -n $(WORKERS) --dist loadfile tests/unit tests/wire --ignore=tests/unit/trainer $(ARGS)

upstream: .venv-upstream/.done
	$(SAY) "Microsoft's tests of azure-storage-file-share against the file service"
	@.venv-upstream/bin/python -m tests.upstream.run $(ARGS)
	@$(if $(ARGS),true,$(MAKE) --no-print-directory upstream-blobs upstream-batchai)

# The files of the tests that hold more than what is refused by name.
BLOB_TESTS := block_blob block_blob_async common_blob common_blob_async container container_async get_blob get_blob_async \
  blob_access_conditions block_blob_sync_copy retry blob_retry content_validation blob_storage_account logging \
  large_block_blob blob_api_version blob_client sas sensitive_redirect

upstream-blobs: .venv-upstream/.done
	$(SAY) "Microsoft's tests of azure-storage-blob against the blob service (20 minutes)"
	@.venv-upstream/bin/python -m tests.upstream.run blobs $(or $(ARGS),$(BLOB_TESTS:%=test_%.py))

upstream-batchai: .venv-upstream/.done
	$(SAY) "What Microsoft's tests of azure-mgmt-batchai and of azure-cli do with Batch AI, told again"
	@.venv-upstream/bin/python -W ignore -m tests.upstream.batchai $(ARGS)

clients: $(VENV)/.test
	$(SAY) 'storage clients, each in an environment of its own, against the file service (the first time 1 GB of packages)'
	@$(PY) -m tests.clients.run $(ARGS)

drills: $(VENV)/.test
	$(SAY) 'drills: poisoned records, power cuts, growth (20 minutes)'
	@$(PY) benchmarks/drills.py $(ARGS) && $(PY) benchmarks/report.py

release: $(VENV)/.runtime
	$(SAY) 'source archive and wheel, and the tutorial from the wheel'
	@.ci/release $(PY)

first-hour: $(VENV)/.runtime
	$(SAY) "a stranger's first hour, from the wheel in a fresh environment (a few minutes)"
	@$(PY) benchmarks/first_hour.py && $(PY) benchmarks/report.py

clean:
	rm -rf .venv* build dist site run *.egg-info

# --- set-up: each step leaves a stamp, so a second run does none of it again ---

$(VENV)/bin/python:
	$(SAY) 'Python environment in $(VENV)'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "batchhvd needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -qq -y python3-venv; \
	  else echo "Python's venv module is missing. On Debian and Ubuntu: sudo apt-get install python3-venv"; exit 1; fi; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip setuptools wheel

$(VENV)/.runtime: setup.cfg | $(VENV)/bin/python
	$(SAY) 'batchhvd with its service and trainer (TensorFlow is 600 MB: a minute or two)'
	@$(PIP) $(COMPAT) -e '.[service]'
	@if $(PY) -m pip install --quiet --disable-pip-version-check --dry-run --no-deps 'tensorflow>=2.18' >/dev/null 2>&1; \
	 then $(PIP) $(COMPAT) -e '.[trainer]'; \
	 else echo 'no TensorFlow wheel for this Python: the trainer is left out, its tests will be skipped'; fi
	@touch $@

$(VENV)/.test: setup.cfg $(VENV)/.runtime
	$(SAY) 'test tools'
	@$(PIP) $(COMPAT) -e '.[test,notebook]' $(TORCH)
	@touch $@

$(VENV)/.docs: setup.cfg $(VENV)/.runtime
	$(SAY) 'documentation tools'
	@$(PIP) $(COMPAT) -e '.[docs]'
	@touch $@

# The lower bounds of setup.cfg, as exact versions.
.venv-azure-%/.done: setup.cfg
	$(SAY) 'Python environment with the $* Azure packages'
	@$(PYTHON) -m venv .venv-azure-$*
	@sed -nE $(if $(filter oldest,$*),'s/^    (azure-[a-z-]+|msrest)>=([0-9.]+).*/\1==\2/p',/none/p) setup.cfg > .venv-azure-$*/constraints.txt
	@.venv-azure-$*/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-azure-$*/constraints.txt -e '.[service,test]'
	@touch $@

# Microsoft's tests need the client that they belong to, its asynchronous side, and the blob client.
.venv-upstream/.done: setup.cfg
	$(SAY) "Python environment for Microsoft's tests"
	@$(PYTHON) -m venv .venv-upstream
	@.venv-upstream/bin/python -m pip install --quiet --disable-pip-version-check -e '.[service]' azure-storage-file-share==12.27.1 \
	  azure-storage-blob azure-storage-extensions aiohttp pytest pytest-asyncio pytest-timeout
	@touch $@

# One build serves every Keras backend that is installed when it runs; the wheel stays in the user's cache.
$(VENV)/.horovod: batchhvd/trainer/install/source.py $(VENV)/.runtime $(if $(filter test test-all lint models gallery notebooks,$(MAKECMDGOALS)),$(VENV)/.test)
	$(SAY) 'Horovod (built once, then kept in the cache)'
	@if $(PY) -c 'import tensorflow' 2>/dev/null; then $(PY) -m batchhvd.trainer.install; else echo 'no Keras backend here: nothing to build for'; fi
	@touch $@
