"""The operation of procedures that searches the settings with which a model is fastest on this machine.

Settings are compared in pairs on a mix of requests. In each round, engines with the present and with the other setting
answer the same requests in turns, first one by one and then all at once. Of two engines that are loaded together, one
rests while the other answers.

Times come from `time.monotonic`, not from the clock of events, since real engines are measured.
"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import EngineError
from orchestrator.pool.machine import Topology, memory_budget, nodes_for, read_topology
from orchestrator.pool.places import Replica
from orchestrator.pool.residency import Folders, engine_spec
from orchestrator.procedures.durable import replace_file
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.ports import Operation, Work
from orchestrator.procedures.tuning import Compared, Dimension, Setting, TriedSetting, TuningResult, search
from orchestrator.procedures.upkeep import Installation, run_to_end
from orchestrator.registry.architectures import why_no_mtp
from orchestrator.registry.checks import why_no_draft
from orchestrator.registry.edit import change_model
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.forms import Form
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.load import registry_from
from orchestrator.registry.memory import estimate
from orchestrator.registry.models import ModelEntry, Registry
from orchestrator.registry.options import DRAFTING
from orchestrator.registry.strict_yaml import parse_text
from orchestrator.run.journal.home import Home

DRAFTS: Final = tuple(method.option for method in DRAFTING.values())
NAMES: Final = ("threads", *DRAFTS, "replicas", "kv_types", "experts")
MOST_CONTEXT: Final = 4096  # tokens while settings are measured, so that two engines fit into memory
MOST_AT_ONCE: Final = 4
# Share of the time that an engine may take, once, to measure its steps, by which it chooses drafts.
CALIBRATION_SHARE: Final = 0.03
DRAFT_TOKENS: Final = (4, 8, 16)
DRAFTED: Final = tuple({"k": k} for k in (1, 2, 3, 4))  # what is tried of most drafting methods
LOOKUPS: Final = tuple({"ngram": ngram, "k": k} for ngram, k in ((3, 4), (3, 8), (3, 16), (2, 8)))
KV_TYPES: Final = ("q8_0", "q4_0", "f16")
NOTE: Final = (
    "The harbour lies north of the town. Ships from eleven countries unload grain, timber and machines there. In 1931 "
    "the old quay burned down, and a new one of concrete was built within two years by four hundred workers. "
)


class AskedRequest(Form):
    prompt: Annotated[str, Field(min_length=1, max_length=1 << 20)]
    system: str = ""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 96
    output_schema: dict[str, Any] | None = None  # a JSON Schema that the answer has to satisfy


FACTS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 40}, "year": {"type": "integer"}},
    "required": ["place", "year"],
    "additionalProperties": False,
}
# Prose, a copy, facts under a schema, and a short answer to a longer text.
MIX: Final = (
    AskedRequest(prompt="Describe a small town by the sea, its people and its weather."),
    AskedRequest(prompt=f"Repeat this text, word for word, with `harbour` replaced by `port`:\n{NOTE}"),
    AskedRequest(prompt=f"{NOTE}\nWhich place burned down, and in which year?", max_tokens=48, output_schema=FACTS),
    AskedRequest(prompt=f"Answer in one sentence: who built the new quay?\n{NOTE * 2}", max_tokens=32),
)


def _is_name(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"{name!r} is not searched; accepted: {', '.join(NAMES)}")
    return name


class TuneArguments(Form):
    model: str
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    only: tuple[Annotated[str, AfterValidator(_is_name)], ...] = ()  # the settings that are searched; empty: all
    kv_types: bool = False  # also try types of the KV cache, which change answers
    experts: bool = False  # also try fewer experts, which changes answers
    requests: str | None = None  # a file with the user's own requests, one JSON object a line


class TuningOperations:
    def __init__(self, installation: Installation) -> None:
        self._on = installation

    def by_name(self) -> dict[str, Operation[Any]]:
        operation = Operation(
            name="models.tune",
            description="Search the settings with which a model is fastest on this machine, and return them. Nothing is"
            " changed; a setting counts only if it is faster with a certainty of 95 %. What was measured stays in"
            " `benchmarks/` of the state folder, however the search or the execution ends.",
            form=TuneArguments,
            outputs={
                "changed": "whether other settings are certain to be faster",
                "values": "the values of these settings for the model's entry, null for one that is removed",
                "told": "what was found, in a sentence",
                "low": "how many times as fast they are, at least; null if nothing was measured",
                "high": "the same, at most",
                "evidence": "the file that has all that was measured, as JSON, also if the execution is undone later",
            },
            run=self._tune,
            preview=self._preview,
        )
        return {operation.name: operation}

    def _preview(self, arguments: TuneArguments) -> str:
        requests(arguments.requests)
        entry, registry = self._entry(arguments.model)
        lines = [f"measure {entry.id} for up to {arguments.seconds:g} s; of these, what is certain to be faster:"]
        for dimension in dimensions(entry, registry, arguments, read_topology()):
            choices = ", ".join(json.dumps(dict(choice)) for choice in dimension.choices)
            lines.append(f"  {dimension.name}: {choices or dimension.refused}")
        return "\n".join(lines)

    def _entry(self, model: str) -> tuple[ModelEntry, Registry]:
        path = self._on.registry.absolute()
        try:
            registry = registry_from(parse_text(path.read_bytes(), path))
        except (OSError, RegistryError) as error:
            raise StepFailed(str(error)) from error
        model_id = registry.model_named(model)
        if model_id is None:
            raise StepFailed(f"{path} has no model {model!r}; accepted: {', '.join(registry.models)}")
        entry = registry.models[model_id]
        if entry.file is None or entry.why_not is not None or entry.embeds:
            raise StepFailed(
                f"{entry.id} cannot be tuned: {entry.why_not or 'it makes vectors, or another server runs it'}"
            )
        return entry, registry

    def _tune(self, arguments: TuneArguments, work: Work) -> Mapping[str, Any]:
        entry, registry = self._entry(arguments.model)
        topology, questions = read_topology(), requests(arguments.requests)
        every = dimensions(entry, registry, arguments, topology)

        tried: list[TriedSetting] = []

        async def tuned() -> TuningResult:
            with TemporaryDirectory(prefix="tuning-") as logs:
                folders = Folders(Path(logs), Home(self._on.home).step_costs)
                measured = SettingComparison(
                    self._on.registry, entry.id, questions, topology, folders, arguments.seconds, work
                )
                async with measured:
                    return await search(every, measured, arguments.seconds, time.monotonic, tried)

        def stored(result: TuningResult) -> str:
            evidence = _evidence(entry, arguments, questions, topology, result)
            return str(self._keep(entry.id, work.key.partition("/")[0], evidence))

        try:
            outcome = run_to_end(tuned(), work)
        except StepFailed as error:
            ended = TuningResult({}, None, f"the search has not come to its end: {error}", tuple(tried))
            raise StepFailed(f"{error}; what was measured until then is in {stored(ended)}") from error
        work.say(outcome.told)
        evidence = stored(outcome)
        written = {"tuned": f"{outcome.told}; see {evidence}"} if outcome.setting else {}
        return {
            "changed": bool(outcome.setting),
            "values": {**outcome.setting, **written},
            "told": outcome.told,
            "low": None if outcome.ratio is None else outcome.ratio.low,
            "high": None if outcome.ratio is None else outcome.ratio.high,
            "evidence": evidence,
        }

    def _keep(self, model: str, execution: str, evidence: str) -> Path:
        name = "".join(char if char.isalnum() or char in "._-" else "_" for char in model)
        path = self._on.home / "benchmarks" / f"{name}-tuning-{execution}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, evidence.encode(), 0o644)
        except OSError as error:
            raise StepFailed(f"{path}: {error.strerror}") from error
        return path


def requests(file: str | None) -> tuple[AskedRequest, ...]:
    """Return the requests in a file, or the usual mix without one. Raises StepFailed."""
    if file is None:
        return MIX
    try:
        lines = [line for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
        questions = tuple(TypeAdapter(AskedRequest).validate_json(line) for line in lines)
    except (OSError, UnicodeDecodeError) as error:
        raise StepFailed(f"{file} cannot be read: {error}") from error
    except ValidationError as error:
        raise StepFailed(f"{file}: {error.errors()[0]['msg']}; accepted: lines with a prompt each, in JSON") from error
    if not questions:
        raise StepFailed(f"{file} has no requests; accepted: lines with a prompt each, in JSON")
    return questions


def dimensions(
    entry: ModelEntry, registry: Registry, arguments: TuneArguments, topology: Topology
) -> tuple[Dimension, ...]:
    """Return what is searched for a model. Settings that change answers are only included if they are allowed."""
    every: dict[str, Dimension] = {
        "threads": _threads(entry, topology),
        **{option: _drafts(entry, registry, option) for option in DRAFTS},
        "replicas": _replicas(entry, topology),
    }
    if arguments.kv_types or "kv_types" in arguments.only:
        every["kv_types"] = _kv_types(entry, allowed=arguments.kv_types)
    if arguments.experts or "experts" in arguments.only:
        every["experts"] = _experts(entry, allowed=arguments.experts)
    return tuple(dimension for name, dimension in every.items() if not arguments.only or name in arguments.only)


def _threads(entry: ModelEntry, topology: Topology) -> Dimension:
    cores = topology.cores
    present = min(entry.options.threads or cores, cores)
    counts = sorted({cores, max(1, 3 * cores // 4), max(1, cores // 2), max(1, cores // 4)} - {present}, reverse=True)
    refused = "" if counts else "this machine has one core"
    return Dimension("threads", tuple({"threads": count} for count in counts), refused=refused)


def _drafts(entry: ModelEntry, registry: Registry, option: str) -> Dimension:
    tried, refused = _tried(entry, registry, option)
    if refused:
        return Dimension(option, (), refused=refused)
    stated = getattr(entry.options, option)
    present = {} if stated is None else asdict(stated)
    settings = ({**present, **values} for values in tried)
    choices = tuple({option: setting} for setting in settings if setting != present)
    return Dimension(option, ({option: None}, *choices) if present else choices)


def _tried(entry: ModelEntry, registry: Registry, option: str) -> tuple[Sequence[Setting], str]:
    # Returns the settings of a drafting method that are worth a try. If there are none, the text says why.
    header, options = entry.header, entry.options
    assert header is not None, "a model that can be used has a header"
    if option == "speculation":
        tried = [{"draft": role, "k": k} for role in _smaller_roles(header, registry) for k in DRAFT_TOKENS]
        none = not tried and options.speculation is None
        return tried, "no role has a smaller model with the same vocabulary" if none else ""
    if option == "prompt_lookup":
        return LOOKUPS, ""
    if option == "mtp":
        return DRAFTED, why_no_mtp(header.architecture, header.mtp_heads) or ""
    return DRAFTED, "its entry names no EAGLE-3 head" if option == "eagle" and options.eagle is None else ""


def _smaller_roles(header: GgufHeader, registry: Registry) -> list[str]:
    # A role for each model that could draft.
    roles: dict[str, str] = {}
    for role in registry.roles.values():
        model = registry.models[role.model]
        smaller = model.header is not None and model.header.weight_bytes < header.weight_bytes
        if smaller and model.header is not None and why_no_draft(header, model.header) is None:
            roles.setdefault(model.id, role.name)
    return list(roles.values())


def _replicas(entry: ModelEntry, topology: Topology) -> Dimension:
    nodes = len(topology.nodes)
    counts = [count for count in range(1, nodes + 1) if count != min(entry.instances, nodes)]
    refused = "" if counts else "this machine has one NUMA node, and a second engine would share its cores and memory"
    return Dimension("replicas", tuple({"instances": count} for count in counts), refused=refused)


def _kv_types(entry: ModelEntry, *, allowed: bool) -> Dimension:
    if not allowed:
        return Dimension("kv_types", (), exact=False, refused="it changes answers; accepted: kv_types: true")
    present = (entry.options.kv_type_k, entry.options.kv_type_v)
    choices = tuple(
        {"kv_type_k": kv_type, "kv_type_v": kv_type} for kv_type in KV_TYPES if (kv_type, kv_type) != present
    )
    return Dimension("kv_types", choices, exact=False)


def _experts(entry: ModelEntry, *, allowed: bool) -> Dimension:
    header = entry.header
    assert header is not None, "a model that can be used has a header"
    if not allowed:
        return Dimension("experts", (), exact=False, refused="it changes answers; accepted: experts: true")
    if not header.experts:
        return Dimension("experts", (), exact=False, refused="the model is no mixture of experts")
    present = entry.options.experts or header.experts_used
    counts = sorted({max(1, 3 * present // 4), max(1, present // 2)} - {present}, reverse=True)
    return Dimension("experts", tuple({"experts": count} for count in counts), exact=False)


@dataclass(slots=True)
class _Round:
    seconds: float
    tokens: int
    # Of the requests that were asked one by one. Their last bits depend on what an engine was asked before, so only
    # those of fresh engines can be compared.
    texts: tuple[str, ...]

    @property
    def cost(self) -> float:
        """Seconds per token of the answers, prompts included."""
        return self.seconds / max(1, self.tokens)  # answers of other settings may be shorter


Texts = tuple[tuple[str, ...], tuple[str, ...]]  # the answers with the present setting, and with the other one


class _Loaded:
    def __init__(self, engines: Sequence[Engine], threads: Sequence[int]) -> None:
        self.first_texts: tuple[str, ...] = ()  # the answers of the fresh engines
        self._engines = engines
        self._threads = threads

    async def rest(self, *, resting: bool = True) -> None:
        for engine, threads in zip(self._engines, self._threads, strict=True):
            await engine.set_threads(0 if resting else threads)

    async def round(self, questions: Sequence[AskedRequest], number: int) -> _Round:
        begun = time.monotonic()
        alone = [await self._ask(question, number, place) for place, question in enumerate(questions)]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._ask(question, -number - 1, place)) for place, question in enumerate(questions)
            ]
        seconds = time.monotonic() - begun
        tokens = sum(answer.usage.output_tokens for answer in (*alone, *(task.result() for task in tasks)))
        return _Round(seconds, tokens, tuple(answer.text for answer in alone))

    async def _ask(self, question: AskedRequest, number: int, place: int) -> Completion:
        system = (Message("system", question.system),) if question.system else ()
        request = Generation(
            # A new start, so that no earlier prompt is found.
            messages=(*system, Message("user", f"({number}) {question.prompt}")),
            max_tokens=question.max_tokens,
            schema=question.output_schema,
            thinking="off",
            fit=1,
        )
        return await self._engines[place % len(self._engines)].generate(request)

    async def calibrate(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not all([(await engine.stats()).calibrated for engine in self._engines]):  # noqa: ASYNC110 (they tell nobody)
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pass


class SettingComparison:
    """Measures settings of a model of the registry: see `procedures.tuning.Comparison`. An async context manager.

    `path` is the registry's file, and `seconds` the time for the whole search.
    """

    def __init__(
        self,
        path: Path,
        model: str,
        questions: Sequence[AskedRequest],
        topology: Topology,
        folders: Folders,
        seconds: float,
        work: Work,
    ) -> None:
        self._path = path.absolute()
        self._model = model
        self._questions = questions
        self._topology = topology
        self._folders = folders
        self._seconds = seconds
        self._work = work
        self._raw = self._path.read_bytes()
        self._number = 0
        self._ready = 0.0  # when both settings were ready for the first round, by `time.monotonic`
        self._present: tuple[str, _Loaded, AsyncExitStack] | None = None

    async def __aenter__(self) -> "SettingComparison":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._drop()

    def why_refused(self, setting: Setting) -> str:
        """Return why the registry refuses a setting; empty if it does not."""
        try:
            self._entry(setting)
        except RegistryError as error:
            return "; ".join(f"{problem.what}" for problem in error.problems) or str(error)
        return ""

    async def compare(self, present: Setting, other: Setting, rounds: int) -> Compared:
        """Measure two settings in turns. Raises StepFailed if an engine cannot be loaded or fails."""
        begun = time.monotonic()
        entries = [self._entry(present), self._entry(other)]
        needs = [_need(entry, self._reduced(entry)) for entry in entries]
        try:
            if sum(needs) <= memory_budget():
                pairs, texts = await self._together(present, entries, rounds)
            else:
                pairs, texts = await self._by_turns(entries, rounds)  # both do not fit into memory
        except EngineError as error:
            raise StepFailed(str(error)) from error
        differing = sum(text != other_text for text, other_text in zip(*texts, strict=True))
        compared = Compared(
            ratios=tuple(first.cost / second.cost for first, second in pairs),
            differing=differing,
            answers=len(self._questions),
            seconds=time.monotonic() - self._ready,
            loading=self._ready - begun,
        )
        faster = statistics.geometric_mean(compared.ratios)
        self._work.say(f"{json.dumps(dict(other))}: {faster:.2f} times as fast in {rounds} rounds")
        return compared

    async def _together(
        self, present: Setting, entries: Sequence[ModelEntry], rounds: int
    ) -> tuple[list[tuple[_Round, _Round]], Texts]:
        first = await self._keep(present, entries[0])  # stays loaded for the next comparison
        pairs = []
        async with self._loaded(entries[1]) as second:
            models, self._ready = (first, second), time.monotonic()
            for number in range(rounds):
                measured: list[_Round] = []
                self._number += 1
                for model in models if number % 2 == 0 else models[::-1]:
                    self._work.seconds_left  # noqa: B018 - raises if there are none
                    await model.rest(resting=False)
                    measured.append(await model.round(self._questions, self._number))
                    await model.rest()
                pairs.append((measured[0], measured[1]) if number % 2 == 0 else (measured[1], measured[0]))
            return pairs, (first.first_texts, second.first_texts)

    async def _by_turns(self, entries: Sequence[ModelEntry], rounds: int) -> tuple[list[tuple[_Round, _Round]], Texts]:
        await self._drop()
        self._ready = time.monotonic()
        pairs, texts = list[tuple[_Round, _Round]](), dict[int, tuple[str, ...]]()
        for number in range(rounds):
            measured: dict[int, _Round] = {}
            self._number += 1
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                self._work.seconds_left  # noqa: B018 - raises if there are none
                async with self._loaded(entries[which]) as model:
                    await model.rest(resting=False)
                    measured[which] = await model.round(self._questions, self._number)
                    texts[which] = model.first_texts
            pairs.append((measured[0], measured[1]))
        return pairs, (texts[0], texts[1])

    async def _keep(self, setting: Setting, entry: ModelEntry) -> _Loaded:
        key = json.dumps(dict(setting), sort_keys=True)
        if self._present is not None and self._present[0] == key:
            return self._present[1]
        await self._drop()
        async with AsyncExitStack() as stack:
            loaded = await stack.enter_async_context(self._loaded(entry))
            self._present = key, loaded, stack.pop_all()
        return loaded

    async def _drop(self) -> None:
        present, self._present = self._present, None
        if present is not None:
            await present[2].aclose()

    @asynccontextmanager
    async def _loaded(self, entry: ModelEntry) -> AsyncIterator[_Loaded]:
        reduced = self._reduced(entry)
        nodes = nodes_for(self._topology, entry.instances, entry.numa)
        if self._present is not None:
            await self._present[1].rest()  # while others are loaded and measured
        async with AsyncExitStack() as stack:
            engines, threads = [], []
            for number, node in enumerate(nodes):
                most = self._topology.cores_of(node)
                threads.append(min(entry.options.threads or most, most))
                replica = Replica((entry.id, number), node)
                spec = engine_spec(reduced, threads[-1], replica, self._topology, folders=self._folders)
                engines.append(await stack.enter_async_context(await Engine.start(spec)))
            loaded = _Loaded(engines, threads)
            await loaded.calibrate(CALIBRATION_SHARE * self._seconds)
            loaded.first_texts = (await loaded.round(self._questions, 0)).texts
            await loaded.rest()
            yield loaded

    def _entry(self, setting: Setting) -> ModelEntry:
        raw = change_model(self._raw, self._path, self._model, setting) if setting else self._raw
        return registry_from(parse_text(raw, self._path)).models[self._model]

    def _reduced(self, entry: ModelEntry) -> ModelEntry:
        # No more context and slots than measuring needs.
        most = min(entry.slots, max(1, min(MOST_AT_ONCE, len(self._questions))))
        options = replace(entry.options, context=min(entry.context, MOST_CONTEXT), slots=most, cells=None)
        return replace(entry, options=options)


def _need(entry: ModelEntry, reduced: ModelEntry) -> int:
    if entry.header is None or entry.memory is None:
        return 0
    spared = estimate(entry.header, entry.options).total - estimate(entry.header, reduced.options).total  # bytes
    return entry.instances * (entry.memory.total - spared)


def _evidence(
    entry: ModelEntry,
    arguments: TuneArguments,
    questions: Sequence[AskedRequest],
    topology: Topology,
    result: TuningResult,
) -> str:
    fields = {
        "model": entry.id,
        "file": str(entry.file),
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": topology.cores,
        "seconds": arguments.seconds,
        "requests": arguments.requests or f"the usual mix of {len(questions)}",
        "present": json.loads(json.dumps(asdict(entry.options))),
        "found": dict(result.setting),
        "told": result.told,
        "ratio": None if result.ratio is None else asdict(result.ratio),
        "tried": list(map(_tried_json, result.tried)),
    }
    return json.dumps(fields, indent=1) + "\n"


def _tried_json(tried: TriedSetting) -> dict[str, Any]:
    return {
        "dimension": tried.dimension,
        "setting": dict(tried.setting),
        "times_as_fast": round(tried.faster, 4) or None,
        "ratios": [round(ratio, 4) for ratio in tried.ratios],
        "differing_answers": tried.differing,
        "answers": tried.answers,
        "refused": tried.refused,
    }
