"""Find the files in the text of a chat. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.jobs.job import BenchJob

HOW_TO_MARK_FILES: Final = "Write each file that is asked for in a fenced code block below a line with its name."
_FENCE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(
    r"\s*(?:#|//|--|<!--|/\*|;)+\s*(?:file(?:name)?:?\s*)?(.*?)\s*(?:-->|\*/)?\s*$", re.IGNORECASE
)


def question_of(job: BenchJob) -> str:
    """Return the one message that asks a chat: the files under their names, then the request."""
    pasted = (f"{name}:\n```\n{text.rstrip()}\n```" for name, text in job.files.items())
    marking = [HOW_TO_MARK_FILES] if job.outputs else []
    return "\n\n".join([*pasted, job.request, *marking])


def files_in(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the files of these names that a text has.

    A block of code belongs to the name in the line above it, in its info string, or in a comment in its first line. A
    line that is nothing but a name starts a file inside a block or in a text without blocks. If only one file is
    wanted, then the last block is that file, or all of the text if it has no block.
    """
    blocks = [match.group(3) for match in _FENCE.finditer(text)]
    files = {name: block for block, block_names in _blocks(text, names) for name in block_names}
    for part in [*blocks, *([] if blocks else [text])]:
        files |= _sections(part, names)
    if len(names) == 1 and not files:
        content = blocks[-1] if blocks else text
        return {names[0]: content} if content.strip() else {}
    return files


def _sections(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the parts of a text that follow lines with nothing but a name."""
    starts = re.compile(rf"^[#*`\s]*({'|'.join(map(re.escape, names)) or '(?!)'})[:*`\s]*$", re.MULTILINE)
    places = [*starts.finditer(text)]
    ends = [*(place.start() for place in places[1:]), len(text)]
    parts = {place.group(1): text[place.end() : end] for place, end in zip(places, ends, strict=False)}
    # A line of hyphens that parts two files belongs to neither.
    return {name: re.sub(r"\n-{3,}\s*$", "\n", part).lstrip("\n") for name, part in parts.items() if part.strip()}


def _blocks(text: str, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each block of code with the names that it belongs to, at most one."""
    end = 0
    for match in _FENCE.finditer(text):
        above = text[end : match.start()].strip().rpartition("\n")[2]
        content, end = match.group(3), match.end()
        first, _, rest = content.partition("\n")
        if block_names := _named(match.group(2), names) or _named(above, names):
            yield content, block_names
        elif (comment := _COMMENT.fullmatch(first)) and (block_names := _named(comment.group(1), names)):
            yield rest if content.count("\n") > 1 else content, block_names


def _named(line: str, names: Sequence[str]) -> list[str]:
    """Return the name that a line has; of several the last, since that is nearest to the block."""
    ends = {
        name: [match.end() for match in re.finditer(rf"(?<![\w./-]){re.escape(name)}(?!\w)", line)] for name in names
    }
    return sorted((name for name in names if ends[name]), key=lambda name: ends[name][-1])[-1:]
