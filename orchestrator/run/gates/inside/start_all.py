"""Start the Python files in the arguments, each in a process of its own, without arguments and without input.

The first argument is how many seconds each may run. Prints a JSON list of the tracebacks of those that end by an
exception.
"""

import json
import subprocess
import sys

seconds, *files = sys.argv[1:]
tracebacks: list[str] = []
for file in files:
    try:
        run = subprocess.run(  # noqa: S603 - in the sandbox
            [sys.executable, "-B", file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=float(seconds),
            check=False,
        )
    except subprocess.TimeoutExpired:
        continue
    if run.returncode == 1:  # that of an exception which nothing has handled
        tracebacks.append(run.stderr[-4000:].decode("utf-8", "replace"))
json.dump(tracebacks, sys.stdout)
