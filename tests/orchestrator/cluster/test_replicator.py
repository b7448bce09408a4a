"""The two ends of the stream from a head to its standby, over TCP, with an arbiter in this process instead of Ray."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from orchestrator.cluster import replicator
from orchestrator.cluster.arbiter_client import ArbiterClient, Unreachable, now
from orchestrator.cluster.head import wanted_lease
from orchestrator.cluster.lease import Answer, Arbiter, Granted, HeadLease, Record, Request
from orchestrator.cluster.member import Member
from orchestrator.cluster.replicator import LeaseLost, Replicator, listen
from orchestrator.cluster.standby import Standby
from orchestrator.cluster.stream import (
    VERSION,
    Broken,
    Hello,
    Rejected,
    address_of,
    cut,
    encrypted,
    prove_to_head,
    receive,
    send,
)
from orchestrator.errors import InputError
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.journal.replica import SCHEMA
from orchestrator.service.configuration import ClusterSettings
from tests.orchestrator.api.certificates import Pair, self_signed, signed_by
from tests.orchestrator.api.daemon_process import free_port
from tests.orchestrator.run.journal.test_journal import accepted

SECONDS = 3.0  # of the lease; a third of it is more than a busy machine makes a thread wait
PATIENCE = 60.0


class LocalArbiter(ArbiterClient):
    """The rules of an arbiter without Ray. While it is not `reachable` it does not answer."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter
        self.reachable = True

    def ask(self, request: Request) -> Answer | Unreachable:
        return self._arbiter.answer(request, now()) if self.reachable else Unreachable("it is cut off")

    def close(self) -> None:
        pass


@dataclass
class Head:
    """A head, its journal, and what it has said at its end."""

    home: Home
    settings: ClusterSettings
    arbiter: LocalArbiter
    replicator: Replicator
    journal: Journal
    ended: threading.Event
    reasons: list[str]

    def append(self, run: str) -> None:
        asyncio.run(self.journal.append(run, [replace(accepted(), run=run)]))

    def cut(self) -> None:
        """Break the connection to the standby, which connects again."""
        link = self.replicator._link
        assert link is not None
        cut(link.connection)

    def until(self, state: str) -> None:
        changed = self.replicator._changed
        with changed:
            assert changed.wait_for(lambda: self.replicator.status().state == state, PATIENCE)


def settings() -> ClusterSettings:
    return ClusterSettings(ray="auto", silence_seconds=SECONDS, standby=f"127.0.0.1:{free_port()}")


@contextmanager
def running_head(folder: Path, arbiter: Arbiter) -> Iterator[Head]:
    home, own, client = Home(folder), settings(), LocalArbiter(arbiter)
    home.create()
    sent = now()
    answer = client.ask(wanted_lease(own, Member.load(home), waits=False))
    assert isinstance(answer, Granted)
    ended, reasons = threading.Event(), list[str]()

    def end(reason: str) -> None:
        reasons.append(reason)
        ended.set()

    with ExitStack() as stack:
        replicator = Replicator(home, listen(own.standby), HeadLease(answer.record, sent), client, end)
        stack.callback(replicator.stop)
        journal = stack.enter_context(Journal.open(home.path, replication=replicator))
        replicator.open()
        yield Head(home, own, client, replicator, journal, ended, reasons)


@dataclass
class Following:
    """A standby in a thread."""

    home: Home
    arbiter: LocalArbiter
    says: list[str] = field(default_factory=list)
    took_over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.home.create()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        Standby(self.home, settings(), self.arbiter, self.says.append).take_over()
        self.took_over.set()

    def runs(self) -> list[str]:
        with JournalReader.open_to_read(self.home.path) as journal:
            return [row.run for row in journal.runs()]


def arbiter() -> Arbiter:
    return Arbiter(Record(), now() - 1000.0)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    folder = tmp_path_factory.mktemp("ca")
    own, other = (
        self_signed(folder / name, "authority", extensions="authority", subject=name) for name in ("own", "other")
    )
    return own, other


def tls_with(authority: Pair, name: str) -> dict[str, str]:
    """Return the environment of a machine with a certificate of the authority."""
    pair = signed_by(authority, name, ["127.0.0.1"])
    files = {"CA_CERT": authority.certificate, "SERVER_CERT": pair.certificate, "SERVER_KEY": pair.key}
    return {"RAY_USE_TLS": "1", **{f"RAY_TLS_{kind}": str(file) for kind, file in files.items()}}


@pytest.fixture
def with_tls(authorities: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in tls_with(authorities[0], "node").items():
        monkeypatch.setenv(name, value)


def test_a_standby_has_what_was_acknowledged_and_takes_over_when_the_head_ends(tmp_path: Path) -> None:
    judge = arbiter()
    standby = Following(Home(tmp_path / "standby"), LocalArbiter(judge))
    with running_head(tmp_path / "head", judge) as head:
        head.append("before")
        digest = head.journal.put(b"an artifact")
        standby.start()
        head.until("in sync")
        head.append("after")
        other = head.journal.put(b"another one")
        head.append("last")
    assert standby.took_over.wait(PATIENCE)
    assert standby.runs() == ["last", "after", "before"]
    member = Member.load(standby.home)
    assert (member.epoch, member.is_copy, member.handed) == (2, True, judge.record.token)
    with JournalReader.open_to_read(standby.home.path) as journal:
        assert (journal.get(digest), journal.get(other)) == (b"an artifact", b"another one")


def test_a_head_alone_continues_and_a_standby_that_missed_something_waits(tmp_path: Path) -> None:
    judge = arbiter()
    standby = Following(Home(tmp_path / "standby"), LocalArbiter(judge))
    with running_head(tmp_path / "head", judge) as head:
        standby.start()
        head.until("in sync")
        head.replicator.close()  # the standby cannot come back
        head.append("alone")
        assert judge.record.synced == ""
        assert standby.runs() == []
        assert not standby.took_over.is_set()
        head.replicator.open()
        head.until("in sync")
        assert standby.runs() == ["alone"]


def test_a_standby_that_comes_back_gets_what_it_missed_alone(tmp_path: Path) -> None:
    judge = arbiter()
    standby = Following(Home(tmp_path / "standby"), LocalArbiter(judge))
    with running_head(tmp_path / "head", judge) as head:
        head.append("before")
        standby.start()
        head.until("in sync")
        head.append("during")
        copy = standby.home.database.stat().st_ino
        for number in range(3):
            head.cut()
            digest = head.journal.put(f"object {number}".encode())
            head.append(f"missed-{number}")
            head.until("in sync")
            head.append(f"after-{number}")
            with JournalReader.open_to_read(standby.home.path) as journal:
                assert journal.get(digest) == f"object {number}".encode()
        assert standby.home.database.stat().st_ino == copy
        assert [said.startswith("standby: gets a copy") for said in standby.says].count(True) == 1
        runs = [row.run for row in head.journal.runs()]
    assert standby.took_over.wait(PATIENCE)
    assert standby.runs() == runs
    assert runs[-2:] == ["during", "before"]


def test_a_standby_that_missed_too_much_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicator, "HISTORY_BYTES", 10)
    judge = arbiter()
    standby = Following(Home(tmp_path / "standby"), LocalArbiter(judge))
    with running_head(tmp_path / "head", judge) as head:
        standby.start()
        head.until("in sync")
        copy = standby.home.database.stat().st_ino
        head.cut()
        head.append("missed")
        head.until("in sync")
        assert standby.runs() == ["missed"]
        assert standby.home.database.stat().st_ino != copy


def test_a_head_that_hears_from_nobody_ends_and_acknowledges_nothing(tmp_path: Path) -> None:
    judge = arbiter()
    with running_head(tmp_path / "head", judge) as head:
        head.append("before")
        head.arbiter.reachable = False
        assert head.ended.wait(PATIENCE)
        nobody = f"neither the arbiter nor a standby in sync has answered for {SECONDS:g} s: it is cut off"
        assert head.reasons == [f"this daemon is not the head any more: {nobody}"]
        with pytest.raises(LeaseLost, match="nothing can be written"):
            head.append("after")
        assert [row.run for row in head.journal.runs()] == ["before"]


def test_a_head_continues_with_its_standby_when_the_arbiter_is_gone(tmp_path: Path) -> None:
    judge = arbiter()
    standby = Following(Home(tmp_path / "standby"), LocalArbiter(judge))
    with running_head(tmp_path / "head", judge) as head:
        standby.start()
        head.until("in sync")
        head.arbiter.reachable = False
        lease_end, number = now() + SECONDS, 0
        while now() < lease_end + SECONDS / 3:
            head.append(f"run{number}")
            number += 1
            assert not head.ended.wait(0.05)
        assert head.reasons == []
        assert head.replicator.status().problem == "it is cut off"


def test_a_head_whose_lease_another_one_has_ends(tmp_path: Path) -> None:
    judge = arbiter()
    with running_head(tmp_path / "head", judge) as head:
        judge.record = Record(epoch=9, holder="other", token=str(9), address="10.0.0.2:1", seconds=SECONDS)
        assert head.ended.wait(PATIENCE)
        assert head.reasons == ["this daemon is not the head any more: 10.0.0.2:1 has the lease in epoch 9"]


@pytest.mark.parametrize("version", [VERSION, VERSION + 1])
def test_a_head_rejects_another_version_and_its_own_copy(version: int, tmp_path: Path) -> None:
    judge = arbiter()
    with running_head(tmp_path / "head", judge) as head:
        member = judge.record.holder if version == VERSION else "other"
        with closing(socket.create_connection(address_of(head.settings.standby), PATIENCE)) as connection:
            prove_to_head(connection, judge.record.key)
            send(connection, Hello(version, SCHEMA, member))
            answer = receive(connection)
        assert isinstance(answer, Rejected)
        accepted_instead = "one of its own" if version == VERSION else f"{VERSION} and {SCHEMA}"
        assert f"accepted: {accepted_instead}" in answer.reason


def test_whoever_does_not_have_the_key_gets_nothing(tmp_path: Path) -> None:
    judge = arbiter()
    with running_head(tmp_path / "head", judge) as head:
        with closing(socket.create_connection(address_of(head.settings.standby), PATIENCE)) as connection:
            with pytest.raises(Broken, match="does not have the key"):
                prove_to_head(connection, "guessed")
        assert head.replicator.status().state == "absent"


@pytest.mark.usefixtures("with_tls")
def test_a_connection_with_tls_serves_a_standby_as_one_without(tmp_path: Path) -> None:
    judge = arbiter()
    standby = Following(Home(tmp_path / "standby"), LocalArbiter(judge))
    with running_head(tmp_path / "head", judge) as head:
        head.append("before")
        standby.start()
        head.until("in sync")
        head.append("during")
        head.cut()
        digest = head.journal.put(bytes(3 << 20))
        head.append("missed")
        head.until("in sync")
        link = head.replicator._link
        assert link is not None
        assert isinstance(link.connection, ssl.SSLSocket)
        head.append("after")
    assert standby.took_over.wait(PATIENCE)
    assert standby.runs() == ["after", "missed", "during", "before"]
    with JournalReader.open_to_read(standby.home.path) as journal:
        assert journal.get(digest) == bytes(3 << 20)


@pytest.mark.usefixtures("with_tls")
def test_whoever_has_no_certificate_of_the_authority_gets_nothing(
    tmp_path: Path, authorities: tuple[Pair, Pair]
) -> None:
    judge = arbiter()
    own, other = authorities
    strange = tls_with(other, "strange")
    with running_head(tmp_path / "head", judge) as head:
        host, port = address_of(head.settings.standby)

        def problem(environ: Mapping[str, str]) -> str:
            with closing(socket.create_connection((host, port), PATIENCE)) as plain, pytest.raises(Broken) as broken:
                with closing(encrypted(plain, environ, host)) as connection:
                    prove_to_head(connection, judge.record.key)
            return str(broken.value)

        assert "certificate verify failed" in problem(strange)
        assert "unknown ca" in problem({**strange, "RAY_TLS_CA_CERT": str(own.certificate)})
        missing = {**strange, "RAY_TLS_CA_CERT": "/none.pem"}
        assert "RAY_TLS_CA_CERT: /none.pem cannot be read; accepted with RAY_USE_TLS=1: a PEM file" in problem(missing)
        assert head.replicator.status().state == "absent"


def test_an_address_that_is_taken_is_refused(tmp_path: Path) -> None:
    with running_head(tmp_path / "head", arbiter()) as head:
        with pytest.raises(InputError, match=r"cluster\.standby: 127\.0\.0\.1:\d+: Address already in use; accepted: "):
            listen(head.settings.standby)
