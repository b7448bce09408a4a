"""Predict how long the steps of a plan take, from journaled generations of similar steps. Pure.

Steps are similar if they have the same role on the same model, the same kind and about the same input size. With fewer
than `FEW` such generations, all of the kind count, then all of the role, then the defaults of `RoleRates`. Effects
between steps, such as a shared prefix, are learned as a whole: the `pace` is how many times longer earlier runs of
plans of the same shape took than predicted. Times are in seconds.
"""

import hashlib
import json
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, median, variance
from typing import Any, Final

from orchestrator.task.analysis import StepGraph
from orchestrator.task.critical_path import critical_path
from orchestrator.task.events import CHANCE, PlanKey, Prediction, RoleRates, RunAccepted
from orchestrator.task.modes import Mode
from orchestrator.task.taskir.models import KINDS, Step, TaskIR

RATED_GENERATIONS: Final = 32  # last generations of a key that count
FEW: Final = 2  # generations of a kind, before they count instead of those of the whole role
ENOUGH: Final = 5  # With fewer generations, the spread is at least that of the coarser key.
MOST_KEYS: Final = 64  # kinds of steps with rates; those with most generations stay
BYTES_PER_TOKEN: Final = 4.0  # assumed of an artifact that is not written yet
CALL: Final = "call"  # the kind of a step that is one call of a tool, without a model
CALL_SECONDS: Final = 0.01  # assumed for such a step without a measurement
DOUBTED_RUNS: Final = 8  # prior weight, in runs, of the assumed share of run-wide error
LEAST_SPREAD: Final = 0.05  # no prediction is more certain
DRAWS: Final = 200  # paths drawn for a range, for plans of up to 1,000 steps

MOST_STEPS: Final = 1000  # longer plans are not compared with earlier runs: it would delay their start
COMPARED_RUNS: Final = 16  # last runs of plans of a shape that count
PACED_RUNS: Final = 4  # The pace is the median of these, so a change of machine or program is learned after three runs.
MOST_PACE: Final = 16.0  # the pace is at most this and at least its inverse

_DEEPEST: Final = 16  # levels of a schema that are read
_LONGEST: Final = 1e9  # Longer times, and none at all, count as not measured.
_WORST: Final = math.log(1000.0)  # the largest error that counts: a factor of 1,000
_LARGEST: Final = 40  # sizes from 2 to this power on are one class


@dataclass(frozen=True, slots=True)
class MeasuredGeneration:
    """One finished generation and the step that it was for."""

    role: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    prefill_seconds: float
    decode_seconds: float
    alone_seconds: float = 0.0  # as in `events.Usage`, like the next one; 0 if unmeasured
    packed_seconds: float = 0.0
    run: str = ""
    kind: str = ""  # as `kind_of` returns it; empty for early versions
    input_bytes: int | None = None  # None if unknown
    other_seconds: float = 0.0  # of the attempt without generation and slot wait: prompt, gates, tools, commits


# Kinds of steps


def kind_of(step: Step) -> str:
    """Return the kind of a step, as far as predictions tell kinds apart."""
    if step.is_call:
        return CALL
    if KINDS[step.kind].acts:
        return step.kind
    # Steps with a schema differ by the length of the shortest answer, others by the limit of their answers.
    kind = "text with tools" if step.tools else "text"
    if step.output_schema is not None:
        return f"{kind.replace('text', 'JSON')} of {size_class(least_characters(step.output_schema), 0.5)} characters"
    return kind if step.max_tokens is None else f"{kind} of up to {size_class(step.max_tokens, 1.0)} tokens"


def least_characters(schema: Any, depth: int = 0) -> int:
    """Return about how many characters the shortest JSON text has that a JSON Schema accepts."""
    # References and deep schemas count as the shortest value.
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return 1
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return min(len(str(value)) for value in schema["enum"])
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return min(least_characters(option, depth + 1) for option in schema[name])
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "string":
            return 2 + _count(schema.get("minLength"))
        case "array":
            items = _count(schema.get("minItems"))
            return 2 + items * (least_characters(schema.get("items"), depth + 1) + 1)
        case "object":
            properties = schema.get("properties")
            properties = properties if isinstance(properties, dict) else {}
            needed = schema.get("required")
            names = [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []
            return 2 + sum(len(name) + 4 + least_characters(properties.get(name), depth + 1) for name in names)
        case _:
            return 1


def size_class(amount: float, octaves: float) -> int:
    """Return the upper end of the class of sizes that holds `amount`. Classes are `octaves` powers of two apart."""
    if amount < 1:
        return 0
    power = math.ceil(math.log2(amount) / octaves - 1e-9)  # a power of two may come out slightly larger
    end = round(2 ** min(_LARGEST, octaves * power))
    return end if amount <= end else round(2 ** min(_LARGEST, octaves * (power + 1)))


def _count(value: object) -> int:
    return min(value, 1 << 24) if isinstance(value, int) and value > 0 else 0


def keys_of(role: str, kind: str, input_bytes: float | None) -> tuple[str, ...]:
    """Return the keys of rates for a step, the finest first."""
    keys = () if kind == CALL else (role,)  # rates of a role do not fit tool calls
    if not kind:
        return keys
    of_kind = f"{role}: {kind}"
    if input_bytes is None:
        return (of_kind, *keys)
    return (f"{of_kind}, reading up to {size_class(input_bytes, 2.0)} bytes", of_kind, *keys)


# Typical rates


class RateTable:
    """Medians by key over the last `RATED_GENERATIONS` generations, so the effect of a busy machine fades.

    Time in a queue does not count, nor time lost to other work on the engine.
    """

    def __init__(self) -> None:
        self._rows: dict[str, deque[MeasuredGeneration]] = {}
        self._coarser: dict[str, str | None] = {}
        self._typical: dict[str, _Typical] = {}  # cached, since every start of a run asks for the rates

    def add(self, row: MeasuredGeneration) -> None:
        above: str | None = None
        for key in reversed(keys_of(row.role, row.kind, row.input_bytes)):  # so a coarser key is always there before
            self._rows.setdefault(key, deque(maxlen=RATED_GENERATIONS)).append(row)
            self._typical.pop(key, None)
            self._coarser[key], above = above, key

    def rates(self) -> dict[str, RoleRates]:
        """Return what is typical, by key, with at most `MOST_KEYS` kinds of steps."""
        rates: dict[str, RoleRates] = {}
        for key, rows in self._rows.items():
            above = self._coarser[key]
            if above is None or len(rows) >= FEW:
                if key not in self._typical:
                    self._typical[key] = _typical(rows)
                rates[key] = self._typical[key].beside(RoleRates() if above is None else rates[above])
        finer = sorted(
            (key for key in rates if self._coarser[key] is not None), key=lambda key: -rates[key].generations
        )
        for key in finer[MOST_KEYS:]:
            del rates[key]
        return rates


@dataclass(frozen=True, slots=True)
class _Typical:
    rates: RoleRates  # without `spread` and `common`, which may have to come from the coarser key
    errors: int  # generations whose time can be compared with the typical one
    spread: float  # root mean square of the errors
    common: float | None  # None with too few runs, or if their errors do not differ
    runs: int  # sample size of `common`

    def beside(self, above: RoleRates) -> RoleRates:
        """Return the rates, completed from the coarser key."""
        spread = above.spread
        if self.errors:
            spread = self.spread if self.errors >= ENOUGH else max(self.spread, above.spread)
        common = above.common
        if self.runs:
            share = above.common if self.common is None else self.common
            common = (self.runs * share + DOUBTED_RUNS * RoleRates().common) / (self.runs + DOUBTED_RUNS)
        return replace(self.rates, spread=spread, common=common)


def _typical(rows: Collection[MeasuredGeneration]) -> _Typical:
    default = RoleRates()
    computed = [max(0, row.prompt_tokens - row.cached_tokens) for row in rows]
    written = [max(0, row.output_tokens) for row in rows]
    shares = [_alone_share(row) for row in rows]
    prefill = [_finite(row.prefill_seconds) * share for row, share in zip(rows, shares, strict=True)]
    decode = [_finite(row.decode_seconds) * share for row, share in zip(rows, shares, strict=True)]
    rates = RoleRates(
        prefill_rate=_rate(computed, prefill) or default.prefill_rate,
        decode_rate=_rate(written, decode) or default.decode_rate,
        prompt_tokens=median(computed),
        output_tokens=median(written),
        packing=_packing(rows),
        other_seconds=median(_finite(row.other_seconds) for row in rows),
        generations=len(rows),
    )
    typical = rates.prompt_tokens / rates.prefill_rate + rates.output_tokens / rates.decode_rate + rates.other_seconds
    errors: dict[str, list[float]] = {}
    for row, *seconds in zip(rows, prefill, decode, strict=True):
        total = sum(seconds) + _finite(row.other_seconds)
        if total > 0 and typical > 0:
            error = math.log(total) - math.log(typical)
            errors.setdefault(row.run, []).append(max(-_WORST, min(_WORST, error)))
    every = [error for run_errors in errors.values() for error in run_errors]
    spread = max(LEAST_SPREAD, math.sqrt(fmean(error * error for error in every))) if every else 0.0
    runs = [run_errors for run, run_errors in errors.items() if run and len(run_errors) > 1]
    enough = len(runs) >= FEW + 1
    return _Typical(rates, len(every), spread, _common(runs) if enough else None, len(runs) if enough else 0)


def _alone_share(row: MeasuredGeneration) -> float:
    # Part of its time that a generation would have needed alone; 1 if not measured.
    seconds, alone = _finite(row.prefill_seconds) + _finite(row.decode_seconds), _finite(row.alone_seconds)
    return min(1.0, alone / seconds) if alone > 0 and seconds > 0 else 1.0


def _common(runs: Sequence[Sequence[float]]) -> float | None:
    # Part of the variance of errors between runs: one-way analysis of variance, method of moments.
    within = sum(sum((error - fmean(errors)) ** 2 for error in errors) for errors in runs) / sum(
        len(run) - 1 for run in runs
    )
    mean_size = len(runs) / sum(1 / len(errors) for errors in runs)
    between = max(0.0, variance(fmean(errors) for errors in runs) - within / mean_size)
    return between / (between + within) if between + within > 0 else None


def _packing(rows: Iterable[MeasuredGeneration]) -> float:
    pairs = [(_finite(row.alone_seconds), _finite(row.packed_seconds)) for row in rows]
    # Part of its time alone that a generation takes of the engine in a batch; 0 if unknown.
    alone = sum(alone for alone, _ in pairs)
    return min(1.0, sum(packed for _, packed in pairs) / alone) if alone > 0 else 0.0


def _rate(tokens: Sequence[int], seconds: Sequence[float]) -> float:
    # Median of tokens per second, weighted by tokens, because the time of a short generation is inexact; 0 if
    # unmeasured.
    timed = [(count, took) for count, took in zip(tokens, seconds, strict=True) if count > 0 and 0 < took < math.inf]
    half, passed = sum(count for count, _ in timed) / 2, 0
    for count, took in sorted(timed, key=lambda pair: pair[0] / pair[1]):
        passed += count
        if passed >= half:
            return count / took
    return 0.0


def _finite(seconds: float) -> float:
    return seconds if 0 <= seconds < _LONGEST else 0.0


# Predictions


def predict_plan(
    graph: StepGraph,
    rates: Mapping[str, RoleRates],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "as-planned",
    pace: float = 1.0,
) -> dict[str, Prediction]:
    """Return what to expect of each step of a plan, by its id.

    `rates` are from `RateTable.rates`, `sizes` are known bytes of inputs and files by name, and `pace` is from
    `pace_of`. A `foreach` step counts as one child, as its children run in parallel.
    """
    alone: dict[str, Prediction] = {}
    for name in graph.order:
        step = graph.steps[name]
        alone[name] = predict_step(step, rates, _bytes_read(step, graph, alone, sizes or {}))
    if mode == "serial":
        return {name: replace(prediction, seconds=prediction.seconds * pace) for name, prediction in alone.items()}
    return {
        name: replace(alone[name], seconds=(alone[name].seconds + lost) * pace)
        for wave in graph.waves
        for name, lost in lost_beside([alone[member] for member in wave], wave)
    }


def predict_run(graph: StepGraph, accepted: RunAccepted) -> dict[str, Prediction]:
    """Return what to expect of each step of a run's plan, by what was measured when the run was accepted."""
    return predict_plan(graph, accepted.rates, accepted.sizes, accepted.mode, accepted.pace)


@dataclass(frozen=True, slots=True)
class PredictedPath:
    """The predicted length of a plan's critical path, in seconds."""

    seconds: float
    assumed: bool = False  # no measured generation is behind the prediction of any of its steps


def predict_path(
    graph: StepGraph,
    rates: Mapping[str, RoleRates],
    sizes: Mapping[str, int],
    mode: Mode = "as-planned",
    pace: float = 1.0,
) -> PredictedPath:
    """Return the predicted critical path of a plan; arguments as in `predict_plan`."""
    predicted = predict_plan(graph, rates, sizes, mode, pace)
    seconds = {name: prediction.seconds for name, prediction in predicted.items()}
    path = critical_path(graph.before, graph.order, seconds)
    return PredictedPath(path.seconds, not any(predicted[step].generations for step in path.steps))


def predict_step(step: Step, rates: Mapping[str, RoleRates], input_bytes: float | None = None) -> Prediction:
    """Return what to expect of a step that runs alone. `input_bytes` is None if unknown."""
    kind = kind_of(step)
    basis = next((key for key in keys_of(step.actor, kind, input_bytes) if key in rates), "")
    typical = rates[basis] if basis else RoleRates()
    if not basis and kind == CALL:
        typical = replace(typical, prompt_tokens=0.0, output_tokens=0.0, other_seconds=CALL_SECONDS)
    output = typical.output_tokens if step.max_tokens is None else min(typical.output_tokens, step.max_tokens)
    prefill, decode = typical.prompt_tokens / typical.prefill_rate, output / typical.decode_rate
    return Prediction(
        seconds=prefill + decode + typical.other_seconds,
        prefill_seconds=prefill,
        decode_seconds=decode,
        other_seconds=typical.other_seconds,
        packed_seconds=(prefill + decode) * typical.packing,
        prompt_tokens=typical.prompt_tokens,
        output_tokens=output,
        spread=typical.spread * math.sqrt(1 + (1 / typical.generations if typical.generations else 0.0)),
        common=typical.common,
        generations=typical.generations,
        basis=basis,
    )


def lost_beside(together: Sequence[Prediction], names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield how much longer each step takes because these steps run at the same time, in no special order.

    While two compute at once, each takes its packed share of the engine's time from the other, until the shorter one
    ends (processor sharing, Kleinrock 1967, minus the part that batching shares).
    """
    ranked = sorted(zip(together, names, strict=True), key=lambda pair: pair[0].alone_seconds)
    shorter, longer = 0.0, sum(_packed_part(prediction) for prediction in together)
    for prediction, name in ranked:
        own = prediction.alone_seconds
        longer -= _packed_part(prediction)
        yield name, shorter + max(0.0, longer) * own
        shorter += prediction.packed_seconds


def _packed_part(prediction: Prediction) -> float:
    return prediction.packed_seconds / prediction.alone_seconds if prediction.alone_seconds > 0 else 0.0


def _bytes_read(
    step: Step, graph: StepGraph, before: Mapping[str, Prediction], sizes: Mapping[str, int]
) -> float | None:
    if step.foreach is not None:
        return None
    total, sources = 0.0, graph.sources.get(step.id, {})
    for name in step.inputs:
        source = sources.get(name)
        writer = source.step if source is not None else None
        if writer is not None and writer in before:
            outputs = max(1, len(graph.steps[writer].outputs))
            total += before[writer].output_tokens * BYTES_PER_TOKEN / outputs  # as long as its writer's answer
        elif name in sizes:
            total += sizes[name]
        else:
            return None
    return total


def path_range(
    before: Mapping[str, Sequence[str]], order: Sequence[str], predicted: Mapping[str, Prediction], seed: int = 0
) -> tuple[float, float]:
    """Return the seconds between which the critical path lies with probability `CHANCE`. Deterministic for a seed."""
    draw = Random(seed)  # noqa: S311 - no secret
    count = max(20, min(DRAWS, 1000 * DRAWS // max(1, len(order))))
    paths = []
    for _ in range(count):
        # Times of steps are log-normal, and all steps of a draw share the common part.
        whole = draw.gauss(0.0, 1.0)
        seconds = {
            name: prediction.seconds
            * math.exp(
                prediction.spread
                * (math.sqrt(prediction.common) * whole + math.sqrt(1 - prediction.common) * draw.gauss(0.0, 1.0))
            )
            for name, prediction in predicted.items()
        }
        paths.append(critical_path(before, order, seconds).seconds)
    paths.sort()
    low = round((1 - CHANCE) / 2 * (count - 1))
    return paths[low], paths[count - 1 - low]


# The pace of a plan


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A successful run of a plan of the same shape."""

    content: str  # as in PlanKey, like the next one
    predicted_seconds: float
    seconds: float  # from the start of its first attempt to the end of its last one


def plan_key(
    graph: StepGraph, task: TaskIR, rates: Mapping[str, RoleRates], sizes: Mapping[str, int], mode: Mode
) -> PlanKey | None:
    """Return a key for comparisons with earlier runs; None for one without steps, or with more than `MOST_STEPS`."""
    if not 0 < len(graph.order) <= MOST_STEPS:
        return None
    at = {name: number for number, name in enumerate(graph.order)}
    predicted = predict_plan(graph, rates, sizes, mode)
    steps = []
    for name in graph.order:
        step = graph.steps[name]
        read = [size_class(sizes[input_name], 1.0) for input_name in step.inputs if input_name in sizes]
        steps.append(
            [step.actor, kind_of(step), step.foreach is not None, sorted(at[o] for o in graph.before[name]), read]
        )
    limits = None if task.plan.parallelism is None else task.plan.parallelism.model_dump(mode="json")
    assumed = any(
        not prediction.generations and kind_of(graph.steps[name]) != CALL for name, prediction in predicted.items()
    )
    seconds = {} if assumed else {name: prediction.seconds for name, prediction in predicted.items()}
    return PlanKey(
        shape=_digest([mode, limits, steps]),
        content=_digest(task.model_dump(mode="json", exclude={"task_id"})),
        predicted_seconds=critical_path(graph.before, graph.order, seconds).seconds,
    )


def pace_of(key: PlanKey | None, newest_first: Sequence[EarlierRun]) -> float:
    """Return how many times longer a plan takes than predicted by the rates of its steps, from earlier runs of its
    shape.
    """
    # A repeated task finds its prompts in caches, a new one does not. So compare like with like, if possible.
    runs = [
        (run, any(run.content == earlier.content for earlier in newest_first[at + 1 :]))
        for at, run in enumerate(newest_first)
        if run.predicted_seconds > 0 and 0 < run.seconds < _LONGEST
    ]
    if key is None or not runs:
        return 1.0
    repeated = any(run.content == key.content for run in newest_first)
    alike = [run for run, again in runs if again == repeated] or [run for run, _ in runs]
    ratios = [run.seconds / run.predicted_seconds for run in alike[:PACED_RUNS]]
    return max(1 / MOST_PACE, min(MOST_PACE, median(ratios)))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
