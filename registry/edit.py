"""Change a registry's file as a person would: comments stay where they are.

The file goes through ruamel.yaml's round trip, which may change spaces in braces and the wrapping of text. A change is
only written if the file then differs in the intended entry alone, and loads.
"""

import io
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.scalarstring import FoldedScalarString, LiteralScalarString, SingleQuotedScalarString
from ruamel.yaml.tokens import CommentToken

from orchestrator.files import FolderLocked, lock_folder, sync_folder
from orchestrator.registry.errors import file_error, nearest
from orchestrator.registry.load import registry_from
from orchestrator.registry.models import Registry
from orchestrator.registry.prompts import prompt_set
from orchestrator.registry.strict_yaml import needs_quotes, parse_text, read_file, write_section

Data = dict[str, Any]
Entry = Mapping[str, object]
Place = tuple[str, str]  # a section and the name of an entry
_EMPTY_SECTION: Final = re.compile(r"(models|roles):\s*(\{\s*\}|null|~)?\s*(#.*)?")
WRITABLE: Final = "a file that can be written to"
_BYTE_ORDER_MARK: Final = "\ufeff"


def add_model(raw: bytes, path: Path, name: str, entry: Entry) -> bytes:
    """Return the registry `raw` of the file `path` with another model. Raises RegistryError."""
    return _with_entry(raw, path, ("models", name), entry)


def give_role(raw: bytes, path: Path, role: str, model: str, tier: str) -> bytes:
    """Return the registry `raw` of the file `path` with `model` as the model of `role`.

    A missing role is added with this tier. An existing one loses only the keys that `made_for_model` names. Raises
    RegistryError.
    """
    present = _data(raw, path)["roles"].get(role)
    if present is None:
        return _with_entry(raw, path, ("roles", role), {"model": model, "tier": tier})
    replaced = present.get("model") != model
    lost = made_for_model(str(present.get("system") or ""), adapters="lora" in present) if replaced else ()
    if "lora" in lost and "plans_by_cores" in present:
        lost = (*lost, "plans_by_cores")
    return _with_values(raw, path, ("roles", role), {"model": model, **dict.fromkeys(lost)})


def change_role(raw: bytes, path: Path, name: str, values: Mapping[str, object]) -> bytes:
    """Return the registry `raw` of the file `path` with new values for keys of a role; None removes a key.

    Raises RegistryError, also if there is no such role.
    """
    roles = _data(raw, path).get("roles") or {}
    if name not in roles:
        raise file_error(path, "there is no such role", nearest(name, roles), ("roles", name))
    return _with_values(raw, path, ("roles", name), values)


def made_for_model(system: str, *, adapters: bool) -> tuple[str, ...]:
    """Return the keys of a role's entry that are useless with another model.

    `lora`, if it has `adapters`, since they fit one model; and `system`, if embedded models or our adapters are trained
    on that prompt, since it tells other models too little.
    """
    trained_on = {text.strip() for text in prompt_set("tiny").roles.values()}
    return (*(("system",) if system.strip() in trained_on else ()), *(("lora",) if adapters else ()))


def change_model(raw: bytes, path: Path, name: str, values: Mapping[str, object]) -> bytes:
    """Return the registry `raw` of the file `path` with new values for keys of a model; None removes a key.

    Raises RegistryError, also if there is no such model.
    """
    _check_model(raw, path, name)
    return _with_values(raw, path, ("models", name), values)


def remove_model(raw: bytes, path: Path, name: str) -> bytes:
    """Return the registry `raw` of the file `path` without a model. Comments before the next model stay.

    Raises RegistryError, also if there is no such model. Roles with the model are not checked.
    """
    _check_model(raw, path, name)

    def change(models: Any) -> None:
        names = list(models)
        rest = _cut_comment(models[name], models.lc.key(name)[1] + 1)
        before = names[: names.index(name)]
        del models[name]
        if rest and before:
            _append_comment(models[before[-1]], rest)

    return _changed(raw, path, ("models", name), change, None)


def _check_model(raw: bytes, path: Path, name: str) -> None:
    models = _data(raw, path).get("models") or {}
    if name not in models:
        raise file_error(path, "there is no such model", nearest(name, models), ("models", name))


def _with_values(raw: bytes, path: Path, place: Place, values: Mapping[str, object]) -> bytes:
    # With new values for keys of an entry; None removes a key.
    section, name = place
    present = _data(raw, path)[section][name] or {}

    def change(entries: Any) -> None:
        is_longer = any(value is not None and key not in present for key, value in values.items())
        rest = _cut_comment(entries[name], entries.lc.key(name)[1] + 1) if is_longer else ""
        for key, value in values.items():
            if value is None:
                _pop(entries[name], key)
            else:
                entries[name][key] = _scalar(value)
        if rest:
            _append_comment(entries[name], rest)

    after = {key: value for key, value in {**present, **values}.items() if value is not None}
    return _changed(raw, path, place, change, after)


def _append_comment(node: Any, text: str) -> None:
    # After the last value in the entry.
    for parent, last in _last_places(node):
        value = parent[last]
        if isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
            continue
        tokens = parent.ca.items.setdefault(last, [None, None, None, None])
        place = next((index for index, token in enumerate(tokens) if isinstance(token, CommentToken)), 2)
        if isinstance(tokens[place], CommentToken):
            tokens[place].value = tokens[place].value.rstrip("\n") + "\n" + text.removeprefix("\n")
        else:
            tokens[place] = CommentToken(text, CommentMark(0), None)
        return


def _pop(entry: Any, key: str) -> None:
    # Comments after the key stay: what follows the next empty line belongs to the next key.
    comments = entry.ca.items.pop(key, None)
    if entry.pop(key, None) is not None and comments is not None and entry:
        entry.ca.items.setdefault(next(reversed(entry)), comments)


def first_entries(raw: bytes, path: Path, models: Mapping[str, Entry], roles: Mapping[str, Entry]) -> bytes:
    """Return the registry `raw` without models and roles, with these added. Raises RegistryError if it is no YAML."""
    _data(raw, path)
    lines = raw.decode().removeprefix(_BYTE_ORDER_MARK).splitlines()
    text = "".join(f"{line}\n" for line in lines if not _EMPTY_SECTION.fullmatch(line))
    return (text + write_section("models", models) + write_section("roles", roles)).encode()


def save_entries(registry: Registry, models: Mapping[str, Entry], roles: Mapping[str, Entry]) -> None:
    """Write models, and the roles that they get, into the file of a registry, or create it. Raises RegistryError."""
    path = registry.path
    before = read_file(path) if path.exists() else b""
    if not registry.models:
        after = first_entries(before, path, models, roles)
        if not path.exists():
            create_registry(path, after)
            return
    else:
        after = before
        for name, entry in models.items():
            after = add_model(after, path, name, entry)
        for name, entry in roles.items():
            after = give_role(after, path, name, str(entry["model"]), str(entry.get("tier")))
    replace_registry(path, before, after)


def replace_registry(path: Path, before: bytes, after: bytes) -> Registry:
    """Atomically replace the content `before` of the file `path`, and return the new registry.

    Raises RegistryError if it would not load, or if the file is read-only or no longer holds `before`.
    """
    registry = registry_from(parse_text(after, path.absolute()))
    real = Path(os.path.realpath(path))
    try:
        status = real.stat()
        if not (status.st_mode & 0o222 and os.access(real, os.W_OK)):
            raise file_error(path, "is read-only", WRITABLE)
        with lock_folder(real.parent), _new_file(real, after, status) as fresh:
            if real.read_bytes() != before:
                raise file_error(path, "was changed by someone else meanwhile", "another try")
            os.replace(fresh, real)
    except FolderLocked as error:
        raise file_error(path, "is being changed by another process", "another try when it has ended") from error
    except OSError as error:
        raise file_error(path, f"cannot be written to: {error.strerror}", WRITABLE) from error
    return registry


def create_registry(path: Path, content: bytes, *, replace: bool = False) -> Registry:
    """Atomically create the file `path` and missing folders, and return its registry.

    Raises RegistryError if it would not load, cannot be written, or exists and is not to be replaced.
    """
    registry = registry_from(parse_text(content, path.absolute()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _new_file(path, content) as fresh:
            if replace:
                os.replace(fresh, os.path.realpath(path))
            else:
                os.link(fresh, path)
    except FileExistsError as error:
        raise file_error(path, "exists already", "another file") from error
    except OSError as error:
        raise file_error(path, f"cannot be written: {error.strerror}", WRITABLE) from error
    return registry


@contextmanager
def _new_file(path: Path, content: bytes, like: os.stat_result | None = None) -> Iterator[Path]:
    # Yields a file next to `path` whose content is on the disk, for the caller to put in place, and makes that durable.
    # It has the owner and the mode of `like`.
    fresh = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        mode = 0o644 if like is None else 0o600
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
            file.flush()
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            os.fsync(file.fileno())
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)


def _with_entry(raw: bytes, path: Path, place: Place, entry: Entry) -> bytes:
    section, name = place
    if name in _data(raw, path)[section]:
        raise file_error(path, "is taken", "another name", place)

    def change(entries: Any) -> None:
        if entries.fa.flow_style():
            raise file_error(path, "is written in braces", f"an indented list of {section}", (section,))
        new = CommentedMap({key: _scalar(value) for key, value in entry.items()})
        rest = _cut_comment(entries, entries.lc.key(next(iter(entries)))[1])
        if rest:
            last = next(reversed(new))
            new.ca.items[last] = [None, None, CommentToken(rest, CommentMark(0), None), None]
        entries[name] = new

    return _changed(raw, path, place, change, dict(entry))


def _changed(raw: bytes, path: Path, place: Place, change: Callable[[Any], None], entry: Data | None) -> bytes:
    # Raises RegistryError unless the result differs only at `place`, where it has `entry`; None for nothing.
    expected, (section, name) = _data(raw, path), place
    if entry is None:
        del expected[section][name]
    else:
        expected[section][name] = entry
    text = raw.decode().removeprefix(_BYTE_ORDER_MARK)
    round_trip = YAML()
    round_trip.preserve_quotes = True
    round_trip.width = len(text) + 1000  # so that no line is wrapped
    try:
        data = round_trip.load(text)
    except YAMLError as error:  # YAML 1.2 refuses some of what YAML 1.1 accepts
        raise file_error(path, f"cannot be edited: {error}", "the entry, put there by hand", place) from error
    entries = data[section]
    round_trip.map_indent = entries.lc.key(next(iter(entries)))[1] or 2
    change(entries)
    written = io.StringIO()
    round_trip.dump(data, written)
    output = written.getvalue()
    if "\r\n" in text:
        output = output.replace("\r\n", "\n").replace("\n", "\r\n")
    if raw.decode().startswith(_BYTE_ORDER_MARK):
        output = _BYTE_ORDER_MARK + output
    if _data(output.encode(), path) != expected:
        raise file_error(path, "cannot be changed without changing more", "the entry, put there by hand", place)
    return output.encode()


def _scalar(value: object) -> object:
    # ruamel.yaml writes YAML 1.2, in which `on` or `1_000` are plain texts, but the registry is read as YAML 1.1.
    if isinstance(value, Mapping):
        inner = CommentedMap({key: _scalar(item) for key, item in value.items()})
        inner.fa.set_flow_style()
        return inner
    if isinstance(value, list | tuple):
        items = CommentedSeq(map(_scalar, value))
        items.fa.set_flow_style()
        return items
    if isinstance(value, str) and needs_quotes(value):
        return SingleQuotedScalarString(value)
    return value


def _cut_comment(node: Any, column: int) -> str:
    # ruamel.yaml attaches all comments up to the next key to the value before them. Those indented at least to `column`
    # stay, the others belong to the next section and are returned.
    for parent, last in _last_places(node):
        token = next(filter(None, parent.ca.items.get(last, ())), None)
        if isinstance(token, CommentToken):
            lines = token.value.splitlines(keepends=True)
            own = 1  # the rest of the value's line
            if isinstance(parent[last], LiteralScalarString | FoldedScalarString):  # they end with their line
                lines[0] = " " * token.start_mark.column + lines[0]
                own = 0
            while own < len(lines) and _belongs(lines[own], column):
                own += 1
            if own:
                token.value = "".join(lines[:own]).removeprefix(" " * token.start_mark.column)
            else:
                del parent.ca.items[last]
            return "\n" + "".join(lines[own:]) if lines[own:] else ""
    return ""


def _last_places(node: Any) -> Iterator[tuple[Any, Any]]:
    # Of a collection, of the last value in it, and so on: the collection and its last key.
    while isinstance(node, CommentedMap | CommentedSeq) and node:
        last = next(reversed(node)) if isinstance(node, CommentedMap) else len(node) - 1
        yield node, last
        node = node[last]


def _belongs(line: str, column: int) -> bool:
    return line.lstrip(" ").startswith("#") and len(line) - len(line.lstrip(" ")) >= max(1, column)


def _data(raw: bytes, path: Path) -> Data:
    data = deepcopy(parse_text(raw, path).data)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise file_error(path, "is no mapping", "models and roles")
    return data
