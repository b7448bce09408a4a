"""Predict how long the steps of a plan take, from the generations that the journal has of steps like them. Pure.

Steps are alike if they have the same role on the same model, the same kind, and about as much to read. Where fewer than
`FEW` generations of such steps are known, all of the kind count, whatever they read, then all of the role, and then the
defaults of `RoleRates`. What steps of a plan do to one another, as when many read one text that only the first of them
has to compute, is learned as a whole: the `pace` of a plan is how many times longer earlier runs of plans of the same
shape took than predicted. Times are in seconds.
"""

import hashlib
import json
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import NormalDist, fmean, median, variance
from typing import Any, Final

from orchestrator.task.analysis import StepGraph
from orchestrator.task.critical_path import Effort, critical_path
from orchestrator.task.events import Mode, PlanKey, RoleRates
from orchestrator.task.taskir import Step, TaskIR

RATED_GENERATIONS: Final = 32
"""How many of the last generations of one key typical rates are taken from."""
FEW: Final = 2
"""So many generations of a kind have to be known before they count instead of those of the whole role."""
ENOUGH: Final = 5
"""With fewer generations, their spread is taken to be at least that of the coarser key."""
MOST_KEYS: Final = 64
"""The most kinds of steps whose rates are kept; those with most generations are."""
BYTES_PER_TOKEN: Final = 4.0
"""What is assumed of an artifact that is not written yet."""
CALL: Final = "call"
"""The kind of a step that is one call of a tool and asks no model."""
CALL_SECONDS: Final = 0.01
"""What such a step is taken to need where none was measured."""
DOUBTED_RUNS: Final = 8
"""What so many runs say of what their steps have in common counts as much as what is assumed of it."""
LEAST_SPREAD: Final = 0.05
"""No prediction is taken to be more certain than this."""
CHANCE: Final = 0.9
"""The probability with which a range is to hold the measured time."""
DRAWS: Final = 200
"""How many paths are drawn for a range, for plans of up to 1,000 steps."""

MOST_STEPS: Final = 1000
"""Plans with more steps are not compared with earlier runs, for that would take too long before they begin."""
COMPARED_RUNS: Final = 16
"""How many of the last runs of plans of a shape are looked at."""
PACED_RUNS: Final = 4
"""The pace is the median of so many of them: a change of the machine or of the program is learned after three runs."""
MOST_PACE: Final = 16.0
"""No pace is greater than this, nor smaller than one over it."""

_DEEPEST: Final = 16
"""How deep schemas are looked into."""
_LONGEST: Final = 1e9
"""Times of so many seconds, or none at all, were not measured."""
_WORST: Final = math.log(1000.0)
"""No single error counts for more than a factor of 1,000."""
_LARGEST: Final = 40
"""All sizes of 2 to this power and more are one class."""
_Z: Final = NormalDist().inv_cdf((1 + CHANCE) / 2)


@dataclass(frozen=True, slots=True)
class MeasuredGeneration:
    """The tokens and seconds of one finished generation, with its role and model, and the step that it was for."""

    role: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    prefill_seconds: float
    decode_seconds: float
    alone_seconds: float = 0.0
    """As in `events.Usage`, like the next one; 0 where it was not measured."""
    packed_seconds: float = 0.0
    run: str = ""
    """The run that it belongs to."""
    kind: str = ""
    """The kind of the step, as `kind_of` returns it; empty for those of early versions."""
    input_bytes: int | None = None
    """The size of what the step read; None where it is not known."""
    other_seconds: float = 0.0
    """What the attempt took besides the generation and its wait for a slot: prompt, gates, tools, commits."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long a step should take from its start to its end, and what that is known from."""

    seconds: float
    """The whole: what is below, how much longer it takes beside the steps of its wave, and the pace of the plan."""
    prefill_seconds: float
    """Alone on its engine, like the next one."""
    decode_seconds: float
    other_seconds: float
    """What the step takes besides the generation, such as its gates and tools."""
    packed_seconds: float
    """The least share of an engine's time that it can take, beside as many others as is best; 0 if nobody knows."""
    prompt_tokens: float
    """Those that are computed, without the ones in a cache."""
    output_tokens: float
    spread: float
    """The standard deviation of the natural logarithm of the measured time over the predicted one."""
    common: float
    """Which part of the square of the spread all steps of a run have in common, from 0 to 1."""
    generations: int
    """How many generations it is known from; 0 for an assumption."""
    basis: str
    """What these have in common: the role, and mostly the kind of the step and how much it reads."""

    @property
    def alone_seconds(self) -> float:
        """What its generation takes alone on its engine."""
        return self.prefill_seconds + self.decode_seconds

    @property
    def effort(self) -> Effort:
        """The work that the step is expected to be, in seconds of an engine, gates and tools."""
        whole = self.alone_seconds + self.other_seconds
        return Effort(whole, whole, self.packed_seconds)

    @property
    def range(self) -> tuple[float, float]:
        """The seconds between which the measured time should be, with a probability of `CHANCE`."""
        reach = math.exp(_Z * self.spread)
        return self.seconds / reach, self.seconds * reach


# What kind of step it is


def kind_of(step: Step) -> str:
    """Return the kind of a step, as far as predictions tell kinds apart.

    Steps with a schema are told apart by how long the shortest answer is, and others by the limit of their answers.
    """
    if step.kind == "tool":
        return CALL if step.arguments is not None else "tool"
    if step.kind == "repl":
        return "repl"
    kind = "text with tools" if step.tools else "text"
    if step.output_schema is not None:
        return f"{kind.replace('text', 'JSON')} of {size_class(least_characters(step.output_schema), 0.5)} characters"
    return kind if step.max_tokens is None else f"{kind} of up to {size_class(step.max_tokens, 1.0)} tokens"


def least_characters(schema: Any, depth: int = 0) -> int:
    """Return about how many characters the shortest JSON text has that a JSON Schema accepts.

    References, and what lies deeper than 16 schemas, count as the shortest value there is.
    """
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return 1
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return min(len(str(value)) for value in schema["enum"])
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return min(least_characters(one, depth + 1) for one in schema[name])
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "string":
            return 2 + _count(schema.get("minLength"))
        case "array":
            items = _count(schema.get("minItems"))
            return 2 + items * (least_characters(schema.get("items"), depth + 1) + 1)
        case "object":
            known = schema.get("properties")
            known = known if isinstance(known, dict) else {}
            needed = schema.get("required")
            names = [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []
            return 2 + sum(len(name) + 4 + least_characters(known.get(name), depth + 1) for name in names)
        case _:
            return 1


def size_class(amount: float, octaves: float) -> int:
    """Return the upper end of the class of sizes that `amount` is in. Classes are so many powers of two apart."""
    if amount < 1:
        return 0
    power = math.ceil(math.log2(amount) / octaves - 1e-9)  # what is a power of two may come out a bit larger
    end = round(2 ** min(_LARGEST, octaves * power))
    return end if amount <= end else round(2 ** min(_LARGEST, octaves * (power + 1)))


def _count(value: object) -> int:
    return min(value, 1 << 24) if isinstance(value, int) and value > 0 else 0


def keys_of(role: str, kind: str, input_bytes: float | None) -> tuple[str, ...]:
    """Return the keys of rates for a step, the finest first. A call of a tool is never rated as its role is."""
    keys = () if kind == CALL else (role,)
    if not kind:
        return keys
    of_kind = f"{role}: {kind}"
    if input_bytes is None:
        return (of_kind, *keys)
    return (f"{of_kind}, reading up to {size_class(input_bytes, 2.0)} bytes", of_kind, *keys)


# What is typical


class RateTable:
    """What is typical by key: medians over the last `RATED_GENERATIONS` generations of each.

    So the effect of a busy machine is gone after that many generations. Time that a generation has waited in a queue
    does not count, nor what it lost to others that computed at the same time. What is typical is computed again only
    for keys with new generations, as it is asked for whenever a run begins.
    """

    def __init__(self) -> None:
        self._rows: dict[str, deque[MeasuredGeneration]] = {}
        self._coarser: dict[str, str | None] = {}
        self._typical: dict[str, _Typical] = {}

    def add(self, row: MeasuredGeneration) -> None:
        """Add a generation that has ended after all that were added before."""
        above: str | None = None
        for key in reversed(keys_of(row.role, row.kind, row.input_bytes)):  # so a coarser key is always there before
            self._rows.setdefault(key, deque(maxlen=RATED_GENERATIONS)).append(row)
            self._typical.pop(key, None)
            self._coarser[key], above = above, key

    def rates(self) -> dict[str, RoleRates]:
        """Return what is typical, by key. At most `MOST_KEYS` kinds of steps are among the keys."""
        found: dict[str, RoleRates] = {}
        for key, rows in self._rows.items():
            above = self._coarser[key]
            if above is None or len(rows) >= FEW:
                if key not in self._typical:
                    self._typical[key] = _typical(rows)
                found[key] = self._typical[key].beside(RoleRates() if above is None else found[above])
        finer = sorted(
            (key for key in found if self._coarser[key] is not None), key=lambda key: -found[key].generations
        )
        for key in finer[MOST_KEYS:]:
            del found[key]
        return found


@dataclass(frozen=True, slots=True)
class _Typical:
    """What is typical of the generations of one key, and how far they are from it."""

    rates: RoleRates
    """Without `spread` and `common`, which may have to come from the coarser key."""
    errors: int
    """How many generations have a time that can be compared with the typical one."""
    spread: float
    """The root of the mean square of their errors, as `RoleRates.spread`."""
    common: float | None
    """As in `RoleRates`; None where too few runs are known, or where their errors do not differ."""
    runs: int
    """From how many runs that is known."""

    def beside(self, above: RoleRates) -> RoleRates:
        """Return the rates, with what the coarser key says where too little is known."""
        spread = above.spread
        if self.errors:
            spread = self.spread if self.errors >= ENOUGH else max(self.spread, above.spread)
        common = above.common
        if self.runs:
            found = above.common if self.common is None else self.common
            common = (self.runs * found + DOUBTED_RUNS * RoleRates().common) / (self.runs + DOUBTED_RUNS)
        return replace(self.rates, spread=spread, common=common)


def _typical(rows: Collection[MeasuredGeneration]) -> _Typical:
    default = RoleRates()
    computed = [max(0, row.prompt_tokens - row.cached_tokens) for row in rows]
    written = [max(0, row.output_tokens) for row in rows]
    shares = [_alone_share(row) for row in rows]
    prefill = [_finite(row.prefill_seconds) * share for row, share in zip(rows, shares, strict=True)]
    decode = [_finite(row.decode_seconds) * share for row, share in zip(rows, shares, strict=True)]
    found = RoleRates(
        prefill_rate=_rate(computed, prefill) or default.prefill_rate,
        decode_rate=_rate(written, decode) or default.decode_rate,
        prompt_tokens=median(computed),
        output_tokens=median(written),
        packing=_packing(rows),
        other_seconds=median(_finite(row.other_seconds) for row in rows),
        generations=len(rows),
    )
    typical = found.prompt_tokens / found.prefill_rate + found.output_tokens / found.decode_rate + found.other_seconds
    errors: dict[str, list[float]] = {}
    for row, *seconds in zip(rows, prefill, decode, strict=True):
        total = sum(seconds) + _finite(row.other_seconds)
        if total > 0 and typical > 0:
            error = math.log(total) - math.log(typical)
            errors.setdefault(row.run, []).append(max(-_WORST, min(_WORST, error)))
    every = [error for some in errors.values() for error in some]
    spread = max(LEAST_SPREAD, math.sqrt(fmean(error * error for error in every))) if every else 0.0
    runs = [some for run, some in errors.items() if run and len(some) > 1]
    enough = len(runs) >= FEW + 1
    return _Typical(found, len(every), spread, _common(runs) if enough else None, len(runs) if enough else 0)


def _alone_share(row: MeasuredGeneration) -> float:
    """Return which part of its time a generation would have needed alone; 1 where that was not measured."""
    seconds, alone = _finite(row.prefill_seconds) + _finite(row.decode_seconds), _finite(row.alone_seconds)
    return min(1.0, alone / seconds) if alone > 0 and seconds > 0 else 1.0


def _common(runs: Sequence[Sequence[float]]) -> float | None:
    """Return which part of the variance of errors is between runs (one-way analysis of variance, method of moments).

    None where they do not vary at all.
    """
    within = sum(sum((error - fmean(some)) ** 2 for error in some) for some in runs) / sum(len(one) - 1 for one in runs)
    each = len(runs) / sum(1 / len(some) for some in runs)
    between = max(0.0, variance(fmean(some) for some in runs) - within / each)
    return between / (between + within) if between + within > 0 else None


def _packing(rows: Iterable[MeasuredGeneration]) -> float:
    """Return what part of its time alone a generation takes of an engine, packed with others; 0 if it is not known."""
    pairs = [(_finite(row.alone_seconds), _finite(row.packed_seconds)) for row in rows]
    alone = sum(alone for alone, _ in pairs)
    return min(1.0, sum(packed for _, packed in pairs) / alone) if alone > 0 else 0.0


def _rate(tokens: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the median of the tokens per second, weighted by tokens, or 0 where no time was measured.

    A generation of a few tokens is over before its time can be measured well, so it counts less than a long one.
    """
    timed = [(count, took) for count, took in zip(tokens, seconds, strict=True) if count > 0 and 0 < took < math.inf]
    half, passed = sum(count for count, _ in timed) / 2, 0
    for count, took in sorted(timed, key=lambda one: one[0] / one[1]):
        passed += count
        if passed >= half:
            return count / took
    return 0.0


def _finite(seconds: float) -> float:
    return seconds if 0 <= seconds < _LONGEST else 0.0


# What to expect


def predict_plan(
    graph: StepGraph,
    rates: Mapping[str, RoleRates],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "as-planned",
    pace: float = 1.0,
) -> dict[str, Prediction]:
    """Return what to expect of each step of a plan, by its id. Linear in steps and edges, but for sorting each wave.

    `rates` are by key, as `RateTable.rates` returns them, `sizes` are the bytes of inputs and files by name, as far as
    they are known, and `pace` is as `pace_of` returns it. A `foreach` step counts as one child: its children run side
    by side.
    """
    alone: dict[str, Prediction] = {}
    for name in graph.order:
        step = graph.steps[name]
        alone[name] = predict_step(step, rates, _bytes_read(step, graph, alone, sizes or {}))
    if mode == "serial":
        return {name: replace(one, seconds=one.seconds * pace) for name, one in alone.items()}
    return {
        name: replace(alone[name], seconds=(alone[name].seconds + lost) * pace)
        for wave in graph.waves
        for name, lost in lost_beside([alone[one] for one in wave], wave)
    }


def predict_seconds(
    graph: StepGraph,
    rates: Mapping[str, RoleRates],
    sizes: Mapping[str, int],
    mode: Mode = "as-planned",
    pace: float = 1.0,
) -> float:
    """Return the seconds of a plan's critical path, with arguments as `predict_plan` has them."""
    seconds = {name: one.seconds for name, one in predict_plan(graph, rates, sizes, mode, pace).items()}
    return critical_path(graph.before, graph.order, seconds).seconds


def predict_step(step: Step, rates: Mapping[str, RoleRates], input_bytes: float | None = None) -> Prediction:
    """Return what to expect of a step that runs alone, and reads so many bytes (None if nobody knows)."""
    kind = kind_of(step)
    basis = next((key for key in keys_of(step.actor, kind, input_bytes) if key in rates), "")
    known = rates[basis] if basis else RoleRates()
    if not basis and kind == CALL:
        known = replace(known, prompt_tokens=0.0, output_tokens=0.0, other_seconds=CALL_SECONDS)
    output = known.output_tokens if step.max_tokens is None else min(known.output_tokens, step.max_tokens)
    prefill, decode = known.prompt_tokens / known.prefill_rate, output / known.decode_rate
    return Prediction(
        seconds=prefill + decode + known.other_seconds,
        prefill_seconds=prefill,
        decode_seconds=decode,
        other_seconds=known.other_seconds,
        packed_seconds=(prefill + decode) * known.packing,
        prompt_tokens=known.prompt_tokens,
        output_tokens=output,
        spread=known.spread * math.sqrt(1 + (1 / known.generations if known.generations else 0.0)),
        common=known.common,
        generations=known.generations,
        basis=basis,
    )


def lost_beside(together: Sequence[Prediction], names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield by how much longer each step takes because these steps run at the same time, in no special order.

    While two compute at once, each takes its packed share of the engine's time from the other, up to the end of the
    shorter one (processor sharing, Kleinrock 1967, with the part that batching shares taken out).
    """
    ranked = sorted(zip(together, names, strict=True), key=lambda one: one[0].alone_seconds)
    shorter, longer = 0.0, sum(_packed_part(one) for one in together)
    for one, name in ranked:
        own = one.alone_seconds
        longer -= _packed_part(one)
        yield name, shorter + max(0.0, longer) * own
        shorter += one.packed_seconds


def _packed_part(one: Prediction) -> float:
    return one.packed_seconds / one.alone_seconds if one.alone_seconds > 0 else 0.0


def _bytes_read(
    step: Step, graph: StepGraph, before: Mapping[str, Prediction], sizes: Mapping[str, int]
) -> float | None:
    """Return how much a step reads; None if nobody knows. An artifact is taken to be as long as its writer's answer."""
    if step.foreach is not None:
        return None
    total, sources = 0.0, graph.sources.get(step.id, {})
    for name in step.inputs:
        source = sources.get(name)
        writer = source.step if source is not None else None
        if writer is not None and writer in before:
            outputs = max(1, len(graph.steps[writer].outputs))
            total += before[writer].output_tokens * BYTES_PER_TOKEN / outputs
        elif name in sizes:
            total += sizes[name]
        else:
            return None
    return total


def path_range(
    before: Mapping[str, Sequence[str]], order: Sequence[str], predicted: Mapping[str, Prediction], seed: int = 0
) -> tuple[float, float]:
    """Return the seconds between which the critical path should be, with a probability of `CHANCE`.

    Times of steps are drawn from log-normal distributions, of which all steps of a draw share the common part, and the
    longest chain of each draw is taken. The same arguments give the same range.
    """
    draw = Random(seed)  # noqa: S311 - no secret
    count = max(20, min(DRAWS, 1000 * DRAWS // max(1, len(order))))
    paths = []
    for _ in range(count):
        whole = draw.gauss(0.0, 1.0)
        seconds = {
            name: one.seconds
            * math.exp(one.spread * (math.sqrt(one.common) * whole + math.sqrt(1 - one.common) * draw.gauss(0.0, 1.0)))
            for name, one in predicted.items()
        }
        paths.append(critical_path(before, order, seconds).seconds)
    paths.sort()
    low = round((1 - CHANCE) / 2 * (count - 1))
    return paths[low], paths[count - 1 - low]


# How far predictions of such plans were off


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run of a plan of the same shape that has ended well."""

    content: str
    """As in PlanKey, like the next one."""
    predicted_seconds: float
    seconds: float
    """From the start of its first attempt to the end of its last one."""


def plan_key(
    graph: StepGraph, task: TaskIR, rates: Mapping[str, RoleRates], sizes: Mapping[str, int], mode: Mode
) -> PlanKey | None:
    """Return what a task is compared by with earlier runs; None for a plan without steps, or with very many."""
    if not 0 < len(graph.order) <= MOST_STEPS:
        return None
    at = {name: number for number, name in enumerate(graph.order)}
    predicted = predict_plan(graph, rates, sizes, mode)
    steps = []
    for name in graph.order:
        step = graph.steps[name]
        read = [size_class(sizes[one], 1.0) for one in step.inputs if one in sizes]
        steps.append(
            [step.actor, kind_of(step), step.foreach is not None, sorted(at[o] for o in graph.before[name]), read]
        )
    limits = None if task.plan.parallelism is None else task.plan.parallelism.model_dump(mode="json")
    assumed = any(not one.generations and kind_of(graph.steps[name]) != CALL for name, one in predicted.items())
    seconds = {} if assumed else {name: one.seconds for name, one in predicted.items()}
    return PlanKey(
        shape=_digest([mode, limits, steps]),
        content=_digest(task.model_dump(mode="json", exclude={"task_id"})),
        predicted_seconds=critical_path(graph.before, graph.order, seconds).seconds,
    )


def pace_of(key: PlanKey | None, newest_first: Sequence[EarlierRun]) -> float:
    """Return how many times longer a plan takes than by the rates of its steps, from earlier runs of its shape.

    A task that was run before finds its prompts in caches, and a new one does not. So runs of tasks that had been run
    before are compared with a task that was, if there are any, and first runs with a new one.
    """
    runs = [
        (one, any(one.content == earlier.content for earlier in newest_first[at + 1 :]))
        for at, one in enumerate(newest_first)
        if one.predicted_seconds > 0 and 0 < one.seconds < _LONGEST
    ]
    if key is None or not runs:
        return 1.0
    known = any(one.content == key.content for one in newest_first)
    alike = [one for one, again in runs if again == known] or [one for one, _ in runs]
    ratios = [one.seconds / one.predicted_seconds for one in alike[:PACED_RUNS]]
    return max(1 / MOST_PACE, min(MOST_PACE, median(ratios)))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
