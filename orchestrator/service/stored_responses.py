"""Keep answers of /v1/responses in the state folder, so that later requests can go on with them by their ids.

Each response is a file of its own. It has only what its request has added to the conversation; what came before is in
the file of the response that it goes on with. The oldest files are removed when there are too many.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import OrchestratorError
from orchestrator.journal import Home
from orchestrator.journal.errors import write_error

MAX_RESPONSES: Final = 10_000
"""How many responses are kept, the newest."""
MAX_TURNS: Final = 1000
"""How many responses a conversation may have."""
_SPARE: Final = 500
"""How many more there may be before the oldest ones are removed, so that not every answer looks at all files."""
_ID: Final = re.compile(r"resp_[0-9a-f]{24}")


class UnknownResponse(OrchestratorError):
    """No response is stored under an id: there was none, it was not to be stored, or it has been removed."""

    def __init__(self, response: str) -> None:
        super().__init__(f"no response {response!r} is stored; accepted: the id of an answer with store: true")
        self.response = response


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What is kept of a request and its answer."""

    previous: str | None
    """The id of the response that it goes on with."""
    given: Sequence[Mapping[str, Any]]
    """The items that the request has added to the conversation, as JSON."""
    answer: Mapping[str, Any]
    """The body of the answer, whose `output` has the items of the model."""


class StoredResponses:
    """The responses of a state folder. Its methods read and write files: call them in a thread."""

    def __init__(self, home: Path) -> None:
        self._folder = Home(home).responses
        self._count: int | None = None
        """How many there are at most; None before the first one is stored."""

    def store(self, response: str, stored: StoredResponse) -> None:
        """Keep a response under its id. Raises DiskFull, or JournalError where the file cannot be written."""
        file = self._file(response)
        text = json.dumps({"previous": stored.previous, "given": stored.given, "answer": stored.answer})
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = file.with_suffix(".tmp")
            written.write_text(text, encoding="utf-8")
            os.replace(written, file)
        except OSError as error:
            raise write_error(file, "cannot be written", error) from error
        self._count = self._prune() if self._count is None else self._count + 1
        if self._count > MAX_RESPONSES + _SPARE:
            self._count = self._prune()

    def load(self, response: str) -> StoredResponse:
        """Return what is kept under an id. Raises UnknownResponse."""
        try:
            found = json.loads(self._file(response).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError) as error:
            raise UnknownResponse(response) from error
        return StoredResponse(found["previous"], found["given"], found["answer"])

    def delete(self, response: str) -> None:
        """Remove what is kept under an id. Raises UnknownResponse."""
        try:
            self._file(response).unlink()
        except FileNotFoundError as error:
            raise UnknownResponse(response) from error

    def conversation(self, response: str) -> list[Mapping[str, Any]]:
        """Return all items up to the end of a response, the oldest first.

        Raises UnknownResponse where it or one that came before it is not kept, or where there are too many of them.
        """
        turns: list[StoredResponse] = []
        following: str | None = response
        while following is not None:
            if len(turns) == MAX_TURNS:
                raise UnknownResponse(following)
            turns.append(self.load(following))
            following = turns[-1].previous
        return [item for turn in reversed(turns) for item in (*turn.given, *turn.answer["output"])]

    def _file(self, response: str) -> Path:
        if not _ID.fullmatch(response):
            raise UnknownResponse(response)
        return self._folder / f"{response}.json"

    def _prune(self) -> int:
        """Remove the oldest responses beyond the limit, and return how many are left."""
        with os.scandir(self._folder) as entries:
            files = sorted(_age_and_path(entry) for entry in entries)
        for _, path in files[: max(0, len(files) - MAX_RESPONSES)]:
            Path(path).unlink(missing_ok=True)
        return min(len(files), MAX_RESPONSES)


def _age_and_path(entry: os.DirEntry[str]) -> tuple[int, str]:
    """Return when a file was written, and its path. Another thread may have removed it meanwhile."""
    try:
        return entry.stat().st_mtime_ns, entry.path
    except FileNotFoundError:
        return 0, entry.path
