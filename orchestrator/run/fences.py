"""Take a file out of a model's answer, with prose, examples and fences (``` or ~~~) around it."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

# What a fence calls the languages of code, settings and data, by file suffix. No prose may stand around a fenced
# block in such a file.
LANGUAGES: Final = {
    ".bash": "bash sh shell",
    ".bat": "bat batch cmd",
    ".c": "c",
    ".cc": "cpp c++ cc",
    ".cfg": "cfg ini",
    ".cpp": "cpp c++ cc",
    ".cs": "csharp cs c#",
    ".css": "css",
    ".csv": "csv",
    ".go": "go golang",
    ".h": "c cpp c++ h",
    ".hpp": "cpp c++ hpp",
    ".html": "html",
    ".ini": "ini cfg",
    ".java": "java",
    ".js": "javascript js node",
    ".json": "json json5 jsonc",
    ".jsx": "jsx javascript js",
    ".kt": "kotlin kt",
    ".lua": "lua",
    ".php": "php",
    ".pl": "perl pl",
    ".ps1": "powershell ps1",
    ".py": "python py python3",
    ".pyi": "python py pyi python3",
    ".r": "r",
    ".rb": "ruby rb",
    ".rs": "rust rs",
    ".scala": "scala",
    ".sh": "bash sh shell zsh",
    ".sql": "sql mysql postgresql postgres sqlite",
    ".svg": "svg xml",
    ".swift": "swift",
    ".toml": "toml",
    ".ts": "typescript ts",
    ".tsv": "tsv csv",
    ".tsx": "tsx typescript ts",
    ".xml": "xml",
    ".yaml": "yaml yml",
    ".yml": "yaml yml",
    ".zsh": "zsh bash sh shell",
}
_DATA: Final = frozenset((".csv", ".tsv", ".json"))
_MARKDOWN: Final = frozenset(("md", "markdown"))
_TEXT: Final = frozenset(("", "text", "txt", "plaintext", *_MARKDOWN))
# The name of an answer to which nobody gave one: sentences around its text may be what was asked for.
_UNNAMED = re.compile(r"s\d+(?:-output)*\.\w+\Z")
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*?)[ \t]*\Z")
# The start of a string of several lines, or of a here-document.
_STRING = re.compile(
    r"(?<!`)(?P<quote>\"\"\"|''')(?!`)|<<[-~]?[ \t]*(?P<mark>['\"]?)(?P<end>[A-Z_][A-Z_0-9]+|eof|end)(?P=mark)"
)
_EXAMPLE = re.compile(
    r"\b(?:examples?|usage|beispiele?|ejemplos?|exemples?|utilisation)\b|"
    r"\A\W*(?:use|run|install|outputs?|try|call|ausgabe|aufruf|uso|salida|sortie)\b",
    re.IGNORECASE,
)
_NAME_IN_COMMENT = re.compile(r"(?:#|//|--|;|/\*|<!--|%)+\s*(?:file(?:name)?:\s*)?(?P<name>[^\s*]+)\s*(?:\*/|-->)?\Z")
_SIGNS = re.compile(r"[=(){}\[\];<>|$@\\]|^\s+\S")
_CAPITAL = re.compile(r"[\W\d_]*[A-ZÀ-ÖØ-Þ](?:\S*\s+\S|\w*[.:!?]\Z)")
_CONSTANT = re.compile(r"[A-Z_]{2,}\b")
_COMMENT = re.compile(r"\s*(?:#|//|--|/\*)")
_SENTENCE = re.compile(r"\S+(?:\s+\S+){2,}[.:!?]\Z")
_PREAMBLE = re.compile(
    r"(?:sure|certainly|of course|okay|here|the following|below|natürlich|gerne|hier|bien sûr|voici|"
    r"claro|por supuesto|aquí)\b[^\n]*:[ \t]*\Z",
    re.IGNORECASE,
)
_RULE = re.compile(r"-{3,}|\*{3,}|_{3,}")
_FILE_NAME = re.compile(r"[\w./-]*\w\.\w+\Z")
# What stands around the name of a file in a line of its own, such as `### a.py`, `[a.py]` or `# --- a.py ---`.
_AROUND_NAME: Final = " \t`'\"*#_:[](){}=/;%<>!-"
_TESTS = re.compile(r"\b(?:unit ?)?(?:tests?|testfälle|pruebas?)\b", re.IGNORECASE)
# A line that speaks to the one who asked, and cannot be the first of a text; "Here is our offer:" can.
_CONSENT = re.compile(
    r"(?:sure|certainly|of course|okay|natürlich|gerne|bien sûr|claro|por supuesto)\b[!,.:][^\n]*:[ \t]*\Z",
    re.IGNORECASE,
)
# In these files no line outside of comments and strings is a sentence.
_PROGRAMS: Final = frozenset(
    ".bash .c .cc .cpp .cs .go .h .hpp .java .js .jsx .kt .lua .pl .ps1 .py .pyi .r .rb .rs .scala .sh .swift .ts .tsx "
    ".zsh".split()
)


@dataclass(frozen=True, slots=True)
class FencedBlock:
    info: str  # behind the opening fence, such as the language
    text: str  # without the indentation of the opening fence
    before: str  # the text since the previous block

    @property
    def size(self) -> int:
        """Characters that are not white space."""
        return len("".join(self.text.split()))

    @property
    def language(self) -> str:
        """The language that the fence names, in lower case; empty for none."""
        return _language(self.info)

    @property
    def lead(self) -> str:
        """The last line before it."""
        return self.before.strip().rpartition("\n")[2]

    @property
    def comment(self) -> str:
        """The name in its first line, if that is a comment with one word; else empty."""
        lines = self.text.strip().splitlines()
        match = _NAME_IN_COMMENT.match(lines[0].strip()) if lines else None
        return match["name"] if match else ""

    def is_use_of(self, name: str) -> bool:
        """Return whether the line before it says that it is an example, or uses or tests the file `name`."""
        # The block below "Some tests for a.py:" is not a.py.
        return _EXAMPLE.search(self.lead) is not None or (not _is_test(name) and _TESTS.search(self.lead) is not None)


def is_code(name: str) -> bool:
    return _ending(name) in LANGUAGES


def is_program(name: str) -> bool:
    """Return whether a coder writes a file of this name: code or settings, but no table or other data."""
    return is_code(name) and _ending(name) not in _DATA


def languages_of(name: str) -> Collection[str]:
    """Return what a fence around the file `name` may call its language, none among it for a text."""
    return LANGUAGES[_ending(name)].split() if is_code(name) else _TEXT


def is_unnamed(name: str) -> bool:
    """Return whether an output has the name of an answer to which nobody gave one, such as `s1.txt`."""
    return _UNNAMED.match(name) is not None


def file_text(answer: str, name: str, reads: Collection[str] = ()) -> str:
    """Return the text of the file `name` in an answer, without what stands around it.

    For code this is the fenced block that belongs to the file by its name or language, else the largest one; an answer
    without a fence is taken as it is. Of several files in one text, each below its name, only this one is returned.
    Other text keeps its fences, except those that enclose all of it. A first line with only the file's name is left
    out, and so is one that prompts have above one of the texts that were read (`reads`).
    """
    if is_code(name):
        return _without_mark(_without_title(_code(answer, name), name), reads)
    stripped = strip_fence(_without_title(answer, name))
    text = _without_title(stripped if is_unnamed(name) else _without_address(stripped), name)
    return _without_mark(text, reads)


def strip_fence(text: str) -> str:
    """Return the text without white space around it, and without a code fence that encloses all of it.

    A fence that says markdown may have a sentence before and after it.
    """
    stripped = text.strip()
    lines = stripped.split("\n")
    marks = [(number, fence) for number, line in enumerate(lines) if (fence := _FENCE.match(line))]
    if len(marks) < 2 or not _encloses(lines, marks):
        return stripped
    (first, _), (last, _) = marks[0], marks[-1]
    return _trimmed(_unindented(lines[first + 1 : last], marks[0][1]["indent"]))


def files_text(answer: str, names: Sequence[str]) -> dict[str, str] | None:
    """Return the texts of several files in fenced blocks, by name; None if one is missing.

    A file's name stands behind the opening fence, in the line before it, or in a comment in the block's first line.
    """
    blocks = blocks_of(answer)
    files = {name: _last_named(blocks, name) for name in names}
    return {name: text for name, text in files.items() if text is not None} if None not in files.values() else None


def blocks_of(text: str) -> list[FencedBlock]:
    """Return the fenced blocks of a text in order.

    A fence inside a string of code, such as a docstring, belongs to the code, and blocks in a block of markdown belong
    to that block. A block without an end extends to the next opening fence with a language, or to the end of the text.
    """
    blocks: list[FencedBlock] = []
    outside: list[str] = []
    inside: list[str] = []
    opened: re.Match[str] | None = None
    depth = 0
    for line, fence in _fences(text):
        if fence is None or (opened is not None and not _is_strong(fence, opened)):
            (outside if opened is None else inside).append(line)
            continue
        if opened is not None and (depth or (fence["info"] and _is_markdown(opened))):
            depth += 1 if fence["info"] else -1
            inside.append(line)
            continue
        if opened is not None:
            blocks.append(_block(opened, inside, outside))
            outside = []
        opened, inside = (fence, []) if opened is None or fence["info"] else (None, [])
    return blocks if opened is None else [*blocks, _block(opened, inside, outside)]


def has_code(text: str, name: str) -> bool:
    """Return whether the text of the program `name` has a line that may be code; True for other files."""
    if _ending(name) not in _PROGRAMS:
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    if _ending(name) in (".py", ".pyi"):
        lines = [line for line in lines if not line.lstrip().startswith("#")]
    return not all(is_prose(line) for line in lines)


def is_prose(line: str) -> bool:
    """Return whether a line is a sentence: it starts with a capital letter and has no signs of code."""
    text = re.sub(r"`[^`]*`", "x", line.rstrip())
    if _PREAMBLE.match(text):
        return True
    if not _CAPITAL.match(text) or _CONSTANT.match(text) or _STRING.search(line) or _COMMENT.match(text):
        return False
    # A sentence of three words or more, with its mark at the end, may have such signs.
    return bool(_SENTENCE.match(text)) or not _SIGNS.search(text)


def _ending(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _code(answer: str, name: str) -> str:
    text = _bare_code(answer) if _ending(name) in _PROGRAMS else None
    if text is None:
        blocks = [block for block in blocks_of(answer) if block.size]
        text = max(blocks, key=lambda block: _fit(block, name)).text if blocks else _unfenced(answer)
    text = _section(text, name)
    return _without_prose(text) if _ending(name) in _PROGRAMS else _trimmed(text)


def _section(text: str, name: str) -> str:
    # Of several programs in one text, each below its name, the last version of this one; else the whole text.
    lines, strings = text.split("\n"), _lines_in_strings(text)
    headings = [
        (number, heading)
        for number, line in enumerate(lines)
        if number not in strings and not (number and lines[number - 1].strip()) and (heading := _heading(line))
    ]
    if len({heading for _, heading in headings}) < 2:
        return text
    ends = [*(number for number, _ in headings[1:]), len(lines)]
    sections = [
        lines[start + 1 : end]
        for (start, heading), end in zip(headings, ends, strict=True)
        if _same_file(heading, name)
    ]
    return "\n".join(sections[-1]) if sections else text


def _heading(line: str) -> str:
    # The name of a program that is all of the line; empty if it says anything else.
    name = re.sub(r"(?i)\Afile(?:name)?:\s*", "", line.strip(_AROUND_NAME)) if line[:1].strip() else ""
    return name if _FILE_NAME.match(name) and _ending(name) in _PROGRAMS else ""


def _without_title(answer: str, name: str) -> str:
    # Prompts show files below lines such as `[cart.py]`, and models copy that.
    first, _, rest = answer.lstrip().partition("\n")
    return rest.lstrip("\n") if first.strip().strip("`*:[] ") == name and rest.strip() else answer


def _without_mark(text: str, reads: Collection[str]) -> str:
    # Marks above several parts of the answer are headings of these.
    first, *rest = text.split("\n")
    if not _is_mark(first, reads) or any(_is_mark(line, reads) for line in rest):
        return text
    return "\n".join(rest).strip("\n") or text


def _is_mark(line: str, reads: Collection[str]) -> bool:
    return line.startswith("[") and line.rstrip().endswith("]") and line.rstrip()[1:-1] in reads


def _fit(block: FencedBlock, name: str) -> tuple[bool, bool, int, bool, bool, int]:
    # The greatest fits best.
    fit = 2 if block.language in languages_of(name) else int(not block.language)
    is_named, title = _is_named(block, name), _title(block.lead)
    is_other = bool(title) and not is_named and not _same_file(title, name)
    return is_named, not is_other, fit, not block.is_use_of(name), bool(title) and not is_other, block.size


def _is_named(block: FencedBlock, name: str) -> bool:
    return _mentions(block.info, name) or _same_file(block.comment, name)


def _last_named(blocks: Sequence[FencedBlock], name: str) -> str | None:
    named = [block for block in blocks if _is_named(block, name) or _is_titled(block, name)]
    return _trimmed(named[-1].text) if named else None


def _is_titled(block: FencedBlock, name: str) -> bool:
    return _mentions(block.lead, name)


def _title(lead: str) -> str:
    # The first file that the line before a block names; empty if there is none.
    names = (word.strip(f"{_AROUND_NAME},.") for word in re.split(r"[\s=]+", lead))
    return next((name for name in names if _FILE_NAME.match(name) and is_code(name)), "")


def _is_test(name: str) -> bool:
    return PurePosixPath(name).stem.startswith("test_")


def _mentions(line: str, name: str) -> bool:
    return any(_same_file(word.strip("`*_#:()[]{}\"'.,=<>"), name) for word in re.split(r"[\s:=]+", line))


def _same_file(word: str, name: str) -> bool:
    return word.removeprefix("./") == name


def _bare_code(answer: str) -> str | None:
    # The code before the first fence, if a stray fence ends it or a fenced example follows; None if the code stands in
    # a block, or there is no fence.
    lines = answer.split("\n")
    for number, (_, fence) in enumerate(_fences(answer)):
        if fence is not None:
            before, after = _without_prose("\n".join(lines[:number])).split("\n"), lines[number + 1 :]
            is_file = _is_mostly_code(before) and (fence["info"] or not _is_code_up_to_fence(after))
            return "\n".join(before) if is_file else None
    return None


def _unfenced(answer: str) -> str:
    # For an answer whose fences enclose nothing.
    return "\n".join(line for line, fence in _fences(answer) if fence is None)


def _without_prose(text: str) -> str:
    # Only paragraphs before and after the code. If there is nothing but prose, all of it stays.
    lines = text.split("\n")
    strings = _lines_in_strings(text)
    prose = [number not in strings and (not line.strip() or is_prose(line)) for number, line in enumerate(lines)]
    code = [number for number, is_text in enumerate(prose) if not is_text]
    return _trimmed(lines[code[0] : code[-1] + 1] if code else lines)


def _is_code_up_to_fence(lines: Sequence[str]) -> bool:
    # A fenced block ends at the next bare fence, or at the end.
    inside: list[str] = []
    for line in lines:
        if (fence := _FENCE.match(line)) is not None:
            return not fence["info"] and _is_mostly_code(inside)
        inside.append(line)
    return _is_mostly_code(inside)


def _is_mostly_code(lines: Sequence[str]) -> bool:
    # Lines that may be comments of code, headings of prose or titles of files do not count.
    written = [line for line in lines if line.strip() and not _COMMENT.match(line) and not _heading(line)]
    return sum(is_prose(line) for line in written) * 2 < len(written)


def _fences(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    # A fence in a string of code is none.
    strings = _lines_in_strings(text)
    for number, line in enumerate(text.split("\n")):
        yield line, None if number in strings else _FENCE.match(line)


def _lines_in_strings(text: str) -> frozenset[int]:
    # Only a string that ends counts: a quote without an end is a fault of the code, or stands in prose.
    numbers: set[int] = set()
    place = 0
    while (opened := _STRING.search(text, place)) is not None:
        end = _end_of_string(text, opened)
        if end >= 0:
            first = text.count("\n", 0, opened.end()) + 1
            numbers.update(range(first, first + text.count("\n", opened.end(), end)))
        place = max(end + len(opened["quote"] or ""), opened.end())
    return frozenset(numbers)


def _end_of_string(text: str, opened: re.Match[str]) -> int:
    # -1 if it does not end.
    if opened["quote"]:
        return text.find(opened["quote"], opened.end())
    end = re.compile(rf"^[ \t]*{opened['end']}[ \t]*$", re.MULTILINE).search(text, opened.end())
    return end.start() if end else -1


def _is_strong(fence: re.Match[str], opened: re.Match[str]) -> bool:
    # Whether a fence can end the block that `opened` has opened, rather than be a line of it.
    return fence["mark"][0] == opened["mark"][0] and len(fence["mark"]) >= len(opened["mark"])


def _is_markdown(fence: re.Match[str]) -> bool:
    return _language(fence["info"]) in _MARKDOWN


def _language(info: str) -> str:
    return re.split(r"[\s:{,]", info.strip().lstrip("{."), maxsplit=1)[0].lower()


def _block(opened: re.Match[str], inside: Sequence[str], outside: Sequence[str]) -> FencedBlock:
    return FencedBlock(opened["info"], "\n".join(_unindented(inside, opened["indent"])), "\n".join(outside))


def _unindented(lines: Sequence[str], indent: str) -> list[str]:
    # Only if all of them have the indentation of their fence.
    if not all(line.startswith(indent) for line in lines if line.strip()):
        return [*lines]
    return [line.removeprefix(indent) for line in lines]


def _encloses(lines: Sequence[str], marks: Sequence[tuple[int, re.Match[str]]]) -> bool:
    # The first and the last fence enclose the whole text, and the others stand in pairs between.
    (first, opened), (last, closing) = marks[0], marks[-1]
    inner = [fence for _, fence in marks[1:-1] if _is_strong(fence, opened)]
    markdown = _is_markdown(opened)
    if closing["info"] or not _is_strong(closing, opened) or len(inner) % 2:
        return False
    if any(fence["info"] for fence in inner[1::2]) or not all(fence["info"] or markdown for fence in inner[::2]):
        return False
    around = [line for line in (*lines[:first], *lines[last + 1 :]) if line.strip()]
    return not around or (markdown and len(around) <= 2 and not any(line.lstrip().startswith("#") for line in around))


def _without_address(text: str) -> str:
    # Leave out a first line such as "Sure! Here is the letter:", and a last sentence behind a fence or a rule.
    first, _, rest = text.partition("\n")
    if not _PREAMBLE.match(first) or not rest.strip():
        return text
    lines = rest.strip().split("\n")
    marks = [number for number, line in enumerate(lines) if _RULE.fullmatch(line.strip()) or _FENCE.match(line)]
    if len(marks) == 2 and marks[0] == 0 and _language(lines[0].strip("`~-*_ ")) in _TEXT:
        after = [line for line in lines[marks[1] + 1 :] if line.strip()]
        if len(after) <= 1:
            return _trimmed(lines[1 : marks[1]])
    return _trimmed(rest) if _CONSENT.match(first) else text


def _trimmed(text: str | Sequence[str]) -> str:
    return (text if isinstance(text, str) else "\n".join(text)).strip("\n").rstrip()
