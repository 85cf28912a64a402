# The two commands of a newcomer, and two more. Needs Python 3.11 or later, nothing else.
# PYTHON=python3.12 make test   uses another interpreter; .venv is made anew when pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# The evaluation and the loan rules take minutes and have no budget: targets of their own.
BENCHMARKS := $(filter-out __init__ evaluation loan_rules,$(basename $(notdir $(wildcard benchmarks/*.py))))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test bench evaluation loan-rules testbed ray-figures clean

help:
	@echo "make demo         see it run live, then compare FIFO with lending, with resizing and with both on synthetic jobs"
	@echo "make test         style, types, import rules and tests"
	@echo "make bench        benchmarks with budgets, and how far the reclaim rules are from the optimum"
	@echo "make evaluation   docs/explanation/evaluation.md anew; needs ARYL_DATA, takes minutes"
	@echo "make loan-rules   the tables of docs/explanation/forecasting.md anew; needs ARYL_DATA, takes minutes"
	@echo "make testbed      docs/explanation/testbed.md anew: 180 jobs on 8 servers of a Ray cluster; takes 50 minutes"
	@echo "make ray-figures  docs/explanation/ray-performance.md anew, beside Ray Train; takes minutes"
	@echo "make clean        remove .venv and everything that tools left behind"

demo: $(READY)
	@$(BIN)/aryl demo

test: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist loadgroup

bench: $(READY)
	@set -e; for module in $(BENCHMARKS); do echo "== $$module"; $(BIN)/python -m benchmarks.$$module; done

evaluation: $(READY)
	$(BIN)/python -m benchmarks.evaluation --write docs/explanation/evaluation.md

loan-rules: $(READY)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.loan_rules --write docs/explanation/forecasting.md

testbed: $(READY)
	$(BIN)/python -m benchmarks.testbed --backend ray --write docs/explanation/testbed.md

ray-figures: $(READY)
	$(BIN)/python -m benchmarks.beside_ray_train --write docs/explanation/ray-performance.md

# The stamp is written last, so an installation that broke off is repeated.
$(READY): pyproject.toml
	@echo "installing into .venv, once; this takes about a minute"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
