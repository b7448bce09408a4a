"""Sets of files as people have them in a folder, and how people refer to one, some or all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.adapter.words import (
    EXTENSIONS,
    KINDS,
    MONTHS,
    NAMES_OF_EXTENSIONS,
    NUMBERS,
    ORDINALS,
    OTHERS,
    PEOPLE,
    PLACES,
    SHORT_MONTHS,
    SUBJECTS,
    WEEKDAYS,
    WordSampler,
)
from orchestrator.run.frontdoor.listed import Listed
from orchestrator.run.frontdoor.references import FileNames


@dataclass(frozen=True, slots=True)
class Reference:
    """Some of the files, as a request speaks of them."""

    phrase: str  # the words of the request: `the offers`, `a.txt and b.txt`
    names: tuple[str, ...]  # what the plan names: files, or a pattern
    files: tuple[str, ...]  # the files that are meant


@dataclass(frozen=True, slots=True)
class Folder:
    """Files that belong together, and others in the same folder."""

    names: tuple[str, ...]  # those that belong together, in their order
    others: tuple[str, ...] = ()
    # What they are, in the singular and the plural; None for files that have nothing in common.
    kind: tuple[str, str] | None = None
    labels: tuple[str, ...] = ()  # what tells one from the others, as people say it: `Adams`, `March`, `2`
    style: str = "mixed"  # how the names are made: mixed, numbered, person, month, place or part

    @property
    def listed(self) -> tuple[str, ...]:
        """All files, in the order in which a folder shows them."""
        return tuple(sorted((*self.names, *self.others)))


def listing(names: Sequence[str], last: str = "and") -> str:
    """Return the names as people list them: `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def new_name(vocabulary: WordSampler, taken: Sequence[str], extension: str | None = None) -> str:
    """Return the name of a file that is none of `taken`, nor has the stem of one."""
    stems = {name.rsplit(".", 1)[0] for name in taken}
    draw = vocabulary.random
    while True:
        stem = vocabulary.stem()
        if draw.random() < 0.2:
            stem += draw.choice("_-") + draw.choice(
                [vocabulary.pick(SUBJECTS), str(draw.randint(1, 12)), "final", "old"]
            )
        if stem not in stems:
            return f"{stem}.{extension or draw.choice(EXTENSIONS)}"


def mixed_folder(vocabulary: WordSampler, count: int, beside: int = 0) -> Folder:
    """Return files that have only their extension in common, if that."""
    draw, names = vocabulary.random, list[str]()
    extension = draw.choice(EXTENSIONS) if draw.random() < 0.8 else None
    for _ in range(count + beside):
        names.append(new_name(vocabulary, names, extension if len(names) < count else None))
    return Folder(tuple(names[:count]), tuple(names[count:]))


def named_folder(vocabulary: WordSampler, count: int, beside: int = 0) -> Folder:
    """Return files that are called after what they are: `memo.txt`, `price_list.txt`."""
    draw = vocabulary.random
    pairs = [pair for pair in KINDS if pair.split(":")[0] not in SUBJECTS]  # those are held out by another hash
    kinds = [pair.split(":")[0] for pair in vocabulary.sample(pairs, count)]
    names = [f"{kind}.{draw.choice(EXTENSIONS)}" for kind in kinds]
    others = list[str]()
    for _ in range(beside):
        others.append(new_name(vocabulary, [*names, *others]))
    return Folder(tuple(names), tuple(others), labels=tuple(kinds), style="named")


def pattern_of(names: Sequence[str], listed: Sequence[str]) -> tuple[str, ...]:
    """Return the pattern that a plan may use for exactly these of the files that are there, or the names themselves."""
    names_there, allowed = FileNames(listed), Listed.of("", listed)
    for pattern in allowed.patterns if allowed is not None else ():
        if set(names_there.find(pattern)) == set(names):
            return (pattern,)
    return tuple(sorted(names))


def series_folder(vocabulary: WordSampler, count: int, beside: int = 0) -> Folder:
    """Return files of one kind that are told apart by a number, a person, a month, a place or a part."""
    draw = vocabulary.random
    singular, plural = vocabulary.pick(KINDS).split(":")
    style = draw.choice(("numbered", "numbered", "person", "month", "place", "part", "ordinal"))
    extension, mark = draw.choice(EXTENSIONS), draw.choice(("-", "_", "_", "-", ""))
    first = draw.randint(0, max(0, 12 - count)) if draw.random() < 0.5 else 0
    match style:
        case "numbered":
            width = draw.choice((1, 1, 2))
            keys = [f"{number:0{width}}" for number in range(first + 1, first + count + 1)]
            labels = [str(number) for number in range(first + 1, first + count + 1)]
        case "person":
            labels = vocabulary.sample(PEOPLE, count)
            keys = [label.lower() for label in labels]
            labels = [label.capitalize() for label in labels]
        case "month":
            months = draw.choice((MONTHS, SHORT_MONTHS, WEEKDAYS))
            first = min(first, len(months) - min(count, len(months)))
            keys = months[first : first + count]
            full = MONTHS if months is SHORT_MONTHS else months
            labels = [full[months.index(key)].capitalize() for key in keys]
        case "place":
            keys = vocabulary.sample(PLACES, count)
            labels = [key.capitalize() for key in keys]
        case "ordinal":
            keys = labels = ORDINALS[: min(count, len(ORDINALS))]
        case _:
            keys = vocabulary.sample(SUBJECTS, count)
            labels = keys
    mark = mark or ("" if style == "numbered" else "_")
    stem = singular.replace(" ", mark or "_")
    before = style == "part" and draw.random() < 0.4
    names = [f"{key}{mark}{stem}.{extension}" if before else f"{stem}{mark}{key}.{extension}" for key in keys]
    if style == "ordinal" and draw.random() < 0.6:
        names = [f"{key}.{extension}" for key in keys]
    others = list[str]()
    for _ in range(beside):
        others.append(new_name(vocabulary, [*names, *others]))
    if draw.random() < 0.1:
        others.append(draw.choice(OTHERS))
    return Folder(tuple(names), tuple(others), (singular, plural), tuple(labels), style)


def refer_to_one(vocabulary: WordSampler, folder: Folder, index: int = 0) -> Reference:
    """Return one of the files: by name, by stem or by description."""
    draw, name = vocabulary.random, folder.names[index]
    ways = [name] * 6
    stem = name.rsplit(".", 1)[0]
    if [file.rsplit(".", 1)[0] for file in folder.listed].count(stem) == 1 and len(stem) > 2:
        ways += [f"the {stem} file", f"the file {stem}"]
    if folder.style == "named":
        ways = [name, *[f"the {folder.labels[index]}"] * 2, f"the {folder.labels[index]} in {name}", f"my {stem}"]
    elif folder.kind is not None:
        ways = [name, *[_described(folder, index)] * 3]
    elif len(folder.names) == 1 and stem in SUBJECTS:
        ways += [f"the text about the {stem}", f"the {stem} text"]
    return Reference(draw.choice(ways), (name,), (name,))


def refer_to_some(vocabulary: WordSampler, folder: Folder, indexes: Sequence[int]) -> Reference:
    """Return some of the files, at least two: by name, or by what tells them from the others."""
    draw, files = vocabulary.random, tuple(folder.names[index] for index in indexes)
    phrase = listing(files, draw.choice(("and", "and", "and", "&")))
    if draw.random() < 0.1:
        phrase = f"{draw.choice(('the files', 'these files:', 'both' if len(files) == 2 else 'the texts'))} {phrase}"
    elif draw.random() < 0.15 and all(len(name) > 5 for name in files):
        phrase = listing([name.rsplit(".", 1)[0] for name in files])
    if folder.kind is not None and draw.random() < 0.7:
        phrase = draw.choice(_described_together(folder, indexes))
    return Reference(phrase, files, files)


def refer_to_all(vocabulary: WordSampler, folder: Folder) -> Reference:
    """Return all files that belong together: by a pattern where one fits exactly these, else one by one."""
    draw, count = vocabulary.random, len(folder.names)
    extension = folder.names[0].rsplit(".", 1)[1]
    alike = tuple(name for name in folder.listed if name.endswith(f".{extension}"))
    ways = [_named(folder)]
    everything = ("all files", "each of the files", "every file", "all the files here", "each file", "all of them")
    if not folder.others:
        ways += [(phrase, ("*",)) for phrase in everything] * 2
        if count <= 10:
            ways += [(f"the {NUMBERS[count]} files", ("*",)), (f"each of the {NUMBERS[count]} texts", ("*",))]
    if alike == tuple(sorted(folder.names)):
        pattern = (f"*.{extension}",)
        ways += [
            (f"{quantity} .{extension} file{plural}", pattern)
            for quantity, plural in (("all", "s"), ("every", ""), ("the", "s"), ("each", ""), ("all of the", "s"))
        ]
        if extension in NAMES_OF_EXTENSIONS:
            several, single = NAMES_OF_EXTENSIONS[extension]
            ways += [(f"all {several}", pattern), (f"every {single}", pattern), (f"the {several}", pattern)]
            ways += [(f"each of the {several}", pattern)]
        if folder.others and all(not name.endswith(f".{extension}") for name in folder.others):
            other = folder.others[0]
            left = f"the .{other.rsplit('.', 1)[1]} file" if len(folder.others) == 1 and "." in other else "the others"
            ways += [
                (f"all .{extension} files but not {left}", pattern),
                (f"the .{extension} files except {left}", pattern),
                (f"every .{extension} file, but leave out {left}", pattern),
            ]
        if folder.others:
            excluded = folder.others[0] if len(folder.others) == 1 else "the other files"
            ways += [(f"all .{extension} files, but not {excluded}", pattern)]
    if folder.kind is not None:
        singular, plural = folder.kind
        names = pattern_of(folder.names, folder.listed)
        counted = f"the {NUMBERS[count]} {plural}" if count <= 10 else f"all {plural}"
        for phrase in (f"every {singular}", f"all {plural}", f"each {singular}", f"the {plural}", counted):
            ways += [(phrase, names)] * (6 if len(names) == 1 else 3)
        ways += [(f"each of the {plural}", names), (f"each of {counted}" if count <= 10 else counted, names)] * 2
        ways += [(f"all of the {plural}", names), (f"every single {singular}", names)]
    if count > 12:
        ways = [(phrase, names) for phrase, names in ways if len(names) == 1] or [(_named(folder)[0], folder.names)]
    phrase, names = draw.choice(ways)
    return Reference(phrase, names, folder.names)


def _named(folder: Folder) -> tuple[str, tuple[str, ...]]:
    return listing(folder.names), folder.names


def _described(folder: Folder, index: int) -> str:
    """Return how people speak of one file of a series: `the CV of Adams`, `the March minutes`, `the second offer`."""
    assert folder.kind is not None, "only a series is described"
    singular, label = folder.kind[0], folder.labels[index]
    match folder.style:
        case "numbered":
            number = int(label)
            ordinal = number <= len(ORDINALS) and folder.labels[0] == "1"
            return f"the {ORDINALS[number - 1]} {singular}" if ordinal else f"{singular} {label}"
        case "person" | "place":
            return f"the {singular} of {label}" if len(label) % 2 else f"the {singular} from {label}"
        case "ordinal":
            return f"the {label} {singular}"
        case "month":
            return f"the {label} {singular}" if len(label) % 2 else f"the {singular} of {label}"
        case _:
            return f"the {singular} about the {label}"


def _described_together(folder: Folder, indexes: Sequence[int]) -> list[str]:
    """Return ways in which people speak of some files of a series: `offers 1 to 3`, `the CVs of Adams and Brown`."""
    assert folder.kind is not None, "only a series is described"
    labels = [folder.labels[index] for index in indexes]
    plural = folder.kind[1]
    ways = [f"the {listing(labels)} {plural}"]
    match folder.style:
        case "numbered":
            numbers = [int(label) for label in labels]
            ways = [f"{plural} {listing(labels)}", f"the {plural} with the numbers {listing(labels)}"]
            if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
                ways = [f"{plural} {labels[0]} to {labels[-1]}", f"the {plural} from {labels[0]} to {labels[-1]}"]
            if numbers[-1] <= len(ORDINALS):
                ordinals = [ORDINALS[number - 1] for number in numbers]
                ways += [f"the {listing([f'{ordinal} {folder.kind[0]}' for ordinal in ordinals])}"]
            if list(indexes) == list(range(len(indexes))):
                ways += [f"the first {NUMBERS[len(indexes)]} {plural}"]
        case "person" | "place":
            ways = [f"the {plural} of {listing(labels)}", f"the {plural} from {listing(labels)}"]
        case "month":
            ways += [f"the {plural} of {listing(labels)}", f"the {plural} for {listing(labels)}"]
        case "ordinal":
            ways = [f"the {listing(labels)} {folder.kind[0]}", f"the {' and the '.join(labels)} {folder.kind[0]}"]
        case "part":
            ways = [f"the {plural} about the {listing(labels)}", f"the {listing(labels)} {plural}"]
    return ways
