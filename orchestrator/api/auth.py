"""The tokens that requests over TCP carry: make one, keep it in the state folder, read named ones, compare them."""

import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.run.journal import Home, JournalError

MIN_LENGTH: Final = 20


def token_path(home: Path) -> Path:
    """Return the file that holds the token of a state folder."""
    return Home(home).token


def load_or_create_token(home: Path) -> str:
    """Return the token of a state folder. Where there is none, one is made that only the owner can read.

    Raises JournalError for a file that cannot be made, that others may read, or that holds no token.
    """
    path = token_path(home)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _load(path)
    except OSError as error:
        raise JournalError(path, f"cannot be made: {error.strerror}") from error
    token = secrets.token_urlsafe(32)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    return token


def load_tokens(home: Path, named: Mapping[str, str]) -> dict[str, str]:
    """Return all tokens by name: the API's own one under an empty name, and the `named` ones from their files.

    Raises JournalError as `load_or_create_token` does, also for a named one whose file is not there.
    """
    tokens = {"": load_or_create_token(home)}
    for name, file in named.items():
        path = Path(file).expanduser()
        try:
            tokens[name] = _load(path)
        except (OSError, UnicodeDecodeError) as error:
            raise JournalError(path, f"the token {name} cannot be read: {error}") from error
    return tokens


def given_token(header: str | None, tokens: Mapping[str, str], api_key: str | None = None) -> str | None:
    """Return the name of the token that an Authorization header carries, or the header `x-api-key` of Anthropic's
    clients; None if it is none of `tokens`, which are by name.

    The comparison takes the same time however much of a wrong token is right, so that it cannot be guessed by pieces.
    """
    scheme, _, given = (header or "").partition(" ")
    found = None
    for name, token in tokens.items():
        is_bearer = hmac.compare_digest(given.strip().encode("latin-1"), token.encode()) and scheme.lower() == "bearer"
        if hmac.compare_digest((api_key or "").strip().encode("latin-1"), token.encode()) or is_bearer:
            found = name
    return found


def _load(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise JournalError(path, "others may read it; accepted: mode 0600, or no file, so that a new token is made")
    token = path.read_text(encoding="ascii").strip()
    if len(token) < MIN_LENGTH:
        raise JournalError(path, f"holds no token of {MIN_LENGTH} characters or more; remove it, and a new one is made")
    return token
