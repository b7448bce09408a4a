"""The errors of the memory.

    MemrlError
    ├── StoreError              the database cannot be used now: closed, locked, the disk is full, a read failed
    │   ├── StoreCorrupt        a page or a row is not what was written; `Memory.salvage` keeps what can be read
    │   └── StoreTooNew         a later version of the program wrote it
    ├── VectorError             a vector of the wrong width, or with a value that is no number
    ├── IndexNotReady           the index is being built from the database; ask again later
    ├── LearnedStateError       what was stored of a policy cannot be read or does not fit (policy.py)
    └── GraphError              the graph cannot be asked: its process ended, or its library is not installed
        ├── CypherRefused       the question would change something, or read a file
        ├── CypherFailed        the question is no valid Cypher, or the graph has no such table or property
        └── CypherTimeout       the answer took longer than the limit

None of them means that something was lost. Whoever chooses can go on by rules, and say why.
"""

from pathlib import Path


class MemrlError(Exception):
    """The base class of every error that the memory raises on purpose."""


class StoreError(MemrlError):
    """The database at `path` cannot be used, for the reason `what`."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


class StoreCorrupt(StoreError):
    """The database at `path` is damaged. What can be read of it can be kept by `Memory.salvage`."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(path, f"the memory's database is damaged: {what}; `salvage` keeps what can still be read")


class StoreTooNew(StoreError):
    """A later version of the program wrote the database at `path`."""

    def __init__(self, path: Path, version: int, known: int) -> None:
        super().__init__(path, f"the schema has version {version}; this program knows versions up to {known}")
        self.version = version
        self.known = known


class VectorError(MemrlError, ValueError):
    """A vector cannot be compared with those of the memory."""


class IndexNotReady(MemrlError):
    """`indexed` of `total` vectors are in the index so far."""

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
