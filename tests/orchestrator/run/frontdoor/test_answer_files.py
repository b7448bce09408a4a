"""Files are found in the fenced blocks of an answer, whatever the words of the request, and nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.answer_files import files_in_answer

BROKEN = '{\n  "bolts": 12,\n  "nuts": 40\n  "washers": 7,\n}\n'
WHOLE = '{\n  "bolts": 12,\n  "nuts": 40,\n  "washers": 7\n}'
TABLE = "part,count\nbolt,12\nnut,40\nwasher,7"
SOLD = "part,count\nbolt,12\nnut,38\nwasher,7"
CODE = "import csv\n\n\ndef load(path):\n    return list(csv.reader(open(path)))\n\n\ndef total(rows):\n    return 0"
SUMMED = CODE.replace("return 0", "return sum(int(row[1]) for row in rows)")
NOTES = "# Visit\n\nThe roof leeks.\nThe door is fine."


def fenced(text: str, info: str = "") -> str:
    return f"```{info}\n{text}\n```"


@pytest.mark.parametrize(
    "request_text",
    [
        "Can you give me back the whole parts.json so that it's valid again?",
        "Ich hätte gern die ganze parts.json zurück, aber so, dass sie wieder lesbar ist.",
        "Il me faudrait parts.json en entier, mais valide cette fois.",
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        fenced(WHOLE, "json"),
        f"A comma was missing.\n\n{fenced(WHOLE, 'json')}\n\nIt can be read now.",
        f"**parts.json**\n{fenced(WHOLE)}",
        f"Hier ist `parts.json`:\n{fenced(WHOLE, 'json')}",
        fenced(WHOLE, "json title=parts.json"),
        fenced(f"// parts.json\n{WHOLE}", "json"),
        f"{fenced(WHOLE, 'json')}",
        f"### parts.json\n{fenced(WHOLE, 'json')}\nCheck it:\n{fenced('jq . parts.json', 'bash')}",
    ],
)
def test_a_new_version_is_found_in_any_wording(request_text: str, answer: str) -> None:
    assert files_in_answer(answer, request_text, {"parts.json": BROKEN}, ["parts.json"]) == {"parts.json": WHOLE}


@given(st.dictionaries(st.text("abcdefgh", min_size=1), st.integers(), min_size=1), st.sampled_from([None, 0, 2, 4]))
def test_data_may_be_laid_out_in_another_way(data: dict[str, int], indent: int | None) -> None:
    old, new = json.dumps(data), json.dumps({**data, "new": 1}, indent=indent)
    files = files_in_answer(fenced(new, "json"), "Was parts.json needs is new: 1.", {"parts.json": old}, [])
    assert files == {"parts.json": new}


@pytest.mark.parametrize(
    ("name", "old", "new", "language"),
    [
        ("parts.csv", TABLE, SOLD, "csv"),
        ("parts.csv", TABLE, "part,count,shelf\nbolt,12,A\nnut,40,B\nwasher,7,C", "csv"),
        ("parts.csv", TABLE, "part,count\nwasher,7\nbolt,12\nnut,40", "csv"),
        ("parts.py", CODE, SUMMED, "python"),
        ("parts.yaml", "bolts: 12\nnuts: 40", "bolts: 12\nnuts: 40\nwashers: 7", "yml"),
    ],
)
def test_the_only_block_in_the_language_of_the_only_file_is_its_new_version(
    name: str, old: str, new: str, language: str
) -> None:
    answer = f"This should do.\n\n{fenced(new, language)}"
    for folder in ("", "old/store/"):
        inputs = {f"{folder}{name}": old}
        assert files_in_answer(answer, f"And now {name}?", inputs, list(inputs)) == {f"{folder}{name}": new}


@pytest.mark.parametrize(
    "answer",
    [
        fenced(BROKEN, "json"),
        f"{fenced(WHOLE, 'json')}\nor\n{fenced(WHOLE, 'json')}",
        fenced(WHOLE, "python"),
        fenced(WHOLE),
        WHOLE,
        fenced('{\n  "nuts": 41\n}', "json"),
        fenced('{"screws": 1, "hooks": 2, "nails": 3}', "json"),
        fenced('{\n  "bolts": 12,\n  ...\n}', "json"),
        f"An example of such a file:\n{fenced(WHOLE, 'json')}",
        f"Zum Beispiel:\n{fenced(WHOLE, 'json')}",
        f"Only the changed lines:\n{fenced(WHOLE, 'json')}",
        f"Save it as repaired.json:\n{fenced(WHOLE, 'json')}",
        f"`parts.json` and `other.json`:\n{fenced(WHOLE, 'json')}",
    ],
)
def test_what_may_be_no_new_version_is_no_file(answer: str) -> None:
    request = "Can you give me back the whole parts.json so that it's valid again?"
    assert files_in_answer(answer, request, {"parts.json": BROKEN}, ["parts.json"]) == {}


@pytest.mark.parametrize("request_text", ["Is it valid?", "Compare parts.json with shelf.json.", "What is x.toml?"])
def test_a_block_without_a_name_is_no_file_unless_the_request_names_one_of_its_kind(request_text: str) -> None:
    assert files_in_answer(fenced(WHOLE, "json"), request_text, {"parts.json": BROKEN}, ["parts.json"]) == {}


@pytest.mark.parametrize(
    "selection",
    [
        "part,count\nbolt,12\nnut,40",
        "part,count\nnut,40\nwasher,7",
        "bolt,12\nnut,40\nwasher,7",
        "part,count\nbolt,12\nwasher,7",
    ],
)
@pytest.mark.parametrize("lead", ["", "In parts.csv:\n"])
def test_a_selection_of_rows_is_no_new_version(selection: str, lead: str) -> None:
    answer = f"{lead}{fenced(selection, 'csv')}"
    assert files_in_answer(answer, "Which rows of parts.csv matter?", {"parts.csv": TABLE}, ["parts.csv"]) == {}


@pytest.mark.parametrize(
    "excerpt",
    [
        SUMMED.partition("\n\n\n")[2],
        SUMMED.rpartition("\n\n\n")[2],
        "def load(path):\n    with open(path) as file:\n        return list(csv.reader(file))",
        SUMMED.replace("def load(path):\n    return list(csv.reader(open(path)))", "# ... load as before"),
        SUMMED.replace("import csv", "# unchanged imports"),
    ],
)
def test_an_excerpt_of_a_program_is_no_new_version(excerpt: str) -> None:
    for lead in ("", "The fault is in `parts.py`:\n"):
        answer = f"{lead}{fenced(excerpt, 'python')}"
        assert files_in_answer(answer, "What is wrong in parts.py?", {"parts.py": CODE}, ["parts.py"]) == {}


def test_prose_that_carries_its_name_is_found() -> None:
    corrected = NOTES.replace("leeks", "leaks")
    for info in ("markdown", ""):
        answer = f"`notes.md` without mistakes:\n{fenced(corrected, info)}"
        assert files_in_answer(answer, "Any typos?", {"notes.md": NOTES}, ["notes.md"]) == {"notes.md": corrected}


@pytest.mark.parametrize(
    ("request_text", "answer", "name"),
    [
        ("We need the same settings as TOML, too.", f"settings.toml:\n{fenced('a = 1', 'toml')}", "settings.toml"),
        ("Das Gleiche bitte noch als TOML-Datei.", f"**settings.toml**\n{fenced('a = 1')}", "settings.toml"),
        ("And the defaults: conf/base.toml?", f"This is base.toml:\n{fenced('a = 1', 'toml')}", "conf/base.toml"),
        ("Et base.toml, alors ?", fenced("# base.toml\na = 1", "toml"), "base.toml"),
        (
            "`read -c base.toml` has to work.",
            f"Sure:\n{fenced('a = 1', 'toml')}\nUse it:\n{fenced('read', 'sh')}",
            "base.toml",
        ),
    ],
)
def test_a_new_file_that_the_request_names_is_found(request_text: str, answer: str, name: str) -> None:
    files = files_in_answer(answer, request_text, {"settings.ini": "[x]\na = 1"}, ["settings.ini"])
    assert files == {name: "a = 1"}


@pytest.mark.parametrize(
    ("request_text", "answer"),
    [
        ("Check settings.ini.", f"settings.toml:\n{fenced('a = 1', 'toml')}"),
        ("As TOML, too.", f"other.toml:\n{fenced('a = 1', 'toml')}"),
        ("As TOML, too.", fenced("a = 1", "toml")),
        ("What about a.toml and b.toml?", fenced("a = 1", "toml")),
        ("What about base.toml?", f"{fenced('a = 1', 'toml')}\nor\n{fenced('a = 2', 'toml')}"),
        ("What about base.toml?", f"Then base.toml would say this:\n{fenced('a = 1')}"),
        ("What about base.toml?", f"base.toml\n{fenced('a = ', 'toml')}"),
        ("What about base.toml?", f"base.toml\n{fenced('a = 1', 'toml')}\nbase.toml\n{fenced('a = 2', 'toml')}"),
        ("What about ../base.toml?", f"../base.toml\n{fenced('a = 1', 'toml')}"),
        ("What about /etc/base.toml?", f"/etc/base.toml\n{fenced('a = 1', 'toml')}"),
        ("What about unread.toml?", f"unread.toml\n{fenced('a = 1', 'toml')}"),
        ("What about far.toml?", f"far.toml\n{fenced('a = 1', 'toml')}"),
        ("What about s1.toml?", f"s1.toml\n{fenced('a = 1', 'toml')}"),
    ],
)
def test_what_may_be_no_new_file_is_none(request_text: str, answer: str) -> None:
    files = ["settings.ini", "unread.toml", "away/far.toml"]
    assert files_in_answer(answer, request_text, {"settings.ini": "[x]\na = 1"}, files) == {}


def test_of_files_with_the_same_name_in_two_folders_none_is_meant() -> None:
    inputs = {"a/parts.csv": TABLE, "b/parts.csv": TABLE}
    request = "Can parts.csv have 38 nuts?"
    assert files_in_answer(f"parts.csv\n{fenced(SOLD)}", request, inputs, list(inputs)) == {}
    assert files_in_answer(f"b/parts.csv\n{fenced(SOLD)}", request, inputs, list(inputs)) == {"b/parts.csv": SOLD}


def test_several_files_are_found_by_their_names() -> None:
    answer = f"parts.csv\n{fenced(SOLD, 'csv')}\nparts.py\n{fenced(SUMMED, 'python')}"
    inputs = {"parts.csv": TABLE, "parts.py": CODE}
    assert files_in_answer(answer, "Both, with 38 nuts.", inputs, list(inputs)) == {
        "parts.csv": SOLD,
        "parts.py": SUMMED,
    }


@given(st.text(st.characters(codec="utf-8"), max_size=80), st.text(max_size=40))
def test_nothing_is_found_in_an_answer_without_a_block(answer: str, request_text: str) -> None:
    text = answer.replace("`", "").replace("~", "")
    assert files_in_answer(text, request_text, {"parts.json": BROKEN}, ["parts.json"]) == {}
