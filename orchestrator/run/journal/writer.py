"""Commit what many coroutines append, in one thread and in groups (group commit), so that one sync serves all.

Writes to a full disk are retried until there is space.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final, TypeVar

import structlog

from orchestrator.run.journal.errors import DiskFull, JournalClosed, JournalError
from orchestrator.run.journal.replica import Replication, appended
from orchestrator.run.journal.store import ChatRow, JournalRow, RefusedEvents, Store

T = TypeVar("T")

log = structlog.get_logger(__name__)

# Between two tries to write on a full disk, since nothing reports that space was freed.
DISK_FULL_RETRY_SECONDS: Final = 1.0


async def retry_when_disk_full(write: Callable[[], T]) -> T:
    """Call `write` in a thread, repeatedly while it raises DiskFull, and return its result.

    If this is cancelled, a running call is awaited first.
    """
    while True:
        try:
            return await _uninterrupted(write)
        except DiskFull as error:
            log.warning("the disk is full: a step waits until it can write", error=str(error))
            await asyncio.sleep(DISK_FULL_RETRY_SECONDS)


async def _uninterrupted(write: Callable[[], T]) -> T:
    # A thread cannot be stopped, so a cancellation waits for it.
    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


MOST_GROUPS: Final = 4096


_Waiting = tuple[Sequence[JournalRow], "Future[None]"]


class Writer:
    """Writes to `store`, which it owns until `close`. Rows are committed in the order of the calls.

    While the disk is full, events of accepted runs wait for space, and new runs and events of chats are refused. After
    any other error of the database nothing more is written, so the journal always holds a prefix of each run. With
    `replication`, rows are durable when they are also where it puts them.
    """

    def __init__(self, store: Store, replication: Replication | None = None) -> None:
        self.full: DiskFull | None = None  # the error for which rows wait, while the disk is full
        self.broken: Future[JournalError] = Future()  # gets the error after which nothing more is written
        self._store = store
        self._replication = replication
        self._waiting: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closing = Lock()
        self._closed = False
        self._thread = Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    async def append(self, rows: Sequence[JournalRow]) -> None:
        """Return when the rows are durable. If the caller is cancelled, the rows are written nevertheless.

        Raises `RefusedEvents` or `JournalError`.
        """
        await asyncio.shield(asyncio.wrap_future(self._submit(rows)))

    def append_without_waiting(self, rows: Sequence[JournalRow]) -> None:
        """Commit the rows with the next group. An error is only logged. Raises `JournalClosed`."""
        self._submit(rows).add_done_callback(_log_error)

    def close(self) -> None:
        """Commit the rows that wait, end the thread and close the database. Later appends raise `JournalClosed`.

        If the disk is full, rows that cannot be committed now are dropped, and their callers get `DiskFull`.
        """
        with self._closing:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join()
        self._store.close()

    def _submit(self, rows: Sequence[JournalRow]) -> "Future[None]":
        future: Future[None] = Future()
        with self._closing:
            if self._closed:
                raise JournalClosed(self._store.path)
            self._waiting.put((rows, future))
        return future

    def _work(self) -> None:
        groups: list[_Waiting] = []
        broken: JournalError | None = None
        last = False
        while not last:
            more, last = self._next_groups(DISK_FULL_RETRY_SECONDS if groups else None)
            groups += more
            broken = broken or self._commit(groups)
            if isinstance(broken, DiskFull) and not last:
                groups = _without_refusable(groups, broken)
                self._note_disk_full(broken if groups else None)
                broken = None
            else:
                _answer(groups, [broken] * len(groups))
                if broken is not None and not self.broken.done():
                    self.broken.set_result(broken)
                groups = []
                self._note_disk_full(None)

    def _next_groups(self, seconds: float | None) -> tuple[list[_Waiting], bool]:
        # Waits at most `seconds` for a group; returns it with all that follow, and whether the writer is closed.
        groups: list[_Waiting] = []
        try:
            item = self._waiting.get(timeout=seconds)
            while item is not None:
                groups.append(item)
                if len(groups) == MOST_GROUPS:
                    return groups, False
                item = self._waiting.get_nowait()
        except Empty:
            return groups, False
        return groups, True

    def _commit(self, groups: list[_Waiting]) -> JournalError | None:
        # Resolves the futures and clears the list, unless nothing was written.
        try:
            outcomes = self._append([rows for rows, _ in groups])
        except Exception as error:  # noqa: BLE001 - the thread's boundary: callers have to get any failure
            return error if isinstance(error, JournalError) else JournalError(self._store.path, repr(error))
        _answer(groups, outcomes)
        groups.clear()
        return None

    def _append(self, groups: Sequence[Sequence[JournalRow]]) -> Sequence[RefusedEvents | None]:
        if self._replication is None:
            return self._store.append(groups)
        self._replication.check()
        outcomes = self._store.append(groups)
        accepted = [rows for rows, refused in zip(groups, outcomes, strict=True) if rows and refused is None]
        if accepted:
            self._replication.commit(appended(accepted, self._store.position()))
        return outcomes

    def _note_disk_full(self, full: DiskFull | None) -> None:
        if full is not None and self.full is None:
            log.error("the disk is full: runs wait until events can be written", error=str(full))
        elif full is None and self.full is not None:
            log.info("events can be written again: the disk is not full any more")
        self.full = full


def _without_refusable(groups: list[_Waiting], full: DiskFull) -> list[_Waiting]:
    # Groups that open new runs, are of chats or are empty are refused; the others have to wait.
    refused = [group for group in groups if _is_refusable(group)]
    _answer(refused, [full] * len(refused))
    return [group for group in groups if not _is_refusable(group)]


def _is_refusable(group: _Waiting) -> bool:
    rows, _ = group
    return not rows or any(isinstance(row, ChatRow) or row.opens for row in rows)


def _log_error(future: "Future[None]") -> None:
    if (error := future.exception()) is not None:
        log.warning("events of a chat were not journaled", error=str(error))


def _answer(groups: list[_Waiting], outcomes: Sequence[Exception | None]) -> None:
    for (_, future), outcome in zip(groups, outcomes, strict=True):
        if outcome is None:
            future.set_result(None)
        else:
            future.set_exception(outcome)
