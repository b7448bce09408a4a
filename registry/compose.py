"""Compose a whole registry from models that are here: which roles they get, how they fit into memory. Pure.

Roles go by size and kind. The frontdoor plans while the user waits, so it gets the most able model that is not too slow
for that; the worker the smallest that is able enough; the coder and the judge one that was made for it, where there is
one; and the architect, to which the others escalate, the most able of all. A single model gets all of these roles.

What was measured is worth more than size and name. If all models that could have a role were measured (by
`orchestrator bench model`, or for the catalogue), the frontdoor gets the one that plans best, the worker the quickest
of those that do small tasks about as well as the best one, the coder the one whose code passes most tests, and the
architect the one with most of both. A model that drafts for a larger one may plan or work only if it was measured.

Several models are a ladder: the worker's is the smallest that is adequate, and each role escalates to the next one with
a more able model. The user can set the models of roles by hand.

The frontdoor chooses among the roles that differ: a plan gives no step to the architect or the judge where the worker
or the coder has the same model. To a small model that plans, more names for the same are more ways to go wrong.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from registry.checks import BASE_MODEL, is_base, why_no_draft, why_no_text
from registry.fit import Fit, Room, fit
from registry.forms import EMBEDDER, RERANKER, Level, usual_tier
from registry.gguf import GgufHeader
from registry.measured import MeasuredShares
from registry.memory import size
from registry.models import LEAST_PLAN_QUALITY
from registry.options import PromptLookupOptions, SpeculationOptions
from registry.propose import (
    DRAFT,
    LARGEST_DRAFT,
    SMALLER,
    WRITTEN,
    count,
    describe,
    file_name,
    suits,
    why_not_drafted,
)
from registry.strict_yaml import write_yaml

FRONTDOOR: Final = "frontdoor"
WORKER: Final = "worker"
CODER: Final = "coder"
ARCHITECT: Final = "architect"
JUDGE: Final = "judge"
QUICK: Final = 16 * 10**9
"""A model that uses at most so many weights for a token is quick enough to plan while the user waits."""
ABLE: Final = 3 * 10**9
"""From so many weights on, a model does the work of a worker well enough not to be the last choice."""
SMALL: Final = 10**9
"""A model that uses fewer weights for a token than this repeats itself in longer answers, if nothing prevents that."""
DRY: Final = 0.8
"""The `dry_multiplier` of the worker of such a model. DRY only keeps it from saying the same again: with a
`repeat_penalty` of 1.1, SmolLM2 135M invented names and dates where a text's own words had been used already."""
SMALL_TOKENS: Final = 384
"""The longest answer of the worker of such a model, in tokens. What is longer has lost its subject."""
MAX_TOKENS: Final[Mapping[str, int]] = {FRONTDOOR: 2048, WORKER: 1024, CODER: 2048, ARCHITECT: 2048, JUDGE: 512}
"""The longest answers of the roles, in tokens."""
DOES: Final[Mapping[str, str]] = {
    FRONTDOOR: "turns a request into steps",
    WORKER: "extracts, summarizes, compares and answers",
    CODER: "writes code",
    ARCHITECT: "takes over what the others failed at",
    JUDGE: "says whether an answer fits its task",
    DRAFT: "drafts tokens for larger models to verify",
    EMBEDDER: "makes vectors of texts",
    RERANKER: "says how relevant texts are to a query",
}
LEVELS: Final[Mapping[str, Level]] = {CODER: "B1", ARCHITECT: "B2"}
AS_GOOD: Final = 0.9
"""A model that does this share of what the best one does is as good a worker, as 30 tasks do not tell them apart."""
ESCALATION: Final = (WORKER, CODER, ARCHITECT)
"""The roles that may escalate to one another, in this order."""


@dataclass(frozen=True, slots=True)
class RoleAdapter:
    """An adapter that a model uses in one role."""

    file: Path
    system: str
    """The system prompt that it is trained with."""
    plan_quality: float | None = None
    """The share of the plans that are right with it, if that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that is to be in the registry."""

    id: str
    file: Path
    header: GgufHeader
    known_for: tuple[str, ...] = ()
    """The roles that the catalogue says it suits, the best first; empty where it is not in the catalogue."""
    aliases: tuple[str, ...] = ()
    adapters: Mapping[str, RoleAdapter] = field(default_factory=dict)
    """The adapters that it has in roles, by the role."""
    measured: MeasuredShares | None = None
    """What was measured of it on this machine, or for the catalogue, if that was."""

    @property
    def active(self) -> float:
        """How many weights are used for a token."""
        header = self.header
        return header.parameters * (header.experts_used / header.experts if header.experts else 1.0)

    @property
    def ability(self) -> float:
        """How able the model is, compared with others, in weights: of a mixture the geometric mean of all and the used
        ones, which is a common rule of thumb.
        """
        return math.sqrt(self.header.parameters * self.active)

    @property
    def answers(self) -> bool:
        """Whether the model generates text and knows what a request is."""
        return why_no_text(self.header) is None and not is_base(self.header)

    @property
    def kind(self) -> str | None:
        """The role that its name or its header tells, without a look at other models; None if it suits none."""
        return suits(self.header, self.file.stem, drafts_for=None).role

    def is_for(self, role: str) -> bool:
        """Return whether it was made for a role, by its name or by the catalogue."""
        return self.kind == role or role in self.known_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A registry that was composed, before it is written."""

    text: str
    """The file, as YAML with comments."""
    roles: Mapping[str, str]
    """The model's id of each role."""
    models: Mapping[str, Mapping[str, object]]
    """The entries of the models, by id."""
    role_entries: Mapping[str, Mapping[str, object]]
    """The entries of the roles, by name."""
    notes: tuple[str, ...] = ()
    """Why it is as it is."""
    warnings: tuple[str, ...] = ()
    """What will not work well."""


class NothingAnswers(Exception):
    """None of the models can answer a request, so no registry can be made of them. The message says why of each."""


@dataclass(slots=True)
class _Casting:
    """Which model has which role."""

    roles: dict[str, Candidate] = field(default_factory=dict)
    drafts: dict[str, str] = field(default_factory=dict)
    """The role that drafts for a model, by the model's id."""
    without: list[Candidate] = field(default_factory=list)
    """The models that have no role."""


def compose(
    candidates: Sequence[Candidate], registry: Path, budget: int, by_hand: Mapping[str, str] | None = None
) -> Composed:
    """Compose the registry that is to be the file `registry`, for models that may take `budget` bytes together.

    The candidates have different ids. `by_hand` are the ids of models whose roles the user has set, by role. Raises
    NothingAnswers, also for such a model that cannot answer.
    """
    casting = _cast(candidates, by_hand or {})
    hot = _hot(casting, budget)
    kept = 0
    entries: dict[str, dict[str, object]] = {}
    notes, warnings = [], []
    players = list(dict.fromkeys(one.id for one in casting.roles.values()))
    by_id = {one.id: one for one in candidates}
    for one in sorted((by_id[id] for id in players), key=lambda one: one.id not in hot):
        chosen = _fitted(one, casting, Room(budget=budget, hot=kept))
        kept += chosen.memory.total if one.id in hot else 0
        entries[one.id] = _entry(one, casting, chosen, registry, hot=one.id in hot)
        notes += [_note(one, casting, chosen), *_adapter_notes(one, casting)]
        if one.measured is not None:
            notes.append(_measured_note(one))
        if chosen.short:
            room = f"{size(chosen.short)} more than the {size(budget - kept)} there are"
            warnings.append(f"{one.id} does not fit: it takes {size(chosen.memory.total)}, {room}")
    for one in casting.without:
        entries[one.id] = {"file": file_name(one.file, registry), "description": describe(one.header)}
        warnings.append(f"{one.id} has no role: {_why_no_role(one, casting)}")
    roles = dict(_roles(casting, entries, registry))
    return Composed(
        text=_text(entries, roles, notes, budget),
        roles={role: one.id for role, one in casting.roles.items()},
        models=entries,
        role_entries=roles,
        notes=tuple(notes),
        warnings=tuple(warnings),
    )


def _cast(candidates: Sequence[Candidate], by_hand: Mapping[str, str]) -> _Casting:
    """Give the models their roles."""
    casting = _Casting()
    set_by_hand = {role: _by_id(candidates, id) for role, id in by_hand.items()}
    able = sorted((one for one in candidates if one.answers and one.kind != EMBEDDER), key=_by_ability)
    drafting = _drafting(able, [one for one in candidates if why_no_text(one.header) is None])
    general = [one for one in able if one.id not in {draft.id for draft in drafting.values()}]
    if not general:
        raise NothingAnswers("; ".join(f"{one.id}: {_why_silent(one)}" for one in candidates))
    plain = [one for one in general if one.kind not in (CODER, JUDGE)]
    if all(one.ability < ABLE for one in plain):
        plain = general
    small = [draft for draft in drafting.values() if draft.measured is not None and draft in able]
    casting.roles[FRONTDOOR] = _measured_planner(_quick(able)) or _planner(plain)
    casting.roles[WORKER] = _measured_worker([*plain, *small]) or _worker(plain)
    casting.roles[CODER] = (
        _measured_best(general, _code) or _best(general, CODER) or max(plain, key=_by_ability_if_quick)
    )
    casting.roles[ARCHITECT] = _measured_best(general, _answers_and_code) or max(general, key=_by_ability)
    casting.roles[JUDGE] = _best([one for one in general if one.kind == JUDGE], JUDGE) or _judge(casting)
    casting.roles |= set_by_hand
    played = {one.id for one in casting.roles.values()}
    for target, draft in drafting.items():
        if target in played:
            role = _draft_role(draft, casting)
            casting.roles[role] = draft
            casting.drafts[target] = role
    for role in (EMBEDDER, RERANKER):
        made_for_it = [one for one in candidates if one.kind == role]
        if made_for_it:
            casting.roles[role] = max(made_for_it, key=_by_ability)
    played = {one.id for one in casting.roles.values()}
    casting.without = [one for one in candidates if one.id not in played]
    return casting


def _by_id(candidates: Sequence[Candidate], id: str) -> Candidate:
    """Return the model with this id, which is to answer. Raises NothingAnswers."""
    chosen = next(model for model in candidates if model.id == id)
    if not chosen.answers:
        raise NothingAnswers(f"{chosen.id}: {_why_silent(chosen)}")
    return chosen


def _judge(casting: _Casting) -> Candidate:
    """Return the model that plans if it is able, else the more able of this and the one that codes.

    A small model that was trained to plan does not judge well.
    """
    planner = casting.roles[FRONTDOOR]
    return planner if planner.ability >= ABLE else max((planner, casting.roles[CODER]), key=_by_ability)


def _drafting(able: Sequence[Candidate], writers: Sequence[Candidate]) -> dict[str, Candidate]:
    """Return the smallest model that can draft for each model, by the larger one's id.

    A model that drafts has none that drafts for it.
    """
    found: dict[str, Candidate] = {}
    for target in reversed(able):
        if why_not_drafted(target.header) is not None or target.id in {one.id for one in found.values()}:
            continue
        small = [
            one
            for one in writers
            if one.id not in found
            and one.header.parameters <= LARGEST_DRAFT
            and one.header.parameters * SMALLER <= target.header.parameters
            and why_no_draft(target.header, one.header) is None
        ]
        if small:
            found[target.id] = min(small, key=lambda one: (not one.is_for(DRAFT), one.header.parameters))
    return found


def _draft_role(draft: Candidate, casting: _Casting) -> str:
    """Return the role of a draft model: `draft` for the first one, and one with the model's id for any other."""
    has = next((role for role, one in casting.roles.items() if one.id == draft.id), None)
    return has or (DRAFT if DRAFT not in casting.roles else f"{DRAFT}-{draft.id}"[:64])


def _by_ability(one: Candidate) -> float:
    return one.ability


def _by_ability_if_quick(one: Candidate) -> tuple[bool, bool, float]:
    """Order models that are able before others, then quick ones before slow ones, and those by their speed."""
    quick = one.active <= QUICK
    return one.ability >= ABLE, quick, one.ability if quick else -one.active


def _quick(models: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the models that are quick enough to plan while the user waits; all where none is."""
    return [one for one in models if one.active <= QUICK] or models


def _code(measured: MeasuredShares) -> float | None:
    return measured.code


def _answers_and_code(measured: MeasuredShares) -> float | None:
    return None if measured.code is None else measured.answers + measured.code


def _measured_best(models: Sequence[Candidate], share: Callable[[MeasuredShares], float | None]) -> Candidate | None:
    """Return the model that was measured to be the best; None unless all were measured and one did anything rightly.

    Of two that are equally good the more able one is taken.
    """
    found = [(None if one.measured is None else share(one.measured)) for one in models]
    shares = [one for one in found if one is not None]
    if len(shares) < len(models) or not any(shares):
        return None
    best = max(shares)
    return max((one for one, of_it in zip(models, shares, strict=True) if of_it == best), key=_by_ability)


def _measured_planner(models: Sequence[Candidate]) -> Candidate | None:
    """Return the model that was measured to plan best; None if one that was not measured may plan better.

    Of two that are equally good the more able one is taken.
    """
    measured = [(quality, one.ability, one) for one in models if (quality := _plan_quality(one)) is not None]
    if not measured:
        return None
    quality, _, best = max(measured, key=lambda found: found[:2])
    only_choice = len(measured) == len(models) and quality > 0
    return best if only_choice or quality >= LEAST_PLAN_QUALITY else None


def _measured_worker(plain: Sequence[Candidate]) -> Candidate | None:
    """Return the quickest of the models that were measured to do small tasks about as well as the best one, or None."""
    best = _measured_best(plain, lambda measured: measured.answers)
    if best is None or best.measured is None:
        return None
    least = AS_GOOD * best.measured.answers
    enough = [one for one in plain if one.measured is not None and one.measured.answers >= least]
    return min(enough, key=lambda one: (one.active, -one.ability))


def _planner(plain: Sequence[Candidate]) -> Candidate:
    known = [one for one in plain if FRONTDOOR in one.known_for and one.ability >= ABLE]
    return max(known or plain, key=_by_ability_if_quick)


def _worker(plain: Sequence[Candidate]) -> Candidate:
    """Return the smallest model that is able enough for a worker, else the most able one."""
    enough = [one for one in plain if one.ability >= ABLE]
    return min(enough, key=lambda one: (one.active, -one.ability)) if enough else max(plain, key=_by_ability)


def _best(general: Sequence[Candidate], role: str) -> Candidate | None:
    """Return the most able of those that were made for a role by their names, or that the catalogue names first."""
    made = [one for one in general if one.kind == role or one.known_for[:1] == (role,)]
    return max(made, key=_by_ability) if made else None


def _hot(casting: _Casting, budget: int) -> frozenset[str]:
    """Return the models that are always loaded: the frontdoor's and the worker's, if the largest other fits too."""
    chosen = {one.id: one for role in (FRONTDOOR, WORKER) if (one := casting.roles[role])}
    others = [one.header.weight_bytes for one in casting.roles.values() if one.id not in chosen]
    for ids in (tuple(chosen), (casting.roles[FRONTDOOR].id,)):
        weights = sum(chosen[id].header.weight_bytes for id in ids)
        if 2 * (weights + max(others, default=0)) <= budget:
            return frozenset(ids)
    return frozenset()


def _fitted(one: Candidate, casting: _Casting, room: Room) -> Fit:
    draft = casting.roles[casting.drafts[one.id]].header if one.id in casting.drafts else None
    embeds = _embeds(one, casting)
    return fit(one.header, room, draft, embeds=embeds)


def _embeds(one: Candidate, casting: _Casting) -> bool:
    return any(role in casting.roles and casting.roles[role].id == one.id for role in (EMBEDDER, RERANKER))


def _entry(one: Candidate, casting: _Casting, chosen: Fit, registry: Path, *, hot: bool) -> dict[str, object]:
    """Return the keys of a model's entry."""
    options = asdict(chosen.options)
    entry: dict[str, object] = {"file": file_name(one.file, registry), "description": describe(one.header)}
    if one.aliases:
        entry["aliases"] = [*one.aliases]
    entry["residency"] = "hot" if hot else "warm"
    entry |= {name: options[name] for name in WRITTEN if options.get(name) is not None}
    if one.measured is not None and one.measured.step_context not in (None, "own"):
        entry["step_context"] = one.measured.step_context
    if one.id in casting.drafts:
        entry["speculation"] = asdict(SpeculationOptions(casting.drafts[one.id]))
    if not _embeds(one, casting) and one.answers and why_not_drafted(one.header) is None:
        entry["prompt_lookup"] = asdict(PromptLookupOptions())
    return entry


def _roles(
    casting: _Casting, entries: Mapping[str, Mapping[str, object]], registry: Path
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the roles with the keys of their entries."""
    for role, one in casting.roles.items():
        kind = DRAFT if role.startswith(DRAFT) else role
        entry: dict[str, object] = {"model": one.id, "tier": usual_tier(kind)}
        if role in LEVELS:
            entry["level"] = LEVELS[role]
        if role in MAX_TOKENS:
            context = entries[one.id].get("context", 1)
            assert isinstance(context, int), "a context was fitted"
            small = role == WORKER and one.active < SMALL
            entry["max_tokens"] = max(1, min(SMALL_TOKENS if small else MAX_TOKENS[role], context // 2))
            if small:
                entry["sampling"] = {"dry_multiplier": DRY}
        if (adapter := one.adapters.get(role)) is not None:
            entry |= {"system": adapter.system, "lora": [{"file": file_name(adapter.file, registry)}]}
        if role == FRONTDOOR and (quality := _plan_quality(one)) is not None:
            entry["plan_quality"] = quality
        if above := _above(role, casting):
            entry["escalates_to"] = above
        entry["description"] = DOES[kind]
        if role in (ARCHITECT, JUDGE) and one.id in {casting.roles[WORKER].id, casting.roles[CODER].id}:
            entry["in_plans"] = False
        yield role, entry


def _plan_quality(one: Candidate) -> float | None:
    """Return the share of right plans: with the model's adapter, else as measured of the model; None if unmeasured."""
    if FRONTDOOR in one.adapters:
        return one.adapters[FRONTDOOR].plan_quality
    return None if one.measured is None else one.measured.plans


def _above(role: str, casting: _Casting) -> str | None:
    """Return the next role up the order of escalation that has a more able model, or None."""
    if role not in ESCALATION:
        return None
    higher = ESCALATION[ESCALATION.index(role) + 1 :]
    own = casting.roles[role]
    return next((up for up in higher if casting.roles[up].ability > own.ability), None)


def _note(one: Candidate, casting: _Casting, chosen: Fit) -> str:
    roles = ", ".join(role for role, other in casting.roles.items() if other.id == one.id)
    role = casting.drafts.get(one.id)
    draft = f", with {casting.roles[role].id}, which drafts for it," if role is not None else ""
    slots = f"{chosen.options.slots} x {chosen.context:,} tokens"
    return f"{one.id} ({roles}): {slots}{draft} take {chosen.memory} = {size(chosen.memory.total)}"


def _measured_note(one: Candidate) -> str:
    """Return what was measured of a model, in a line."""
    assert one.measured is not None, "it was measured"
    code = "" if one.measured.code is None else f", {one.measured.code:.0%} of the code passes its tests"
    done = f"{one.measured.plans:.0%} of the plans and {one.measured.answers:.0%} of the small tasks are right"
    return f"{one.id} was measured: {done}{code}"


def _adapter_notes(one: Candidate, casting: _Casting) -> Iterator[str]:
    for role, adapter in one.adapters.items():
        if casting.roles.get(role) is one:
            yield f"{one.id} has the adapter {adapter.file.name} as {role}, which is trained for that"


def _why_silent(one: Candidate) -> str:
    """Return why a model cannot answer requests."""
    if (reason := why_no_text(one.header)) is not None:
        return reason
    if is_base(one.header):
        return BASE_MODEL
    return "its name says that it embeds" if one.kind == EMBEDDER else "it drafts for another one"


def _why_no_role(one: Candidate, casting: _Casting) -> str:
    if one.kind in (EMBEDDER, RERANKER):
        return f"{casting.roles[one.kind].id} {'embeds' if one.kind == EMBEDDER else 'ranks texts'} already"
    if not one.answers:
        return _why_silent(one)
    return f"the others suit every role better than its {count(one.header.parameters)} weights do"


def _text(
    entries: Mapping[str, Mapping[str, object]],
    roles: Mapping[str, Mapping[str, object]],
    notes: Iterable[str],
    budget: int,
) -> str:
    """Return the registry's file."""
    lines = [
        "# The models of this installation, and the roles they play. File names are relative to this file.\n",
        f"# Made by `orchestrator init` for {size(budget)} of memory:\n",
        *(f"#   {note}\n" for note in notes),
        "\nmodels:\n",
    ]
    for name, entry in entries.items():
        lines += [f"  {name}:\n", write_yaml(entry, 4)]
    lines.append("\nroles:\n")
    for name, entry in roles.items():
        lines += [f"  {name}:\n", write_yaml(entry, 4)]
    return "".join(lines)


def unique(ids: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return the ids in their order, each with a number at its end where it is there already."""
    used, made = set(taken), []
    for name in ids:
        chosen = name if name not in used else next(c for n in range(2, 10**6) if (c := f"{name[:58]}-{n}") not in used)
        used.add(chosen)
        made.append(chosen)
    return made
