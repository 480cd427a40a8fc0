# Two commands do everything on a machine with Python 3.11+ and nothing else:
#   make demo    the main job, end to end, on an embedded Postgres
#   make test    every test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo up test chaos mutants bench-peers check fix lock clean

demo: $(STAMP)
	@$(BIN)/reliq demo

up: $(STAMP)
	@$(BIN)/reliq dev

# Scenarios come last and by themselves: what fills tables would be noise to them.
test: $(STAMP)
	@$(BIN)/pytest -n 2 -m "not chaos"
	@$(BIN)/pytest -n 2 -m first_cell scenarios

# Every cell of every scenario, with five seeds; every mutant, with ten. Both take a while.
chaos: $(STAMP)
	@$(BIN)/pytest -n 2 -m chaos --chaos-seeds 5 scenarios

mutants: $(STAMP)
	@$(BIN)/reliq scenario mutants --seeds 10 --postgres embedded --table docs/kill-matrix.md

# Peers are installed into .peers, each apart from reliq; takes the better part of an hour.
bench-peers: $(STAMP)
	@benchmarks/peers/install.sh
	@$(BIN)/reliq bench all --rounds 15 --peers .peers --page docs/benchmarks.md \
		--notes benchmarks/holding-back.md

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/reliq scenario schema > schema/scenario.schema.json

lock: $(STAMP)
	$(BIN)/uv lock

clean:
	rm -rf $(VENV) .reliq

$(STAMP): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("reliq needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + ": run make PYTHON=/path/to/python3.11")'
	@echo "Installing reliq into $(VENV), once …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check 'uv>=0.8'
	@$(BIN)/uv sync --quiet --frozen --inexact --all-extras
	@touch $(STAMP)
