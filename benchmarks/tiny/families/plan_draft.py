"""Collect the files, steps and wordings of one plan while its request is written."""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from benchmarks.tiny.families.extract import compact
from benchmarks.tiny.words import Lexicon, Pool, Split, listing
from orchestrator.steps.prompt import after_steps

MAX_FILES = 10


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step in the compact form that the frontdoor emits. `S1` names the output of the first step."""

    role: str
    action: str
    inputs: tuple[str, ...] = ()
    foreach: str = ""
    output: str = ""
    after: tuple[str, ...] = ()
    replan: bool = False

    def as_dict(self) -> dict[str, object]:
        """Return the step with its optional keys only where they say something."""
        optional = {"foreach": self.foreach, "output": self.output, "after": list(self.after), "replan": self.replan}
        required = {"role": self.role, "action": self.action, "inputs": list(self.inputs)}
        return {**required, **{key: value for key, value in optional.items() if value}}


class Draft:
    """A plan in the making. `files` are those used so far; distractors join them when they are listed."""

    def __init__(self, words: Lexicon, split: Split) -> None:
        self.words = words
        self.rng = words.rng
        self.split = split
        self.files: list[str] = []
        self.steps: list[PlannedStep] = []
        self.wordings: list[str] = []
        self.complete = False
        self.done = 0
        self.found = ""
        # Some folders hold a.txt, b.txt, …: names that are no made-up words.
        self.series = iter("abcdefghijklmnop") if self.rng.random() < 0.2 else None
        self.extension = self.rng.choice(("txt", "md", "csv", "json", "log"))
        self.by_stem = self.rng.random() < 0.45

    def word_as(self, pool: Pool) -> str:
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

    def refer(self, files: list[str]) -> str:
        """Return how the request calls `files`: by name or by stem."""
        names = [PurePosixPath(name).stem for name in files] if self.by_stem else files
        roll = self.rng.random()
        if len(names) > 1 and roll < 0.12:
            return f"the files {listing(names)}"
        if len(names) > 2 and roll < 0.22:
            return f"{', '.join(names[:-1])}, and {names[-1]}"
        return listing(names)

    def add(self, role: str, action: str, inputs: tuple[str, ...] = (), foreach: str = "") -> str:
        """Append a step and return the name of its output."""
        self.steps.append(PlannedStep(role, action, inputs, foreach))
        return f"S{len(self.steps)}"

    def name_output(self, output: str) -> None:
        """Give the last step's output a file name."""
        self.steps[-1] = replace(self.steps[-1], output=output)

    def replan_after_last(self) -> None:
        """Let the plan end with the last step, to be continued when its output is known."""
        self.steps[-1] = replace(self.steps[-1], replan=True)

    def leaves(self, start: int = 0) -> tuple[str, ...]:
        """Return the steps from `start` on that no other step reads."""
        read = {name for step in self.steps for name in (*step.inputs, step.foreach)}
        return tuple(f"S{i + 1}" for i in range(start, len(self.steps)) if f"S{i + 1}" not in read)

    def order_after(self, start: int, names: tuple[str, ...]) -> None:
        """Let the steps from `start` on that read no step wait for `names`."""
        for index in range(start, len(self.steps)):
            step = self.steps[index]
            made = {f"S{i + 1}" for i in range(start, len(self.steps))}
            if not made.intersection((*step.inputs, step.foreach, *step.after)):
                self.steps[index] = replace(step, after=names)

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
        """Let the first step be done, with this output: only the rest is still to be planned."""
        self.done, self.found = 1, output

    def progress(self, request: str) -> str:
        """Return `request` as the frontdoor reads it, with what is done so far."""
        if not self.done:
            return request
        return after_steps(request, self._rendered(self.steps[: self.done]), f"S{self.done}", self.found)

    def render(self) -> str:
        """Return the plan, or what is left of it, as the frontdoor writes it."""
        return self._rendered(self.steps[self.done :])

    @staticmethod
    def _rendered(steps: list[PlannedStep]) -> str:
        return compact({"steps": [step.as_dict() for step in steps]})
