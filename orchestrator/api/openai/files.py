"""Store files that clients upload for requests to `orchestrate`: upload, list, show, content, delete."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, Request, Response, UploadFile
from pydantic import BaseModel

from orchestrator.api.dependencies import AccessDep, ServiceDep
from orchestrator.api.errors import DOCUMENTED
from orchestrator.api.openai.given_files import plain_name
from orchestrator.errors import InputError, Problem
from orchestrator.service.uploaded_files import UnknownFile, UploadedFile

BINARY = {"schema": {"type": "string", "format": "binary"}}

router = APIRouter(prefix="/v1/files", tags=["openai"], responses=dict(DOCUMENTED))


class FileObject(BaseModel):
    """An uploaded file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int  # seconds since the epoch
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    expires_at: None = None  # files are kept until they are deleted


class FileList(BaseModel):
    """Uploaded files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(BaseModel):
    """A file was deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


@router.post("")
async def upload(
    request: Request,
    service: ServiceDep,
    access: AccessDep,
    file: Annotated[UploadFile, File(description="the content")],
    purpose: Annotated[str, Form(min_length=1, max_length=64, description="what for; `user_data` is usual")],
) -> FileObject:
    """Upload a file. The size of a request's body limits it, and `max_uploaded_bytes` of `[folder]` all files."""
    if any(field.partition("[")[0] == "expires_after" for field in await request.form()):
        raise InputError(Problem("expires_after", "is not supported", "leave it out: files are kept"))
    name = plain_name(file.filename or "", "file/filename")
    data = await file.read()
    return _shown(await asyncio.to_thread(service.uploaded_files.store, name, purpose, data, access.key))


@router.get("")
async def files(
    service: ServiceDep,
    access: AccessDep,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    after: Annotated[str | None, Query(description="Only those that come after this file.")] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="desc: the newest first")] = "desc",
    purpose: Annotated[str | None, Query(description="Only those of this purpose.")] = None,
) -> FileList:
    """List the files that the caller may see."""
    visible = [file for file in await asyncio.to_thread(service.uploaded_files.all) if access.sees(file.owner)]
    if after is not None and all(file.id != after for file in visible):
        raise UnknownFile(after)
    ordered = visible if order == "desc" else visible[::-1]
    begin = next((at for at, file in enumerate(ordered, start=1) if file.id == after), 0)
    matches = [file for file in ordered[begin:] if purpose is None or file.purpose == purpose]
    page = [_shown(file) for file in matches[:limit]]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return FileList(data=page, first_id=first, last_id=last, has_more=len(matches) > limit)


@router.get("/{file}")
async def show(file: str, service: ServiceDep) -> FileObject:
    """Show a file, without its content."""
    return _shown(await asyncio.to_thread(service.uploaded_files.find, file))


@router.get(
    "/{file}/content",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": BINARY}, "description": "The file, byte for byte."}},
)
async def content(file: str, service: ServiceDep) -> Response:
    """Return the content of a file."""
    data = await asyncio.to_thread(service.uploaded_files.read, file)
    return Response(data, media_type="application/octet-stream", headers={"X-Content-Type-Options": "nosniff"})


@router.delete("/{file}")
async def delete(file: str, service: ServiceDep) -> DeletedFile:
    """Delete a file. Runs that have read it keep its text."""
    await asyncio.to_thread(service.uploaded_files.delete, file)
    return DeletedFile(id=file)


def _shown(file: UploadedFile) -> FileObject:
    return FileObject(
        id=file.id, bytes=file.bytes, created_at=int(file.created), filename=file.name, purpose=file.purpose
    )
