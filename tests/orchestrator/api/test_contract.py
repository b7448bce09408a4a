"""The daemon answers as its OpenAPI document says: schemathesis sends generated requests."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.orchestrator.api.daemon_process import Running, running_daemon

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
EXAMPLES = 100

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon of its own, because the requests leave many runs behind, few of which have ended."""
    home = tmp_path_factory.mktemp("probed") / "home"
    with running_daemon(home, ORCHESTRATOR_RUNS_MAX_RUNNING="1", ORCHESTRATOR_RUNS_MAX_SECONDS="1") as running:
        yield running


def test_the_daemon_conforms_to_its_openapi_document(probed: Running) -> None:
    headers = {"Authorization": f"Bearer {probed.token}"}
    document = schemathesis.openapi.from_url(f"http://127.0.0.1:{probed.port}/openapi.json", headers=headers)
    found: Iterator[Any] = document.get_all_operations()
    operations = [each.ok() for each in found]
    assert len(operations) > 20
    for operation in operations:
        probe(operation, headers)


def probe(operation: Any, headers: dict[str, str]) -> None:
    """Send generated requests to one operation."""

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def tried(case: Any) -> None:
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=120)

    tried()


def test_the_daemon_is_ready_afterwards(probed: Running) -> None:
    with probed.client() as client:
        answer: httpx2.Response = client.get("/health/ready")
    assert answer.json() == {"status": "ok"}
