"""The simulator: machine files, what engines answer, and that a faster or wider machine takes less time."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.critical_path.workloads import workloads
from benchmarks.simulate.machine import Machine, MachineModel, published_model, read_machine, to_text
from benchmarks.simulate.run import Simulated, instance_of, simulate
from orchestrator.errors import InputError
from orchestrator.gates.json_schema import OutputSchema
from registry.load import find_registry, load_registry

REGISTRY = load_registry(find_registry(environment={}))
FAST = MachineModel(
    bytes=1 << 30, slots=16, step_seconds={1: 0.01, 16: 0.02}, prompt_token_seconds=0.001, load_seconds=5.0
)


def machine(**changes: Any) -> Machine:
    """Return a machine with one model."""
    return Machine(
        name="a test",
        sources=("made up",),
        cores=16,
        memory_bytes=1 << 34,
        models={"m": FAST.model_copy(update=changes)},
    )


def run(name: str, on: Machine, home: Path, seed: int = 0) -> Simulated:
    """Simulate a workload."""
    return simulate(workloads()[name].tasks[name], on, REGISTRY, home, seed)


def test_a_chain_takes_what_the_step_costs_say_and_no_schedule_helps(tmp_path: Path) -> None:
    found = run("deep", machine(), tmp_path / "home")
    path = found.report.critical_path
    assert found.report.status == "done"
    assert (path.bound, found.engines) == (pytest.approx(1.0, rel=0.01), 1)
    tokens = sum(step.output_tokens for step in found.report.steps)
    prompt = sum(step.prompt_tokens - step.attempts[0].usage.cached_tokens for step in found.report.steps)
    assert found.seconds == pytest.approx(tokens * 0.01 + prompt * 0.001, rel=0.02)


def test_slots_let_a_fan_out_run_together(tmp_path: Path) -> None:
    wide, narrow = (run("wide-16", machine(slots=slots), tmp_path / str(slots)) for slots in (16, 1))
    assert wide.seconds < narrow.seconds / 2
    assert narrow.report.critical_path.waiting_seconds > 0
    assert wide.report.critical_path.bound >= narrow.report.critical_path.serial_seconds / wide.seconds * 0.99


def test_readers_of_one_document_read_it_once(tmp_path: Path) -> None:
    found = run("shared", machine(), tmp_path / "home")
    usages = [step.attempts[0].usage for step in found.report.steps]
    assert sum(usage.cached_tokens > usage.prompt_tokens / 2 for usage in usages) == 15


def test_the_same_seed_gives_the_same_times(tmp_path: Path) -> None:
    first, again = (run("map-reduce", machine(), tmp_path / name) for name in ("one", "two"))
    assert first.seconds == again.seconds


def test_a_machine_file_is_read_as_it_was_written_and_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    big = Machine(
        name="n", sources=("s",), cores=96, nodes=4, memory_bytes=1 << 40,
        models={"m": published_model(45.6, 20 << 30, batching=1.37)},
    )  # fmt: skip
    file.write_text(to_text(big), encoding="utf-8")
    assert read_machine(file) == big
    assert [len(node.cores) for node in big.topology.nodes] == [24] * 4
    costs = big.models["m"].costs
    assert costs.seconds(1, 1) == pytest.approx(1 / 45.6)
    assert 16 / costs.seconds(16, 16) == pytest.approx(1.37 * 45.6)
    broken = json.loads(to_text(big))
    broken["models"]["m"]["step_seconds"] = {"2": 0.1}
    file.write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(InputError, match="step of 1 sequence"):
        read_machine(file)
    with pytest.raises(InputError, match="No such file"):
        read_machine(tmp_path / "missing.json")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 60, "maxLength": 60},
        {
            "type": "array",
            "minItems": 3,
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"enum": [2]}}},
        },
        {"anyOf": [{"type": "integer", "minimum": 7}, {"type": "null"}]},
        {"type": ["boolean", "null"]},
    ],
)
def test_simulated_answers_obey_their_schema(schema: dict[str, Any]) -> None:
    OutputSchema(schema).check(instance_of(schema))
