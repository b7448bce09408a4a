"""Replay a run on machines with other cores or replicas: `python -m orchestrator.bench.simulate.what_if`.

Each attempt that a model answered becomes a step that reads and writes as many tokens, after the same others. What the
cache gave is not read again. Gates, tools and code do not run: whoever asks adds their time.

It reads a `Question` as JSON from stdin and prints an `Answer` as JSON. It is a process of its own, because it
computes for seconds.
"""

import os
import re
import string
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
import structlog

from orchestrator.bench.simulate.engines import SimulatedAnswer
from orchestrator.bench.simulate.machine import Machine, MachineModel
from orchestrator.bench.simulate.question import (
    Answer,
    MeasuredModel,
    OtherMachine,
    Question,
    Replay,
    ReplayedAttempt,
    width_of,
)
from orchestrator.bench.simulate.run import simulate_job
from orchestrator.engine.contract import Generation
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry, RoleEntry
from orchestrator.run.job import Job
from orchestrator.task.taskir.parse import task_from

NICENESS: Final = 10  # whoever waits for a run goes first
SPARE_TOKENS: Final = 1024  # of the context of a simulated model, beyond what the longest attempt needs
LOAD_SECONDS: Final = 1e-3  # all replicas are there before the run
# Memory is not in question. There is more than the models take: by this factor, and by these bytes for each model.
MEMORY_FACTOR: Final = 4
SPARE_BYTES: Final = 1 << 30
_PLACE: Final = re.compile(r"Replay (\d+):")


def machine_of(question: Question, other: OtherMachine) -> Machine:
    """Return another machine with the models of this one."""
    factor = other.cores / question.cores
    context = SPARE_TOKENS + max(attempt.prompt_tokens + attempt.output_tokens for attempt in question.attempts)
    sizes = [model.bytes + SPARE_BYTES for model in question.models.values()]
    return Machine(
        name="another machine",
        sources=("what steps take here",),
        cores=other.cores,
        memory_bytes=MEMORY_FACTOR * other.replicas * sum(sizes),
        nodes=other.replicas,
        models={name: _model(measured, factor, other, context) for name, measured in question.models.items()},
    )


def replay(attempts: Sequence[ReplayedAttempt], machine: Machine, base: Registry, home: Path) -> Replay:
    """Return what these attempts would take on a machine. `home` is a new folder. Raises what `simulate_job` does."""
    models = tuple(machine.models)
    registry = _with_roles(machine.registry(base), models)
    steps = [
        {
            "id": f"S{place + 1}",
            "actor": f"model{models.index(attempt.model)}",
            "action": f"Replay {place}: {_words(place, attempt.prompt_tokens)}",
            "outputs": [f"output{place}"],
            "depends_on": [f"S{earlier + 1}" for earlier in attempt.after],
            "run_gates": False,
            "max_tokens": attempt.output_tokens + 1,
        }
        for place, attempt in enumerate(attempts)
    ]

    def write(request: Generation) -> SimulatedAnswer:
        match = _PLACE.search(request.messages[-1].content)
        assert match is not None, "each step has a place"
        return SimulatedAnswer(f"answer {match[1]}", attempts[int(match[1])].output_tokens)

    job = Job(None, task_from({"objective": "a replay", "plan": {"steps": steps}}), None, "as-planned")
    (simulated,) = simulate_job(job, machine, registry, home, write, models)
    report = simulated.report
    if report.status != "done":
        raise RuntimeError(f"the replay is {report.status}: {report.error}")
    names = {f"S{place + 1}": attempt.step for place, attempt in enumerate(attempts)}
    path = report.critical_path
    on_path = tuple(dict.fromkeys(map(names.__getitem__, path.steps)))
    return Replay(simulated.seconds, path.seconds, on_path, width_of(report))


def _model(measured: MeasuredModel, factor: float, other: OtherMachine, context: int) -> MachineModel:
    # A step of n tokens computes for n times the time of a prompt token, and reads memory for the rest, as in
    # `MachineModel.with_twice`.
    times = measured.times

    def scaled(points: Sequence[tuple[int, float]]) -> dict[int, float]:
        computing = {count: min(seconds, count * times.prompt_token) for count, seconds in points}
        return {
            count: computing[count] / factor + (seconds - computing[count]) / other.bandwidth
            for count, seconds in points
        }

    return MachineModel(
        bytes=max(1, measured.bytes),
        context=context,
        slots=measured.slots,
        instances=other.replicas,
        load_seconds=LOAD_SECONDS,
        step_seconds=scaled(times.decode),
        verify_seconds=scaled(times.verify),
        prompt_token_seconds=times.prompt_token / factor,
        cell_seconds=times.cell / other.bandwidth,
        threads=max(1, round(measured.threads * factor)),
        token_seconds=measured.token_seconds,
        pads=times.pads,
        message_tokens=0,
        word_tokens=1.0,
    )


def _with_roles(registry: Registry, models: Sequence[str]) -> Registry:
    # A role for each model, without a system prompt: its tokens are among those of the prompts already.
    plain = {
        f"model{place}": RoleEntry.plain(f"model{place}", model, "C", None, "", registry.defaults.max_tokens)
        for place, model in enumerate(models)
    }
    return replace(registry, roles=MappingProxyType({**registry.roles, **plain}))


def _words(place: int, count: int) -> str:
    # Text of `count` tokens with those before it. The first word differs for each attempt, so nothing is shared.
    return " ".join([_letters(place), *(["word"] * max(0, count - 4))])


def _letters(number: int) -> str:
    letters = string.ascii_lowercase
    earlier = _letters(number // len(letters) - 1) if number >= len(letters) else ""
    return earlier + letters[number % len(letters)]


def answer(question: Question, base: Registry, home: Path) -> Answer:
    """Return the replays of a question, with the factor by which the run says that steps take longer.

    Step costs are of an idle machine, or assumed; the run is how this one is. `home` is a folder for new ones.
    """
    this_machine = OtherMachine(question.cores, 1, 1.0)
    expected = replay(question.attempts, machine_of(question, this_machine), base, home / "here").path_seconds
    factor = question.path_seconds / expected if expected > 0 and question.path_seconds > 0 else 1.0
    fitted = replace(question, models={name: _slower(measured, factor) for name, measured in question.models.items()})
    replays = (
        replay(question.attempts, machine_of(fitted, other), base, home / str(place))
        for place, other in enumerate(question.machines)
    )
    return Answer(factor, tuple(replays))


def _slower(measured: MeasuredModel, factor: float) -> MeasuredModel:
    times = measured.times
    slower = replace(
        times,
        decode=tuple((count, factor * seconds) for count, seconds in times.decode),
        verify=tuple((count, factor * seconds) for count, seconds in times.verify),
        prompt_token=factor * times.prompt_token,
        cell=factor * times.cell,
    )
    return replace(measured, times=slower, token_seconds=factor * measured.token_seconds)


def main() -> None:
    """Read a `Question` from stdin, and write its `Answer` to stdout, both as JSON."""
    os.nice(NICENESS)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # stdout is for the answer
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    base = load_registry(Path(question.registry))
    with tempfile.TemporaryDirectory(prefix="orchestrator-what-if-") as folder:
        replays = answer(question, base, Path(folder))
    sys.stdout.buffer.write(msgspec.json.encode(replays))


if __name__ == "__main__":
    main()
