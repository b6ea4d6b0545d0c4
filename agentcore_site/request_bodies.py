"""Bodies of requests to Django: in chunks without a length, packed, or longer than any door takes."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import RequestAborted, RequestDataTooBig, SuspiciousOperation
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse, JsonResponse

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.lib.packed_bodies import BodyRefused, UnpackedStream
from agentcore_site.rest.parsing import too_large
from agentcore_site.rest.problems import body_of

FRAME: Final = 2**20  # of a multipart form: the limit is the file's


class BadBody(Invalid, SuspiciousOperation):
    """Of two families, since forms are also read by Django itself."""


class LargeBody(TooLarge, RequestDataTooBig):
    """As ``BadBody``."""


class BoundedBodies(ASGIHandler):
    """Django's handler, which keeps no more of a body than a door takes. A body that comes in chunks gets the length
    that all readers go by."""

    async def read_body(self, receive: Any) -> Any:
        """A file, closed where the body is too long. Raises RequestAborted."""
        file = tempfile.SpooledTemporaryFile(max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE)  # noqa: SIM115
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                file.close()
                raise RequestAborted
            file.write(event.get("body", b""))
            if file.tell() > settings.DATA_UPLOAD_MAX_MEMORY_SIZE + FRAME:
                file.close()
                return file
            if not event.get("more_body"):
                return file

    def create_request(self, scope: Any, body_file: Any) -> Any:
        if body_file.closed:
            problem = too_large()
            return None, JsonResponse(
                body_of(problem.code, problem.title, problem.message),
                status=problem.code,
                content_type="application/problem+json",
            )
        length = body_file.tell()
        body_file.seek(0)
        request, refused = super().create_request({**scope, "path": f"{settings.SUB_PATH}{scope['path']}"}, body_file)
        if request is not None and length:
            request.META["CONTENT_LENGTH"] = str(length)
        return request, refused


class UnpackedBodies:
    """Middleware: a packed body is unpacked while its reader reads it, so strangers have nothing unpacked."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        encoding = request.headers.get("Content-Encoding", "")
        if encoding.strip().lower() not in ("", "identity"):
            packed: Any = request
            most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE + FRAME
            packed._stream = io.BufferedReader(UnpackedStream(packed._stream, encoding, most, _refused))
        return self.get_response(request)


def _refused(error: BodyRefused) -> Exception:
    return LargeBody(too_large().message) if error.status == 413 else BadBody(str(error))
