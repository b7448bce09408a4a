"""Load a build of llama.cpp and print what it is, as JSON: `python -m orchestrator.engine.llama.probe [LIBRARY]`.

Exits with 1 if the build cannot be used; standard error then says why. `engine.client.library` starts it.
"""

import json
import sys
from typing import Any

import orchestrator.engine.llama.binding as lib


def facts() -> dict[str, Any]:
    """Return the facts about the loaded library, as `engine.client.library.LibraryFacts` has them."""
    parts = [part.partition("=") for part in lib.llama_print_system_info().decode("utf-8", "replace").split("|")]
    return {
        "file": str(lib.library()),
        "build": lib.build(),
        "extensions": [name.rpartition(":")[2].strip() for name, _, value in parts if value.strip() == "1"],
        "lacking": [problem for feature in lib.OPTIONAL if (problem := lib.why_not(feature))],
        "files": [str(file) for file in lib.loaded_files()],
    }


if __name__ == "__main__":
    try:
        lib.load(*sys.argv[1:2])
    except lib.UnusableLibrary as error:
        sys.exit(str(error))
    print(json.dumps(facts()))
