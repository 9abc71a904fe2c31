# What to type. The scripts in scripts/ are the real thing; this file only names them.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-all soak lint check docs docs-serve bench papers serve clean

BIN = $(or $(ZEDLOG_VENV),.venv)/bin

help: ## say what there is
	@echo "Zedlog: incremental Datalog as a service. On a fresh machine, 'make demo' is all you need."
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
		printf '%-16s %s\n' "$$target" "$$text"; done

install: ## make .venv with everything in it (the other targets do this too)
	@scripts/install

demo: ## the dependency graph of this machine's Python packages, live; Ctrl-C ends it
	@scripts/install
	@exec $(BIN)/zedlog demo

test: ## run the test suite: about a quarter of an hour on two cores
	@scripts/test -n 2 --dist loadfile --no-loadscope-reorder

test-all: ## the test suite with all that takes minutes: everything on Spark in every manner, over an hour
	@ZEDLOG_FULL=1 scripts/test -n 2 --dist loadfile --no-loadscope-reorder

SOAK_SECONDS ?= 3600
soak: ## kill, stop and starve a running system for SOAK_SECONDS (3600) beside an oracle; exit status 1 if it lost anything
	@scripts/install
	@$(BIN)/python -m tests.soak --seconds $(SOAK_SECONDS)

lint: ## style only (scripts/lint --fix mends it)
	@scripts/lint

check: ## style, types, and that generated files are fresh
	@scripts/check

docs: ## build the documents as a site in site/; a broken link is an error
	@scripts/docs

docs-serve: ## show the site on http://127.0.0.1:8000 while it is written
	@scripts/docs serve

bench: ## measure; tables on the terminal, JSON in benchmarks/results/ (with cargo also other engines)
	@scripts/bench

papers: ## evaluate as four papers did: docs/papers.md; PARTS="elastic dyre" for some, SIZES=large for hours
	@scripts/install
	@$(BIN)/python -m benchmarks.papers $(PARTS) $(if $(SIZES),--sizes $(SIZES)) $(PAPERS)

serve: ## start the service on http://127.0.0.1:8321, data in ./.zedlog
	@scripts/install
	@exec $(BIN)/zedlog serve

clean: ## remove the environment and all caches (not your data in ./.zedlog)
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .screenshots
	find engine service zedlog tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
