"""Open graphs, and answer a question of one in a process of its own. Only this file uses kuzu, or its fork ladybug.

The process opens the graph for reading only, cannot write any file, and is ended when its time is over. It is started
for each question, so this file imports little: without numpy and the database it starts in half the time.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

GRACE_SECONDS: Final = 0.5
"""How long after its time limit a question may go on before the process is ended."""
ANSWER_BYTES: Final = 1 << 30
"""How much memory the process that asks may take beyond what it has when the graph is open."""
POOL_BYTES: Final = 256 << 20
"""How much memory the library may use as its buffer."""
LARGEST_BYTES: Final = 1 << 36
"""How large the graph may be. The library reserves as many addresses, not memory."""


@contextlib.contextmanager
def opened_graph(library: str, path: Path, *, read_only: bool) -> Iterator[Any]:
    """Yield a connection to the graph in a file, by the module named `library`.

    Raises ImportError where there is no such module, and RuntimeError where the library fails.
    """
    module = importlib.import_module(library)
    database = module.Database(
        str(path), buffer_pool_size=POOL_BYTES, max_num_threads=1, read_only=read_only, max_db_size=LARGEST_BYTES
    )
    try:
        connection = module.Connection(database)
        try:
            yield connection
        finally:
            connection.close()
    finally:
        database.close()


def _answer(library: str, path: Path, cypher: str, seconds: float, rows: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with opened_graph(library, path, read_only=True) as connection:
        addresses = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ANSWER_BYTES, addresses + ANSWER_BYTES))
        connection.set_query_timeout(max(1, int(1000 * seconds)))
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_SECONDS)  # ends the process: the library may not notice
        try:
            result = connection.execute(cypher)
            count = result.get_num_tuples()
            found = [[_plain(value) for value in result.get_next()] for _ in range(min(rows, count))]
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, MemoryError) or "bad_alloc" in str(error):
                return {"error": f"the answer takes more than {ANSWER_BYTES >> 20} MiB of memory"}
            return {"error": "timeout" if "interrupted" in str(error).lower() else str(error)}
        return {"columns": result.get_column_names(), "rows": found, "more": count > len(found)}


def _plain(value: Any) -> Any:
    """Return a value as both libraries show it: of nodes and relations the label and the properties that they have."""
    if isinstance(value, dict):
        return {
            key.lower() if key.startswith("_") else key: _plain(one)
            for key, one in value.items()
            if key.lower() not in ("_id", "_src", "_dst") and one is not None
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


def main(arguments: list[str]) -> None:
    """Answer the question on stdin as `Graph` tells it to, and print the answer as JSON."""
    library, path, seconds, rows = arguments
    os.nice(5)
    try:
        said = _answer(library, Path(path), sys.stdin.read(), float(seconds), int(rows))
    except (RuntimeError, OSError, ImportError) as error:
        said = {"error": str(error)}
    print(json.dumps(said, default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
