# nodevet: every target sets up what it needs. Start with `make demo` and `make test`.
.DEFAULT_GOAL := help
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z -]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

.venv/ready: .ci/requirements.txt pyproject.toml sim/pyproject.toml
	@./.ci/setup system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "nodevet needs Python 3.10 or newer; set PYTHON=python3.x"; exit 2; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .ci/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e sim
	@$(BIN)/python -m compileall -q nodevet checks fixes sim # some machines keep no bytecode by themselves
	@touch $@

.PHONY: setup
setup: .venv/ready ## create .venv with pinned dependencies

.PHONY: demo
demo: .venv/ready ## boot eight simulated nodes, vet them over SSH and leave the HTML report
	@./.ci/setup sshd sim
	@$(BIN)/python -m nodevet_sim.demo

.PHONY: test
test: .venv/ready ## run all tests
	@./.ci/setup sshd sim test browser
	@./.ci/other-slurm
	@./.ci/node-tools
	NODEVET_SET_UP=1 $(BIN)/python .ci/tests.py $(if $(STRICT),--strict)

.PHONY: fuzz
fuzz: .venv/ready ## run the property tests ten times, each time with other examples
	@for round in {1..10}; do \
		NODEVET_FUZZ=1 $(BIN)/pytest -q -n auto $$(grep -rl "from hypothesis" tests --include=test_*.py) || exit; \
	done

OF_CHECK = $(wildcard checks/$(CHECK).py fixes/$(CHECK).py tests/checks/test_$(CHECK)*.py)

.PHONY: check
check: .venv/ready ## make check CHECK=xid: lint one check, write its pages and run its tests
	$(BIN)/python docs/generate.py
	$(BIN)/ruff check $(OF_CHECK)
	$(BIN)/ruff format --check $(OF_CHECK)
	$(BIN)/pytest -q tests/checks --check $(CHECK)

.PHONY: fresh
fresh: ## make demo and make test in a clone on a minimal Debian, booted for it
	@./.ci/setup fresh test
	@./.ci/fresh

.PHONY: image
image: .venv/ready ## build the container image, build/nodevet-image.tar
	@./.ci/setup image
	@./.ci/image

.PHONY: lint
lint: .venv/ready ## style, types, import rules, Python 3.6 syntax of the probe
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vermin --quiet --no-tips --eval-annotations -t=3.6- --violations nodevet/remote
	rm -rf build/types build/wheel build/dist
	mkdir -p build/types
	cp -a nodevet sim/nodevet_sim build/types
	cp -a baselines checks fixes build/types/nodevet # where the wheel has them
	MYPYPATH=build/types $(BIN)/mypy --strict -p nodevet -p nodevet_sim
	for project in . sim; do \
		$(BIN)/python -m build --quiet --no-isolation --outdir build/dist $$project || exit; \
	done
	for wheel in build/dist/*.whl; do $(BIN)/python -m zipfile -e $$wheel build/wheel; done
	cd build/wheel && PYTHONPATH=../../.ci ../../$(BIN)/lint-imports --no-cache --config ../../pyproject.toml

.PHONY: docs
docs: .venv/ready ## write the generated pages, the man page and the scripts of shells again
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/man.py share
	$(BIN)/nodevet schema --project docs > baselines/nodevet.schema.json

.PHONY: incidents
incidents: .venv/ready ## record the loads of tests/corpus/kinds and jobs that have no recording yet
	$(BIN)/python -m tests.corpus.record $(KINDS)
	$(BIN)/python -m tests.corpus.record_job $(JOBS)

.PHONY: calibrate
calibrate: .venv/ready ## judge the recordings again and write the tables of docs/diagnosis.md
	$(BIN)/python -m tests.corpus.calibrate

.PHONY: console
console: .venv/ready ## run the commands that the pages show, and write there what they print
	@./.ci/setup sshd sim test
	NODEVET_CONSOLE=write $(BIN)/pytest tests/test_console_blocks.py || \
		$(BIN)/pytest --last-failed tests/test_console_blocks.py

.PHONY: site
site: .venv/ready ## build the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

.PHONY: collection
collection: .venv/ready ## build the Ansible collection, in build/collection
	$(BIN)/ansible-galaxy collection build --force --output-path build/collection integrations/ansible_collections/nodevet/nodevet

.PHONY: collection-lint
collection-lint: collection ## check it by ansible-lint and ansible-test, some minutes
	./.ci/collection build/collection/*.tar.gz

.PHONY: bench
bench: .venv/ready ## measure nodevet against its peers and floors, 25 minutes; writes docs/performance.md
	@./.ci/setup sshd sim
	$(BIN)/python benchmarks/sweep.py

.PHONY: deb rpm
deb: KIND = deb
rpm: KIND = rpm
deb rpm: .venv/ready ## build the Debian package, or the RPM package, in build/packages
	@./.ci/setup packages
	rm -rf build/wheels
	$(BIN)/python packages/wheels.py build/wheels
	$(BIN)/python -m build --quiet --no-isolation --outdir build/wheels .
	$(BIN)/python packages/build.py $(KIND) build/wheels build/packages

.PHONY: packages
packages: .venv/ready ## build both, twice each, and try them in a clean root
	@./.ci/setup packages
	@./.ci/packages

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf .venv .venv-bench demo build dist sim/build *.egg-info sim/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
