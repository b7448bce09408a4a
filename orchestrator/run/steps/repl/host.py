"""Answer the requests of a step's code. A model wrote it, so every request is validated and counted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from orchestrator.run.steps.repl.outputs import NoSuchOutput, Outputs
from orchestrator.run.steps.repl.protocol import Answer, Ask, LlmBatch, LlmCall, ReadOutput, ToolAsk, Write
from orchestrator.run.steps.repl.subcalls import BudgetSpent, Spending, SubcallModels, ask_all
from orchestrator.run.steps.tools.contract import ToolError
from orchestrator.run.steps.tools.toolbox import Call, OnCall, Toolbox, shortened
from orchestrator.run.steps.tools.workspace import NoSuchText
from orchestrator.task.events import CallOutcome


class Host:
    """Answers the requests of the code of one attempt, each exactly once."""

    def __init__(
        self,
        toolbox: Toolbox,
        outputs: Outputs,
        subcalls: SubcallModels,
        spending: Spending,
        on_call: OnCall,
        slack: float = 0.0,
    ) -> None:
        self._toolbox = toolbox
        self._outputs = outputs
        self._subcalls = subcalls
        self._spending = spending
        self._on_call = on_call
        self._slack = slack
        self._refused = False
        self._answers: Mapping[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "llm_call": self._llm_call,
            "llm_batch": self._llm_batch,
            "tool": self._tool,
            "write": self._write,
            "output": self._output,
        }

    async def answer(self, request: Ask) -> Answer:
        """Carry out a request and return its value, or the error that the code sees."""
        carry_out = self._answers.get(request.name)
        if carry_out is None:
            return Answer(error=f"there is no call {request.name!r}; accepted: {', '.join(self._answers)}")
        try:
            return Answer(await carry_out(request.arguments))
        except msgspec.ValidationError as error:
            return Answer(error=f"{request.name}: {error}")
        except (BudgetSpent, ToolError, NoSuchText, NoSuchOutput) as error:
            return Answer(error=f"{request.name}: {error}")

    async def _llm_call(self, arguments: dict[str, Any]) -> str:
        call = msgspec.convert(arguments, LlmCall)
        (answer,) = await self._ask_models("llm_call", [call])
        if answer.error is not None:
            raise ToolError(answer.error)
        text: str = answer.value
        return text

    async def _llm_batch(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        answers = await self._ask_models("llm_batch", msgspec.convert(arguments, LlmBatch).calls)
        return [{"value": answer.value, "error": answer.error} for answer in answers]

    async def _ask_models(self, name: str, calls: list[LlmCall]) -> list[Answer]:
        clock = asyncio.get_running_loop().time
        started = clock()

        def report(outcome: CallOutcome, message: str = "") -> None:
            arguments = shortened({"calls": len(calls), "prompts": [call.prompt for call in calls]})
            self._on_call(Call(name, arguments, outcome, message, clock() - started))

        try:
            answers = await ask_all(calls, self._subcalls, self._spending, self._slack)
        except BudgetSpent as error:
            # Of the calls that the budget refuses, only the first is reported.
            if not self._refused:
                report("refused", str(error))
            self._refused = True
            raise
        wrong = [answer.error for answer in answers if answer.error is not None]
        if wrong:
            report("failed", f"{len(wrong)} of {len(answers)}: {wrong[0]}")
        else:
            report("done")
        return answers

    async def _tool(self, arguments: dict[str, Any]) -> Any:
        request = msgspec.convert(arguments, ToolAsk)
        self._spending.take(1)
        return (await self._toolbox.call(request.tool, request.arguments)).value

    async def _write(self, arguments: dict[str, Any]) -> None:
        request = msgspec.convert(arguments, Write)
        self._toolbox.context.workspace.write(request.name, request.text)

    async def _output(self, arguments: dict[str, Any]) -> str:
        request = msgspec.convert(arguments, ReadOutput)
        text = await asyncio.to_thread(self._outputs.read, request.name)
        return text[request.start : request.start + request.length]
