"""Shell: what to do with files → one command line."""

import shlex
from random import Random

from orchestrator.bench.families.example import Example, pick_persona, step_example
from orchestrator.bench.families.words import Lexicon, Split, WordingPool

ACTIONS = WordingPool(
    (
        "Write a shell command that {p}.",
        "Write a shell command that {p}.",
        "Write a shell command that {p}.",
        "Write a command that {p}.",
        "Give me a shell command that {p}.",
        "I need a command that {p}.",
        "Please write a shell command that {p}.",
        "Which shell command {p}?",
        "Make a shell command that {p}.",
        "Write one line of shell that {p}.",
        "Show the command that {p}.",
        "Could you write a command that {p}?",
    ),
    (
        "I need a shell command that {p}.",
        "Please give me a command that {p}.",
        "Write one command that {p}.",
        "Could you write a shell command that {p}?",
        "Which command {p}?",
    ),
)
# {f} and {g} stand for files, {d} and {e} for folders, {w} for a word, {n} for a number, {x} for an extension.
COMMANDS = (
    ("wc -l {f}", ("counts the lines of {f}", "counts the lines in {f}")),
    ("wc -w {f}", ("counts the words of {f}", "counts the words in {f}")),
    ("head -n {n} {f}", ("shows the first {n} lines of {f}", "prints the first {n} lines of {f}")),
    ("tail -n {n} {f}", ("shows the last {n} lines of {f}", "prints the last {n} lines of {f}")),
    ("grep {w} {f}", ("finds {w} in {f}", "searches {f} for {w}")),
    ("grep -c {w} {f}", ("counts the lines with {w} in {f}", "counts the lines of {f} that contain {w}")),
    ("grep -v {w} {f}", ("shows the lines of {f} without {w}", "prints the lines of {f} that lack {w}")),
    ("grep -r {w} {d}", ("finds {w} in the folder {d}", "searches the folder {d} for {w}")),
    ("sort {f}", ("sorts {f}", "sorts the lines of {f}")),
    ("sort -r {f}", ("sorts {f} in reverse", "sorts the lines of {f} in reverse order")),
    ("sort -u {f}", ("sorts {f} without duplicates", "shows the different lines of {f} sorted")),
    ("cat {f}", ("shows {f}", "prints {f}")),
    ("cat {f} {g}", ("shows {f} and {g}", "prints {f} followed by {g}")),
    ("cp {f} {g}", ("copies {f} to {g}", "makes a copy of {f} named {g}")),
    ("mv {f} {g}", ("renames {f} to {g}", "moves {f} to {g}")),
    ("rm {f}", ("removes {f}", "deletes {f}")),
    ("diff {f} {g}", ("shows the differences of {f} and {g}", "compares {f} with {g}")),
    ("touch {f}", ("creates the empty file {f}", "makes an empty file {f}")),
    ("mkdir -p {d}", ("creates the folder {d}", "makes a folder {d}")),
    ("ls {d}", ("lists the folder {d}", "lists the files in {d}")),
    ("ls -S {d}", ("lists the files in {d} by size", "lists the folder {d} sorted by size")),
    ("ls -t {d}", ("lists the files in {d} by age", "lists the folder {d} sorted by age")),
    ("du -sh {d}", ("shows the size of the folder {d}", "prints how large {d} is")),
    ("find {d} -name '*.{x}'", ("finds the {x} files in {d}", "lists all {x} files below {d}")),
    ("chmod +x {f}", ("makes {f} executable", "allows {f} to be run")),
    ("ln -s {f} {g}", ("links {g} to {f}", "makes a link {g} to {f}")),
    ("tar -czf {d}.tar.gz {d}", ("packs the folder {d}", "puts the folder {d} into an archive")),
    ("cut -d , -f {n} {f}", ("shows column {n} of {f}", "prints column {n} of {f}")),
    ("sed s/{w}/{v}/g {f}", ("replaces {w} by {v} in {f}", "changes {w} to {v} in {f}")),
    ("python {f}", ("runs {f}", "runs {f} with Python")),
)


def make_command(words: Lexicon) -> tuple[str, str]:
    """Return a command line and the phrase that says what it does."""
    rng = words.rng
    command, phrases = rng.choice(COMMANDS)
    names: dict[str, str | int] = {
        "f": words.file(),
        "g": words.file(),
        "d": words.stem() if rng.random() < 0.7 else f"{words.word()}/{words.word()}",
        "w": words.word(),
        "v": words.word(),
        "n": rng.randint(1, 60),
        "x": rng.choice(("txt", "md", "csv", "json", "log", "py", words.word()[:3])),
    }
    if command.startswith(("python", "chmod")):
        names["f"] = f"{words.stem()}.{'py' if command.startswith('python') else 'sh'}"
    return command.format(**names), rng.choice(phrases).format(**names)


class Shell:
    """The task of writing a command. The persona does not change the answer, because a command is terse in any case."""

    name = "shell"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example."""
        words = Lexicon(rng, split)
        command, phrase = make_command(words)
        wording = ACTIONS.pick(rng, split)
        persona = pick_persona(rng, ())
        return step_example(self.name, rng, persona, [], wording.format(p=phrase), command, wording)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether the shell would split `answer` into the words of the reference."""
        try:
            return shlex.split(answer) == shlex.split(example.answer)
        except ValueError:
            return False
