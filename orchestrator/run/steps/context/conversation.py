"""Ask a model for one turn after another, within its context, and add up the usage."""

from dataclasses import replace

from orchestrator.engine.client.engine import Completion, OnText
from orchestrator.engine.contract import Message
from orchestrator.engine.errors import BadGrammar, PromptTooLong
from orchestrator.run.steps.answer import ANY_JSON
from orchestrator.run.steps.attempt import Attempt, Models, added
from orchestrator.run.steps.context.budget import ContextBudget, Pressure
from orchestrator.run.steps.context.editor import ContextEditor
from orchestrator.run.steps.context.window import Turn, Window
from orchestrator.task.events import Usage

# Characters shown of each end of a result that is too long.
ENDS = 200


class Conversation:
    """The conversation of one attempt. Its calls raise what `models` raises.

    `context` is the tokens of one sequence, None if unknown. With `prunes`, the model is asked to drop documents
    before the history is condensed.
    """

    def __init__(
        self,
        attempt: Attempt,
        models: Models,
        opening: tuple[Message, ...],
        context: int | None,
        *,
        prunes: bool = False,
        on_text: OnText | None = None,
    ) -> None:
        self._attempt = attempt
        self._models = models
        self._on_text = on_text
        limit = attempt.max_tokens
        budget = None if context is None else ContextBudget.of(context, limit)
        self._limit = limit if budget is None else budget.max_answer
        self._editor = ContextEditor(attempt, models, budget, prunes=prunes)
        self.window = Window(opening)
        self.pressure: Pressure = "free"
        self.usage = Usage()

    async def ask(self, schema: dict[str, object] | None = None) -> Completion:
        """Return the next answer. Raises `PromptTooLong` if there is no room for one.

        A schema that cannot become a grammar is not enforced: the caller checks.
        """
        try:
            completion = await self._generate(schema)
        except PromptTooLong:
            if not self.window.turns:
                raise
            await self._add_last_again()
            completion = await self._generate(schema)
        self._editor.note_tokens(self.window, completion.usage.prompt_tokens)
        self.usage = added(self.usage, completion.usage)
        return completion

    async def _generate(self, schema: dict[str, object] | None) -> Completion:
        request = self._attempt.role.request(
            self.window.messages,
            max_tokens=self._limit,
            seed=self._attempt.seed,
            schema=schema,
            slack=self._attempt.slack,
        )
        try:
            return await self._models.generate(self._attempt.role.model, request, self._on_text)
        except BadGrammar:
            loose = replace(request, schema=ANY_JSON)
            return await self._models.generate(self._attempt.role.model, loose, self._on_text)

    async def _add_last_again(self) -> None:
        # The estimate of the tokens was too low.
        self._editor.forget_tokens()
        last = replace(self.window.turns[-1], notice="")
        self.window = self.window.without_last()
        await self.add(last)

    async def add(self, turn: Turn) -> None:
        """Add a turn and make room. Of a result that is too long, the model sees the size or both ends."""
        window = self.window.add(turn)
        if not await self._editor.fits(window):
            window = self.window.add(Turn(turn.wrote, _in_short(turn)))
        await self._settle(window)

    async def prune(self, wrote: str, ids: tuple[str, ...]) -> None:
        """Mark documents as pruned. Their texts leave the conversation as soon as that pays."""
        names = {document.id: document.name for document in self.window.gathered}
        result = f"Pruned: {', '.join(names[id] for id in ids)}."
        await self._settle(self.window.prune(ids).add(Turn(wrote, result)))

    async def _settle(self, window: Window) -> None:
        settled = await self._editor.settle(window)
        self.window, self.pressure = settled.window, settled.pressure
        self.usage = added(self.usage, settled.usage)


def _in_short(turn: Turn) -> str:
    if turn.document is not None:
        size = len(turn.document.text)
        return f"{turn.document.name}: {size} characters are too long to be shown; ask for a part"
    how = f": {turn.rest}" if turn.rest else ""
    between = f"… {len(turn.result) - 2 * ENDS} characters are too long to be shown{how} …"
    # Never longer than the result.
    return min(turn.result, f"{turn.result[:ENDS]}\n{between}\n{turn.result[-ENDS:]}", key=len)
