"""The errors of the memory.

    MemrlError
    ├── StoreError              the database cannot be used now: closed, locked, the disk is full, a read failed
    │   ├── StoreCorrupt        a page or a row is damaged
    │   └── StoreTooNew         a later version of the program wrote it
    ├── VectorError             a vector of the wrong width, or with values that are not finite
    ├── IndexNotReady           the index is being built from the database; ask again later
    ├── LearnedStateError       the stored policy cannot be read or does not fit (policy.py)
    └── GraphError              the graph's process ended, or its library is not installed
        ├── CypherRefused       the question would change something, or read a file
        ├── CypherFailed        invalid Cypher, or no such table or property
        └── CypherTimeout       the answer took longer than the limit

None of them loses data. The caller can choose by rules instead, and say why. What users get is MemoryUnavailable, an
error of the service.
"""

from pathlib import Path

from orchestrator.service.errors import Unavailable


class MemrlError(Exception):
    """The base class of every error that the memory raises on purpose."""


class MemoryUnavailable(Unavailable):
    """The memory of the router is not open, or cannot be asked; the message says why."""


class StoreError(MemrlError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class StoreCorrupt(StoreError):
    def __init__(self, path: Path, reason: str) -> None:
        advice = "move it away, and a new one learns again from the runs that are kept"
        super().__init__(path, f"the memory's database is damaged: {reason}; {advice}")


class StoreTooNew(StoreError):
    def __init__(self, path: Path, version: int, supported: int) -> None:
        super().__init__(path, f"the schema has version {version}; this program knows versions up to {supported}")
        self.version = version
        self.supported = supported


class VectorError(MemrlError, ValueError):
    """A vector cannot be compared with those of the memory."""


class IndexNotReady(MemrlError):
    def __init__(self, indexed: int, total: int) -> None:
        super().__init__(f"the index of the memory is being built: {indexed} of {total} episodes are in it")
        self.indexed = indexed
        self.total = total


class GraphError(MemrlError):
    """The graph cannot be asked or written."""


class CypherRefused(GraphError):
    """A question was not asked because it does more than read the graph."""


class CypherFailed(GraphError):
    """The graph's library does not accept the question."""


class CypherTimeout(GraphError):
    """A question was given up after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the question was given up after its limit of {seconds:g} s; match less, or raise the limit")
        self.seconds = seconds
