"""Answer one question about the graph in a confined process. Only this file uses kuzu, or its fork ladybug.

The sandbox runs this file alone, so it imports nothing of ours. It opens the graph read-only, drops its rights
(`give_up_rights`), and only then reads the question from stdin.
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

GRACE_SECONDS: Final = 0.5  # added to the time limit before the process is ended
ANSWER_BYTES: Final = 512 << 20  # memory beyond what the open graph takes
OUTPUT_BYTES: Final = 16 << 20  # of an answer as JSON
POOL_BYTES: Final = 256 << 20  # the library's buffer
PROGRAM_BYTES: Final = 160 << 20  # address space of Python and the library, without buffer and graph
WRITTEN_BYTES: Final = 1 << 36  # size limit of a graph that is written: the library reserves as much address space
_SPARE_BYTES: Final = 1 << 25
_TOO_MUCH_MEMORY: Final = f"the answer takes more than {ANSWER_BYTES >> 20} MiB of memory"
# the library imports these for its values, which fails once no file can be opened
_IMPORTED_LATE: Final = (datetime, decimal, uuid)


def addresses_of(size: int) -> int:
    """Return the bytes of address space for reading a graph of `size` bytes, a power of two."""
    return 1 << (size + _SPARE_BYTES).bit_length()


@contextlib.contextmanager
def opened_graph(library: str, path: Path, *, read_only: bool) -> Iterator[Any]:
    """Yield a connection to the graph file, by the module named `library`.

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
    """Prevent this process for good from opening files or sockets, writing files and starting processes.

    The limits are hard (setrlimit(2)), and the sandbox's user may not raise them. What is open stays open.
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
    # both libraries' nodes and relations alike: the label and the properties that are set
    if isinstance(value, dict):
        return {
            key.lower() if key.startswith("_") else key: _plain(item)
            for key, item in value.items()
            if key.lower() not in ("_id", "_src", "_dst") and item is not None
        }
    return [_plain(item) for item in value] if isinstance(value, list) else value


def main(arguments: list[str]) -> None:
    library, path, seconds, rows = arguments
    try:
        answer = json.dumps(_answer(library, Path(path), float(seconds), int(rows)), default=str)
    except MemoryError:
        answer = json.dumps({"error": _TOO_MUCH_MEMORY})
    except (RuntimeError, OSError, ImportError) as error:
        answer = json.dumps({"error": str(error)})
    if len(answer) > OUTPUT_BYTES:
        answer = json.dumps({"error": f"the answer has more than {OUTPUT_BYTES >> 20} MiB"})
    print(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
