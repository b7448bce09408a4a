"""What an OpenAI-compatible server answers, for the test server to play, and the key that it is sent."""

import json
from typing import Any

KEY = "sk-Never/Tell+Anyone=0123456789"
VARIABLE = "REMOTE_TEST_KEY"
USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
DONE = "data: [DONE]\n\n"


def event(**fields: Any) -> str:
    """Write an event of the stream."""
    return f"data: {json.dumps(fields, ensure_ascii=False)}\n\n"


def piece(text: str | None, finish: str | None = None) -> str:
    """Write an event with some text, and why it ends there."""
    delta = {} if text is None else {"content": text}
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish}], usage=None)


def stream(*texts: str, finish: str = "stop", usage: dict[str, Any] | None = USAGE) -> str:
    """Write a whole answer."""
    counted = "" if usage is None else event(choices=[], usage=usage)
    return "".join(map(piece, texts)) + piece(None, finish) + counted + DONE


def calls(*deltas: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    """Answer with pieces of calls of tools, after a text if there is one."""
    said = "" if text is None else piece(text)
    made = [event(choices=[{"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": None}]) for delta in deltas]
    return does(["send", said + "".join(made) + piece(None, "tool_calls") + event(choices=[], usage=USAGE) + DONE])


def call(name: str | None, arguments: str | None, index: int | None = None) -> dict[str, Any]:
    """Write a piece of a call."""
    numbered = {} if index is None else {"index": index}
    return {**numbered, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def ok(*texts: str, **options: Any) -> dict[str, Any]:
    """Answer with a text in pieces."""
    return does(["send", stream(*texts, **options)])


def does(*steps: list[Any]) -> dict[str, Any]:
    """Answer with 200, and go through these steps."""
    return {"status": 200, "steps": list(steps)}


def error(status: int, message: str = "no", headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """Answer with an error."""
    body = json.dumps({"error": {"message": message, **fields}})
    return {
        "status": status,
        "headers": {"Content-Type": "application/json", **(headers or {})},
        "steps": [["send", body]],
    }
