"""Downloads that can be resumed (RFC 9110): one range of bytes, on the condition that the file is still the same."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Final

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from experiences.trajectories.exports.services import ExportFile

RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def file_answer(request: HttpRequest, file: ExportFile) -> HttpResponseBase:
    """The whole file, or the range that is asked for. Several ranges are answered with the whole file, as is one whose
    ``If-Range`` names another file."""
    size, headers = file.size, {"ETag": file.etag, "Accept-Ranges": "bytes"}
    start, stop, status = 0, size, 200
    found = RANGE.fullmatch(request.headers.get("Range", "").strip())
    if found and _sound(found[1], found[2]) and request.headers.get("If-Range", file.etag) == file.etag:
        start, stop = _between(found[1], found[2], size)
        if start >= stop:
            return HttpResponse(status=416, headers={**headers, "Content-Range": f"bytes */{size}"})
        status, headers["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{size}"
    headers |= {
        "Content-Length": str(stop - start),
        "Content-Disposition": f'attachment; filename="{file.name}"',
        "Cache-Control": "private, no-store",
    }
    body = _stream(file.read(start, stop))
    return StreamingHttpResponse(body, status=status, content_type=file.media, headers=headers)


def _sound(first: str, last: str) -> bool:
    """Whether this is a range at all; another header is one that was not sent."""
    return bool(first or last) and not (first and last and int(last) < int(first))


def _between(first: str, last: str, size: int) -> tuple[int, int]:
    """The first byte, and the one after the last; nothing where the file ends before."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


async def _stream(blocks: Iterator[bytes]) -> AsyncIterator[bytes]:
    read = sync_to_async(lambda: next(blocks, None), thread_sensitive=False)
    while (block := await read()) is not None:
        yield block
