"""The head's end of the stream to its standby, and its lease: what it commits is there, too, and without it it ends.

    writer of the journal ── commit ──▶ queue of the link ──▶ standby
              ▲                                                 │ Done
              └──────────── or: nobody can take over ◀── arbiter

Four threads: one renews the lease, one ends the process when it has run out, one accepts standbys, one serves the
current one. They share one condition. None of them needs the daemon's event loop, which may be busy.
"""

import dataclasses
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

import structlog

from orchestrator.cluster.arbiter_client import ArbiterClient, Unreachable, now
from orchestrator.cluster.history import History, Item
from orchestrator.cluster.lease import Granted, HeadLease, Refused
from orchestrator.cluster.stream import (
    SLICE_BYTES,
    VERSION,
    Broken,
    Changes,
    Database,
    Done,
    Hello,
    Message,
    Missing,
    Objects,
    Rejected,
    Stored,
    Welcome,
    address_of,
    cut,
    encrypted,
    prove_to_standby,
    receive,
    send,
)
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.errors import JournalCorrupt, JournalError, ObjectMissing
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.objects import ObjectStore
from orchestrator.run.journal.replica import SCHEMA, Change, copy_database, list_objects
from orchestrator.service.attachments import StandbyState, StandbyStatus

RENEWALS: Final = 5  # in the time of a lease
PATIENCE: Final = 1 / 3  # of the time of a lease, for an answer of a standby that is in sync
PROOF_SECONDS: Final = 10.0  # for somebody who connects to say who he is
COPY_SECONDS: Final = 120.0  # for an answer of a standby that stores a copy
LOOK_SECONDS: Final = 0.5  # between two looks at the clock, since a suspended machine wakes nobody in time
STOP_SECONDS: Final = 5.0  # for the answer to a last renewal
HISTORY_BYTES: Final = 32 << 20  # of changes, for a standby that comes back
MOST_CHANGES: Final = 256  # in a message

M = TypeVar("M", bound=Message)

log = structlog.get_logger(__name__)


class LeaseLost(JournalError):
    """This process is not the head any more, so that it may not write."""


@dataclasses.dataclass(slots=True, eq=False)
class _Link:
    """A standby that is connected."""

    connection: socket.socket
    member: str
    address: str
    queue: list[Item]
    done: int  # the number of the last item that is on the standby's disk
    caught_up: bool = False  # it has everything, and commits wait for it
    dropped: str = ""  # why it is not used any more


class Replicator:
    """Holds a lease for the daemon of a state folder, and serves its standby. A `Replication`.

    `end` is called, in a thread, when the lease is lost; it must not return before nothing acts any more.
    """

    def __init__(
        self,
        home: Home,
        listener: socket.socket,
        lease: HeadLease,
        arbiter: ArbiterClient,
        end: Callable[[str], None],
    ) -> None:
        """Start. Standbys connect to the `listener`."""
        for copy in (home.path / "cluster").glob("copy-*.db*"):  # of a process that was killed
            copy.unlink(missing_ok=True)
        self._home = home
        self._objects = ObjectStore(home.objects)
        self._lease = lease
        self._arbiter = arbiter
        self._end = end
        self._changed = threading.Condition()
        self._link: _Link | None = None
        self._history: History | None = None  # since a standby has connected for the first time
        self._serving = False  # there is a journal
        self._stopped = False
        self._lost: str | None = None
        self._problem: str | None = None  # why the arbiter did not answer the last time
        self._listener = listener
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()
        for work in (self._watch, self._accept):
            threading.Thread(target=work, name="standby", daemon=True).start()

    @property
    def epoch(self) -> int:
        return self._lease.record.epoch

    @property
    def why_not_acting(self) -> str | None:
        """Why this process may do nothing now, or None."""
        if self._lost is None and self._lease.acts(now()):
            return None
        return self._lost or "the lease of the head has run out"

    def status(self) -> StandbyStatus:
        with self._changed:
            link: _Link | None = self._link
            state: StandbyState = "absent"
            if link is not None:
                state = "in sync" if self._lease.synced == link.member and link.caught_up else "copying"
            address = "" if link is None else link.address
            return StandbyStatus(state=state, address=address, epoch=self.epoch, problem=self._problem)

    def open(self) -> None:
        """Serve standbys: there is a journal."""
        with self._changed:
            self._serving = True
            self._changed.notify_all()

    def close(self) -> None:
        """Serve nobody, since the journal is closed and may be replaced. The lease is still held."""
        with self._changed:
            self._serving = False
            self._history = None
            if self._link is not None:
                self._drop(self._link, "the journal is closed")

    def stop(self) -> None:
        """Give the lease back. Blocks."""
        self.close()
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._renewing.join(STOP_SECONDS)
        if self._renewing.is_alive():
            self._arbiter.interrupt()
            self._renewing.join()
        elif self._lost is None and self._problem is None:
            self._arbiter.ask(self._lease.renewal(self._lease.record.synced, released=True))
        self._arbiter.close()

    # What the journal tells

    def check(self) -> None:
        """Raises LeaseLost."""
        if (reason := self.why_not_acting) is not None:
            raise LeaseLost(self._home.database, f"nothing can be written: {reason}")

    def note_object(self, digest: str) -> None:
        with self._changed:
            self._queue(digest)

    def commit(self, change: Change) -> None:
        """Return when the standby has a change, or when nobody can take over without it. Raises LeaseLost."""
        with self._changed:
            link = self._queue(change)
            number = 0 if self._history is None else self._history.end
            self._changed.notify_all()
            while not self._is_safe(link, number):
                self.check()
                self._changed.wait(LOOK_SECONDS)
            self.check()

    def _queue(self, item: Item) -> _Link | None:
        if self._history is not None:
            self._history.add(item)
        if (link := self._link) is not None:
            link.queue.append(item)
        return link

    def _is_safe(self, link: _Link | None, number: int) -> bool:
        current = self._link
        if current is not link:  # a later one copies a database that has the change, or gets it from the history
            return self._lease.alone or (current is not None and current.caught_up)
        if link is None:
            return self._lease.alone
        return link.done >= number or (self._lease.alone and not link.caught_up)

    # The lease

    def _renew(self) -> None:
        while True:
            with self._changed:
                if self._stopped or self._lost is not None:
                    return
                record = self._lease.renewal(self._synced())
            sent = now()
            answer = self._arbiter.ask(record)
            with self._changed:
                match answer:
                    case Granted():
                        self._lease.note_renewed(record, sent)
                        self._problem = None
                    case Refused(reason):
                        return self._lose(reason)
                    case Unreachable(reason):
                        self._problem = reason
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._stopped or self._synced() != record.synced,  # noqa: B023 - called here
                    timeout=record.seconds / RENEWALS,
                )

    def _synced(self) -> str:
        return self._link.member if self._link is not None and self._link.caught_up else ""

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped and self._lost is None:
                remaining = self._lease.until - now()
                if remaining <= 0:
                    seconds = self._lease.record.seconds
                    why = f": {self._problem}" if self._problem else ""
                    self._lose(f"neither the arbiter nor a standby in sync has answered for {seconds:g} s{why}")
                    return
                self._changed.wait(min(remaining, LOOK_SECONDS))

    def _lose(self, reason: str) -> None:
        self._lost = reason
        self._changed.notify_all()
        log.error("this daemon is not the head any more", epoch=self.epoch, reason=reason)
        self._end(f"this daemon is not the head any more: {reason}")

    # The standby

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:  # it is closed
                return
            threading.Thread(target=self._serve, args=(connection, peer[0]), name="standby", daemon=True).start()

    def _serve(self, connection: socket.socket, address: str) -> None:
        with ExitStack() as stack:
            stack.enter_context(connection)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(PROOF_SECONDS)
                connection = stack.enter_context(encrypted(connection, os.environ))
                prove_to_standby(connection, self._lease.record.key)
                link, continued = self._welcome(connection, address)
                stack.callback(self._forget, link)
                connection.settimeout(COPY_SECONDS)
                if not continued:
                    self._copy(link)
                log.info("the standby has a copy", address=address, continued=continued)
                while True:
                    self._send_changes(link)
            except (Broken, JournalError, OSError) as error:
                log.warning("the standby is not served any more", address=address, reason=str(error))

    def _welcome(self, connection: socket.socket, address: str) -> tuple[_Link, bool]:
        # Returns also whether the standby needs nothing but the queue.
        hello = _expect(Hello, receive(connection))
        record = self._lease.record
        reason = ""
        if (hello.version, hello.schema) != (VERSION, SCHEMA):
            reason = (
                f"its version is {hello.version}, of its journal {hello.schema}; accepted: {VERSION} and {SCHEMA},"
                " the head's"
            )
        elif hello.member == record.holder:
            reason = "its state folder is a copy of the head's; accepted: one of its own, or no cluster/member.json"
        if reason:
            send(connection, Rejected(reason))
            raise Broken(reason)
        with self._changed:
            history = self._history = self._history or History(HISTORY_BYTES)
            missed = history.after(hello.stream, hello.number)
            link = _Link(connection, hello.member, address, missed or [], history.end - len(missed or []))
            if self._link is not None:
                self._drop(self._link, f"another standby has connected, from {address}")
            self._link = link
            # Only then may its journal be replaced: until now it might have taken over with the one that it has.
            ready = self._changed.wait_for(
                lambda: link.dropped or (self._serving and self._lease.alone), timeout=COPY_SECONDS
            )
            if link.dropped or not ready:
                self._drop(link, link.dropped or "the arbiter cannot be reached")
                raise Broken(link.dropped)
        continued = missed is not None
        send(connection, Welcome(record.epoch, record.seconds, history.stream, continued))
        return link, continued

    def _drop(self, link: _Link, reason: str) -> None:
        link.dropped = link.dropped or reason
        if self._link is link:
            self._link = None
        cut(link.connection)
        self._changed.notify_all()

    def _forget(self, link: _Link) -> None:
        with self._changed:
            self._drop(link, "its connection has ended")

    def _copy(self, link: _Link) -> None:
        # What is committed meanwhile is queued, and what is in both is ignored by the standby.
        copy = self._home.path / "cluster" / f"copy-{id(link)}.db"
        try:
            copy_database(self._home, copy)
            with open(copy, "rb") as file:
                while part := file.read(SLICE_BYTES):
                    send(link.connection, Database(part))
        finally:
            _remove(copy)
        send(link.connection, Database(b""))
        send(link.connection, Objects(tuple(list_objects(self._home))))
        for digest in _expect(Missing, receive(link.connection)).digests:
            self._send_object(link, digest)

    def _send_object(self, link: _Link, digest: str) -> None:
        try:
            data = self._objects.get(digest)
        except ObjectMissing:
            return  # no event names it any more
        except JournalCorrupt as error:
            log.error("an object cannot be copied to the standby", error=str(error))
            return
        send(link.connection, Stored(data))

    def _send_changes(self, link: _Link) -> None:
        seconds = self._lease.record.seconds
        with self._changed:
            self._changed.wait_for(lambda: link.queue or link.dropped, timeout=seconds / RENEWALS)
            if link.dropped:
                raise Broken(link.dropped)
            items, link.queue = link.queue[:MOST_CHANGES], link.queue[MOST_CHANGES:]
            caught_up, synced = link.caught_up, self._lease.synced == link.member
        sent = now()
        for digest in items:
            if isinstance(digest, str):
                self._send_object(link, digest)
        changes, number = tuple(item for item in items if not isinstance(item, str)), link.done + len(items)
        send(link.connection, Changes(changes, number, caught_up and synced))
        _expect(Done, receive(link.connection))
        with self._changed:
            link.done = number
            if caught_up:
                self._lease.note_confirmed(sent)
            elif not link.queue:
                link.caught_up = True
                link.connection.settimeout(seconds * PATIENCE)
            self._changed.notify_all()


def _expect(kind: type[M], message: Message) -> M:
    if not isinstance(message, kind):
        raise Broken(f"the standby has sent {type(message).__name__}; accepted: {kind.__name__}")
    return message


def listen(text: str) -> socket.socket:
    """Return a socket that listens at a configured ADDRESS:PORT. Raises InputError."""
    with ExitStack() as stack:
        try:
            family, *_, address = socket.getaddrinfo(*address_of(text), type=socket.SOCK_STREAM)[0]
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError as error:
            accepted = "a free port at an address of this machine, which the other one reaches"
            raise InputError(Problem("cluster.standby", f"{text}: {error.strerror}", accepted)) from error
        stack.pop_all()
    return listener


def _remove(copy: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        copy.with_name(f"{copy.name}{end}").unlink(missing_ok=True)
