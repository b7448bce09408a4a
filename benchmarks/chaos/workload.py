"""The registry of one small model, and the kinds of run: fan-outs, gates of all cheap kinds, chains and joins.

A small model passes the gates since what it writes is prescribed by schemas, and the code that gates check is fixed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

MODEL: Final = "smollm2"
# The most tokens of an answer. Each fits, as long as a token of a free text may be one character.
MAX_TOKENS: Final = 24
_REGISTRY: Final = """
defaults: {{residency: hot, context: 1024, slots: 8, temperature: 0, max_tokens: {tokens}, max_replans: 0}}
models:
  {model}: {{file: "{file}"}}
roles:
  frontdoor: {{model: {model}, tier: A, system: Plan the request as steps.}}
  worker: {{model: {model}, tier: C, system: Do the task in one short sentence., escalates_to: coder}}
  coder: {{model: {model}, tier: B, level: B1, system: Write the code.}}
"""
_NOTE: Final = "The mill has 12 wheels and 3 doors. It was built in 1820 by Ann Bell, and it stands beside the river."
_WORDS: Final = ["mill", "door", "river", "wheel", "bell", "stone"]
_LIST: Final = {"type": "array", "items": {"enum": _WORDS}, "minItems": 2, "maxItems": 3}
_FACT: Final = {
    "type": "object",
    "properties": {"word": {"enum": _WORDS}, "old": {"type": "boolean"}},
    "required": ["word", "old"],
    "additionalProperties": False,
}
_ABOUT: Final = {
    "type": "object",
    "properties": {"about": {"type": "string", "maxLength": 12}},
    "required": ["about"],
    "additionalProperties": False,
}
_PYTHON: Final = '''"""Count words."""


def count(text: str) -> int:
    """Return the number of words."""
    return len(text.split())
'''
_TESTS: Final = """from words import count


def test_count() -> None:
    assert count("one two") == 2


def test_nothing() -> None:
    assert count("") == 0
"""
_SHELL: Final = '#!/bin/sh\nset -eu\nfor name in "$@"; do\n  printf "%s\\n" "$name"\ndone\n'


def registry_text(file: Path) -> str:
    """Return the registry with a GGUF file."""
    return _REGISTRY.format(model=MODEL, file=file, tokens=MAX_TOKENS)


def kinds() -> Mapping[str, dict[str, Any]]:
    """Return the bodies of `POST /v1/runs`, by kind."""
    return {"fan": _fan(), "wide": _wide(), "diamond": _diamond(), "checked": _checked(), "tested": _tested()}


def _fan() -> dict[str, Any]:
    return _task(
        "a list of the model, and a step for each of its items",
        _step(1, "List words of note.txt.", ["note.txt"], "words.json", _LIST),
        _step(2, "Describe the item.", ["note.txt"], "fact.json", _FACT, foreach="words.json"),
        _step(3, "Summarize the facts.", ["fact.json"], "summary.json", _ABOUT),
    )


def _wide() -> dict[str, Any]:
    listed = "[" + ", ".join(f'"{word}"' for word in _WORDS) + "]"
    return _task(
        "a fixed list, a step for each of its items, and a join",
        _writes(1, "words.json", listed, ["schema"]),
        _step(2, "Describe the item.", [], "fact.json", _FACT, foreach="words.json"),
        _step(3, "Compare the facts.", ["fact.json"], "compared.json", _ABOUT),
    )


def _diamond() -> dict[str, Any]:
    return _task(
        "a diamond",
        _step(1, "Summarize note.txt.", ["note.txt"], "short.json", _ABOUT),
        _step(2, "Describe it.", ["short.json"], "fact.json", _FACT),
        _step(3, "List words of it.", ["short.json"], "words.json", _LIST),
        _step(4, "Compare both.", ["fact.json", "words.json"], "compared.json", _ABOUT),
    )


def _checked() -> dict[str, Any]:
    return _task(
        "code that gates check",
        _writes(1, "words.py", _PYTHON, ["format", "lint", "build"]),
        _writes(2, "names.sh", _SHELL, ["shellcheck"]),
        _step(3, "Say what the code does.", ["words.py", "names.sh"], "told.json", _ABOUT),
    )


def _tested() -> dict[str, Any]:
    body = _task(
        "code that is typed and has tests",
        _writes(1, "words.py", _PYTHON, ["typecheck", "unit"]),
        _step(2, "Describe it.", ["words.py"], "fact.json", _FACT),
    )
    body["task"]["inputs"].append({"type": "text", "label": "test_words.py", "value": _TESTS})
    return body


def _step(
    number: int, action: str, inputs: Sequence[str], output: str, schema: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    step = {"id": f"S{number}", "actor": "worker", "action": action, "inputs": list(inputs), "outputs": [output]}
    return {**step, "output_schema": schema, "gates": ["schema"], "max_tokens": MAX_TOKENS, **more}


def _writes(number: int, name: str, text: str, gates: Sequence[str]) -> dict[str, Any]:
    step = {"id": f"S{number}", "actor": "worker", "kind": "tool", "action": f"Write {name}.", "outputs": [name]}
    return {**step, "tools": ["write_artifact"], "arguments": {"name": name, "text": text}, "gates": list(gates)}


def _task(objective: str, *steps: dict[str, Any]) -> dict[str, Any]:
    given = [{"type": "text", "label": "note.txt", "value": _NOTE}]
    return {"task": {"objective": objective, "inputs": given, "plan": {"steps": list(steps)}}}
