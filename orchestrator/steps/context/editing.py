"""Keep a conversation within its model's context: tell it the budget, ask for pruning, have it condensed."""

from dataclasses import dataclass, replace
from functools import reduce

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.errors import PromptTooLong
from orchestrator.events import Failure, FailureKind, Usage
from orchestrator.gates import SchemaMismatch
from orchestrator.steps.attempt import Attempt, Models
from orchestrator.steps.context.condensing import ASKING, SUMMARY, TOKENS, summary_text
from orchestrator.steps.context.cost import FAIR, asking_pays, condensing, sweeping
from orchestrator.steps.context.marks import Marks, Pressure
from orchestrator.steps.context.window import Turn, Window
from orchestrator.steps.errors import AttemptError

BYTES_A_TOKEN = 4
"""Taken where nobody could count, or not yet."""

LEAST = 128
"""Tokens without which no summary is worth asking for."""


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
        if self._attempt.role.context is None:
            return -(-sum(len(text.encode()) for _, text in window.messages) // BYTES_A_TOKEN)
        role = self._attempt.role
        return await self._models.count(role.model, window.messages, role.priority)

    async def settle(self, window: Window) -> Settled:
        """Make room where that pays or has to be, and tell the budget behind the last turn.

        Raises `PromptTooLong` when even then the conversation does not fit.
        """
        if self.marks is None:
            return Settled(window, "free", Usage())
        tokens, usage = await self.count(window), Usage()
        if self._must_sweep(window, tokens, self.marks):
            window = window.sweep()
            tokens = await self.count(window)
        if window.turns and tokens >= self.marks.hard and not self._asks(window, tokens, self.marks):
            window, usage = await self._condensed(window)
            tokens = await self.count(window)
        if tokens > self.marks.room:
            raise PromptTooLong(tokens, self.marks.context, self.marks.answer)
        asks = self._asks(window, tokens, self.marks)
        shown = told(window, tokens, self.marks, prunes=asks)
        # An opening that is long by itself leaves nothing to prune: what a call brings is shown, or told of, then.
        pressure = self.marks.pressure(tokens) if window.turns else "free"
        return Settled(shown.as_judged() if asks and pressure == "soft" else shown, pressure, usage)

    def _must_sweep(self, window: Window, tokens: int, marks: Marks) -> bool:
        """Whether sweeping pays: what is full is condensed if that is cheaper, else nothing need be done at all."""
        way = sweeping(window, tokens)
        most = condensing(window, tokens).price if tokens >= marks.hard else FAIR
        return way.freed > 0 and way.price <= most

    def _asks(self, window: Window, tokens: int, marks: Marks) -> bool:
        """Whether to ask for pruning past a mark: it pays, and an answer has room."""
        return self._prunes and tokens <= marks.room and asking_pays(window, tokens, marks)

    async def fits(self, window: Window) -> bool:
        """Whether the last turn can be shown with room for an answer, as it is or behind a summary of all before it.

        One without a document need not be shown: it fits where the summary can be of it too.
        """
        if self.marks is None or await self.count(window) <= self.marks.room:
            return True
        if window.turns[-1].document is None and self.marks.context - await self.count(asking(window)) >= LEAST:
            return True
        return await self.count(replace(window, turns=window.turns[-1:])) + TOKENS <= self.marks.room

    async def _condensed(self, window: Window) -> tuple[Window, Usage]:
        """Have the model sum up. The question goes behind what is there already, so its KV cache is used once more.

        A last turn that leaves no room for that is not summed up: it follows the summary.
        """
        assert self.marks is not None
        late: tuple[Turn, ...] = ()
        left = self.marks.context - await self.count(asking(window))
        if left < LEAST and len(window.turns) > 1:
            window, late = window.without_last(), window.turns[-1:]
            left = self.marks.context - await self.count(asking(window))
        if left <= 0:
            raise PromptTooLong(self.marks.context - left, self.marks.context, TOKENS)
        request = self._attempt.role.request(
            asking(window).messages,
            max_tokens=min(TOKENS, left),
            seed=self._attempt.seed,
            schema=SUMMARY,
            slack=self._attempt.slack,
        )
        done = await self._models.generate(self._attempt.role.model, request, None)
        condensed = window.condense(self._summary(window, done))
        return reduce(Window.add, late, condensed), done.usage

    def _summary(self, window: Window, done: Completion) -> str:
        try:
            action, times, cut_off = self._attempt.step.action, window.condensations + 1, done.finish == "length"
            return summary_text(action, times, done.text, cut_off=cut_off)
        except SchemaMismatch as error:
            message = f"the history could not be condensed ({done.finish}): {error.evidence}"
            raise AttemptError(Failure(FailureKind.SCHEMA, message)) from error


def told(window: Window, tokens: int, marks: Marks, *, prunes: bool) -> Window:
    """Return the window with its size behind its last turn and, past a mark, with what is to be done about it."""
    if not window.turns:
        return window
    line = f"Context: {tokens} of {marks.room} tokens."
    pressure = marks.pressure(tokens)
    if not prunes or pressure == "free" or not window.shown:
        return window.remark(line)
    asked = "It is full: prune by id or finish." if pressure == "hard" else "Prune what is not needed, by id."
    return window.remark(f"{line} {asked}")


def asking(window: Window) -> Window:
    """Return the conversation with the question for a summary behind its last turn."""
    *before, last = window.turns
    asked = replace(last, notice=f"{last.notice}\n{ASKING}" if last.notice else ASKING)
    return replace(window, turns=(*before, asked))
