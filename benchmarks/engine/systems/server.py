"""Measure llama-server, built from the same llama.cpp as the bindings.

It has a slot with its own cells for each request, and a slot that holds the beginning of a prompt continues from there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engine.names import SERVER
from benchmarks.engine.system import BenchmarkPrompt, SystemSetup
from benchmarks.engine.systems.parameters import has_broken_amx
from benchmarks.engine.systems.served import Answered, Served, chat_answer, chat_request, free_port, serve

# The parameters with which this server chooses the most likely token in the least time.
_GREEDY = {"temperature": 0.0, "samplers": ["top_k"], "top_k": 1}


async def start(
    setup: SystemSetup, binary: Path, name: str = SERVER, options: Sequence[str] = (), *, chats: bool = False
) -> Served:
    """Start the server with further options. Raises ServerFailed. With `chats` it is sent chats, otherwise texts.

    Its prompt cache in memory is off, because it would copy slots to and fro, and every prompt here is either new or in
    a slot.
    """
    port = free_port()
    command = [str(binary), "-m", str(setup.model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-np", str(setup.width), "-c", str(setup.cells), "-t", str(setup.threads), "-tb", str(setup.threads)]
    command += ["--kv-unified"] if setup.pool else []
    command += ["--cache-ram", "0", "--no-slots", *(["--no-repack"] if has_broken_amx() else []), *options]
    log = setup.folder / "logs" / f"{name.replace(' ', '-').replace(',', '')}.log"
    process = await serve(command, port=port, health="/health", log=log)
    if chats:
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        return Served(name, url, process, lambda *asked: {**chat_request(*asked), **_GREEDY}, chat_answer)
    return Served(name, f"http://127.0.0.1:{port}/completion", process, _request, _answer)


def _request(prompt: BenchmarkPrompt, answer: int) -> dict[str, Any]:
    return {
        "prompt": prompt.text,
        "n_predict": answer,
        **_GREEDY,
        "cache_prompt": True,
        "response_fields": ["content", "tokens_evaluated", "tokens_predicted"],
    }


def _answer(body: dict[str, Any]) -> Answered:
    return Answered(body["content"], body["tokens_evaluated"], body["tokens_predicted"])
