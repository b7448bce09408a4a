"""Remove secrets from what is shown of logs and findings: values that are known, and what looks like one."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

HIDDEN: Final = "[hidden]"
_MIN_LENGTH: Final = 8  # of a known secret: shorter values also stand for something else
_SECRET_NAME: Final = re.compile(r"key|token|secret|passw|credential|authorization|cookie", re.IGNORECASE)
# What follows the first group is the secret.
_PATTERNS: Final = (
    re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=:-]{8,}", re.IGNORECASE),
    re.compile(r"((?:login|[\w-]*(?:key|token|secret|password))=)[^\s&\"',;]+", re.IGNORECASE),
    re.compile(r"(\w://[^\s/@:]*:)[^\s/@]+(?=@)"),
    re.compile(r"()\b(?:sk|hf|ghp|xox[a-z])[-_][\w-]{12,}"),
)


def secrets_of(environment: Mapping[str, str], tokens: Iterable[str]) -> tuple[str, ...]:
    """Return the values that may not be shown: variables with a name like `API_KEY`, and tokens. Long ones first."""
    named = (value for name, value in environment.items() if _SECRET_NAME.search(name) and not os.path.exists(value))
    return tuple(sorted({value for value in (*named, *tokens) if len(value) >= _MIN_LENGTH}, key=len, reverse=True))


def redacted(value: Any, secrets: Iterable[str]) -> Any:
    """Return a text without secrets, as valid UTF-8; or a JSON value of such texts."""
    if isinstance(value, dict):
        return {name: redacted(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [redacted(item, secrets) for item in value]
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = value.replace(secret, HIDDEN)
    for pattern in _PATTERNS:
        value = pattern.sub(rf"\1{HIDDEN}", value)
    return value.encode(errors="replace").decode()
