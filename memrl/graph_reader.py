"""Open graphs, and answer one question in a confined process. Only this file uses kuzu, or its fork ladybug.

The sandbox runs this file alone, so it imports nothing of ours. It opens the graph to read, gives up what a question
could misuse (`give_up_rights`), and only then reads the question from stdin.
"""

import contextlib
import datetime
import decimal
import importlib
import json
import resource
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

GRACE_SECONDS: Final = 0.5
"""How long after its time limit a question may go on before the process is ended."""
ANSWER_BYTES: Final = 512 << 20
"""How much memory the process may take beyond what it has when the graph is open."""
OUTPUT_BYTES: Final = 16 << 20
"""How large an answer may be as JSON."""
POOL_BYTES: Final = 256 << 20
"""How much memory the library may use as its buffer."""
PROGRAM_BYTES: Final = 160 << 20
"""How many addresses Python and the library take up, without buffer and graph."""
WRITTEN_BYTES: Final = 1 << 36
"""How large a graph may become that is written. The library reserves as many addresses, not memory."""
_SPARE_BYTES: Final = 1 << 25
_TOO_MUCH_MEMORY: Final = f"the answer takes more than {ANSWER_BYTES >> 20} MiB of memory"
_IMPORTED_LATE: Final = (datetime, decimal, uuid)
"""The library imports these for values of their types, which it cannot do once no file can be opened."""


def addresses_of(size: int) -> int:
    """Return how many bytes of addresses the library is given to read a graph of `size` bytes: a power of two."""
    return 1 << (size + _SPARE_BYTES).bit_length()


@contextlib.contextmanager
def opened_graph(library: str, path: Path, *, read_only: bool) -> Iterator[Any]:
    """Yield a connection to the graph in a file, by the module named `library`.

    Raises ImportError if there is no such module, and RuntimeError if the library fails.
    """
    module = importlib.import_module(library)
    database = module.Database(
        str(path),
        buffer_pool_size=POOL_BYTES,
        max_num_threads=1,
        read_only=read_only,
        max_db_size=addresses_of(path.stat().st_size) if read_only else WRITTEN_BYTES,
    )
    try:
        connection = module.Connection(database)
        try:
            yield connection
        finally:
            connection.close()
    finally:
        database.close()


def give_up_rights() -> None:
    """Make this process unable to open files or sockets, to write files and to start processes, for good.

    Without a free descriptor nothing can be opened, whatever a query asks for (setrlimit(2)). The limits are hard ones,
    and the sandbox's user may not raise them. What is open already stays open.
    """
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))


def _answer(library: str, path: Path, seconds: float, rows: int) -> dict[str, Any]:
    with opened_graph(library, path, read_only=True) as connection:
        addresses = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ANSWER_BYTES, addresses + ANSWER_BYTES))
        give_up_rights()
        cypher = sys.stdin.read()
        connection.set_query_timeout(max(1, int(1000 * seconds)))
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_SECONDS)  # ends the process: the library may not notice
        try:
            result = connection.execute(cypher)
            count = result.get_num_tuples()
            values = [[_plain(value) for value in result.get_next()] for _ in range(min(rows, count))]
        except RuntimeError as error:
            if "bad_alloc" in str(error):
                return {"error": _TOO_MUCH_MEMORY}
            return {"error": "timeout" if "interrupted" in str(error).lower() else str(error)}
        return {"columns": result.get_column_names(), "rows": values, "more": count > len(values)}


def _plain(value: Any) -> Any:
    """Return a value as both libraries show it: of nodes and relations the label and the properties that they have."""
    if isinstance(value, dict):
        return {
            key.lower() if key.startswith("_") else key: _plain(item)
            for key, item in value.items()
            if key.lower() not in ("_id", "_src", "_dst") and item is not None
        }
    return [_plain(item) for item in value] if isinstance(value, list) else value


def main(arguments: list[str]) -> None:
    """Answer the question on stdin as `Graph` wants it, and print the answer as JSON."""
    library, path, seconds, rows = arguments
    try:
        said = json.dumps(_answer(library, Path(path), float(seconds), int(rows)), default=str)
    except MemoryError:
        said = json.dumps({"error": _TOO_MUCH_MEMORY})
    except (RuntimeError, OSError, ImportError) as error:
        said = json.dumps({"error": str(error)})
    if len(said) > OUTPUT_BYTES:
        said = json.dumps({"error": f"the answer has more than {OUTPUT_BYTES >> 20} MiB"})
    print(said)


if __name__ == "__main__":
    main(sys.argv[1:])
