"""Change a registry's file as a person would: a few lines are added or changed, and every other byte stays.

A change is only written if the file then says what it said before and what was to be added, and loads.
"""

import os
import secrets
import stat
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from registry.errors import RegistryError, RegistryProblem
from registry.load import registry_from
from registry.models import Registry
from registry.strict_yaml import Place, Span, outline, parse_text, write_yaml

Data = dict[str, Any]


def add_model(raw: bytes, path: Path, name: str, entry: Mapping[str, object]) -> bytes:
    """Return the registry `raw` of the file `path` with another model. Raises RegistryError."""
    return _added(raw, path, ("models", name), entry)


def give_role(raw: bytes, path: Path, role: str, model: str, tier: str) -> bytes:
    """Return the registry `raw` with `model` in `role`, which is added with this tier if there is none. Raises so."""
    place: Place = ("roles", role, "model")
    text = raw.decode()
    span = outline(text).get(place)
    if span is None:
        return _added(raw, path, ("roles", role), {"model": model, "tier": tier})
    expected = _data(raw, path)
    expected["roles"][role]["model"] = model
    written = write_yaml({"model": model}, 0).removeprefix("model: ").rstrip()
    return _checked(text[: span.start] + written + text[span.end :], path, place, expected)


def replace_registry(path: Path, before: bytes, after: bytes) -> Registry:
    """Put `after` into the file `path`, which holds `before`, at once and as a whole; return the registry it makes.

    Raises RegistryError if it would not load, if the file may not be written to, or is no longer what it was.
    """
    registry = registry_from(parse_text(after, path.absolute()))
    real = Path(os.path.realpath(path))
    fresh = real.with_name(f".{real.name[:100]}.{secrets.token_hex(6)}")
    try:
        status = real.stat()
        if not (status.st_mode & 0o222 and os.access(real, os.W_OK)):
            raise _refused(path, "is read-only")
        try:
            _write(fresh, after, status)
            if real.read_bytes() != before:
                raise _refused(path, "was changed by someone else meanwhile", "another try")
            os.replace(fresh, real)
        finally:
            fresh.unlink(missing_ok=True)
        _sync(real.parent)
    except OSError as error:
        raise _refused(path, f"cannot be written to: {error.strerror}") from error
    return registry


def _write(fresh: Path, content: bytes, like: os.stat_result) -> None:
    """Write a new file, durably, with the owner and the rights of another one."""
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        os.fsync(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _added(raw: bytes, path: Path, place: tuple[str, str], entry: Mapping[str, object]) -> bytes:
    """Add an entry to a section, behind its last one and indented like it."""
    section, name = place
    text, spans = raw.decode(), outline(raw.decode())
    expected = _data(raw, path)
    if name in expected[section]:
        raise _refused(path, "is taken", "another name", place)
    if spans[section,].flow:
        raise _refused(path, "is written in braces", f"an indented list of {section}", (section,))
    first = next(iter(expected[section]))
    outer = spans[section, first].column
    inner = _inner(spans, (section, first)) - outer
    line_end = "\r\n" if "\r\n" in text else "\n"
    block = f"{' ' * outer}{name}:\n{write_yaml(entry, outer + inner)}".replace("\n", line_end)
    at = _behind(text, spans[section,].end, outer)
    if at and not text[:at].endswith("\n"):
        block = line_end + block
    expected[section][name] = dict(entry)
    return _checked(text[:at] + block + text[at:], path, place, expected)


def _inner(spans: Mapping[Place, Span], entry: Place) -> int:
    """Return the column of the keys of an entry, or one of its own if they stand in braces."""
    own = spans[entry]
    columns = [span.column for place, span in spans.items() if place[:-1] == entry]
    return own.column + 2 if own.flow or not columns else columns[0]


def _behind(text: str, end: int, column: int) -> int:
    """Return the start of the line after `end`, or after the comments that follow it and are indented as deeply."""
    at = end if text[end - 1 : end] == "\n" else _next_line(text, end)
    while at < len(text):
        line = text[at : _next_line(text, at)]
        indent = len(line) - len(line.lstrip(" "))
        if indent < max(1, column) or not line.lstrip(" ").startswith("#"):
            break
        at += len(line)
    return at


def _next_line(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _checked(text: str, path: Path, place: Place, expected: Data) -> bytes:
    """Return the text as bytes if it says what it should. Raises RegistryError."""
    raw = text.encode()
    if _data(raw, path) != expected:
        raise _refused(path, "cannot be changed without changing more", "the entry, put there by hand", place)
    return raw


def _data(raw: bytes, path: Path) -> Data:
    data = deepcopy(parse_text(raw, path).data)
    assert isinstance(data, dict), "a registry that loads is a mapping"
    return data


def _refused(path: Path, what: str, accepted: str = "a file that can be written to", at: Place = ()) -> RegistryError:
    return RegistryError(RegistryProblem(path, None, ".".join(map(str, at)), what, accepted, at))
