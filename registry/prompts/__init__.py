"""The prompts that ship: what models are told in roles that have no `system` of their own, and by steps of each kind.

`general.yaml` is for instruct models of any make, `tiny.yaml` for the embedded models, which are trained on it. A model
gets the set that its `prompts` names in the registry; without it, the one that its file is made for.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from orchestrator.registry.forms import Form, Text, read_form
from orchestrator.registry.strict_yaml import parse_file

SetName = Literal["general", "tiny"]
TINY_FAMILY: Final = "orchestrator-tiny-"  # the names of the embedded models, which their files hold, begin with this
ROLES: Final = "{roles}"  # stands in the frontdoor's prompt for the roles that steps may have
_FOLDER: Final = Path(__file__).parent
_KIND_OF_TIER: Final = {"A": "frontdoor", "B": "worker", "C": "worker"}


class ExampleForm(Form):
    """A request with the plan that is right for it, in the frontdoor's compact form."""

    files: tuple[str, ...] = ()
    request: str
    plan: tuple[dict[str, Any], ...]


class PromptSetForm(Form):
    """A file of this folder. See `PromptSet`."""

    version: Annotated[int, Field(ge=1)]
    listed_names: bool
    roles: dict[str, Text]
    examples: tuple[ExampleForm, ...] = ()
    shorter: Text = ""
    tools: Text
    repl: Text
    condense: Text
    prune: Text
    prune_now: Text
    procedures: Text = ""
    chat_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """The prompts for one kind of models."""

    name: SetName
    version: int
    digest: str  # the SHA-256 digest of the file that the prompts were read from
    listed_names: bool  # whether a plan may name only what is listed for its request, which the grammar then enforces
    # System prompts by the name of the role. The frontdoor's has no examples yet.
    roles: Mapping[str, str]
    examples: Sequence[ExampleForm]  # worked examples for the frontdoor
    # What a retry asks for when the answer before was cut off, with `{words}`; empty: it is told what happened.
    shorter: str
    # How a step that uses tools has to answer. The list of its tools follows.
    tools: str
    repl: str  # what code can use in a step that works by writing it
    condense: str  # asks for a summary of a conversation that fills its context
    prune: str  # asks for the removal of results, where the context will be full soon
    prune_now: str  # asks for the removal of results, where nothing else is possible any more
    # Asks the frontdoor which procedure does what is asked of the installation, if any. The list of them follows.
    # Empty for models that are never asked, since they have not been trained on it.
    procedures: str
    # What stands before each message of a user in a chat with a role. Models of any make get the message as it
    # is.
    chat_prefix: str

    @property
    def stamp(self) -> str:
        """Name, version and the beginning of the digest, such as `general-1-0a1b2c3d4e5f`."""
        return f"{self.name}-{self.version}-{self.digest[:12]}"

    def system(self, role: str, tier: str, plan_roles: Mapping[str, str]) -> str:
        """Return the system prompt of a role that has none of its own; empty for a role that is never asked in words.

        A role with a name that the set does not know gets the prompt of a role of its tier. `plan_roles` are the roles
        that a plan may give to steps, with their descriptions.
        """
        kind = role if role in self.roles else _KIND_OF_TIER.get(tier, "")
        text = self.roles.get(kind, "").strip()
        return self._with_examples(text, plan_roles) if kind == "frontdoor" else text

    def _with_examples(self, text: str, plan_roles: Mapping[str, str]) -> str:
        named = "; ".join(f"{role}: {about}" if about else role for role, about in plan_roles.items())
        sections = [text.replace(ROLES, f"{named}.")]
        return "\n\n".join([*sections, *(_shown(example, [*plan_roles]) for example in self.examples)])


def _shown(example: ExampleForm, roles: Sequence[str]) -> str:
    """Return an example as the frontdoor is asked and answers: the lines of the request, then the plan."""
    plan = [{**part, "role": part["role"] if part["role"] in roles or not roles else roles[0]} for part in example.plan]
    listed = f"Files: {', '.join(example.files)}\n" if example.files else ""
    return (
        f"{listed}Request: {example.request}\n{json.dumps({'plan': plan}, ensure_ascii=False, separators=(',', ':'))}"
    )


@cache
def prompt_set(name: SetName) -> PromptSet:
    """Return the set of prompts with this name."""
    path = _FOLDER / f"{name}.yaml"
    form = read_form(PromptSetForm, parse_file(path))
    return PromptSet(
        name=name,
        version=form.version,
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        listed_names=form.listed_names,
        roles=MappingProxyType(dict(form.roles)),
        examples=form.examples,
        shorter=form.shorter,
        tools=form.tools.strip(),
        repl=form.repl.strip(),
        condense=form.condense.strip(),
        prune=form.prune.strip(),
        prune_now=form.prune_now.strip(),
        procedures=form.procedures.strip(),
        chat_prefix=form.chat_prefix,
    )


def prompts_for(model: str) -> PromptSet:
    """Return the prompts for the model with this name in its file; empty where it has no file."""
    return prompt_set("tiny" if model.startswith(TINY_FAMILY) else "general")
