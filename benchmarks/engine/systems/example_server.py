"""Measure the example server from llama-cpp-python's source distribution.

It batches requests and keeps prefixes in a radix tree, in Python on the same bindings.
`python -m benchmarks.engine.systems.example_server SCRIPT ARGUMENTS` runs the server's script.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from benchmarks.engine.names import EXAMPLE
from benchmarks.engine.system import BenchmarkPrompt, SystemSetup
from benchmarks.engine.systems.parameters import avoid_broken_amx
from benchmarks.engine.systems.served import Answered, Served, free_port, serve


async def start(setup: SystemSetup, script: Path, packages: Path) -> Served:
    """Start the server with the Python packages in the folder `packages`. Raises ServerFailed.

    Its cache is unified, as it is by default. It gets twice as many sequences and cells as requests need, so that
    finished prompts can stay: with fewer cells llama_decode sometimes finds no room, and the server answers with status
    500.
    """
    port = free_port()
    model = {
        "path": str(setup.model),
        "n_ctx": 2 * setup.width * setup.context,
        "n_seq_max": min(2 * setup.width, 255),
        "n_batch": 512,
        "n_ubatch": 512,
        "threads": setup.threads,
        "threads_batch": setup.threads,
        "max_seq_len": setup.context,
    }
    setup.folder.mkdir(parents=True, exist_ok=True)
    config = setup.folder / "example-server.json"
    config.write_text(json.dumps({"server": {"port": port}, "model": model}), encoding="utf-8")
    command = [sys.executable, "-m", __name__, str(script), "-C", str(config)]
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    log = setup.folder / "logs" / "example-server.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = await serve(command, port=port, health="/healthz", log=log, environment=environment)
    return Served(EXAMPLE, f"http://127.0.0.1:{port}/v1/completions", process, _request, _answer)


def _request(prompt: BenchmarkPrompt, answer: int) -> dict[str, Any]:
    return {"prompt": prompt.text, "max_tokens": answer, "temperature": 0.0}


def _answer(body: dict[str, Any]) -> Answered:
    usage = body["usage"]
    return Answered(body["choices"][0]["text"], usage["prompt_tokens"], usage["completion_tokens"])


def main() -> None:
    """Run the server's script with our parameters for loading models."""
    avoid_broken_amx()
    script = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
