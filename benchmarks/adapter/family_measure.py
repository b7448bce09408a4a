"""Count what the worker extracts and the judge judges correctly, with an adapter and without, through the product."""

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.adapter.base import MODEL
from benchmarks.adapter.families import (
    SEED,
    JudgeCase,
    held_out_cases,
    held_out_tasks,
    natural_judgements,
    summaries,
)
from orchestrator.bench.real.measure import AT_ONCE, Result, Say, measure
from orchestrator.bench.real.tasks import RealTask, real_tasks
from orchestrator.pool.pool import Pool
from orchestrator.registry.compose import DRY, MAX_TOKENS, SMALL_TOKENS
from orchestrator.registry.load import load_registry
from orchestrator.registry.models import Registry
from orchestrator.run.gates.contract import Artifact, GateContext, GateError
from orchestrator.run.gates.judge import JudgeGate
from orchestrator.run.gates.planned import Scope
from orchestrator.run.steps.gating import judge_of
from orchestrator.run.steps.role import resolve_role

ROOT: Final = Path(__file__).parents[2]
# The texts of which summaries are asked for.
TEXTS: Final = (*sorted((ROOT / "examples/texts").glob("*.txt")), *sorted((ROOT / "docs/adr").glob("000[1-4]-*.md")))
PUBLISHED: Final = results.FOLDER / "real_smollm2-135m.json"
WORDS: Final = 160  # how many words of a text are read, at most
KEPT_FILE: Final = "kept.json"
KEPT: Final = 16  # how many answers of the model itself are trained on


def keep_answers(model: Path, folder: Path, say: Say) -> Path:
    """Have the model without an adapter summarize generated texts, keep what it writes, and return the file."""
    tasks = list(islice(summaries(SEED), KEPT))
    answered = asyncio.run(ask(model, None, tasks, say))
    answers = [[asdict(task), result.answer] for task, result in zip(tasks, answered, strict=True) if result.answer]
    path = folder / KEPT_FILE
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(answers), "utf-8")
    return path


def summary_tasks() -> list[RealTask]:
    """Return the summaries that are asked for: one of each text."""
    return [
        RealTask(name=file.name, kind="extract", text=_beginning(file), ask="Summarize text.txt.", expect=[])
        for file in TEXTS
    ]


def _beginning(file: Path) -> str:
    return " ".join(file.read_text("utf-8").split()[:WORDS])


def is_about(summary: str, text: str) -> bool:
    """Return whether a summary is about its text: 20 words or more, fewer than the text has, most from there.

    That is 60 % of its words of five letters and more.
    """
    words, long = summary.split(), re.findall(r"[a-z]{5,}", summary.casefold())
    own = set(re.findall(r"[a-z]{5,}", text.casefold()))
    return 20 <= len(words) < len(text.split()) and sum(word in own for word in long) >= 0.6 * len(long)


async def ask(model: Path, adapter: Path | None, tasks: Sequence[RealTask], say: Say) -> Sequence[Result]:
    """Have the worker do tasks, and return how each ended. An answer that was cut off counts as missing."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-adapter-") as folder:
        registry = _registry(Path(folder), model, adapter)
        return (await measure(registry, MODEL, (), tasks, Path(folder), say)).results


async def counted(model: Path, adapter: Path | None, count: int, say: Say) -> dict[str, list[bool]]:
    """Return, for each set of tasks by name, whether each task is done correctly. `count`: how many held-out ones.

    For the natural tasks, the results without an adapter are the published ones.
    """
    held_out, short = held_out_tasks(count), summary_tasks()
    natural = [task for task in real_tasks() if task.kind != "code" and adapter is not None]
    answered = await ask(model, adapter, [*held_out, *short, *natural], say)
    of_natural = [(result.kind, result.right) for result in answered[count + len(short) :]] if adapter else published()
    verdicts_by_set = {
        "extract, held out": [result.right for result in answered[:count]],
        "extract, natural": [right for kind, right in of_natural if kind == "extract"],
        "count and classify, natural": [right for kind, right in of_natural if kind in ("count", "classify")],
        "summarize": [
            is_about(result.answer, task.text) for result, task in zip(answered[count:], short, strict=False)
        ],
    }
    for name, cases in (("judge, held out", held_out_cases(count)), ("judge, natural", natural_judgements())):
        verdicts = await judge(model, adapter, cases, say)
        verdicts_by_set[name] = [said == case.right for said, case in zip(verdicts, cases, strict=True)]
        say(f"{name}: {verdicts.count(True)} passed, {verdicts.count(None)} without a verdict, of {len(cases)}")
    return verdicts_by_set


def published() -> list[tuple[str, bool]]:
    """Return the kind of each natural task and whether the model does it correctly, from the published results."""
    document = json.loads(PUBLISHED.read_text("utf-8"))
    return [(row["kind"], row["right"]) for row in document["results"] if row["kind"] != "plan"]


async def judge(model: Path, adapter: Path | None, cases: Sequence[JudgeCase], say: Say) -> list[bool | None]:
    """Return whether the gate `judge` passes each answer, None where the judge gave no verdict."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-adapter-") as folder:
        registry = _registry(Path(folder), model, adapter).with_shipped_prompts()
        async with Pool(registry, Path(folder) / "logs", step_costs=Path(folder) / "curves") as pool:
            ask_judge, turns = judge_of(resolve_role(registry, "judge"), pool, 0.0), asyncio.Semaphore(AT_ONCE)

            async def check(case: JudgeCase) -> bool | None:
                reads = {source.name: source.text.encode() for source in case.task.reads}
                context = GateContext(Scope(case.task.step), reads=reads, judge=ask_judge)
                artifact = Artifact(case.task.step.outputs[0], case.answer.encode())
                async with turns:
                    try:
                        result = await JudgeGate().check([artifact], context)
                    except GateError as error:
                        say(f"no verdict: {error}")
                        return None
                say(f"{result.status}, should have {'passed' if case.right else 'failed'}: {result.evidence}")
                return result.status == "passed"

            return list(await asyncio.gather(*map(check, cases)))


def registry_form(model: Path, adapter: Path | None) -> dict[str, Any]:
    """Return a registry as `orchestrator init` makes it of the model, whose worker and judge have the adapter."""
    lora = {} if adapter is None else {"lora": [{"file": str(adapter.resolve())}]}
    worker = {"model": MODEL, "max_tokens": SMALL_TOKENS, "sampling": {"dry_multiplier": DRY}} | lora
    judge = {"model": MODEL, "max_tokens": MAX_TOKENS["judge"]} | lora
    return {
        "models": {MODEL: {"file": str(model), "context": 2048, "slots": AT_ONCE}},
        "roles": {"frontdoor": {"model": MODEL}, "worker": worker, "judge": judge, "coder": {"model": MODEL}},
    }


def _registry(folder: Path, model: Path, adapter: Path | None) -> Registry:
    path = folder / "registry.yaml"
    path.write_text(json.dumps(registry_form(model, adapter)), "utf-8")  # JSON is YAML
    return load_registry(path)
