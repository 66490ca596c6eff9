# `make wirl` runs the main job, `make test` the tests; each makes what it needs on a fresh machine.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
# `make test REQUIREMENTS=requirements.lock` installs the exact versions that CI uses (Python 3.11).
REQUIREMENTS ?= requirements.txt
REQUIREMENTS_DEV ?= requirements-dev.txt

.PHONY: wirl smoke test test-docker test-compile fuzz proofs lint bench clean python

wirl: .venv/ready
	.venv/bin/python experiments/run.py --config=configs/wirl.py --workdir=runs/wirl

smoke: .venv/ready
	.venv/bin/python experiments/run.py --config=configs/wirl.py:smoke --workdir=runs/smoke

# Tests run in WORKERS processes, file by file: what a file has started or compiled serves all of its tests. Each takes
# about 3 GiB. `.venv/bin/python -m pytest FILE` runs a few in one process.
WORKERS ?= 2
PYTEST := .venv/bin/python -m pytest -n $(WORKERS) --dist loadfile

test: .venv/ready-dev
	$(PYTEST)

# Starts an engine of its own, unless one answers already, and makes the image in it. CI adds --optional: a machine
# where no engine is possible then skips these tests and says so.
ENGINE ?= third_party/docker_engine/with_engine.sh
test-docker: .venv/ready-dev
	$(ENGINE) bash -ec 'test -n "$$MLEXPERT_NO_ENGINE" || .venv/bin/python third_party/sandbox_image/pack.py; \
		$(PYTEST) -m "docker and not slow"'

# Compiles training steps for TPUs and H200s that are not here. The compilers (1.1 GB, for the versions of the lock file:
# REQUIREMENTS=requirements.lock) lie in a folder of their own, where nothing else that uses JAX finds them.
test-compile: .venv/ready-dev .venv/compilers/ready
	PYTHONPATH=.venv/compilers JAX_PLATFORMS=cpu .venv/bin/python -m pytest -rs tests/loops/test_compile.py

# A minute of mutilated submissions: no crash, no hang, no growing memory.
fuzz: .venv/ready-dev
	PYTHONPATH=. .venv/bin/python tests/tasks/fuzz_submission.py --seconds 60 --seed 1

# Most of them are runs of their own, so they may be divided at will.
proofs: .venv/ready-dev
	$(PYTEST) --dist worksteal -m slow

lint: .venv/ready-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright --pythonpath .venv/bin/python
	.venv/bin/lint-imports

# TORCH_PYTHON=<a Python with torch, see third_party/transformers_bench> adds the comparison with transformers.
bench: .venv/ready
	.venv/bin/python -m experiments.bench.sandbox
	.venv/bin/python -m experiments.bench.engine
	.venv/bin/python -m experiments.bench.grading
	.venv/bin/python -m experiments.bench.model $(if $(TORCH_PYTHON),--torch_python=$(TORCH_PYTHON))

python:
	@test -n "$(PYTHON)" || { echo "error: mlexpert needs Python 3.11, 3.12 or 3.13 as python3 (or make PYTHON=/path/to/python)"; exit 2; }

.venv/bin/python: | python
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv || { echo "error: python's venv module is missing; on Debian and Ubuntu: apt install python3-venv"; rm -rf .venv; exit 2; }

.venv/ready: .venv/bin/python requirements.txt
	.venv/bin/python -m pip install -q --disable-pip-version-check -r $(REQUIREMENTS)
	@touch $@

.venv/ready-dev: .venv/ready requirements-dev.txt
	.venv/bin/python -m pip install -q --disable-pip-version-check -r $(REQUIREMENTS_DEV)
	@touch $@

.venv/compilers/ready: .venv/bin/python requirements-compile.txt
	.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target .venv/compilers \
		-r requirements-compile.txt
	@touch $@

clean:
	rm -rf .venv runs/smoke
