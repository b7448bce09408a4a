"""Collect the files, parts and wordings of one plan while its request is written."""

from pathlib import PurePosixPath
from typing import Any

from orchestrator.bench.families.words import Lexicon, Split, WordingPool, listing
from orchestrator.run.frontdoor.compact import Part, plan_text
from orchestrator.run.steps.role import after_parts

MAX_FILES = 10


class Draft:
    """A plan that is being put together. `files` are the files that its parts use so far."""

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
        # In some requests the files are called a.txt, b.txt, …, instead of by made-up words.
        self.series = iter("abcdefghijklmnop") if self.rng.random() < 0.2 else None
        self.extension = self.rng.choice(("txt", "md", "csv", "json", "log"))
        self.by_stem = self.rng.random() < 0.45

    def word_as(self, pool: WordingPool) -> str:
        """Return a wording of `pool`, and add it to `wordings`."""
        wording = pool.pick(self.rng, self.split)
        self.wordings.append(wording.strip())
        return wording

    def take(self, count: int) -> list[str]:
        """Return the names of `count` new files, and add them to `files`."""
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
        """Append a part to the plan and return its name. `more` are other fields of `Part`."""
        self.parts.append(Part(role=role, action=action, **more))
        return f"P{len(self.parts)}"

    def change_last(self, **fields: Any) -> None:
        """Replace the values of these fields of the last part."""
        self.parts[-1] = self.parts[-1].model_copy(update=fields)

    def leaves(self, start: int = 0) -> tuple[str, ...]:
        """Return the parts from `start` on that no other part reads or waits for."""
        used = {name for part in self.parts for name in (*part.each, *part.inputs, part.foreach, *part.after)}
        return tuple(name for i in range(start, len(self.parts)) if (name := f"P{i + 1}") not in used)

    def order_after(self, start: int, names: tuple[str, ...]) -> None:
        """Make the parts from `start` on that read none of the parts `names` wait for them."""
        made = {f"P{i + 1}" for i in range(start, len(self.parts))}
        for index, part in enumerate(self.parts[start:], start):
            if not made.intersection((*part.each, *part.inputs, part.foreach, *part.after)):
                self.parts[index] = part.model_copy(update={"after": names})

    def listed_files(self) -> list[str]:
        """Return the files that the prompt lists: those used and, unless the request takes all, some unused ones."""
        files = list(self.files)
        if self.complete or (not files and self.rng.random() < 0.6):
            return files
        for _ in range(self.rng.choice((0, 0, 0, 1, 2, 3))):
            if len(files) < MAX_FILES:
                files.append(self._file())
        # The files of a folder are listed in order of name; a list that a user wrote may have any order.
        return sorted(files) if self.rng.random() < 0.6 else self.rng.sample(files, len(files))

    def finish_first(self, output: str) -> None:
        """Mark the first part as done with this output, so that only the rest of the plan is asked for."""
        self.done, self.found = 1, output

    def progress(self, request: str) -> str:
        """Return `request` as the frontdoor gives it to the model, with the parts that are done."""
        if not self.done:
            return request
        return after_parts(request, plan_text(self.parts[: self.done]), f"P{self.done}", self.found)

    def render(self) -> str:
        """Return the plan, or the rest of it, as the model has to write it."""
        return plan_text(self.parts[self.done :])
