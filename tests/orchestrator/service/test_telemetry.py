"""Runs that have ended are exported to a collector, and one that is down, slow or strict harms nothing else."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from hypothesis import given
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from structlog.testing import capture_logs

from orchestrator.api.metrics import exposition
from orchestrator.app import attached
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.service import telemetry
from orchestrator.service.configuration import Configuration, RunSettings, TelemetrySettings
from orchestrator.service.extent import Extent
from orchestrator.service.otlp import Collector
from orchestrator.service.quota import Totals
from orchestrator.service.service import Service
from orchestrator.service.telemetry import ParentSpan, RunExporter, parent_span
from orchestrator.task.events import AttemptGenerated, Event, Usage
from tests.orchestrator.run.record.run_courses import recorded
from tests.orchestrator.run.record.test_chrome_trace import a_run
from tests.orchestrator.run_jobs import REGISTRY, job, step
from tests.orchestrator.service.otlp_receiver import Receiver, attributes_in, receiving

ACTION = "Summarize a.txt."
SHORT = [step("S1", ACTION, ["a.txt"], ["s1"])]
CUT = [step("S1", ACTION, ["a.txt"], ["s1.json"], max_tokens=2)]
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def configured(endpoint: str, *, content: bool = False, running: int = 8) -> Configuration:
    settings = TelemetrySettings(endpoint=endpoint, content=content)
    return Configuration(telemetry=settings, runs=RunSettings(max_running=running, reserved=0))


async def executed(service: Service, steps: list[dict[str, Any]] = SHORT, traceparent: str = "") -> str:
    """Execute a job, and return the id of its run when the run has ended."""
    run = (await service.submit(replace(job(steps), traceparent=traceparent))).run
    async for _ in service.watch(run):
        pass
    return run


async def spans(receiver: Receiver) -> list[Span]:
    return await asyncio.to_thread(receiver.spans)


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def test_a_run_is_exported_by_the_conventions_for_generative_ai(tmp_path: Path, receiver: Receiver) -> None:
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint)) as service:
        run = await executed(service, traceparent=TRACEPARENT)
        request = await asyncio.to_thread(receiver.request)
    (resource,) = request.resource_spans
    assert attributes_in(resource.resource.attributes)["service.name"] == "orchestrator"
    sent = [span for scope in resource.scope_spans for span in scope.spans]
    by_name = {span.name: span for span in sent}
    model = REGISTRY.roles["worker"].model
    assert {"invoke_workflow orchestrate", "invoke_agent worker", "attempt", f"chat {model}"} <= by_name.keys()
    whole = by_name["invoke_workflow orchestrate"]
    assert {span.trace_id.hex() for span in sent} == {TRACE}
    assert whole.parent_span_id.hex() == PARENT
    ids = {span.span_id for span in sent}
    assert len(ids) == len(sent)
    assert {span.parent_span_id for span in sent if span is not whole} <= ids
    about = attributes_in(whole.attributes)
    assert (about["gen_ai.operation.name"], about["orchestrator.run.id"]) == ("invoke_workflow", run)
    chat = by_name[f"chat {model}"]
    usage = attributes_in(chat.attributes)
    assert chat.kind == Span.SPAN_KIND_CLIENT
    assert (usage["gen_ai.operation.name"], usage["gen_ai.provider.name"]) == ("chat", "llama.cpp")
    assert usage["gen_ai.request.model"] == model
    assert usage["gen_ai.usage.input_tokens"] > 0
    assert usage["gen_ai.usage.output_tokens"] > 0
    assert usage["gen_ai.usage.cache_read.input_tokens"] >= 0
    (first,) = chat.events
    assert chat.start_time_unix_nano <= first.time_unix_nano <= chat.end_time_unix_nano
    step_of_run = attributes_in(by_name["invoke_agent worker"].attributes)
    assert step_of_run["gen_ai.agent.name"] == "worker"
    assert (step_of_run["orchestrator.step.id"], step_of_run["orchestrator.step.critical"]) == ("S1", True)
    for span in sent:
        assert whole.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= whole.end_time_unix_nano


async def test_prompts_and_outputs_are_exported_only_if_the_configuration_says_so(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint)) as service:
        run = await executed(service)
        await executed(service, CUT)
        answer = (await asyncio.to_thread(service.orchestrator.views.report, run)).answer
        assert answer
        await spans(receiver)
        failed = await spans(receiver)
        for text in (ACTION, answer, "a test"):
            assert not [body for body in receiver.bodies if text.encode() in body]
        assert not [span for span in failed if span.status.message]
        service.adopt(configured(receiver.endpoint, content=True))
        await executed(service)
        (chat,) = [span for span in await spans(receiver) if span.name.startswith("chat ")]
    said = {key: json.loads(value) for key, value in attributes_in(chat.attributes).items() if "message" in key}
    assert said["gen_ai.input.messages"] == [{"role": "user", "parts": [{"type": "text", "content": ACTION}]}]
    (output,) = said["gen_ai.output.messages"]
    assert (output["role"], output["finish_reason"]) == ("assistant", "stop")
    assert output["parts"][-1]["content"].strip() == answer


async def test_what_failed_is_an_error_with_its_kind(tmp_path: Path, receiver: Receiver) -> None:
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint)) as service:
        await executed(service, CUT)
        sent = await spans(receiver)
    whole = next(span for span in sent if span.name == "invoke_workflow orchestrate")
    attempts = [span for span in sent if span.name == "attempt"]
    assert [span.status.code for span in (whole, *attempts)] == [Status.STATUS_CODE_ERROR] * (1 + len(attempts))
    assert attributes_in(whole.attributes)["error.type"] == "failed"
    assert {attributes_in(span.attributes)["error.type"] for span in attempts} == {"schema"}


@pytest.fixture
def all_levels() -> Iterator[None]:
    """Log all levels, whatever an earlier test has configured."""
    configured_logs = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**configured_logs)


@pytest.mark.usefixtures("all_levels")
async def test_a_collector_that_is_down_gets_the_runs_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(telemetry, "LONGEST_PAUSE", 0.05)
    port = unused_port()
    with capture_logs() as logs:
        async with attached().service(tmp_path, REGISTRY, configured(f"http://127.0.0.1:{port}")) as service:
            runs = [await executed(service) for _ in range(3)]
            assert [(await service.row(run)).status for run in runs] == ["done"] * 3
            assert service.waiting_exports == 3
            assert b"orchestrator_runs_to_export 3.0" in await exposition(service)
            with receiving(port) as receiver:
                exported = [await spans(receiver) for _ in runs]
                await asyncio.to_thread(_until_all_are_sent, service)
                assert b'orchestrator_runs_exported_total{outcome="exported"} 3.0' in await exposition(service)
    assert [_run_of(sent) for sent in exported] == runs
    about = [line["event"] for line in logs if "export" in line["event"]]
    assert about == ["runs wait to be exported: the collector is down", "runs are exported again"]


def _run_of(sent: list[Span]) -> str:
    whole = next(span for span in sent if span.name == "invoke_workflow orchestrate")
    return str(attributes_in(whole.attributes)["orchestrator.run.id"])


def _until_all_are_sent(service: Service) -> None:
    exporter = service._exporter
    assert exporter is not None
    with exporter._changed:
        assert exporter._changed.wait_for(lambda: not exporter.waiting, 60)


async def test_a_collector_that_never_answers_keeps_neither_runs_nor_the_daemon_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "CLOSING_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with attached().service(tmp_path, REGISTRY, configured(endpoint)) as service:
            runs = [await executed(service) for _ in range(2)]
            assert [(await service.row(run)).status for run in runs] == ["done"] * 2
    assert service.totals.exports == {"dropped": 2}


async def test_a_run_that_is_sent_again_has_the_same_ids(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "FIRST_PAUSE", 0.01)
    receiver.answers += [HTTPStatus.SERVICE_UNAVAILABLE]
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint)) as service:
        await executed(service)
        first, second = await spans(receiver), await spans(receiver)
    assert [(span.trace_id, span.span_id) for span in first] == [(span.trace_id, span.span_id) for span in second]


async def test_a_run_that_the_collector_refuses_does_not_keep_back_the_next_one(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answers += [HTTPStatus.BAD_REQUEST]
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint)) as service:
        runs = [await executed(service), await executed(service)]
        assert [_run_of(await spans(receiver)) for _ in runs] == runs
    assert service.totals.exports == {"refused": 1, "exported": 1}


async def test_a_trace_that_its_caller_does_not_record_gets_no_run(tmp_path: Path, receiver: Receiver) -> None:
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint)) as service:
        await executed(service, traceparent=TRACEPARENT.removesuffix("01") + "00")
        recorded_run = await executed(service)
        assert _run_of(await spans(receiver)) == recorded_run
    assert service.totals.exports == {"not sampled": 1, "exported": 1}


async def test_a_run_that_is_cancelled_in_the_queue_is_exported(tmp_path: Path, receiver: Receiver) -> None:
    chain = [*SHORT, *(step(f"S{n}", f"Summarize s{n - 1}.", [f"s{n - 1}"], [f"s{n}"]) for n in range(2, 7))]
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint, running=1)) as service:
        first, second = [(await service.submit(job(chain))).run for _ in range(2)]
        await service.cancel(second)
        sent = await spans(receiver)
        await service.cancel(first)
        await spans(receiver)
    assert _run_of(sent) == second
    assert attributes_in(sent[-1].attributes)["orchestrator.run.status"] == "cancelled"


async def test_the_run_of_a_command_is_exported_before_the_command_ends(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "CLOSING_SECONDS", 60.0)
    async with attached().service(tmp_path, REGISTRY, configured(receiver.endpoint), Extent.RUNS) as service:
        run = await executed(service)
    assert service.totals.exports == {"exported": 1}
    assert _run_of(await spans(receiver)) == run


async def test_a_full_queue_drops_the_oldest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MAX_QUEUED", 3)
    totals = Totals()
    with Journal.open(tmp_path) as journal:
        settings = TelemetrySettings(endpoint=f"http://127.0.0.1:{unused_port()}")
        exporter = RunExporter(settings, journal, tuple, totals)
        for number in range(10):
            exporter.put(f"R{number}")
        assert exporter.waiting <= 4
        exporter.close()
    outcomes = totals.exports
    assert outcomes["dropped"] + outcomes["unreadable"] == 10, "the journal has none of these runs"


class _Recorded(JournalReader):
    """A journal of one run, whose objects are missing."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events

    def events(self, run: str, after: int = 0, *, skip: int = 0, limit: int | None = None) -> list[tuple[int, Event]]:
        return list(enumerate(self._events, start=1))

    def get(self, digest: str) -> bytes:
        return b"text"


def test_any_run_that_has_ended_can_be_exported() -> None:
    with receiving() as receiver:

        @given(recorded())
        def check(events: list[Event]) -> None:
            collector = Collector(
                TelemetrySettings(endpoint=receiver.endpoint, content=True), _Recorded(events), lambda: {"m"}
            )
            outcome = collector.export("R")
            collector.close()
            assert outcome == ("exported" if cast(Any, events[-1]).kind == "run_finished" else "")
            if outcome:
                sent = receiver.spans()
                assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in sent)

        check()


def test_attempts_and_chats_name_their_nodes_and_drafts() -> None:
    usage = Usage(output_tokens=4, decode_seconds=2.0, nodes=("east", "west"), drafted_tokens=6, accepted_tokens=3)
    spread = [
        replace(event, usage=usage) if isinstance(event, AttemptGenerated) and event.step == "S1" else event
        for event in a_run()
    ]
    with receiving() as receiver:
        collector = Collector(TelemetrySettings(endpoint=receiver.endpoint), _Recorded(spread), set)
        assert collector.export("R") == "exported"
        collector.close()
        sent = [(span.name, attributes_in(span.attributes)) for span in receiver.spans()]
    nodes = [
        (name, attributes["orchestrator.step.id"], attributes[key])
        for name, attributes in sent
        for key in ("orchestrator.attempt.nodes", "orchestrator.generation.nodes")
        if key in attributes
    ]
    assert nodes == [("chat small", "S1", "east, west"), ("attempt", "S1", "east, west")] * 2
    drafts = {
        (name, *(attributes.get(f"orchestrator.generation.{count}_tokens") for count in ("drafted", "accepted")))
        for name, attributes in sent
        if attributes.get("gen_ai.operation.name") == "chat"
    }
    assert {("chat small", 6, 3), ("chat front", None, None)} <= drafts


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-" + "0" * 32 + f"-{PARENT}-01",
        f"00-{TRACE}-" + "0" * 16 + "-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-1",
        f"cc-{TRACE}-{PARENT}-01-" + "x" * 1000,
    ],
)
def test_an_invalid_traceparent_names_no_span(header: str) -> None:
    assert parent_span(header) is None


def test_a_traceparent_names_the_span_of_the_caller() -> None:
    assert parent_span(TRACEPARENT) == ParentSpan(int(TRACE, 16), int(PARENT, 16), True)
    later = f"cc-{TRACE}-{PARENT}-02-what-the-future-will-be-like"
    assert parent_span(later) == ParentSpan(int(TRACE, 16), int(PARENT, 16), False)
