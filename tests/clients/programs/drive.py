"""Drive the program of one client: `python -m programs.drive NAME`, in the environment that has the client.

Each line of the input is a request in JSON: {"ability": …, "model": …}. Each is answered by one line of JSON on the
output: {"value": …, "calls": …} with what the program's function of this name returned and the calls of tools that were
made meanwhile, {"error": …} where it raised an error, or {"lacks": …} where the client does not have the ability. The
first line of the output, before any request, is {"versions": …}. What the client prints goes to the error output.

A program is a module with functions called `chat`, `stream`, `structured`, `embeddings`, `tools` and `cancel`, each of
which takes a `Case`; with `PACKAGES`, the packages whose versions count; and with `LACKS`, the reasons for functions
that it does not have.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
import traceback
from importlib.metadata import version
from types import ModuleType
from typing import Any

from .case import Case
from .tools import CALLS


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    program = importlib.import_module(f"{__package__}.{sys.argv[1]}")
    print(json.dumps({"versions": {name: version(name) for name in program.PACKAGES}}), file=answers)
    for line in sys.stdin:
        print(json.dumps(_answer(program, **json.loads(line)), default=str), file=answers)


def _answer(program: ModuleType, ability: str, model: str) -> dict[str, Any]:
    if (reason := program.LACKS.get(ability)) is not None:
        return {"lacks": reason}
    case = Case(os.environ["DAEMON_ADDRESS"], os.environ["DAEMON_TOKEN"], model)
    CALLS.clear()
    try:
        value = getattr(program, ability)(case)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except Exception as error:  # noqa: BLE001 - whatever a client raises is its result
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}", "calls": CALLS}
    return {"value": value, "calls": CALLS}


if __name__ == "__main__":
    main()
