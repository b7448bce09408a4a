"""Start the Python files in the arguments, each in a process of its own, without arguments and without input.

The first argument is how many seconds each may run. Prints the tracebacks of those that end by an exception, as a JSON
list of [file, traceback].
"""

import json
import subprocess
import sys

seconds, *files = sys.argv[1:]
crashes: list[tuple[str, str]] = []
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
        crashes.append((file, run.stderr[-4000:].decode("utf-8", "replace")))
json.dump(crashes, sys.stdout)
