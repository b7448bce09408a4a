"""The standby: gets a copy of the head's journal, and becomes the daemon on it when the head is gone.

`orchestrator standby` replaces itself by `python -m orchestrator.cluster.standby`, which is configured by the
environment alone. When it has the lease, it replaces itself by the daemon.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

import msgspec
import structlog

from orchestrator.api.logs import log_to
from orchestrator.cluster.arbiter_client import ArbiterClient, Unreachable, now
from orchestrator.cluster.attachment import check_ray, check_standby
from orchestrator.cluster.head import arbiter_client, wanted_lease
from orchestrator.cluster.lease import Granted, Look, Promise, Record
from orchestrator.cluster.member import Member, put_journal_aside
from orchestrator.cluster.stream import (
    VERSION,
    Broken,
    Changes,
    Database,
    Done,
    Hello,
    Missing,
    Objects,
    Rejected,
    Stored,
    Welcome,
    address_of,
    encrypted,
    prove_to_head,
    receive,
    send,
)
from orchestrator.errors import InputError, OrchestratorError, Problem
from orchestrator.registry.errors import RegistryError
from orchestrator.registry.load import find_registry, load_registry
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.home import Home, HomeLock, home_path
from orchestrator.run.journal.replica import SCHEMA, Change, Replica
from orchestrator.service.configuration import ClusterSettings, load_configuration

DAEMON: Final = (sys.executable, "-m", "orchestrator.app")
PAUSE: Final = 1.0  # seconds between two tries
CONNECT_SECONDS: Final = 5.0
COPY_SECONDS: Final = 300.0  # until the next part of a copy comes

log = structlog.get_logger(__name__)


class Standby:
    """Follows the head from a state folder whose lock this process holds. `show` gets each new state as a sentence."""

    def __init__(
        self, home: Home, settings: ClusterSettings, arbiter: ArbiterClient, show: Callable[[str], None] = print
    ) -> None:
        self._home = home
        self._settings = settings
        self._arbiter = arbiter
        self._show = show
        self._shown = ""
        self._part = home.path / "cluster" / "copy.db"  # of a database that comes
        self._member = Member.load(home).changed(handed="")
        self._replica = Replica(home)
        self._promise = Promise(now())
        self._is_whole = self._member.is_copy and home.database.exists()
        self._stream, self._number = "", 0  # what this process has of the head's stream; no stream if nothing

    def take_over(self) -> None:
        """Return when this machine has the lease, which the daemon that starts next gets. Raises JournalError."""
        wanted = wanted_lease(self._settings, self._member, waits=True)
        # An answer may be lost, so each try may follow one that was granted.
        wanted, record = msgspec.structs.replace(wanted, handed=wanted.token), Record()
        while True:
            answer = self._arbiter.ask(Look())
            if isinstance(answer, Granted):
                record = answer.record
            elif isinstance(answer, Unreachable):
                self._say(f"cannot reach the arbiter: {answer.reason}")
            if self._may_ask(record):
                answer = self._arbiter.ask(msgspec.structs.replace(wanted, epoch=self._member.epoch))
                if isinstance(answer, Granted):
                    return self._hand_over(answer.record)
                self._say(f"does not take over: {answer.reason}")
            if record.holder in ("", self._member.id):
                self._say("waits for a head")
            else:
                self._follow(record)
            time.sleep(PAUSE)

    def _is_complete(self, record: Record) -> bool:
        return self._member.id == record.holder or (self._member.id == record.synced and self._is_whole)

    def _may_ask(self, record: Record) -> bool:
        return self._is_complete(record) and self._promise.may_ask(now(), record.seconds)

    def _hand_over(self, record: Record) -> None:
        self._replica.close()
        self._member.changed(epoch=record.epoch, handed=record.token).save(self._home)
        self._arbiter.close()
        self._say(f"takes over: it becomes the head, with epoch {record.epoch}")

    def _say(self, state: str) -> None:
        if state != self._shown:
            self._shown = state
            self._show(f"standby: {state}")
            log.info("the standby has a new state", state=state)

    # The head

    def _follow(self, record: Record) -> None:
        # Until the connection ends.
        host, port = address_of(record.address)
        try:
            with ExitStack() as stack:
                connection = stack.enter_context(socket.create_connection((host, port), CONNECT_SECONDS))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = stack.enter_context(encrypted(connection, os.environ, host))
                prove_to_head(connection, record.key)
                send(connection, Hello(VERSION, SCHEMA, self._member.id, self._stream, self._number))
                connection.settimeout(COPY_SECONDS)
                self._receive_all(connection, record)
        except (Broken, OSError, JournalError) as error:
            may = "it may take over" if self._is_complete(record) else "it may not take over: some events are not here"
            self._say(f"gets nothing from the head at {record.address}: {error}; {may}")

    def _receive_all(self, connection: socket.socket, record: Record) -> None:
        head, stream = f"the head at {record.address}, epoch {record.epoch}", ""
        while True:
            message = receive(connection)
            self._promise.note_heard(now())
            match message:
                case Rejected(reason):
                    raise Broken(f"the head rejects this standby: {reason}")
                case Welcome(epoch, _, stream, continued):
                    self._check_epoch(epoch)
                    if not continued:
                        self._begin(epoch)
                        self._say(f"gets a copy of the journal of {head}")
                case Changes(changes, number, synced):
                    self._apply(changes)
                    self._stream, self._number = stream, number
                    send(connection, Done())
                    self._promise.note_heard(now())
                    if synced:
                        connection.settimeout(record.seconds)
                        self._say(f"in sync with {head}")
                case Database() | Objects() | Stored():
                    self._copy(connection, message)
                case other:
                    raise Broken(f"the head has sent {type(other).__name__}; accepted: what is for a standby")

    def _copy(self, connection: socket.socket, message: Database | Objects | Stored) -> None:
        match message:
            case Database(part) if part:
                with open(self._part, "ab") as file:
                    file.write(part)
            case Database():
                self._replica.replace_database(self._part)
            case Objects(digests):
                send(connection, Missing(tuple(self._replica.missing(digests))))
            case Stored(data):
                self._replica.put(data)

    def _apply(self, changes: Iterable[Change]) -> None:
        self._is_whole, self._stream = False, ""
        for change in changes:
            self._replica.apply(change)
        self._is_whole = True

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self._member.epoch:
            raise Broken(f"its epoch is {epoch}; accepted: {self._member.epoch} or higher")

    def _begin(self, epoch: int) -> None:
        if not self._member.is_copy and (aside := put_journal_aside(self._home)) is not None:
            self._show(f"standby: the journal of this machine is in {aside} now")
        self._member = self._member.changed(epoch=epoch, is_copy=True)
        self._member.save(self._home)
        self._part.unlink(missing_ok=True)
        self._is_whole, self._stream = False, ""


def run(home: Home, settings: ClusterSettings) -> None:
    """Be the standby until this machine is the head. Raises JournalError."""
    with HomeLock(home):
        Standby(home, settings, arbiter_client(settings, home), lambda line: print(line, flush=True)).take_over()


def main() -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the daemon handles it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))  # its copy is complete at any time
    os.umask(0o077)
    try:
        configuration = load_configuration()
        settings, home = configuration.cluster, Home(home_path(os.environ))
        check_configuration(settings)
        load_registry(find_registry())  # the daemon would refuse an invalid one later
        home.create()
        log_to(home.logs, configuration.logs)
        run(home, settings)
    except (OrchestratorError, RegistryError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError | RegistryError) else 1
    sys.stdout.flush()
    os.execve(DAEMON[0], DAEMON, os.environ)  # noqa: S606 - our own program


def check_configuration(settings: ClusterSettings) -> None:
    """Raises InputError if a machine with these settings cannot be a standby."""
    if not settings.standby:
        accepted = "ADDRESS:PORT of this machine, at which it will serve its own standby once it is the head"
        raise InputError(Problem("cluster.standby", "is not configured", accepted))
    check_standby(settings)
    check_ray()


if __name__ == "__main__":
    sys.exit(main())
