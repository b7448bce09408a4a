"""Serve models as a hub, a package index and a plain web server do, on loopback, with whatever faults a test wants."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

SECONDS_TO_END: Final = 0.01
"""How long the server may take to notice that it is to end. Python's default is half a second, for each test."""


@dataclass
class Served:
    """What a server offers, what goes wrong, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Files of the repository `some/model`, or of the server's root, by name."""
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """What the files of the repository were, by commit."""
    hashes: dict[str, str] = field(default_factory=dict)
    """What it says the SHA-256 of a file is, where that is a lie."""
    break_off_after: int | None = None
    """The connection breaks after so many bytes of a body, once."""
    gated: bool = False
    gated_files: bool = False
    """Whether everybody sees the list of files, and nobody gets one, as it is with most gated repositories."""
    token: str | None = None
    """Wanted for everything, where there is one."""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range of each request for a file."""
    url: str = ""

    def sha256(self, name: str, data: bytes) -> str:
        return self.hashes.get(name) or hashlib.sha256(data).hexdigest()


@contextmanager
def serving(served: Served) -> Iterator[Served]:
    """Serve until the context ends. `served.url` is the root."""

    class Handler(_Handler):
        what = served

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(SECONDS_TO_END,))
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    what: Served

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        served, path = self.what, self.path.partition("?")[0]
        if served.token is not None and self.headers.get("Authorization") != f"Bearer {served.token}":
            self._refuse(401, "RepoNotFound")
        elif path == "/api/models/some/model":
            self._refuse(403, "GatedRepo") if served.gated else self._json(self._repository(served.files))
        elif match := re.fullmatch(r"/api/models/some/model/revision/(\w+)", path):
            if match[1] in served.commits:
                self._json(self._repository(served.commits[match[1]]))
            else:
                self._refuse(404, "RevisionNotFound")
        elif path.startswith("/api/models/"):
            self._refuse(404, "RepoNotFound")
        elif match := re.fullmatch(r"/some/model/resolve/main/(.+)", path):
            self._file(match[1], served.files)
        elif match := re.fullmatch(r"/some/model/resolve/(\w+)/(.+)", path):
            self._file(match[2], served.commits[match[1]])
        elif match := re.fullmatch(r"/simple/(some-package\d*)/", path):
            self._json(self._index(match[1]))
        elif path.removeprefix("/files/") in served.files:
            self._file(path.removeprefix("/files/"), served.files)
        else:
            self._refuse(404, "EntryNotFound")

    def _repository(self, files: dict[str, bytes]) -> dict[str, Any]:
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "lfs": {"sha256": self.what.sha256(name, data), "size": len(data), "pointerSize": 134},
            }
            for name, data in files.items()
        ]
        return {"id": "some/model", "siblings": siblings}

    def _index(self, package: str) -> dict[str, Any]:
        wheels = [
            {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": self.what.sha256(name, data)}}
            for name, data in self.what.files.items()
        ]
        return {"meta": {"api-version": "1.1"}, "name": package, "versions": ["1.0"], "files": wheels}

    def _json(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, name: str, files: dict[str, bytes]) -> None:
        served, asked = self.what, self.headers.get("Range")
        if served.gated_files:
            self._refuse(403, "GatedRepo")
            return
        served.asked.append((name, asked))
        data = files[name]
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        begin = 0
        if asked is not None and self.headers.get("If-Range", etag) == etag:
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
            if begin >= len(data):
                self._refuse(416, "Range")
                return
        self.send_response(206 if begin else 200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        rest = data[begin:]
        if served.break_off_after is not None:
            rest, served.break_off_after = rest[: served.break_off_after], None
        self.wfile.write(rest)

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep quiet."""
