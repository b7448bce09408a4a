"""Keep a conversation within its context: show the budget, ask for pruning, have the history condensed."""

from dataclasses import dataclass, replace
from functools import reduce
from math import ceil

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.errors import PromptTooLong
from orchestrator.registry.prompts import PromptSet
from orchestrator.run.steps.attempt import Attempt, AttemptError, Models
from orchestrator.run.steps.context.budget import FAIR, ContextBudget, Pressure, asking_pays, condensing, sweeping
from orchestrator.run.steps.context.summary import SUMMARY, TOKENS, summary_text
from orchestrator.run.steps.context.window import Turn, Window
from orchestrator.task.events import Failure, FailureKind, Usage
from orchestrator.task.taskir.validation import SchemaMismatch

# An estimate for models whose tokens cannot be counted here.
BYTES_A_TOKEN = 4

# Tokens; a summary with less room is not worth asking for.
LEAST = 128


@dataclass(frozen=True, slots=True)
class FittedWindow:
    window: Window
    pressure: Pressure
    usage: Usage  # of making room


class ContextEditor:
    """Edits the conversation of one attempt. `budget` is None for an unknown context, which is never full.

    Calls raise what `models` raises, and `AttemptError` if a summary cannot be used.
    """

    def __init__(self, attempt: Attempt, models: Models, budget: ContextBudget | None, *, prunes: bool) -> None:
        self._attempt = attempt
        self._models = models
        self.budget = budget
        self._prompts = attempt.role.prompts
        self._prunes = prunes
        self._tokens_per_character: float | None = None  # None until a prompt of this conversation was counted

    def note_tokens(self, window: Window, tokens: int) -> None:
        """Learn the tokens of a prompt, from which those of later windows are estimated."""
        self._tokens_per_character = tokens / window.size if tokens else None

    def forget_tokens(self) -> None:
        """Count the next window instead of estimating it."""
        self._tokens_per_character = None

    async def _count(self, window: Window) -> int:
        role = self._attempt.role
        if role.context is None:
            # The model runs elsewhere: estimate from bytes.
            return -(-sum(len(message.content.encode()) for message in window.messages) // BYTES_A_TOKEN)
        tokens = await self._models.count(role.model, window.messages, role.priority)
        self.note_tokens(window, tokens)
        return tokens

    async def _tokens(self, window: Window, budget: ContextBudget) -> int:
        if self._tokens_per_character is not None:
            estimated = ceil(window.size * self._tokens_per_character)
            # The engine has counted the last prompt anyway. Tokens are only counted again before something is cut or
            # condensed because of them. If a prompt is too long after all, the engine refuses it.
            if estimated < budget.hard_limit:
                return estimated
        return await self._count(window)

    async def settle(self, window: Window) -> FittedWindow:
        """Make room if needed, and note the budget in the last turn. Raises `PromptTooLong` if it does not fit."""
        if self.budget is None:
            return FittedWindow(window, "free", Usage())
        tokens, usage = await self._tokens(window, self.budget), Usage()
        if self._must_sweep(window, tokens, self.budget):
            window = window.sweep()
            tokens = await self._tokens(window, self.budget)
        if window.turns and tokens >= self.budget.hard_limit and not self._should_ask(window, tokens, self.budget):
            window, usage = await self._condensed(window)
            tokens = await self._tokens(window, self.budget)
        if tokens > self.budget.max_prompt:
            raise PromptTooLong(tokens, self.budget.context, self.budget.max_answer)
        asks_to_prune = self._should_ask(window, tokens, self.budget)
        shown = with_budget_notice(window, tokens, self.budget, self._prompts, prunes=asks_to_prune)
        # If the opening alone is long, there is nothing to prune, so the model may still call tools.
        pressure = self.budget.pressure(tokens) if window.turns else "free"
        return FittedWindow(shown.as_judged() if asks_to_prune and pressure == "soft" else shown, pressure, usage)

    def _must_sweep(self, window: Window, tokens: int, budget: ContextBudget) -> bool:
        # A full context is condensed if that is cheaper; one that is not full can wait.
        way = sweeping(window, tokens)
        most = condensing(window, tokens, self._prompts.condense).price if tokens >= budget.hard_limit else FAIR
        return way.freed > 0 and way.price <= most

    def _should_ask(self, window: Window, tokens: int, budget: ContextBudget) -> bool:
        # Pruning has to pay, and an answer must have room.
        return self._prunes and tokens <= budget.max_prompt and asking_pays(window, tokens, budget)

    async def fits(self, window: Window) -> bool:
        """Whether the last turn can be shown, alone or behind a summary of the rest, with room for an answer."""
        if self.budget is None or await self._tokens(window, self.budget) <= self.budget.max_prompt:
            return True
        if (
            # Without a document, a turn can also be summed up together with the others.
            window.turns[-1].document is None
            and self.budget.context - await self._count(with_summary_request(window, self._prompts.condense)) >= LEAST
        ):
            return True
        return await self._count(replace(window, turns=window.turns[-1:])) + TOKENS <= self.budget.max_prompt

    async def _condensed(self, window: Window) -> tuple[Window, Usage]:
        # The question is appended, so the engine's KV cache still serves. A last turn that leaves no room for the
        # question follows the summary instead.
        late: tuple[Turn, ...] = ()
        try:
            completion = await self._summed_up(window, LEAST if len(window.turns) > 1 else 1)
        except PromptTooLong:
            if len(window.turns) == 1:
                raise
            window, late = window.without_last(), window.turns[-1:]
            completion = await self._summed_up(window, 1)
        condensed = window.condense(self._summary(window, completion))
        return reduce(Window.add, late, condensed), completion.usage

    async def _summed_up(self, window: Window, least: int) -> Completion:
        # Raises `PromptTooLong` if the summary can have fewer than `least` tokens.
        request = self._attempt.role.request(
            with_summary_request(window, self._prompts.condense).messages,
            max_tokens=TOKENS,
            seed=self._attempt.seed,
            schema=SUMMARY,
            slack=self._attempt.slack,
            fit=least,
        )
        return await self._models.generate(self._attempt.role.model, request, None)

    def _summary(self, window: Window, completion: Completion) -> str:
        try:
            action, times, cut_off = self._attempt.step.action, window.condensations + 1, completion.finish == "length"
            return summary_text(action, times, completion.text, cut_off=cut_off)
        except SchemaMismatch as error:
            message = f"the history could not be condensed ({completion.finish}): {error.evidence}"
            raise AttemptError(Failure(FailureKind.SCHEMA, message)) from error


def with_budget_notice(
    window: Window, tokens: int, budget: ContextBudget, prompts: PromptSet, *, prunes: bool
) -> Window:
    """Return the window with its size behind the last turn, and under pressure a request to prune."""
    if not window.turns:
        return window
    line = f"Context: {tokens} of {budget.max_prompt} tokens."
    pressure = budget.pressure(tokens)
    if not prunes or pressure == "free" or not window.shown:
        return window.remark(line)
    request = prompts.prune_now if pressure == "hard" else prompts.prune
    return window.remark(f"{line} {request}")


def with_summary_request(window: Window, question: str) -> Window:
    *before, last = window.turns
    asking_turn = replace(last, notice=f"{last.notice}\n{question}" if last.notice else question)
    return replace(window, turns=(*before, asking_turn))
