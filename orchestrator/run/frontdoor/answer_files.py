"""Find the files in a direct answer to a request that was not understood to want files.

The answer shows what the words of the request may not: it has the file in a fenced block. `apply` writes such a file
into the user's folder, so a wrong file is worse than none.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Final

from orchestrator.run.fences import LANGUAGES, FencedBlock, blocks_of, is_code, is_unnamed, languages_of
from orchestrator.run.frontdoor.doubts import unreadable
from orchestrator.run.frontdoor.references import with_folders
from orchestrator.run.frontdoor.request import ENDINGS, MAX_INSTRUCTION, PRODUCTS, instruction
from orchestrator.run.frontdoor.sentences import tokens_of
from orchestrator.run.frontdoor.words import folded
from orchestrator.task.taskir.fields import ARTIFACT
from orchestrator.task.taskir.models import compose_name, find_name

LEAST_ALIKE: Final = 0.5  # share of pieces that a file and its new version have in common
_TITLE_WORDS: Final = 2  # "File: a.toml"; a longer line may say anything about the file
_EXCERPT = re.compile(
    r"\b(?:excerpts?|snippets?|fragments?|(?:part|section)s? of|only the|auszug|ausschnitt|teil (?:von|der|des)|nur die"
    r"|extraits?|partie (?:de|du)|extracto|fragmentos?|parte (?:de|del))\b"
)
# a line in place of others: dots, or a comment about them
_LEFT_OUT = re.compile(
    r"\s*(?:(?:#|//|--|/\*|<!--|;|%)\W*)?(?:\.{3}|…)"
    r"|\s*(?:#|//|--|/\*|<!--|;|%).*(?:\.{3}|…|\b(?:rest|remain\w*|unchanged|unverandert\w*|restlich\w*|reste|inchange\w*"
    r"|resto|sin cambios)\b)"
)


def files_in_answer(answer: str, request: str, inputs: Mapping[str, str], files: Collection[str]) -> dict[str, str]:
    """Return the texts of the files that an answer contains in fenced blocks, by name.

    A block is a file if it carries the name of one that was read, or of a new one that the request names. The only
    block needs no name if the request names one file in its language, and neither does the only one in the language of
    a new file. A file that was read is only replaced by a text
    that is like it as a whole and has something new. `inputs` are the texts that were read, by name; `files` are all
    names that the request may refer to.
    """
    blocks = [block for block in blocks_of(answer) if block.size]
    if not blocks:
        return {}
    spoken = _names_in(instruction(request)) if len(request) <= MAX_INSTRUCTION else ()
    existing = {*files, *inputs}
    taken = with_folders(existing)
    new = (name for name in (*spoken, *_converted(request, inputs)) if _is_new(name, existing, taken))
    names = dict.fromkeys((*inputs, *new))
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for block in blocks:
        name = _carried(block, names)
        if name is None and (name := _only_of_kind(block, spoken, names)):
            # Another block may show how to use a new file, or be the new version of a file that was read.
            rivals = blocks if name in inputs else [other for other in blocks if other.language == block.language]
            name = name if len(rivals) == 1 else None
        text = _text(block, name, inputs.get(name)) if name else None
        if name and text:
            texts[name].append(text)
    return {name: text for name, (text, *others) in texts.items() if not others}


def _names_in(text: str) -> tuple[str, ...]:
    # an asterisk may be emphasis
    names = (token.text for token in tokens_of(compose_name(text).replace("*", " ")) if token.name)
    return tuple(dict.fromkeys(name for name in names if _ending(name)[1:] in ENDINGS and name.lower() not in PRODUCTS))


def _converted(request: str, inputs: Iterable[str]) -> list[str]:
    # "the same settings as TOML" names settings.toml if settings.ini was read
    spoken = re.split(r"\W+", folded(instruction(request)))
    endings = [ending for ending, languages in LANGUAGES.items() if not set(languages.split()).isdisjoint(spoken)]
    return [str(PurePosixPath(name).with_suffix(ending)) for name in inputs for ending in endings]


def _is_new(name: str, existing: Collection[str], taken: Collection[str]) -> bool:
    # A file that was not read is not replaced, and no file is in the place of a folder. `taken` has the folders, too.
    if re.search(ARTIFACT, name) is None or is_unnamed(name) or any(map(_names_in, name.split("/")[:-1])):
        return False
    means_other = "/" not in name and any(_last(file) == name for file in existing)
    return not means_other and name not in taken and with_folders([name]).isdisjoint(existing)


def _carried(block: FencedBlock, names: Collection[str]) -> str | None:
    # None if the block carries no name; empty if it carries several, or that of another file
    carried = _own_names(block) or _names_in(block.lead)
    if not carried:
        return None
    return _resolved(carried[0], names) if len(carried) == 1 else ""


def _own_names(block: FencedBlock) -> tuple[str, ...]:
    return _names_in(f"{block.info}\n{block.comment}")


def _resolved(word: str, names: Collection[str]) -> str:
    if (name := find_name(word, names)) is not None:
        return name
    same = [name for name in names if "/" not in word and _last(name) == word]
    return same[0] if len(same) == 1 else ""


def _only_of_kind(block: FencedBlock, spoken: Iterable[str], names: Collection[str]) -> str | None:
    words = (word for word in spoken if is_code(word) and block.language in languages_of(word))
    of_kind = {_resolved(word, names) for word in words}
    return of_kind.pop() if len(of_kind) == 1 else None


def _text(block: FencedBlock, name: str, original: str | None) -> str | None:
    # the file in a block that stands for `name`; None if the block is something else
    if block.is_use_of(name) or _EXCERPT.search(folded(block.lead)):
        return None
    is_titled = bool(_own_names(block)) or len(block.lead.split()) <= _TITLE_WORDS
    if not block.language and original is None and not is_titled:
        return None
    if block.language and block.language not in languages_of(name):
        return None
    text, old = block.text.strip("\n").rstrip(), (original or "").splitlines()
    first, _, rest = text.partition("\n")
    if block.comment and _last(block.comment) == _last(name) and first not in old:
        text = rest.strip("\n")
    if unreadable(name, text) or any(_LEFT_OUT.match(folded(line)) for line in text.splitlines() if line not in old):
        return None
    return text if original is None or _is_version(text, original, name) else None


def _is_version(text: str, original: str, name: str) -> bool:
    old, new = _pieces(original, name), _pieces(text, name)
    if sorted(old) == sorted(new):  # in another order or layout, or repaired
        return _lines(text) != _lines(original)
    matcher = SequenceMatcher(None, old, new)
    changes = matcher.get_opcodes()
    # What has only lost something may be a selection, and what has lost its start or its end an excerpt.
    is_selection = all(tag in ("equal", "delete") for tag, *_ in changes)
    edges = (changes[0], changes[-1])
    is_excerpt = any(end - start > new_end - new_start for _, start, end, new_start, new_end in edges)
    return not is_selection and not is_excerpt and matcher.ratio() >= LEAST_ALIKE


def _pieces(text: str, name: str) -> list[str]:
    # Of data the values, whose layout and quotes may change; of code the lines, of prose the words.
    if _ending(name) in (".json", ".csv", ".tsv"):
        return list(filter(None, (re.sub(r"[\s\"']", "", piece) for piece in re.split(r"[,;\t{}\[\]\n]", text))))
    return _lines(text) if is_code(name) else text.split()


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _ending(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _last(name: str) -> str:
    return compose_name(name).rpartition("/")[2]
