# `make book` builds the book, `make test` proves it. `make` lists the rest.

PYTHON ?= python3
VENV ?= .venv
PORT ?= 8000
# Threads of a training run; tests and notebooks use one. torch takes the
# smaller of the two numbers.
CORES ?= 2
THREADS = OMP_NUM_THREADS=$(CORES) MKL_NUM_THREADS=$(CORES)

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BUILT := _build/.built
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
# The folders are listed too, so that a removed page counts as a change. The
# dot keeps them apart from the targets `book` and `notebooks`.
SOURCES := _config.yml _toc.yml $(wildcard tools/*.py tools/reference/*.py) \
	$(wildcard toyml/*.py toyml/*/*.py) \
	$(shell find book/. notebooks/. -not -path '*/.ipynb_checkpoints*')

# One thread for each process: tests run side by side, and sums keep one order.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# A kernel of the user's own must not replace the one in the environment.
export JUPYTER_PREFER_ENV_PATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help book serve lint test lab notebooks archive outdated publish-url \
	train train-gpu record bench bench-train bench-samplers bench-race clean

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(firstword \
	$(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed; \
	try: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	{ echo "This Python cannot make a venv (no ensurepip); \
	on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -r requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# A change in any page builds the whole book again: an old doctree can hide a
# link that the change broke. A failed build leaves no doctree and no stamp, so
# the next one runs and fails too.
$(BUILT): $(INSTALLED) $(SOURCES)
	@rm -rf _build/.doctrees _build/html $@
	$(BIN)/jupyter-book build . -W -n --keep-going || \
	{ rm -rf _build/.doctrees; exit 1; }
	@touch $@

book: $(BUILT) ## Build the book strictly and say where it lies.
	@echo "The book: $(CURDIR)/_build/html/index.html"

serve: book ## Build the book, serve it on 127.0.0.1 and open a browser.
	$(BIN)/python tools/serve.py _build/html $(PORT)

lint: $(INSTALLED) ## Check the style of all Python, notebooks included.
	$(BIN)/ruff check .

test: lint book ## Lint, build the book, run all tests and all notebooks.
	$(BIN)/python -m pytest -n 2 --dist loadscope --nbval tests notebooks

lab: $(INSTALLED) ## Open JupyterLab on the notebooks.
	$(BIN)/jupyter lab --notebook-dir=notebooks

notebooks: $(INSTALLED) ## Run all notebooks again and save their outputs.
	$(BIN)/python tools/run_notebooks.py $(NOTEBOOKS)
	$(BIN)/python tools/readme_picture.py book/_static/hot_tea.png

archive: book ## Zip the built book and write a checksum beside it.
	$(BIN)/python tools/archive.py \
	$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

outdated: $(INSTALLED) ## List the pins that are behind the newest release.
	$(BIN)/python tools/outdated.py

publish-url: $(INSTALLED) ## Write the address URL=... into book and notebooks.
	$(BIN)/python tools/publish_url.py "$(URL)"

train: $(INSTALLED) ## Train the default run, whose answer is known.
	$(THREADS) $(BIN)/python -m toyml.train --out runs/markov

train-gpu: $(INSTALLED) ## Train text-gpu and its twin on one GPU, 8 minutes.
	$(BIN)/python tools/record/gpu.py

record: $(INSTALLED) ## Run the recorded experiments again: hours on 2 cores.
	$(BIN)/python tools/record/markov.py
	$(BIN)/python tools/record/orders.py
	$(BIN)/python tools/record/sudoku.py
	$(BIN)/python tools/record/blocks.py
	$(BIN)/python tools/record/text.py
	$(BIN)/python tools/record/race.py

bench: $(INSTALLED) ## Print costs as ratios, and the error rates of the audit.
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_audit.py

bench-train: $(INSTALLED) ## Print gap, speed and memory of the training run.
	$(THREADS) $(BIN)/python tests/bench_train.py

bench-samplers: $(INSTALLED) ## Print sampling speed against forward passes.
	$(THREADS) $(BIN)/python tests/bench_samplers.py

bench-race: $(INSTALLED) ## Race the recipes over three seeds: hours.
	$(BIN)/python tools/record/race.py

clean: ## Remove the environment, the built book and all caches.
	rm -rf $(VENV) _build build toyml.egg-info .pytest_cache .ruff_cache \
	.hypothesis
	find . -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
