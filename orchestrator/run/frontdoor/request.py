"""Read by code which files a request is about: those that it names, those that it wants, and those that are missing.

A name is missing if a sentence wants it to be read and the folder lacks it. If that is not certain, it is not missing.
English, German, French and Spanish are read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.frontdoor.orders import needed_tool
from orchestrator.run.frontdoor.references import names_file, ranges_of
from orchestrator.run.frontdoor.sentences import Use, may_be_program, orders_program, sentences_of, tokens_of, use_of
from orchestrator.run.frontdoor.words import folded
from orchestrator.task.taskir import nearest
from orchestrator.task.taskir.names import compose_name, find_name

MAX_INSTRUCTION: Final = 1500
"""The most characters of a request that is read."""

ENDINGS: Final = frozenset(
    """
    txt md rst adoc tex log csv tsv json jsonl ndjson yaml yml toml ini cfg conf env xml html htm css scss js mjs ts tsx
    jsx py pyi ipynb sh bash zsh ps1 bat sql c h cc cpp hpp cs rs go java kt rb php pl lua r swift scala vue svg srt vtt
    ics vcf eml diff patch lock bib pdf doc docx odt xls xlsx ods ppt pptx png jpg jpeg gif webp
    """.split()
)
"""What the names of files end in, for a name to be one that nobody could mean otherwise."""

PRODUCTS: Final = frozenset(
    "node.js vue.js next.js nuxt.js react.js express.js angular.js ember.js backbone.js three.js d3.js p5.js chart.js "
    "alpine.js moment.js discord.py web.py bun.sh draw.io".split()
)
"""Names that look like those of files, in lower case."""


@dataclass(frozen=True, slots=True)
class RequestFiles:
    """The files that a request is about, each list in the order of the request."""

    named: tuple[str, ...] = ()
    """The files of the folder that it names by their whole names or in a range, and wants to be used."""
    outputs: tuple[str, ...] = ()
    """The files that it certainly wants to be written, and that the folder lacks."""
    missing: tuple[str, ...] = ()
    """The files that it wants to be read, and that the folder lacks."""

    @classmethod
    def of(cls, request: str, files: Sequence[str]) -> "RequestFiles":
        """Return the files that a request is about. `files` are those of the folder, and texts that came with it.

        None are named in a request that is too long: it has texts in it, whose names of files are not the user's own.
        """
        if len(request) > MAX_INSTRUCTION:
            return cls()
        text = instruction(compose_name(request))
        present, absent = _uses(text, files)
        written = [name for name, use in absent if use is Use.WRITE]
        other = {name for name, use in absent if use is not Use.READ}  # one doubtful use is enough not to refuse
        read = [name for name, use in absent if name not in other]
        missing = (
            name
            for name in read
            if _may_be_missing(name) and not _stands_in(name, request) and not may_be_program(name, text)
        )
        return cls(_named(text, files, present), _once(written), _once(missing))


def missing_needs(request: str, files: Sequence[str], has_tools: bool) -> tuple[str, ...]:
    """Return a sentence for each thing that a request needs and that is not here: what is missing, what is accepted.

    These are files, and, without tools, one that does what no model can.
    """
    read = RequestFiles.of(request, files)
    tool = "" if has_tools else needed_tool(request, bool(read.named))
    return tuple(_missing(name, files) for name in read.missing) + ((tool,) if tool else ())


def _missing(name: str, files: Sequence[str]) -> str:
    if not files:
        return f"{name} is not here: the request came without files (--dir FOLDER gives it those of a folder)"
    near = nearest(name, files) or nearest(PurePosixPath(name).name, files)
    accepted = f"perhaps {near} is meant" if near else f"the files are {', '.join(files[:8])}"
    more = f" and {len(files) - 8} more" if not near and len(files) > 8 else ""
    return f"{name} is not among the files of the request ({accepted}{more})"


_FENCED = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TURN = re.compile(r"^(?:user|assistant|system|tool): ", re.MULTILINE)
_MASKED = re.compile(
    r"\w+://\S+|\bwww\.\S+|[\w.+-]+@[\w-]+\.\S+"  # addresses
    r"|\"[^\"\n]*\s[^\"\n]*\"|“[^”\n]*\s[^”\n]*”|„[^“”\n]*\s[^“”\n]*[“”]|«[^»\n]{3,}\s[^»\n]{3,}»"  # quoted texts
)


def instruction(request: str) -> str:
    """Return a request with blanks for what it does not say itself: quoted texts, code, addresses, earlier turns."""
    turns = [*_TURN.finditer(request)]
    if turns and turns[0].start() == 0:
        last = next((turn for turn in reversed(turns) if turn[0] == "user: "), turns[-1])
        request = " " * last.end() + request[last.end() :]
    blank = _FENCED.sub(lambda match: " " * len(match[0]), request)
    return _MASKED.sub(lambda match: " " * len(match[0]), blank)


def _stands_in(name: str, request: str) -> bool:
    """Return whether the text of a file may stand in the request itself, under its name, or in an earlier turn."""
    if "```" in request or "~~~" in request or _TURN.match(request) is not None:
        return True
    return re.search(rf"(?m){re.escape(name)}\W{{0,12}}$\n\s*\S", request) is not None


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _named(text: str, files: Sequence[str], present: Sequence[tuple[str, Use]]) -> tuple[str, ...]:
    """Return the files whose names, with or without the folder, are in a text, in the order of the text.

    `present` are names of the text that are those of files. One that is only to be written is not among them.
    """
    last = [_last_name(file) for file in files]
    counts = Counter(last)
    written = {name for name, use in present if use is Use.WRITE} - {name for name, use in present if use is Use.READ}
    places, excluded = dict[str, int](), set[str]()
    for file, name in zip(files, last, strict=True):
        called = next((one for one in (file, name) if names_file(text, compose_name(one))), "")
        if not called or called in written or (called != file and counts[name] > 1):
            continue
        at = text.find(compose_name(called))
        if _EXCLUDED.search(folded(text[max(0, at - 40) : at])):
            excluded.add(file)
        else:
            places[file] = at
    for listed in ranges_of(text, files):
        first = min((places[file] for file in listed if file in places), default=len(text))
        places |= {file: places.get(file, first) for file in listed if file not in excluded}
    return tuple(sorted(places, key=lambda file: places[file]))


def _may_be_missing(name: str) -> bool:
    return PurePosixPath(name).suffix[1:].lower() in ENDINGS and name.lower() not in PRODUCTS


_HOW = re.compile(
    r"\s*(?:how (?:do|to|can|should|would)|what (?:is|are) an?\b|why\b|warum\b|pourquoi\b|wie (?:kann|schreib|erstell)"
    r"|was ist ein|comment|qu'est-ce qu|como (?:se|puedo|hago)|que es un)"
)
"""Questions about files in general."""
_EXCLUDED = re.compile(
    r"\b(?:except|without|ignor\w*|exclud\w*|skip|not|never|don't|leave|untouched|other than|but|ausser|ohne|nicht|nie"
    r"|lass|sauf|sans|pas|hormis|excepto|sin|salvo|menos|no)\b(?:\s+[\w'\u2019]+){0,2}\s*[\"'`]?$"
)
"""What, before the name of a file, leaves the file out."""


def _last_name(file: str) -> str:
    return file.rpartition("/")[2]


_Uses = list[tuple[str, Use]]


def _uses(text: str, files: Sequence[str]) -> tuple[_Uses, _Uses]:
    """Return the names in a text that look like those of files, with their uses: those that are there, and others."""
    by_case = {name.casefold() for file in files for name in (file, _last_name(file))}
    spaced = [compose_name(file) for file in files if " " in file and compose_name(file) in text]
    present, absent, program = _Uses(), _Uses(), False
    for start, end in sentences_of(text):
        tokens = list(tokens_of(text[start:end]))
        is_question = _HOW.match(folded(text[start:end])) is not None
        for at, token in enumerate(tokens):
            if token.name and not any(token.text in file for file in spaced):
                use = Use.UNSURE if is_question else use_of(tokens, at, program)
                is_there = token.text.casefold() in by_case or find_name(token.text, files) is not None
                (present if is_there else absent).append((token.text, use))
        program = program or orders_program(tokens)
    return present, absent
