"""A Ray cluster that requires a token and certificates, and daemons that have them or not."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from benchmarks.cluster.ray_nodes import TOKEN, RayNodes
from orchestrator.cluster.arbiter_client import ArbiterClient, Unreachable
from orchestrator.cluster.lease import Granted, Look
from orchestrator.cluster.nodes import CONNECTING, RayCluster
from orchestrator.service.service import Service
from orchestrator.task.events import AttemptGenerated
from tests.orchestrator.api.certificates import Pair, encrypted, self_signed, signed_by
from tests.orchestrator.cluster.test_cluster import (
    events_of,
    execute,
    outputs_of,
    registry_on,
    service_on,
    until_loaded,
    wide_job,
)

NO_CERTIFICATE = {"RAY_USE_TLS": "0"}


def own_addresses() -> set[str]:
    interfaces = psutil.net_if_addrs().values()
    return {address.address for addresses in interfaces for address in addresses if address.family is socket.AF_INET}


def environment_of(authority: Pair, pair: Pair) -> dict[str, str]:
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(pair.certificate),
        "RAY_TLS_SERVER_KEY": str(pair.key),
        "RAY_TLS_CA_CERT": str(authority.certificate),
    }


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return self_signed(tmp_path_factory.mktemp("ca") / "own", "authority", extensions="authority", subject="cluster")


@pytest.fixture(scope="module")
def secured_nodes(with_ray: None, tmp_path_factory: pytest.TempPathFactory, authority: Pair) -> Iterator[RayNodes]:
    """A cluster whose environment this process has, too."""
    environment = {**TOKEN, **environment_of(authority, signed_by(authority, "node", own_addresses()))}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with closing(RayNodes(tmp_path_factory.mktemp("ray") / "nodes.log")) as nodes:
            yield nodes


async def problem_of(service: Service) -> str:
    """Return why the cluster could not be connected to."""
    assert isinstance(service.cluster, RayCluster)
    while service.cluster.problem == CONNECTING:
        await service.cluster.changed.wait()
    assert service.cluster.problem is not None
    return service.cluster.problem


async def test_runs_and_model_files_reach_nodes_with_certificates_and_a_token(
    tmp_path: Path, secured_nodes: RayNodes
) -> None:
    await secured_nodes.add("tls-a", "tls-b")
    async with service_on(tmp_path, secured_nodes, registry_on("tls-a", "tls-b")) as service:
        await until_loaded(service, "tls-a", "tls-b")
        assert service.cluster.problem is None
        events = events_of(service, await execute(service, wide_job()))
        outputs_of(events)
        assert {node for event in events if isinstance(event, AttemptGenerated) for node in event.usage.nodes}
        registry = service.orchestrator.registry
        file = registry.models[registry.roles["worker"].model].file
        assert file is not None
    for name in ("tls-a", "tls-b"):
        (copy,) = (tmp_path / "nodes" / name / "models").glob(f"*/{file.name}")
        assert copy.read_bytes() == file.read_bytes()
    await secured_nodes.remove("tls-a", "tls-b")


def refused_settings(authority: Pair) -> dict[str, tuple[Mapping[str, str], str]]:
    """Return environments by what is wrong with them, and what is said of it."""
    other = self_signed(authority.key.parent.parent / "other", "authority", extensions="authority", subject="other")
    own = signed_by(authority, "own", own_addresses())
    strange = signed_by(other, "strange", own_addresses())
    good = environment_of(authority, own)
    needs_files = "accepted: a certificate, its key without a password, and the certificate of its authority"
    return {
        "no certificate": (NO_CERTIFICATE, "does not answer without TLS; accepted: RAY_USE_TLS=1, RAY_TLS_SERVER_CERT"),
        "strange certificate": (
            environment_of(authority, strange),
            "refuses the certificate of RAY_TLS_SERVER_CERT; accepted: one of the cluster's authority",
        ),
        "strange authority": (
            environment_of(other, strange),
            "; accepted: one that is signed by RAY_TLS_CA_CERT and names ",
        ),
        "no file": ({**good, "RAY_TLS_SERVER_KEY": "/none.key"}, "RAY_TLS_SERVER_KEY: /none.key cannot be read"),
        "not set": ({**good, "RAY_TLS_CA_CERT": ""}, "RAY_TLS_CA_CERT: is not set; accepted with RAY_USE_TLS=1"),
        "key of another": ({**good, "RAY_TLS_SERVER_KEY": str(strange.key)}, needs_files),
        "secret key": ({**good, "RAY_TLS_SERVER_KEY": str(encrypted(own.key))}, needs_files),
        "another token": (
            {"RAY_AUTH_TOKEN": "0" * 32},
            "does not accept this token; accepted: RAY_AUTH_MODE=token with the cluster's in RAY_AUTH_TOKEN",
        ),
        "no token": (
            {"RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": ""},
            "there is no token for the cluster at ",
        ),
        "no token mode": (
            {"RAY_AUTH_MODE": "disabled"},
            "does not accept this token; accepted: RAY_AUTH_MODE=token with the cluster's in RAY_AUTH_TOKEN",
        ),
    }


async def test_a_daemon_that_is_refused_says_why_and_works_alone(
    tmp_path: Path, secured_nodes: RayNodes, authority: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong, (environment, said) in refused_settings(authority).items():
        with monkeypatch.context() as patch:
            patch.setenv("HOME", str(tmp_path))  # which has no token
            for name, value in environment.items():
                patch.setenv(name, value)
            async with service_on(tmp_path, secured_nodes, registry_on("head")) as service:
                assert said in await problem_of(service), wrong
                assert [status.name for status in service.cluster.nodes()] == ["head"]
                await service.orchestrator.pool.load("tiny-small")


@pytest.mark.usefixtures("secured_nodes")
async def test_a_cluster_without_tls_says_so(tmp_path: Path) -> None:
    with closing(RayNodes(tmp_path / "nodes.log", {**TOKEN, **NO_CERTIFICATE})) as plain:
        async with service_on(tmp_path, plain, registry_on("head")) as service:
            assert "does not use TLS; accepted: no RAY_USE_TLS" in await problem_of(service)


async def test_the_arbiter_is_asked_with_certificates_only(
    tmp_path: Path, secured_nodes: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ArbiterClient(secured_nodes.address, str(tmp_path / "arbiter"), tmp_path / "logs", 10.0)) as client:
        assert isinstance(client.ask(Look()), Granted)
    monkeypatch.setenv(*next(iter(NO_CERTIFICATE.items())))
    with closing(ArbiterClient(secured_nodes.address, str(tmp_path / "arbiter"), tmp_path / "logs", 10.0)) as client:
        answer = client.ask(Look())
    assert isinstance(answer, Unreachable)
    assert "does not answer without TLS; accepted: RAY_USE_TLS=1" in answer.reason
    secured_nodes.end_arbiter()
