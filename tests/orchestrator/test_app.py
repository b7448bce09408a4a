"""The composition root: what it names exists, and what it makes has all attachments."""

import asyncio
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer

from orchestrator.api.app import Endpoints, make_app
from orchestrator.app import CLUSTER, LEARNED_ROUTING, PROCEDURES, PROPOSALS, ROOT, attached
from orchestrator.memrl.learning import Learning
from orchestrator.procedures import attachment
from orchestrator.procedures.attachment import ServiceProcedures
from orchestrator.registry.load import empty_registry
from orchestrator.service.configuration import Configuration
from orchestrator.service.extent import Extent


def test_what_the_root_names_is_there() -> None:
    for attached_part in (LEARNED_ROUTING, PROCEDURES, CLUSTER):
        assert isinstance(resolve_name(attached_part.endpoints), Endpoints)
        for place in attached_part.commands.values():
            assert callable(resolve_name(place.target)) or isinstance(resolve_name(place.target), typer.Typer)
    assert callable(resolve_name(PROPOSALS))
    assert [*ROOT.commands] == ["memory", "frontdoor", "procedures", "nodes", "cluster", "standby"]


async def test_what_executes_procedures_is_made_when_it_is_first_needed(tmp_path: Path) -> None:
    registry = empty_registry(tmp_path / "r.yaml")
    async with attached().service(tmp_path, registry, Configuration(), Extent.NOTHING) as service:
        procedures = service.procedures
        assert isinstance(procedures, ServiceProcedures)
        await procedures.drain()  # of nothing
        first, second = await asyncio.gather(procedures.queue(), procedures.queue())
        assert first is second
        service.adopt(Configuration())
        assert first.engine.library.files()


async def test_procedures_that_cannot_be_executed_leave_the_service_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "QUEUE", "orchestrator.procedures.attachment:Nothing")
    registry = empty_registry(tmp_path / "r.yaml")
    async with attached().service(tmp_path, registry, Configuration(), Extent.NOTHING) as service:
        assert isinstance(service.procedures, ServiceProcedures)
        with pytest.raises(AttributeError):
            await service.procedures.queue()
        assert service.now()


async def test_a_service_and_its_api_have_all_attachments(tmp_path: Path) -> None:
    parts = attached()
    service = parts.service(tmp_path, empty_registry(tmp_path / "r.yaml"), Configuration(), Extent.NOTHING)
    assert isinstance(service.learning, Learning)
    assert isinstance(service.procedures, ServiceProcedures)
    async with asyncio.TaskGroup() as tasks:
        paths = make_app(service, tasks, parts.endpoints).openapi()["paths"]
    assert {"/v1/memory", "/v1/procedures", "/v1/nodes", "/v1/runs"} <= {*paths}
