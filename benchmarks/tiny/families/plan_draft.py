"""Collect the files, parts and wordings of one plan while its request is written."""

from pathlib import PurePosixPath
from typing import Any

from benchmarks.tiny.words import Lexicon, Split, WordingPool, listing
from orchestrator.frontdoor.compact import Part, plan_text
from orchestrator.steps.prompt import after_parts

MAX_FILES = 10


class Draft:
    """A plan in the making. `files` are those used so far; distractors join them when they are listed."""

    def __init__(self, words: Lexicon, split: Split) -> None:
        self.words = words
        self.rng = words.rng
        self.split = split
        self.files: list[str] = []
        self.parts: list[Part] = []
        self.wordings: list[str] = []
        self.complete = False
        self.done = 0
        self.found = ""
        # Some folders hold a.txt, b.txt, …: names that are no made-up words.
        self.series = iter("abcdefghijklmnop") if self.rng.random() < 0.2 else None
        self.extension = self.rng.choice(("txt", "md", "csv", "json", "log"))
        self.by_stem = self.rng.random() < 0.45

    def word_as(self, pool: WordingPool) -> str:
        """Return a wording of `pool` and remember it."""
        wording = pool.pick(self.rng, self.split)
        self.wordings.append(wording.strip())
        return wording

    def take(self, count: int) -> list[str]:
        """Return `count` new files."""
        taken = [self._file() for _ in range(count)]
        self.files += taken
        return taken

    def _file(self) -> str:
        stem = next(self.series, None) if self.series else None
        if stem:
            return f"{stem}.{self.extension}"
        return f"{self.words.stem()}.{self.extension}" if self.rng.random() < 0.6 else self.words.file()

    def called(self, files: list[str]) -> tuple[str, ...]:
        """Return how the request and the plan call `files`: by name or by stem."""
        return tuple(PurePosixPath(name).stem for name in files) if self.by_stem else tuple(files)

    def refer(self, files: list[str]) -> str:
        """Return `files` as the request enumerates them."""
        names = self.called(files)
        roll = self.rng.random()
        if len(names) > 1 and roll < 0.12:
            return f"the files {listing(names)}"
        if len(names) > 2 and roll < 0.22:
            return f"{', '.join(names[:-1])}, and {names[-1]}"
        return listing(names)

    def add(self, role: str, action: str, **more: Any) -> str:
        """Append a part and return its name. `more` are other fields of it."""
        self.parts.append(Part(role=role, action=action, **more))
        return f"P{len(self.parts)}"

    def change_last(self, **fields: Any) -> None:
        """Give fields of the last part other values."""
        self.parts[-1] = self.parts[-1].model_copy(update=fields)

    def leaves(self, start: int = 0) -> tuple[str, ...]:
        """Return the parts from `start` on that no other part reads or waits for."""
        used = {name for part in self.parts for name in (*part.each, *part.inputs, part.foreach, *part.after)}
        return tuple(name for i in range(start, len(self.parts)) if (name := f"P{i + 1}") not in used)

    def order_after(self, start: int, names: tuple[str, ...]) -> None:
        """Let the parts from `start` on that read none of these wait for `names`."""
        made = {f"P{i + 1}" for i in range(start, len(self.parts))}
        for index, part in enumerate(self.parts[start:], start):
            if not made.intersection((*part.each, *part.inputs, part.foreach, *part.after)):
                self.parts[index] = part.model_copy(update={"after": names})

    def listed_files(self) -> list[str]:
        """Return the files to list: those used and, unless the request takes all, distractors among them."""
        files = list(self.files)
        if self.complete or (not files and self.rng.random() < 0.6):
            return files
        for _ in range(self.rng.choice((0, 0, 0, 1, 2, 3))):
            if len(files) < MAX_FILES:
                files.append(self._file())
        # A folder is listed in order of name; a hand-written list may have any order.
        return sorted(files) if self.rng.random() < 0.6 else self.rng.sample(files, len(files))

    def finish_first(self, output: str) -> None:
        """Let the first part be done, with this output: only the rest is still to be planned."""
        self.done, self.found = 1, output

    def progress(self, request: str) -> str:
        """Return `request` as the frontdoor reads it, with what is done so far."""
        if not self.done:
            return request
        return after_parts(request, plan_text(self.parts[: self.done]), f"P{self.done}", self.found)

    def render(self) -> str:
        """Return the plan, or what is left of it, as the frontdoor writes it."""
        return plan_text(self.parts[self.done :])
