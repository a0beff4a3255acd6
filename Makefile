# Everything here installs what it needs first. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
SEED ?= 1
# handed to requirements/setup.sh: see there
export PYTHON TORCH_INDEX
# setup compiles nothing; what is imported is compiled once and kept, or every start would take twice as long
unexport PYTHONDONTWRITEBYTECODE

DEMO := build/demo
DEMO_MADE := $(DEMO)/made-with-seed-$(SEED)
BENCH := build/bench
BENCH_MADE := $(BENCH)/made
MAKES_DATA := trainer/rollplex/data/shapes.py trainer/rollplex/data/tiny_model.py

.PHONY: help setup demo demo-seeds test test-long lint bench bench-operator bench-table docs crds lock kube-assets

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## install into .venv (PYTHON=..., TORCH_INDEX=...); at once where nothing changed
	@requirements/setup.sh

demo: setup $(DEMO_MADE) ## make data and a tiny model, train on them into runs/demo (SEED=1)
	$(BIN)/rollplex train examples/demo.yaml --name demo --fresh --set training.seed=$(SEED)

demo-seeds: setup ## make demo with three seeds, and what README and docs/demo.md say about it
	$(BIN)/python docs/demo_runs.py

$(DEMO_MADE): $(MAKES_DATA) | setup
	rm -rf $(DEMO)
	$(BIN)/rollplex data shapes --out $(DEMO)/data --videos 320 --seed $(SEED)
	$(BIN)/rollplex data model --out $(DEMO)/model --seed $(SEED)
	touch $@

lint: setup ## style, types, and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: lint ## lint, then all tests but the long ones
	$(BIN)/pytest tests/unit tests/engine tests/cluster -m "not long and not gpu"

kube-assets: setup ## Kubernetes, etcd and Helm for the cluster tests, into .kube-assets
	$(BIN)/python -m tests.cluster.kube_assets .kube-assets

test-long: setup ## the sweeps: more seeds, sizes and versions of the same checks
	$(BIN)/pytest tests/unit tests/engine tests/cluster -m "long and not gpu"

bench: setup $(BENCH_MADE) ## every schedule on one batch: docs/performance/bench-cpu.json, and the README's table
	mkdir -p docs/performance
	$(BIN)/rollplex bench examples/bench-cpu.yaml --json docs/performance/bench-cpu.json \
		--random-weights qwen2.5-vl-tiny --response-tokens lognormal:24:0.5
	$(MAKE) bench-table

$(BENCH_MADE): $(MAKES_DATA) | setup
	rm -rf $(BENCH)
	$(BIN)/rollplex data shapes --out $(BENCH)/data --videos 10 --side 392
	$(BIN)/rollplex data model --out $(BENCH)/model
	touch $@

bench-operator: setup ## what the operator costs on a real control plane: docs/performance/bench-operator.json
	mkdir -p docs/performance
	$(BIN)/python -m tests.cluster.bench_operator --json docs/performance/bench-operator.json

bench-table: setup ## write the table of the last `make bench` into the README
	$(BIN)/python -m rollplex.bench.table docs/performance/bench-cpu.json README.md

docs: setup ## write the generated pages and pictures anew
	mkdir -p build
	$(BIN)/python -m rollplex.api.reference > build/page && mv build/page docs/job.md
	$(BIN)/python -m tests.cluster.bad_jobs > build/page && mv build/page docs/bad-jobs.md
	$(BIN)/python -m rollplex.telemetry.keys > build/page && mv build/page docs/metrics-jsonl.md
	$(BIN)/python docs/overlap_example.py
	$(BIN)/python docs/plan_example.py
	$(BIN)/python docs/readme_picture.py
	$(BIN)/python docs/demo_runs.py --write

crds: setup ## write the RollplexJob CRD from the models: crds/, and the chart's copy
	mkdir -p build
	$(BIN)/python -m rollplex.api.crd > build/page && mv build/page crds/rollplexjobs.yaml
	cp crds/rollplexjobs.yaml charts/rollplex/files/rollplexjobs.yaml

lock: setup ## choose the newest versions that go together: requirements/cpu.txt
	$(BIN)/python requirements/lock.py
