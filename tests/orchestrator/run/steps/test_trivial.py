"""An answer that says nothing of its own is no answer; a short right answer is one."""

import pytest

from orchestrator.run.steps.role import StepInput
from orchestrator.run.steps.trivial import why_trivial

NOTES = StepInput("notes.txt", "Buy milk and bread.\nCall Anna about the offer on Tuesday.")
CODE = StepInput(
    "slug.py", "import re\n\n\ndef slug(text: str) -> str:\n    return re.sub(' +', '-', text.lower().strip())\n"
)


@pytest.mark.parametrize(
    "answer",
    [
        *("Done", "Done.", "OK", "ok!", "Sure!", "**Done**", "Okay, done.", "Task completed.", "Understood."),
        *("Sure, happy to help!", "The task is done.", "I have written the summary.", "Your file has been created."),
        *("Erledigt.", "Fertig!", "Klar!", "Alles klar, erledigt.", "Die Aufgabe ist erledigt."),
        *(
            "C'est fait.",
            "C\N{RIGHT SINGLE QUOTATION MARK}est fait !",
            "D'accord.",
            "Bien sûr !",
            "La tâche est terminée.",
        ),
        *("Hecho.", "¡Listo!", "¡Claro que sí!", "De acuerdo.", "La tarea está terminada."),
        *("Here is the summary:", "Sure! Here is the summary:", "**Summary of notes.txt:**", "Hier ist die Liste:"),
        *("Voici le résumé :", "Aquí está el resumen:", "Summarize the notes.", "Task: Summarize  the notes."),
        *("summary.md", "`summary.md`", "**out/summary.md**", "...", "---", "#", '"Done"'),
        *(NOTES.text, f"  {NOTES.text}\n", f"[notes.txt]\n{NOTES.text}"),
    ],
)
def test_an_answer_without_content_is_refused(answer: str) -> None:
    assert why_trivial(answer, "out/summary.md", "Summarize the notes.", [NOTES])


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "yes",
            "No.",
            "42",
            "-3.5",
            "Paris",
            "None",
            "ja",
            "Nein",
            "oui",
            "sí",
            "+",
            "€",
            "👍",
            "7:30",
            "A",
            "positive",
        ),
        *("The notes are done in May.", "Done: milk. Open: Anna.", "Here is the summary: buy milk.", "OK Computer"),
        *(
            "# Notes\n\nBuy milk:",
            "I have written the notes down twice.",
            "[1, 2]",
            "{}",
            '{"done": true}',
            "Anna, milk",
        ),
    ],
)
def test_a_short_answer_with_content_is_accepted(answer: str) -> None:
    assert why_trivial(answer, "out/summary.md", "Summarize the notes.", [NOTES]) == ""


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("OK", "Answer OK or FAIL: is the file complete?"),
        ("Done", "Say whether the ticket is open or done."),
        ("fertig", "Antworte mit offen oder fertig."),
        (NOTES.text, "Quote the notes."),
        (NOTES.text, "Copy notes.txt."),
        (NOTES.text, "Sort the lines."),
        (NOTES.text, "Correct the spelling of the notes."),
        (NOTES.text, "Lies notes.txt."),
        (NOTES.text, "Trie les lignes."),
        (NOTES.text, "Ordena las líneas."),
        ("Which", "Which"),
    ],
)
def test_what_the_action_asks_for_is_accepted(answer: str, action: str) -> None:
    assert why_trivial(answer, "out.txt", action, [NOTES]) == ""


def test_a_short_input_may_be_the_answer() -> None:
    cities = [StepInput("cities[0]", "Paris"), StepInput("cities[1]", "New York City")]
    for item in cities:
        assert why_trivial(item.text, "out.txt", "Say what is the larger city.", cities) == ""
    sentence = StepInput("s1.txt", "Zilthir: owner Renzer, length 214, speed 38.")
    assert why_trivial(sentence.text, "out.txt", "Summarize the text.", [sentence]) == ""


@pytest.mark.parametrize(
    ("answer", "trivial"),
    [
        ("I cannot write this function.", True),
        ("The function takes a text.\nIt returns a slug.", True),
        ("# slug.py", True),
        ("slug.py", True),
        (CODE.text, True),
        ("def slug(text):\n    return text", False),
        ("pass", False),
        ("from os import path", False),
        ("X: int = 1", False),
    ],
)
def test_a_file_of_code_has_code(answer: str, trivial: bool) -> None:
    assert bool(why_trivial(answer, "slug.py", "Add a docstring to slug.", [CODE])) is trivial


@pytest.mark.parametrize("answer", ["Done", "ls", "git commit", "SELECT 1", "a: 1", "Title: Done"])
def test_settings_and_commands_need_no_signs_of_code(answer: str) -> None:
    for name in ("a.yaml", "a.sql"):
        assert bool(why_trivial(answer, name, "Write it.", [])) is (answer == "Done")
