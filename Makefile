# Every target is one line that also works by hand. `make run` and `make test` set everything up first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WORKERS ?= 4

.PHONY: setup run test test-slow test-train test-cluster test-library test-escape test-crash chaos test-server test-peers test-clients check tiny adapter bench bench-engine bench-http bench-gates bench-context bench-text bench-daemon bench-routing bench-memory bench-procedures bench-simulate bench-cluster bench-jobs parl lock clean

setup: $(READY)  ## install everything into .venv, but PyTorch and Ray (the extras `train` and `ray`), which few targets need

$(READY): pyproject.toml requirements.lock tools/setup.sh tools/smollm2.txt
	PYTHON=$(PYTHON) sh tools/setup.sh

run: $(READY)  ## a request in words on a small real model, then a TaskIR document on the embedded models (DEMO_MODEL=smollm2-135m for another model)
	@DEMO_MODEL=$(DEMO_MODEL) sh tools/demo.sh

test: $(READY)  ## all tests, in four processes, as many of them wait (WORKERS=2 for fewer); the tests of a file share daemons and engines
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=20

test-slow: $(READY)  ## the tests that take minutes, and those of properties on ten times as many examples
	$(BIN)/python -m pytest -m slow
	$(BIN)/python -m pytest -m "hypothesis and not slow" --hypothesis-profile=thorough

test-train: $(READY)  ## the tests of trainings, with the extra `train` (PyTorch), which is installed first (QWEN2_MODEL=FILE for the network of a real Qwen2)
	PIP_CONSTRAINT=requirements.lock $(BIN)/pip install -q -e '.[dev,train]'
	$(BIN)/python -m pytest tests/memrl/parl tests/benchmarks/test_adapter_training.py tests/benchmarks/test_heads.py tests/procedures/test_library.py -m "not crash"

test-cluster: $(READY)  ## engines on several nodes of a Ray cluster on this machine, with the extra `ray`, which is installed first (twenty minutes; CHURN_SEED=7 for other disturbances of nodes)
	PIP_CONSTRAINT=requirements.lock $(BIN)/pip install -q -e '.[dev,ray]'
	$(BIN)/python -m pytest -m "slow or not slow" tests/orchestrator/cluster

test-library: $(READY)  ## the engine's tests on another build of llama.cpp (LIBRARY=PATH: libllama.so or its folder)
	ORCHESTRATOR_LLAMA_LIBRARY="$(LIBRARY)" $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/orchestrator/engine

test-escape: $(READY)  ## the attempts to get out of the sandbox
	$(BIN)/python -m pytest -m escape tests/escape

test-crash: $(READY)  ## the daemon killed, its disk full, its files torn (20 minutes; CRASH_MOMENTS=20 for fewer kills); procedures killed at every write (half an hour)
	$(BIN)/python -m pytest -m crash tests/crash tests/procedures/test_killed.py tests/benchmarks/test_chaos.py

chaos: $(READY)  ## 200 runs with gates and fan-outs on SmolLM2 while engines, the daemon and the disk are harmed (20 minutes; as root, for the disk; ARGS="--runs 30 --minutes 2 --seed 7")
	$(BIN)/python -m benchmarks.chaos $(ARGS)

test-server: $(READY)  ## remote workers against llama.cpp's own server, which is built first (ten minutes)
	$(BIN)/python -m benchmarks.engine build
	LLAMA_SERVER="$${LLAMA_SERVER:-$(CURDIR)/build/bench/llama-server/bin/llama-server}" $(BIN)/python -m pytest tests/orchestrator/pool/remote/test_llama_server.py

test-peers: $(READY)  ## the benchmark of whole tasks with LangGraph and llama-server, which are built and installed first (ten minutes)
	$(BIN)/python -m benchmarks.peers build --models embedded
	$(BIN)/python -m pytest -m peers tests/benchmarks/test_peers.py

test-clients: $(READY)  ## clients of other projects against the daemon, each in an environment of its own (ten minutes and 1.5 GB the first time; ARGS="--only litellm llm")
	$(BIN)/python -m tests.clients all $(ARGS)

check: $(READY)  ## format, lint, types (of the tests too), layers
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

bench: $(READY)  ## whole tasks beside LangGraph, one agent and others on llama.cpp; goes on where it stopped (three hours a call; ARGS="--models smollm2 --budget 20")
	$(BIN)/python -m benchmarks.peers all --budget 165 $(ARGS)

bench-context: $(READY)  ## tokens of a gathering step, with and without a context that edits itself
	$(BIN)/python -m benchmarks.context

tiny: $(READY)  ## train the embedded models again from their seeds, and compare them with what ships (hours)
	PIP_CONSTRAINT=requirements.lock $(BIN)/pip install -q -e '.[dev,train]' && $(BIN)/python -m benchmarks.tiny all

adapter: $(READY)  ## train the frontdoor's adapter again from its seed, export and evaluate it (two hours on two cores, minutes on a GPU; TOKENS=3000 COUNT=5 tries all of it in some minutes; ARGS="--device cpu")
	$(BIN)/python -c "import peft, torch" 2> /dev/null || PIP_CONSTRAINT=requirements.lock $(BIN)/pip install -q -e '.[dev,train]'
	$(BIN)/python -m benchmarks.adapter all $(if $(TOKENS),--tokens $(TOKENS) --folder build/adapter-$(TOKENS)) $(if $(COUNT),--count $(COUNT)) $(ARGS)

bench-gates: $(READY)  ## what gates and escalation bring and cost, on 200 tasks; and gates on a busy machine; goes on where it stopped
	$(BIN)/python -m benchmarks.gates $(ARGS)
	$(BIN)/python -m benchmarks.gates.busy

bench-engine: $(READY)  ## the engine against its peers; goes on where it stopped (one to three hours; ARGS="--budget 60"); `python -m benchmarks.engine further` for undecided cells
	$(BIN)/python -m benchmarks.engine all $(ARGS)

bench-http: $(READY)  ## our daemon against llama-server over HTTP, idle and beside busy loops, with a second model if it can be downloaded; goes on where it stopped (an hour and more, most of it llama-server's beside a busy loop; and the build)
	-$(BIN)/orchestrator models get qwen2.5-coder-0.5b --folder build/bench/models
	$(BIN)/python -m benchmarks.engine all --suite user-path $(ARGS)

bench-text: $(READY)  ## prompt lookup on summarising and editing real texts with SmolLM2, beside llama-server (half an hour; and the build)
	$(BIN)/python -m benchmarks.engine build
	$(BIN)/python -m benchmarks.engine.real_text $(ARGS)

bench-daemon: $(READY)  ## what the daemon costs and bears, part by part (half an hour; ARGS="--only chain --size memory=10000")
	$(BIN)/python -m benchmarks.daemon $(ARGS)

bench-routing: $(READY)  ## learned routing on the embedded models' tasks and on outcomes of two real models (ARGS="--data FOLDER", of gsm8k.csv and mmlu.csv of RouteLLM)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.routing $(ARGS)

bench-memory: $(READY)  ## the memory's index and database (ARGS="--episodes 1000000": 2 GB on the disk, half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.memory $(ARGS)

bench-procedures: $(READY)  ## what procedures cost and bear: actions, 1,000 kills, a rollback of 1 GiB, a log of a million entries; goes on where it was stopped (ten minutes)
	$(BIN)/python -m benchmarks.procedures $(ARGS)

bench-simulate: $(READY)  ## simulations of this machine beside real runs of the same tasks, and what to buy for wide ones; goes on where it stopped (half an hour; leave the machine alone; ARGS="--budget 20" for all workloads)
	$(BIN)/python -m benchmarks.simulate $(ARGS)

bench-cluster: $(READY)  ## what a step costs on three nodes of a Ray cluster on this machine, and simulated clusters of 96-core machines (a quarter of an hour; leave the machine alone; installs the extra `ray`)
	PIP_CONSTRAINT=requirements.lock $(BIN)/pip install -q -e '.[dev,ray]'
	$(BIN)/python -m benchmarks.cluster $(ARGS)

bench-jobs: $(READY)  ## sixty requests by one chat, directly and by a plan, checked by code; continues where it stopped (hours; ARGS="--model 1.5b --half tuning --rounds 1")
	$(BIN)/python -m benchmarks.jobs $(ARGS)

parl: $(READY)  ## train the frontdoor in all arms with three seeds, and measure them next to controls; continues where it stopped (ten hours of one core; ARGS="--arms seconds --seeds 0", ARGS=train, ARGS=publish to ship the adapter that wins)
	$(BIN)/python -c "import torch" 2> /dev/null || PIP_CONSTRAINT=requirements.lock $(BIN)/pip install -q -e '.[dev,train]'
	$(BIN)/python -m benchmarks.parl $(ARGS)

lock: $(READY)  ## pin what is installed now
	{ $(BIN)/pip freeze --exclude-editable; grep -E "^(hatchling|scikit-build-core|trove-classifiers)==" requirements.lock; } | sed "s/+cpu$$//" | sort -fu > .venv/lock && mv .venv/lock requirements.lock

clean:
	rm -rf .venv .venv-clients tests/clients/node/node_modules .demo .tiny build dist
