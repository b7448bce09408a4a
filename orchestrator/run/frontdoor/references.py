"""Resolve the names in a request or a plan to files and parts."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import count
from pathlib import PurePosixPath

from orchestrator.run.frontdoor.words import folded
from orchestrator.task.taskir.models import compose_name, find_name

_REFERENCE = re.compile(r"P([1-9][0-9]{0,5})\Z")
_ONE_LETTER_WORDS = ("a", "i")


def referred_part(name: str) -> int | None:
    """Return the number of the part that a name such as `P3` refers to, or None for any other name."""
    match = _REFERENCE.match(name)
    return int(match[1]) if match else None


class FileNames:
    """The files that a request may refer to: by name, by an unambiguous stem, or several by a pattern."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = files
        self._names = frozenset(files)
        self._by_stem: defaultdict[str, set[str]] = defaultdict(set)
        for file in files:
            path = PurePosixPath(file)
            for stem in (path.stem, str(path.with_suffix(""))):
                self._by_stem[stem].add(file)

    def find(self, name: str) -> tuple[str, ...]:
        """Return the file with this name, else the only one with this stem, else all that match the pattern."""
        if (match := find_name(name, self._names)) is not None:
            return (match,)
        files = self._by_stem.get(name, ())
        if len(files) == 1:
            return (*files,)
        return tuple(file for file in self.files if fnmatchcase(file, name)) if "*" in name else ()

    def mentioned(self, request: str) -> tuple[str, ...]:
        """Return the files that the request mentions, in their own order."""
        composed = compose_name(request)
        return tuple(
            file for file in self.files if any(_mentions(composed, compose_name(name)) for name in self._callings(file))
        )

    def lists(self, request: str) -> tuple[tuple[str, ...], ...]:
        """Return the lists and ranges of two or more files in a request, such as `a.txt, b.txt and c.txt`."""
        by_calling = {name: file for file in self.files for name in self._callings(file) if name in request}
        matches = (re.findall(_any_of(by_calling), listed) for listed in lists_of(request, by_calling))
        files = (tuple(dict.fromkeys(by_calling[name] for name in names)) for names in matches)
        ranges = ranges_of(compose_name(request), self.files)
        return tuple(dict.fromkeys([*(listed for listed in files if len(listed) > 1), *ranges]))

    def _callings(self, file: str) -> list[str]:
        stem = PurePosixPath(file).stem
        return [file, stem] if self.find(stem) == (file,) else [file]


_TO = r"(?:\s*(?:[-\u2013\u2014\u2026]|\.{2,3})\s*|\s+(?:to|through|thru|until|till|bis|à|au|jusqu'à|a|al|hasta)\s+)"
# stands before two files that are compared, not before the ends of a range
_ENDS_OF_CHANGE = re.compile(
    r"\b(?:chang|differ|diff|compar|vergleich|unterschied|(?:ver)?änder|geändert|évolu|compara|cambi)\w*\b[^.!?\n]*$",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(.*[^\W\d])[-_ ]?(\d{1,9})\Z", re.DOTALL)
_PLURAL = r"(?:s|e|n|en)?"


def ranges_of(text: str, files: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the files of each range in a text: `claim1 to claim6`, `claim1.txt-claim6.txt` or `claims 1-6`."""
    series = defaultdict[tuple[str, str], dict[int, str]](dict)
    for file in files:
        path = PurePosixPath(file)
        if (match := _NUMBERED.match(path.stem)) is not None:
            series[match[1], path.suffix][int(match[2])] = file
    ranges = list[tuple[str, ...]]()
    for (stem, ending), numbered in series.items():
        if len(numbered) > 2:
            called, behind = rf"{re.escape(stem)}{_PLURAL}[-_ ]?", rf"(?:{re.escape(ending)})?"
            for match in re.finditer(
                rf"(?<![\w./-]){called}(\d{{1,9}}){behind}{_TO}(?:{called})?(\d{{1,9}}){behind}(?![\w/-])",
                text,
                re.IGNORECASE,
            ):
                low, high = int(match[1]), int(match[2])
                listed = tuple(numbered[number] for number in sorted(numbered) if low <= number <= high)
                if len(listed) > 1 and not _ENDS_OF_CHANGE.search(text[: match.start()]):
                    ranges.append(listed)
    return ranges


def with_folders(names: Iterable[str]) -> set[str]:
    """Return the names and all folders that they are in. No other file can have one of these names."""
    return {str(path) for name in names for path in (PurePosixPath(name), *PurePosixPath(name).parents)}


def default_output(number: int, foreach: bool, taken: Collection[str]) -> str:
    """Return a name that is not `taken` for an unnamed output: `s1.txt`, or `s1.json` for a `foreach`."""
    names = (f"s{number}{'-output' * again}.{'json' if foreach else 'txt'}" for again in count())
    return next(name for name in names if name not in taken)


# words before one that means something that is already there
_DEFINITE = frozenset(
    """
    the this that these those my our your his her their its both all each every which from of to by with between and mr
    mrs ms der die das den dem des im am zum zur vom beim mein meine meinen unser unsere beide beiden alle jede jeden
    jedes welche welcher welches von an mit zwischen und herr herrn frau le la les l du des ce cet cette ces mon ma mes
    notre nos tous toutes chaque quel quelle quels quelles de avec entre et m mme el los las del al este esta mi mis
    nuestro todos todas cada cual con y senor senora
    """.split()
)


# may stand between such a word and what it means: "the two interviews"
_COUNTS = frozenset(
    """
    two three four five six seven eight nine ten zwei drei vier funf sechs sieben acht neun zehn deux trois quatre cinq
    sept huit neuf dix dos tres cuatro cinco seis siete ocho nueve diez
    """.split()
)


def definite_words(text: str) -> set[str]:
    """Return the words of a text, folded, that mean something that is already there: "the annex", "Anna's letter"."""
    spoken = ["", *re.findall(r"[^\W\d_]+|[^\w\s]", folded(text).replace("\u2019", "'"))]
    return {
        word
        for at, word in enumerate(spoken)
        if at
        and (
            spoken[at - 2 if spoken[at - 1] in _COUNTS else at - 1] in _DEFINITE
            or spoken[at + 1 : at + 3] == ["'", "s"]
        )
    }


def named_in_part(request: str, files: Sequence[str]) -> tuple[str, ...]:
    """Return the files that alone have a definite word of the request in their names: "the mail from Keller"."""
    by_part = defaultdict[str, list[str]](list)
    for file in files:
        for part in {*re.split(r"[\W\d_]+", folded(PurePosixPath(file).stem))}:
            by_part[part].append(file)
    spoken = definite_words(request)
    named = {owners[0] for part, owners in by_part.items() if len(owners) == 1 and len(part) > 2 and part in spoken}
    return tuple(file for file in files if file in named)


def _mentions(request: str, name: str) -> bool:
    if name not in request:
        return False
    # "a" is an article more often than a file; in a list ("a, b and c") or at the end it is a file.
    behind = r"(?=\s*(?:[,;:!?)]|\.?\s*$|(?:and|or)\b))" if name.lower() in _ONE_LETTER_WORDS else r"(?![\w/-])"
    return re.search(rf"(?<![\w./-]){re.escape(name)}{behind}", request) is not None


def names_file(text: str, file: str) -> bool:
    """Return whether a text has the whole name of a file, with an ending or a folder."""
    # without an ending or a folder, the name may be any other word
    if file not in text or ("." not in file and "/" not in file):
        return False
    return re.search(rf"(?<![\w./-]){re.escape(file)}(?![\w/-])(?!\.\w)", text) is not None


def in_place_of_list(text: str, files: Sequence[str], instead: str) -> str:
    """Return the text with `instead` where it lists these files by whole names.

    A text that does not list all of them, one after the other, is returned unchanged.
    """
    if any(file not in text for file in files):
        return text
    for listed in lists_of(text, files):
        if all(file in listed for file in files):
            return text.replace(listed, instead, 1)
    return text


def lists_of(text: str, names: Iterable[str]) -> list[str]:
    """Return the parts of a text that list these names, with signs or words of up to four letters between."""
    if not (name := _any_of(names)):
        return []
    between = r"(?:\s*[,;&/+]\s*|\s+)(?:\w{1,4}\s+)?"
    return re.findall(rf"{name}(?:{between}{name})+", text)


def _any_of(names: Iterable[str]) -> str:
    # longest first, since a name may start like another
    escaped = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return rf"(?<![\w./-])(?:{escaped})(?![\w/-])" if escaped else ""
