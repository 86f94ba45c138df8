# Every target sets up what it needs; see `make help`.
# Commands are simple ones that make starts itself, without a shell between: when make is killed,
# the kernel tells them (setpriv --pdeathsig).

PYTHON := .venv/bin/python
TIED := setpriv --pdeathsig KILL --

.DEFAULT_GOAL := help
.PHONY: help setup demo compare dashboard figure18 test test-long test-opendaylight test-openstack check bench papers docs package clean

help: ## say what each target does
	@sed -n 's/^\([a-z0-9-]*\): [a-z ]*## /\1\t/p' Makefile | expand -t 20

setup: ## have Debian packages, Python and .venv (the others do this first)
	@$(TIED) sh examples/testbed/bootstrap.sh

demo: setup ## run a workflow from abstract description to measured transfers; EXAMPLE=soykb or montage
	@$(TIED) $(PYTHON) -m examples.demo $(if $(EXAMPLE),--example $(EXAMPLE))

compare: setup ## run the example with ADON and as Pegasus comes, in turns, as root (hours; resumable)
	@$(TIED) $(PYTHON) -m examples.compare $(if $(EXAMPLE),--example $(EXAMPLE))

dashboard: setup ## look at what the demo measured, in a browser at http://127.0.0.1:8470/
	@$(TIED) .venv/bin/adon dashboard

figure18: setup ## replay the thesis's Figure 18 on the testbed's network, with a plot
	@$(TIED) $(PYTHON) examples/soykb/figure18.py

# The tests start hundreds of processes, which would compile everything anew without bytecode.
test test-long: export PYTHONDONTWRITEBYTECODE :=
test: setup ## run the tests that this machine and user can run, five files at a time
	@$(TIED) $(PYTHON) -m pytest -q -n 5 --dist loadfile --no-loadscope-reorder -m "not long"

test-long: setup ## run what needs load, chance or long sweeps, one test at a time (an hour)
	@$(TIED) $(PYTHON) -m pytest -v -m long

test-opendaylight: setup ## try the OpenDaylight driver with a real one, as root (assembled once, minutes)
	@$(TIED) $(PYTHON) -m tests.opendaylight

test-openstack: setup ## try clouds as part of a pool with OpenStack's services, as root (installed once, minutes)
	@$(TIED) $(PYTHON) -m tests.cloud

check: setup ## check format, lint, types and the tables of docs/benchmarks.md
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy
	@$(PYTHON) -m tests.bench.tables --check

bench: setup ## measure and write docs/results; ONLY=P3 measures one id, TRACES=DIR is for P1
	@$(TIED) $(PYTHON) -m tests.bench $(if $(ONLY),--only $(ONLY))

papers: setup ## make figures of the papers again, as root; ONLY=soykb, policies, sos, montage or dmz
	@$(TIED) $(PYTHON) -m tests.bench.papers $(if $(ONLY),--only $(ONLY))

docs: setup ## put the tables of docs/results into docs/benchmarks.md
	@$(PYTHON) -m tests.bench.tables

package: setup ## build a Debian package, dist/adon_*.deb
	@$(TIED) packaging/build-deb

clean: ## remove what was made here, also what killed runs left (downloads in ~/.cache/adon stay)
	@[ ! -x .venv/bin/python ] || .venv/bin/python -m examples.testbed.procs .adon
	@rm -rf demo-report compare-report.html sweep-report.* figure18 .adon .venv *.egg-info build dist
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
