"""Checks of answers: each accepts right answers, however they are worded, and refuses wrong ones."""

from collections import Counter

import pytest

from benchmarks.jobs import checks, code, one_call
from benchmarks.jobs.checks import code_blocks, language_of, list_items
from benchmarks.jobs.job import BenchJob, Check, JobAnswer
from benchmarks.jobs.measure import GROUPS, JOBS
from orchestrator.run.frontdoor.doubt import WrittenAnswer
from orchestrator.run.frontdoor.doubts import doubts
from tests.benchmarks.job_answers import ANSWERS
from tests.benchmarks.job_code_answers import CODE_ANSWERS

JSON = '```json\n{"name": "Ada", "age": "36", "tags": ["x", "y"], "more": null}\n```'
MARKDOWN = "| Item | Price |\n|---|---:|\n| Desk lamp | **24.50** |\n| Chair | 1,120.00 |"
CSV = "item,price\nDesk lamp,24.50\nChair,1120\n"
TEST_OF_ADD = "from add import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"

CASES: dict[str, tuple[Check, list[str], list[str]]] = {
    "mentions": (
        checks.mentions(("don't ship", "do not ship"), "cancel*", "12"),
        ["We do **not ship** on\nday 12. Cancelled.", "Don\u2019t ship: cancellation, 12."],
        ["We ship on 12. Cancelled.", "do not ship 120, cancelled", "do not ship 12.5 cancelled"],
    ),
    "mentions some": (checks.mentions_some(2, "red", "green", "blue"), ["Red, blue"], ["redder, blue"]),
    "lacks": (checks.lacks("Bob"), ["Bobby came"], ["It was bob."]),
    "number": (
        checks.number(1234.5),
        ["1,234.50 EUR", "1.234,5 €", "1 234,50", "about 1234.5."],
        ["1234", "-1234.5", "12345"],
    ),
    "number near": (checks.number(3, near="total"), ["Total: three", "a 4\ntotal 3"], ["total 4\nother 3"]),
    "negative number": (checks.number(-5, 0), ["a loss of -$5", "\u22125"], ["5", "3-5"]),
    "JSON": (
        checks.json_with({"name": ("Ada", "Ada L."), "age": 36, "tags": ["x", "y"], "more": None}),
        [JSON, f"Here it is:\n{JSON}\nDone.", JSON.strip("`json")],
        ['{"name": "Ada"', '{"name": "Ada"}', JSON.replace("36", "37"), JSON.replace('"x", ', "")],
    ),
    "table": (
        checks.table(("Desk lamp", 24.5), ("Chair", 1120), count=2, header=("item", "price")),
        [f"So:\n\n{MARKDOWN}\n\nDone."],
        [MARKDOWN.replace("24.50", "25.50"), MARKDOWN + "\n| Sofa | 1 |", "Desk lamp 24.50", CSV],
    ),
    "rows in order": (
        checks.rows_in_order("lamp", "chair"),
        [MARKDOWN],
        ["| Chair |\n|---|\n| Lamp |", "| lamp |\n|---|"],
    ),
    "in order": (checks.in_order("one", "two"), ["One, then two"], ["two, one", "one"]),
    "items": (
        checks.items(2),
        ["Intro:\n\n- a\n- b", "1. a\n2) b", "a\nb", "# Title\na\nb"],
        ["- a", "- a\n- b\n- c", "text"],
    ),
    "lines": (checks.lines(1, 2), ["a", "a\n\nb\n"], ["a\nb\nc"]),
    "words": (checks.words(2, 3), ["it's well-made", "a b c."], ["a", "a b c d"]),
    "language": (
        checks.language("de"),
        ["Die Lieferung ist noch nicht da, bitte haben Sie Geduld."],
        ["The delivery is late, please wait for it.", "Lieferung", "La livraison n'est pas là, nous sommes désolés."],
    ),
    "languages": (
        checks.languages("fr", "es"),
        ["- Le train est en retard pour nous.\n- El tren no llega a la hora, lo sentimos."],
        ["Le train est en retard pour nous."],
    ),
    "no chatter": (
        checks.no_chatter(),
        ["Dear Ms Ode,\nthe parcel [1](x) is late."],
        ["Sure! Dear", "Here is the mail:\nDear", "```\nDear\n```", "Dear [Your Name]", "Hier ist der Text"],
    ),
    "reworded": (
        checks.reworded("the cat sat on the mat and slept"),
        ["A cat slept on a mat."],
        ["The cat sat on the mat, and slept", "the cat sat on the mat and slept"],
    ),
    "holds": (checks.holds(str.isupper, "it is not in capitals"), ["HELLO"], ["Hello"]),
    "either": (
        checks.either(checks.mentions("a", "b"), checks.mentions("c")),
        ["a b", "c"],
        ["a"],
    ),
    "in turn": (checks.in_turn(checks.mentions("a"), checks.lacks("b")), ["a"], ["a b", "b"]),
    "every": (checks.every(checks.mentions("a"), checks.lacks("b")), ["a"], ["a b", "b"]),
}


@pytest.mark.parametrize("name", CASES)
def test_check_accepts_right_texts_and_refuses_wrong_ones(name: str) -> None:
    check, right, wrong = CASES[name]
    for text in right:
        assert check(JobAnswer(text)) == [], text
    for text in [*wrong, "", " \n"]:
        assert check(JobAnswer(text)), text


def test_check_of_a_file_reads_that_file_only() -> None:
    check = checks.table(("Desk lamp", 24.5), ("Chair", 1120), count=2, header=("item",), file="prices.csv")
    assert check(JobAnswer("", {"prices.csv": CSV})) == []
    assert check(JobAnswer("", {"prices.csv": CSV.replace(",", ";")})) == []
    assert check(JobAnswer(MARKDOWN, {"other.csv": CSV})) == ["there is no prices.csv"]
    assert checks.json_with({"name": "Ada"}, "ada.json")(JobAnswer("", {"ada.json": JSON}))  # a fence is no JSON
    assert checks.has_file("a.txt")(JobAnswer("", {"a.txt": "x"})) == []
    assert checks.has_file("a.txt", str.isdigit, "no number")(JobAnswer("", {"a.txt": "x"})) == ["a.txt: no number"]


def test_hidden_tests_judge_code_without_trusting_it() -> None:
    check = checks.passes("from add import add\ndef test_sum():\n    assert add(2, 3) == 5\n", "add.py")
    right = "def add(a, b):\n    return a + b\n"
    assert check(JobAnswer("", {"add.py": right})) == []
    assert check(JobAnswer(f"Use this:\n```python\n{right}```\nIt adds.")) == []
    assert check(JobAnswer(right)) == ["there is no add.py"]
    odd = '"""A \\d is a digit."""\n'  # Python warns of it
    assert check(JobAnswer("", {"add.py": odd + right})) == []
    wrong = ["def add(a, b):\n    return a", "\0", "def add(a, b)", "import os\nos._exit(0)", "raise SystemExit(0)"]
    assert [check(JobAnswer("", {"add.py": code})) for code in wrong].count([]) == 0


def test_tests_of_an_answer_must_pass_for_right_code_and_fail_for_wrong_code() -> None:
    right, wrong = ({"add.py": f"def add(a, b):\n    return a {sign} b\n"} for sign in "+-")
    check = checks.in_turn(checks.passes_own("test_add.py", right), checks.refuses("test_add.py", wrong))
    assert check(JobAnswer("", {"test_add.py": TEST_OF_ADD})) == []
    assert check(JobAnswer("", {"test_add.py": "def test_nothing():\n    pass\n"}))
    assert check(JobAnswer("", {"test_add.py": TEST_OF_ADD.replace("5", "6")}))
    assert check(JobAnswer(""))


def test_parts_of_a_text() -> None:
    assert code_blocks("a\n```py\nx = 1\n```\n~~~\ny\n~~~\n```\nopen") == ["x = 1\n", "y\n", "open"]
    assert list_items("To do:\n* a\n  - b\n3. c") == ["a", "b", "c"]
    assert language_of("La reunión es el lunes y no el martes.") == "es"


@pytest.mark.parametrize("job", one_call.JOBS, ids=lambda job: job.name)
def test_check_of_a_job_is_fair(job: BenchJob) -> None:
    answers = ANSWERS[job.name]
    assert len(answers.right) >= 1
    assert len(answers.wrong) >= 1
    for answer in answers.right:
        assert job.check(answer) == [], answer
    for answer in (*answers.wrong, *worthless(job)):
        assert job.check(answer), answer


@pytest.mark.parametrize("job", one_call.JOBS, ids=lambda job: job.name)
def test_no_right_answer_is_doubted(job: BenchJob) -> None:
    right = ANSWERS[job.name].right[0]
    outputs = right.files or {"s1.txt": right.text}
    assert doubts(job.request, (*job.files,), WrittenAnswer(outputs, outputs, job.files)) == ()


@pytest.mark.slow
@pytest.mark.parametrize("job", code.JOBS, ids=lambda job: job.name)
def test_check_of_a_code_job_is_fair(job: BenchJob) -> None:
    answers = CODE_ANSWERS[job.name]
    assert job.check(answers.right) == []
    for answer in (*answers.wrong, *worthless(job)):
        assert job.check(answer), answer


def test_both_halves_have_every_group_and_nothing_is_asked_twice() -> None:
    jobs_by_half = Counter((job.held_out, job.group) for job in JOBS)
    assert [jobs_by_half[False, group] for group in GROUPS] == [20, 25, 15]
    assert [jobs_by_half[True, group] for group in GROUPS] == [38, 34, 18]
    assert len({job.name for job in JOBS}) == len({job.request for job in JOBS}) == len(JOBS)
    for job in JOBS:
        assert all(name in job.request for name in job.outputs), job.name


def worthless(job: BenchJob) -> list[JobAnswer]:
    """Return answers without content: empty ones, and ones that repeat the input."""
    repeated = "\n".join([*job.files.values(), job.request])
    texts = ["", *job.files.values(), job.request, repeated]
    return [JobAnswer(text, dict.fromkeys(job.outputs, text)) for text in dict.fromkeys(texts)]
