"""Parse YAML strictly: duplicate keys, anchors, aliases and tags are refused, and every key's line is recorded.

YAML itself takes the last of equal keys, always a mistake in a hand-written file; and aliases can make a small file
expand to gigabytes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import indent as indent_lines
from typing import Any, Final

import yaml

from orchestrator.files import Signature, signature
from orchestrator.registry.errors import RegistryProblem, file_error

MAX_BYTES = 1 << 20
_PLAIN: Final[dict[str, Any]] = {"sort_keys": False, "allow_unicode": True, "width": math.inf}
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed file: plain dicts, lists and scalars. `lines` has the line (from 1) of each place in it."""

    path: Path
    data: object
    lines: Mapping[KeyPath, int]
    signature: Signature | None = None  # of the file before it was read; None if it was not

    def has(self, place: KeyPath) -> bool:
        """Return whether the file has a key or a list item at `place`."""
        return place in self.lines

    def problem(self, place: KeyPath, message: str, accepted: str = "") -> RegistryProblem:
        """Return a problem at `place`, with the line of the nearest place that exists in the file."""
        existing = place
        while existing and existing not in self.lines:
            existing = existing[:-1]
        return RegistryProblem(self.path, self.lines.get(existing), ".".join(map(str, place)), message, accepted)


def parse_file(path: Path, accepted: str = "") -> YamlDocument:
    """Read and parse `path`. Raises RegistryError if it is missing, too large, or not strict YAML.

    `accepted` is for the error about an unreadable file.
    """
    before = signature(path)
    return replace(parse_text(read_file(path, accepted), path), signature=before)


def read_file(path: Path, accepted: str = "") -> bytes:
    """Return the bytes of a YAML file. Raises RegistryError if it is missing or too large."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise file_error(path, f"cannot be read: {error.strerror}", accepted) from error
    if len(raw) > MAX_BYTES:
        raise file_error(path, "too large", f"at most {MAX_BYTES:,} bytes")
    return raw


def parse_text(raw: bytes, path: Path) -> YamlDocument:
    """Parse the bytes of `path` (used in errors only). Raises RegistryError."""
    try:
        loader = _StrictLoader(raw.decode("utf-8"), path)
        node = loader.get_single_node()
        data = None if node is None else loader.value(node)
    except UnicodeDecodeError as error:
        raise file_error(path, f"byte {error.start:,} is not UTF-8", "UTF-8 text") from error
    except RecursionError as error:
        raise file_error(path, "nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        raise file_error(path, message, line=mark.line + 1 if mark else None) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the latter two: a date such as 2020-99-99
        raise file_error(path, str(error)) from error
    return YamlDocument(path, data, loader.lines)


def write_yaml(data: Mapping[str, object], indent: int = 2) -> str:
    """Write a mapping of scalars, and of mappings and lists of scalars, as YAML, a line for each key."""
    lines = (
        yaml.safe_dump({key: value}, default_flow_style=None if isinstance(value, Mapping | list) else False, **_PLAIN)
        for key, value in data.items()
    )
    return "".join(indent_lines(line, " " * indent) for line in lines)


def write_section(name: str, entries: Mapping[str, Mapping[str, object]]) -> str:
    """Write a section of a registry: named entries, such as its models."""
    return f"{name}:\n" + "".join(f"  {key}:\n{write_yaml(entry, 4)}" for key, entry in entries.items())


def needs_quotes(text: str) -> bool:
    """Return whether YAML would read `text` without quotes as something else, such as `on` as a truth value."""
    try:
        return bool(yaml.safe_load(text) != text)
    except (yaml.YAMLError, ValueError, OverflowError):
        return True


class _StrictLoader(yaml.SafeLoader):
    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text)
        self.lines: dict[KeyPath, int] = {}
        self._path = path

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_mark()
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not accepted", problem_mark=mark)
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            message = f"the tag {event.tag} is not accepted"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def value(self, node: yaml.Node, place: KeyPath = ()) -> object:
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        value = self.construct_object(node)
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            message = "holds half of a surrogate pair, which is no character"
            raise file_error(self._path, message, "UTF-8 text", place, line)
        return value

    def _mapping(self, node: yaml.MappingNode, place: KeyPath) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise file_error(self._path, "a key must be a name", "", place, line)
            key = key_node.value
            inner = (*place, key)
            if key in result:
                message = f"the key is given twice (first on line {self.lines[inner]})"
                raise file_error(self._path, message, "", inner, line)
            self.lines[inner] = line
            result[key] = self.value(value_node, inner)
        return result
