"""The JSON Schema of a plan that can only name what there is: files of the request, patterns for them, earlier parts.

A grammar made of it keeps a model from naming files that do not exist, parts that come later, and outputs that nobody
asked for. It also makes the model say of each part what it reads, as soon as there is anything that it could read. That
comes before the action: small models that had to write the action first listed names in it without end.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from orchestrator.run.fences import is_code
from orchestrator.run.frontdoor.each_words import EACH, items_in
from orchestrator.run.frontdoor.references import FileNames
from orchestrator.task.taskir import REQUEST_LABEL

MAX_LISTED: Final = 120
"""For a request with more files than this, names are not listed: the grammar would become slow."""

MIN_ACTION: Final = 6
MAX_ACTION: Final = 400
FIRST_PARTS: Final = 12
"""So many parts may name exactly those before them. Later ones may name these, and what is wrong shows afterwards."""

CODE_ROLES: Final = frozenset({"coder", "architect"})
"""Roles whose outputs may be programs though the request names none."""

_DATA: Final = frozenset((".csv", ".tsv", ".json"))

_BEGINNING = re.compile(r"[^\W\d_]{2,}(?![^\W\d_]*/)")
"""The word that the name of a file begins with, unless that is a folder."""

_WITHOUT_EACH: Final = rf"^(?:[^{{]|\{{[^e{{]){{{MIN_ACTION},{MAX_ACTION}}}$"
_WITHOUT_BRACES: Final = rf"^[^{{}}]{{{MIN_ACTION},{MAX_ACTION}}}$"
"""What the action of a part may be whose files are not named one by one. Small models write `{each}` there too."""

_CHANGES = re.compile(
    r"\b(?:fix|correct|update|edit|change|improve|rewrite|refactor|rename|reformat|clean|proofread|add|remove|replace|"
    r"korrigier|verbesser|änder|überarbeit|ersetz|aktualisier|ergänz|corrige|modifie|améliore|remplace|ajoute|"
    r"cambia|modifica|mejora|reemplaza|añade|actualiza)\w*",
    re.IGNORECASE,
)
"""Verbs of requests that want a new version of a file."""

_Reading = tuple[dict[str, Any], Sequence[str]]
"""The properties by which a part says what it reads, and the names of files that it may write new versions of."""

_NEW_FILE = re.compile(r"(?<![\w./-])[\w-][\w./-]*\.[A-Za-z]\w{0,7}(?![\w/-])")


@dataclass(frozen=True, slots=True)
class Listed:
    """What the parts of a plan may name, beside earlier parts."""

    files: tuple[str, ...]
    """The files, in the order in which the request is shown with them."""
    patterns: tuple[str, ...]
    """Patterns that stand for several of these files."""
    lists: tuple[tuple[str, ...], ...]
    """The files that the request lists one after the other, list by list."""
    outputs: tuple[str, ...]
    """What the request calls files that do not exist yet."""
    items: tuple[str, ...]
    """What may be items of lists in the request that are no files: languages, places, aspects."""
    changes: bool
    """Whether the request asks for files to be changed, so that outputs may have the names of inputs."""
    braces: bool
    """Whether the request has a brace in it, so that actions may need some too."""

    @classmethod
    def of(cls, request: str, files: Sequence[str]) -> "Listed | None":
        """Return what the plan of a request may name; None where that is too much to be listed."""
        if len(files) > MAX_LISTED:
            return None
        lists, outputs = FileNames(files).lists(request), tuple(_new_files(request, files))
        items, changes = items_in(request, (*files, *outputs)), _CHANGES.search(request) is not None
        return cls(tuple(files), tuple(_patterns(files)), lists, outputs, items, changes, "{" in request)


def is_program(name: str) -> bool:
    """Return whether a file of this name is written by a coder: code or settings, and no table or other data."""
    return is_code(name) and PurePosixPath(name).suffix.lower() not in _DATA


def listed_part(
    roles: Collection[str], listed: Listed, number: int, *, replan: bool, persona: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the schema of the part with this number. Only with `replan` may it ask for the plan to go on after it.

    `persona` is the schema of its persona, if it may have one.

    A part says what it reads in one of four ways: `each` for one step a file or earlier output; `each` for one step a
    word; `inputs`; or `foreach`. With `each` and `foreach`, `inputs` is what all of their steps read too. If nothing
    can be read but the request, it need not say anything.
    """
    earlier = [f"P{before}" for before in range(1, number)]
    everything = [*listed.files, *listed.patterns, REQUEST_LABEL]
    changed, each_changed = (listed.files, (EACH,)) if listed.changes else ((), ())
    readings: list[_Reading] = [({"inputs": _some([*earlier, *everything])}, changed)]
    if len(listed.items) > 1:
        words = {"each": _some(listed.items, least=2), "inputs": _some([*earlier, *everything])}
        readings.insert(0, (words, ()))
    if len(listed.files) > 1 or earlier:
        files = {"each": _each(listed, earlier), "inputs": _some([*earlier, *listed.files])}
        readings.insert(0, (files, each_changed))
    if earlier:
        readings.append(({"foreach": {"enum": earlier}, "inputs": _some([*earlier, *everything])}, changed))
    must_read = bool(listed.files or earlier)
    coders = [role for role in roles if role in CODE_ROLES]
    others = [role for role in roles if role not in CODE_ROLES]
    kinds = [(others, list(listed.outputs)), (coders, _code_outputs(listed.outputs, number))]
    return {
        "anyOf": [
            _part(some_roles, reading, versions, outputs, listed, persona, must_read=must_read, replan=replan)
            for some_roles, outputs in kinds
            if some_roles
            for reading, versions in readings
        ]
    }


def _part(
    roles: Sequence[str],
    reading: dict[str, Any],
    versions: Sequence[str],
    outputs: Sequence[str],
    listed: Listed,
    persona: dict[str, Any] | None,
    *,
    must_read: bool,
    replan: bool,
) -> dict[str, Any]:
    action: dict[str, Any] = {"type": "string", "minLength": MIN_ACTION, "maxLength": MAX_ACTION}
    if "each" not in reading:  # there is nothing that `{each}` could stand for
        action["pattern"] = _WITHOUT_EACH if listed.braces else _WITHOUT_BRACES
    else:
        outputs = ()
    properties = {
        "role": {"enum": [*roles]},
        **reading,
        "action": action,
        **({} if persona is None else {"persona": persona}),
        **({"output": {"enum": [*outputs, *versions]}} if outputs or versions else {}),
        **({"outputs": _some(listed.outputs, least=2)} if outputs and len(listed.outputs) > 1 else {}),
        **({"replan": {"const": True}} if replan and [*reading] == ["inputs"] else {}),
    }
    required = ["role", "action", *([next(iter(reading))] if must_read else [])]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _each(listed: Listed, earlier: Sequence[str]) -> dict[str, Any]:
    """Return the schema of what is done one by one: files of a pattern, those that the request lists, or outputs.

    If the request lists none, any of the files. The outputs are all those of one earlier part.
    """
    outputs = [{"const": [name]} for name in earlier]
    if len(listed.files) < 2:
        return {"anyOf": outputs}
    patterns = [_some([pattern]) for pattern in listed.patterns]
    lists = [{"const": [*files]} for files in listed.lists]
    return {"anyOf": [*patterns, *(lists or [_some(listed.files)]), *outputs]}


def _some(names: Sequence[str], least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": {"enum": [*names]}, "minItems": least, "maxItems": len(names)}


def _patterns(files: Sequence[str]) -> Iterable[str]:
    """Return `*`, and the patterns of endings, folders and beginnings that several of the files have in common."""
    if len(files) < 2:
        return
    yield "*"
    paths = [PurePosixPath(file) for file in files]
    yield from _shared(paths, lambda path: f"*{path.suffix}" if path.suffix else "")
    yield from _shared(paths, lambda path: "" if path.parent == PurePosixPath() else f"{path.parent}/*")
    yield from _shared(paths, lambda path: f"{begun[0]}*" if (begun := _BEGINNING.match(str(path))) else "")


def _shared(paths: Sequence[PurePosixPath], pattern_of: Callable[[PurePosixPath], str]) -> Iterable[str]:
    """Return the patterns that two or more of the paths have.

    A beginning or a folder that all have is left out, since `*` says the same.
    """
    counts = Counter(map(pattern_of, paths))
    return (
        pattern
        for pattern, count in counts.items()
        if pattern and count > 1 and (count < len(paths) or pattern.startswith("*"))
    )


def _new_files(request: str, files: Sequence[str]) -> Iterable[str]:
    """Return the names in the request that look like those of files, and are none. `e.g` is too short for one."""
    known = {name for file in files for name in (file, PurePosixPath(file).name)}
    return dict.fromkeys(name for name in _NEW_FILE.findall(request) if len(name) > 3 and name not in known)


def _code_outputs(named: Sequence[str], number: int) -> list[str]:
    """Return the outputs that a part may have which writes code: named ones, tests of these, or an unnamed program."""
    tests = [f"test_{PurePosixPath(name).name}" for name in named if name.endswith(".py") and "test" not in name]
    return list(dict.fromkeys([*named, *tests, f"part{number}.py", f"part{number}.sh"]))
