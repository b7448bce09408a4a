"""Keep answers of /v1/responses and of threads of /v1/messages, which later requests go on with by their ids.

They are in folders of the state folder. Each response is a file of its own. It has only what its request has added to
the conversation; what came before is in the file of the response that it goes on with. The oldest files of a folder are
removed when there are too many, or too large ones.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import OrchestratorError
from orchestrator.run.journal.errors import write_error

MAX_RESPONSES: Final = 10_000
"""How many responses are kept, the newest."""
MAX_BYTES: Final = 1 << 30
"""How many bytes all of them may have together."""
MAX_TURNS: Final = 1000
"""How many responses a conversation may have."""
_SPARE: Final = 500
"""How many more there may be before the oldest ones are removed, so that not every answer looks at all files."""


class UnknownResponse(OrchestratorError):
    """No response is stored under an id: there was none, it was not to be stored, or it has been removed."""

    def __init__(self, response: str) -> None:
        super().__init__(f"no response {response!r} is stored; accepted: the id of an answer with store: true")
        self.response = response


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What is kept of a request and its answer.

    What the request has added to the conversation are items of /v1/responses, or messages of /v1/messages.
    """

    previous: str | None
    """The id of the response that it goes on with."""
    given: Sequence[Mapping[str, Any]]
    """What the request has added to the conversation, as JSON."""
    answer: Mapping[str, Any]
    """The answer, whose `output` has what the model has added to the conversation."""
    owner: str = ""
    """The key of the caller who asked; empty for responses of early versions."""


class StoredResponses:
    """The responses in a folder, whose ids begin with `prefix`. Its methods take files: call them in a thread."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._id = re.compile(rf"{prefix}_[0-9a-f]{{24}}")
        self._count: int | None = None
        """How many there are at most; None before the first one is stored."""
        self._bytes = 0
        """How many bytes they have at most."""

    def store(self, response: str, stored: StoredResponse) -> None:
        """Keep a response under its id. Raises DiskFull, or JournalError where the file cannot be written."""
        file = self._file(response)
        kept = {"previous": stored.previous, "given": stored.given, "answer": stored.answer, "owner": stored.owner}
        text = json.dumps(kept)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = file.with_suffix(".tmp")
            written.write_text(text, encoding="utf-8")
            os.replace(written, file)
        except OSError as error:
            raise write_error(file, "cannot be written", error) from error
        if self._count is not None:
            self._count += 1
            self._bytes += len(text)  # all of it is ASCII
        if self._count is None or self._count > MAX_RESPONSES + _SPARE or self._bytes > MAX_BYTES:
            self._prune()

    def load(self, response: str) -> StoredResponse:
        """Return what is kept under an id. Raises UnknownResponse."""
        try:
            found = json.loads(self._file(response).read_text(encoding="utf-8"))
            return StoredResponse(found["previous"], found["given"], found["answer"], found.get("owner", ""))
        except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
            raise UnknownResponse(response) from error

    def delete(self, response: str) -> None:
        """Remove what is kept under an id. Raises UnknownResponse."""
        try:
            self._file(response).unlink()
        except FileNotFoundError as error:
            raise UnknownResponse(response) from error

    def conversation(self, response: str, sees: Callable[[str], bool]) -> list[Mapping[str, Any]]:
        """Return all that was added to the conversation up to the end of a response, the oldest first.

        `sees` returns whether the responses of an owner may be seen. Raises UnknownResponse where it or one that came
        before it is not kept or may not be seen, or where there are too many of them.
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
        """Remove the oldest responses beyond the limits, and count those that are left."""
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
    """Return when a file was written, its size in bytes, and its path. Another thread may have removed it meanwhile."""
    try:
        return entry.stat().st_mtime_ns, entry.stat().st_size, entry.path
    except FileNotFoundError:
        return 0, 0, entry.path
