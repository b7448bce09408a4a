"""Serve counters and gauges to Prometheus. Only this file uses its client library."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from orchestrator.api.dependencies import ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.pool.status import ModelStatus, PoolSnapshot
from orchestrator.service.service import Service
from orchestrator.task.reuse import Reuse

PREFIX: Final = "orchestrator"
LLAMA_SERVER: Final = "llamacpp"  # the prefix of llama-server's metrics

router = APIRouter(tags=["upkeep"], responses=dict(DOCUMENTED))


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "All metrics."}},
)
async def metrics(service: ServiceDep) -> Response:
    """Return counters and gauges in Prometheus' text format."""
    return Response(await exposition(service), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _ServiceCollector(Collector):
    def __init__(self, service: Service, pool: PoolSnapshot | None) -> None:
        self._service = service
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        service = self._service
        yield _gauge("ready", "1 if the daemon accepts runs", float(service.why_not_ready is None))
        yield _gauge("runs_waiting", "runs in the queue", service.waiting)
        yield _gauge("runs_running", "runs in progress", len(service.running))
        totals = service.totals
        yield _counter("runs_accepted", "runs accepted", (), [((), totals.accepted)])
        yield _counter("runs_refused", "runs refused because the queue was full", (), [((), totals.refused)])
        yield _counter("runs_finished", "runs that ended", ("status",), _with_label(totals.runs))
        yield _counter("runs_doubtful", "runs that were done with a doubtful answer", (), [((), totals.doubtful)])
        seconds = _with_label(totals.run_seconds)
        yield _counter("run_seconds", "seconds from the acceptance to the end of runs, summed", ("status",), seconds)
        yield _counter("attempts", "attempts that ended", ("model", "outcome"), totals.attempts.items())
        yield _counter("tokens", "tokens of finished generations", ("model", "kind"), totals.tokens.items())
        yield _counter("runs_exported", "runs to a collector, by outcome", ("outcome",), _with_label(totals.exports))
        yield _gauge("runs_to_export", "runs that have ended, and are still to be exported", service.waiting_exports)
        yield from _reuse(totals.reuse)
        yield _counter(
            "shipped", "KV cells that came from other machines of a cluster", ("model", "kind"), totals.shipped.items()
        )
        shipped = _with_label(totals.shipped_seconds)
        yield _counter("shipped_seconds", "seconds in which they came", ("model",), shipped)
        if self._pool is not None:
            yield from _pool_metrics(self._pool)
            yield from _llama_server_metrics(self._pool)


async def exposition(service: Service) -> bytes:
    """Return all metrics in the text format. Call it in the event loop of the service, which owns the figures."""
    pool = await service.orchestrator.survey() if service.why_not_ready is None else None
    registry = CollectorRegistry()
    registry.register(_ServiceCollector(service, pool))
    return generate_latest(registry)


def _reuse(by_model: Mapping[str, Reuse]) -> Iterator[Metric]:
    expected = [((model,), reuse.expected_tokens) for model, reuse in by_model.items()]
    yield _counter("reuse_expected_tokens", "prompt tokens that the cache was expected to hold", ("model",), expected)
    reused = [((model,), reuse.reused_tokens) for model, reuse in by_model.items()]
    yield _counter("reuse_tokens", "prompt tokens of these that it held", ("model",), reused)
    lost = [((model, cause), count) for model, reuse in by_model.items() for cause, count in reuse.losses]
    yield _counter("reuse_lost_tokens", "prompt tokens of these that were computed again", ("model", "cause"), lost)


def _pool_metrics(snapshot: PoolSnapshot) -> Iterator[Metric]:
    yield _gauge("pool_budget_bytes", "memory that models may use", snapshot.budget)
    yield _gauge("pool_used_bytes", "memory that models use", snapshot.used)
    families: dict[str, tuple[str, Callable[[ModelStatus], float]]] = {
        "model_ready": ("1 if the model is loaded", lambda model: float(model.state == "ready")),
        "model_bytes": ("memory that the model uses", lambda model: model.bytes),
        "model_waiting": ("requests that wait for an engine", lambda model: model.waiting),
        "model_active": ("requests that generate", lambda model: model.active),
    }
    for name, (text, value) in families.items():
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=("model",))
        for model in snapshot.models:
            family.add_metric([model.model], value(model))
        yield family
    yield from _speeds(snapshot)
    counted = {model.model: model.counters for model in snapshot.models if model.counters is not None}
    kinds = ("prompt_tokens", "reused_tokens", "output_tokens", "drafted", "accepted", "preempted")
    numbers = [((name, kind), getattr(counters, kind)) for name, counters in counted.items() for kind in kinds]
    yield _counter("engine", "counters of engines since they were loaded", ("model", "kind"), numbers)
    spent = [
        ((name, kind), getattr(counters, f"{kind}_seconds"))
        for name, counters in counted.items()
        for kind in ("llama", "own")
    ]
    yield _counter("engine_seconds", "seconds in llama.cpp, and outside of it", ("model", "kind"), spent)
    saved = GaugeMetricFamily(
        f"{PREFIX}_engine_saved_seconds", "seconds saved by speculation; negative if it cost time", labels=("model",)
    )
    for name, counters in counted.items():
        saved.add_metric([name], counters.saved_seconds)
    yield saved


def _speeds(snapshot: PoolSnapshot) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        f"{PREFIX}_model_tokens_per_second",
        "tokens a second and sequence, on the average since the daemon started",
        labels=("model", "kind"),
    )
    for model in snapshot.models:
        uses = model.roles.values()
        computed = sum(use.prompt_tokens - use.cached_tokens for use in uses)
        family.add_metric([model.model, "prompt"], _rate(computed, sum(use.prefill_seconds for use in uses)))
        written = sum(use.output_tokens for use in uses)
        family.add_metric([model.model, "output"], _rate(written, sum(use.decode_seconds for use in uses)))
    yield family


def _llama_server_metrics(snapshot: PoolSnapshot) -> Iterator[Metric]:
    # Sums over all models since the daemon started, under the names that llama-server's dashboards read.
    uses = [use for model in snapshot.models for use in model.roles.values()]
    counters = [model.counters for model in snapshot.models if model.counters is not None]
    computed = sum(use.prompt_tokens - use.cached_tokens for use in uses)
    written = sum(use.output_tokens for use in uses)
    prefill, decode = sum(use.prefill_seconds for use in uses), sum(use.decode_seconds for use in uses)
    cells, used = sum(engine.cells for engine in counters), sum(engine.used_cells for engine in counters)
    waiting = sum(model.waiting for model in snapshot.models) + sum(engine.queued for engine in counters)
    counted = {
        "prompt_tokens": ("prompt tokens that were computed", computed),
        "prompt_seconds": ("seconds in which prompts were computed", prefill),
        "tokens_predicted": ("tokens that were generated", written),
        "tokens_predicted_seconds": ("seconds in which tokens were generated", decode),
    }
    for name, (text, number) in counted.items():
        yield CounterMetricFamily(f"{LLAMA_SERVER}:{name}", text, value=number)
    measured = {
        "prompt_tokens_seconds": ("prompt tokens a second, on the average", _rate(computed, prefill)),
        "predicted_tokens_seconds": ("generated tokens a second and sequence, on the average", _rate(written, decode)),
        "kv_cache_usage_ratio": ("share of the KV cells that are in use", used / cells if cells else 0.0),
        "kv_cache_tokens": ("KV cells that are in use", used),
        "requests_processing": ("requests that generate", sum(model.active for model in snapshot.models)),
        "requests_deferred": ("requests that wait", waiting),
    }
    for name, (text, value) in measured.items():
        yield GaugeMetricFamily(f"{LLAMA_SERVER}:{name}", text, value=value)


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _counter(name: str, text: str, labels: Iterable[str], values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=list(labels))
    for key, value in values:
        family.add_metric(list(key), value)
    return family


def _with_label(values: Mapping[str, float]) -> list[tuple[tuple[str, ...], float]]:
    return [((key,), value) for key, value in values.items()]
