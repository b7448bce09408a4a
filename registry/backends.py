"""Check the settings of a model that another server runs, and the environment variable with its API key.

No message here repeats a value, because it may be an API key in the wrong place.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Final

from orchestrator.registry.errors import RegistryProblem
from orchestrator.registry.forms import ModelForm
from orchestrator.registry.strict_yaml import KeyPath, YamlDocument

REMOTE: Final = ("base_url", "model", "api_key_env", "timeout_seconds", "native_tools")
COMMON: Final = ("backend", "description", "residency", "context", "slots")
LONGEST_LABEL: Final = 63
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
_KEY: Final = re.compile(r"[\x21-\x7e]+")
_URL: Final = re.compile(
    r"https?://(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?"
    r"(?:/[A-Za-z0-9._~!$&'()*+,;=:%/-]*)?"
)


def check_backend(place: KeyPath, model: ModelForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    """Yield what is wrong with a model's settings for its backend: keys that are missing or do not apply."""
    yield from (_local if model.backend == "llama.cpp" else _remote)(place, model, document)


def _local(place: KeyPath, model: ModelForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    if model.file is None:
        yield document.problem((*place, "file"), "is required")
    for option in REMOTE:
        if document.has((*place, option)):
            message = "is for a model that another server runs"
            yield document.problem((*place, option), message, "with backend: openai, or no such key")


def _remote(place: KeyPath, model: ModelForm, document: YamlDocument) -> Iterator[RegistryProblem]:
    for option in ("base_url", "model"):
        if getattr(model, option) is None:
            yield document.problem((*place, option), "is required with backend: openai")
    for option in {field.name for field in fields(ModelForm)} - {*REMOTE, *COMMON}:
        if document.has((*place, option)):
            message = "is for a model that llama.cpp loads here; with backend: openai its server decides that"
            yield document.problem((*place, option), message, "no such key")
    if model.residency in ("hot", "warm"):
        message = f"is {model.residency!r}, but a model that another server runs is never loaded here"
        yield document.problem((*place, "residency"), message, "cold, so that it is not used, or no such key")
    if model.base_url is not None and (wrong := _why_no_url(model.base_url)):
        yield document.problem((*place, "base_url"), wrong, "http(s)://HOST[:PORT][/PATH], as in http://host:8000/v1")
    if model.api_key_env is not None and not _VARIABLE.fullmatch(model.api_key_env):
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
    if not _KEY.fullmatch(key):
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
