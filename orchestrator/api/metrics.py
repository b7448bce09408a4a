"""Tell Prometheus what was counted, and how things stand. The one file through which its client enters."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.daemon.service import Service
from orchestrator.pool import ModelStatus, PoolSnapshot

PREFIX = "orchestrator"


class _Figures(Collector):
    """Reads the figures of a service when it is asked for them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        service = self._service
        yield _gauge("ready", "1 if the daemon takes runs", float(service.why_not_ready is None))
        yield _gauge("runs_waiting", "runs that wait for a place", service.waiting)
        yield _gauge("runs_running", "runs that have a place", len(service.running))
        totals = service.totals
        yield _counter("runs_accepted", "runs accepted", (), [((), totals.accepted)])
        yield _counter("runs_refused", "runs refused since too many wait", (), [((), totals.refused)])
        yield _counter("runs_finished", "runs that ended", ("status",), _keyed(totals.runs))
        seconds = _keyed(totals.run_seconds)
        yield _counter("run_seconds", "from acceptance to the end of a run, in all", ("status",), seconds)
        yield _counter("attempts", "attempts that ended", ("model", "outcome"), totals.attempts.items())
        yield _counter("tokens", "tokens of finished generations", ("model", "kind"), totals.tokens.items())
        if service.why_not_ready is None:
            yield from _pool(service.orchestrator.snapshot())


def exposition(service: Service) -> bytes:
    """Return all metrics as text. To be called from the event loop of the service, which owns the figures."""
    registry = CollectorRegistry()
    registry.register(_Figures(service))
    return generate_latest(registry)


def _pool(snapshot: PoolSnapshot) -> Iterator[Metric]:
    yield _gauge("pool_budget_bytes", "memory that models may take", snapshot.budget)
    yield _gauge("pool_used_bytes", "memory that models have taken", snapshot.used)
    families: dict[str, tuple[str, Callable[[ModelStatus], float]]] = {
        "model_ready": ("1 if the model is loaded", lambda one: float(one.state == "ready")),
        "model_bytes": ("memory the model holds", lambda one: one.bytes),
        "model_waiting": ("requests that wait for an engine", lambda one: one.waiting),
        "model_active": ("requests that generate", lambda one: one.active),
    }
    for name, (text, value) in families.items():
        family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=("model",))
        for one in snapshot.models:
            family.add_metric([one.model], value(one))
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _counter(name: str, text: str, labels: Iterable[str], values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=list(labels))
    for key, value in values:
        family.add_metric(list(key), value)
    return family


def _keyed(values: Mapping[str, float]) -> list[tuple[tuple[str, ...], float]]:
    return [((key,), value) for key, value in values.items()]
