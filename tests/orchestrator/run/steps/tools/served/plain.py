"""A small MCP server of the revision 2025-06-18, without the SDK, which can also misbehave: `python plain.py MODE`.

The modes: `good`; `rubbish` writes no messages; `chatty` writes a line that is none before them; `dies` ends at once;
`silent` answers nothing; `odd` has tools whose schemas cannot be used. Others list their tools oddly: `twice` names the
same page twice, `empty_page` begins with one, `empty_cursor` ends with one, `refuses` refuses the second page, and
`invalid` has tools among them that are none.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object"}
TREE = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "required": ["tree"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 8}, "below": {"$ref": "#/$defs/node"}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}
GOOD: dict[str, dict[str, Any]] = {
    "echo": TEXT,
    "fail": NOTHING,
    "large": NOTHING,
    "slow": NOTHING,
    "die": NOTHING,
    "broken": NOTHING,
    "environment": NOTHING,
    "half": NOTHING,
    "bytes": NOTHING,
    "garbled": NOTHING,
    "flood": NOTHING,
    "lists": NOTHING,
    "depth": TREE,
    "even": {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 2}}, "required": ["n"]},
}
ODD: dict[str, dict[str, Any]] = {
    "fine": TEXT,
    "elsewhere": {"type": "object", "properties": {"x": {"$ref": "https://example.org/schema.json"}}},
    "nowhere": {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}, "required": ["x"]},
    "impossible": {"type": "object", "properties": {"x": {"enum": []}}, "required": ["x"]},
    "no_schema": {"type": "object", "properties": {"x": {"type": "text"}}},
}


def main(mode: str) -> None:
    """Answer the requests on stdin until it ends."""
    if mode == "dies":
        print("the database is locked", file=sys.stderr)
        sys.exit(3)
    if mode in ("rubbish", "chatty"):
        print("Server ready, have fun!", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if mode in ("rubbish", "silent") or "id" not in request:
            continue
        answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], **_answer(mode, request)})
        sys.stdout.buffer.write(RAW.get(request.get("params", {}).get("name"), bytes)(answer.encode()) + b"\n")
        sys.stdout.flush()


RAW: dict[str | None, Callable[[bytes], bytes]] = {
    "bytes": lambda answer: answer.replace(b"HERE", b"caf\xe9"),
    "garbled": lambda answer: answer[:-3],
    "flood": lambda answer: answer.replace(b"HERE", b"x" * (8 << 20)),
    "lists": lambda answer: answer.replace(b'"HERE"', b"[" + b"[]," * 100_000 + b"0]"),
}
"""What answers of these tools become that cannot be written as text."""


def _answer(mode: str, request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params", {})
    match request["method"]:
        case "initialize":
            told = {"name": "plain", "version": "1"}
            found = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": told}
            return {"result": found}
        case "tools/list" if mode in PAGES:
            return PAGES[mode](params.get("cursor"))
        case "tools/list":
            known = ODD if mode == "odd" else GOOD
            return {"result": {"tools": [{"name": name, "inputSchema": schema} for name, schema in known.items()]}}
        case "tools/call":
            return _called(params["name"], params.get("arguments", {}))
    return {"error": {"code": -32601, "message": "Method not found"}}


def _page(*tools: Any, cursor: str | None = None) -> dict[str, Any]:
    listed = [one if isinstance(one, dict) else {"name": one, "inputSchema": TEXT} for one in tools]
    return {"result": {"tools": listed, **({} if cursor is None else {"nextCursor": cursor})}}


INVALID: tuple[Any, ...] = (
    "echo",
    {"name": "bare"},
    {"name": "listed", "inputSchema": [1]},
    {"inputSchema": TEXT},
    {"name": 7, "inputSchema": TEXT},
    {"name": "echo", "inputSchema": {"type": "object"}},
    {"name": "untyped", "inputSchema": {"properties": {}}, "description": 5, "annotations": "none", "outputSchema": 3},
)
PAGES: dict[str, Callable[[str | None], dict[str, Any]]] = {
    "twice": lambda cursor: _page("echo", "half", cursor="8"),
    "empty_page": lambda cursor: _page(cursor="2") if cursor is None else _page("echo"),
    "empty_cursor": lambda cursor: _page("echo", cursor=""),
    "refuses": lambda cursor: _page("echo", cursor="2") if cursor is None else {"error": {"code": 5, "message": "no"}},
    "invalid": lambda cursor: _page(*INVALID),
}


def _called(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match tool:
        case "echo":
            return _text(arguments["text"])
        case "fail":
            return {"result": {"content": [{"type": "text", "text": "the ice is too thin"}], "isError": True}}
        case "large":
            return _text("x" * (2 << 20))
        case "slow":
            time.sleep(60)
        case "die":
            print("out of cheese", file=sys.stderr, flush=True)
            os._exit(7)
        case "half" | "bytes" | "garbled" | "flood" | "lists":
            return _text("x\ud83dz" if tool == "half" else "HERE")
        case "broken":
            return {"result": {"content": "no list"}}
        case "environment":
            return _text(json.dumps(dict(os.environ)))
        case "depth" | "even":
            return _text(str(_depth(arguments["tree"]) if tool == "depth" else arguments["n"] // 2))
    return {"error": {"code": -32602, "message": f"there is no tool {tool}"}}


def _depth(node: dict[str, Any]) -> int:
    return 1 + (_depth(node["below"]) if "below" in node else 0)


def _text(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}]}}


if __name__ == "__main__":
    main(sys.argv[1])
