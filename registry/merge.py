"""Take up what is valid of an edited registry, entry by entry, and leave the rest as it was.

An entry (a model, a role or a persona) with a mistake keeps itself out: where it was there before, it stays as it was,
and where it is new, it is not there. So does whatever cannot go without it: a role whose new model was kept out, or the
removal of a model that a role still names. Nothing else is kept out: of the entries that `Merged.kept_out` names, none
could be taken up alone. A model whose file cannot be read is such a mistake, unless it could not be read before either.

What is wrong outside of the entries (the YAML itself, the defaults, an unknown key at the top, no valid model or role
left) keeps the whole file out, and an unreadable file of personas all of them.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from registry.errors import RegistryError, RegistryProblem
from registry.forms import Form, LoraForm, ModelForm, Name, PersonasForm, RegistryForm, RoleForm, read_form
from registry.load import Offer, model_files, personas_file, read_offer
from registry.models import ModelEntry, Persona, Registry, RoleEntry
from registry.personas import personas_of
from registry.strict_yaml import Document, Place, parse_file

Refused = dict[Place, tuple[RegistryProblem, ...]]
F = TypeVar("F", bound=Form)
T = TypeVar("T")
SECTIONS: Final = ("models", "roles", "personas")


class RestForm(RegistryForm):
    """A registry without the entries that have mistakes: what was in force may take the places of all of them."""

    models: dict[Name, ModelForm]
    roles: dict[Name, RoleForm]


@dataclass(frozen=True, slots=True)
class KeptOut:
    """An entry that is not as the file says, and why. It is as it was before, or not there if it is new."""

    section: str
    name: str
    problems: tuple[RegistryProblem, ...]

    def __str__(self) -> str:
        return f"{self.section}.{self.name}"


@dataclass(frozen=True, slots=True)
class Merged:
    """A valid registry, and what its files say that is not in it. `problems` are all, those of `kept_out` included.

    `files` are those that this depends on, none if the registry's own file could not be understood.
    """

    registry: Registry
    kept_out: tuple[KeptOut, ...]
    problems: tuple[RegistryProblem, ...]
    files: frozenset[Path]


def merge(in_force: Registry) -> Merged:
    """Read the files of a registry again, and take up what is valid of them. Raises nothing, whatever they hold."""
    try:
        document = parse_file(in_force.path)
        form, refused = _readable(RegistryForm, RestForm, document)
    except RegistryError as error:
        return Merged(in_force, (), error.problems, frozenset())
    path = personas_file(document.path, form)
    problems: tuple[RegistryProblem, ...] = ()
    personas = in_force.personas
    try:
        given, bad_personas = _readable(PersonasForm, PersonasForm, parse_file(path))
        personas, refused = personas_of(given), {**refused, **bad_personas}
    except RegistryError as error:
        problems = error.problems
    offer = read_offer(document, form, personas)
    registry, kept_out = settle(in_force, offer, refused)
    told = dict.fromkeys((*problems, *(problem for entry in kept_out for problem in entry.problems)))
    files = {file for model in form.models.values() for file in model_files(document.path, model)}
    files |= {model.file for model in registry.models.values() if model.file is not None}
    return Merged(registry, kept_out, tuple(told), frozenset({document.path, path, *files}))


def settle(in_force: Registry, offer: Offer, refused: Refused) -> tuple[Registry, tuple[KeptOut, ...]]:
    """Return the registry that has of `offer` what is valid, and what was kept out of it. Pure.

    `refused` are entries, such as ("models", "big"), that have mistakes of their own and so are not in `offer`.
    """
    fresh, before = offer.registry(), _as_offer(in_force, offer)
    refused = {**refused, **_unusable(in_force, fresh, offer.document)}
    kept = dict(refused)
    while problems := (mixed := _mixed(offer, before, kept)).problems():
        grown = _grown(kept, problems, mixed)
        if len(grown) == len(kept):
            return _all_kept(in_force, fresh, kept, problems)
        kept = grown
    kept = {key: why for key, why in kept.items() if _entry(fresh, key) != _entry(in_force, key) or key in refused}
    kept = _freed(kept, refused, offer, before)
    valid = _mixed(offer, before, kept).registry()
    registry = replace(
        valid,
        models=MappingProxyType(_mix("models", valid.models, in_force.models, kept)),
        roles=MappingProxyType(_mix("roles", valid.roles, in_force.roles, kept)),
    )
    if not (registry.models and registry.roles):
        return _all_kept(in_force, fresh, kept, tuple(problem for why in kept.values() for problem in why))
    return registry, _told(kept)


def _all_kept(
    in_force: Registry, fresh: Registry, kept: Refused, problems: tuple[RegistryProblem, ...]
) -> tuple[Registry, tuple[KeptOut, ...]]:
    """Leave everything as it was: what was in force is at fault itself, or nothing valid would be left."""
    others = (key for key in (*_keys(fresh), *_keys(in_force)) if _entry(fresh, key) != _entry(in_force, key))
    return in_force, _told({**dict.fromkeys(others, problems), **kept})


def _told(kept: Refused) -> tuple[KeptOut, ...]:
    return tuple(KeptOut(str(section), str(name), why) for (section, name), why in kept.items())


def _readable(form: type[F], rest: type[F], document: Document) -> tuple[F, Refused]:
    """Return the form, or else the `rest` of it without the entries that have mistakes, and these.

    Raises RegistryError for mistakes that are in no entry.
    """
    try:
        return read_form(form, document), {}
    except RegistryError as error:
        refused: Refused = {}
        for problem in error.problems:
            if len(problem.place) < 2 or problem.place[0] not in SECTIONS:
                raise
            refused[problem.place[:2]] = (*refused.get(problem.place[:2], ()), problem)
    return read_form(rest, replace(document, data=_without(document.data, refused))), refused


def _without(data: Any, entries: Collection[Place]) -> dict[str, Any]:
    """Return the data of a document without some entries. They were found in it, so it is made of mappings so far."""
    return {
        section: {name: entry for name, entry in content.items() if (section, name) not in entries}
        if section in SECTIONS and isinstance(content, dict)
        else content
        for section, content in data.items()
    }


def _unusable(in_force: Registry, fresh: Registry, document: Document) -> Refused:
    """Return the models that cannot be used, as when a file cannot be read, but for those of which that is no news."""
    refused: Refused = {}
    for name, model in fresh.models.items():
        before = in_force.models.get(name)
        if model.unavailable is not None and (before is None or before.unavailable is None):
            place = ("models", name, "file" if model.remote is None else "api_key_env")
            refused["models", name] = (document.problem(place, model.unavailable),)
    return refused


def _as_offer(registry: Registry, offer: Offer) -> Offer:
    """Return a registry in the shape of an offer, for the checks. Its entries have no need of defaults any more."""
    form = offer.form.model_copy(
        update={
            "models": {name: _model_form(model) for name, model in registry.models.items()},
            "roles": {
                name: RoleForm.model_construct(**_common(RoleForm, role)) for name, role in registry.roles.items()
            },
        }
    )
    return Offer(
        document=offer.document,
        form=form,
        headers={name: model.header for name, model in registry.models.items()},
        reasons={name: model.unavailable for name, model in registry.models.items() if model.unavailable is not None},
        personas=registry.personas,
    )


def _model_form(model: ModelEntry) -> ModelForm:
    remote = model.remote
    if remote is None:
        adapters = [LoraForm.model_construct(file=str(one.file), scale=one.scale) for one in model.lora]
        other = {"file": str(model.file), "lora": adapters or None}
        return ModelForm.model_construct(**_common(ModelForm, model) | other)
    return ModelForm.model_construct(
        backend="openai",
        base_url=remote.base_url,
        model=remote.model,
        api_key_env=remote.api_key_env,
        context=model.context,
        slots=model.slots,
    )


def _common(form: type[Form], entry: ModelEntry | RoleEntry) -> dict[str, Any]:
    """Return what a form and its entry have under the same name."""
    return {name: getattr(entry, name) for name in form.model_fields if hasattr(entry, name)}


def _mixed(offer: Offer, before: Offer, kept: Collection[Place]) -> Offer:
    """Return an offer whose `kept` entries are as they were before."""
    models = _mix("models", offer.form.models, before.form.models, kept)
    roles = _mix("roles", offer.form.roles, before.form.roles, kept)
    return Offer(
        document=offer.document,
        form=offer.form.model_copy(update={"models": models, "roles": roles}),
        headers=_mix("models", offer.headers, before.headers, kept),
        reasons=_mix("models", offer.reasons, before.reasons, kept),
        personas=_mix("personas", offer.personas, before.personas, kept),
    )


def _mix(section: str, new: Mapping[str, T], old: Mapping[str, T], kept: Collection[Place]) -> dict[str, T]:
    mixed: dict[str, T] = {}
    for name in (*new, *(name for name in old if name not in new)):
        source = old if (section, name) in kept else new
        if name in source:
            mixed[name] = source[name]
    return mixed


def _grown(kept: Refused, problems: Collection[RegistryProblem], mixed: Offer) -> Refused:
    """Return what is to be kept out for `problems`: the entry that has one, or if it is already, all that it needs."""
    grown = dict(kept)
    for problem in problems:
        blamed = problem.place[:2]
        for key in _needed(blamed, mixed) if blamed in kept else (blamed,):
            if key not in kept:
                grown[key] = tuple(dict.fromkeys((*grown.get(key, ()), problem)))
    return grown


def _needed(key: Place, offer: Offer) -> Iterator[Place]:
    """Yield all entries that one refers to, directly and indirectly, whether there are such entries or not."""
    todo, seen = [key], {key}
    while todo:
        for found in _references(todo.pop(), offer.form):
            if found not in seen:
                seen.add(found)
                todo.append(found)
                yield found


def _references(key: Place, form: RegistryForm) -> Iterator[Place]:
    match key:
        case ("models", str(name)) if name in form.models and (draft := form.models[name].speculation) is not None:
            yield "roles", draft.draft
        case ("roles", str(name)) if name in form.roles:
            role = form.roles[name]
            named = (("models", role.model), ("roles", role.escalates_to), ("personas", role.persona))
            yield from ((section, other) for section, other in named if other is not None)


def _freed(kept: Refused, refused: Refused, offer: Offer, before: Offer) -> Refused:
    """Let those entries go that were kept out for the company they were in, and are valid now that it has changed."""
    tried = True
    while tried:
        tried = False
        for key in [key for key in kept if key not in refused]:
            rest = {other: why for other, why in kept.items() if other != key}
            if not _mixed(offer, before, rest).problems():
                kept, tried = rest, True
    return kept


def _keys(registry: Registry) -> Iterator[Place]:
    for section in SECTIONS:
        yield from ((section, name) for name in getattr(registry, section))


def _entry(registry: Registry, key: Place) -> ModelEntry | RoleEntry | Persona | None:
    section: Mapping[str, ModelEntry | RoleEntry | Persona] = getattr(registry, str(key[0]))
    return section.get(str(key[1]))
