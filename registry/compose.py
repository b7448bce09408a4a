"""Compose a whole registry from the models that are here: their roles, and how they fit into memory. Pure.

Roles go by size and kind. The frontdoor plans while the user waits, so it gets the most able model that is fast enough;
the worker the smallest that is able enough; coder and judge a specialised one, if there is any; and the architect, to
which the others escalate, the most able. A single model gets all of these roles. A generalist, who answers whole
requests, is added if a clearly more able model than the worker's is fast enough: parts are easier than the whole.

Measurements beat size and name. If all candidates of a role were measured (by `orchestrator bench model`, or for the
catalogue), the frontdoor gets the best planner, the worker the fastest model that does small tasks about as well as the
best, the coder the one whose code passes most tests, and the architect the one with the most of both. A draft model may
plan or work only if it was measured. The user can set roles by hand.

The frontdoor chooses among roles that differ: a plan gives no step to architect or judge if worker or coder has the
same model, because more names for the same thing confuse a small planner.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.registry.checks import BASE_MODEL, is_base, why_no_text, why_not_drafted
from orchestrator.registry.fit import Fit, Room, fit
from orchestrator.registry.forms import EMBEDDER, GENERALIST, RERANKER, Level, usual_tier
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.measured import MeasuredShares
from orchestrator.registry.memory import size
from orchestrator.registry.models import LEAST_PLAN_QUALITY
from orchestrator.registry.options import SpeculationOptions
from orchestrator.registry.propose import (
    DRAFT,
    LARGEST_DRAFT,
    WRITTEN,
    can_draft,
    count,
    describe,
    file_name,
    suits,
)
from orchestrator.registry.sources.catalogue import AdapterEntry
from orchestrator.registry.strict_yaml import write_section

FRONTDOOR: Final = "frontdoor"
WORKER: Final = "worker"
CODER: Final = "coder"
ARCHITECT: Final = "architect"
JUDGE: Final = "judge"
QUICK: Final = 16 * 10**9  # with at most this many active weights, a model is fast enough while the user waits
ABLE: Final = 3 * 10**9  # from this many weights on, a model is not the last choice as a worker
SMALL: Final = 10**9  # with fewer active weights, a model repeats itself in longer answers unless something prevents it
# The worker's `dry_multiplier` for such a model. DRY only prevents repetition: with a `repeat_penalty` of 1.1, SmolLM2
# 135M invented names and dates once a text's own words had been used.
DRY: Final = 0.8
SMALL_TOKENS: Final = 384  # longest answer of such a worker; after that it has lost its subject
MAX_TOKENS: Final[Mapping[str, int]] = {
    FRONTDOOR: 2048,
    WORKER: 1024,
    GENERALIST: 2048,
    CODER: 2048,
    ARCHITECT: 2048,
    JUDGE: 512,
}
DOES: Final[Mapping[str, str]] = {
    FRONTDOOR: "turns a request into steps",
    WORKER: "extracts, summarizes, compares and answers",
    GENERALIST: "answers whole requests that get no plan",
    CODER: "writes code",
    ARCHITECT: "takes over what the others failed at",
    JUDGE: "says whether an answer fits its task",
    DRAFT: "drafts tokens for larger models to verify",
    EMBEDDER: "makes vectors of texts",
    RERANKER: "says how relevant texts are to a query",
}
LEVELS: Final[Mapping[str, Level]] = {GENERALIST: "B1", CODER: "B1", ARCHITECT: "B2"}
AS_GOOD: Final = 0.9  # A worker with this share of the best result is as good: 30 tasks do not tell them apart.
CLEARLY_MORE: Final = 1.5  # times the weights; a rank in weights does not tell closer models apart
# Who may take over from a role, the first choice first.
ESCALATION: Final[Mapping[str, Sequence[str]]] = {
    WORKER: (GENERALIST, CODER, ARCHITECT),
    GENERALIST: (ARCHITECT,),
    CODER: (ARCHITECT,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model for the registry."""

    id: str
    file: Path
    header: GgufHeader
    known_for: tuple[str, ...] = ()  # roles in the catalogue, the best first; empty if it is not in the catalogue
    adapters: Mapping[str, AdapterEntry] = field(default_factory=dict)  # by role
    measured: MeasuredShares | None = None  # on this machine, or for the catalogue

    @property
    def active(self) -> int:
        """Weights used per token."""
        return self.header.active_parameters

    @property
    def ability(self) -> float:
        """A rank in weights. For a mixture it is the geometric mean of all and active ones, a common rule of thumb."""
        return math.sqrt(self.header.parameters * self.active)

    @property
    def answers(self) -> bool:
        """Whether the model generates text and follows requests."""
        return why_no_text(self.header) is None and not is_base(self.header)

    @property
    def kind(self) -> str | None:
        """The role that its name or header suggests, or None."""
        return suits(self.header, self.file.stem, drafts_for=None).role

    def is_for(self, role: str) -> bool:
        return self.kind == role or role in self.known_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A registry that was composed, before it is written."""

    text: str  # YAML with comments
    roles: Mapping[str, str]  # model id by role
    role_entries: Mapping[str, Mapping[str, object]]  # by name
    notes: tuple[str, ...] = ()  # reasons
    warnings: tuple[str, ...] = ()  # about what will not work well


class NothingAnswers(Exception):
    """None of the models can answer a request. The message says why for each."""


@dataclass(slots=True)
class _Casting:
    roles: dict[str, Candidate] = field(default_factory=dict)
    drafts: dict[str, str] = field(default_factory=dict)  # the role that drafts for a model, by its id
    without: list[Candidate] = field(default_factory=list)  # models without a role


def compose(
    candidates: Sequence[Candidate], registry: Path, budget: int, by_hand: Mapping[str, str] | None = None
) -> Composed:
    """Compose the registry for the file `registry`, for models that may take `budget` bytes together.

    Candidates have different ids. `by_hand` has the model ids of roles that the user has set. Raises NothingAnswers,
    also if such a model cannot answer.
    """
    casting = _cast(candidates, by_hand or {})
    hot = _hot(casting, budget)
    hot_bytes = 0
    entries: dict[str, dict[str, object]] = {}
    notes, warnings = [], []
    players = list(dict.fromkeys(model.id for model in casting.roles.values()))
    by_id = {model.id: model for model in candidates}
    for model in sorted((by_id[id] for id in players), key=lambda model: model.id not in hot):
        fitted = _fitted(model, casting, Room(budget=budget, hot=hot_bytes))
        hot_bytes += fitted.memory.total if model.id in hot else 0
        entries[model.id] = _entry(model, casting, fitted, registry, hot=model.id in hot)
        notes += [_note(model, casting, fitted), *_adapter_notes(model, casting)]
        if model.measured is not None:
            notes.append(_measured_note(model))
        if fitted.short:
            room = f"{size(fitted.short)} more than the {size(budget - hot_bytes)} there are"
            warnings.append(f"{model.id} does not fit: it takes {size(fitted.memory.total)}, {room}")
    for model in casting.without:
        entries[model.id] = {"file": file_name(model.file, registry), "description": describe(model.header)}
        warnings.append(f"{model.id} has no role: {_why_no_role(model, casting)}")
    roles = dict(_roles(casting, entries, registry))
    return Composed(
        text=_text(entries, roles, notes, budget),
        roles={role: model.id for role, model in casting.roles.items()},
        role_entries=roles,
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def _cast(candidates: Sequence[Candidate], by_hand: Mapping[str, str]) -> _Casting:
    casting = _Casting()
    set_by_hand = {role: _by_id(candidates, id) for role, id in by_hand.items()}
    able = sorted((model for model in candidates if model.answers and model.kind != EMBEDDER), key=_by_ability)
    drafting = _drafting(able, [model for model in candidates if why_no_text(model.header) is None])
    general = [model for model in able if model.id not in {draft.id for draft in drafting.values()}]
    if not general:
        raise NothingAnswers("; ".join(f"{model.id}: {_why_silent(model)}" for model in candidates))
    plain = [model for model in general if model.kind not in (CODER, JUDGE)]
    if all(model.ability < ABLE for model in plain):
        plain = general
    small = [draft for draft in drafting.values() if draft.measured is not None and draft in able]
    casting.roles[FRONTDOOR] = _measured_planner(_quick(able)) or _planner(plain)
    casting.roles[WORKER] = _measured_worker([*plain, *small]) or _worker(plain)
    coder = _measured_best(general, lambda measured: measured.code) or _best(general, CODER)
    casting.roles[CODER] = coder or max(plain, key=_by_ability_if_quick)
    casting.roles[ARCHITECT] = _measured_best(general, _answers_and_code) or max(general, key=_by_ability)
    casting.roles[JUDGE] = _best([model for model in general if model.kind == JUDGE], JUDGE) or _judge(casting)
    casting.roles |= set_by_hand
    if (generalist := _generalist(general, casting)) is not None:
        casting.roles[GENERALIST] = generalist
    played = {model.id for model in casting.roles.values()}
    for target, draft in drafting.items():
        if target in played:
            role = _draft_role(draft, casting)
            casting.roles[role] = draft
            casting.drafts[target] = role
    for role in (EMBEDDER, RERANKER):
        made_for_it = [model for model in candidates if model.kind == role]
        if made_for_it:
            casting.roles[role] = max(made_for_it, key=_by_ability)
    played = {model.id for model in casting.roles.values()}
    casting.without = [model for model in candidates if model.id not in played]
    return casting


def _by_id(candidates: Sequence[Candidate], id: str) -> Candidate:
    candidate = next(model for model in candidates if model.id == id)
    if not candidate.answers:
        raise NothingAnswers(f"{candidate.id}: {_why_silent(candidate)}")
    return candidate


def _judge(casting: _Casting) -> Candidate:
    # A small model that was trained to plan does not judge well.
    planner = casting.roles[FRONTDOOR]
    return planner if planner.ability >= ABLE else max((planner, casting.roles[CODER]), key=_by_ability)


def _generalist(general: Sequence[Candidate], casting: _Casting) -> Candidate | None:
    # The most able model with another role that is fast enough. None if the worker is about as able.
    played, worker = {model.id for model in casting.roles.values()}, casting.roles[WORKER]
    quick = [model for model in general if model.id in played and model.active <= QUICK]
    best = _measured_best(quick, lambda measured: measured.answers)
    if best is not None and best.measured is not None and worker.measured is not None:
        return best if worker.measured.answers < AS_GOOD * best.measured.answers else None
    ablest = best or max(quick, key=_by_ability, default=worker)
    return ablest if ablest.ability >= CLEARLY_MORE * worker.ability else None


def _drafting(able: Sequence[Candidate], writers: Sequence[Candidate]) -> dict[str, Candidate]:
    # The smallest possible draft model for each model, by the larger one's id; draft models get none.
    drafts: dict[str, Candidate] = {}
    for target in reversed(able):
        if why_not_drafted(target.header) is not None or target.id in {draft.id for draft in drafts.values()}:
            continue
        small = [
            writer
            for writer in writers
            if writer.id not in drafts
            and writer.header.parameters <= LARGEST_DRAFT
            and can_draft(target.header, writer.header)
        ]
        if small:
            drafts[target.id] = min(small, key=lambda writer: (not writer.is_for(DRAFT), writer.header.parameters))
    return drafts


def _draft_role(draft: Candidate, casting: _Casting) -> str:
    has = next((role for role, player in casting.roles.items() if player.id == draft.id), None)
    return has or (DRAFT if DRAFT not in casting.roles else f"{DRAFT}-{draft.id}"[:64])


def _by_ability(model: Candidate) -> float:
    return model.ability


def _by_ability_if_quick(model: Candidate) -> tuple[bool, bool, float]:
    # Able before others, then quick before slow, and slow ones by their speed.
    quick = model.active <= QUICK
    return model.ability >= ABLE, quick, model.ability if quick else -model.active


def _quick(models: Sequence[Candidate]) -> Sequence[Candidate]:
    return [model for model in models if model.active <= QUICK] or models


def _answers_and_code(measured: MeasuredShares) -> float | None:
    return None if measured.code is None else measured.answers + measured.code


def _measured_best(models: Sequence[Candidate], share: Callable[[MeasuredShares], float | None]) -> Candidate | None:
    # None unless all were measured and one did anything right; on a tie the more able model.
    results = [(None if model.measured is None else share(model.measured)) for model in models]
    shares = [result for result in results if result is not None]
    if len(shares) < len(models) or not any(shares):
        return None
    best = max(shares)
    return max((model for model, of_it in zip(models, shares, strict=True) if of_it == best), key=_by_ability)


def _measured_planner(models: Sequence[Candidate]) -> Candidate | None:
    # None if an unmeasured model may plan better; on a tie the more able model.
    measured = [(quality, model.ability, model) for model in models if (quality := _plan_quality(model)) is not None]
    if not measured:
        return None
    quality, _, best = max(measured, key=lambda row: row[:2])
    only_choice = len(measured) == len(models) and quality > 0
    return best if only_choice or quality >= LEAST_PLAN_QUALITY else None


def _measured_worker(plain: Sequence[Candidate]) -> Candidate | None:
    # The fastest of the models that do small tasks about as well as the best.
    best = _measured_best(plain, lambda measured: measured.answers)
    if best is None or best.measured is None:
        return None
    least = AS_GOOD * best.measured.answers
    enough = [model for model in plain if model.measured is not None and model.measured.answers >= least]
    return min(enough, key=lambda model: (model.active, -model.ability))


def _planner(plain: Sequence[Candidate]) -> Candidate:
    planners = [model for model in plain if FRONTDOOR in model.known_for and model.ability >= ABLE]
    return max(planners or plain, key=_by_ability_if_quick)


def _worker(plain: Sequence[Candidate]) -> Candidate:
    enough = [model for model in plain if model.ability >= ABLE]
    return min(enough, key=lambda model: (model.active, -model.ability)) if enough else max(plain, key=_by_ability)


def _best(general: Sequence[Candidate], role: str) -> Candidate | None:
    # Specialised by name, or named first by the catalogue.
    specialists = [model for model in general if model.kind == role or model.known_for[:1] == (role,)]
    return max(specialists, key=_by_ability) if specialists else None


def _hot(casting: _Casting, budget: int) -> frozenset[str]:
    # The models of frontdoor, generalist and worker, or of the first of them, if the largest of the rest fits too.
    models = [casting.roles[role] for role in (FRONTDOOR, GENERALIST, WORKER) if role in casting.roles]
    ids = list(dict.fromkeys(model.id for model in models))
    sizes = {model.id: model.header.weight_bytes for model in casting.roles.values()}
    for length in range(len(ids), 0, -1):
        hot = frozenset(ids[:length])
        largest = max((sizes[id] for id in sizes if id not in hot), default=0)
        if 2 * (sum(sizes[id] for id in hot) + largest) <= budget:
            return hot
    return frozenset()


def _fitted(model: Candidate, casting: _Casting, room: Room) -> Fit:
    draft = casting.roles[casting.drafts[model.id]].header if model.id in casting.drafts else None
    return fit(model.header, room, draft, embeds=_embeds(model, casting))


def _embeds(model: Candidate, casting: _Casting) -> bool:
    return any(role in casting.roles and casting.roles[role].id == model.id for role in (EMBEDDER, RERANKER))


def _entry(model: Candidate, casting: _Casting, fitted: Fit, registry: Path, *, hot: bool) -> dict[str, object]:
    options = asdict(fitted.options)
    entry: dict[str, object] = {"file": file_name(model.file, registry), "description": describe(model.header)}
    entry["residency"] = "hot" if hot else "warm"
    entry |= {name: options[name] for name in WRITTEN if options.get(name) is not None}
    if model.measured is not None and model.measured.step_context not in (None, "own"):
        entry["step_context"] = model.measured.step_context
    if model.id in casting.drafts and fitted.drafts:
        entry["speculation"] = asdict(SpeculationOptions(casting.drafts[model.id]))
    return entry


def _roles(
    casting: _Casting, entries: Mapping[str, Mapping[str, object]], registry: Path
) -> Iterator[tuple[str, dict[str, object]]]:
    for role, model in casting.roles.items():
        kind = DRAFT if role.startswith(DRAFT) else role
        entry: dict[str, object] = {"model": model.id, "tier": usual_tier(kind)}
        if role in LEVELS:
            entry["level"] = LEVELS[role]
        if role in MAX_TOKENS:
            context = entries[model.id].get("context", 1)
            assert isinstance(context, int), "a context was fitted"
            small = role == WORKER and model.active < SMALL
            entry["max_tokens"] = max(1, min(SMALL_TOKENS if small else MAX_TOKENS[role], context // 2))
            if small:
                entry["sampling"] = {"dry_multiplier": DRY}
        if (adapter := model.adapters.get(role)) is not None:
            entry |= {"system": adapter.system, "lora": [{"file": file_name(adapter.path, registry)}]}
            if adapter.plans_by_cores:
                entry["plans_by_cores"] = True
        if role == FRONTDOOR and (quality := _plan_quality(model)) is not None:
            entry["plan_quality"] = quality
        if above := _above(role, casting):
            entry["escalates_to"] = above
        entry["description"] = DOES[kind]
        in_plans = {casting.roles[WORKER].id, casting.roles[CODER].id}
        if role == GENERALIST or (role in (ARCHITECT, JUDGE) and model.id in in_plans):
            entry["in_plans"] = False
        yield role, entry


def _plan_quality(model: Candidate) -> float | None:
    # With the model's adapter, else of the bare model; None if unmeasured.
    if FRONTDOOR in model.adapters:
        return model.adapters[FRONTDOOR].plan_quality
    return None if model.measured is None else model.measured.plans


def _above(role: str, casting: _Casting) -> str | None:
    roles = casting.roles
    higher = (up for up in ESCALATION.get(role, ()) if up in roles)
    return next((up for up in higher if roles[up].ability > roles[role].ability), None)


def _note(model: Candidate, casting: _Casting, fitted: Fit) -> str:
    roles = ", ".join(role for role, player in casting.roles.items() if player.id == model.id)
    role = casting.drafts.get(model.id)
    draft = f", with {casting.roles[role].id}, which drafts for it," if role is not None else ""
    slots = f"{fitted.options.slots} x {fitted.context:,} tokens"
    return f"{model.id} ({roles}): {slots}{draft} take {fitted.memory} = {size(fitted.memory.total)}"


def _measured_note(model: Candidate) -> str:
    assert model.measured is not None, "it was measured"
    code = "" if model.measured.code is None else f", {model.measured.code:.0%} of the code passes its tests"
    plans = f"{model.measured.plans:.0%} of the plans for the tuning and unseen requests of `bench model`"
    return f"{model.id} was measured: {plans} and {model.measured.answers:.0%} of its small tasks are right{code}"


def _adapter_notes(model: Candidate, casting: _Casting) -> Iterator[str]:
    for role, adapter in model.adapters.items():
        if casting.roles.get(role) is model:
            yield f"{model.id} has the adapter {adapter.path.name} as {role}, which is trained for that"


def _why_silent(model: Candidate) -> str:
    if (reason := why_no_text(model.header)) is not None:
        return reason
    if is_base(model.header):
        return BASE_MODEL
    return "its name says that it embeds" if model.kind == EMBEDDER else "it drafts for another one"


def _why_no_role(model: Candidate, casting: _Casting) -> str:
    if model.kind in (EMBEDDER, RERANKER):
        return f"{casting.roles[model.kind].id} {'embeds' if model.kind == EMBEDDER else 'ranks texts'} already"
    if not model.answers:
        return _why_silent(model)
    return f"the others suit every role better than its {count(model.header.parameters)} weights do"


def _text(
    entries: Mapping[str, Mapping[str, object]],
    roles: Mapping[str, Mapping[str, object]],
    notes: Iterable[str],
    budget: int,
) -> str:
    head = [
        "# The models of this installation, and the roles they play. File names are relative to this file.\n",
        f"# Made by `orchestrator init` for {size(budget)} of memory:\n",
        *(f"#   {note}\n" for note in notes),
    ]
    return "\n".join(("".join(head), write_section("models", entries), write_section("roles", roles)))


def unique(ids: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the ids in order, with a number at the end of each repeated one."""
    used, numbered = set(taken), []
    for name in ids:
        fresh = name if name not in used else next(c for n in range(2, 10**6) if (c := f"{name[:58]}-{n}") not in used)
        used.add(fresh)
        numbered.append(fresh)
    return numbered
