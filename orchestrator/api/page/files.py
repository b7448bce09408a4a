"""Serve the files of the web page. They hold no data, so they need no token; the page asks the API for everything."""

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

from fastapi import APIRouter, Request, Response

from orchestrator.api.errors import NotFound

INDEX: Final = "index.html"
# By the end of the name; no other file is served.
TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_IMPORT_MAP: Final = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)

router = APIRouter(tags=["page"], include_in_schema=False)


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    packed: bytes  # the same, compressed by gzip
    media_type: str
    etag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files of the page by their path below `/page/`."""
    return dict(_read(files("orchestrator.api.page") / "static", PurePosixPath()))


@cache
def security_headers() -> Mapping[str, str]:
    """Return the headers of all files: only scripts of the page run, and no other page may show or open it."""
    import_map = _IMPORT_MAP.search(page_files()[INDEX].content)
    assert import_map is not None, "index.html has an import map"
    digest = base64.b64encode(hashlib.sha256(import_map[1]).digest()).decode()
    policy = {
        "default-src": "'none'",
        "script-src": f"'self' 'sha256-{digest}'",  # the hash is of the import map, which has to be in the document
        "style-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",  # a browser asks whether the file has changed
    }


@router.get("/")
async def index(request: Request) -> Response:
    """Return the page."""
    return _answer(INDEX, request)


@router.get("/page/{name:path}")
async def file(name: str, request: Request) -> Response:
    """Return a file of the page."""
    return _answer(name, request)


def _answer(name: str, request: Request) -> Response:
    page_file = page_files().get(name)
    if page_file is None:
        raise NotFound(f"the page has no file {name!r:.80}")
    headers = {**security_headers(), "ETag": page_file.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == page_file.etag:
        return Response(status_code=304, headers=headers)
    content = page_file.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = page_file.packed, {**headers, "Content-Encoding": "gzip"}
    return Response(content, media_type=page_file.media_type, headers=headers)


def _read(folder: Traversable, place: PurePosixPath) -> list[tuple[str, PageFile]]:
    files: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        path = place / entry.name
        if entry.is_dir():
            files += _read(entry, path)
        elif (media_type := TYPES.get(path.suffix)) is not None:
            content = entry.read_bytes()
            etag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'  # weak, since both encodings have it
            files.append((str(path), PageFile(content, gzip.compress(content, mtime=0), media_type, etag)))
    return files
