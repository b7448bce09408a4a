"""Have tasks done whose answers can be checked, in the production harness, so that the router learns from them.

The models stay as they are: only what the router chooses changes. Tasks come from the task families of the embedded
models, or from a folder of TaskIR files, each with a file of checks next to it:

    NAME.json          a TaskIR document
    NAME.checks.json   {"ARTIFACT": {"equals": TEXT | "contains": [TEXT, ...] | "matches": PATTERN | "json": VALUE}}

Every task is a batch run with an idempotency key of its own, and its rating is journaled, so an interrupted training
continues where it was.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from orchestrator.bench.families import STEP_FAMILIES
from orchestrator.bench.families.example import Example, Family
from orchestrator.errors import InputError, Problem
from orchestrator.memrl.choices import action_taken, estimate_of, regret_of
from orchestrator.memrl.learning import learning_of
from orchestrator.memrl.lessons import CHECKER
from orchestrator.memrl.training_page import training_page
from orchestrator.run.job import Job
from orchestrator.run.record.report import Report
from orchestrator.service.callers import user_key
from orchestrator.service.service import Service
from orchestrator.task.events import AttemptStarted
from orchestrator.task.taskir.models import TaskIR
from orchestrator.task.taskir.parse import task_from

RATER: Final = f"{CHECKER}train"
CHECKS: Final = ".checks.json"
MAX_TOKENS: Final = 512

Check = Callable[[Mapping[str, str]], float]  # returns how right the artifacts of a run are, from 0 to 1


@dataclass(frozen=True, slots=True)
class RolloutTask:
    """A task whose answer can be checked."""

    name: str  # names it among all tasks, also those of earlier trainings
    task: TaskIR
    check: Check

    def numbered(self, time: int, seed: int) -> "RolloutTask":
        """Return the same task under another name, to be done once more."""
        return replace(self, name=f"{self.name}-{seed}-{time}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The state of the training after `tasks` tasks."""

    tasks: int
    success: float  # the mean score of the tasks since the point before
    stage: float  # the weight of the reward's shaping terms (λ)
    q: float  # the mean Q of all episodes
    # By how much the actions taken were worse than the best ones, by what the memory itself expected of them.
    regret: float
    width: float  # the mean width of the plans
    followed: float  # the share of attempts in which the memory's advice was followed


def family_tasks(count: int, seed: int, families: Sequence[str] = tuple(STEP_FAMILIES)) -> Iterator[RolloutTask]:
    """Yield `count` tasks, one of each family in turn. Raises InputError for a family that has none."""
    for name in families:
        if name not in STEP_FAMILIES:
            raise InputError(Problem("--family", f"{name!r} was not found", ", ".join(STEP_FAMILIES)))
    for number in range(count):
        name = families[number % len(families)]
        yield _family_task(STEP_FAMILIES[name], f"{name}-{seed}-{number}")


def folder_tasks(folder: Path) -> list[RolloutTask]:
    """Return the tasks of a folder, in the order of their names. Raises InputError."""
    files = sorted(path for path in folder.glob("*.json") if not path.name.endswith(CHECKS))
    if not files:
        raise InputError(Problem(f"--folder {folder}", "holds no task", f"files NAME.json and NAME{CHECKS}"))
    return [_file_task(path) for path in files]


async def train(
    service: Service, tasks: Sequence[RolloutTask], width: int, progress: Callable[[int, int], None]
) -> list[Point]:
    """Have tasks done, `width` at a time, and learned from before the next ones begin. Return how that went.

    Raises what `Service.submit` raises.
    """
    points: list[Point] = []
    for start in range(0, len(tasks), width):
        batch = tasks[start : start + width]
        async with asyncio.TaskGroup() as running:
            rollouts = [running.create_task(_roll_out(service, task)) for task in batch]
        learning_of(service).notice()
        await learning_of(service).caught_up()
        points.append(_point(service, start + len(batch), [rollout_task.result() for rollout_task in rollouts]))
        progress(start + len(batch), len(tasks))
    return points


@dataclass(frozen=True, slots=True)
class _Rollout:
    score: float
    width: int
    regrets: tuple[float, ...]
    followed: tuple[bool, ...]


async def _roll_out(service: Service, task: RolloutTask) -> _Rollout:
    key, owner = f"train:{task.name}", user_key()
    job = Job(None, task.task, None, "as-planned", priority="batch", key=key, owner=owner)
    run = (await service.submit(job)).run
    async for _ in service.watch(run):
        pass
    report = await asyncio.to_thread(service.orchestrator.views.report, run)
    earlier = [rating for rating in report.ratings if rating.by == RATER]
    if earlier:
        score = earlier[-1].score
    else:
        score = await asyncio.to_thread(_score, service, task, report)
        await service.rate(run, score, RATER)
    events = [event for _, event in await asyncio.to_thread(service.orchestrator.journal.events, run)]
    started = [event for event in events if isinstance(event, AttemptStarted) and event.advice is not None]
    regrets = tuple(_regret(attempt) for attempt in started)
    return _Rollout(
        score, report.width, regrets, tuple(bool(attempt.advice and attempt.advice.followed) for attempt in started)
    )


def _score(service: Service, task: RolloutTask, report: Report) -> float:
    if report.status != "done":
        return 0.0
    get = service.orchestrator.journal.get
    return task.check({name: get(digest).decode(errors="replace") for name, digest in report.artifacts.items()})


def _regret(started: AttemptStarted) -> float:
    assert started.advice is not None
    estimate = estimate_of(started.advice, action_taken(started))
    return 0.0 if estimate is None else regret_of(started.advice, estimate)


def _point(service: Service, tasks: int, rollouts: Sequence[_Rollout]) -> Point:
    learned = learning_of(service).learned
    regrets = [regret for rollout in rollouts for regret in rollout.regrets]
    followed = [flag for rollout in rollouts for flag in rollout.followed]
    return Point(
        tasks=tasks,
        success=sum(rollout.score for rollout in rollouts) / len(rollouts),
        stage=learned.policy.settings.stage.at(learned.policy.observed) if learned is not None else 0.0,
        q=learned.memory.stats().q_mean if learned is not None else 0.0,
        regret=sum(regrets) / len(regrets) if regrets else 0.0,
        width=sum(rollout.width for rollout in rollouts) / len(rollouts),
        followed=sum(followed) / len(followed) if followed else 0.0,
    )


def _family_task(family: Family, name: str) -> RolloutTask:
    example = _plain_example(family, name)
    labels = [f"input_{place}" for place in range(len(example.inputs))]
    texts = [
        {"type": "text", "label": item.name or label, "value": item.text}
        for item, label in zip(example.inputs, labels, strict=True)
    ]
    step: dict[str, Any] = {
        "id": "S1",
        "actor": "coder" if family.name == "code" else "worker",
        "action": example.action,
        "inputs": [text["label"] for text in texts],
        "outputs": ["answer"],
        "max_tokens": MAX_TOKENS,
    }
    if example.schema is not None:
        step["output_schema"] = example.schema
    document = {
        "objective": f"{family.name}: {example.action}",
        "priority": "batch",
        "inputs": texts,
        "plan": {"steps": [step]},
    }
    return RolloutTask(name, task_from(document), lambda made: float(family.check(example, made.get("answer", ""))))


def _plain_example(family: Family, name: str) -> Example:
    """Return an example that names no persona, and is no retry, whose action tells what was wrong with an answer."""
    rng = Random(name)  # noqa: S311 - the same name always has the same task
    while True:
        example = family.generate(rng, "wording")
        names, prompt = [item.name for item in example.inputs], example.messages[-1].content
        if not example.persona and prompt.endswith(f"Task: {example.action}") and example.action and _distinct(names):
            return example


def _distinct(names: Sequence[str]) -> bool:
    return len(set(names)) == len(names) and all(re.fullmatch(r"[\w][\w./-]*", name) for name in names)


def _file_task(path: Path) -> RolloutTask:
    task = task_from(_json(path))
    checks = _json(path.with_name(f"{path.stem}{CHECKS}"))
    kinds = {"equals", "contains", "matches", "json"}
    if not isinstance(checks, dict) or not all(
        isinstance(check, dict) and {*check} <= kinds for check in checks.values()
    ):
        accepted = f"artifacts, each with some of {', '.join(sorted(kinds))}"
        raise InputError(Problem(str(path.with_name(f"{path.stem}{CHECKS}")), "holds something else", accepted))
    return RolloutTask(f"{path.stem}-{_stamp(task)}", task, lambda made: _share(checks, made))


def _stamp(task: TaskIR) -> str:
    """Return a digest of a document's content, so that a changed document is a new task."""
    return hashlib.sha256(task.model_dump_json().encode()).hexdigest()[:12]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}", "a JSON file")) from error


def _share(checks: Mapping[str, Mapping[str, Any]], artifacts: Mapping[str, str]) -> float:
    """Return which share of the checks holds."""
    results = [
        _holds(kind, expected, artifacts.get(artifact, ""))
        for artifact, check in checks.items()
        for kind, expected in check.items()
    ]
    return sum(results) / len(results) if results else 1.0


def _holds(kind: str, expected: Any, text: str) -> bool:
    match kind:
        case "equals":
            return text.strip() == str(expected).strip()
        case "contains":
            return all(str(part) in text for part in expected)
        case "matches":
            return re.search(str(expected), text) is not None
        case _:
            try:
                return bool(json.loads(text) == expected)
            except ValueError:
                return False


def write_page(path: Path, points: Sequence[Point]) -> None:
    """Write a page that shows how training went. It needs nothing else, so it works offline. Raises OSError."""
    series = {
        "Success": ("mean score of the tasks since the point before", [point.success for point in points]),
        "Q": ("mean Q of all episodes", [point.q for point in points]),
        "Regret": (
            "value of the best action less that of the one taken, by the memory",
            [point.regret for point in points],
        ),
        "λ": ("weight of the reward's shaping terms", [point.stage for point in points]),
        "Width": ("mean width of the plans", [point.width for point in points]),
        "Followed": (
            "share of attempts in which the memory's advice was followed",
            [point.followed for point in points],
        ),
    }
    rows = [{"λ" if name == "stage" else name: value for name, value in asdict(point).items()} for point in points]
    page = training_page("Training of the router", "tasks", [point.tasks for point in points], series, rows)
    path.write_text(page, encoding="utf-8")
