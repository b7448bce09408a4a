"""The JSON Schema of a plan that can only name what exists: files of the request, patterns for them, earlier parts.

Its grammar keeps a model from naming files that do not exist, later parts, and outputs that nobody asked for. It also
makes the model say what each part reads before the action, because small models that had to write the action first
listed names in it without end.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from orchestrator.run.frontdoor.each_words import EACH, items_in
from orchestrator.run.frontdoor.references import FileNames
from orchestrator.task.taskir.fields import REQUEST_LABEL

MAX_LISTED: Final = 120  # with more files, names are not listed, since the grammar would become slow

MIN_ACTION: Final = 6
MAX_ACTION: Final = 400
FIRST_PARTS: Final = 12  # these have schemas of their own, with exactly the earlier parts; later ones share one

CODE_ROLES: Final = frozenset({"coder", "architect"})  # their outputs may be programs even if the request names none

# the first word of the name of a file, unless that is a folder
_BEGINNING = re.compile(r"[^\W\d_]{2,}(?![^\W\d_]*/)")

_WITHOUT_EACH: Final = rf"^(?:[^{{]|\{{[^e{{]){{{MIN_ACTION},{MAX_ACTION}}}$"
# actions of parts without `each`, in which small models would write `{each}` too
_WITHOUT_BRACES: Final = rf"^[^{{}}]{{{MIN_ACTION},{MAX_ACTION}}}$"

# verbs of requests that want a new version of a file
_CHANGES = re.compile(
    r"\b(?:fix|correct|update|edit|change|improve|rewrite|refactor|rename|reformat|clean|proofread|add|remove|replace|"
    r"korrigier|verbesser|änder|überarbeit|ersetz|aktualisier|ergänz|corrige|modifie|améliore|remplace|ajoute|"
    r"cambia|modifica|mejora|reemplaza|añade|actualiza)\w*",
    re.IGNORECASE,
)

# the properties that say what a part reads, and the files of which it may write new versions
_Reading = tuple[dict[str, Any], Sequence[str]]

_NEW_FILE = re.compile(r"(?<![\w./-])[\w-][\w./-]*\.[A-Za-z]\w{0,7}(?![\w/-])")


@dataclass(frozen=True, slots=True)
class Listed:
    """What the parts of a plan may name in addition to earlier parts."""

    files: tuple[str, ...]  # in the order in which the prompt shows them
    patterns: tuple[str, ...]  # each stands for several files
    lists: tuple[tuple[str, ...], ...]  # files that the request lists next to each other
    outputs: tuple[str, ...]  # names in the request of files that do not exist yet
    items: tuple[str, ...]  # possible items of lists that are not files: languages, places, aspects
    changes: bool  # the request wants files changed, so outputs may have the names of inputs
    braces: bool  # the request has a brace, so actions may need one

    @classmethod
    def of(cls, request: str, files: Sequence[str]) -> "Listed | None":
        """Return what the plan of a request may name; None if that is too much to list."""
        if len(files) > MAX_LISTED:
            return None
        lists, outputs = FileNames(files).lists(request), tuple(_new_files(request, files))
        items, changes = items_in(request, (*files, *outputs)), _CHANGES.search(request) is not None
        return cls(tuple(files), tuple(_patterns(files)), lists, outputs, items, changes, "{" in request)


def listed_part(
    roles: Collection[str], listed: Listed, number: int, *, replan: bool, persona: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the schema of the part with this number. It may have `replan` only if that is true.

    `persona` is the schema of its persona, if it may have one. A part says what it reads in one of four ways: `each`
    for one step per file or earlier output, `each` for one step per word, `inputs`, or `foreach`. Next to `each` and
    `foreach`, `inputs` are read by all steps. If only the request can be read, it need not say anything.
    """
    earlier = [f"P{before}" for before in range(1, number)]
    everything = [*listed.files, *listed.patterns, REQUEST_LABEL]
    changed, each_changed = (listed.files, (EACH,)) if listed.changes else ((), ())
    readings: list[_Reading] = [({"inputs": _names_schema([*earlier, *everything])}, changed)]
    if len(listed.items) > 1:
        words = {"each": _names_schema(listed.items, least=2), "inputs": _names_schema([*earlier, *everything])}
        readings.insert(0, (words, ()))
    if len(listed.files) > 1 or earlier:
        files = {"each": _each_schema(listed, earlier), "inputs": _names_schema([*earlier, *listed.files])}
        readings.insert(0, (files, each_changed))
    if earlier:
        readings.append(({"foreach": {"enum": earlier}, "inputs": _names_schema([*earlier, *everything])}, changed))
    must_read = bool(listed.files or earlier)
    coders = [role for role in roles if role in CODE_ROLES]
    other_roles = [role for role in roles if role not in CODE_ROLES]
    kinds = [(other_roles, list(listed.outputs)), (coders, _code_outputs(listed.outputs, number))]
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
    if "each" not in reading:  # `{each}` would stand for nothing
        action["pattern"] = _WITHOUT_EACH if listed.braces else _WITHOUT_BRACES
    else:
        outputs = ()
    properties = {
        "role": {"enum": [*roles]},
        **reading,
        "action": action,
        **({} if persona is None else {"persona": persona}),
        **({"output": {"enum": [*outputs, *versions]}} if outputs or versions else {}),
        **({"outputs": _names_schema(listed.outputs, least=2)} if outputs and len(listed.outputs) > 1 else {}),
        **({"replan": {"const": True}} if replan and [*reading] == ["inputs"] else {}),
    }
    required = ["role", "action", *([next(iter(reading))] if must_read else [])]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _each_schema(listed: Listed, earlier: Sequence[str]) -> dict[str, Any]:
    # each of these stands for all outputs of one earlier part
    outputs = [{"const": [name]} for name in earlier]
    if len(listed.files) < 2:
        return {"anyOf": outputs}
    patterns = [_names_schema([pattern]) for pattern in listed.patterns]
    lists = [{"const": [*files]} for files in listed.lists]
    return {"anyOf": [*patterns, *(lists or [_names_schema(listed.files)]), *outputs]}


def _names_schema(names: Sequence[str], least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": {"enum": [*names]}, "minItems": least, "maxItems": len(names)}


def _patterns(files: Sequence[str]) -> Iterable[str]:
    if len(files) < 2:
        return
    yield "*"
    paths = [PurePosixPath(file) for file in files]
    yield from _shared(paths, lambda path: f"*{path.suffix}" if path.suffix else "")
    yield from _shared(paths, lambda path: "" if path.parent == PurePosixPath() else f"{path.parent}/*")
    yield from _shared(paths, lambda path: f"{begun[0]}*" if (begun := _BEGINNING.match(str(path))) else "")


def _shared(paths: Sequence[PurePosixPath], pattern_of: Callable[[PurePosixPath], str]) -> Iterable[str]:
    counts = Counter(map(pattern_of, paths))
    return (
        pattern
        for pattern, count in counts.items()
        # `*` says the same as a folder or a beginning that all files have
        if pattern and count > 1 and (count < len(paths) or pattern.startswith("*"))
    )


def _new_files(request: str, files: Sequence[str]) -> Iterable[str]:
    existing = {name for file in files for name in (file, PurePosixPath(file).name)}
    # up to three characters, it may be an abbreviation such as "e.g"
    return dict.fromkeys(name for name in _NEW_FILE.findall(request) if len(name) > 3 and name not in existing)


def _code_outputs(named: Sequence[str], number: int) -> list[str]:
    tests = [f"test_{PurePosixPath(name).name}" for name in named if name.endswith(".py") and "test" not in name]
    return list(dict.fromkeys([*named, *tests, f"part{number}.py", f"part{number}.sh"]))
