"""Make, keep and compare the token that requests over TCP need."""

import hmac
import os
import secrets
from pathlib import Path

from orchestrator.journal import JournalError

FILE_NAME = "api.token"


def token_path(home: Path) -> Path:
    """Return the file that holds the token."""
    return home / FILE_NAME


def the_token(home: Path) -> str:
    """Return the token of a state folder. One is made, readable by its owner only, where there is none."""
    path = token_path(home)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise JournalError(path, f"cannot be made: {error.strerror}") from error
    token = secrets.token_urlsafe(32)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    return token


def is_authorized(header: bytes | None, token: str) -> bool:
    """Say whether an Authorization header carries the token, in a time that does not depend on how much is right."""
    scheme, _, given = (header or b"").partition(b" ")
    return hmac.compare_digest(given.strip(), token.encode()) and scheme.lower() == b"bearer"


def _read(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise JournalError(path, "others may read it; accepted: mode 0600, or no file, so that a new token is made")
    token = path.read_text(encoding="ascii").strip()
    if len(token) < 20:
        raise JournalError(path, "holds no token of 20 characters or more; remove it, and a new one is made")
    return token
