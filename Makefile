# Every target sets up what it needs: .venv is made by the first, and made again only when its ingredients change.

PYTHON   ?= python3
EXAMPLES ?= 100
SEED     ?= 0
JOBS     ?= 2
PYTHONS  ?= python3.11 python3.12 python3.13

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DOCS   := $(VENV)/.docs
PEERS  := .venv-peers
NATIVE := .venv-native
KERNELS := .venv-kernels
OTHERS := .venv-integrations

PAGES := attack bench bench-operations bench-verify campaign-costs campaign-disturbed campaign-paper checkers criteria findings fuzz gates inspected \
	interrupts named onnx-accuracy readings results rotary seeds sharpness small-mistakes soundness torchlean worst

KERAS_BACKENDS := jax torch numpy
VERIFY_PEERS = TRANSFORMERS_VERBOSITY=error $(PEERS)/bin/attnspec verify systems.peers:GROUPS --max-examples $(EXAMPLES) --seed $(SEED) --jobs $(JOBS)

VERIFY_NATIVE = $(NATIVE)/bin/python -W ignore -m attnspec verify systems.native:GROUPS --max-examples $(EXAMPLES) --seed $(SEED) --jobs $(JOBS)

# Modules are compiled once, also where the environment says otherwise: tests start some hundred processes that import them.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

.PHONY: help
help: ## use: list the targets
	@for group in use develop research; do \
		echo "$$group"; \
		awk -F ":.*## $$group: " '/## '$$group': / {sub(/\$$\(PAGES\)/, "PAGE", $$1); printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST); \
	done

.PHONY: setup
setup: $(READY) ## use: set up .venv; then: . .venv/bin/activate
	@echo "Ready: . $(BIN)/activate"

.PHONY: verify
verify: EXAMPLES = 25
verify: $(READY) ## use: check the laws on all systems of this repository [ONLY= EXAMPLES=25 SEED=0]
	$(BIN)/attnspec verify systems:GROUPS $(if $(ONLY),--only "$(ONLY)") --max-examples $(EXAMPLES) --seed $(SEED) --jobs $(JOBS)

.PHONY: report
report: EXAMPLES = 25
report: $(READY) ## use: the same as a page, build/report/index.html [ONLY= EXAMPLES=25 SEED=0 JOBS=2]
	$(BIN)/attnspec verify systems:GROUPS $(if $(ONLY),--only "$(ONLY)") --max-examples $(EXAMPLES) --seed $(SEED) --jobs $(JOBS) --html build/report || [ $$? -eq 1 ]

.PHONY: regenerate
regenerate: $(READY) ## develop: write the quick plan and vectors again after a change to laws or bugs [SINCE=]
	$(BIN)/python -m research.regenerate --jobs $(JOBS) --since "$(SINCE)"

.PHONY: mutants
mutants: $(READY) ## research: run every law against every known bug; writes docs/kill-matrix.* [JOBS=2]
	$(BIN)/python -m research.pages mutants --jobs $(JOBS)

.PHONY: vectors
vectors: $(READY) ## develop: write the certified test vectors for other languages; writes vectors/
	$(BIN)/python -m research.pages vectors

.PHONY: cases
cases: $(READY) ## develop: choose the inputs of the vectors again, and write them [JOBS=2]
	$(BIN)/python -m research.pages vectors --choose --jobs $(JOBS)

# One process more than cores: some tests wait for what they run.
PYTEST = $(BIN)/python -m pytest --numprocesses $$(( $(JOBS) + 1 )) --dist worksteal

.PHONY: test
test: $(READY) ## develop: run the tests of spec, oracles and the product [JOBS=2]
	$(PYTEST)

.PHONY: test-all
test-all: $(READY) ## develop: run all tests, then some of them again under another BLAS kernel [JOBS=2]
	$(PYTEST) --hypothesis-profile=thorough -m "thorough or not thorough" attnspec spec oracles properties systems research
	$(MAKE) another
	$(MAKE) presets

.PHONY: presets
presets: $(READY) ## develop: measure the exponentials of systems against the arithmetics that they declare
	$(BIN)/python -m research.presets

.PHONY: another
another: $(READY) ## develop: run the tests that may depend on the processor under another BLAS kernel
	$(BIN)/python -m research.portable --another --jobs $(JOBS)

# Each Python has an environment of its own, .venv-python3.12, which the first run sets up.
.PHONY: portable
portable: EXAMPLES = 25
portable: $(READY) ## develop: run tests under all BLAS kernels, SIMD levels and Pythons [PYTHONS="…"]
	$(BIN)/python -m research.portable --examples $(EXAMPLES) --jobs $(JOBS)
	@for python in $(PYTHONS); do \
		if command -v $$python >/dev/null; then $(MAKE) PYTHON=$$python VENV=.venv-$$(basename $$python) test-all || exit 1; \
		else echo "$$python is not at hand: nothing was tested with it."; fi; \
	done

.PHONY: browser
browser: $(READY) ## develop: test the pages in Chromium: mouse, keyboard, phone, dark mode, accessibility
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { echo "make browser needs Chromium: apt-get install chromium, or your system's package of it."; exit 1; }
	$(BIN)/python -m pytest research/tests/test_browser*.py

.PHONY: check
check: $(READY) ## develop: check lint, format and types; writes nothing
	$(BIN)/python -m ruff check --no-cache .
	$(BIN)/python -m ruff format --no-cache --check .
	$(BIN)/python -m mypy --cache-dir=/dev/null

.PHONY: fmt
fmt: $(READY) ## develop: format the code, and fix what the linter can fix
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

.PHONY: errata
errata: $(READY) ## use: print where TorchLean's literal definitions break their own laws
	$(BIN)/python -m spec.errata

# research/pages.py runs the command of a page, which docs/pages.toml has, and writes the head of the page.
.PHONY: $(PAGES)
$(PAGES): $(READY) ## research: write one page of measurements; docs/results.md lists them [OPTIONS="--jobs 4"]
	$(BIN)/python -m research.pages $@ $(OPTIONS)

.PHONY: release-pages
release-pages: $(READY) ## research: write all pages of an older revision again; this takes hours
	$(BIN)/python -m research.pages --all

.PHONY: peers
peers: EXAMPLES = 25
peers: $(READY) $(PEERS)/.ready ## research: check released libraries; writes docs/peers.md [ONLY= KERAS_BACKEND=jax]
	@mkdir -p build/peers
	$(if $(ONLY),KERAS_BACKEND=$(or $(KERAS_BACKEND),jax) $(VERIFY_PEERS) --only "$(ONLY)" --json build/peers/only.json, \
		$(BIN)/python -m research.pages peers)

# research/pages.py runs this for the pages of peers and rotary. A process has one back end of Keras; the
# first of these processes also runs all other libraries. A broken law does not stop the run: the page gets
# all reports, and then the command fails.
.PHONY: all-peers
all-peers: EXAMPLES = 25
all-peers: $(PEERS)/.ready
	@rm -f build/peers/only.json
	@start=$$(date +%s); $(foreach backend,$(or $(KERAS_BACKEND),$(KERAS_BACKENDS)), KERAS_BACKEND=$(backend) $(VERIFY_PEERS) \
		$(if $(filter jax,$(backend)),,--only " $(backend): ") --json build/peers/$(backend).json || [ $$? -eq 1 ] || exit 1;) \
	echo "The laws took $$(( ($$(date +%s) - start) / 60 )) minutes on $(JOBS) cores; the environment takes $$(du -sh $(PEERS) | cut -f1)." \
		| tee build/peers/took.txt
	$(PEERS)/bin/python -W ignore -m research.peers build/peers/*.json --took build/peers/took.txt

.PHONY: all-rotary
all-rotary: $(PEERS)/.ready
	$(PEERS)/bin/python -W ignore -m research.rotary_peers

.PHONY: native
native: EXAMPLES = 10
native: $(READY) $(NATIVE)/.ready ## research: check ggml, OpenVINO and other native runtimes; writes docs/native.md [ONLY=]
	@mkdir -p build/native
	$(if $(ONLY),$(VERIFY_NATIVE) --only "$(ONLY)",$(BIN)/python -m research.pages native)

# research/pages.py runs this for the page. A law that fails does not stop the run: the page gets the report, and then the command fails.
.PHONY: all-native
all-native: EXAMPLES = 10
all-native: $(NATIVE)/.ready
	$(VERIFY_NATIVE) --json build/native/report.json || [ $$? -eq 1 ]
	$(NATIVE)/bin/python -W ignore -m research.native build/native/report.json

.PHONY: kernels
kernels: $(READY) $(KERNELS)/.ready ## research: run released GPU kernels in interpreters; writes docs/kernels.md [ONLY=liger_rope]
	$(if $(ONLY),$(KERNELS)/bin/python -m attnspec verify systems/kernels/$(ONLY).py --interpret --quick,$(BIN)/python -m research.pages kernels)

# research/pages.py runs this for the page.
.PHONY: all-kernels
all-kernels: $(KERNELS)/.ready
	$(KERNELS)/bin/python -m research.kernels --jobs $(JOBS)

.PHONY: integrations
integrations: $(OTHERS)/.ready ## develop: test the files for other tools, in their released packages
	$(OTHERS)/bin/python -m pytest integrations/tests

.PHONY: release
release: $(DOCS) ## develop: the checklist of a release, step by step; writes build/release [ONLY="versions wheel"]
	$(BIN)/python -m research.release $(ONLY)

.PHONY: printed-runs
printed-runs: $(READY) ## develop: run the examples of README and guide, and write what they print
	$(BIN)/python -m research.printed_runs

.PHONY: reports
reports: $(READY) ## research: write the texts for maintainers about each defect, docs/reports
	$(BIN)/python -m research.reports

.PHONY: table-of-roundings
table-of-roundings: $(READY) ## write the table of roundings into the guide; writes docs/guide/budgets.md
	$(BIN)/python -m research.table_of_roundings

.PHONY: screenshots
screenshots: $(READY) ## develop: draw the pictures of the page and the terminal; writes docs/*.png
	$(BIN)/python -m research.screenshots

.PHONY: docs
docs: $(DOCS) ## use: make the documentation site, build/site/index.html
	$(BIN)/python docs/site build/docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs $(JOBS) -c docs/site build/docs build/site
	@echo build/site/index.html

.PHONY: clean
clean: ## develop: remove the environment and all caches
	rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and pinned, so that no other package pulls in another build. The stamp is written last: an interrupted set-up is
# taken up again, and a finished one is left alone.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or later is needed, but $(PYTHON) is {sys.version.split()[0]}.")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[torch,onnx,dev]'
	touch $@

# All libraries can live together: 2.9 GB, and about 5 minutes. keras-hub asks for TensorFlow (2.2 GB), which its layers do not need on other
# back ends, Whisper for Triton, and LitGPT for an older huggingface-hub than transformers does: these are installed without what they
# ask for, which is among the libraries as far as they need it. A library that does not install is shown as not run.
PEERS_PIP = $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint systems/peers/constraints.txt
LIBRARIES := transformers torchtune+torchao x-transformers rotary-embedding-torch jax flax equinox dm-haiku \
	keras+sentencepiece+kagglehub+kagglesdk+tokenizers+regex onnx onnxruntime mlx[cpu] tinygrad \
	local-attention diffusers torch_geometric positional-encodings \
	mlx-lm monai kornia fair-esm ibm-fms memory-efficient-attention-pytorch ring-attention-pytorch \
	lightning+jsonargparse[signatures] numba+more-itertools
WITHOUT_ALL := keras-hub==0.32.0 litgpt==0.5.13 openai-whisper==20250625
$(PEERS)/.ready: pyproject.toml systems/peers/constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS_PIP) torch==2.13.0
	$(PEERS_PIP) --editable . pytest
	@for library in $(LIBRARIES); do \
		$(PEERS_PIP) $$(echo $$library | tr + ' ') || echo "$$library did not install: it is shown as not run."; \
	done
	@for library in $(WITHOUT_ALL); do $(PEERS_PIP) --no-deps $$library || echo "$$library did not install: it is shown as not run."; done
	touch $@

# The recipes pin the runtimes, and build ggml in build/native: two minutes on two cores.
$(NATIVE)/.ready: pyproject.toml systems/native/recipes.py
	$(PYTHON) -m venv $(NATIVE)
	$(NATIVE)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(NATIVE)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	$(NATIVE)/bin/python -m systems.native
	touch $@

# The packages ask for builds of torch with CUDA: Triton's interpreter runs their kernels without. fla-core imports einops.
$(KERNELS)/.ready: pyproject.toml systems/kernels/requirements.txt
	$(PYTHON) -m venv $(KERNELS)
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint systems/kernels/requirements.txt triton jax einops --editable .
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement systems/kernels/requirements.txt
	touch $@

# flashinfer-bench asks for flashinfer, and the others for a build of torch with CUDA: Triton's interpreter runs them without.
WITHOUT_GPU := flashinfer-bench==0.1.2 liger-kernel==0.8.5 flash-linear-attention==0.6.0 fla-core==0.6.0
$(OTHERS)/.ready: pyproject.toml integrations/requirements.txt
	$(PYTHON) -m venv $(OTHERS)
	$(OTHERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(OTHERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[onnx,dev]'
	@for package in "--requirement integrations/requirements.txt" $(WITHOUT_GPU:%="--no-deps %"); do \
		$(OTHERS)/bin/python -m pip install --quiet --disable-pip-version-check $$package || echo "$$package did not install: its tests are skipped."; \
	done
	touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@
