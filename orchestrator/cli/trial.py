"""`orchestrator models try`: ask a model three questions, and report its speed and what works.

The three: a question about a text, a JSON object under a schema, and a question that needs a tool. What a model cannot
do is reported with its reason, and is no failure of the command.
"""

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.api.openai.tools import CallTask, ClientTool, ClientTools, with_tools
from orchestrator.cli.complete import complete_model_or_file
from orchestrator.cli.errors import ExitCode
from orchestrator.cli.get import downloads, read_model
from orchestrator.cli.models import memory_for_models
from orchestrator.cli.registry import registry_of
from orchestrator.cli.settings import JsonFlag, Settings, settings
from orchestrator.cli.terminal import glyphs, one_line, print_result, seconds
from orchestrator.engine.client.engine import Completion, Engine
from orchestrator.engine.contract import EngineSpec, Generation, Message
from orchestrator.engine.errors import BadPrompt, EngineError
from orchestrator.engine.tool_calls import ToolCallFinished
from orchestrator.errors import InputError, Problem
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.registry.call_syntax import CallSyntax, call_syntax
from orchestrator.registry.checks import OTHER_TEMPLATE, why_no_prompt, why_no_text
from orchestrator.registry.fit import Room, fit
from orchestrator.registry.gguf import GgufHeader
from orchestrator.registry.models import ModelEntry, Registry
from orchestrator.registry.options import LoadOptions
from orchestrator.registry.sources.local import find_here
from orchestrator.registry.thinking import thought_markers
from orchestrator.task.events import Usage
from orchestrator.task.taskir.validation import BadSchema, OutputSchema, SchemaMismatch

MOST_CONTEXT: Final = 4096  # tokens; a larger context would take longer to load
# The most tokens of an answer, without and with thoughts before it.
ANSWER_TOKENS: Final = 160
THINKING_TOKENS: Final = 1024
SHOWN: Final = 160  # characters of an answer that are shown
# An answer has these in it if the model does not know when to end.
TEMPLATE_MARKS: Final = ("<|", "|>", "[INST]", "<start_of_turn>", "<end_of_turn>", "</s>")
TEXT: Final = """\
The lighthouse at Brennock Head was built in 1871, after three ships had been lost on the reef in one winter. For ninety
years a keeper and his family lived beside it, carried oil up its 142 steps every evening, and wrote down each ship that
passed. In 1961 the lamp was changed for an electric one, and the last keeper, Ada Morrow, moved to the village with her
nineteen notebooks. They lay in a cupboard of the school until a teacher used them for a lesson in arithmetic. One of
the children found that the number of herring boats fell by half between 1902 and 1912, and asked why. The question went
to the harbour office, then to the university, and is now the subject of a book. The tower itself belongs to a trust,
which lets two rooms to visitors in summer and keeps the notebooks, behind glass, in the room below the lamp."""
QUESTION: Final = "In one sentence: who was Ada Morrow?"
NAME: Final = {"type": "string", "maxLength": 60}


def _object(properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


SCHEMA: Final = _object({"built": {"type": "integer"}, "last_keeper": NAME})
WEATHER: Final = ClientTool("get_weather", "Returns the weather of a city as it is now.", _object({"city": NAME}))
AskModel = Callable[[Generation], Awaitable[Completion]]
Works = Literal["yes", "no", "partly", "not asked"]
_MARKS: Final = {"yes": "done", "no": "failed", "partly": "checking", "not asked": "waiting"}
_STYLES: Final = {"yes": "green", "no": "bold red", "partly": "yellow", "not asked": "dim"}


@dataclass(frozen=True, slots=True)
class TrialCheck:
    name: str
    works: Works
    why: str
    answer: str = ""  # what the model wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast the model was. Rates are None if nothing was measured."""

    load_seconds: float | None
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    entry: ModelEntry | None  # None if it is not in the registry
    file: Path | None  # None if another server runs it
    header: GgufHeader | None
    options: LoadOptions


def try_model(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A model of the registry, one of the folder for models, or a GGUF file.",
            autocompletion=complete_model_or_file,
        ),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Ask a model three things, and say how quick it is and what works.

    It gets a question about a text, has to write a JSON object under a schema, and is offered a tool. The
    command shows the tokens per second of prompt and answer, and whether the chat template, thoughts, JSON and tools
    work, and why not.
    Exits with 1 if the model cannot be loaded or does not answer at all.
    """
    subject = _subject(name, settings(context))
    speed, checks = asyncio.run(_try(subject))
    print_result(
        _as_json(subject, speed, checks), lambda console: _print(console, subject, speed, checks), as_json=as_json
    )
    if any(check.works == "no" for check in checks if check.name in ("template", "answer")):
        raise typer.Exit(ExitCode.FAILED)


def _subject(name: str, options: Settings) -> Subject:
    registry = registry_of(options)
    model = registry.model_named(name)
    if model is not None:
        return _registered(registry.models[model])
    file = find_here(name, downloads())
    if file is None:
        accepted = f"a GGUF file, or one of {', '.join(sorted(registry.usable_names)) or 'none'}"
        raise InputError(Problem(name, "is no model of the registry and no file", accepted))
    return _unregistered(file, registry, options)


def _registered(entry: ModelEntry) -> Subject:
    if entry.unavailable is not None:
        raise InputError(Problem(f"models.{entry.id}", entry.unavailable, "a model whose file is there"))
    _check_text(entry.id, entry.header, embeds=entry.embeds)
    options = replace(entry.options, context=min(entry.context, MOST_CONTEXT), slots=1, cells=None)
    return Subject(entry.id, entry, entry.file, entry.header, options)


def _unregistered(file: Path, registry: Registry, options: Settings) -> Subject:
    header = read_model(file)
    _check_text(str(file), header)
    fitted = fit(header, Room(budget=memory_for_models(options, registry)))
    context, library = min(fitted.context, MOST_CONTEXT), registry.defaults.llama_library
    load_options = replace(fitted.options, context=context, slots=1, llama_library=library)
    return Subject(file.name, None, file, header, load_options)


def _check_text(name: str, header: GgufHeader | None, *, embeds: bool = False) -> None:
    reason = None if header is None else why_no_text(header)
    if embeds:
        reason = "it is the model of the role embedder or reranker"
    if reason is not None:
        raise InputError(Problem(name, f"cannot be asked: {reason}", "a model that generates text"))


async def _try(subject: Subject) -> tuple[Speed, list[TrialCheck]]:
    if subject.entry is not None and subject.entry.is_remote:
        remote = RemoteModel(subject.entry, subject.entry.servers[0])
        try:
            return await _ask_all(subject, remote.generate, None)
        finally:
            await remote.close()
    assert subject.file is not None, "a model that no other server runs has a file"
    load_start = time.monotonic()
    spec = EngineSpec.of(subject.options, file=str(subject.file), name=subject.name)
    async with await Engine.start(spec) as engine:
        return await _ask_all(subject, engine.generate, time.monotonic() - load_start)


async def _ask_all(subject: Subject, ask: AskModel, load_seconds: float | None) -> tuple[Speed, list[TrialCheck]]:
    deep = _knows_thoughts(subject.header)
    limit = THINKING_TOKENS if deep else ANSWER_TOKENS
    plain, usage = await _plain(ask, limit)
    template = _template(subject.header, plain)
    speed = _speed(usage, load_seconds)
    if template.works == "no":
        skipped = "It was not asked, as the chat template does not work."
        return speed, [template, *(TrialCheck(name, "not asked", skipped) for name in ("thinking", "JSON", "tools"))]
    thinking = _thinking(plain, usage, deep=deep)
    return speed, [template, plain, thinking, await _json(ask), await _tools(subject, ask, limit)]


def _about_text(system: str, question: str) -> tuple[Message, Message]:
    return Message("system", system), Message("user", f"{TEXT}\n\n{question}")


async def _plain(ask: AskModel, limit: int) -> tuple[TrialCheck, Usage]:
    messages = _about_text("Answer the question about the text.", QUESTION)
    try:
        completion = await ask(Generation(messages=messages, max_tokens=limit, fit=1))
    except BadPrompt as error:
        why = f"The chat template refuses a system message with a user message: {error}"
        return TrialCheck("answer", "no", why), Usage()
    except EngineError as error:
        return TrialCheck("answer", "no", str(error)), Usage()
    text = completion.text.strip()
    if not text:
        return TrialCheck("answer", "no", "The model wrote nothing."), completion.usage
    marks = [mark for mark in TEMPLATE_MARKS if mark in text]
    if marks:
        why = f"The answer has {marks[0]} in it, so the model does not end where its chat template says."
        return TrialCheck("answer", "partly", why, text), completion.usage
    if completion.finish != "stop":
        return TrialCheck("answer", "partly", f"The answer did not end within {limit} tokens.", text), completion.usage
    why = f"The model answered, and ended by itself after {completion.usage.output_tokens} tokens."
    return TrialCheck("answer", "yes", why, text), completion.usage


def _template(header: GgufHeader | None, plain: TrialCheck) -> TrialCheck:
    if plain.works == "no":
        return TrialCheck("template", "no", plain.why)
    if header is None:
        return TrialCheck("template", "yes", "The server that runs the model renders its chat template.")
    if header.chat_template is None:
        why = "The file has no chat template, so turns are written in plain words: it is a base model, or damaged."
        return TrialCheck("template", "partly", why)
    if (lost := why_no_prompt(header)) is not None:
        why = f"The model cannot be used here: {lost}. It takes {OTHER_TEMPLATE}."
        return TrialCheck("template", "no", why, plain.answer)
    return TrialCheck("template", "yes", "The chat template of the file renders a system message and a user message.")


def _knows_thoughts(header: GgufHeader | None) -> bool:
    return header is not None and thought_markers(header.chat_template, lambda _: False) is not None


def _thinking(plain: TrialCheck, usage: Usage, *, deep: bool) -> TrialCheck:
    if "<think>" in plain.answer:
        return TrialCheck("thinking", "partly", "What the model thinks is a part of its answer, and should be apart.")
    if usage.reasoning_tokens:
        why = f"The model thought for {usage.reasoning_tokens} tokens before it answered."
        return TrialCheck("thinking", "yes", why)
    if deep:
        why = "The model can think before it answers, by its chat template, and answered this question without it."
        return TrialCheck("thinking", "yes", why)
    why = "The model does not think before it answers: its chat template has no thoughts."
    return TrialCheck("thinking", "not asked", why)


async def _json(ask: AskModel) -> TrialCheck:
    question = "When was the lighthouse built (built), and who was its last keeper (last_keeper)?"
    messages = _about_text("Answer with a JSON object.", question)
    try:
        text = (await ask(Generation(messages=messages, max_tokens=THINKING_TOKENS, schema=SCHEMA, fit=1))).text
        value = OutputSchema(SCHEMA).read(text)
    except EngineError as error:
        return TrialCheck("JSON", "no", str(error))
    except (SchemaMismatch, BadSchema) as error:
        return TrialCheck("JSON", "no", f"The object does not match its schema: {error}", text.strip())
    if isinstance(value, dict) and str(value["built"]) == "1871" and "Morrow" in value["last_keeper"]:
        return TrialCheck("JSON", "yes", "The object matches its schema and says what the text says.", text.strip())
    why = "The object matches its schema, but does not say what the text says."
    return TrialCheck("JSON", "partly", why, text.strip())


async def _tools(subject: Subject, ask: AskModel, limit: int) -> TrialCheck:
    # A model whose chat template has no syntax for tools gets them in words.
    syntax = None if subject.header is None else call_syntax(subject.header.chat_template)
    free, forced = (_tool_task(choice, syntax) for choice in ("auto", "required"))
    question = Message("user", "What is the weather in Lisbon right now?")
    try:
        completion = await ask(with_tools(_tool_request(free, question, limit), free))
        text = completion.text.strip()
        if calls := _calls(free, completion.text):
            right = "Lisbon" in calls[0].arguments
            why = "The model called the tool by itself" + ("." if right else ", but with a wrong argument.")
            return TrialCheck("tools", "yes" if right else "partly", why, text)
        completion = await ask(with_tools(_tool_request(forced, question, ANSWER_TOKENS), forced))
    except EngineError as error:
        return TrialCheck("tools", "no", str(error))
    if not _calls(forced, completion.text):
        return TrialCheck("tools", "no", "The model does not call the tool, not even where it has to.", text)
    why = (
        "The model calls the tool only where it has to (tool_choice: required); free to choose, it answered without it."
    )
    return TrialCheck("tools", "partly", why, text)


def _tool_task(choice: str, syntax: CallSyntax | None) -> CallTask:
    return CallTask(toolbox=ClientTools.of([WEATHER], choice), syntax=syntax)


def _tool_request(task: CallTask, question: Message, limit: int) -> Generation:
    system = (Message("system", task.toolbox.instructions),) if task.syntax is None else ()
    return Generation(messages=(*system, question), max_tokens=limit, fit=1)


def _calls(task: CallTask, text: str) -> list[ToolCallFinished]:
    parser = task.parser(forced=task.toolbox.forced)
    calls = (call for call in [*parser.push(text), *parser.finish()] if isinstance(call, ToolCallFinished))
    return [call for call in calls if not task.toolbox.problem(call.name, call.arguments)]


def _speed(usage: Usage, load_seconds: float | None) -> Speed:
    computed = usage.prompt_tokens - usage.cached_tokens
    return Speed(
        load_seconds=load_seconds,
        prefill_tokens_per_second=computed / usage.prefill_seconds if usage.prefill_seconds > 0 else None,
        decode_tokens_per_second=usage.output_tokens / usage.decode_seconds if usage.decode_seconds > 0 else None,
        prompt_tokens=computed,
        output_tokens=usage.output_tokens,
    )


def _as_json(subject: Subject, speed: Speed, checks: list[TrialCheck]) -> dict[str, Any]:
    return {
        "model": subject.name,
        "file": None if subject.file is None else str(subject.file),
        "speed": asdict(speed),
        "checks": [asdict(check) for check in checks],
    }


def _print(console: Console, subject: Subject, speed: Speed, checks: list[TrialCheck]) -> None:
    signs = glyphs(console)
    console.print(Text(f"{one_line(subject.name)}: {_facts(subject, speed)}", style="bold"))
    prompt = _rate(speed.prefill_tokens_per_second, speed.prompt_tokens)
    console.print(Text(f"prompt {prompt}, answer {_rate(speed.decode_tokens_per_second, speed.output_tokens)}"))
    console.print(Text("It was asked about a text, for a JSON object, and for what only a tool can find out:"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        mark = Text(f"{signs.states[_MARKS[check.works]]} {check.name}", style=_STYLES[check.works])
        cell = Text(one_line(check.why))
        if check.answer:
            short = one_line(check.answer)
            cell.append(f"\n{short if len(short) <= SHOWN else short[:SHOWN] + signs.more}", style="dim")
        table.add_row(mark, cell)
    console.print(table)
    if subject.entry is None and checks[0].works == "yes":
        advice = f"No registry has it yet: orchestrator init --model {shlex.quote(str(subject.file))}"
        console.print(Text(advice), soft_wrap=True)


def _facts(subject: Subject, speed: Speed) -> str:
    header = subject.header
    description = "run by another server" if header is None else f"{header.architecture} {header.file_type}"
    return description if speed.load_seconds is None else f"{description}, loaded in {seconds(speed.load_seconds)}"


def _rate(rate: float | None, tokens: int) -> str:
    return f"{tokens} tokens" if rate is None else f"{rate:.0f} tokens/s ({tokens} tokens)"
