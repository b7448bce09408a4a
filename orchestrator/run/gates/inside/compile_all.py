"""Compile the Python files in the arguments; print their errors as a JSON list of [file, line, message]."""

import json
import sys

problems: list[tuple[str, int, str]] = []
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        problems.append((path, error.lineno or 0, f"{type(error).__name__}: {error.msg}"))
    except (ValueError, RecursionError, MemoryError) as error:
        problems.append((path, 0, f"{type(error).__name__}: {error}"))
json.dump(problems, sys.stdout)
