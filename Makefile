# Ascend Console: `make up` starts everything, `make test` tests everything.
# Overridable: PYTHON=/path/to/python3.11, and the variables that README.md lists (PORT, BIND, VAR_DIR, …).

VENV ?= .venv
BIN := $(VENV)/bin
WHEEL_PYTHONS ?= 3.11 3.12 3.13
export VENV
ifdef PYTHON
export PYTHON
endif

.PHONY: help up down service setup setup-dev browser router test test-engines bench lint wheels messages pins
.DEFAULT_GOAL := help

help:
	@echo "make up             start everything on this machine; Ctrl-C ends it"
	@echo "make down [ALL=1]   end a console that runs elsewhere; ALL=1 ends its job runners and engines too"
	@echo "make service        as root: start it with this machine (systemd); PRINT=1 shows how, REMOVE=1 takes it away"
	@echo "make test           every test, those in a real Chromium included"
	@echo "make test-engines   install the CPU stack from an index for real (gigabytes)"
	@echo "make lint           style, types, imports and migrations, as CI checks them"
	@echo "make bench          the benchmarks, each beside its plain limit"
	@echo "make wheels         ./wheels for machines without a package index"
	@echo "make messages       collect sentences, compile the translations"
	@echo "make pins           resolve the requirements anew"
	@echo "make router         .router with vllm-router, for the tests of whole gateways"
	@echo "make setup | setup-dev | browser    what the others do first by themselves"

up: setup
	@exec $(BIN)/python manage.py up

down: setup
	@exec $(BIN)/python manage.py down $(if $(filter-out 0,$(ALL)),--all)

# With the settings of this line and environment: sudo make service BIND=0.0.0.0 PORT=443
service: setup
	@$(BIN)/python manage.py service $(if $(filter-out 0,$(PRINT)),--print) $(if $(filter-out 0,$(REMOVE)),--remove)

setup:
	@scripts/environment.sh requirements.txt

setup-dev:
	@scripts/environment.sh requirements.txt requirements-dev.txt

# The browser tests drive Debian's Chromium: pip brings none.
browser:
	@scripts/browser.sh

# What balances in gateways, in an environment of its own: the console's machine needs none of it.
router: setup-dev
	@test -x .router/bin/vllm-router || { $(BIN)/python -m venv .router && \
	.router/bin/python -m pip install --quiet --disable-pip-version-check -r deployments/agent/gateways/requirements.txt; }

test: setup-dev browser
	$(BIN)/python -m pytest $(ARGS)

# Real engines out of an index: gigabytes, and half an hour on two cores.
test-engines: setup-dev
	$(BIN)/python -m pytest tests/engines --engines -s $(ARGS)

bench: setup-dev
	$(BIN)/python -m tests.benchmarks

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run

# ./wheels for machines without an index: x86_64 and aarch64, each Python of WHEEL_PYTHONS.
wheels: setup
	@scripts/wheels.sh wheels $(WHEEL_PYTHONS)

messages: setup-dev
	$(BIN)/python scripts/messages.py

pins: setup
	$(BIN)/python scripts/pin.py
