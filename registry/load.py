"""Find a registry file and load it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pydantic import TypeAdapter, ValidationError

from orchestrator.files import Signatures, signature, user_folder
from orchestrator.registry import memory
from orchestrator.registry.checks import OTHER_TEMPLATE, RegistryChecks, why_no_key, why_no_prompt
from orchestrator.registry.errors import GgufError, RegistryError, RegistryProblem, file_error
from orchestrator.registry.forms import (
    Defaults,
    DefaultsForm,
    ModelForm,
    ModelOptions,
    PersonasForm,
    RegistryForm,
    RoleForm,
    RoleOptions,
    read_form,
    usual_tier,
    with_new_keys,
)
from orchestrator.registry.gguf import GgufHeader, pieces, read_adapter, read_header
from orchestrator.registry.llama_library import library_file, why_no_library
from orchestrator.registry.models import Endpoint, ModelEntry, Registry, RoleEntry
from orchestrator.registry.options import Adapters, LoadOptions, shared_fields
from orchestrator.registry.persona import Persona
from orchestrator.registry.prompts import prompt_set, prompts_for
from orchestrator.registry.strict_yaml import YamlDocument, parse_file

ENVIRONMENT: Final = "ORCHESTRATOR_REGISTRY"
PACKAGED: Final = Path(__file__).resolve().parent.parent / "model_registry.yaml"
PACKAGED_PERSONAS: Final = Path(__file__).resolve().parent / "personas.yaml"


def find_registry(flag: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the registry file to use: the flag, the environment, the user's configuration, else the packaged one."""
    # Returned even if the file does not exist, so that loading it fails.
    if flag is not None:
        return flag
    if named := environment.get(ENVIRONMENT):
        return Path(named)
    configured = configured_registry(environment)
    return configured if configured.is_file() else PACKAGED


def configured_registry(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the user's own registry is, if neither a flag nor the environment names one."""
    return user_folder(environment, "XDG_CONFIG_HOME", ".config") / "orchestrator" / "model_registry.yaml"


WRITTEN_BY_INIT: Final = "a registry, such as `orchestrator init --out FILE` writes of the models that are here"


def load_registry(path: Path) -> Registry:
    """Load the registry in `path`; file names in it are relative to it.

    Raises RegistryError with every problem. A missing or broken model file is none: the model is then unusable for the
    reason in `Registry.why_not`.
    """
    document = parse_file(path.absolute(), WRITTEN_BY_INIT)
    if document.data is None:
        raise file_error(document.path, "is empty", WRITTEN_BY_INIT)
    return registry_from(document)


def blank_registry(path: Path) -> Registry | None:
    """Return the registry without models for a file `path` that is missing or has no models and roles; else None.

    Raises RegistryError for a file that cannot be read or is no YAML.
    """
    data = parse_file(path).data if path.exists() else None
    content = data if isinstance(data, dict) else {}
    if (data is not None and not isinstance(data, dict)) or content.get("models") or content.get("roles"):
        return None
    try:
        defaults = TypeAdapter(DefaultsForm).validate_python(content.get("defaults") or {})
    except ValidationError:  # reported when the file is written, since it would not load
        defaults = DefaultsForm()
    return empty_registry(path, defaults)


def empty_registry(path: Path, defaults: DefaultsForm | None = None) -> Registry:
    """Return a registry without models, roles and personas, for work that needs none. The file is not read."""
    return Registry(
        path=path.absolute(),
        models=MappingProxyType({}),
        roles=MappingProxyType({}),
        personas=MappingProxyType({}),
        defaults=_defaults(path, defaults or DefaultsForm()),
    )


def registry_from(document: YamlDocument) -> Registry:
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
    """A registry file and the files that it names, before the entries are checked against each other."""

    document: YamlDocument
    form: RegistryForm
    # By model, with defaults and absolute file names, but a draft model is still named by its role.
    options: Mapping[str, LoadOptions]
    headers: Mapping[str, GgufHeader | None]  # by model; None without a readable file
    eagles: Mapping[str, GgufHeader]  # EAGLE-3 heads by model, if their files can be read
    reasons: Mapping[str, str]  # why a model is unusable: unreadable file, or a chat template that loses words
    adapters: Mapping[str, tuple[str, ...]]  # files that the roles of each model use
    role_reasons: Mapping[str, str]  # why a role's adapters could not be read
    personas: Mapping[str, Persona]
    personas_problems: tuple[RegistryProblem, ...]  # if there are any, `personas` is empty
    signatures: Signatures  # of all files that this was read from, before they were

    def problems(self) -> tuple[RegistryProblem, ...]:
        """Return everything that keeps this from being a valid registry."""
        checks = RegistryChecks(self.form, self.document, self.options, self.headers, self.eagles, self.personas)
        return self.personas_problems or tuple(checks.problems())

    def registry(self) -> Registry:
        """Return the registry. There must be no `problems`."""
        registry = Registry(
            path=self.document.path,
            models=MappingProxyType({name: self._model(name, form) for name, form in self.form.models.items()}),
            roles=MappingProxyType({name: self._role(name, form) for name, form in self.form.roles.items()}),
            personas=MappingProxyType(dict(self.personas)),
            defaults=_defaults(self.document.path, self.form.defaults),
            signatures=self.signatures,
        )
        return registry.with_shipped_prompts()

    def _role(self, name: str, form: RoleForm) -> RoleEntry:
        defaults = self.form.defaults
        lora = _absolute(self.document.path, form.lora)
        return RoleEntry(
            **{**shared_fields(RoleOptions, form), "lora": lora},
            name=name,
            tier=form.tier or usual_tier(name),
            system=form.system or "",
            has_own_system=form.system is not None,
            unavailable=self.role_reasons.get(name),
            temperature=defaults.temperature if form.temperature is None else form.temperature,
            top_p=form.top_p or defaults.top_p,
            max_tokens=form.max_tokens or defaults.max_tokens,
        )

    def _model(self, name: str, form: ModelForm) -> ModelEntry:
        path, header = self.document.path, self.headers[name]
        options, ranks = self.options[name], name == self.form.reranker
        servers = tuple(_endpoints(form, options.slots))
        keyless = [server.unavailable for server in servers if server.unavailable is not None]
        embeds = ranks or name == self.form.embedder
        need = None if header is None else memory.estimate(header, options, embeds=embeds)
        if need is not None and header is not None and (head := self.eagles.get(name)) is not None:
            need += memory.estimate_eagle(header, head, options)
        if (speculation := options.speculation) is not None:
            draft = self.form.roles[speculation.draft].model
            draft_file, draft_header = self.form.models[draft].file, self.headers[draft]
            assert draft_file is not None, "a model that another server runs does not draft: this is checked"
            if need is not None and draft_header is not None:
                need += memory.estimate_draft(draft_header, options)
            file = str(_resolve(path, draft_file))
            options = replace(options, speculation=replace(speculation, draft=file))
        return ModelEntry(
            **shared_fields(ModelOptions, form),
            id=name,
            file=None if form.file is None else _resolve(path, form.file),
            servers=servers,
            embeds=embeds,
            ranks=ranks,
            residency=form.residency or (self.form.defaults.residency if form.backend == "llama.cpp" else "remote"),
            options=options,
            thinking="auto" if form.thinking is None else form.thinking,
            prompts=prompts_for(header.name if header else "") if form.prompts is None else prompt_set(form.prompts),
            header=header,
            memory=need,
            # A server without its key is no loss while there is another place for requests.
            unavailable=keyless[0] if form.file is None and len(keyless) == len(servers) else self.reasons.get(name),
            adapters=self.adapters[name],
        )


def read_unchecked(document: YamlDocument) -> UncheckedRegistry:
    """Read the files that a parsed registry file names.

    Raises RegistryError if the registry file itself has the wrong form; problems of other files are in the result.
    """
    document = with_new_keys(document)
    form = read_form(RegistryForm, document)
    signatures = {file: signature(file) for file in _files(document.path, form)} | {document.path: document.signature}
    headers: dict[str, GgufHeader | None] = {}
    reasons: dict[str, str] = {}
    for name, model in form.models.items():
        try:
            headers[name] = _header(document.path, model)
        except GgufError as error:
            headers[name] = None
            reasons[name] = str(error) + _where_it_was_looked_for(document.path, model)
        else:
            if (header := headers[name]) is not None and _is_prompted(name, form) and (why := why_no_prompt(header)):
                reasons[name] = f"{model.file}: {why}; accepted: {OTHER_TEMPLATE}"
    eagles = dict(_eagles(document.path, form))
    adapters, role_reasons = _role_adapters(document.path, form, headers)
    options = {
        name: _options(name, model, document, form.defaults, headers[name]) for name, model in form.models.items()
    }
    libraries = [Path(own.llama_library) for own in options.values() if own.llama_library is not None]
    signatures |= {library: signature(library) for library in libraries}
    for name in options.keys() - reasons.keys():
        if why := _why_no_library(options[name]):
            reasons[name] = why
    personas: dict[str, Persona] = {}
    problems: tuple[RegistryProblem, ...] = ()
    try:
        personas = load_personas(_personas_file(document.path, form))
    except RegistryError as error:
        problems = error.problems
    return UncheckedRegistry(
        document, form, options, headers, eagles, reasons, adapters, role_reasons, personas, problems, signatures
    )


def _is_prompted(model: str, form: RegistryForm) -> bool:
    # Unless it only embeds, ranks or drafts.
    tiers = {role.tier for role in form.roles.values() if role.model == model}
    return model not in (form.embedder, form.reranker) and tiers != {"D"}


def _personas_file(registry: Path, form: RegistryForm) -> Path:
    return PACKAGED_PERSONAS if form.personas is None else _resolve(registry, form.personas)


def _files(registry: Path, form: RegistryForm) -> Iterator[Path]:
    # All but the registry's own file and builds of llama.cpp.
    yield _personas_file(registry, form)
    for model in form.models.values():
        yield from _model_files(registry, model)
    for role in form.roles.values():
        yield from (_resolve(registry, adapter.file) for adapter in role.lora)


def _model_files(registry: Path, form: ModelForm) -> tuple[Path, ...]:
    if form.file is None:
        return ()
    adapters = (_resolve(registry, adapter.file) for adapter in form.lora)
    heads = () if form.eagle is None else (_resolve(registry, form.eagle.file),)
    return (*pieces(_resolve(registry, form.file)), *adapters, *heads)


def _header(registry: Path, form: ModelForm) -> GgufHeader | None:
    # The weights include adapters; None if another server runs the model.
    if form.file is None:
        return None
    header = read_header(_resolve(registry, form.file))
    adapters = [read_adapter(_resolve(registry, adapter.file), header) for adapter in form.lora]
    return replace(header, weight_bytes=header.weight_bytes + sum(adapters))


def _eagles(registry: Path, form: RegistryForm) -> Iterator[tuple[str, GgufHeader]]:
    # Engines run without a head whose file is missing or broken, and say why: drafts only save time.
    for name, model in form.models.items():
        if model.eagle is not None and model.file is not None:
            with suppress(GgufError):
                yield name, read_header(_resolve(registry, model.eagle.file))


def _role_adapters(
    registry: Path, form: RegistryForm, headers: dict[str, GgufHeader | None]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    # Adds the weights of the adapters to `headers`. Without a header there is nothing to check them against.
    sizes: dict[str, dict[str, int]] = {name: {} for name in form.models}
    reasons: dict[str, str] = {}
    for name, role in form.roles.items():
        if (header := headers.get(role.model)) is None:
            continue
        files = [adapter.file for adapter in _absolute(registry, role.lora)]
        try:
            sizes[role.model] |= {file: read_adapter(Path(file), header) for file in files}
        except GgufError as error:
            reasons[name] = str(error)
    for name, header in headers.items():
        if header is not None and sizes[name]:
            headers[name] = replace(header, weight_bytes=header.weight_bytes + sum(sizes[name].values()))
    return {name: tuple(files) for name, files in sizes.items()}, reasons


def _absolute(registry: Path, lora: Adapters) -> Adapters:
    return tuple(replace(adapter, file=str(_resolve(registry, adapter.file))) for adapter in lora)


def _where_it_was_looked_for(registry: Path, form: ModelForm) -> str:
    # Someone who copies the packaged registry learns where its files are.
    if form.file is None or Path(form.file).is_absolute() or form.file.startswith("~/"):
        return ""
    if _resolve(registry, form.file).exists():
        return ""
    packaged = _resolve(PACKAGED, form.file)
    accepted = str(packaged) if packaged.exists() else "an absolute name, or the file there"
    return f"; {form.file} is relative to the registry's folder {registry.parent}; accepted: {accepted}"


def _resolve(registry: Path, name: str) -> Path:
    file = Path(name)
    return Path(os.path.normpath(registry.parent / (file.expanduser() if name.startswith("~/") else file)))


def _options(
    name: str, form: ModelForm, document: YamlDocument, defaults: DefaultsForm, header: GgufHeader | None
) -> LoadOptions:
    stated = LoadOptions(**shared_fields(LoadOptions, form))
    longest = defaults.context if header is None else min(defaults.context, header.context_length)
    missing = {
        option: getattr(defaults, option)
        for option in ("slots", "batch_invariant")
        if not document.has(("models", name, option))
    }
    lora = _absolute(document.path, form.lora)
    named = form.llama_library or defaults.llama_library
    library = None if form.file is None else _library(document.path, named)
    eagle = form.eagle and replace(form.eagle, file=str(_resolve(document.path, form.eagle.file)))
    return replace(stated, context=form.context or longest, lora=lora, eagle=eagle, llama_library=library, **missing)


def _defaults(registry: Path, form: DefaultsForm) -> Defaults:
    return replace(
        Defaults(**shared_fields(Defaults, form)), llama_library=_library(registry.absolute(), form.llama_library)
    )


def _library(registry: Path, name: str | None) -> str | None:
    return None if name is None else str(library_file(_resolve(registry, name)))


def _why_no_library(options: LoadOptions) -> str | None:
    if options.llama_library is None or (why := why_no_library(Path(options.llama_library))) is None:
        return None
    return f"llama_library {options.llama_library}: {why}; accepted: a build of llama.cpp, libllama.so or its folder"


def _endpoints(form: ModelForm, slots: int) -> Iterator[Endpoint]:
    for server in form.all_servers:
        assert server.base_url is not None, "this is checked"
        assert server.model is not None, "this is checked"
        yield Endpoint(
            server.base_url.rstrip("/"),
            server.model,
            server.api_key_env,
            server.timeout_seconds,
            server.native_tools,
            slots if server.slots is None else server.slots,
            None if server.api_key_env is None else why_no_key(server.api_key_env, os.environ),
        )
