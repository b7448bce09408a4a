"""The tokens of requests over TCP: create, load and compare them."""

import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.home import Home

MIN_LENGTH: Final = 20


def token_path(home: Path) -> Path:
    return Home(home).token


def load_or_create_token(home: Path) -> str:
    """Return the token of a state folder, which is created if there is none.

    Raises JournalError if the file cannot be created, if others may read it, or if it holds no token.
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
    """Return all tokens by name: the API's own one under an empty name, and those in the files that `named` lists.

    Raises JournalError as `load_or_create_token` does, and if a file of `named` does not exist.
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
    """Return the name of the token in an Authorization header, or in `x-api-key` of Anthropic's clients; else None."""
    scheme, _, credentials = (header or "").partition(" ")
    match = None
    # In constant time, so that a token cannot be guessed piece by piece.
    for name, token in tokens.items():
        is_bearer = (
            hmac.compare_digest(credentials.strip().encode("latin-1"), token.encode()) and scheme.lower() == "bearer"
        )
        if hmac.compare_digest((api_key or "").strip().encode("latin-1"), token.encode()) or is_bearer:
            match = name
    return match


def _load(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise JournalError(path, "others may read it; accepted: mode 0600, or no file, so that a new token is made")
    token = path.read_text(encoding="ascii").strip()
    if len(token) < MIN_LENGTH:
        raise JournalError(path, f"holds no token of {MIN_LENGTH} characters or more; remove it, and a new one is made")
    return token
