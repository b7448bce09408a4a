"""A small MCP server of the revision 2025-06-18, without the SDK, which can also misbehave: `python plain.py MODE`.

The modes: `good`; `rubbish` writes no messages; `chatty` writes a line that is none before them; `dies` ends at once;
`silent` answers nothing; `odd` has tools whose schemas cannot be used.
"""

import json
import os
import sys
import time
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
        answer = _answer(mode, request)
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)


def _answer(mode: str, request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params", {})
    match request["method"]:
        case "initialize":
            told = {"name": "plain", "version": "1"}
            found = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": told}
            return {"result": found}
        case "tools/list":
            known = ODD if mode == "odd" else GOOD
            return {"result": {"tools": [{"name": name, "inputSchema": schema} for name, schema in known.items()]}}
        case "tools/call":
            return _called(params["name"], params.get("arguments", {}))
    return {"error": {"code": -32601, "message": "Method not found"}}


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
        case "broken":
            return {"result": {"content": "no list"}}
        case "environment":
            return _text(json.dumps(dict(os.environ)))
        case "depth":
            return _text(str(_depth(arguments["tree"])))
        case "even":
            return _text(str(arguments["n"] // 2))
    return {"error": {"code": -32602, "message": f"there is no tool {tool}"}}


def _depth(node: dict[str, Any]) -> int:
    return 1 + (_depth(node["below"]) if "below" in node else 0)


def _text(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}]}}


if __name__ == "__main__":
    main(sys.argv[1])
