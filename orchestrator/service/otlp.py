"""Send a run to an OpenTelemetry collector: its spans, by OTLP over HTTP. Only this file uses OpenTelemetry.

Names and attributes follow the conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai). What these do not have is named `orchestrator.*`.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, Literal

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.record.report import Report, StepRow, build_report
from orchestrator.run.record.spans import Fact, Span, run_spans
from orchestrator.run.record.view import AttemptRow, RunView
from orchestrator.service.configuration import TelemetrySettings
from orchestrator.service.telemetry import CollectorUnavailable, parent_span
from orchestrator.task.events import RunAccepted, Usage

Outcome = Literal["exported", "refused", "not sampled", ""]

NAME: Final = "orchestrator"
WORKFLOW: Final = "orchestrate"  # as the model is called that answers with a run
LOCAL_PROVIDER: Final = "llama.cpp"
REMOTE_PROVIDER: Final = "openai"  # the API of remote models
TRACES_PATH: Final = "/v1/traces"
BATCH_SPANS: Final = 256
BATCH_CHARACTERS: Final = 4 << 20  # of attributes in one request
# Answers by which a collector says that it will never take these spans. Others are about the collector, the way to it
# or its configuration.
REFUSALS: Final = frozenset({400, 413, 415, 422})
_OPERATIONS: Final[Mapping[str, str]] = {
    "run": "invoke_workflow",
    "plan": "plan",
    "step": "invoke_agent",
    "generation": "chat",
    "tool": "execute_tool",
}
# Failures are in one line of the daemon's log, and not in one for each try.
logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)


class Collector:
    """The collector at the endpoint of the settings. `remote_models` returns the models that other servers run."""

    def __init__(
        self, settings: TelemetrySettings, journal: JournalReader, remote_models: Callable[[], Collection[str]]
    ) -> None:
        self._with_content = settings.content
        self._journal = journal
        self._remote_models = remote_models
        self._session = _Session()
        endpoint = settings.endpoint.rstrip("/") + TRACES_PATH
        self._exporter = OTLPSpanExporter(endpoint=endpoint, session=self._session)
        self._ids = _Ids()
        self._ended: list[ReadableSpan] = []
        resource = Resource.create({"service.name": NAME, "service.version": version(NAME)})
        # What the environment says (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) counts more.
        resource = resource.merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(_Gathering(self._ended))
        self._tracer = provider.get_tracer(NAME, version(NAME))

    def export(self, run: str) -> Outcome:
        """Send a run, and return what became of it; nothing for one that has not ended. Blocks for seconds.

        The ids of the spans follow from the run's, so a collector that has some of them already gets no others. Raises
        CollectorUnavailable, JournalError.
        """
        view = RunView.of(event for _, event in self._journal.events(run))
        if not view.ended:
            return ""
        report = build_report(view, self._journal.get)
        self._ended.clear()
        self._ids.start(run)
        exported = _ExportedRun(
            view.accepted, report, self._remote_models(), self._text if self._with_content else None
        )
        self._record(run_spans(view, report), exported, _parent_context(view.accepted))
        for batch in _batches(self._ended):
            if not self._sent(batch):
                return "refused"
        return "exported" if self._ended else "not sampled"

    def close(self) -> None:
        """End a request that is under way. Nothing can be exported from now on."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _sent(self, batch: Sequence[ReadableSpan]) -> bool:
        self._session.forget()
        if self._exporter.export(batch) is SpanExportResult.SUCCESS:
            return True
        if self._session.problem and not self._session.refused:
            raise CollectorUnavailable(self._session.problem)
        return False  # refused, or too large to be sent

    def _record(self, span: Span, run: "_ExportedRun", context: Context) -> None:
        if span.kind in ("prompt", "decode") or span.facts.get("cause") == "dependencies":
            return
        started_span = self._tracer.start_span(
            run.name(span),
            context,
            SpanKind.CLIENT if span.kind == "generation" else SpanKind.INTERNAL,
            {**run.attributes(span), **run.content(span)},
            start_time=run.nanoseconds(span.start),
        )
        for part in span.children:
            if part.kind == "decode":
                started_span.add_event("orchestrator.first_token", timestamp=run.nanoseconds(part.start))
        if span.failure:
            started_span.set_status(Status(StatusCode.ERROR, run.why(span)))
        inside = set_span_in_context(started_span, context)
        for child in span.children:
            self._record(child, run, inside)
        started_span.end(run.nanoseconds(span.end))

    def _text(self, digest: str) -> str:
        try:
            return self._journal.get(digest).decode(errors="replace") if digest else ""
        except JournalError:  # retention may have removed it
            return ""


@dataclass(frozen=True, slots=True)
class _ExportedRun:
    accepted: RunAccepted
    report: Report
    remote_models: Collection[str]
    text: Callable[[str], str] | None  # returns the text of an object; None: what may quote texts is left out

    def nanoseconds(self, at: float) -> int:
        return round((self.accepted.at + at) * 1e9)

    def name(self, span: Span) -> str:
        match span.kind:
            case "run":
                return f"invoke_workflow {WORKFLOW}"
            case "step":
                return f"invoke_agent {span.facts['role']}"
            case "generation":
                return f"chat {span.model}"
            case "tool":
                return f"execute_tool {span.name}"
            case "gate":
                return f"gate {span.name}"
            case "wait":
                return f"wait {span.facts['cause']}"
        return span.kind

    def attributes(self, span: Span) -> dict[str, Fact]:
        """Return the attributes that quote no text of prompts and outputs."""
        attributes: dict[str, Fact] = {"orchestrator.step.id": span.step} if span.step else {}
        if operation := _OPERATIONS.get(span.kind):
            attributes["gen_ai.operation.name"] = operation
        if span.model:
            attributes["gen_ai.request.model"] = span.model
            attributes["gen_ai.provider.name"] = REMOTE_PROVIDER if span.model in self.remote_models else LOCAL_PROVIDER
        if span.failure:
            attributes["error.type"] = span.failure
        match span.kind:
            case "run":
                attributes["gen_ai.workflow.name"] = WORKFLOW
            case "step":
                attributes["gen_ai.agent.name"] = span.facts["role"]
                attributes["gen_ai.provider.name"] = LOCAL_PROVIDER
            case "tool":
                attributes |= {"gen_ai.tool.name": span.name, "gen_ai.tool.type": "function"}
            case "generation":
                attributes |= self._request(span) | ({} if span.usage is None else _usage(span.usage))
                return attributes | {
                    f"orchestrator.generation.{name}": fact
                    for name, fact in span.facts.items()
                    if "seconds" in name or name in ("nodes", "drafted_tokens", "accepted_tokens")
                }
        return attributes | {f"orchestrator.{span.kind}.{name}": fact for name, fact in span.facts.items()}

    def content(self, span: Span) -> dict[str, str]:
        """Return the attributes that may quote prompts and outputs, if these may be exported."""
        if self.text is None:
            return {}
        attributes = {f"orchestrator.{span.kind}.{name}": text for name, text in span.texts.items()}
        if span.kind == "run":
            attributes["gen_ai.input.messages"] = _messages("user", ("text", self.report.request))
            if self.report.answer is not None:
                attributes["gen_ai.output.messages"] = _messages(
                    "assistant", ("text", self.report.answer), finish="stop"
                )
        elif span.kind == "generation" and span.number:
            step = next(row for row in self.report.steps if row.id == span.step)
            attempt = next(row for row in step.attempts if row.number == span.number)
            attributes |= self._conversation(step, attempt, self.text)
        elif span.kind == "tool":
            attributes["gen_ai.tool.call.arguments"] = span.texts.get("arguments", "")
        return attributes

    def why(self, span: Span) -> str | None:
        """Return why a span failed; None if that may not be exported, since it may quote an output."""
        return None if self.text is None else span.texts.get("message") or span.texts.get("error")

    def _request(self, span: Span) -> dict[str, Fact]:
        options = self.accepted.options
        settings = {"temperature": options.temperature, "top_p": options.top_p, "seed": options.seed}
        if not span.step:
            return {}  # they are not for plans
        return {f"gen_ai.request.{name}": value for name, value in settings.items() if value is not None}

    def _conversation(self, step: StepRow, attempt: AttemptRow, text: Callable[[str], str]) -> dict[str, str]:
        system = [text(attempt.prompts.system), text(attempt.prompts.persona)]
        if attempt.outcome == "done":
            written, finish = [text(digest) for digest in step.outputs.values()], "stop"
        else:
            written, finish = [text(attempt.answer)], "error"
        parts = [("reasoning", text(attempt.reasoning)), *(("text", output) for output in written)]
        return {
            "gen_ai.system_instructions": json.dumps(_parts(("text", line) for line in system)),
            "gen_ai.input.messages": _messages("user", ("text", step.action)),
            "gen_ai.output.messages": _messages("assistant", *parts, finish=finish),
        }


def _usage(usage: Usage) -> dict[str, Fact]:
    thoughts: dict[str, Fact] = {}
    if usage.reasoning_tokens:
        thoughts = {"gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens}
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        **thoughts,
    }


def _messages(role: str, *parts: tuple[str, str], finish: str = "") -> str:
    message: dict[str, Any] = {"role": role, "parts": _parts(iter(parts))}
    return json.dumps([message | ({"finish_reason": finish} if finish else {})])


def _parts(parts: Iterator[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"type": kind, "content": text} for kind, text in parts if text]


def _parent_context(accepted: RunAccepted) -> Context:
    parent = parent_span(accepted.traceparent)
    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
    return set_span_in_context(
        NonRecordingSpan(SpanContext(parent.trace, parent.span, is_remote=True, trace_flags=flags)), Context()
    )


def _batches(spans: Sequence[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    batch: list[ReadableSpan] = []
    characters = 0
    for span in spans:
        size = sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))
        if batch and (len(batch) >= BATCH_SPANS or characters + size > BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(span)
        characters += size
    if batch:
        yield batch


class _Ids(IdGenerator):
    """Makes the ids of a run's trace and spans from the run's id, so that they are the same whenever it is sent."""

    def __init__(self) -> None:
        self._run = ""
        self._spans = 0

    def start(self, run: str) -> None:
        self._run, self._spans = run, 0

    def generate_trace_id(self) -> int:
        return self._id("trace", 16)

    def generate_span_id(self) -> int:
        self._spans += 1
        return self._id(f"span {self._spans}", 8)

    def _id(self, of: str, size: int) -> int:
        digest = hashlib.sha256(f"{self._run} {of}".encode()).digest()
        return int.from_bytes(digest[:size], "big") or 1  # 0 is no valid id


class _Gathering(SpanProcessor):
    def __init__(self, ended: list[ReadableSpan]) -> None:
        self._ended = ended

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)


class _Session(requests.Session):
    """Keeps how the latest request ended, which the exporter only logs, and leaves further tries to `RunExporter`."""

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        self.refused = False
        self.problem = ""

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        try:
            response = self._sent(request, **how)
            self.refused = response.status_code in REFUSALS
            if not response.ok and not self.refused:
                raise CollectorUnavailable(f"HTTP {response.status_code} {response.reason}")
        except (requests.RequestException, CollectorUnavailable) as error:
            self.problem = str(error)
            raise CollectorUnavailable(self.problem) from error  # the exporter would try errors of its library again
        return response

    def _sent(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        try:
            return super().send(request, **how)
        except requests.ConnectionError:  # the server may have closed a connection that was idle
            return super().send(request, **how)
