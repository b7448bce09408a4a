"""Plan: a request and the files it may refer to → the parts of a plan that does it, as compact JSON on one line."""

import re
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.tiny.families import plan_phrases as phrases
from benchmarks.tiny.families import plan_scenes as scenes
from benchmarks.tiny.families import plan_wordings as wordings
from benchmarks.tiny.families.plan_draft import Draft
from orchestrator.bench.families.example import SYSTEM_PROMPTS, Example
from orchestrator.bench.families.words import Lexicon, Split, sentence
from orchestrator.run.frontdoor.builder import PlanBuilder
from orchestrator.run.frontdoor.compact import PlanFlaw, PlanStream, plan_schema
from orchestrator.run.planning import PlannedPart
from orchestrator.run.steps.role import plan_messages
from orchestrator.task.taskir.models import Step

ROLES = ("worker", "coder", "judge")
SCHEMA = plan_schema(ROLES, replan=True)
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
# Scenes that name all files they use can be combined in one request.
WHOLE = (scenes.everything, scenes.inline_text, scenes.follow)
LISTED = re.compile(r"Files: (.*)\n")
DONE = re.compile(r"\nDone: (.*)\n\[P1\]\n")
PAIRABLE = tuple((scene, weight) for scene, weight in SCENES if scene not in WHOLE)


class PlanFamily:
    """The task of planning. Three of four requests have one scene; the others have two, independent or in order."""

    name = "plan"

    def generate(self, rng: Random, split: Split, *, fan_out: int = 0) -> Example:
        """Return a new example. With `fan_out`, the plan has a step for each of that many files, and a join."""
        draft = Draft(Lexicon(rng, split), split)
        if fan_out:
            request = scenes.fan(draft, fan_out)
        else:
            request = self._request(draft, rng)
        prefix = draft.word_as(wordings.PREFIXES)
        end = "?" if prefix.startswith(("could", "can", "would", "will")) else rng.choice(("", "", "."))
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
            return request + draft.word_as(phrases.ALSO) + second(draft)
        leaves = draft.leaves()
        start = len(draft.parts)
        joint = draft.word_as(phrases.AFTERWARDS)
        request += joint + second(draft)
        draft.order_after(start, leaves)
        return request

    def check(self, example: Example, answer: str) -> bool:
        """Return whether the steps that `answer` stands for are those of the reference."""
        try:
            return steps_of(example, answer) == steps_of(example, example.answer)
        except PlanFlaw:
            return False


def files_in(example: Example) -> list[str]:
    """Return the files that the prompt lists."""
    listed = LISTED.match(example.messages[-1].content)
    return listed[1].split(", ") if listed else []


def steps_of(example: Example, answer: str) -> list[Step]:
    """Return the steps that the frontdoor makes of `answer`. Raises `PlanFlaw` for an answer that is no plan."""
    files, done = files_in(example), DONE.search(example.messages[-1].content)
    earlier = [*_planned(PlanBuilder(files, ROLES), done[1])] if done else []
    builder = PlanBuilder(files, ROLES, earlier, len(earlier))
    for _ in _planned(builder, answer):
        pass
    return builder.steps


def _planned(builder: PlanBuilder, text: str) -> Iterator[PlannedPart]:
    stream = PlanStream(builder.done)
    yield from map(builder.add, stream.feed(text))
    stream.finish()
