"""Plan: a request and the files it may refer to → the steps that do it, as compact JSON on one line."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from benchmarks.tiny.example import SYSTEM_PROMPTS, Example
from benchmarks.tiny.families import plan_scenes as scenes
from benchmarks.tiny.families import plan_wordings as wordings
from benchmarks.tiny.families.plan_draft import Draft
from benchmarks.tiny.words import Lexicon, Split, sentence
from orchestrator.steps.prompt import plan_messages

NAME: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 120}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "steps": {
            "type": "array",
            "minItems": 1,
            "maxItems": 32,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"enum": ["worker", "coder", "judge"]},
                    "action": {"type": "string", "minLength": 1, "maxLength": 300},
                    "inputs": {"type": "array", "items": NAME, "maxItems": 16},
                    "foreach": NAME,
                    "output": NAME,
                    "after": {"type": "array", "items": NAME, "maxItems": 16},
                    "replan": {"type": "boolean"},
                },
                "required": ["role", "action", "inputs"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["steps"],
    "additionalProperties": False,
}
SCENES: tuple[tuple[Callable[[Draft], str], int], ...] = (
    (scenes.fan, 36),
    (scenes.everything, 7),
    (scenes.mixed, 9),
    (scenes.foreach, 13),
    (scenes.follow, 7),
    (scenes.code, 9),
    (scenes.code_then_run, 4),
    (scenes.shell, 6),
    (scenes.inline_text, 5),
    (scenes.chain, 5),
    (scenes.diamond, 4),
    (scenes.judged, 6),
)
# Scenes that name their own files and leave others alone can stand side by side in one request.
WHOLE = (scenes.everything, scenes.inline_text, scenes.follow)
PAIRABLE = tuple((scene, weight) for scene, weight in SCENES if scene not in WHOLE)


class Plan:
    """Three of four requests hold one scene; the others two, independent or one after the other."""

    name = "plan"

    def generate(self, rng: Random, split: Split, *, fan_out: int = 0) -> Example:
        """Return a new example; with `fan_out`, it summarizes or extracts from that many files and joins them."""
        draft = Draft(Lexicon(rng, split), split)
        if fan_out:
            request = scenes.fan(draft, fan_out)
        else:
            request = self._request(draft, rng)
        prefix = draft.word_as(wordings.PREFIXES)
        end = "?" if prefix.startswith(("could", "can")) else rng.choice(("", "", "."))
        asked = draft.progress(sentence(prefix + request) + end)
        messages = plan_messages(SYSTEM_PROMPTS["frontdoor"], draft.listed_files(), asked)
        return Example(self.name, "frontdoor", "", messages, draft.render(), "|".join(draft.wordings), SCHEMA)

    @staticmethod
    def _request(draft: Draft, rng: Random) -> str:
        if rng.random() < 0.75:
            return rng.choices([s for s, _ in SCENES], [w for _, w in SCENES])[0](draft)
        first, second = rng.choices([s for s, _ in PAIRABLE], [w for _, w in PAIRABLE], k=2)
        request = first(draft)
        if rng.random() < 0.5:
            return request + draft.word_as(wordings.ALSO) + second(draft)
        leaves = draft.leaves()
        start = len(draft.steps)
        joint = draft.word_as(wordings.AFTERWARDS)
        request += joint + second(draft)
        draft.order_after(start, leaves)
        return request

    def check(self, example: Example, answer: str) -> bool:
        """Return whether `answer` parses to the same steps as the reference."""
        try:
            return bool(json.loads(answer) == json.loads(example.answer))
        except json.JSONDecodeError:
            return False
