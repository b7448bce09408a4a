"""The cluster of a daemon that has a standby: it is the head only with the lease, and its journal is copied."""

import asyncio
import os
import secrets
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog

from orchestrator.cluster.arbiter_client import ArbiterClient, Unreachable, now
from orchestrator.cluster.lease import Acquire, Granted, HeadLease, Look, Refused
from orchestrator.cluster.member import Member
from orchestrator.cluster.nodes import RayCluster
from orchestrator.cluster.replicator import Replicator, listen
from orchestrator.errors import InputError, Problem
from orchestrator.run.journal.home import Home, HomeLock
from orchestrator.run.journal.journal import Journal
from orchestrator.service.attachments import StandbyStatus
from orchestrator.service.configuration import ClusterSettings
from orchestrator.service.service import Service

PAUSE: Final = 1.0  # seconds between two tries to get the lease, at most
LOST_EXIT_CODE: Final = 1

log = structlog.get_logger(__name__)


def arbiter_client(settings: ClusterSettings, home: Home) -> ArbiterClient:
    """Return a client whose answers come in time for several renewals of a lease."""
    return ArbiterClient(settings.ray, settings.folder, home.logs, settings.silence_seconds / 4)


def wanted_lease(settings: ClusterSettings, member: Member, *, waits: bool) -> Acquire:
    return Acquire(
        member=member.id,
        token=secrets.token_hex(16),
        seconds=settings.silence_seconds,
        address=settings.standby,
        key=secrets.token_hex(32),
        epoch=member.epoch,
        handed=member.handed,
        waits=waits,
    )


def end_process(reason: str) -> None:
    """End this process at once, with its engines and sandboxes, which end with their parent."""
    print(f"error: {reason}", file=sys.stderr, flush=True)
    os._exit(LOST_EXIT_CODE)


class ReplicatedCluster(RayCluster):
    """The nodes of a daemon that is the head as long as it has the lease. A lost lease ends the process.

    Entering it waits for the lease. Raises InputError if another machine has become the head, and HomeLocked.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._replicator: Replicator | None = None

    async def __aenter__(self) -> Self:
        if self._replicator is None:
            self._replicator = await self._acquire(Home(self._service.home))
            self.head_epoch = self._replicator.epoch
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        assert self._replicator is not None, "it was entered"
        self._replicator.close()
        if self._service.ending:  # while a backup is restored, this machine remains the head
            await asyncio.to_thread(self._replicator.stop)

    @property
    def standby(self) -> StandbyStatus | None:
        return None if self._replicator is None else self._replicator.status()

    @property
    def why_not_acting(self) -> str | None:
        return "this machine is not the head yet" if self._replicator is None else self._replicator.why_not_acting

    def open_journal(self, home: Path) -> Journal:
        assert self._replicator is not None, "a journal is opened in the context"
        journal = Journal.open(home, replication=self._replicator)
        self._replicator.open()
        return journal

    async def _acquire(self, home: Home) -> Replicator:
        _refuse_locked(home)
        listener = listen(self._settings.standby)
        member, arbiter = Member.load(home), arbiter_client(self._settings, home)
        wanted, before = wanted_lease(self._settings, member, waits=False), ""
        await asyncio.to_thread(arbiter.ask, Look())  # its process takes seconds to start, and the lease counts at once
        while True:
            _refuse_locked(home)  # it may be another one of this folder that is waited for
            sent = now()
            answer = await asyncio.to_thread(arbiter.ask, wanted)
            match answer:
                case Granted(record) if now() < sent + record.seconds:
                    break
                case Granted(record):  # the answer came too late
                    wanted = msgspec.structs.replace(wanted, handed=record.token)
                    continue
                case Refused(reason, None):
                    arbiter.close()
                    listener.close()
                    raise _not_the_head(reason)
                case Refused(reason) | Unreachable(reason):
                    if reason != before:
                        before = reason
                        log.warning("this daemon waits until it may be the head", reason=reason)
            await asyncio.sleep(PAUSE)
        member.changed(epoch=record.epoch, is_copy=False, handed="").save(home)
        log.info("this daemon is the head", epoch=record.epoch)
        return Replicator(home, listener, HeadLease(record, sent), arbiter, end_process)


def _refuse_locked(home: Home) -> None:
    """Raises HomeLocked."""
    with HomeLock(home):
        pass


def _not_the_head(reason: str) -> InputError:
    accepted = "`orchestrator standby` on this machine, which gets a copy of that head's journal"
    return InputError(Problem("cluster.standby", f"this machine may not be the head: {reason}", accepted))
