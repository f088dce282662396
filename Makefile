# Every command a person or a machine runs here. Needs python3 (3.11 or later), pip and make; the rest is fetched.
#
#   .venv        3.12: the suite, the gates, harbor to compare with      (1.2 GB)
#   .venv-3.13   the conformance suite once more, on the other Python    (1.1 GB)
#   .venv-demo   only what a user of proctor installs                    (61 MB)
#   .venv-mutation, build/, .tools/ (a private uv where PATH has none)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# With it set, every start would compile every module again, and the start-up figures would be wrong.
unexport PYTHONDONTWRITEBYTECODE

# harbor's litellm would ask the network for a price list at every import, and wait for it.
export LITELLM_LOCAL_MODEL_COST_MAP := True

MAIN := .venv/bin
OTHER := .venv-3.13/bin
DEMO := .venv-demo/bin
MUTATION := .venv-mutation/bin
INSTALL_FROM := requirements.lock pyproject.toml .python-version scripts/make-env scripts/get-uv
# Two workers more than processors, because many tests wait for other processes; override with `make test WORKERS=4`.
WORKERS := $(shell expr $$(nproc 2> /dev/null || echo 2) + 2)
# Pure tests wait for little, and each worker collects them all.
QUICK_WORKERS := $(shell expr $$(nproc 2> /dev/null || echo 2) + 1)
# Extra arguments for pytest: `make test ARGS='-k reward'`.
ARGS :=
# Where quick tests write: what is synced to a disk takes longer than the tests.
MEMORY := $(shell test -w /dev/shm && echo /dev/shm)
# Parts of the suite by what they need, for machines that run them at the same time: see tests/tiers.py.
TIERS := tier-pure tier-harbor tier-docker tier-browser tier-sandbox tier-process

.PHONY: help demo test quick lint format pytest $(TIERS) conformance-3.13 bench soak mutation lock docs site dist screenshots cheaters forged coverage clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

demo: .venv-demo/.installed  ## four acts: an agent is scored, a cheat is caught, an edited job is named, a report is written
	@PATH="$(CURDIR)/$(DEMO):$$PATH" scripts/demo

test: lint pytest conformance-3.13  ## everything that must hold before a commit

quick: .venv/.installed  ## only the tests that start no process, with fewer generated examples
	@$(MAIN)/python -m compileall -q -j 0 src
	@PATH="$(CURDIR)/$(MAIN):$$PATH" PYTEST_DEBUG_TEMPROOT=$(MEMORY) $(MAIN)/python -m pytest -q -n $(QUICK_WORKERS) --tier pure --hypothesis-profile quick $(ARGS)

lint: .venv/.installed  ## formatting, rules, types
	@$(MAIN)/ruff format --quiet --check . || { echo "make format repairs this" >&2; exit 1; }
	@$(MAIN)/ruff check --quiet .
	@$(MAIN)/mypy --no-error-summary src tests $(wildcard benchmarks) scripts/cli-docs
	@$(MAIN)/mypy --no-error-summary scripts/measure
	@$(MAIN)/mypy --no-error-summary scripts/terminal-bench

format: .venv/.installed  ## rewrite the code as the formatter wants it
	@$(MAIN)/ruff format --quiet .
	@$(MAIN)/ruff check --quiet --fix .

pytest: .venv/.installed  ## the whole suite on 3.12
	@scripts/get-packages
	@$(MAIN)/python -m compileall -q -j 0 src
	@PATH="$(CURDIR)/$(MAIN):$$PATH" $(MAIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "not soak" $(ARGS)

tier-docker:  ## one part of the suite by what it needs: pure, harbor, docker, browser, sandbox or process
$(TIERS): tier-%: .venv/.installed
	@scripts/get-packages
	@$(MAIN)/python -m compileall -q -j 0 src
	@PATH="$(CURDIR)/$(MAIN):$$PATH" $(MAIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --tier $* $(ARGS)

conformance-3.13: .venv-3.13/.installed  ## the conformance suite on 3.13
	@PATH="$(CURDIR)/$(OTHER):$$PATH" $(OTHER)/python -m pytest -q -n $(WORKERS) -m "not soak" tests/conformance $(ARGS)

bench: .venv/.installed  ## measure against harbor; prints a table, writes build/bench.json
	@scripts/get-packages
	@$(MAIN)/python -m compileall -q src $(wildcard benchmarks)
	@PATH="$(CURDIR)/$(MAIN):$$PATH" $(MAIN)/python -m benchmarks

soak: .venv/.installed  ## the long versions: all of the fuzz, all kills
	@scripts/get-packages
	@PATH="$(CURDIR)/$(MAIN):$$PATH" $(MAIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "soak or hypothesis" --hypothesis-profile soak $(ARGS)

mutation: .venv-mutation/.installed  ## change lines of reward/ and of scoring in record/ and see whether a test notices
	@PATH="$(CURDIR)/$(MUTATION):$(CURDIR)/.tools:$$PATH" $(MUTATION)/mutmut run $(ARGS)
	@PATH="$(CURDIR)/$(MUTATION):$$PATH" $(MUTATION)/mutmut results

coverage: .venv/.installed  ## which lines and branches the suite reaches
	@$(MAIN)/coverage run -m pytest -q -m "not soak" $(ARGS)
	@$(MAIN)/coverage combine --quiet && $(MAIN)/coverage report

lock:  ## resolve requirements.lock anew (make lock ARGS=--upgrade for the newest of everything)
	@"$$(scripts/get-uv)" pip compile --quiet --universal --python-version 3.12 --generate-hashes --all-extras \
		--group build --group dev --group parity --group mutation \
		--no-annotate --no-header --no-emit-index-url --no-emit-find-links \
		--output-file requirements.lock $(ARGS) pyproject.toml

forged: .venv/.installed  ## forge the pack of submissions, ask every command, and write docs/assurance/forged.md anew
	@PATH="$(CURDIR)/$(MAIN):$$PATH" $(MAIN)/python -m tests.forged.page

cheaters: .venv/.installed  ## run the cheaters everywhere, as root, and write docs/assurance/cheaters.md anew
	@PATH="$(CURDIR)/$(MAIN):$$PATH" $(MAIN)/python -m tests.cheaters.page

docs: .venv-demo/.installed  ## write the page of a record's fields, and the examples of the pages, anew
	@$(DEMO)/python scripts/cli-docs
	@$(DEMO)/python scripts/readme-examples

screenshots: .venv/.installed  ## look at the pages in Chromium, and keep the pictures in docs/screenshots
	@scripts/get-packages
	@PATH="$(CURDIR)/$(MAIN):$$PATH" $(MAIN)/python scripts/screenshots

site: .venv/.installed  ## build the documentation site into build/site; a link that leads nowhere fails
	@$(MAIN)/python scripts/site

dist: .venv/.installed  ## build the package that is published: dist/*.whl and *.tar.gz
	@"$$(scripts/get-uv)" build --quiet --build-constraint requirements.lock --require-hashes

clean:  ## remove environments, caches and whatever was built
	@rm -rf .venv .venv-3.13 .venv-demo .venv-mutation .tools build dist mutants
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
	@find src tests scripts $(wildcard benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: $(INSTALL_FROM)
	@scripts/make-env .venv any dev parity
	@touch $@

.venv-3.13/.installed: $(INSTALL_FROM)
	@scripts/make-env .venv-3.13 3.13 test parity
	@touch $@

.venv-demo/.installed: $(INSTALL_FROM)
	@scripts/make-env .venv-demo any
	@touch $@

.venv-mutation/.installed: $(INSTALL_FROM)
	@scripts/make-env .venv-mutation any test parity mutation
	@touch $@
