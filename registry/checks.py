"""Check the entries of a registry against each other and against the headers of the models' files.

Every check yields problems instead of raising the first one, so that a user sees all of them at once.
"""

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from orchestrator.registry import architectures
from orchestrator.registry.errors import RegistryProblem, nearest
from orchestrator.registry.forms import (
    EMBEDDER,
    RERANKER,
    ModelForm,
    RegistryForm,
    RoleForm,
    ServerOptions,
    usual_tier,
)
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.options import DRAFTING, QUANTISED_BLOCK, LoadOptions
from orchestrator.registry.strict_yaml import KeyPath, YamlDocument
from orchestrator.registry.template_check import judge_template

OTHER_TEMPLATE: Final = "a model with a chat template that renders every message (gguf-new-metadata can replace it)"
BASE_MODEL: Final = "it has no chat template, so it is a base model, which continues a text instead of answering"
NO_BASE_MODEL: Final = "its instruct or chat version, or a copy with a chat template (gguf-new-metadata adds one)"
REMOTE: Final = ("base_url", "model", "api_key_env", "timeout_seconds", "native_tools")
COMMON: Final = ("backend", "description", "residency", "context", "slots", "servers")
LONGEST_LABEL: Final = 63
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
_API_KEY: Final = re.compile(r"[\x21-\x7e]+")
_URL: Final = re.compile(
    r"https?://(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?"
    r"(?:/[A-Za-z0-9._~!$&'()*+,;=:%/-]*)?"
)


def why_no_draft(target: GgufHeader, draft: GgufHeader) -> str | None:
    """Return why `draft` cannot propose tokens to `target`, or None if it can."""
    if draft.vocab_size != target.vocab_size:
        return f"its vocabulary has {draft.vocab_size:,} tokens, the target's {target.vocab_size:,}"
    if draft.vocab_digest != target.vocab_digest:
        return f"its vocabulary has as many tokens as the target's ({target.vocab_size:,}), but not the same"
    return architectures.why_no_rollback(draft.architecture)


def why_no_eagle(target: GgufHeader, head: GgufHeader) -> str | None:
    """Return why the EAGLE-3 head `head` cannot draft for `target`, or None if it can."""
    if head.architecture != architectures.EAGLE:
        return f"it is a model of architecture {head.architecture}, not {architectures.EAGLE}"
    if head.read_width != target.embedding:
        return f"it reads states of {head.read_width:,} numbers, and the model's have {target.embedding:,}"
    trunk = target.layers - target.mtp_heads
    if not all(layer < trunk for layer in head.read_layers):
        return f"it reads the layers {', '.join(map(str, head.read_layers))}, and the model has {trunk}"
    if head.vocab_digest != target.vocab_digest:
        return "its vocabulary is not the model's"
    return architectures.why_no_eagle(target.architecture)


def why_not_drafted(header: GgufHeader) -> str | None:
    """Return why no tokens are drafted for a model unless its owner says so, or None if they are."""
    if reason := why_no_drafts(header):
        return reason
    if architectures.why_no_rollback(header.architecture) and header.architecture not in architectures.ROLLS_BACK:
        return f"{header.architecture} has recurrent layers, so tokens before a rejected draft are computed again"
    return None


def why_no_drafts(header: GgufHeader) -> str | None:
    """Return why no tokens can be drafted for a model, or None if they can."""
    return why_no_text(header) or architectures.why_no_drafts(header.architecture)


def why_no_text(header: GgufHeader) -> str | None:
    if header.pooling is not None:
        return f"it was made for embeddings (the vectors of its tokens are joined by {header.pooling!r})"
    return architectures.why_no_generation(header.architecture)


def is_base(header: GgufHeader) -> bool:
    """Return whether a model generates text, but has no chat template, so that it was not taught to answer."""
    return header.chat_template is None and why_no_text(header) is None


def why_no_prompt(header: GgufHeader) -> str | None:
    """Return why a model's chat template fails for some conversations, or None."""
    if header.chat_template is None or why_no_text(header) is not None:
        return None
    return judge_template(header.chat_template).lost


@dataclass(frozen=True, slots=True)
class RegistryChecks:
    """The checks of a registry. `options` are complete with defaults; `headers` has None for missing files."""

    form: RegistryForm
    document: YamlDocument
    options: Mapping[str, LoadOptions]
    headers: Mapping[str, GgufHeader | None]
    eagles: Mapping[str, GgufHeader]  # EAGLE-3 heads by model, if their files can be read
    personas: Collection[str]

    def problems(self) -> Iterator[RegistryProblem]:
        """Yield everything that is wrong."""
        for name, model in self.form.models.items():
            yield from self._model(("models", name), model, self.headers[name], self.options[name])
        for name, role in self.form.roles.items():
            yield from self._role(("roles", name), role)
        yield from self._aliases()
        yield from self._embedders()
        yield from self._escalation_cycles()

    def _model(
        self, place: KeyPath, model: ModelForm, header: GgufHeader | None, options: LoadOptions
    ) -> Iterator[RegistryProblem]:
        problem, is_local = self.document.problem, model.backend == "llama.cpp"
        yield from _check_backend(place, model, self.document)
        if header is not None:
            yield from self._against_header(place, model, header)
        if model.speculation is not None:
            yield from self._draft(place, model.speculation.draft, header)
        for option, message, accepted in options.conflicts() if is_local else ():
            yield problem((*place, option), message, accepted)
        if (clash := model.sampling.conflict()) is not None:
            yield problem((*place, "sampling", clash.option), clash.what, clash.accepted)
        if is_local and model.numa is not None and model.instances > 1:
            message = f"binds the model to node {model.numa}, but {model.instances} instances have a node each"
            yield problem((*place, "numa"), message, "numa, or instances")
        if model.replicas is not None and model.replicas.min > model.replicas.max:
            message = f"{model.replicas.min} is above max, which is {model.replicas.max}"
            yield problem((*place, "replicas", "min"), message, "at most max")

    def _against_header(self, place: KeyPath, model: ModelForm, header: GgufHeader) -> Iterator[RegistryProblem]:
        problem = self.document.problem
        if model.context is not None and model.context > header.context_length:
            message = f"{model.context:,} tokens, but the model was made for {header.context_length:,}"
            yield problem((*place, "context"), message, f"at most {header.context_length}")
        if model.experts is not None and not 0 < model.experts <= header.experts:
            has = f"{header.experts} experts" if header.experts else "no experts"
            yield problem((*place, "experts"), f"is {model.experts}, but the model has {has}")
        if reason := architectures.why_no_drafts(header.architecture):
            for name in model.drafting:
                option = DRAFTING[name].option
                yield problem((*place, option), f"is impossible: {reason}", "a transformer, or no such key")
        if model.mtp is not None and (no_mtp := architectures.why_no_mtp(header.architecture, header.mtp_heads)):
            yield problem((*place, "mtp"), f"is impossible: {no_mtp}", "a model with an MTP head, or no such key")
        head = self.eagles.get(str(place[-1]))
        if head is not None and (no_eagle := why_no_eagle(header, head)):
            message = f"{model.eagle.file if model.eagle else ''} cannot draft: {no_eagle}"
            yield problem((*place, "eagle", "file"), message, "an EAGLE-3 head that was trained for this model")
        for option, length in (("kv_type_k", header.key_length), ("kv_type_v", header.value_length)):
            kind = getattr(model, option)
            if kind.startswith("q") and length % QUANTISED_BLOCK:
                message = f"{kind} needs heads of a multiple of {QUANTISED_BLOCK} numbers, and they have {length}"
                yield problem((*place, option), message, "f16, bf16 or f32")

    def _draft(self, place: KeyPath, role: str, header: GgufHeader | None) -> Iterator[RegistryProblem]:
        at, problem = (*place, "speculation", "draft"), self.document.problem
        if role not in self.form.roles:
            yield problem(at, f"there is no role {role!r}", nearest(role, self.form.roles))
            return
        model = self.form.roles[role].model
        draft = self.headers.get(model)
        if self._is_remote(model):
            yield problem(at, f"{model} cannot draft: another server runs it", "a role with a smaller model here")
        elif model == place[-1]:
            yield problem(at, "a model cannot draft for itself", "a role with a smaller model")
        elif draft is not None and header is not None and (reason := why_no_draft(header, draft)) is not None:
            yield problem(at, f"{model} cannot draft: {reason}", "a model with the same vocabulary")

    def _is_remote(self, model: str) -> bool:
        return model in self.form.models and self.form.models[model].backend != "llama.cpp"

    def _role(self, place: KeyPath, role: RoleForm) -> Iterator[RegistryProblem]:
        problem, form = self.document.problem, self.form
        if role.model not in form.models:
            yield problem((*place, "model"), f"there is no model {role.model!r}", nearest(role.model, form.models))
        header = self.headers.get(role.model)
        reason = why_no_text(header) if header is not None else None
        if (role.tier or usual_tier(str(place[-1]))) != "D" and reason is not None:
            yield problem((*place, "model"), f"{role.model} cannot do this: {reason}", "a model that writes text")
        yield from self._role_sampling(place, role)
        if role.lora and self._is_remote(role.model):
            message = f"{role.model} takes no adapters: another server runs it"
            yield problem((*place, "lora"), message, "a model here, or no lora")
        elif role.lora and place[-1] in (EMBEDDER, RERANKER):
            message = "is for roles that write text: an engine that embeds or ranks does nothing else"
            yield problem((*place, "lora"), message, f"lora of the model {role.model}")
        if role.persona is not None and role.persona not in self.personas:
            message = f"there is no persona {role.persona!r}"
            yield problem((*place, "persona"), message, nearest(role.persona, self.personas))
        if role.escalates_to is not None:
            yield from self._escalation((*place, "escalates_to"), role, role.escalates_to)

    def _role_sampling(self, place: KeyPath, role: RoleForm) -> Iterator[RegistryProblem]:
        if role.sampling is not None and (clash := role.sampling.conflict()) is not None:
            yield self.document.problem((*place, "sampling", clash.option), clash.what, clash.accepted)
        sampling = role.sampling
        if sampling is None and role.model in self.form.models:
            sampling = self.form.models[role.model].sampling
        if sampling is not None and sampling.mirostat and (role.top_p or self.form.defaults.top_p) < 1:
            message = "is below 1, and Mirostat chooses by itself from how many tokens to sample"
            yield self.document.problem((*place, "top_p"), message, "top_p: 1, or no mirostat in `sampling:`")

    def _escalation(self, place: KeyPath, role: RoleForm, target: str) -> Iterator[RegistryProblem]:
        problem, roles = self.document.problem, self.form.roles
        if target not in roles:
            yield problem(place, f"there is no role {target!r}", nearest(target, roles))
            return
        level = roles[target].level
        if level is None:
            yield problem(place, f"role {target} has no level", "a role with a level of B1, B2 or B3")
        elif role.level is not None and level <= role.level:
            yield problem(place, f"goes from level {role.level} to {level}", "a role of a higher level")

    def _aliases(self) -> Iterator[RegistryProblem]:
        # Requests name models, roles and personas in the same way, so an alias must not be taken.
        kinds = (("role", self.form.roles), ("model", self.form.models), ("persona", self.personas))
        taken = {name: f"a {kind}" for kind, names in reversed(kinds) for name in names}
        for name, model in self.form.models.items():
            for index, alias in enumerate(model.aliases):
                if alias in taken:
                    place, message = (
                        ("models", name, "aliases", index),
                        f"{alias!r} is the name of {taken[alias]} already",
                    )
                    yield self.document.problem(place, message, "a name of its own")
                taken.setdefault(alias, f"model {name}")

    def _embedders(self) -> Iterator[RegistryProblem]:
        # An engine that embeds or ranks does nothing else, so its model can have no other role.
        form, accepted = self.form, "another model, or a second entry for the same file"
        for own, model, does in ((EMBEDDER, form.embedder, "embeds"), (RERANKER, form.reranker, "ranks texts")):
            others = ", ".join(name for name, role in form.roles.items() if role.model == model and name != own)
            if others:
                message = f"{model} {does}, so it generates no text and cannot be the model of {others} too"
                yield self.document.problem(("roles", own, "model"), message, accepted)
            if model is not None and form.models[model].servers:
                message = f"is for a model that writes text, and {model} {does}, which only an engine here does"
                yield self.document.problem(("models", model, "servers"), message, "no such key")

    def _escalation_cycles(self) -> Iterator[RegistryProblem]:
        # Each cycle once, at the first of its roles in the file.
        roles, visited = self.form.roles, set[str]()
        for start in roles:
            path: list[str] = []
            role: str | None = start
            while role is not None and role in roles and role not in visited:
                visited.add(role)
                path.append(role)
                role = roles[role].escalates_to
            if role in path:
                cycle = path[path.index(role) :]
                message = f"goes round in a circle: {' → '.join((*cycle, cycle[0]))}"
                yield self.document.problem(("roles", cycle[0], "escalates_to"), message)


def _check_backend(place: KeyPath, model: ModelForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    # No message repeats a value, because it may be an API key in the wrong place.
    yield from (_local if model.backend == "llama.cpp" else _remote)(place, model, document)
    yield from _servers(place, model, document)


def _local(place: KeyPath, model: ModelForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    if model.file is None:
        yield document.problem((*place, "file"), "is required")
    for option in REMOTE:
        if document.has((*place, option)):
            message = "is for a model that another server runs"
            accepted = "with backend: openai, in an entry of servers, or no such key"
            yield document.problem((*place, option), message, accepted)


def _remote(place: KeyPath, model: ModelForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    if not model.servers:
        for option in ("base_url", "model"):
            if getattr(model, option) is None:
                yield document.problem((*place, option), "is required with backend: openai")
    for option in REMOTE if model.servers else ():
        if document.has((*place, option)):
            message = "is of a server, and the entry has a list of them"
            yield document.problem((*place, option), message, "the key in an entry of servers")
    for option in {field.name for field in fields(ModelForm)} - {*REMOTE, *COMMON}:
        if document.has((*place, option)):
            message = "is for a model that llama.cpp loads here; with backend: openai its server decides that"
            yield document.problem((*place, option), message, "no such key")
    if model.residency in ("hot", "warm"):
        message = f"is {model.residency!r}, but a model that another server runs is never loaded here"
        yield document.problem((*place, "residency"), message, "cold, so that it is not used, or no such key")
    yield from _server(place, model, document)


def _servers(place: KeyPath, model: ModelForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    urls = list[str]()
    for index, server in enumerate(model.servers):
        at = (*place, "servers", index)
        for option in ("base_url", "model"):
            if getattr(server, option) is None:
                yield document.problem((*at, option), "is required for a server")
        yield from _server(at, server, document)
        url = (server.base_url or "").rstrip("/")
        if url and url in urls:
            yield document.problem((*at, "base_url"), "is that of another server of the model", "one entry a server")
        urls.append(url)


def _server(place: KeyPath, server: ServerOptions, document: YamlDocument) -> Iterator[RegistryProblem]:
    if server.base_url is not None and (wrong := _why_no_url(server.base_url)):
        yield document.problem((*place, "base_url"), wrong, "http(s)://HOST[:PORT][/PATH], as in http://host:8000/v1")
    if server.api_key_env is not None and not _VARIABLE.fullmatch(server.api_key_env):
        message = "is no name of an environment variable in capital letters, digits and '_'"
        yield document.problem((*place, "api_key_env"), message, "the name of the variable with the key, never the key")


def why_no_key(variable: str, environment: Mapping[str, str]) -> str | None:
    """Return why an environment variable holds no API key, or None if it does."""
    # An invalid name may be an API key itself, so it is not repeated.
    if not _VARIABLE.fullmatch(variable):
        return "api_key_env holds no name of an environment variable"
    key = environment.get(variable)
    subject = f"the environment variable {variable}, which is to hold its API key,"
    if not key:
        return f"{subject} is {'not set' if key is None else 'empty'}"
    if not _API_KEY.fullmatch(key):
        return f"{subject} holds characters that no HTTP header may have; accepted: printable ASCII without spaces"
    return None


def _why_no_url(url: str) -> str | None:
    if "@" in url:
        return "holds a user name or a password, which is a secret in a file: api_key_env names where the key is"
    if "?" in url or "#" in url:
        return "holds a query or a fragment, but paths are put behind it"
    match = _URL.fullmatch(url)
    if match is None or int(match["port"] or 0) > 65535 or not _is_host(match["host"]):
        return "is no such URL"
    return None


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return all(0 < len(label) <= LONGEST_LABEL for label in host.split("."))
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True
