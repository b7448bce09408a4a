"""Store answers of /v1/responses and of threads of /v1/messages, which later requests continue by id.

Each response is a file with what its request added to the conversation; what came before is in the file of the previous
response. The oldest files of a folder are removed when there are too many, or they take too much space.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import OrchestratorError
from orchestrator.files import replace_file
from orchestrator.run.journal.errors import write_error

MAX_RESPONSES: Final = 10_000  # the newest are kept
MAX_BYTES: Final = 1 << 30  # of all responses together
MAX_TURNS: Final = 1000  # responses of a conversation
# Responses beyond the limit before the oldest are removed, so that not every answer looks at all files.
_SPARE: Final = 500


class UnknownResponse(OrchestratorError):
    """No response is stored under an id: there was none, it was not to be stored, or it was removed."""

    def __init__(self, response: str) -> None:
        super().__init__(f"no response {response!r} is stored; accepted: the id of an answer with store: true")
        self.response = response


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A request and its answer, as items of /v1/responses or messages of /v1/messages."""

    previous: str | None  # id of the response that it continues
    given: Sequence[Mapping[str, Any]]  # what the request added to the conversation, as JSON
    answer: Mapping[str, Any]  # its `output` is what the model added to the conversation
    owner: str = ""  # the caller's key; empty for responses of early versions


class StoredResponses:
    """The responses in a folder, with ids that start with `prefix`. Blocks on the disk."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._id = re.compile(rf"{prefix}_[0-9a-f]{{24}}")
        self._count: int | None = None  # at most; None before the first one is stored
        self._bytes = 0  # at most

    def store(self, response: str, stored: StoredResponse) -> None:
        """Store a response under its id. Raises DiskFull, or JournalError if the file cannot be written."""
        file = self._file(response)
        record = {"previous": stored.previous, "given": stored.given, "answer": stored.answer, "owner": stored.owner}
        text = json.dumps(record)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(file, text)
        except OSError as error:
            raise write_error(file, "cannot be written", error) from error
        if self._count is not None:
            self._count += 1
            self._bytes += len(text)  # all of it is ASCII
        if self._count is None or self._count > MAX_RESPONSES + _SPARE or self._bytes > MAX_BYTES:
            self._prune()

    def load(self, response: str) -> StoredResponse:
        """Return the response with this id. Raises UnknownResponse."""
        try:
            record = json.loads(self._file(response).read_text(encoding="utf-8"))
            return StoredResponse(record["previous"], record["given"], record["answer"], record.get("owner", ""))
        except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
            raise UnknownResponse(response) from error

    def delete(self, response: str) -> None:
        """Remove the response with this id. Raises UnknownResponse."""
        try:
            self._file(response).unlink()
        except FileNotFoundError as error:
            raise UnknownResponse(response) from error

    def conversation(self, response: str, sees: Callable[[str], bool]) -> list[Mapping[str, Any]]:
        """Return everything that was added to the conversation up to the end of a response, oldest first.

        `sees` returns whether an owner's responses may be seen. Raises UnknownResponse if one of them is not stored or
        may not be seen, or if there are too many.
        """
        turns: list[StoredResponse] = []
        following: str | None = response
        while following is not None:
            if len(turns) == MAX_TURNS:
                raise UnknownResponse(following)
            turns.append(self.load(following))
            if not sees(turns[-1].owner):
                raise UnknownResponse(following)
            following = turns[-1].previous
        return [item for turn in reversed(turns) for item in (*turn.given, *turn.answer["output"])]

    def _file(self, response: str) -> Path:
        if not self._id.fullmatch(response):
            raise UnknownResponse(response)
        return self._folder / f"{response}.json"

    def _prune(self) -> None:
        with os.scandir(self._folder) as entries:
            files = sorted(map(_age_size_and_path, entries), reverse=True)
        self._count = self._bytes = 0
        spared = MAX_BYTES - MAX_BYTES // 10  # so that not every answer comes here once the files are this large
        for number, (_, size, path) in enumerate(files):
            if number == self._count < MAX_RESPONSES and (not number or self._bytes + size <= spared):
                self._count += 1
                self._bytes += size
            else:
                Path(path).unlink(missing_ok=True)


def _age_size_and_path(entry: os.DirEntry[str]) -> tuple[int, int, str]:
    try:
        return entry.stat().st_mtime_ns, entry.stat().st_size, entry.path
    except FileNotFoundError:  # another thread has removed it
        return 0, 0, entry.path
