"""Answer /v1/responses, whole or streamed. Nothing is kept: each request says all that counts."""

import itertools
import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.access import TheService
from orchestrator.api.bodies import Body
from orchestrator.api.errors import DOCUMENTED, error_detail
from orchestrator.api.events import STREAM, EventStream, message, with_comments
from orchestrator.api.openai.asking import Question, workplace, works_for
from orchestrator.api.openai.generating import Generating
from orchestrator.api.openai.items import (
    CallItem,
    InputItems,
    MessageItem,
    OutputItem,
    call_item,
    input_pairs,
    message_item,
)
from orchestrator.api.openai.sampling import (
    FormatBody,
    Fraction,
    Lenient,
    Temperature,
    Tokens,
    answer_schema,
    refuse_options,
)
from orchestrator.api.openai.tools import MAX_TOOLS, Call, Tool, Toolbox, Withheld
from orchestrator.engine.client.engine import Completion
from orchestrator.errors import OrchestratorError
from orchestrator.events import Usage

Status = Literal["in_progress", "completed", "incomplete", "failed"]

router = APIRouter(prefix="/v1", tags=["openai"], responses=dict(DOCUMENTED))


class FunctionTool(Lenient):
    """A function that the model may call."""

    type: Literal["function"] = "function"
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextOptions(Lenient):
    """The form of the text."""

    model_config = ConfigDict(extra="ignore")
    format: FormatBody | None = None


class ResponseBody(Body, Lenient):
    """A request for an answer."""

    model: str
    input: str | InputItems
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: Tokens | None = None
    temperature: Temperature | None = None
    top_p: Fraction | None = None
    text: TextOptions | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: str | None = None
    background: bool | None = None


class InputDetails(BaseModel):
    """Tokens of the prompt that came from a shared prefix."""

    cached_tokens: int = 0


class OutputDetails(BaseModel):
    """Tokens that were thoughts; none are told apart here."""

    reasoning_tokens: int = 0


class ResponseUsage(BaseModel):
    """Tokens."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Incomplete(BaseModel):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"]


class ResponseAnswer(BaseModel):
    """An answer, or as much of it as there is."""

    id: str
    object: Literal["response"] = "response"
    created_at: float
    status: Status
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None = None
    error: dict[str, Any] | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    metadata: dict[str, str]
    temperature: float | None
    top_p: float | None
    max_output_tokens: int | None
    parallel_tool_calls: bool = False
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]


@router.post(
    "/responses",
    response_model=ResponseAnswer,
    responses={200: {"content": {STREAM: {"schema": {"type": "string"}}}}},
)
async def respond(body: ResponseBody, request: Request, service: TheService) -> ResponseAnswer | Response:
    """Answer. `model` is a role, a persona, a model of the registry, `auto` or `orchestrate`."""
    question = question_of(body)
    works, _ = await works_for(question, service)
    generating = workplace(request).begin(works)
    begun = _begun(body)
    if not body.stream:
        (completion,) = await generating.completions(request)
        return _ended(begun, _item(completion, question.toolbox.read(completion.text)), completion)
    await generating.wait_begun(request)
    return EventStream(with_comments(_events(begun, generating, question.toolbox)), generating.stop)


def question_of(body: ResponseBody) -> Question:
    """Return what a request asks. Raises InputError."""
    refuse_options({"previous_response_id": body.previous_response_id, "background": body.background})
    tools = [Tool(one.name, one.description or "", one.parameters or {}) for one in body.tools or ()]
    return Question(
        name=body.model,
        pairs=input_pairs(body.input, body.instructions),
        toolbox=Toolbox.of(tools, body.tool_choice),
        schema=answer_schema(body.text.format if body.text is not None else None, "text/format"),
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
    )


def _begun(body: ResponseBody) -> ResponseAnswer:
    return ResponseAnswer(
        id=f"resp_{secrets.token_hex(12)}",
        created_at=time.time(),
        status="in_progress",
        model=body.model,
        output=[],
        instructions=body.instructions,
        metadata=body.metadata or {},
        temperature=body.temperature,
        top_p=body.top_p,
        max_output_tokens=body.max_output_tokens,
        tool_choice=body.tool_choice or "auto",
        tools=[{**tool.model_dump(), "strict": False} for tool in body.tools or ()],
    )


def _item(completion: Completion, call: Call | None) -> OutputItem:
    if call is not None:
        return call_item(call)
    return message_item(completion.text, whole=completion.finish not in ("length", "deadline"))


def _ended(begun: ResponseAnswer, item: OutputItem, completion: Completion) -> ResponseAnswer:
    cut = item.status == "incomplete"
    return begun.model_copy(
        update={
            "status": "incomplete" if cut else "completed",
            "incomplete_details": Incomplete(reason="max_output_tokens") if cut else None,
            "output": [item],
            "usage": _usage(completion.usage),
        }
    )


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputDetails(),
        total_tokens=usage.prompt_tokens + usage.output_tokens,
    )


class _Teller:
    """Numbers the events of one streamed answer, and knows which item they are about."""

    def __init__(self, begun: ResponseAnswer) -> None:
        self._begun = begun
        self._numbers = itertools.count()
        self._item = message_item("")
        self._text = ""

    def head(self) -> Iterator[str]:
        """Yield what comes before everything."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._begun.model_dump())

    def piece(self, text: str) -> Iterator[str]:
        """Yield what a piece of text is told by; before the first one, its item begins."""
        if not self._text:
            yield from self._open()
        self._text += text
        yield self._event("response.output_text.delta", **self._part(), delta=text, logprobs=[])

    def end(self, completion: Completion, text: str, call: Call | None) -> Iterator[str]:
        """Yield the rest: `text` that was withheld, or the call; then the whole."""
        if call is not None:
            item: OutputItem = call_item(call)
            assert isinstance(item, CallItem)
            yield from self._called(item)
        else:
            if text or not self._text:
                yield from self.piece(text)
            item = _item(completion, None).model_copy(update={"id": self._item.id})
            assert isinstance(item, MessageItem)
            yield from self._close(item)
        whole = _ended(self._begun, item, completion)
        yield self._event(f"response.{whole.status}", response=whole.model_dump())

    def failed(self, error: OrchestratorError) -> str:
        """Return what an error is told by."""
        detail = error_detail(error)
        return self._event("error", code=detail.code, message=detail.message, param=detail.param)

    def _open(self) -> Iterator[str]:
        empty = self._item.model_copy(update={"status": "in_progress", "content": []})
        yield self._event("response.output_item.added", output_index=0, item=empty.model_dump())
        part = {"type": "output_text", "text": "", "annotations": []}
        yield self._event("response.content_part.added", **self._part(), part=part)

    def _close(self, item: MessageItem) -> Iterator[str]:
        text = item.content[0].text
        yield self._event("response.output_text.done", **self._part(), text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._part(), part=item.content[0].model_dump())
        yield self._event("response.output_item.done", output_index=0, item=item.model_dump())

    def _called(self, item: CallItem) -> Iterator[str]:
        place = {"item_id": item.id, "output_index": 0}
        empty = item.model_copy(update={"arguments": "", "status": "in_progress"})
        yield self._event("response.output_item.added", output_index=0, item=empty.model_dump())
        yield self._event("response.function_call_arguments.delta", **place, delta=item.arguments)
        done = {"arguments": item.arguments, "name": item.name}
        yield self._event("response.function_call_arguments.done", **place, **done)
        yield self._event("response.output_item.done", output_index=0, item=item.model_dump())

    def _part(self) -> dict[str, Any]:
        return {"item_id": self._item.id, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **told: Any) -> str:
        return message({"type": kind, "sequence_number": next(self._numbers), **told}, kind)


async def _events(begun: ResponseAnswer, generating: Generating, toolbox: Toolbox) -> AsyncGenerator[str, None]:
    teller, withheld = _Teller(begun), Withheld(toolbox)
    for line in teller.head():
        yield line
    try:
        async for _, item in generating.items():
            if isinstance(item, Completion):
                lines = teller.end(item, *withheld.end(item.text))
            else:
                text = withheld.take(item)
                lines = teller.piece(text) if text else iter(())
            for line in lines:
                yield line
    except OrchestratorError as error:
        yield teller.failed(error)
