"""Find a registry file and load it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from registry import memory
from registry.backends import why_no_key
from registry.checks import check_registry, context_of
from registry.errors import GgufError, RegistryError, RegistryProblem
from registry.forms import DefaultsForm, ModelForm, PersonasForm, RegistryForm, RoleForm, read_form
from registry.gguf import GgufHeader, pieces, read_adapter, read_header
from registry.models import (
    Defaults,
    Endpoint,
    Lora,
    ModelEntry,
    Persona,
    PromptLookup,
    Registry,
    RoleEntry,
    Speculation,
)
from registry.strict_yaml import Document, parse_file

ENVIRONMENT: Final = "ORCHESTRATOR_REGISTRY"
PACKAGED: Final = Path(__file__).resolve().parent.parent / "model_registry.yaml"
PACKAGED_PERSONAS: Final = Path(__file__).resolve().parent / "personas.yaml"


def find_registry(flag: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the registry file to use: the flag, the environment, the user's configuration, else the packaged one.

    A file that is named but not there is returned all the same: loading it says so, and nothing else is used instead.
    """
    if flag is not None:
        return flag
    if named := environment.get(ENVIRONMENT):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/")) / ".config"
    configured = Path(home) / "orchestrator" / "model_registry.yaml"
    return configured if configured.is_file() else PACKAGED


def load_registry(path: Path) -> Registry:
    """Load the registry in `path`; file names in it are relative to it.

    Raises RegistryError with every problem that was found. A model file that is missing or broken is not one of them:
    the model is then in the registry with the reason, see `Registry.why_not`.
    """
    return registry_from(parse_file(path.absolute()))


def registry_from(document: Document) -> Registry:
    """Return the registry that a parsed file describes. Raises RegistryError as `load_registry` does."""
    unchecked = read_unchecked(document)
    if problems := unchecked.problems():
        raise RegistryError(*problems)
    return unchecked.registry()


def load_personas(path: Path) -> dict[str, Persona]:
    """Return the personas in the file `path` by name. Raises RegistryError."""
    form = read_form(PersonasForm, parse_file(path))
    return {name: Persona(name, entry.text, entry.description) for name, entry in form.personas.items()}


@dataclass(frozen=True, slots=True)
class UncheckedRegistry:
    """What a registry file and the files that it names say, before its entries are checked against each other."""

    document: Document
    form: RegistryForm
    headers: Mapping[str, GgufHeader | None]
    """The header of each model's file, by the model's name; None where there is no file, or it could not be read."""
    reasons: Mapping[str, str]
    """Why a model's file could not be read, by the model's name."""
    personas: Mapping[str, Persona]
    personas_problems: tuple[RegistryProblem, ...]
    """What is wrong with the file of personas. If there is anything, `personas` is empty."""

    def problems(self) -> tuple[RegistryProblem, ...]:
        """Return everything that keeps this from being a valid registry."""
        return self.personas_problems or tuple(check_registry(self.form, self.document, self.headers, self.personas))

    @property
    def files(self) -> frozenset[Path]:
        """The files that this was read from: the registry, its personas, and the files of its models."""
        path = self.document.path
        models = (file for model in self.form.models.values() for file in _model_files(path, model))
        return frozenset({path, _personas_file(path, self.form), *models})

    def registry(self) -> Registry:
        """Return the registry. There must be no `problems`."""
        defaults = self.form.defaults
        return Registry(
            path=self.document.path,
            models=MappingProxyType({name: self._model(name, form) for name, form in self.form.models.items()}),
            roles=MappingProxyType({name: _role(name, form, defaults) for name, form in self.form.roles.items()}),
            personas=MappingProxyType(dict(self.personas)),
            defaults=Defaults(
                memory=defaults.memory,
                max_replans=defaults.max_replans,
                idle_unload_seconds=defaults.idle_unload_seconds,
                batch_invariant=defaults.batch_invariant,
            ),
        )

    def _model(self, name: str, form: ModelForm) -> ModelEntry:
        path, header = self.document.path, self.headers[name]
        role = None if form.speculation is None else self.form.roles.get(form.speculation.draft)
        draft = role.model if role is not None and role.model in self.form.models else None
        embeds = name == self.form.embedder
        entry = _model(name, path, form, self.form.defaults, header, self.reasons.get(name), embeds=embeds)
        return entry if draft is None else self._with_draft(entry, draft)

    def _with_draft(self, entry: ModelEntry, draft: str) -> ModelEntry:
        """Return the entry with the model that drafts for it, which is loaded into the same process."""
        form, header = self.form.models[draft], self.headers[draft]
        asked = self.form.models[entry.id].speculation
        if asked is None or form.file is None:
            return entry
        both = None
        if entry.memory is not None and header is not None:
            slots, flash = max(entry.slots, 1 + entry.batch_invariant), form.flash_attention
            both = entry.memory + memory.estimate(header, context=entry.context, slots=slots, flash_attention=flash)
        file = _resolve(self.document.path, form.file)
        return replace(entry, speculation=Speculation(asked.draft, file, asked.k), memory=both or entry.memory)


def read_unchecked(document: Document) -> UncheckedRegistry:
    """Read the files that a parsed registry file names.

    Raises RegistryError if the registry file itself does not have the right form. What is wrong with the other files is
    in the answer.
    """
    form = read_form(RegistryForm, document)
    headers: dict[str, GgufHeader | None] = {}
    reasons: dict[str, str] = {}
    for name, model in form.models.items():
        try:
            headers[name] = _header(document.path, model)
        except GgufError as error:
            headers[name] = None
            reasons[name] = str(error)
    personas: dict[str, Persona] = {}
    problems: tuple[RegistryProblem, ...] = ()
    try:
        personas = load_personas(_personas_file(document.path, form))
    except RegistryError as error:
        problems = error.problems
    return UncheckedRegistry(document, form, headers, reasons, personas, problems)


def _personas_file(registry: Path, form: RegistryForm) -> Path:
    return PACKAGED_PERSONAS if form.personas is None else _resolve(registry, form.personas)


def _model_files(registry: Path, form: ModelForm) -> tuple[Path, ...]:
    """Return the files that a model is read from: all pieces of a split one, and its adapters."""
    if form.file is None:
        return ()
    adapters = (_resolve(registry, adapter.file) for adapter in form.lora or ())
    return (*pieces(_resolve(registry, form.file)), *adapters)


def _header(registry: Path, form: ModelForm) -> GgufHeader | None:
    """Read a model's header, and count the weights of its adapters in. None where another server runs the model."""
    if form.file is None:
        return None
    header = read_header(_resolve(registry, form.file))
    adapters = [read_adapter(_resolve(registry, adapter.file), header) for adapter in form.lora or ()]
    return replace(header, weight_bytes=header.weight_bytes + sum(adapters))


def _resolve(registry: Path, name: str) -> Path:
    given = Path(name)
    return Path(os.path.normpath(registry.parent / (given.expanduser() if name.startswith("~/") else given)))


def _model(
    name: str,
    path: Path,
    form: ModelForm,
    defaults: DefaultsForm,
    header: GgufHeader | None,
    reason: str | None,
    *,
    embeds: bool,
) -> ModelEntry:
    context = context_of(form, defaults, header)
    slots = form.slots or defaults.slots
    batch_invariant = defaults.batch_invariant if form.batch_invariant is None else form.batch_invariant
    lookup = form.prompt_lookup
    return ModelEntry(
        id=name,
        file=None if form.file is None else _resolve(path, form.file),
        remote=_endpoint(form),
        embeds=embeds,
        description=form.description,
        residency=form.residency or (defaults.residency if form.backend == "llama.cpp" else "remote"),
        context=context,
        slots=slots,
        threads=form.threads,
        kv_type_k=form.kv_type_k,
        kv_type_v=form.kv_type_v,
        flash_attention=form.flash_attention,
        mlock=form.mlock,
        mmap=form.mmap,
        numa=form.numa,
        instances=form.instances,
        batch_invariant=batch_invariant,
        split=form.split,
        cells=form.cells,
        experts=form.experts,
        speculation=None,
        prompt_lookup=PromptLookup(lookup.ngram, lookup.k) if lookup is not None else None,
        lora=tuple(Lora(_resolve(path, adapter.file), adapter.scale) for adapter in form.lora or ()),
        header=header,
        memory=None
        if header is None
        else memory.estimate(
            header,
            context=context,
            slots=slots,
            key_type=form.kv_type_k,
            value_type=form.kv_type_v,
            flash_attention=form.flash_attention,
            batch_invariant=batch_invariant,
            cells=form.cells,
            embeds=embeds,
        ),
        unavailable=reason if form.api_key_env is None else why_no_key(form.api_key_env, os.environ),
    )


def _endpoint(form: ModelForm) -> Endpoint | None:
    if form.base_url is None or form.model is None:
        return None
    return Endpoint(form.base_url.rstrip("/"), form.model, form.api_key_env, form.timeout_seconds)


def _role(name: str, form: RoleForm, defaults: DefaultsForm) -> RoleEntry:
    return RoleEntry(
        name=name,
        model=form.model,
        tier=form.tier,
        system=form.system,
        description=form.description,
        level=form.level,
        escalates_to=form.escalates_to,
        persona=form.persona,
        temperature=defaults.temperature if form.temperature is None else form.temperature,
        top_p=form.top_p or defaults.top_p,
        max_tokens=form.max_tokens or defaults.max_tokens,
    )
