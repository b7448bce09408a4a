"""Commit what many coroutines append, in one thread and in groups: one wait for the disk serves them all."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from orchestrator.journal.errors import JournalError
from orchestrator.journal.store import EventRow, RefusedEvents, Store

MOST_GROUPS = 4096

_Waiting = tuple[Sequence[EventRow], "Future[None]"]


class Writer:
    """Owns `store` until `close`. What is appended is committed in the order of the calls.

    After an error of the database nothing more is written, so that what the journal holds of a run is always a
    prefix of what happened.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closing = Lock()
        self._closed = False
        self._thread = Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    async def append(self, rows: Sequence[EventRow]) -> None:
        """Return when the rows are on the disk. A cancelled caller stops waiting; the rows are written all the same.

        Raises `RefusedEvents` or `JournalError`.
        """
        await asyncio.shield(asyncio.wrap_future(self._submit(rows)))

    def close(self) -> None:
        """Commit what is waiting, end the thread and close the database. Later appends raise `RefusedEvents`."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join()
        self._store.close()

    def _submit(self, rows: Sequence[EventRow]) -> "Future[None]":
        future: Future[None] = Future()
        with self._closing:
            if self._closed:
                raise RefusedEvents("the journal is closed")
            self._waiting.put((rows, future))
        return future

    def _work(self) -> None:
        broken: JournalError | None = None
        last = False
        while not last:
            groups, last = self._next_groups()
            if broken is None:
                broken = self._commit(groups)
            else:
                _answer(groups, [broken] * len(groups))

    def _next_groups(self) -> tuple[list[_Waiting], bool]:
        """Wait for one group, and return it with all that wait behind it, and whether they are the last."""
        groups: list[_Waiting] = []
        item = self._waiting.get()
        try:
            while item is not None:
                groups.append(item)
                if len(groups) == MOST_GROUPS:
                    return groups, False
                item = self._waiting.get_nowait()
        except Empty:
            return groups, False
        return groups, True

    def _commit(self, groups: list[_Waiting]) -> JournalError | None:
        try:
            _answer(groups, self._store.append([rows for rows, _ in groups]))
        except Exception as error:  # noqa: BLE001 - the thread's boundary: whoever waits has to hear of any failure
            broken = error if isinstance(error, JournalError) else JournalError(self._store.path, repr(error))
            _answer(groups, [broken] * len(groups))
            return broken
        return None


def _answer(groups: list[_Waiting], outcomes: Sequence[Exception | None]) -> None:
    for (_, future), outcome in zip(groups, outcomes, strict=True):
        if outcome is None:
            future.set_result(None)
        else:
            future.set_exception(outcome)
