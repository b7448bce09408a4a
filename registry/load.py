"""Find a registry file and load it."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from registry import memory
from registry.checks import check_registry
from registry.errors import GgufError, RegistryError
from registry.forms import DefaultsForm, ModelForm, RegistryForm, RoleForm, read_form
from registry.gguf import GgufHeader, read_header
from registry.models import Defaults, ModelEntry, Persona, PromptLookup, Registry, RoleEntry, Speculation
from registry.personas import load_personas
from registry.strict_yaml import parse_file

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
    """Load the registry in `path`; file names in it are relative to it. Raises RegistryError with all problems.

    A model file that is missing or broken is no such problem: see `Registry.why_not`.
    """
    path = path.absolute()
    document = parse_file(path)
    form = read_form(RegistryForm, document)
    personas = load_personas(PACKAGED_PERSONAS if form.personas is None else _resolve(path, form.personas))
    headers: dict[str, GgufHeader | None] = {}
    reasons: dict[str, str] = {}
    for name, model in form.models.items():
        try:
            headers[name] = read_header(_resolve(path, model.file))
        except GgufError as error:
            headers[name] = None
            reasons[name] = str(error)
    problems = tuple(check_registry(form, document, headers, personas))
    if problems:
        raise RegistryError(*problems)
    return _registry(path, form, headers, reasons, personas)


def _resolve(registry: Path, name: str) -> Path:
    given = Path(name)
    return Path(os.path.normpath(registry.parent / (given.expanduser() if name.startswith("~/") else given)))


def _registry(
    path: Path,
    form: RegistryForm,
    headers: Mapping[str, GgufHeader | None],
    reasons: Mapping[str, str],
    personas: Mapping[str, Persona],
) -> Registry:
    models = {
        name: _model(name, _resolve(path, model.file), model, form.defaults, headers[name], reasons.get(name))
        for name, model in form.models.items()
    }
    return Registry(
        path=path,
        models=MappingProxyType(models),
        roles=MappingProxyType({name: _role(name, role, form.defaults) for name, role in form.roles.items()}),
        personas=MappingProxyType(dict(personas)),
        defaults=Defaults(memory=form.defaults.memory),
    )


def _model(
    name: str, file: Path, form: ModelForm, defaults: DefaultsForm, header: GgufHeader | None, reason: str | None
) -> ModelEntry:
    ceiling = header.context_length if header is not None else defaults.context
    context = form.context or min(defaults.context, ceiling)
    slots = form.slots or defaults.slots
    exact = defaults.exact if form.exact is None else form.exact
    draft, lookup = form.speculation, form.prompt_lookup
    return ModelEntry(
        id=name,
        file=file,
        description=form.description,
        residency=form.residency or defaults.residency,
        context=context,
        slots=slots,
        threads=form.threads,
        kv_type_k=form.kv_type_k,
        kv_type_v=form.kv_type_v,
        flash_attention=form.flash_attention,
        mlock=form.mlock,
        mmap=form.mmap,
        numa=form.numa,
        exact=exact,
        experts=form.experts,
        speculation=Speculation(draft.draft, draft.k) if draft is not None else None,
        prompt_lookup=PromptLookup(lookup.ngram, lookup.k) if lookup is not None else None,
        header=header,
        memory=None
        if header is None
        else memory.estimate(
            header,
            context=context,
            slots=slots,
            key_type=form.kv_type_k,
            value_type=form.kv_type_v,
            flash_attention=form.flash_attention != "off",
            exact=exact,
        ),
        unavailable=reason,
    )


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
