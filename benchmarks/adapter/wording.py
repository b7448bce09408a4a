"""Word a whole request: its clauses become one text, in one of the ways in which people ask."""

from collections.abc import Sequence
from typing import Final

from benchmarks.adapter import operations
from benchmarks.adapter.draft import ExampleDraft


def word_request(draft: ExampleDraft) -> str:
    """Return the clauses as one request, in one of the ways in which people ask."""
    draw, clauses = draft.random, draft.clauses
    if draft.form == "two_files_and_chain":
        draft.question = False
    if draft.question and len(clauses) == 1:
        text = _capitalized(clauses[0])
        if not text.endswith(("?", '"', "'", ".")) and not draft.parts[-1].output:
            text += draw.choice((".", ""))
    else:
        text = _polite(draft, _together(draft))
    if draw.random() < 0.1 and draft.form != "given_text":
        before = draw.choice(operations.BEFORE)
        text = f"{before.format(**draft.fill(before))} {_capitalized(text)}"
    if draw.random() < 0.1 and draft.form != "given_text" and text[-1] in ".?!":
        text = f"{text} {draw.choice(operations.AFTER)}"
    if draw.random() < 0.12:
        text = text.lower() if all(name.islower() for name in (*draft.files, *_outputs(draft))) else text
    return _mistyped(draft, text) if draw.random() < 0.06 else text


def _together(draft: ExampleDraft) -> str:
    """Return the clauses one after the other: three of them now and then as a list."""
    draw, clauses = draft.random, draft.clauses
    text, rest = clauses[0], clauses[1:]
    if len(clauses) >= 3 and draw.random() < 0.5 and not any(". " in clause for clause in clauses[:2]):
        form = draw.choice(operations.NEXT_OF_THREE if _between(draft) is operations.NEXT else _LISTED)
        text, rest = form.format(a=text, b=clauses[1], c=clauses[2]), clauses[3:]
    for clause in rest:
        text = draw.choice(_between(draft)).format(first=text, second=clause)
    return text


_LISTED: Final = ("{a}, {b} and {c}", "{a}, {b}, and {c}", "{a}; {b}; {c}")


def _outputs(draft: ExampleDraft) -> list[str]:
    return [part.output for part in draft.parts if part.output is not None]


def _between(draft: ExampleDraft) -> Sequence[str]:
    """Return the ways to put clauses together: those of things that do not follow from each other, or that do."""
    if draft.form == "lists":
        return operations.AND
    return operations.BESIDE if draft.form in ("beside", "two_readings", "each_beside") else operations.NEXT


def _polite(draft: ExampleDraft, text: str) -> str:
    """Return the clauses with a polite form around them. Only the plain ones suit several sentences."""
    several = ". " in text or "; " in text or text.startswith("two things")
    forms = [form for form in operations.POLITE if not several or form.startswith(("{I}", "Please", "please"))]
    form = draft.random.choice(forms)
    text = form.format(i=text, I=_capitalized(text))
    return _sentences(text)


def _sentences(text: str) -> str:
    """Return a text whose sentences begin with capital letters, where a full stop ends the one before."""
    head, *rest = text.split(". ")
    return ". ".join([head, *map(_capitalized, rest)])


def _capitalized(text: str) -> str:
    """Return a text that begins with a capital letter, unless it begins with the name of a file."""
    first = text.split(" ", 1)[0]
    return text if "." in first.rstrip(".,") or "_" in first else text[:1].upper() + text[1:]


def _mistyped(draft: ExampleDraft, text: str) -> str:
    """Return a text in which two letters of a word have changed places. Names of files stay as they are."""
    names = " ".join((*draft.files, *_outputs(draft))).lower()
    parts = text.split(" ")
    places = [
        index for index, word in enumerate(parts) if len(word) > 5 and word.isalpha() and word.lower() not in names
    ]
    if places:
        index = draft.random.choice(places)
        word, at = parts[index], draft.random.randint(1, len(parts[index]) - 3)
        parts[index] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(parts)
