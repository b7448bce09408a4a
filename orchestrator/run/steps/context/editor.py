"""Keep a conversation within its model's context: show the budget, ask for pruning, have the history condensed.

Tokens are estimated from those of the last prompt, which the engine has counted anyway. They are counted only before
something is cut or condensed because of them. A prompt that is too long after all is refused by the engine.
"""

from dataclasses import dataclass, replace
from functools import reduce
from math import ceil

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.errors import PromptTooLong
from orchestrator.run.gates import SchemaMismatch
from orchestrator.run.steps.attempt import Attempt, Models
from orchestrator.run.steps.context.budget import FAIR, ContextBudget, Pressure, asking_pays, condensing, sweeping
from orchestrator.run.steps.context.summary import SUMMARY, TOKENS, summary_text
from orchestrator.run.steps.context.window import Turn, Window
from orchestrator.run.steps.errors import AttemptError
from orchestrator.task.events import Failure, FailureKind, Usage
from registry.prompts import PromptSet

BYTES_A_TOKEN = 4
"""An estimate of the length of a token, for models whose tokens cannot be counted here."""

LEAST = 128
"""The fewest tokens that a summary needs to be worth asking for."""


@dataclass(frozen=True, slots=True)
class FittedWindow:
    """A window that may be sent, the pressure that it is under, and what it has cost to make room."""

    window: Window
    pressure: Pressure
    usage: Usage


class ContextEditor:
    """Edits the conversation of one attempt.

    `budget` is None for a model whose context is not known, which is never full. Calls raise what `models` raises, and
    `AttemptError` for a summary that cannot be used.
    """

    def __init__(self, attempt: Attempt, models: Models, budget: ContextBudget | None, *, prunes: bool) -> None:
        self._attempt = attempt
        self._models = models
        self.budget = budget
        self._prompts = attempt.role.prompts
        self._prunes = prunes
        self._tokens_per_character: float | None = None  # None until a prompt of this conversation was counted

    def note_tokens(self, window: Window, tokens: int) -> None:
        """Take note of how many tokens the prompt of a window has, by which later windows are estimated."""
        self._tokens_per_character = tokens / window.size if tokens else None

    def forget_tokens(self) -> None:
        """Count the next window, since an estimate has turned out to be too low."""
        self._tokens_per_character = None

    async def _count(self, window: Window) -> int:
        """Return the tokens of the conversation, estimated from bytes for a model that runs elsewhere."""
        role = self._attempt.role
        if role.context is None:
            return -(-sum(len(message.content.encode()) for message in window.messages) // BYTES_A_TOKEN)
        tokens = await self._models.count(role.model, window.messages, role.priority)
        self.note_tokens(window, tokens)
        return tokens

    async def _tokens(self, window: Window, budget: ContextBudget) -> int:
        """Return the tokens of the conversation: an estimate where that is clearly below the limits, else a count."""
        if self._tokens_per_character is not None:
            estimated = ceil(window.size * self._tokens_per_character)
            if estimated < budget.hard_limit:
                return estimated
        return await self._count(window)

    async def settle(self, window: Window) -> FittedWindow:
        """Make room where that pays or has to be, and add a notice of the budget to the last turn.

        Raises `PromptTooLong` when even then the conversation does not fit.
        """
        if self.budget is None:
            return FittedWindow(window, "free", Usage())
        tokens, usage = await self._tokens(window, self.budget), Usage()
        if self._must_sweep(window, tokens, self.budget):
            window = window.sweep()
            tokens = await self._tokens(window, self.budget)
        if window.turns and tokens >= self.budget.hard_limit and not self._asks(window, tokens, self.budget):
            window, usage = await self._condensed(window)
            tokens = await self._tokens(window, self.budget)
        if tokens > self.budget.max_prompt:
            raise PromptTooLong(tokens, self.budget.context, self.budget.max_answer)
        asks = self._asks(window, tokens, self.budget)
        shown = with_budget_notice(window, tokens, self.budget, self._prompts, prunes=asks)
        # Where the opening is long by itself there is nothing to prune, so the model is not kept from calling tools.
        pressure = self.budget.pressure(tokens) if window.turns else "free"
        return FittedWindow(shown.as_judged() if asks and pressure == "soft" else shown, pressure, usage)

    def _must_sweep(self, window: Window, tokens: int, budget: ContextBudget) -> bool:
        """Return whether sweeping pays. A full context is condensed where that is cheaper; one that is not can wait."""
        way = sweeping(window, tokens)
        most = condensing(window, tokens, self._prompts.condense).price if tokens >= budget.hard_limit else FAIR
        return way.freed > 0 and way.price <= most

    def _asks(self, window: Window, tokens: int, budget: ContextBudget) -> bool:
        """Return whether to ask for pruning: it has to pay, and an answer has to have room."""
        return self._prunes and tokens <= budget.max_prompt and asking_pays(window, tokens, budget)

    async def fits(self, window: Window) -> bool:
        """Return whether the last turn can be shown, as it is or behind a summary of all before it, with room for an
        answer.

        A turn without a document fits also where it can be summed up together with the others.
        """
        if self.budget is None or await self._tokens(window, self.budget) <= self.budget.max_prompt:
            return True
        if (
            window.turns[-1].document is None
            and self.budget.context - await self._count(with_summary_request(window, self._prompts.condense)) >= LEAST
        ):
            return True
        return await self._count(replace(window, turns=window.turns[-1:])) + TOKENS <= self.budget.max_prompt

    async def _condensed(self, window: Window) -> tuple[Window, Usage]:
        """Have the model sum up the conversation. The question is appended, so the engine's KV cache still serves.

        A last turn that leaves no room for the question is not summed up but follows the summary.
        """
        late: tuple[Turn, ...] = ()
        try:
            done = await self._summed_up(window, LEAST if len(window.turns) > 1 else 1)
        except PromptTooLong:
            if len(window.turns) == 1:
                raise
            window, late = window.without_last(), window.turns[-1:]
            done = await self._summed_up(window, 1)
        condensed = window.condense(self._summary(window, done))
        return reduce(Window.add, late, condensed), done.usage

    async def _summed_up(self, window: Window, least: int) -> Completion:
        """Return the model's summary of a window. Raises `PromptTooLong` if it can have less than `least` tokens."""
        request = self._attempt.role.request(
            with_summary_request(window, self._prompts.condense).messages,
            max_tokens=TOKENS,
            seed=self._attempt.seed,
            schema=SUMMARY,
            slack=self._attempt.slack,
            fit=least,
        )
        return await self._models.generate(self._attempt.role.model, request, None)

    def _summary(self, window: Window, done: Completion) -> str:
        try:
            action, times, cut_off = self._attempt.step.action, window.condensations + 1, done.finish == "length"
            return summary_text(action, times, done.text, cut_off=cut_off)
        except SchemaMismatch as error:
            message = f"the history could not be condensed ({done.finish}): {error.evidence}"
            raise AttemptError(Failure(FailureKind.SCHEMA, message)) from error


def with_budget_notice(
    window: Window, tokens: int, budget: ContextBudget, prompts: PromptSet, *, prunes: bool
) -> Window:
    """Return the window with a notice behind its last turn: its size and, under pressure, that pruning is asked for."""
    if not window.turns:
        return window
    line = f"Context: {tokens} of {budget.max_prompt} tokens."
    pressure = budget.pressure(tokens)
    if not prunes or pressure == "free" or not window.shown:
        return window.remark(line)
    asked = prompts.prune_now if pressure == "hard" else prompts.prune
    return window.remark(f"{line} {asked}")


def with_summary_request(window: Window, question: str) -> Window:
    """Return the window with the question for a summary behind its last turn."""
    *before, last = window.turns
    asked = replace(last, notice=f"{last.notice}\n{question}" if last.notice else question)
    return replace(window, turns=(*before, asked))
