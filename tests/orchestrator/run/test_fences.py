"""A file is taken out of a model's answer, whatever stands around it."""

from textwrap import indent

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.run.fences import file_text, files_text, has_code, strip_fence

CODE = 'import re\n\n\ndef slug(text: str) -> str:\n    """Return a slug."""\n    return re.sub(r"\\W+", "-", text)'
DOCUMENTED = '"""Make slugs.\n\n```\nslug("a b")\n```\n"""\n\n\ndef slug(text):\n    return text'
USE = 'print(slug("a b"))'
SHELL = "#!/bin/sh\ncat > guide.md <<END\n```\nls\n```\nEND"


@pytest.mark.parametrize(
    "answer",
    [
        CODE,
        f"\n\n{CODE}\n",
        f"[slug.py]\n{CODE}",
        f"**slug.py**:\n\n{CODE}\n",
        f"[slug.py]\n```python\n{CODE}\n```",
        f"```python\n[slug.py]\n{CODE}\n```",
        f"```python\n{CODE}\n```",
        f"```\n{CODE}\n```",
        f"~~~python\n{CODE}\n~~~",
        f"~~~\n{CODE}\n~~~\nThat is it.",
        f"````python\n{CODE}\n````",
        f"Here is the function:\n\n```python\n{CODE}\n```\n\nIt returns `1`.",
        f"Here is it:\n```python\n{CODE}\n```\nDone.",
        f"Here is it:\n```\n{CODE}\n",
        f"```python\n{CODE}",
        f"Sure! Here is the code (in Python):\n```py\n{CODE}\n",
        f"{CODE}\n```",
        f"{CODE}\n```\n\nThis function returns the slug.",
        f"{CODE}\n```\n\nThis function returns the slug.\n\n```python\n{USE}\n```",
        f"{CODE}\n\nExample:\n\n```python\n{USE}\n```\n",
        f"{CODE}\n~~~",
        f"```python\n{CODE}\n```\n\nExample:\n\n```python\n{USE}\n```\n",
        f"```python\n{CODE}\n```\n\nExample usage:\n\n```python\n{USE}\n{USE * 40}\n```\n",
        f"Example:\n\n```python\n{USE * 40}\n```\nAnd the file:\n```python\n{CODE}\n```\n",
        f"```python\n{CODE}\n```\nIt prints this:\n```\n{'a-b' * 99}\n```",
        f"Install it first:\n```bash\npip install {'slugs ' * 40}\n```\nThen:\n```python\n{CODE}\n```",
        f"```python\n{USE * 99}\n```\n```python title=slug.py\n{CODE}\n```",
        f"1. First do this:\n   ```python\n{indent(CODE, '   ')}\n   ```\n2. Run it.",
        f"\t```python\n{CODE}\n\t```",
        f"```python\n{CODE}\n```\n```",
        f"```\n```python\n{CODE}\n```\n```",
        f"```python\n{CODE}\n```python\n{USE}\n```",
        f"Here is the code:\n\n{CODE}",
        f"Hier ist die Funktion:\n\n{CODE}\n\nDie Funktion gibt den Text zurück.",
        f"Voici le code :\n\n```python\n{CODE}\n```\nJ'espère que cela aide !",
        f"Claro, aquí está:\n\n```Python\n{CODE}\n```",
        f"``` python\n{CODE}\n```  \n",
        f"```{{.python}}\n{CODE}\n```",
        f"```python\r\n{CODE}\r\n```".replace("\r\n", "\n"),
    ],
)
def test_the_code_is_taken_out_of_what_stands_around_it(answer: str) -> None:
    assert file_text(answer, "slug.py") == CODE


TESTS = "from slug import slug\n\n\ndef test_slug():" + '\n    assert slug("a b") == "a-b"' * 40


@pytest.mark.parametrize(
    "answer",
    [
        f"Here is slug.py:\n```python\n{CODE}\n```\nAnd test_slug.py:\n```python\n{TESTS}\n```",
        f"**slug.py**\n```python\n{CODE}\n```\n\n**test_slug.py**\n```python\n{TESTS}\n```",
        f"### test_slug.py\n\n```python\n{TESTS}\n```\n\n### slug.py\n\n```\n{CODE}\n```",
        f"[slug.py]\n```python\n{CODE}\n```\n\n[test_slug.py]\n```python\n{TESTS}\n```",
        f"[slug.py]\n{CODE}\n\n[test_slug.py]\n{TESTS}",
        f"[test_slug.py]\n{TESTS}\n\n[slug.py]\n{CODE}\n",
        f"```python\n[slug.py]\n{CODE}\n\n[test_slug.py]\n{TESTS}\n```",
        f"Here they are.\n\n--- slug.py ---\n{CODE}\n\n--- test_slug.py ---\n{TESTS}\n\nBoth work.",
        f"slug.py:\n{CODE}\n\nfile: test_slug.py\n{TESTS}\n```",
    ],
)
def test_of_several_files_each_is_taken_by_its_name(answer: str) -> None:
    assert file_text(answer, "slug.py") == CODE
    assert file_text(answer, "test_slug.py") == TESTS


@pytest.mark.parametrize("around", ["{}", "```python\n{}\n```", "Sure:\n\n```\n{}\n```\nThat is all."])
def test_comments_with_the_names_of_several_files_divide_a_text(around: str) -> None:
    answer = around.format(f"# slug.py\n{CODE}\n\n# test_slug.py\n{TESTS}")
    assert (file_text(answer, "slug.py"), file_text(answer, "test_slug.py")) == (CODE, TESTS)


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{CODE}\n```\n\nSome tests for slug.py:\n```python\n{TESTS}\n```",
        f"```python\n{CODE}\n```\n\ntest_slug.py may be:\n```python\n{TESTS}\n```",
        f"```python\n{CODE}\n```\n\nThen run slug.py:\n```bash\npython slug.py {'a ' * 400}\n```",
    ],
)
def test_a_block_for_another_file_is_not_taken(answer: str) -> None:
    assert file_text(answer, "slug.py") == CODE


def test_a_comment_that_names_another_file_does_not_divide_the_code() -> None:
    code = f"{CODE}\n\n# helpers.py\nimport helpers"
    assert file_text(code, "slug.py") == code
    settings = f"# slug.py\n{CODE}\n\n# config.json\nimport json"
    assert file_text(settings, "slug.py") == settings


@pytest.mark.parametrize("code", [CODE, DOCUMENTED, f"{DOCUMENTED}\n\n\n# ```\nx = '''\n~~~\n'''"])
@pytest.mark.parametrize(
    "around", ["{}", "```python\n{}\n```", "Here it is:\n\n~~~\n{}\n~~~\n\nIt works.", "```py\n{}"]
)
def test_a_fence_in_a_string_of_the_code_belongs_to_it(code: str, around: str) -> None:
    assert file_text(around.format(code), "slug.py") == code
    assert file_text(around.format(SHELL), "guide.sh") == SHELL


@pytest.mark.parametrize(
    ("name", "answer", "text"),
    [
        ("a.js", "```bash\nnpm install express express-session\n```\n```js\nf()\n```", "f()"),
        ("a.yaml", "Here:\n```yaml\na: 1\n```\nIt has one key.", "a: 1"),
        ("a.csv", "The table:\n\n```csv\na,b\n1,2\n```", "a,b\n1,2"),
        ("a.csv", "```\na,b\n1,2\n```", "a,b\n1,2"),
        ("a.json", 'Here is the JSON:\n```json\n{"a": 1}\n```', '{"a": 1}'),
        ("a.sql", "SELECT name FROM users", "SELECT name FROM users"),
        (
            "a.cpp",
            "#include <iostream>\nint main() { std::cout << X; }\n```",
            "#include <iostream>\nint main() { std::cout << X; }",
        ),
        ("a.md", "See\n```\ncode\n```", "See\n```\ncode\n```"),
        ("a.md", "```markdown\n# A\n\n```sh\nls\n```\n\nEnd.\n```", "# A\n\n```sh\nls\n```\n\nEnd."),
        ("a.md", "```markdown\n# A\n\n```\nls\n```\n\nEnd.\n```", "# A\n\n```\nls\n```\n\nEnd."),
        ("a.md", "````\n# A\n\n```\nls\n```\n````", "# A\n\n```\nls\n```"),
        (
            "a.md",
            "Here is the guide:\n\n```markdown\n# A\n\n```sh\nls\n```\n```\n\nI hope it helps.",
            "# A\n\n```sh\nls\n```",
        ),
        ("a.md", "# A\n\n```sh\nls\n```\n\n```sh\ncd\n```", "# A\n\n```sh\nls\n```\n\n```sh\ncd\n```"),
        ("a.md", "```sh\nls\n```\n\n```sh\ncd\n```", "```sh\nls\n```\n\n```sh\ncd\n```"),
        ("a.md", "~~~md\n# A\n~~~", "# A"),
        ("a.txt", "```\nplain\n```", "plain"),
        ("answer", "Do it so:\n```\nls\n```\nThat is all.", "Do it so:\n```\nls\n```\nThat is all."),
    ],
)
def test_what_is_taken_out_depends_on_the_kind_of_file(name: str, answer: str, text: str) -> None:
    assert file_text(answer, name) == text


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("```python\ndef f():\n    return 1\n```", "def f():\n    return 1"),
        ("\n```\nplain\n```\n", "plain"),
        ("```\n\n  indented\n\n```", "  indented"),
        ("```sh\n```", ""),
        ("see\n```\ncode\n```", "see\n```\ncode\n```"),
        ("```\none\n```\ntext\n```\ntwo\n```", "```\none\n```\ntext\n```\ntwo\n```"),
        ("```inline```", "```inline```"),
        ("`x`", "`x`"),
    ],
)
def test_fence_around_the_whole_answer_is_taken_off(text: str, inside: str) -> None:
    assert strip_fence(text) == inside


@pytest.mark.parametrize(
    "answer",
    [
        "Sure! Here is the letter:\n\n{}",
        "Certainly! I translate it. Here's the letter:\n\n---\n\n{}\n\n---\n\nTell me if you need more.",
        "Here is the letter:\n\n---\n{}\n---",
        "Here is the letter:\n\n```\n{}\n```",
        "Gerne! Hier ist der Brief:\n\n```text\n{}\n```\n\nSag Bescheid, wenn etwas fehlt.",
        "Claro, aquí está:\n{}\n",
    ],
)
def test_a_line_to_the_one_who_asked_is_no_part_of_a_text(answer: str) -> None:
    letter = "Dear Ms Moreau,\n\nthe lamp is sold out.\n\nYours"
    assert file_text(answer.format(letter), "letter.txt") == letter


@pytest.mark.parametrize(
    "text",
    [
        "Here is what we offer:\n\n- lamps\n- tables",
        "Sure we can deliver:\n\nlamps",
        "Okay, so this is it:",
        "---\ntitle: Lamps\n---\n\nText.",
        "Here is the list:\n\n---\na\n---\nb\n---\nc",
        "Here is the list:\n\n```\na\n```\n\nand then\n\nmore\n\nlines",
    ],
)
def test_a_first_line_that_may_belong_to_the_text_stays(text: str) -> None:
    assert file_text(text, "letter.txt") == text


def test_the_name_of_a_file_above_its_text_is_no_part_of_it() -> None:
    assert file_text("[guide.md]\n# Guide\n\nText.", "guide.md") == "# Guide\n\nText."
    assert file_text("[guide.md]", "guide.md") == "[guide.md]"
    assert file_text("[other.md]\nText.", "guide.md") == "[other.md]\nText."


def test_the_name_of_a_text_that_was_read_is_no_part_of_the_answer() -> None:
    letter = "[letter.md]\n\nEstimada Sra. Kowalski:\n\nGracias."
    assert file_text(letter, "carta.md", ["letter.md"]) == "Estimada Sra. Kowalski:\n\nGracias."
    assert file_text(letter, "s1.txt", ["notes.md"]) == letter
    assert file_text("[letter.md]", "carta.md", ["letter.md"]) == "[letter.md]", "it may be what was asked for"
    assert file_text("[letter.md]\n[notes.md]", "list.txt", ["letter.md", "notes.md"]) == "[letter.md]\n[notes.md]"
    each = "[letter.md]\nAn order.\n\n[notes.md]\nA budget."
    assert file_text(each, "s1.txt", ["letter.md", "notes.md"]) == each
    assert file_text(f"[helpers.py]\n{CODE}", "slug.py", ["helpers.py"]) == CODE


@given(text=st.text(alphabet="ab`\n ", max_size=30))
def test_taking_fences_off_loses_nothing_but_fences_and_space(text: str) -> None:
    inside = strip_fence(text)
    assert inside in text
    assert set(text.replace(inside, "", 1)) <= set("ab`\n ")
    if "```" not in text:
        assert inside == text.strip()


LINES = st.sampled_from(
    [
        "import os",
        "x = 1",
        "def f(a, b):",
        "    return {a: b}",
        "    # A comment that says something.",
        '    """Say what it does."""',
        '    """Say what it does.\n\n    ```\n    f(1, 2)\n    ```\n    """',
        "    text = '''\n~~~\nOne sentence here.\n~~~\n'''",
        "",
        "print(f(1, 2))",
        "class A(B):",
        "    def g(self) -> None: ...",
    ]
)
CODES = st.lists(LINES, min_size=1, max_size=12).map("\n".join).map(lambda text: text.strip("\n").rstrip()).filter(bool)
BEFORE = st.sampled_from(
    ["", "Here is the code:\n", "Sure!\n\n", "Voici le fichier :\n\n", "# The file\n\nIt is **short**.\n"]
)
AFTER = st.sampled_from(["", "\n", "\n\nIt works.", "\n\nExample:\n\n```python\nf(1, 2)\n```\n", "\n```bash\nls\n```"])
FENCES = st.sampled_from(["```", "````", "~~~"])


@given(code=CODES, before=BEFORE, after=AFTER, fence=FENCES, language=st.sampled_from(["python", "py", "Python"]))
@example(code="x = 1", before="", after="", fence="~~~", language="python")
def test_code_in_a_fence_comes_back_as_it_was(code: str, before: str, after: str, fence: str, language: str) -> None:
    assert file_text(f"{before}{fence}{language}\n{code}\n{fence}{after}", "a.py") == code
    assert file_text(code, "a.py") == code


@given(parts=st.lists(st.one_of(CODES, BEFORE, AFTER, FENCES, st.text(max_size=9)), max_size=8))
def test_what_was_taken_out_is_part_of_the_answer_and_stays_as_it_is(parts: list[str]) -> None:
    answer = "\n".join(parts)
    for name in ("a.py", "a.md", "a.yaml", "a.txt"):
        text = file_text(answer, name)
        assert set(text.split()) <= set(answer.split())
        if "`" not in text and "~" not in text:
            assert file_text(text, name).strip() == text.strip()


@pytest.mark.parametrize(
    "answer",
    [
        "## a.py\n```python\nx = 1\n```\n## b.md\n```markdown\n# B\n\n```sh\nls\n```\n```",
        "`a.py`:\n```python\nx = 1\n```\n`b.md`:\n````\n# B\n\n```sh\nls\n```\n````",
        "**a.py**\n\n```\nx = 1\n```\n\n**b.md**\n\n~~~md\n# B\n\n```sh\nls\n```\n~~~\nThat is all.",
        '```python a.py\nx = 1\n```\n\n```markdown title="b.md"\n# B\n\n```sh\nls\n```\n```',
        "```python:a.py\nx = 1\n```\n\nFile: b.md\n\n````markdown\n# B\n\n```sh\nls\n```\n````",
    ],
)
def test_several_files_are_blocks_under_their_names(answer: str) -> None:
    assert files_text(answer, ["a.py", "b.md"]) == {"a.py": "x = 1", "b.md": "# B\n\n```sh\nls\n```"}


def test_a_comment_in_the_first_line_names_a_block() -> None:
    answer = "```python\n# a.py\nx = 1\n```\n```js\n// b.js\nf()\n```\n```html\n<!-- c.html -->\n<p>\n```"
    assert files_text(answer, ["a.py", "b.js", "c.html"]) == {
        "a.py": "# a.py\nx = 1",
        "b.js": "// b.js\nf()",
        "c.html": "<!-- c.html -->\n<p>",
    }
    assert files_text(answer, ["a.py", "d.py"]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", True),
        ("pass", True),
        ("I cannot write this function.", False),
        ("Here is the function you asked for:", False),
        ("# slug.py", False),
        ("Es tut mir leid, das geht nicht", False),
        ("La fonction est prête.\nElle marche.", False),
    ],
)
def test_a_text_without_a_line_of_code_is_no_program(text: str, expected: bool) -> None:
    assert has_code(text, "slug.py") is expected
    assert has_code(text, "notes.txt")
