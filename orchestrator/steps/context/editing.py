"""Keep a conversation within its model's context: tell it the budget, ask for pruning, have it condensed."""

from dataclasses import dataclass, replace

from orchestrator.engine.client import Completion
from orchestrator.engine.contract import Generation
from orchestrator.engine.errors import PromptTooLong
from orchestrator.events import Failure, FailureKind, Usage
from orchestrator.gates import SchemaMismatch
from orchestrator.steps.attempt import Attempt, Models
from orchestrator.steps.context.condensing import ASKING, SUMMARY, TOKENS, summary_text
from orchestrator.steps.context.marks import Marks, Pressure
from orchestrator.steps.context.window import Turn, Window
from orchestrator.steps.errors import AttemptError

BYTES_A_TOKEN = 4
"""Taken where only a server could count."""

LEAST = 128
"""Tokens without which no summary is worth asking for."""

WORTH_PRUNING = 0.5
"""Past the hard mark documents are pruned if they are this share of the history; else the history is condensed."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A window that may be sent, which mark it is past, and what settling it has cost."""

    window: Window
    pressure: Pressure
    usage: Usage


class ContextEditor:
    """Edits the conversations of one attempt. `marks` is None for a model whose context is not known: nothing is full.

    Its calls raise what `models` raises, and `AttemptError` for a summary that is none.
    """

    def __init__(self, attempt: Attempt, models: Models, marks: Marks | None, *, prunes: bool) -> None:
        self._attempt = attempt
        self._models = models
        self.marks = marks
        self._prunes = prunes

    async def count(self, window: Window) -> int:
        """Return the tokens of the conversation, estimated for a model that runs elsewhere."""
        if self._attempt.context is None:
            return -(-sum(len(text.encode()) for _, text in window.messages) // BYTES_A_TOKEN)
        return await self._models.count(self._attempt.model, window.messages)

    async def settle(self, window: Window) -> Settled:
        """Tell the budget behind the last turn; condense what is past the hard mark and has little to prune.

        Raises `PromptTooLong` when even then the conversation does not fit.
        """
        if self.marks is None:
            return Settled(window, "free", Usage())
        tokens, usage = await self.count(window), Usage()
        if window.turns and self._must_condense(window, tokens, self.marks):
            window, usage = await self._condensed(window)
            tokens = await self.count(window)
        if tokens > self.marks.room:
            raise PromptTooLong(tokens, self.marks.context, self.marks.answer)
        pressure = self.marks.pressure(tokens)
        return Settled(self._told(window, tokens, pressure), pressure, usage)

    def _must_condense(self, window: Window, tokens: int, marks: Marks) -> bool:
        """Whether there is too much, and pruning would not help or could not even be asked for."""
        prunable = self._prunes and window.gain >= WORTH_PRUNING and tokens <= marks.room
        return tokens >= marks.hard and not prunable

    async def fits(self, window: Window) -> bool:
        """Whether there would be room for an answer."""
        return self.marks is None or await self.count(window) <= self.marks.room

    def _told(self, window: Window, tokens: int, pressure: Pressure) -> Window:
        if not window.turns:
            return window
        assert self.marks is not None
        line = f"Context: {tokens} of {self.marks.room} tokens."
        if not self._prunes or pressure == "free" or not window.shown:
            return window.remark(line)
        asked = "It is full: prune by id or finish." if pressure == "hard" else "Prune what is not needed, by id."
        return window.remark(f"{line} {asked}")

    async def _condensed(self, window: Window) -> tuple[Window, Usage]:
        """Have the model sum up. The question goes behind what is there already, so its KV cache is used once more.

        A last turn that leaves no room for that is not summed up: it follows the summary.
        """
        assert self.marks is not None
        late: tuple[Turn, ...] = ()
        left = self.marks.context - await self.count(_asking(window))
        if left < LEAST and len(window.turns) > 1:
            window, late = window.without_last(), window.turns[-1:]
            left = self.marks.context - await self.count(_asking(window))
        if left <= 0:
            raise PromptTooLong(self.marks.context - left, self.marks.context, TOKENS)
        request = Generation(
            messages=_asking(window).messages,
            max_tokens=min(TOKENS, left),
            temperature=self._attempt.temperature,
            top_p=self._attempt.top_p,
            seed=self._attempt.seed,
            schema=SUMMARY,
            slack=self._attempt.slack,
        )
        done = await self._models.generate(self._attempt.model, request, None)
        return replace(window.condense(self._summary(window, done)), turns=late), done.usage

    def _summary(self, window: Window, done: Completion) -> str:
        try:
            return summary_text(self._attempt.step.action, window.condensations + 1, done.text)
        except SchemaMismatch as error:
            message = f"the history could not be condensed ({done.finish}): {error.evidence}"
            raise AttemptError(Failure(FailureKind.SCHEMA, message)) from error


def _asking(window: Window) -> Window:
    """Return the conversation with the question for a summary behind its last turn."""
    *before, last = window.turns
    asked = replace(last, notice=f"{last.notice}\n{ASKING}" if last.notice else ASKING)
    return replace(window, turns=(*before, asked))
