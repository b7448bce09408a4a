"""Tools: a task and the tools of its step → the next call, or the answer once the results contain it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from random import Random

from benchmarks.tiny.conversations import (
    ToolTask,
    ToolTurn,
    after_call,
    choose_tools,
    example_of,
    open_with_tools,
    phrased,
    schema_of,
    tool_turn,
)
from orchestrator.bench.families import texts
from orchestrator.bench.families.example import Example
from orchestrator.bench.families.texts import Record
from orchestrator.bench.families.words import EXTENSIONS, Lexicon, Split
from orchestrator.run.steps.tools.search_index import Hit, fuse
from orchestrator.task.taskir.json_text import compact_json

LOOKUPS = (
    "find the {k} of {n} in the files",
    "find the {k} of {n}",
    "look up the {k} of {n}",
    "find out the {k} of {n}",
    "search the files for the {k} of {n}",
    "tell me the {k} of {n}",
)
WHICH = ("find the file about {n}", "say which file is about {n}", "find out which file tells of {n}")
READS = (
    "read {f} and give the {k}",
    "get the {k} from {f}",
    "find the {k} in {f}",
    "look up the {k} in {f}",
    "tell me the {k} that {f} gives",
)
COPIES = (
    "copy the {k} from {f} to {o}",
    "read {f} and write the {k} to {o}",
    "write the {k} that {f} gives to {o}",
    "put the {k} from {f} into {o}",
)
LISTS = ("list the {x} files", "list all {x} files", "give the names of the {x} files", "find all {x} files")
ALL_LISTS = ("list all files", "list the files", "give the names of all files", "say which files there are")
WRITES = ('write "{t}" to {o}', 'put "{t}" into {o}', 'save "{t}" as {o}', 'write to {o}: "{t}"')
ADDS = ('note "{t}"', 'add the note "{t}"', 'make a note: "{t}"', 'write down the note "{t}"')
EDITS = ('change note {i} to "{t}"', 'set note {i} to "{t}"', 'edit note {i} so that it says "{t}"')
DROPS = ("drop note {i}", "delete note {i}", "remove the note {i}")
NOTES = ("list the notes", "read the notes", "give all notes", "say which notes there are")
DONE, NOTHING = "done", "not found"


def lines_with_facts(words: Lexicon, record: Record, in_a_line: bool, fillers: int) -> str:
    """Return lines with the facts of the record: all in the line that has its name, or each in a line of its own."""
    body = [texts.inline(record)] if in_a_line else texts.lines(record)
    return "\n".join(texts.with_filler(words, body, fillers))


def matches(files: Mapping[str, str], pattern: str) -> list[dict[str, object]]:
    """Return the lines that contain `pattern`, in the form of the result of the tool `grep`."""
    return [
        {"name": name, "line": number, "text": line}
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern in line
    ]


def _subject(words: Lexicon, in_a_line: bool) -> tuple[str, Record, str, str]:
    """Return the name of a file, the record in it, a key of that record, and the text of the file."""
    rng = words.rng
    record = texts.make_record(words, texts.make_keys(rng, 2, 3))
    text = lines_with_facts(words, record, in_a_line, rng.choice((0, 0, 1, 2)))
    return words.file(), record, rng.choice(record.facts)[0], text


def _lookup(words: Lexicon) -> ToolTask:
    """Return a task that finds a line with grep, and reads the file if the line does not contain the fact."""
    in_a_line = words.rng.random() < 0.6
    file, record, key, text = _subject(words, in_a_line)
    phrase = words.rng.choice(LOOKUPS).format(k=key, n=record.name)
    if words.rng.random() < 0.12:
        return ToolTask(phrase, (tool_turn("grep", [], pattern=record.name),), NOTHING, confusing=frozenset({"search"}))
    search = tool_turn("grep", matches({file: text}, record.name), pattern=record.name)
    turns = (search,) if in_a_line else (search, tool_turn("read_file", text, name=file))
    return ToolTask(phrase, turns, str(record.value(key)), confusing=frozenset({"search"}))


def _hits(words: Lexicon, file: str, text: str) -> list[dict[str, object]]:
    """Return the result of a search: the passage that matches and, half the time, one that matches less."""
    scores = fuse([[0, 1], [0]])
    hits = [Hit(file, scores[0], text)]
    if words.rng.random() < 0.5:
        other = texts.make_record(words, texts.make_keys(words.rng, 2, 2))
        hits.append(Hit(words.file(), scores[1], texts.inline(other)))
    return [{**asdict(hit), "score": round(hit.score, 5)} for hit in hits]


def _search(words: Lexicon) -> ToolTask:
    file, record, key, text = _subject(words, words.rng.random() < 0.5)
    phrase = words.rng.choice(LOOKUPS).format(k=key, n=record.name)
    call = tool_turn("search", _hits(words, file, text), query=f"{record.name} {key}")
    return ToolTask(phrase, (call,), str(record.value(key)), confusing=frozenset({"grep"}))


def _which(words: Lexicon) -> ToolTask:
    file, record, _, text = _subject(words, words.rng.random() < 0.5)
    phrase = words.rng.choice(WHICH).format(n=record.name)
    call = tool_turn("search", _hits(words, file, text), query=record.name)
    return ToolTask(phrase, (call,), file, confusing=frozenset({"grep"}))


def _read(words: Lexicon) -> ToolTask:
    file, record, key, text = _subject(words, words.rng.random() < 0.5)
    phrase = words.rng.choice(READS).format(k=key, f=file)
    return ToolTask(phrase, (tool_turn("read_file", text, name=file),), str(record.value(key)))


def _copy(words: Lexicon) -> ToolTask:
    file, record, key, text = _subject(words, words.rng.random() < 0.5)
    output = words.file()
    value = str(record.value(key))
    phrase = words.rng.choice(COPIES).format(k=key, f=file, o=output)
    return ToolTask(phrase, (tool_turn("read_file", text, name=file), _writing(output, value)), DONE, (output,))


def _write(words: Lexicon) -> ToolTask:
    output, text = words.file(), texts.filler(words)
    return ToolTask(words.rng.choice(WRITES).format(t=text, o=output), (_writing(output, text),), DONE, (output,))


def _writing(output: str, text: str) -> ToolTurn:
    return tool_turn("write_artifact", f"wrote {output}, {len(text)} characters", name=output, text=text)


def _list(words: Lexicon) -> ToolTask:
    rng = words.rng
    every = rng.random() < 0.4
    extension = rng.choice(EXTENSIONS)
    names = sorted(words.file() if every else f"{words.stem()}.{extension}" for _ in range(rng.randint(1, 4)))
    phrase = rng.choice(ALL_LISTS if every else LISTS).format(x=extension)
    call = tool_turn("list_files", names) if every else tool_turn("list_files", names, pattern=f"*.{extension}")
    return ToolTask(phrase, (call,), "\n".join(names))


def _notes(words: Lexicon) -> ToolTask:
    """Return a task that adds, edits, drops or lists notes. A change of a note returns all notes."""
    rng = words.rng
    notes = [{"id": f"N{i}", "text": texts.filler(words), "step": "S1"} for i in range(1, rng.randint(2, 3))]
    new, note = texts.filler(words), f"N{rng.randint(4, 20)}"
    match rng.choice(("add", "edit", "drop", "list")):
        case "add":
            return ToolTask(rng.choice(ADDS).format(t=new), (tool_turn("notes", note, change="add", text=new),), DONE)
        case "edit":
            listed = [*notes, {"id": note, "text": new, "step": "S1"}]
            phrase = rng.choice(EDITS).format(i=note, t=new)
            return ToolTask(phrase, (tool_turn("notes", listed, change="edit", id=note, text=new),), DONE)
        case "drop":
            return ToolTask(
                rng.choice(DROPS).format(i=note), (tool_turn("notes", notes, change="drop", id=note),), DONE
            )
        case _:
            texts_of_notes = "\n".join(entry["text"] for entry in notes)
            return ToolTask(rng.choice(NOTES), (tool_turn("notes", notes, change="list"),), texts_of_notes)


SCENES: tuple[Callable[[Lexicon], ToolTask], ...] = (_lookup, _search, _which, _read, _copy, _write, _list, _notes)
WEIGHTS = (5, 2, 1, 3, 2, 2, 2, 3)


def same_json(example: Example, answer: str) -> bool:
    """Return whether `answer` parses to the same JSON value as the reference."""
    try:
        return bool(json.loads(answer) == json.loads(example.answer))
    except json.JSONDecodeError:
        return False


class Tools:
    """The task of using tools. An example asks for a turn: a call or, after the last result, the answer."""

    name = "tools"

    def generate(self, rng: Random, split: Split) -> Example:
        """Return a new example."""
        task = rng.choices(SCENES, WEIGHTS)[0](Lexicon(rng, split))
        action, wording = phrased(rng, split, task.phrase)
        tools = choose_tools(rng, task)
        role, persona, window = open_with_tools(rng, action, tools)
        turn = rng.randint(0, len(task.turns))
        for done in task.turns[:turn]:
            window = after_call(window, done)
        answer = task.turns[turn].answer if turn < len(task.turns) else compact_json({"finish": task.finish})
        schema = schema_of(window, action, task.outputs, tools)
        return example_of(self.name, (role, persona, window), answer, wording, schema)

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same JSON value as the reference."""
        return same_json(example, answer)
