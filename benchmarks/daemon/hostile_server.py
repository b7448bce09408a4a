"""A server that sends too much, for `hostile`. Run it; it prints its port.

POST /bomb                  an MCP server whose results are compressed, and become a gigabyte
POST /many                  an MCP server that lists 50,000 tools
POST /v1/chat/completions   an OpenAI-compatible server whose answers do not end
"""

import gzip
import json
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
PIECE = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
REVISION = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
BOMB = gzip.compress(bytes(1 << 20) * 1024, 1)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_POST(self) -> None:
        """Answer as the path says."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/chat/completions":
            self._stream()
        elif "id" not in request:
            self._send(202, b"")
        elif request["method"] == "tools/call":
            self._send(200, BOMB, {"Content-Encoding": "gzip"})
        else:
            self._send(200, self._mcp(request))

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _mcp(self, request: dict[str, Any]) -> bytes:
        names = ["echo"] if self.path == "/bomb" else [f"tool{number}" for number in range(50_000)]
        tools = {"tools": [{"name": name, "inputSchema": SCHEMA} for name in names]}
        result = {"initialize": REVISION, "tools/list": tools}.get(request["method"])
        rest = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        return json.dumps({"jsonrpc": "2.0", "id": request["id"], **rest}).encode()

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # the daemon does not read all of it
            self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        with suppress(ConnectionError):
            while True:
                self.wfile.write(PIECE * 100)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
